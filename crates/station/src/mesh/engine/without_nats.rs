//! A build without the feature `nats`: a station whose configuration names NATS servers does not start.

use std::sync::Arc;

use barograph_engine::{Local, TaskStatus};
use barograph_forecast::Name;

use super::Engines;
use crate::StartError;
use crate::config::Config;

/// The archive of a mesh on NATS, which this build never makes.
pub(crate) enum Archiver {}

impl Archiver {
    pub(crate) fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        match *self {}
    }
}

/// # Errors
/// [`StartError::WithoutNats`], always.
pub(super) fn engines(_config: &Config, _host: &Name, _local: Arc<Local>) -> Result<Engines, StartError> {
    Err(StartError::WithoutNats)
}
