//! Asking an archive.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::link::{Link, Trouble, json};
use super::question::{AnswerJson, Question, parts};
use super::subject;
use crate::{Error, Page, Record};

/// What an archive answered.
#[derive(Debug)]
pub(super) struct Answer {
    number: Option<u64>,
    page: Page<Record>,
}

impl Answer {
    pub(super) fn into_page(self) -> Result<Page<Record>, Error> {
        Ok(self.page)
    }

    pub(super) fn into_number(self) -> Result<u64, Error> {
        self.number.ok_or_else(|| Error::Unavailable("an archive answered without a number".into()))
    }
}

/// Asks the archive that answered last, or that gave the cursor; where it is gone, any.
pub(super) async fn ask(link: &Link, question: &Question) -> Result<Answer, Error> {
    let mut question = question.clone();
    question.after_place = link.acknowledged.load(Ordering::Relaxed);
    let by_cursor = question.cursor.map(|cursor| parts(cursor).0);
    let archive = by_cursor.unwrap_or_else(|| link.archive.load(Ordering::Relaxed));
    let payload = json(&question);
    let any = format!("{}.{}", subject::QUESTIONS, question.kind);
    let mut answer = Err(Trouble::NotSent(String::new()));
    if archive != 0 {
        answer = link.request(format!("{any}.{archive}"), None, payload.clone()).await;
    }
    if by_cursor.is_none() && matches!(answer, Err(Trouble::NotSent(_) | Trouble::NoAnswer(_))) {
        answer = link.request(any, None, payload).await;
    }
    match answer {
        Ok(message) => read(link, &message.payload),
        Err(Trouble::NotSent(_)) if by_cursor.is_some() && link.connected().is_ok() => {
            Err(Error::TooOld("the archive that gave this place does not answer; begin again".into()))
        }
        Err(Trouble::NotSent(why)) if link.connected().is_ok() => {
            Err(Error::Unavailable(format!("no archive answers ({why})")))
        }
        Err(trouble) => Err(trouble.into()),
    }
}

fn read(link: &Link, payload: &Bytes) -> Result<Answer, Error> {
    let answer: AnswerJson<'_> = serde_json::from_slice(payload)
        .map_err(|error| Error::Unavailable(format!("an archive's answer cannot be read: {error}")))?;
    link.archive.store(answer.archive, Ordering::Relaxed);
    let (number, page) = answer.read()?;
    Ok(Answer { number, page })
}
