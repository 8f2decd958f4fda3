//! Replaces `nats.rs` in a build without the feature `nats`: a station does not start if its
//! configuration names NATS servers.

use std::sync::Arc;

use barograph_engine::{Local, TaskStatus};
use barograph_forecast::Name;

use super::{Engines, JoinError};
use crate::config::Config;

/// Replaces the archiver of a mesh on NATS. This build cannot create an archiver.
pub(crate) enum Archiver {}

impl Archiver {
    pub(crate) fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        match *self {}
    }

    pub(crate) fn begin(&self) {
        match *self {}
    }

    pub(crate) fn statistics(&self) -> ArchiverStatistics {
        match *self {}
    }
}

/// Counters of an archiver, as in `nats.rs`.
#[derive(Default)]
pub(crate) struct ArchiverStatistics {
    pub(crate) discarded: u64,
    pub(crate) missed: u64,
    pub(crate) lag: u64,
}

/// Refuses to start a station of a mesh on NATS.
///
/// # Errors
/// Always [`JoinError::WithoutNats`]. Its message names the build that supports NATS.
pub(super) fn engines(_config: &Config, _host: &Name, _local: Arc<Local>) -> Result<Engines, JoinError> {
    Err(JoinError::WithoutNats)
}
