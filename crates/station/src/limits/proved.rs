//! Addresses that a token or a signature authorised lately, and a clock for them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_limits::proved::{Proved, Prover};

use crate::sync::lock;

/// The addresses and a clock for them; clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct ProvedCallers(Arc<(Instant, Mutex<Proved>)>);

impl ProvedCallers {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Instant::now(), Mutex::default())))
    }

    /// The time since the station's start.
    pub(crate) fn now(&self) -> Duration {
        self.0.0.elapsed()
    }

    /// Calls `act` with the addresses; nothing else may change them meanwhile.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Proved) -> T) -> T {
        act(&mut lock(&self.0.1))
    }

    /// Whose token or signature authorised a request of this address within the last hour; `None` = no one's.
    pub(crate) fn prover(&self, ip: IpAddr) -> Option<Prover> {
        let now = self.now();
        self.with(|proved| proved.prover(ip, now).cloned())
    }
}
