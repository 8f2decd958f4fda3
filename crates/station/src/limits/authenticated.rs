//! Addresses that a token or a signature authorised recently, with their clock.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_limits::authenticated::{AuthenticatedAddresses, CredentialOwner};

use crate::sync::lock;

/// The addresses and their clock; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedCallers(Arc<(Instant, Mutex<AuthenticatedAddresses>)>);

impl AuthenticatedCallers {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Instant::now(), Mutex::default())))
    }

    /// Time since the station's start.
    pub(crate) fn now(&self) -> Duration {
        self.0.0.elapsed()
    }

    /// Calls `act` with the addresses locked.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut AuthenticatedAddresses) -> T) -> T {
        act(&mut lock(&self.0.1))
    }

    /// The station or operator that authorised a request of this address within the last hour, if
    /// any.
    pub(crate) fn credential_owner(&self, ip: IpAddr) -> Option<CredentialOwner> {
        let now = self.now();
        self.with(|authenticated| authenticated.credential_owner(ip, now).cloned())
    }
}
