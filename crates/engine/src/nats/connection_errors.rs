//! Errors that servers report without a request, and the reason for a missing connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{ClientError, Event, ServerError};
use tokio::sync::broadcast;

use super::connection::RequestError;
use super::subject::RESPONSES;

/// Distributes the errors of the connection.
#[derive(Clone)]
pub(super) struct ConnectionErrors {
    sender: broadcast::Sender<ConnectionError>,
    last: Arc<Mutex<Option<String>>>,
    has_outdated_responses: Arc<AtomicBool>,
    warned_of_responses: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum ConnectionError {
    /// The server denied a permission; the text has the subject.
    Denied(String),
    /// The connection broke, so pending responses are lost.
    Lost,
}

impl ConnectionErrors {
    pub(super) fn new() -> Self {
        Self {
            sender: broadcast::Sender::new(ERRORS),
            last: Arc::default(),
            has_outdated_responses: Arc::default(),
            warned_of_responses: Arc::default(),
        }
    }

    /// Returns whether the server refused the subjects of responses, as servers with an older
    /// configuration do.
    pub(super) fn has_outdated_responses(&self) -> bool {
        self.has_outdated_responses.load(Ordering::Relaxed)
    }

    /// Logs one warning about servers with an older configuration, where archives do not respond
    /// below the requester's name.
    fn warn_of_outdated_responses(&self) {
        self.has_outdated_responses.store(true, Ordering::Relaxed);
        if !self.warned_of_responses.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the NATS servers have an outdated configuration: a holder of any station's credential can suppress \
                 responses to others and fill their memory. Generate it again (docs/nats-operations.md, \"From an older mesh\")"
            );
        }
    }

    /// Receives denials and lost connections from now on.
    pub(super) fn subscribe(&self) -> ErrorReceiver {
        ErrorReceiver(self.sender.subscribe())
    }

    /// Returns the last known reason for a missing connection or response, in brackets; empty if no
    /// reason is known.
    pub(super) fn reason(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map(|last| format!(" ({last})")).unwrap_or_default()
    }

    /// Records why the proxy could not connect to a server, or lost the connection.
    pub(super) fn unreachable(&self, why: String) {
        tracing::debug!(%why, "cannot reach a NATS server");
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Records an event of the client. `inbox` is this station's inbox as it appears in a denial.
    /// Servers deny this inbox only if the credentials or the certificate belong to a different
    /// station.
    pub(super) fn record(&self, event: &Event, inbox: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match event {
            event if is_vague(event) && last.is_some() => return,
            Event::Disconnected => {
                // An error means that there is no receiver.
                let _ = self.sender.send(ConnectionError::Lost);
                return;
            }
            Event::Connected => {
                self.has_outdated_responses.store(false, Ordering::Relaxed);
                None
            }
            Event::ServerError(ServerError::Other(text)) if is_about_responses(text) => {
                self.warn_of_outdated_responses();
                return;
            }
            // This denial shows that the engine belongs to a member, not to an archive.
            Event::ServerError(ServerError::Other(text)) if is_about_extents(text) => {
                let _ = self.sender.send(ConnectionError::Denied(text.clone()));
                return;
            }
            Event::ServerError(ServerError::Other(text)) => {
                let said = if text.contains(inbox) {
                    format!(
                        "{text}: the certificate or the credentials belong to another station; \
                         check mesh.nats_credentials"
                    )
                } else {
                    text.clone()
                };
                if is_about_a_response(text) {
                    tracing::debug!(error = %said, "a response came too late");
                    return;
                }
                if last.as_ref() != Some(&said) {
                    tracing::warn!(error = %said, "a NATS server denied an operation");
                }
                let _ = self.sender.send(ConnectionError::Denied(text.clone()));
                Some(said)
            }
            Event::ClientError(ClientError::Other(text)) if text.ends_with("authorization violation") => {
                let why = "the servers do not accept this station's certificate or credentials; \
                           add the station to their configuration";
                Some(why.into())
            }
            Event::ServerError(error) => Some(error.to_string()),
            Event::ClientError(error) => Some(error.to_string()),
            _ => return,
        };
        *last = text;
    }
}

/// Returns whether the event does not show why the connection failed. For such an event, the proxy
/// has recorded the reason.
fn is_vague(event: &Event) -> bool {
    matches!(event, Event::ClientError(ClientError::Other(text)) if text.ends_with("IO error"))
}

/// Returns whether the server refused to report the extent of a stream.
fn is_about_extents(text: &str) -> bool {
    text.to_ascii_lowercase().contains("\"$js.api.stream.info.")
}

/// Returns whether the server refused an archive's response. The requester has disconnected, or the
/// archive has reconnected, since the request.
fn is_about_a_response(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("\"_r_.") || text.contains(&format!("publish to \"{RESPONSES}."))
}

/// Returns whether the server refused the subscription to responses of archives.
fn is_about_responses(text: &str) -> bool {
    text.to_ascii_lowercase().contains(&format!("subscription to \"{RESPONSES}."))
}

/// Receives the denials and lost connections that occur after this receiver was created.
pub(super) struct ErrorReceiver(broadcast::Receiver<ConnectionError>);

impl ErrorReceiver {
    /// Waits for the next error that concerns `subject`.
    pub(super) async fn next_for(&mut self, subject: &str) -> RequestError {
        self.next_matching(|denied| denied.eq_ignore_ascii_case(subject)).await
    }

    /// Waits for the next error that concerns a subject for which `is_one` is true. Servers write
    /// subjects in lower case.
    pub(super) async fn next_matching(&mut self, is_one: impl Fn(&str) -> bool) -> RequestError {
        loop {
            match self.0.recv().await {
                Ok(ConnectionError::Denied(text)) => {
                    let denied = text.split('"').nth(1).unwrap_or_default();
                    if is_one(denied) {
                        return RequestError::Denied(text);
                    }
                }
                Ok(ConnectionError::Lost) => {
                    return RequestError::NoAnswer("the connection to the NATS server broke".into());
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                // `recv` cannot end, because the connection holds the sender while a caller waits.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Number of errors kept for a slow receiver. The server may deny all pending publications at the
/// same time.
const ERRORS: usize = 1024;
