//! The station's own health: counters and times for `/healthz` and `/metrics`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_engine::{EngineError, TaskStatus};

use crate::limits::{Limit, Refusals, Severity};
use crate::sync::lock;
use barograph_limits::credentials::{Credential, LogDecision, WrongCredentials};

/// Health of a station, which all its threads share.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    last_measurement: Mutex<Option<Instant>>,
    /// Damage of the stored data that was found when the data was read.
    damage: Mutex<Option<String>>,
    archive: Mutex<ArchiveHealth>,
    tasks: Mutex<Vec<Arc<TaskStatus>>>,
    /// Number of records in memory that the archive has not acknowledged.
    pub(crate) spool_records: AtomicU64,
    /// Number of records dropped because the spool was full.
    pub(crate) spool_dropped: AtomicU64,
    /// Number of measurements dropped because the recorder was too slow. The archive is not the
    /// cause.
    pub(crate) inbox_dropped: AtomicU64,
    last_inbox_drop: Mutex<Option<Instant>>,
    /// Number of experiments skipped because all workers were busy.
    pub(crate) probes_skipped: AtomicU64,
    last_skip: Mutex<Option<Instant>>,
    /// Number of requests refused because they were not authorised.
    pub(crate) requests_refused: AtomicU64,
    /// Number of connections refused because too many were open.
    pub(crate) connections_refused: AtomicU64,
    /// Number of idle connections that were closed to make room for other connections.
    pub(crate) connections_shed: AtomicU64,
    refusals: Mutex<Refusals>,
    wrong: Mutex<WrongCredentials>,
}

/// Health of the archive's appends and replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArchiveHealth {
    /// Time at which the last append was acknowledged.
    pub(crate) last_append: Option<Instant>,
    /// Reason why the last append failed; `None` if the append succeeded.
    pub(crate) error: Option<String>,
    /// Reason why history could not be replayed at the start.
    pub(crate) replay_error: Option<String>,
}

/// Health at one moment, with its problems.
#[derive(Debug)]
pub(crate) struct HealthReport {
    /// Problems, one sentence each; empty = no problem.
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
            damage: Mutex::default(),
            archive: Mutex::default(),
            tasks: Mutex::default(),
            spool_records: AtomicU64::new(0),
            spool_dropped: AtomicU64::new(0),
            inbox_dropped: AtomicU64::new(0),
            last_inbox_drop: Mutex::default(),
            probes_skipped: AtomicU64::new(0),
            last_skip: Mutex::default(),
            requests_refused: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            connections_shed: AtomicU64::new(0),
            refusals: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// Counts work that was refused because of a limit.
    pub(crate) fn refused(&self, limit: Limit, work: u64) {
        lock(&self.refusals).add(limit, work, self.uptime());
    }

    /// Sets the amount of work refused because of `limit` since the start. Another part of the
    /// station counts this work.
    pub(crate) fn refused_in_all(&self, limit: Limit, total: u64) {
        lock(&self.refusals).set(limit, total, self.uptime());
    }

    /// Counts a request with a wrong credential; returns the delay of its response.
    pub(crate) fn wrong(&self, credential: Credential, ip: IpAddr) -> Duration {
        let verdict = lock(&self.wrong).add(credential, ip, self.uptime());
        let what = credential.name();
        match verdict.line {
            LogDecision::None => {}
            LogDecision::Network(count) => tracing::warn!(
                "wrong {what} from {ip}: {count} from its network since the last log line (one a minute)"
            ),
            LogDecision::Flood => {
                tracing::warn!("wrong {what} from {ip} and many other networks; not logged for a minute");
            }
        }
        verdict.delay
    }

    /// Number of requests with a wrong credential of this kind.
    pub(crate) fn wrong_count(&self, credential: Credential) -> u64 {
        lock(&self.wrong).count(credential)
    }

