//! Errors that servers report without a request, and the reason for a missing connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{ClientError, Event, ServerError};
use tokio::sync::broadcast;

use super::link::Trouble;
use super::subject::ANSWERS;

/// Distributes the errors of the connection.
#[derive(Clone)]
pub(super) struct Faults {
    news: broadcast::Sender<Fault>,
    last: Arc<Mutex<Option<String>>>,
    has_older_answers: Arc<AtomicBool>,
    warned_of_answers: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Fault {
    /// The server denied a permission; the text has the subject.
    Denied(String),
    /// The connection broke, so pending responses are lost.
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

    /// Returns whether the server refused the subjects of responses, as servers with an older
    /// configuration do.
    pub(super) fn has_older_answers(&self) -> bool {
        self.has_older_answers.load(Ordering::Relaxed)
    }

    /// Logs one warning about servers with an older configuration, where archives do not respond
    /// below the requester's name.
    fn note_older_answers(&self) {
        self.has_older_answers.store(true, Ordering::Relaxed);
        if !self.warned_of_answers.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the NATS servers have an older configuration: with any station's credential alone all answers to others \
                 can be taken away, and their memory can be filled; make it anew (docs/nats-operations.md, \"From an older mesh\")"
            );
        }
    }

    /// Receives denials and lost connections from now on.
    pub(super) fn listen(&self) -> FaultsOf {
        FaultsOf(self.news.subscribe())
    }

    /// The known reason for a missing connection or response, in brackets.
    pub(super) fn why(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map(|last| format!(" ({last})")).unwrap_or_default()
    }

    /// Records why the relay could not reach a server, or lost it.
    pub(super) fn unreachable(&self, why: String) {
        tracing::debug!(%why, "a NATS server is not reached");
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Records an event of the client. `inbox` is this station's inbox as it appears in a denial.
    /// Servers deny it only if the credentials or the certificate belong to a different station.
    pub(super) fn note(&self, event: &Event, inbox: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match event {
            event if is_vague(event) && last.is_some() => return,
            Event::Disconnected => {
                // An error means that there is no receiver.
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
            // This denial shows that the engine belongs to a member, not to an archive.
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

/// Returns whether the event does not show the reason. The relay has recorded the reason then.
fn is_vague(event: &Event) -> bool {
    matches!(event, Event::ClientError(ClientError::Other(text)) if text.ends_with("IO error"))
}

/// Returns whether the server refused to report the extent of a stream.
fn is_of_extents(text: &str) -> bool {
    text.to_ascii_lowercase().contains("\"$js.api.stream.info.")
}

/// Returns whether the server refused an archive's response: the requester has disconnected, or the
/// archive has reconnected since. Each response has its own subject.
fn is_of_an_answer(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("\"_r_.") || text.contains(&format!("publish to \"{ANSWERS}."))
}

/// Returns whether the server refused the subscription to responses of archives.
fn is_of_answers(text: &str) -> bool {
    text.to_ascii_lowercase().contains(&format!("subscription to \"{ANSWERS}."))
}

/// Receives denials and lost connections since it was created.
pub(super) struct FaultsOf(broadcast::Receiver<Fault>);

impl FaultsOf {
    /// Waits for the next error that concerns `subject`.
    pub(super) async fn of(&mut self, subject: &str) -> Trouble {
        self.of_any(|denied| denied.eq_ignore_ascii_case(subject)).await
    }

    /// Waits for the next error that concerns a subject for which `is_one` is true. Servers write
    /// subjects in lower case.
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
                // `recv` cannot end, because the link holds the sender while a caller waits.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Errors kept for a slow receiver. A window of appends can be denied at once.
const FAULTS: usize = 1024;
