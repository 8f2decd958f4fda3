//! A station's own archive in front of a mesh's engine.
//!
//! ```text
//! append ─► the station's archive: durable, acknowledged ─► forwarder ─► the mesh's engine
//!                    ▲                                          │
//!                    └── notes go when the mesh's watermark passes: the acknowledgement of an
//!                        append is not trusted alone
//! ```
//!
//! The mesh may be away for days: the station goes on measuring, storing and answering for itself,
//! until as many records wait as may.

mod forwarder;
mod pages;
mod waits;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_forecast::Series;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use self::forwarder::Forwarder;
use crate::local::Yielded;
use crate::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Local, Page, Range, ReadOnly,
    Record, Selector, TaskStatus,
};

/// How a [`Joined`] engine forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedConfig {
    /// The station; only what it measured itself is forwarded.
    pub host: HostId,
    /// So many records may wait for the mesh; further ones are refused, and measuring goes on
    /// without them being acknowledged. 2 to 100 million.
    ///
    /// Default a million: without details 66 MB, and almost six days of 20 series measured every
    /// 10 s, which is longer than a fault lasts that somebody sees; with the longest details 4 GB,
    /// where a disk that is full is refused the same way. As many again may wait that a mesh had confirmed
    /// and lost; after a restart they count with the others.
    pub spool_records_max: u64,
    /// Whether the station's own archive is the mesh's, too, so that what others measured is
    /// answered from there. Default false.
    pub is_archive: bool,
    /// How long after a record was sent the mesh is asked whether it misses nothing; at most 30 s,
    /// which is also how often an idle station asks. Default 10 s: ten thousand stations ask a
    /// thousand times a second.
    pub confirm_every: Duration,
    /// What the forwarder's jitter follows from, so that a run can be repeated; `None` = every
    /// station has its own, so that not all come back at once.
    pub seed: Option<u64>,
}

impl JoinedConfig {
    /// The defaults for the station `host`.
    #[must_use]
    pub fn new(host: HostId) -> Self {
        let confirm_every = Duration::from_secs(10);
        Self { host, spool_records_max: SPOOL_RECORDS_MAX, is_archive: false, confirm_every, seed: None }
    }

    fn check(&self) -> Result<(), Error> {
        if !SPOOL_RECORDS.contains(&self.spool_records_max) {
            return Err(Error::Invalid(format!(
                "{} records that may wait for the mesh are not in {} to {}",
                self.spool_records_max,
                SPOOL_RECORDS.start(),
                SPOOL_RECORDS.end()
            )));
        }
        if ASK_EVERY < self.confirm_every {
            return Err(Error::Invalid(format!(
                "the time to a confirmation of {:?} is above {ASK_EVERY:?}",
                self.confirm_every
            )));
        }
        Ok(())
    }
}

/// What `/metrics` and `/healthz` say of the way to the mesh. Counters are since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedStatistics {
    /// Records that wait for the mesh's confirmation.
    pub spooled: u64,
    /// Whether no further record may wait.
    pub is_full: bool,
    /// Appends refused because no further record might wait.
    pub turned_away: u64,
    /// Records of which the mesh's engine acknowledged the append, repetitions counted again.
    pub forwarded: u64,
    /// How often sending began again below what had been acknowledged, because the watermark did
    /// not pass it.
    pub rewinds: u64,
    /// Numbers of the station's own sequence that the mesh will never get a record of: removed or
    /// lost before, or what others measured, handed in here; a repetition is counted again.
    pub passed_over: u64,
    /// Own records that the mesh's engine does not take; they stay in the station's archive alone.
    pub refused: u64,
    /// Why the last of those was refused.
    pub last_refusal: Option<Error>,
    /// Own records that the mesh may never get, because it holds others under their numbers: another
    /// station writes under the same name, or this one was put back from an old copy.
    pub overtaken: u64,
    /// Whether what waits, 2000 records or more, goes at the pace that the mesh's engine asked for
    /// ([`Error::Throttled`]).
    pub is_paced: bool,
    /// Up to where the mesh misses nothing; `None` = it has not answered yet.
    ///
    /// It counts what the mesh's archive stored, was told to pass over, or was too old for it.
    pub watermark: Option<u64>,
    /// Why nothing is forwarded now, or that the mesh held numbers that this station had not used yet: for a
    /// minute, and until it takes a record after that; `None` = all is well.
    ///
    /// With [`Error::Denied`] the mesh does not let the station write; it is tried again every five
    /// minutes.
    pub last_error: Option<Error>,
}

