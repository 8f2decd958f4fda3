//! What passes between the tasks of a connection and its controller.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::wire::Report;

/// Reports that arrived and that the controller has not read yet, and counts for the application.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    is_agreed: AtomicBool,
    is_full: AtomicBool,
    reports: Mutex<Vec<(Instant, Report)>>,
    pub(crate) reported_bytes: AtomicU64,
    pub(crate) host_bytes: AtomicU64,
    pub(crate) network_bytes: AtomicU64,
    pub(crate) refused_bytes: AtomicU64,
}

/// Bytes of lost packets by cause, of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Whether the peer reports drops.
    pub is_reported: bool,
    /// Bytes that the receiver reported as dropped by its socket.
    pub reported_bytes: u64,
    /// Bytes that the receiving host lost. The controller's reaction to them was undone.
    pub host_bytes: u64,
    /// Bytes of all other losses that no longer wait for a report.
    pub network_bytes: u64,
    /// Bytes of `network_bytes` that the receiver claimed, and that round trips show to be the
    /// network's.
    pub refused_bytes: u64,
}

impl Inbox {
    /// Adds a report that arrived at `now`. The oldest reports are dropped if the controller reads
    /// none.
    pub(crate) fn add(&self, now: Instant, report: Report) {
        self.is_agreed.store(true, Ordering::Relaxed);
        if report.rises.is_empty() {
            return;
        }
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() == REPORTS_MAX {
            reports.remove(0);
        }
        reports.push((now, report));
        self.is_full.store(true, Ordering::Release);
    }

    /// Whether the peer has answered the offer.
    pub(crate) fn is_agreed(&self) -> bool {
        self.is_agreed.load(Ordering::Relaxed)
    }

    /// Takes the reports that arrived. Costs one atomic read if there is none.
    pub(crate) fn take(&self) -> Vec<(Instant, Report)> {
        if !self.is_full.load(Ordering::Relaxed) || !self.is_full.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn counts(&self) -> LossCounts {
        LossCounts {
            is_reported: self.is_agreed(),
            reported_bytes: self.reported_bytes.load(Ordering::Relaxed),
            host_bytes: self.host_bytes.load(Ordering::Relaxed),
            network_bytes: self.network_bytes.load(Ordering::Relaxed),
            refused_bytes: self.refused_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Maximum number of reports that wait for the controller: half a second of the fastest receiver.
const REPORTS_MAX: usize = 256;
