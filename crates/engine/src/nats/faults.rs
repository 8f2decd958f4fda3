//! What servers say of their own accord, and why there is no connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{ClientError, Event, ServerError};
use tokio::sync::broadcast;

use super::link::Trouble;
use super::subject::ANSWERS;

/// What the server says of its own accord.
#[derive(Clone)]
pub(super) struct Faults {
    news: broadcast::Sender<Fault>,
    last: Arc<Mutex<Option<String>>>,
    has_older_answers: Arc<AtomicBool>,
    warned_of_answers: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Fault {
    /// A permission was violated; the text names the subject.
    Denied(String),
    /// The connection broke, and with it every answer that was to come.
    Lost,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            news: broadcast::Sender::new(FAULTS),
            last: Arc::default(),
            has_older_answers: Arc::default(),
            warned_of_answers: Arc::default(),
        }
    }

    /// Whether the server refused the subjects of answers, as servers with an older configuration do.
    pub(super) fn has_older_answers(&self) -> bool {
        self.has_older_answers.load(Ordering::Relaxed)
    }

    /// Warns once of servers whose configuration is older than that archives answer below the asker's name.
    fn note_older_answers(&self) {
        self.has_older_answers.store(true, Ordering::Relaxed);
        if !self.warned_of_answers.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the NATS servers have an older configuration: with any station's credential alone all answers to others \
                 can be taken away, and their memory can be filled; make it anew (docs/nats.md, \"From an older mesh\")"
            );
        }
    }

    /// Refusals and losses from now on.
    pub(super) fn listen(&self) -> FaultsOf {
        FaultsOf(self.news.subscribe())
    }

    /// What is known of why there is no connection or no answer, in brackets.
    pub(super) fn why(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map(|last| format!(" ({last})")).unwrap_or_default()
    }

    /// Why the relay could not reach a server, or lost it.
    pub(super) fn unreachable(&self, why: String) {
        tracing::debug!(%why, "a NATS server is not reached");
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Takes an event of the client. `inbox`: how a refusal names the own one, which is refused only to another identity.
    pub(super) fn note(&self, event: &Event, inbox: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match event {
            event if is_vague(event) && last.is_some() => return,
            Event::Disconnected => {
                // Nobody may be waiting.
                let _ = self.news.send(Fault::Lost);
                return;
            }
            Event::Connected => {
                self.has_older_answers.store(false, Ordering::Relaxed);
                None
            }
            Event::ServerError(ServerError::Other(text)) if is_of_answers(text) => {
                self.note_older_answers();
                return;
            }
            // So an engine learns that it is a member's.
            Event::ServerError(ServerError::Other(text)) if is_of_extents(text) => {
                let _ = self.news.send(Fault::Denied(text.clone()));
                return;
            }
            Event::ServerError(ServerError::Other(text)) => {
                let said = if text.contains(inbox) {
                    format!("{text}: the certificate or the credentials are another station's")
                } else {
                    text.clone()
                };
                if is_of_an_answer(text) {
                    tracing::debug!(error = %said, "an answer came too late");
                    return;
                }
                if last.as_ref() != Some(&said) {
                    tracing::warn!(error = %said, "a NATS server refused something");
                }
                let _ = self.news.send(Fault::Denied(text.clone()));
                Some(said)
            }
            Event::ClientError(ClientError::Other(text)) if text.ends_with("authorization violation") => {
                Some("the servers do not know this station's certificate or credentials".into())
            }
            Event::ServerError(error) => Some(error.to_string()),
            Event::ClientError(error) => Some(error.to_string()),
            _ => return,
        };
        *last = text;
    }
}

/// Whether it hides what happened behind two words, where the relay knows more.
fn is_vague(event: &Event) -> bool {
    matches!(event, Event::ClientError(ClientError::Other(text)) if text.ends_with("IO error"))
}

/// Whether the server refused to report the extent of a stream.
fn is_of_extents(text: &str) -> bool {
    text.to_ascii_lowercase().contains("\"$js.api.stream.info.")
}

/// Whether the server refused an archive's answer: its asker is gone, or the connection is another one. Each names a
/// subject of its own.
fn is_of_an_answer(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("\"_r_.") || text.contains(&format!("publish to \"{ANSWERS}."))
}

/// Whether the server refused to pass on what archives answer.
fn is_of_answers(text: &str) -> bool {
    text.to_ascii_lowercase().contains(&format!("subscription to \"{ANSWERS}."))
}

/// Refusals and losses since it was made.
pub(super) struct FaultsOf(broadcast::Receiver<Fault>);

impl FaultsOf {
    /// The next one that concerns `subject`.
    pub(super) async fn of(&mut self, subject: &str) -> Trouble {
        self.of_any(|denied| denied.eq_ignore_ascii_case(subject)).await
    }

    /// The next one that concerns a subject which is one of these; servers write subjects in lower case.
    pub(super) async fn of_any(&mut self, is_one: impl Fn(&str) -> bool) -> Trouble {
        loop {
            match self.0.recv().await {
                Ok(Fault::Denied(text)) => {
                    let denied = text.split('"').nth(1).unwrap_or_default();
                    if is_one(denied) {
                        return Trouble::Denied(text);
                    }
                }
                Ok(Fault::Lost) => {
                    return Trouble::NoAnswer("the connection to the NATS server broke".into());
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                // The link holds a sender for as long as anyone asks.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Refusals kept for whoever waits; a window of appends can be refused at once.
const FAULTS: usize = 1024;