/// A station's own archive as the spool of a mesh's engine.
///
/// What is appended is acknowledged when the station's archive has it; the station's own records
/// ([`Record::is_own`]) are then sent on, in the order of their numbers, again and again until the
/// mesh's watermark has passed them, and are kept from retention until then. What the station
/// measures itself, and what was handed in to it of others, is answered from its archive; all other
/// series by the mesh, and from the archive when the mesh has nothing of them
/// ([`JoinedConfig::is_archive`]: the other way round). The directory and subscriptions are the mesh's. An append of a record older than what the station's archive keeps is refused, as
/// there; the mesh's archive counts it as seen and does not keep it ([`Local::absorb`]).
pub struct Joined {
    local: Arc<Local>,
    mesh: Arc<dyn Engine>,
    config: JoinedConfig,
    state: State,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    task: Arc<TaskStatus>,
}

/// Says so when the thread that holds it dies of a defect: otherwise all would seem well.
struct Dying(State, Arc<TaskStatus>);

impl Drop for Dying {
    fn drop(&mut self) {
        if 0 < self.1.panics() {
            let why = "the thread that forwards to the mesh has died; restart the station";
            self.0.lock().last_error = Some(Error::Unavailable(why.into()));
        }
    }
}

/// Figures shared with the forwarder.
#[derive(Clone, Default)]
struct State(Arc<Mutex<Figures>>);

#[derive(Default)]
struct Figures {
    statistics: JoinedStatistics,
    /// That the mesh was ahead of the station, and when that was found last.
    overtaken_by: Option<(Instant, Error)>,
}

impl std::ops::Deref for Figures {
    type Target = JoinedStatistics;

    fn deref(&self) -> &JoinedStatistics {
        &self.statistics
    }
}

