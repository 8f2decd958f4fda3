//! One path: a link, whose attempts fare as the scenario's weather says, and the listener at its end.

use barograph_sim::stream::{Acceptor, AttemptInfo, Client, Connector, Fate, PathConfig, Server, path};
use barograph_sim::{Try, Weather};
use barograph_timeout::link::{Accept, Connect};
use barograph_timeout::{Attempt, Decision, Ended, Timeout};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What becomes of a copy whose connection was closed because it took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// It does not arrive, as in the engine.
    Vanish,
    /// It arrives when it would have, as what has left the host does with TCP.
    ArriveLate,
}

/// What is being sent on a path, which the weather must know and a link does not say.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub(super) reduction: usize,
    pub(super) bytes: u64,
    /// Attempts made so far.
    pub(super) attempts: u32,
    /// When the last one began and would end, if nothing breaks it.
    last: Option<(f64, f64)>,
}

impl Sending {
    pub(super) fn of(reduction: usize, bytes: u64) -> Self {
        Self { reduction, bytes, ..Self::default() }
    }

    /// Asks the weather about the next attempt. The one before it was cut off, or there would be no other.
    fn attempt(&mut self, index: usize, weather: &mut Weather<'_>, info: &AttemptInfo) -> Fate {
        if let Some((began, ends)) = self.last.take() {
            weather.cancelled(index, began, ends);
        }
        let at = info.started.as_secs_f64();
        let Self { reduction, bytes, attempts: number, .. } = *self;
        let response = weather.respond(&Try { path: index, reduction, number, at, bytes });
        self.attempts += 1;
        let takes = Duration::from_secs_f64(response.takes_s);
        if response.broken {
            return Fate::reset(takes);
        }
        self.last = Some((at, at + response.takes_s));
        Fate::after(takes)
    }
}

pub(super) type Shared<T> = Arc<Mutex<T>>;

/// The two ends of path `index`.
pub(super) fn ends(
    index: usize,
    weather: &Shared<Weather<'static>>,
    sending: &Shared<Sending>,
    copies: Copies,
) -> (Dial, Door) {
    let reconnect = Duration::from_secs_f64(lock(weather).reconnect_s(index));
    let (weather, sending) = (weather.clone(), sending.clone());
    let law = move |info: &AttemptInfo| lock(&sending).attempt(index, &mut lock(&weather), info);
    let mut next = Duration::ZERO;
    let set_up = move |_| Ok(std::mem::replace(&mut next, reconnect));
    // The hello and the welcome are part of setting up.
    let config = PathConfig { greetings: 1, delivers_late: copies == Copies::ArriveLate };
    let (connector, acceptor) = path(config, law, set_up);
    (Dial(connector), Door(acceptor))
}

/// Connects over a simulated path.
pub(super) struct Dial(Connector);

impl Connect for Dial {
    type Stream = Client;

    fn connect(&self) -> impl Future<Output = io::Result<Client>> + Send {
        self.0.connect()
    }
}

/// Takes connections from a simulated path.
pub(super) struct Door(Acceptor);

impl Accept for Door {
    type Stream = Server;

    fn accept(&self) -> impl Future<Output = io::Result<Server>> + Send {
        self.0.accept()
    }
}

/// A timeout that, once a message has used up its tries, waits for it without one and learns nothing, as the
/// engine does.
pub(super) struct Patient {
    pub(super) inner: Box<dyn Timeout + Send>,
    pub(super) waits: bool,
}

impl Timeout for Patient {
    fn decide(&self, attempt: &Attempt) -> Decision {
        let decision = self.inner.decide(attempt);
        if self.waits { Decision { timeout: Duration::MAX, ..decision } } else { decision }
    }

    fn record(&mut self, attempt: &Attempt, ended: Ended) {
        if !self.waits {
            self.inner.record(attempt, ended);
        }
    }

    fn connected(&mut self, took: Duration) {
        self.inner.connected(took);
    }
}

/// Who panicked while holding it has failed the run already.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
