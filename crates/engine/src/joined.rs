//! A station's own archive in front of a mesh's engine.
//!
//! ```text
//! append ─► the station's archive: durable, acknowledged ─► forwarder ─► the mesh's engine
//!                    ▲                                          │
//!                    └── a record leaves the spool when the mesh's watermark has passed it;
//!                        the acknowledgement of an append is not enough
//! ```
//!
//! The mesh may be unreachable for days. The station still measures, stores and answers, until the
//! spool is full.

mod forwarder;
mod pages;
mod waits;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_forecast::SeriesId;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use self::forwarder::Forwarder;
use crate::local::ExcludedNumbers;
use crate::{
    BoxStream, Cursor, Engine, EngineError, Entry, Event, Group, HostId, Lease, Local, Page, Range, ReadOnly,
    Record, Selector, StartAt, TaskStatus,
};

/// Configuration of a [`Joined`] engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedConfig {
    /// Name of the station. The station forwards only its own measurements.
    pub host: HostId,
    /// Largest number of records that may wait for the mesh, 2 to 100 million. Appends of further
    /// records are refused, and measuring continues.
    ///
    /// Default: a million. A million records without details take 66 MB. A million records are
    /// enough for an outage of almost six days with 20 series measured every 10 s. Outages are
    /// usually noticed and repaired sooner. A million records with the longest details take 4 GB. A
    /// full disk also refuses records. Records that a mesh confirmed and later lost wait in
    /// addition, up to the same number. After a restart, these records count towards the limit.
    pub spool_records_max: u64,
    /// Whether the station's own archive is also the archive of the mesh. The archive of the mesh
    /// answers requests about the measurements of other stations. Default: false.
    pub is_archive: bool,
    /// Time between sending a record and reading the watermark that confirms it. The value is at
    /// most 30 s. An idle station reads the watermark every 30 s. Default: 10 s, so ten thousand
    /// stations send a thousand requests a second.
    pub confirm_every: Duration,
    /// Seed of the forwarder's jitter, for repeatable runs. `None`: each process has its own seed,
    /// so that stations do not reconnect all at once.
    pub seed: Option<u64>,
}

impl JoinedConfig {
    /// Default configuration for the station `host`.
    #[must_use]
    pub fn new(host: HostId) -> Self {
        let confirm_every = Duration::from_secs(10);
        Self { host, spool_records_max: SPOOL_RECORDS_MAX, is_archive: false, confirm_every, seed: None }
    }

    fn check(&self) -> Result<(), EngineError> {
        if !SPOOL_RECORDS.contains(&self.spool_records_max) {
            return Err(EngineError::Invalid(format!(
                "spool_records_max is {}; the accepted range is {} to {}",
                self.spool_records_max,
                SPOOL_RECORDS.start(),
                SPOOL_RECORDS.end()
            )));
        }
        if self.confirm_every > CONFIRM_EVERY_MAX {
            return Err(EngineError::Invalid(format!(
                "confirm_every is {:?}; at most {CONFIRM_EVERY_MAX:?}",
                self.confirm_every
            )));
        }
        Ok(())
    }
}

/// State of the forwarding to the mesh, for `/metrics` and `/healthz`. Each counter counts from the
/// start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedStatistics {
    /// Number of records that wait for the mesh's confirmation.
    pub spooled: u64,
    /// Whether the spool is full.
    pub is_full: bool,
    /// Number of appends that were refused because the spool was full.
    pub spool_rejections: u64,
    /// Number of records that the mesh's engine acknowledged. A repeated record counts again.
    pub forwarded: u64,
    /// Number of times that sending restarted below an acknowledged record, because the watermark
    /// did not pass that record.
    pub resends: u64,
    /// Count of the station's own sequence numbers for which the mesh never gets a record. The
    /// records with these numbers were removed or lost, or are measurements of other hosts that
    /// were appended at this station. A number that is skipped again counts again.
    pub skipped: u64,
    /// Number of the station's own records that the mesh's engine refused. These records are stored
    /// only in the station's archive.
    pub refused: u64,
    /// Reason of the newest refusal.
    pub last_refusal: Option<EngineError>,
    /// Number of the station's own records that may never reach the mesh, because the mesh holds
    /// other records with the same sequence numbers: another station writes under the same name, or
    /// this station was restored from an old copy.
    pub conflicting: u64,
    /// Whether 2000 records or more wait, and the mesh's engine limits the rate
    /// ([`EngineError::Throttled`]).
    pub is_paced: bool,
    /// The mesh's watermark of this station; `None` before its first response.
    ///
    /// The watermark passes a number if the mesh's archive stored the record, skipped the number on
    /// request, or discarded the record as too old.
    pub watermark: Option<u64>,
    /// Reason why nothing is forwarded now; `None` if forwarding works.
    ///
    /// This reason is also set if the mesh has records with numbers that this station had not used.
    /// The reason then remains for at least a minute, and until the mesh accepts a record. With
    /// [`EngineError::Denied`] the mesh does not permit the station to write; the forwarder retries
    /// about every five minutes.
    pub last_error: Option<EngineError>,
}

