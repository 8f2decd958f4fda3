//! A registration that is renewed until it is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_api::client::ApiRequest;
use barograph_api::{EngineRegistered, EngineUnregistered};
use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client::{Client, HttpRequestError, escaped};
use super::runtime::RemoteRuntime;
use crate::{EngineError, Lease, LeaseState};

/// Numbers of the registrations of this engine: the last number that was given, and the highest
/// number that was registered. An older registration never registers again.
#[derive(Clone, Default)]
pub(super) struct Newest {
    given: Arc<AtomicU64>,
    registered: Arc<AtomicU64>,
}

/// One registration with its entry and its number.
pub(super) struct Holder {
    client: Arc<Client>,
    /// Text of the entry.
    entry: Bytes,
    ttl: Duration,
    number: u64,
    newest: Newest,
    /// Identifier that the station gave; empty if the station does not have the registration.
    registration: String,
    state: Arc<Mutex<LeaseState>>,
}

/// A lease at the other station. Dropping the lease makes its task delete the entry.
pub(super) struct RemoteLease {
    ttl: Duration,
    state: Arc<Mutex<LeaseState>>,
    _dropped: oneshot::Sender<()>,
    /// Runtime of the task. This field is dropped last, so that the task is stopped before the
    /// thread ends.
    _runtime: Arc<RemoteRuntime>,
}

/// Marks a valid lease as lapsed when its renewing task ends, also after a panic.
struct LapseOnDrop(Arc<Mutex<LeaseState>>);

impl Drop for LapseOnDrop {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == LeaseState::Held {
            *state = LeaseState::Lapsed;
        }
    }
}

enum Renewal {
    Done,
    /// The station restarted, or the lease expired.
    Unregistered,
    /// Another registration has the name.
    Displaced,
    Failed(EngineError),
}

impl Holder {
    pub(super) fn new(client: Arc<Client>, entry: Bytes, ttl: Duration, newest: &Newest) -> Self {
        let number = newest.given.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            client,
            entry,
            ttl,
            number,
            newest: newest.clone(),
            registration: String::new(),
            state: Arc::new(Mutex::new(LeaseState::Held)),
        }
    }

    /// Registers, without a retry on failure.
    pub(super) async fn register(mut self) -> Result<Self, EngineError> {
        self.put(self.client.deadline()).await?;
        self.newest.registered.fetch_max(self.number, Ordering::Relaxed);
        Ok(self)
    }

    /// Starts a task that renews the registration.
    pub(super) fn hold(self, runtime: &Arc<RemoteRuntime>) -> RemoteLease {
        let (dropped, ended) = oneshot::channel();
        let (ttl, leaving) = (self.ttl, runtime.leaving());
        let state = Arc::clone(&self.state);
        let (lapse_on_drop, task) = (LapseOnDrop(Arc::clone(&state)), Arc::clone(&runtime.renewal));
        runtime.spawn(async move {
            let _lapse_on_drop = lapse_on_drop;
            task.watch_until_done(self.renew_until(ended)).await;
            drop(leaving);
        });
        RemoteLease { ttl, state, _dropped: dropped, _runtime: Arc::clone(runtime) }
    }

    async fn renew_until(mut self, mut ended: oneshot::Receiver<()>) {
        // Renew after a third of the lease, so that two renewals may fail before the lease expires.
        let period = self.ttl / 3;
        let mut wait = period;
        let mut renewed = Instant::now();
        loop {
            let renewal = async {
                tokio::time::sleep(wait).await;
                self.renew(period).await
            };
            let renewal = tokio::select! {
                renewal = renewal => renewal,
                _ = &mut ended => break,
            };
            wait = period;
            match renewal {
                _ if !self.is_newest() => return,
                Renewal::Done => {
                    renewed = Instant::now();
                    self.set_state(LeaseState::Held);
                }
                Renewal::Displaced => {
                    self.set_state(LeaseState::Displaced);
                    tracing::warn!(
                        "another process registered under this station's name; \
                         give each station a name of its own"
                    );
                    return;
                }
                Renewal::Unregistered => {
                    self.set_state(LeaseState::Lapsed);
                    self.registration.clear();
                }
                Renewal::Failed(error) => {
                    tracing::debug!("a lease was not renewed: {error}");
                    if self.ttl <= renewed.elapsed() {
                        self.set_state(LeaseState::Lapsed);
                    }
                }
            }
            if self.registration.is_empty() {
                wait = self.put_again(period).await;
                if !self.registration.is_empty() {
                    renewed = Instant::now();
                    self.set_state(LeaseState::Held);
                }
            }
        }
        self.deregister().await;
    }

    /// Registers again. Returns the wait until the next step.
    async fn put_again(&mut self, period: Duration) -> Duration {
        match self.put(period).await {
            Ok(()) => period,
            Err(error) => {
                tracing::debug!("the station was not registered again: {error}");
                period.min(RETRY)
            }
        }
    }

    async fn put(&mut self, limit: Duration) -> Result<(), EngineError> {
        let path = format!("entry?ttl_s={}", self.ttl.as_secs_f64());
        let body = self.entry.clone();
        let request = ApiRequest {
            method: Method::PUT,
            path: &path,
            content_type: "application/json",
            body,
            ..ApiRequest::default()
        };
        let until = Instant::now() + limit;
        let answer = self.client.request(&request, until).await.map_err(HttpRequestError::of_read)?;
        let registered: EngineRegistered = answer.json(until).await.map_err(HttpRequestError::of_read)?;
        self.registration = registered.registration;
        Ok(())
    }

    async fn renew(&self, limit: Duration) -> Renewal {
        if self.registration.is_empty() {
            return Renewal::Unregistered;
        }
        match self.about(Method::POST, limit).await {
            Ok(()) => Renewal::Done,
            Err(HttpRequestError::Refused { status: StatusCode::NOT_FOUND, .. }) => Renewal::Unregistered,
            Err(HttpRequestError::Refused { status: StatusCode::CONFLICT, .. }) => Renewal::Displaced,
            Err(trouble) => Renewal::Failed(trouble.of_read()),
        }
    }

    async fn deregister(&self) {
        if self.is_newest() && !self.registration.is_empty() {
            // If the request fails, the lease expires at the station.
            let _ = self.about(Method::DELETE, self.client.deadline()).await;
        }
    }

    async fn about(&self, method: Method, limit: Duration) -> Result<(), HttpRequestError> {
        let path = format!("entry?registration={}", escaped(&self.registration));
        let request = ApiRequest { method, path: &path, ..ApiRequest::default() };
        let until = Instant::now() + limit;
        let EngineUnregistered {} = self.client.request(&request, until).await?.json(until).await?;
        Ok(())
    }

    fn set_state(&self, state: LeaseState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn is_newest(&self) -> bool {
        self.newest.registered.load(Ordering::Relaxed) <= self.number
    }
}

impl Lease for RemoteLease {
    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn state(&self) -> LeaseState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wait between two attempts to register again: short enough for a lease of a few seconds, and long
/// enough to avoid a flood of requests.
const RETRY: Duration = Duration::from_secs(1);
