//! Answers requests of stations from the archive.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::Message;
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::askers::{Cost, Slot};
use super::super::link::{Trouble, json};
use super::super::progress::{Progress, Readiness};
use super::super::question::{self, AnswerJson, Question};
use super::{RETRY_MAX, RETRY_MIN, Shared};
use crate::wire::RecordJson;
use crate::{Cursor, Engine as _, Error, Page, Record};

pub(super) async fn answer(shared: Arc<Shared>) {
    let mut wait = RETRY_MIN;
    loop {
        if let Err(why) = serve(&shared).await {
            tracing::warn!(%why, "the archive does not answer");
        }
        sleep(wait).await;
        wait = (2 * wait).min(RETRY_MAX);
    }
}

async fn serve(shared: &Arc<Shared>) -> Result<(), String> {
    let client = &shared.link.client;
    let said = |error: async_nats::SubscribeError| error.to_string();
    let mut faults = shared.link.faults();
    let [any, own] = [None, Some(shared.number)].map(question::subjects);
    let mut questions = Vec::new();
    for subject in &any {
        questions.push(client.queue_subscribe(subject.clone(), "archives".into()).await.map_err(said)?);
    }
    for subject in &own {
        questions.push(client.subscribe(subject.clone()).await.map_err(said)?);
    }
    let mut questions = futures_util::stream::select_all(questions);
    let all = [any, own].concat();
    loop {
        let question = tokio::select! {
            question = questions.next() => question,
            trouble = faults.of_any(|denied| all.iter().any(|one| one.eq_ignore_ascii_case(denied))) => match trouble {
                Trouble::Denied(what) => return Err(what),
                // The client subscribes again when it reconnects.
                _ => continue,
            },
        };
        let Some(question) = question else { return Err("the subscription ended".into()) };
        take(shared, question).await;
    }
}

/// Answers a request in a task of its own, so that it does not delay later ones.
async fn take(shared: &Arc<Shared>, message: Message) {
    let is_older = shared.link.has_older_answers();
    if !question::is_asked(message.headers.as_ref(), is_older) {
        return;
    }
    // A JetStream acknowledgement that was published to this subject does not parse. Such a message
    // does not count towards the limits of the station that the subject names.
    let Ok(asked) = Asked::read(&message) else { return };
    let is_heard = if asked.asker.is_empty() { is_older } else { shared.askers.is_heard(&asked.asker) };
    let Some(reply) = reply(&message, &asked, is_older).filter(|_| is_heard) else { return };
    match shared.askers.slot(&asked.asker) {
        Ok(slot) => {
            tokio::spawn(look_up(Arc::clone(shared), asked, slot, reply));
        }
        Err(why) => send(shared, reply, Err(Error::Unavailable(why.into()))).await,
    }
}

/// Returns the subject of the response; `None` if the request must not be answered.
///
/// A requester may choose only the last two tokens of the subject: the servers execute all that an
/// archive publishes to JetStream's interface, so a free choice would be dangerous. Two reply
/// subjects of older configurations are safe: one that the server chose (`_R_.`, which it refuses
/// from clients), and an inbox if stations share the archive's account.
fn reply(message: &Message, asked: &Asked, is_older: bool) -> Option<async_nats::Subject> {
    let is_of_server = |reply: &str| reply.starts_with("_R_.") || is_older && reply.starts_with("_INBOX_");
    if let Some(reply) = message.reply.clone().filter(|reply| is_of_server(reply)) {
        return Some(reply);
    }
    question::answer(&asked.asker, asked.question.answer.as_deref()?).map(async_nats::Subject::from)
}

/// Answers a request, unless its deadline is over.
async fn look_up(shared: Arc<Shared>, asked: Asked, slot: Slot, reply: async_nats::Subject) {
    let mut readiness = asked.readiness(&shared.progress.borrow());
    if readiness == Readiness::Behind {
        readiness = wait(&shared, &asked).await;
    }
    let deadline = shared.link.config.deadline;
    let Ok(Some(_turn)) = timeout_at(asked.came + deadline, shared.askers.turn(&slot, asked.cost())).await
    else {
        return;
    };
    send(&shared, reply, find(&shared, &asked, readiness).await).await;
}

/// A request with its sender and time of arrival.
struct Asked {
    /// Token of the requesting station; empty for a station of an older version, because its
    /// requests do not name it.
    asker: String,
    kind: String,
    question: Question,
    came: Instant,
}

impl Asked {
    fn read(message: &Message) -> serde_json::Result<Self> {
        let question = serde_json::from_slice(&message.payload)?;
        let (asker, kind) = question::of_subject(&message.subject);
        Ok(Self { asker: asker.to_owned(), kind: kind.to_owned(), question, came: Instant::now() })
    }

    fn cost(&self) -> Cost {
        match self.kind.as_str() {
            question::HISTORY | question::LATEST => Cost::Page,
            _ => Cost::Number,
        }
    }

