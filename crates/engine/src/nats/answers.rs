//! Sends requests to an archive.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::link::{Link, Trouble};
use super::question::{AnswerJson, Question, parts};
use crate::{Error, Page, Record};

#[derive(Debug)]
pub(super) struct Answer {
    number: Option<u64>,
    bucket: Option<String>,
    page: Page<Record>,
}

impl Answer {
    pub(super) fn into_page(self) -> Page<Record> {
        self.page
    }

    pub(super) fn into_bucket(self) -> Option<String> {
        self.bucket
    }

    pub(super) fn into_number(self) -> Result<u64, Error> {
        self.number.ok_or_else(|| Error::Unavailable("an archive answered without a number".into()))
    }
}

/// Sends the request to the archive that responded last or made the cursor; if that archive does
/// not respond, sends the request to any archive.
pub(super) async fn ask(link: &Link, question: &Question) -> Result<Answer, Error> {
    let asked = ask_once(link, question).await;
    let Err(Unanswered::OtherStream(stream, _)) = &asked else { return asked.map_err(Error::from) };
    // The stream was recreated, and either this engine or the archive has not detected that yet.
    link.found_other(stream);
    ask_once(link, question).await.map_err(Error::from)
}

/// Reason why there is no response.
enum Unanswered {
    /// The archive reads the stream that was created at this time.
    OtherStream(String, Error),
    Other(Error),
}

impl std::convert::From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl std::convert::From<Unanswered> for Error {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::OtherStream(_, error) | Unanswered::Other(error) => error,
        }
    }
}

async fn ask_once(link: &Link, question: &Question) -> Result<Answer, Unanswered> {
    let mut question = question.clone();
    (question.stream, question.after_place) = link.acknowledged();
    let by_cursor = question.cursor.map(|cursor| parts(cursor).0);
    let archive = by_cursor.unwrap_or_else(|| link.archive.load(Ordering::Relaxed));
    let mut answer = Err(Trouble::NotSent(String::new()));
    if archive != 0 {
        answer = link.ask(&question, Some(archive)).await;
    }
    if by_cursor.is_none() && matches!(answer, Err(Trouble::NotSent(_) | Trouble::NoAnswer(_))) {
        answer = link.ask(&question, None).await;
    }
    match answer {
        Ok(message) => read(link, &message.payload),
        Err(Trouble::NotSent(_)) if by_cursor.is_some() && link.connected().is_ok() => {
            Err(Error::TooOld("the archive that gave this place does not answer; begin again".into()).into())
        }
        Err(Trouble::NotSent(why)) if link.connected().is_ok() => {
            Err(Error::Unavailable(format!("no archive answers ({why})")).into())
        }
        Err(trouble) => Err(Error::from(trouble).into()),
    }
}

fn read(link: &Link, payload: &Bytes) -> Result<Answer, Unanswered> {
    let answer: AnswerJson<'_> = serde_json::from_slice(payload)
        .map_err(|error| Error::Unavailable(format!("an archive's answer cannot be read: {error}")))?;
    link.archive.store(answer.archive, Ordering::Relaxed);
    let other = answer.stream.clone().filter(|_| answer.other_stream);
    if let Some(stream) = answer.stream.as_ref().filter(|_| !answer.other_stream) {
        link.found(stream);
    }
    let bucket = answer.bucket.clone();
    let (number, page) = answer.read().map_err(|error| match other {
        Some(stream) => Unanswered::OtherStream(stream, error),
        None => Unanswered::Other(error),
    })?;
    Ok(Answer { number, bucket, page })
}
