//! Both ends of a link over a simulated path, with records of attempts and handled messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_sim::stream::{AttemptFate, AttemptInfo, PathConfig, SetUpDelay, path};
use barograph_timeout::link::{Accept, Connect, Link, LinkConfig, ListenConfig, Listener, Message};
use barograph_timeout::{Attempt, AttemptOutcome, FixedTimeout, TimeoutDecision, TimeoutEstimator};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// An estimator that records its inputs and decides as its inner estimator does.
#[derive(Clone)]
pub(crate) struct Tape<E = FixedTimeout> {
    pub(crate) inner: E,
    pub(crate) ended: Vec<(u32, AttemptOutcome)>,
    pub(crate) connected: Vec<Duration>,
}

impl<E> Tape<E> {
    pub(crate) fn new(inner: E) -> Self {
        Self { inner, ended: Vec::new(), connected: Vec::new() }
    }
}

impl<E: TimeoutEstimator> TimeoutEstimator for Tape<E> {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        self.inner.decide(attempt)
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        self.ended.push((attempt.number, ended));
        self.inner.record(attempt, ended);
    }

    fn record_connect(&mut self, took: Duration) {
        self.connected.push(took);
        self.inner.record_connect(took);
    }
}

/// Identifiers and contents of the handled messages.
pub(crate) type Handled = Vec<(u64, Vec<u8>)>;

/// A running listener, and the messages that its handler accepted, in order.
pub(crate) struct Serving<A> {
    pub(crate) listener: Arc<Listener<A>>,
    pub(crate) handled: Arc<Mutex<Handled>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl<A> Serving<A> {
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.handled.lock().unwrap().iter().map(|&(id, _)| id).collect()
    }

    /// Shuts the listener down and waits until it has ended.
    pub(crate) async fn stop(self) -> Vec<u64> {
        let ids = self.ids();
        drop(self.stop);
        self.task.await.unwrap();
        ids
    }
}

/// Serves with a handler that waits for the duration `work` on each message, and accepts the
/// message if `accept` returns true.
pub(crate) fn serve_if<A: Accept + 'static>(
    listener: Listener<A>,
    work: Duration,
    accept: impl Fn(&Message) -> bool + Clone + Send + Sync + 'static,
) -> Serving<A> {
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = Arc::new(listener);
    let handled = Arc::new(Mutex::new(Vec::new()));
    let (serving, written) = (listener.clone(), handled.clone());
    let handler = move |message: Message| {
        let (written, accept) = (written.clone(), accept.clone());
        async move {
            if !work.is_zero() {
                tokio::time::sleep(work).await;
            }
            if !accept(&message) {
                return Err("not now");
            }
            written.lock().unwrap().push((message.id, message.bytes));
            Ok(())
        }
    };
    let task = tokio::spawn(async move { serving.serve(handler, async { _ = stopped.await }).await });
    Serving { listener, handled, stop, task }
}

pub(crate) fn serve<A: Accept + 'static>(listener: Listener<A>) -> Serving<A> {
    serve_if(listener, Duration::ZERO, |_| true)
}

/// Both ends of a simulated path: a connector, and a listener that does not serve yet.
pub(crate) fn simulated(
    law: impl FnMut(&AttemptInfo) -> AttemptFate + Send + 'static,
    set_up: impl FnMut(Duration) -> SetUpDelay + Send + 'static,
    config: ListenConfig,
) -> (impl Connect, Listener<impl Accept + 'static>) {
    let path_config = PathConfig { handshake_exchanges: 1, delivers_late: true };
    let (connector, acceptor) = path(path_config, law, set_up);
    let acceptor = Arc::new(acceptor);
    let accept = move || {
        let acceptor = acceptor.clone();
        async move { acceptor.accept().await }
    };
    (move || connector.connect(), Listener::new(accept, config))
}

/// A link with a fixed timeout, over `connector`.
pub(crate) fn link<C: Connect>(connector: C, timeout: Duration, max_attempts: u32) -> Link<C, Tape> {
    let config = LinkConfig { max_attempts, seed: Some(1), ..LinkConfig::default() };
    Link::new(connector, config, Tape::new(FixedTimeout(timeout)))
}

/// A link over a simulated path, and its receiver, which handles messages in no time.
pub(crate) fn linked(
    law: impl FnMut(&AttemptInfo) -> AttemptFate + Send + 'static,
    set_up: impl FnMut(Duration) -> SetUpDelay + Send + 'static,
    timeout: Duration,
    max_attempts: u32,
) -> (Link<impl Connect, Tape>, Serving<impl Accept>) {
    let (connector, listener) = simulated(law, set_up, ListenConfig::default());
    (link(connector, timeout, max_attempts), serve(listener))
}

/// A link over a path of 1 ms to a receiver that takes `work` for each message.
pub(crate) fn linked_to_worker(
    config: ListenConfig,
    work: Duration,
    timeout: Duration,
    max_attempts: u32,
) -> (Link<impl Connect, Tape>, Serving<impl Accept>) {
    let (connector, listener) = simulated(|_| AttemptFate::after(MS), at_once, config);
    (link(connector, timeout, max_attempts), serve_if(listener, work, |_| true))
}

/// Returns the fates of attempts in order, and repeats the last fate.
pub(crate) fn in_turn(fates: &[AttemptFate]) -> impl FnMut(&AttemptInfo) -> AttemptFate + Send + 'static {
    let mut fates = fates.to_vec();
    fates.reverse();
    move |_| if fates.len() > 1 { fates.pop().unwrap() } else { fates[0] }
}

pub(crate) fn at_once(_: Duration) -> SetUpDelay {
    Ok(Duration::ZERO)
}
