//! Keeps the labelled windows of a session.

use std::path::Path;

use barograph_loss::LabelledWindow;

use super::TransferEvent;
use crate::files::{WindowLog, WindowLogError};
use crate::io::identity::random;

/// Writes the windows of one session. After an error, no more windows are kept.
#[derive(Debug, Default)]
pub(super) struct WindowKeeper {
    /// The log, and the name of the run. `None` if no windows are kept.
    log: Option<(WindowLog, String)>,
}

impl WindowKeeper {
    /// Opens the log in `directory`, if there is one. An error is reported as an event.
    pub(super) fn open(directory: Option<&Path>, on_event: &mut dyn FnMut(TransferEvent)) -> Self {
        let Some(directory) = directory else { return Self::default() };
        // Windows of one session are not independent, so each session is a run of its own. Without
        // randomness, its windows would seem to be of another run.
        let Ok(run) = random().map(u64::from_be_bytes) else { return Self::default() };
        match WindowLog::open(directory) {
            Ok(log) => Self { log: Some((log, format!("{run:016x}"))) },
            Err(error) => Self::failed(error, on_event),
        }
    }

    /// Whether windows are kept.
    pub(super) fn is_open(&self) -> bool {
        self.log.is_some()
    }

    /// Adds windows to the log.
    pub(super) fn keep(&mut self, windows: Vec<LabelledWindow>, on_event: &mut dyn FnMut(TransferEvent)) {
        let Some((log, run)) = &mut self.log else { return };
        windows.into_iter().for_each(|window| log.push(window, run));
        if log.has_waiting()
            && let Err(error) = log.write()
        {
            *self = Self::failed(error, on_event);
        }
    }

    fn failed(error: WindowLogError, on_event: &mut dyn FnMut(TransferEvent)) -> Self {
        on_event(TransferEvent::WindowsNotKept(error));
        Self::default()
    }
}