    /// One sentence for each limit that refused work recently, except limits of the severity
    /// `Pace`.
    pub(crate) fn refusing(&self) -> Vec<String> {
        self.sentences(|limit| limit.severity() != Severity::Pace)
    }

    /// One sentence for each limit that refused callers recently. The station itself lost nothing.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.sentences(|limit| limit.severity() == Severity::Warning)
    }

    fn sentences(&self, wanted: impl Fn(Limit) -> bool) -> Vec<String> {
        lock(&self.refusals).sentences(self.uptime(), wanted)
    }

    /// Work that limits have refused.
    pub(crate) fn refusals(&self) -> Refusals {
        lock(&self.refusals).clone()
    }

    /// Status of the task with this name. After the first call, reports include this status.
    pub(crate) fn task(&self, name: &'static str) -> Arc<TaskStatus> {
        let mut tasks = lock(&self.tasks);
        let known = tasks.iter().find(|task| task.name() == name).cloned();
        known.unwrap_or_else(|| {
            let task = TaskStatus::new(name);
            tasks.push(Arc::clone(&task));
            task
        })
    }

    /// Adds the status of tasks that were started elsewhere, each once.
    pub(crate) fn adopt(&self, tasks: impl IntoIterator<Item = Arc<TaskStatus>>) {
        let mut known = lock(&self.tasks);
        for task in tasks {
            if !known.iter().any(|other| Arc::ptr_eq(other, &task)) {
                known.push(task);
            }
        }
    }

    /// The status of each long-lived task and thread.
    pub(crate) fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        lock(&self.tasks).clone()
    }

    /// Permits the tasks to end, because the station stops.
    pub(crate) fn stop_tasks(&self) {
        self.tasks().iter().for_each(|task| task.stop());
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn measured(&self) {
        *lock(&self.last_measurement) = Some(Instant::now());
    }

    pub(crate) fn skipped(&self) {
        self.probes_skipped.fetch_add(1, Ordering::Relaxed);
        self.refused(Limit::Workers, 1);
        *lock(&self.last_skip) = Some(Instant::now());
    }

    /// Counts `records` that were dropped because the spool was full.
    pub(crate) fn dropped(&self, records: u64) {
        self.spool_dropped.fetch_add(records, Ordering::Relaxed);
        self.refused(Limit::Spool, records);
    }

    /// Counts a measurement that was dropped because the recorder was behind.
    pub(crate) fn dropped_at_inbox(&self) {
        self.inbox_dropped.fetch_add(1, Ordering::Relaxed);
        self.refused(Limit::Inbox, 1);
        *lock(&self.last_inbox_drop) = Some(Instant::now());
    }

    /// Counts an idle connection that was closed to make room for others.
    pub(crate) fn shed(&self) {
        self.connections_shed.fetch_add(1, Ordering::Relaxed);
        self.refused(Limit::ConnectionsShed, 1);
    }

    pub(crate) fn appended(&self) {
        let mut archive = lock(&self.archive);
        archive.last_append = Some(Instant::now());
        archive.error = None;
    }

    /// Records that the archive works, although it refused the given records.
    pub(crate) fn archive_answered(&self) {
        lock(&self.archive).error = None;
    }

    pub(crate) fn append_failed(&self, error: &str) {
        lock(&self.archive).error = Some(error.to_string());
    }

    pub(crate) fn replay_failed(&self, error: &str) {
        lock(&self.archive).replay_error = Some(error.to_string());
    }

    /// Records damage that was found while history was read. The damage stays a problem, because it
    /// does not repair itself.
    pub(crate) fn read_failed(&self, error: &EngineError) {
        if let EngineError::Corrupt(_) = error {
            let mut damage = lock(&self.damage);
            if damage.is_none() {
                tracing::error!("{error}");
            }
            *damage = Some(error.to_string());
        }
    }

    /// Reason why the archive accepts no records now; `None` if it accepts records.
    pub(crate) fn archive_error(&self) -> Option<String> {
        lock(&self.archive).error.clone()
    }

    /// Reports health. A measurement is expected at least every `sensor_period`.
    pub(crate) fn report(&self, sensor_period: Duration) -> HealthReport {
        let archive = lock(&self.archive).clone();
        let last_measurement_age = lock(&self.last_measurement).map(|at| at.elapsed());
        let mut reasons: Vec<_> = self.tasks().iter().filter_map(|task| task.failure()).collect();
        if let Some(error) = &archive.error {
            reasons.push(format!("the archive takes no records: {error}"));
        }
        if let Some(error) = &archive.replay_error {
            reasons.push(format!("history could not be replayed at the start: {error}"));
        }
        let lately = |at: &Mutex<Option<Instant>>, limit| lock(at).is_some_and(|at| at.elapsed() < limit);
        if lately(&self.last_inbox_drop, DROPS_MATTER_FOR) {
            let dropped = self.inbox_dropped.load(Ordering::Relaxed);
            reasons.push(format!("{dropped} measurements were dropped because the recorder was too slow"));
        }
        let silence = last_measurement_age.unwrap_or(self.uptime());
        if sensor_period * SILENT_PERIODS + SLACK < silence {
            reasons.push(format!("no measurement for {} s", silence.as_secs()));
        }
        if let Some(error) = lock(&self.damage).as_ref() {
            reasons.push(format!("history cannot be read: {error}"));
        }
        reasons
            .extend(self.sentences(|limit| limit.severity() == Severity::Fault && !limit.has_own_reason()));
        if lately(&self.last_skip, SKIPS_MATTER_FOR) {
            reasons.push("probes are skipped because all workers are busy (probe.workers_max)".into());
        }
        HealthReport {
            reasons,
            uptime: self.uptime(),
            last_measurement_age,
            last_append_age: archive.last_append.map(|at| at.elapsed()),
        }
    }
}

