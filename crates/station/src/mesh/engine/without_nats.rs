//! A build without the feature `nats`: a station whose configuration names NATS servers does not start.

use std::sync::Arc;

use barograph_engine::{Local, TaskStatus};
use barograph_forecast::Name;

use super::{Engines, JoinError};
use crate::config::Config;

/// The archive of a mesh on NATS, which this build never makes.
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

/// What such an archive counts.
#[derive(Default)]
pub(crate) struct ArchiverStatistics {
    pub(crate) discarded: u64,
    pub(crate) missed: u64,
    pub(crate) lag: u64,
}

/// Refuses to start a station of a mesh on NATS, and names the build that can.
///
/// # Errors
/// Always [`JoinError::WithoutNats`].
pub(super) fn engines(_config: &Config, _host: &Name, _local: Arc<Local>) -> Result<Engines, JoinError> {
    Err(JoinError::WithoutNats)
}
