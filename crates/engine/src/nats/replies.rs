//! Receives the responses of archives, and matches them with requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{Client, Message, SubscribeError, Subscriber};
use futures_util::StreamExt as _;
use tokio::sync::oneshot;

use super::archive_request;

/// The unanswered requests of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    requester: String,
    inbox: String,
    /// Random, so that no other station can send messages to the subject on which responses arrive.
    session: String,
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Message>>>,
}

/// Waits for the response to one request. Dropping this value ends the wait.
#[derive(Debug)]
pub(super) struct Reply {
    replies: Arc<Replies>,
    number: u64,
    message: oneshot::Receiver<Message>,
}

impl Replies {
    /// Creates the table of unanswered requests for the station with the token `requester`; `inbox`
    /// is a new inbox of the client.
    pub(super) fn new(requester: String, inbox: String) -> Self {
        let session = inbox.rsplit('.').next().unwrap_or_default().to_owned();
        Self { requester, inbox, session, last: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// Subscribes to the responses of archives, and to the inbox. The inbox receives a server's
    /// report that there is no archive; with an older configuration of the servers, the inbox also
    /// receives the responses.
    pub(super) async fn subscribe(&self, client: &Client) -> Result<[Subscriber; 2], SubscribeError> {
        let answers = archive_request::response_prefix(&self.requester, &self.session);
        Ok([
            client.subscribe(format!("{}.*", self.inbox)).await?,
            client.subscribe(format!("{answers}.*")).await?,
        ])
    }

    /// Passes each response to the request that waits for it.
    pub(super) async fn deliver(&self, from: [Subscriber; 2]) {
        let mut messages = futures_util::stream::select_all(from);
        while let Some(message) = messages.next().await {
            let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
            if let Some(sender) = number.and_then(|number: u64| self.lock().remove(&number)) {
                // Ignore an error: the deadline of the request may have passed.
                let _ = sender.send(message);
            }
        }
    }

    /// Registers one more request.
    pub(super) fn next(self: &Arc<Self>) -> Reply {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let (sender, message) = oneshot::channel();
        self.lock().insert(number, sender);
        Reply { replies: Arc::clone(self), number, message }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Message>>> {
        // The entries do not depend on each other, so they are valid even after a panic of a
        // different lock holder.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reply {
    /// The part of the response's subject that the requester chooses.
    pub(super) fn chosen(&self) -> String {
        format!("{}.{}", self.replies.session, self.number)
    }

    /// Subject at which a server reports that there is no archive.
    pub(super) fn inbox(&self) -> String {
        format!("{}.{}", self.replies.inbox, self.number)
    }

    /// Waits for the response; `None` if the connection is gone.
    pub(super) async fn message(&mut self) -> Option<Message> {
        (&mut self.message).await.ok()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.replies.lock().remove(&self.number);
    }
}