/// Number of sensor periods without a measurement after which measuring counts as failed.
const SILENT_PERIODS: u32 = 3;
/// Longest delay on a busy host that does not count as a problem.
const SLACK: Duration = Duration::from_secs(2);
/// Time for which a dropped measurement is reported as a problem. The counter of dropped
/// measurements is not reset.
const DROPS_MATTER_FOR: Duration = Duration::from_mins(10);
/// Time for which a skipped probe is reported as a problem.
const SKIPS_MATTER_FOR: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_station_is_healthy_and_each_problem_adds_a_reason() {
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
        health.dropped_at_inbox();
        assert_eq!(health.report(period).reasons.len(), 4);
        *lock(&health.last_inbox_drop) = Instant::now().checked_sub(DROPS_MATTER_FOR);
        let reasons = health.report(period).reasons;
        assert_eq!(reasons.len(), 3, "a drop is over some time after: {reasons:?}");
        assert_eq!(
            health.spool_dropped.load(Ordering::Relaxed),
            3,
            "a recorder that is behind is no full spool"
        );
    }

    #[test]
    fn limits_reached_by_callers_are_warnings_and_the_page_omits_pace_limits() {
        let health = Health::new();
        Limit::ALL.into_iter().for_each(|limit| health.refused(limit, 1));
        let report = health.report(Duration::from_secs(10));
        let says = |sentences: &[String], words: &str| sentences.iter().any(|one| one.contains(words));
        for words in
            ["connections: refused", "live streams", "sessions of pages", "members beyond their share"]
        {
            assert!(!says(&report.reasons, words) && says(&health.warnings(), words), "{words}");
        }
        assert!(says(&report.reasons, "further series") && !says(&health.warnings(), "further series"));
        let shown = health.refusing();
        for words in
            ["waited for the archive", "the mesh accepted none", "recorder was too slow", "all workers"]
        {
            assert!(says(&shown, words), "{words}");
        }
        assert!(!says(&shown, "above their rate"), "a pace is no trouble");
    }
}