    fn readiness(&self, progress: &Progress) -> Readiness {
        progress.readiness(&self.kind, &self.question, self.came)
    }
}

async fn send(shared: &Shared, reply: async_nats::Subject, answer: Result<bytes::Bytes, Error>) {
    let answer = answer.unwrap_or_else(|error| json(&shared.answer().with_error(error)));
    shared.answered.fetch_add(1, Ordering::Relaxed);
    // Ignore an error: a requester that gets no response repeats its request.
    let _ = shared.link.client.publish(reply, answer).await;
}

/// Waits until the archive has read the records that the request needs, or until the stream is
/// known to end before them.
async fn wait(shared: &Shared, asked: &Asked) -> Readiness {
    // Each receiver stands for one waiting request; the task that reads the stream counts the
    // receivers.
    let mut progress = shared.progress.subscribe();
    shared.wanted.notify_one();
    let ready = progress.wait_for(|now| asked.readiness(now) != Readiness::Behind);
    match timeout(shared.link.config.deadline / 2, ready).await {
        Ok(Ok(now)) => asked.readiness(&now),
        _ => Readiness::Behind,
    }
}

async fn find(shared: &Shared, asked: &Asked, readiness: Readiness) -> Result<bytes::Bytes, Error> {
    let (kind, question) = (asked.kind.as_str(), &asked.question);
    match readiness {
        Readiness::Ready => {}
        Readiness::OtherStream => {
            let error = "the archive reads another stream than this station knows";
            let answer = AnswerJson { other_stream: true, ..shared.answer() };
            return Ok(json(&answer.with_error(Error::Unavailable(error.into()))));
        }
        Readiness::BeyondEnd(end) => {
            let place = question.after_place;
            let error = format!("the stream ends at {end}, before the place {place}");
            // If the request names no stream, its position may belong to a different stream.
            let answer = AnswerJson { other_stream: question.stream.is_none(), ..shared.answer() };
            return Ok(json(&answer.with_error(Error::Unavailable(error))));
        }
        Readiness::Behind => {
            let now = shared.progress.borrow();
            let (wanted, read) = (now.wanted(kind, question), now.seq);
            let wanted = wanted.map_or_else(|| "its end".into(), |wanted| wanted.to_string());
            return Err(Error::Unavailable(format!(
                "the archive has read the stream up to {read}, not yet to {wanted}"
            )));
        }
    }
    let is_own = |origin: &crate::HostId| *origin == shared.link.config.host;
    let number = |number| json(&AnswerJson { number: Some(number), ..shared.answer() });
    match kind {
        question::WATERMARK if is_own(&question.origin()?) => Ok(number(shared.progress.borrow().own)),
        question::WATERMARK => shared.local.watermark(&question.origin()?).await.map(number),
        question::NEXT_SEQ => shared.local.next_seq(&question.origin()?).await.map(number),
        question::HISTORY | question::LATEST => page(shared, kind, question).await,
        question::BUCKET => Ok(json(&AnswerJson { bucket: shared.bucket(), ..shared.answer() })),
        _ => Err(Error::Invalid("the question is not known".into())),
    }
}

/// Builds a page that fits in one message.
async fn page(shared: &Shared, kind: &str, question: &Question) -> Result<bytes::Bytes, Error> {
    let after = match question.cursor.map(question::parts) {
        None => None,
        Some((archive, place)) if archive == shared.number => Some(place),
        Some(_) => return Err(Error::TooOld("another archive gave this place; begin again".into())),
    };
    let bytes_max =
        shared.link.client.server_info().max_payload.saturating_sub(ENVELOPE_BYTES).max(ENVELOPE_BYTES);
    let mut limit = question.limit;
    loop {
        let page = look(shared, kind, question, (limit, bytes_max), after).await?;
        let items: Vec<RecordJson<'_>> = page.items.iter().map(RecordJson::from).collect();
        let next = page.next.map(|place| question::cursor(shared.number, place));
        let answer = json(&AnswerJson { items: Some(items), next, ..shared.answer() });
        if answer.len() <= bytes_max || page.items.len() <= 1 {
            return Ok(answer);
        }
        // Reduce the number of records in proportion to the excess, and a little more. The
        // requester sends a further request for the rest.
        limit = (page.items.len() * bytes_max / answer.len() * 9 / 10).max(1);
    }
}

async fn look(
    shared: &Shared,
    kind: &str,
    question: &Question,
    (limit, bytes_max): (usize, usize),
    after: Option<Cursor>,
) -> Result<Page<Record>, Error> {
    if kind == question::HISTORY {
        let range = question.range(limit, after);
        shared.local.history_within(&question.series()?, &range, bytes_max).await
    } else {
        shared.local.latest_within(&question.selector()?, after, limit, bytes_max).await
    }
}

/// Bytes that a response may have in addition to its records; also the smallest message that a
/// server accepts.
const ENVELOPE_BYTES: usize = 64 << 10;