/// A station's own archive as the spool of a mesh's engine.
///
/// An append is acknowledged when the station's archive has stored it. The station's own records
/// ([`Record::is_own`]) are then sent in the order of their numbers, and sent again until the
/// mesh's watermark has passed them. Retention keeps these records until then.
///
/// The station's archive answers requests about the station's own measurements, and about
/// measurements of other hosts that were appended at this station. The mesh answers requests about
/// all other series; if the mesh has no record of a series, the station's archive answers. With
/// [`JoinedConfig::is_archive`], the station's archive answers requests about every series of which
/// it has a record, and the mesh answers requests about all other series. The directory and
/// subscriptions are those of the mesh.
///
/// The station's archive refuses an append of a record that is older than retention keeps. The
/// mesh's archive counts such a record as seen and discards it ([`Local::append_forwarded`]).
pub struct Joined {
    local: Arc<Local>,
    mesh: Arc<dyn Engine>,
    config: JoinedConfig,
    state: State,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    task: Arc<TaskStatus>,
}

/// When this guard is dropped after a panic of the forwarding thread, the guard sets the last
/// error. Otherwise the statistics would not show that forwarding has ended.
struct PanicReporter(State, Arc<TaskStatus>);

impl Drop for PanicReporter {
    fn drop(&mut self) {
        if self.1.panics() > 0 {
            let why = "the thread that forwards to the mesh has died; restart the station";
            self.0.lock().last_error = Some(EngineError::Unavailable(why.into()));
        }
    }
}

/// State shared with the forwarder.
#[derive(Clone, Default)]
struct State(Arc<Mutex<ForwarderState>>);

#[derive(Default)]
struct ForwarderState {
    statistics: JoinedStatistics,
    /// Error that the mesh has records with numbers which the station has not used, and the time at
    /// which this was last detected.
    conflict: Option<(Instant, EngineError)>,
}

impl std::ops::Deref for ForwarderState {
    type Target = JoinedStatistics;

    fn deref(&self) -> &JoinedStatistics {
        &self.statistics
    }
}

impl std::ops::DerefMut for ForwarderState {
    fn deref_mut(&mut self) -> &mut JoinedStatistics {
        &mut self.statistics
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, ForwarderState> {
        // The values do not depend on each other, so they are valid even after a panic of a
        // different lock holder.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes the numbers up to `taken`: the mesh has records with these numbers, and the station
    /// has not used them. A record that got such a number before this call is refused if it is
    /// appended after this call. The refusal prevents the loss of the record.
    async fn exclude_taken(
        &self,
        local: &Local,
        host: &HostId,
        taken: u64,
        is_found: bool,
    ) -> Result<(), EngineError> {
        let ExcludedNumbers { highest, lost } = local.exclude_numbers(taken).await?;
        if taken <= highest {
            return Ok(());
        }
        let mut state = self.lock();
        state.conflicting += lost;
        // A station that starts and has lost no record just continues above these numbers.
        if lost > 0 || (is_found && highest > 0) {
            let error = EngineError::Unavailable(format!(
                "another station writes as {host}, or this one was restored from an old copy: the mesh has records \
                 up to {taken}, this station up to {highest}; {lost} waiting records may never reach the mesh. New \
                 records continue above {taken}. Give each station a name of its own"
            ));
            tracing::error!(%error, "another station uses this station's sequence numbers");
            state.conflict = Some((Instant::now(), error));
        }
        Ok(())
    }
}

impl Joined {
    /// Starts forwarding on a thread of its own.
    ///
    /// Blocks while the disk is read. When a station joins for the first time, its newest records
    /// are put into the spool, up to half of the spool's limit. Older records remain only in the
    /// station's archive.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if a value of `config` is out of range; otherwise the errors of an
    /// append.
    pub fn start(
        config: JoinedConfig,
        local: Arc<Local>,
        mesh: Arc<dyn Engine>,
    ) -> Result<Self, EngineError> {
        let (mut joined, forwarding) = Self::prepare(config, local, mesh)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| EngineError::Unavailable(format!("no runtime for the mesh: {error}")))?;
        let (stop, stopped) = oneshot::channel();
        let task = Arc::clone(&joined.task);
        let panic_reporter = PanicReporter(joined.state.clone(), Arc::clone(&task));
        let thread = thread::Builder::new()
            .name("mesh".into())
            .spawn(move || {
                let _panic_reporter = panic_reporter;
                let forwarding = async {
                    tokio::select! {
                        () = forwarding => {}
                        _ = stopped => {}
                    }
                };
                // The future ends when the archive closes. The closing is not reported here,
                // because the archive has its own status.
                runtime.block_on(task.watch_until_done(forwarding));
            })
            .map_err(|error| EngineError::Unavailable(format!("no thread for the mesh: {error}")))?;
        joined.thread = Some((stop, thread));
        Ok(joined)
    }

    /// Like [`Joined::start`], but starts no thread: records are forwarded only while the returned
    /// future is polled. The future ends when the archive is closed. Use this function in programs
    /// with their own runtime or virtual time.
    pub fn prepare(
        config: JoinedConfig,
        local: Arc<Local>,
        mesh: Arc<dyn Engine>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), EngineError> {
        config.check()?;
        let begins = local.begin_spool(&config.host, config.spool_records_max)?;
        let state = State::default();
        let forwarder =
            Forwarder::new(config.clone(), Arc::clone(&local), Arc::clone(&mesh), state.clone(), begins);
        let task = TaskStatus::new("forwarder");
        let joined = Self { local, mesh, config, state, thread: None, task };
        Ok((joined, forwarder.run()))
    }

    /// State of the forwarding to the mesh. Does not block.
    #[must_use]
    pub fn statistics(&self) -> JoinedStatistics {
        let local = self.local.statistics();
        let state = self.state.lock();
        let last_error = state.last_error.clone().or_else(|| Some(state.conflict.as_ref()?.1.clone()));
        JoinedStatistics {
            spooled: local.spooled,
            is_full: self.config.spool_records_max <= local.spooled.saturating_sub(local.spooled_resend),
            spool_rejections: local.spool_rejections,
            last_error,
            ..state.statistics.clone()
        }
    }

    /// The station's own archive.
    #[must_use]
    pub fn local(&self) -> &Arc<Local> {
        &self.local
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // If the thread panicked, the panic hook has reported it already.
            let _ = thread.join();
        }
    }
}