impl std::ops::DerefMut for Figures {
    fn deref_mut(&mut self) -> &mut JoinedStatistics {
        &mut self.statistics
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Figures> {
        // Each figure stands for itself, so a panic elsewhere does not spoil them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the station from the numbers up to `taken`, which the mesh holds and the station has
    /// not used. A number that is given before this and appended after it is refused, not lost.
    async fn keep_clear(
        &self,
        local: &Local,
        host: &HostId,
        taken: u64,
        is_found: bool,
    ) -> Result<(), Error> {
        let Yielded { highest, lost } = local.yield_numbers(taken).await?;
        if taken <= highest {
            return Ok(());
        }
        let mut figures = self.lock();
        figures.overtaken += lost;
        // One that begins, and has lost nothing, merely goes on above.
        if 0 < lost || (is_found && 0 < highest) {
            let error = Error::Unavailable(format!(
                "another station writes as {host}, or this one was put back from an old copy: the mesh holds numbers \
                 up to {taken}, of which this station had used {highest}; {lost} records that waited may never get \
                 there; it goes on above them"
            ));
            tracing::error!(%error, "numbers of this station are used elsewhere");
            figures.overtaken_by = Some((Instant::now(), error));
        }
        Ok(())
    }
}

impl Joined {
    /// Begins to forward, on a thread of its own.
    ///
    /// Blocks for the disk: when the station joins for the first time, its newest records are noted
    /// for the mesh, half as many as may wait; older ones stay in its own archive alone.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a value of `config` is out of range; otherwise as an append.
    pub fn start(config: JoinedConfig, local: Arc<Local>, mesh: Arc<dyn Engine>) -> Result<Self, Error> {
        let (mut joined, forwarding) = Self::prepare(config, local, mesh)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Unavailable(format!("no runtime for the mesh: {error}")))?;
        let (stop, stopped) = oneshot::channel();
        let task = Arc::clone(&joined.task);
        let dying = Dying(joined.state.clone(), Arc::clone(&task));
        let thread = thread::Builder::new()
            .name("mesh".into())
            .spawn(move || {
                let _dying = dying;
                let forwarding = async {
                    tokio::select! {
                        () = forwarding => {}
                        _ = stopped => {}
                    }
                };
                // It ends with the archive, which has a status of its own.
                runtime.block_on(task.until_done(forwarding));
            })
            .map_err(|error| Error::Unavailable(format!("no thread for the mesh: {error}")))?;
        joined.thread = Some((stop, thread));
        Ok(joined)
    }

    /// The same without a thread: nothing is forwarded but while the future is polled, which ends
    /// with the archive. For a program that has its own runtime, or its own time.
    pub fn prepare(
        config: JoinedConfig,
        local: Arc<Local>,
        mesh: Arc<dyn Engine>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), Error> {
        config.check()?;
        let begins = local.begin_spool(&config.host, config.spool_records_max)?;
        let state = State::default();
        let forwarder =
            Forwarder::new(config.clone(), Arc::clone(&local), Arc::clone(&mesh), state.clone(), begins);
        let task = TaskStatus::new("forwarder");
        let joined = Self { local, mesh, config, state, thread: None, task };
        Ok((joined, forwarder.run()))
    }

    /// Figures about the way to the mesh; does not wait.
    #[must_use]
    pub fn statistics(&self) -> JoinedStatistics {
        let local = self.local.statistics();
        let figures = self.state.lock();
        let last_error =
            figures.last_error.clone().or_else(|| Some(figures.overtaken_by.as_ref()?.1.clone()));
        JoinedStatistics {
            spooled: local.spooled,
            is_full: self.config.spool_records_max <= local.spooled.saturating_sub(local.spooled_again),
            turned_away: local.turned_away,
            last_error,
            ..figures.statistics.clone()
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
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

#[async_trait::async_trait]
impl Engine for Joined {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.mesh.register(entry, ttl).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.mesh.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        self.mesh.remove(host).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        self.local.append(batch).await
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        self.mesh.subscribe(selector, from)
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        pages::history(self, series, range).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error> {
        pages::latest(self, selector, after, limit).await
    }

    /// Of the station itself: what its own archive holds; [`JoinedStatistics::watermark`] says what
    /// the mesh does.
    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        if *origin == self.config.host {
            return self.local.watermark(origin).await;
        }
        self.mesh.watermark(origin).await
    }

    /// Of the station itself: above the highest that its archive or the mesh ever stored.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when its archive knows no number of it and the mesh cannot be asked:
    /// it may have lost its archive, and would use a number twice.
    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        if *origin != self.config.host {
            return self.mesh.next_seq(origin).await;
        }
        let own = self.local.next_seq(origin).await?;
        let asked = timeout(ANSWER_WITHIN, self.mesh.next_seq(origin)).await;
        let asked =
            asked.unwrap_or_else(|_| Err(Error::Unavailable(format!("no answer within {ANSWER_WITHIN:?}"))));
        match asked.and_then(|number| possible(number, own)) {
            Ok(mesh) if own < mesh => {
                // What the mesh has seen is not to be sent again, nor are the numbers to be used.
                self.state.keep_clear(&self.local, origin, mesh - 1, false).await?;
                Ok(mesh)
            }
            Ok(_) => Ok(own),
            Err(_) if 1 < own => Ok(own),
            Err(Error::Invalid(what)) => Err(Error::Invalid(what)),
            Err(error) => Err(Error::Unavailable(format!(
                "the archive here knows no record of {origin}, and the mesh cannot be asked which numbers it used \
                 before: {error}"
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

/// A number of a sequence as an engine answered it, if the station can have used such a number, given its
/// highest: to go on above any other would soon end its sequence.
fn possible(number: u64, highest: u64) -> Result<u64, Error> {
    if Record::SEQ_BURNT_ABOVE < number && !Record::may_reach(number, highest) {
        return Err(Error::Unavailable(format!(
            "the mesh answers with the number {number}, which this station cannot have used: its highest is {highest}; \
             another may have used its name. A host or archive of this version forgets such numbers when it starts"
        )));
    }
    Ok(number)
}

/// See [`JoinedConfig::spool_records_max`].
const SPOOL_RECORDS_MAX: u64 = 1_000_000;

/// One waits while another is sent; a hundred million fill a disk of 6.6 GB.
const SPOOL_RECORDS: std::ops::RangeInclusive<u64> = 2..=100_000_000;

/// An idle station asks so often, to see that a mesh has lost what it confirmed.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// A station that starts does not wait longer for a mesh that may be away.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
