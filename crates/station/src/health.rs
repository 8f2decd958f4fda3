//! What the station knows of its own work: counters and times that `/healthz` and `/metrics` show.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shared by all threads of a station.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    last_measurement: Mutex<Option<Instant>>,
    archive: Mutex<ArchiveHealth>,
    /// Records in memory that the archive has not acknowledged.
    pub(crate) spool_records: AtomicU64,
    /// Records dropped because the spool was full.
    pub(crate) spool_dropped: AtomicU64,
    last_drop: Mutex<Option<Instant>>,
    /// Measurements dropped because the recorder was behind, whatever the archive did.
    pub(crate) inbox_dropped: AtomicU64,
    last_inbox_drop: Mutex<Option<Instant>>,
    /// Experiments skipped because all workers were busy.
    pub(crate) probes_skipped: AtomicU64,
    last_skip: Mutex<Option<Instant>>,
    /// Requests refused for want of authority.
    pub(crate) requests_refused: AtomicU64,
    /// Connections refused because there were too many.
    pub(crate) connections_refused: AtomicU64,
}

/// How the archive does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArchiveHealth {
    /// When the last append was acknowledged.
    pub(crate) last_append: Option<Instant>,
    /// Why the last append failed; `None` = it did not.
    pub(crate) error: Option<String>,
    /// Why history could not be replayed at the start.
    pub(crate) replay_error: Option<String>,
}

/// A judgement, with its reasons.
#[derive(Debug)]
pub(crate) struct Report {
    /// One sentence each; empty = all is well.
    pub(crate) reasons: Vec<String>,
    pub(crate) uptime: Duration,
    pub(crate) last_measurement_age: Option<Duration>,
    pub(crate) last_append_age: Option<Duration>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            last_measurement: Mutex::default(),
            archive: Mutex::default(),
            spool_records: AtomicU64::new(0),
            spool_dropped: AtomicU64::new(0),
            last_drop: Mutex::default(),
            inbox_dropped: AtomicU64::new(0),
            last_inbox_drop: Mutex::default(),
            probes_skipped: AtomicU64::new(0),
            last_skip: Mutex::default(),
            requests_refused: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn measured(&self) {
        *lock(&self.last_measurement) = Some(Instant::now());
    }

    pub(crate) fn skipped(&self) {
        self.probes_skipped.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_skip) = Some(Instant::now());
    }

    /// The spool was full, and `records` of it were dropped.
    pub(crate) fn dropped(&self, records: u64) {
        self.spool_dropped.fetch_add(records, Ordering::Relaxed);
        *lock(&self.last_drop) = Some(Instant::now());
    }

    /// The recorder was behind, and a measurement was not handed to it.
    pub(crate) fn dropped_at_inbox(&self) {
        self.inbox_dropped.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_inbox_drop) = Some(Instant::now());
    }

    pub(crate) fn appended(&self) {
        let mut archive = lock(&self.archive);
        archive.last_append = Some(Instant::now());
        archive.error = None;
    }

    pub(crate) fn append_failed(&self, error: &str) {
        lock(&self.archive).error = Some(error.to_string());
    }

    pub(crate) fn replay_failed(&self, error: &str) {
        lock(&self.archive).replay_error = Some(error.to_string());
    }

    /// Why the archive does not take records now.
    pub(crate) fn archive_error(&self) -> Option<String> {
        lock(&self.archive).error.clone()
    }

    /// Judges; `sensor_period` is how often a measurement is made at least.
    pub(crate) fn report(&self, sensor_period: Duration) -> Report {
        let archive = lock(&self.archive).clone();
        let last_measurement_age = lock(&self.last_measurement).map(|at| at.elapsed());
        let mut reasons = Vec::new();
        if let Some(error) = &archive.error {
            reasons.push(format!("the archive takes no records: {error}"));
        }
        if let Some(error) = &archive.replay_error {
            reasons.push(format!("history could not be replayed at the start: {error}"));
        }
        let lately = |at: &Mutex<Option<Instant>>, limit| lock(at).is_some_and(|at| at.elapsed() < limit);
        if lately(&self.last_drop, DROPS_MATTER_FOR) {
            let dropped = self.spool_dropped.load(Ordering::Relaxed);
            reasons
                .push(format!("{dropped} records were dropped because the archive took none for too long"));
        }
        if lately(&self.last_inbox_drop, DROPS_MATTER_FOR) {
            let dropped = self.inbox_dropped.load(Ordering::Relaxed);
            reasons.push(format!("{dropped} measurements were dropped because the recorder was behind"));
        }
        let silence = last_measurement_age.unwrap_or(self.uptime());
        if sensor_period * SILENT_PERIODS + SLACK < silence {
            reasons.push(format!("no measurement for {} s", silence.as_secs()));
        }
        if lately(&self.last_skip, SKIPS_MATTER_FOR) {
            reasons.push("probes are skipped because all workers are busy (probe.workers_max)".into());
        }
        Report {
            reasons,
            uptime: self.uptime(),
            last_measurement_age,
            last_append_age: archive.last_append.map(|at| at.elapsed()),
        }
    }
}

/// Takes a lock whoever panicked under it: the values here are whole at every moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sensor periods without any measurement after which measuring is considered dead.
const SILENT_PERIODS: u32 = 3;
/// A busy host may be late by this much without being ill.
const SLACK: Duration = Duration::from_secs(2);
/// Dropped records are a reason to worry for this long; the counters keep them.
const DROPS_MATTER_FOR: Duration = Duration::from_mins(10);
/// A skipped probe is a reason to worry for this long.
const SKIPS_MATTER_FOR: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_station_is_well_and_each_trouble_is_a_reason() {
        let health = Health::new();
        let period = Duration::from_secs(10);
        assert!(health.report(period).reasons.is_empty());
        health.append_failed("disk full");
        health.skipped();
        health.dropped(3);
        health.replay_failed("damaged");
        let reasons = health.report(period).reasons;
        assert_eq!(reasons.len(), 4, "{reasons:?}");
        assert!(reasons[0].contains("disk full"));
        health.appended();
        assert_eq!(health.report(period).reasons.len(), 3);
        assert!(health.report(period).last_append_age.is_some());
        *lock(&health.last_drop) = Instant::now().checked_sub(DROPS_MATTER_FOR);
        let reasons = health.report(period).reasons;
        assert_eq!(reasons.len(), 2, "a drop is over some time after: {reasons:?}");
        health.dropped_at_inbox();
        assert_eq!(health.report(period).reasons.len(), 3);
        assert_eq!(
            health.spool_dropped.load(Ordering::Relaxed),
            3,
            "a recorder that is behind is no full spool"
        );
    }
}