#[async_trait::async_trait]
impl Engine for Joined {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        self.mesh.register(entry, ttl).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.mesh.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), EngineError> {
        self.mesh.remove(host).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.local.append(batch).await
    }

    fn subscribe(&self, selector: &Selector, from: StartAt) -> BoxStream<(Cursor, Record)> {
        self.mesh.subscribe(selector, from)
    }

    async fn history(&self, series: &SeriesId, range: &Range) -> Result<Page<Record>, EngineError> {
        pages::history(self, series, range).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, EngineError> {
        pages::latest(self, selector, after, limit).await
    }

    /// For the station itself, this is the watermark of the station's own archive.
    /// [`JoinedStatistics::watermark`] is the watermark of the mesh.
    async fn watermark(&self, origin: &HostId) -> Result<u64, EngineError> {
        if *origin == self.config.host {
            return self.local.watermark(origin).await;
        }
        self.mesh.watermark(origin).await
    }

    /// For the station itself, the number is higher than every number that its archive or the mesh
    /// ever stored.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if the archive has no number of the station and the mesh does
    /// not respond: the station may have lost its archive, and would use a number twice.
    async fn next_seq(&self, origin: &HostId) -> Result<u64, EngineError> {
        if *origin != self.config.host {
            return self.mesh.next_seq(origin).await;
        }
        let own = self.local.next_seq(origin).await?;
        let asked = timeout(ANSWER_WITHIN, self.mesh.next_seq(origin)).await;
        let asked = asked.unwrap_or_else(|_| {
            Err(EngineError::Unavailable(format!("no response within {ANSWER_WITHIN:?}")))
        });
        match asked.and_then(|number| possible(number, own)) {
            Ok(mesh) if own < mesh => {
                // Records with numbers below `mesh` must not be sent again, and these numbers must
                // not be used.
                self.state.exclude_taken(&self.local, origin, mesh - 1, false).await?;
                Ok(mesh)
            }
            Ok(_) => Ok(own),
            Err(_) if own > 1 => Ok(own),
            Err(EngineError::Invalid(what)) => Err(EngineError::Invalid(what)),
            Err(error) => Err(EngineError::Unavailable(format!(
                "this archive has no record of {origin}, and the mesh does not report its next sequence number: \
                 {error}; start again when the mesh is reachable"
            ))),
        }
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.mesh.read_only()
    }

    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        let mut tasks = self.local.tasks();
        tasks.extend(self.mesh.tasks());
        tasks.push(Arc::clone(&self.task));
        tasks
    }
}

/// Returns `number`, a sequence number that an engine reported; an error if `number` is impossible
/// for a station with the highest number `highest`. A station that continued above an impossible
/// number would soon use up its sequence.
fn possible(number: u64, highest: u64) -> Result<u64, EngineError> {
    if number > Record::SEQ_EXHAUSTED_ABOVE && !Record::is_seq_plausible(number, highest) {
        return Err(EngineError::Unavailable(format!(
            "the mesh reports sequence number {number} for this station, whose highest is {highest}; another station \
             may have used its name. Restart the mesh's host or archive with this version, which removes such numbers"
        )));
    }
    Ok(number)
}

/// Default value of [`JoinedConfig::spool_records_max`].
const SPOOL_RECORDS_MAX: u64 = 1_000_000;

/// Accepted values of [`JoinedConfig::spool_records_max`]. The lowest value is 2, because one
/// record waits while the next record is stored; 100 million records take 6.6 GB of disk.
const SPOOL_RECORDS: std::ops::RangeInclusive<u64> = 2..=100_000_000;

/// Longest time between reads of the watermark. An idle station reads the watermark to detect that
/// a mesh lost confirmed records.
const CONFIRM_EVERY_MAX: Duration = Duration::from_secs(30);

/// Longest time that a starting station waits for a response of the mesh.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
