//! A mesh's engine that fails on request: another archive, behind [`Local::append_forwarded`].

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use barograph_engine::{Engine, EngineError, Local, LocalConfig, Record};
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The records are stored and acknowledged.
    None,
    /// The records are not stored, and an error reports that.
    Unavailable,
    /// The records are stored, and the acknowledgement is lost.
    StoredUnknown,
    /// The records are not stored, and the error does not show whether they are stored.
    LostUnknown,
    /// The records are acknowledged, and lost before they are stored.
    AcknowledgedLost,
    /// No response to the append arrives.
    Silent,
}

/// The mesh's engine that the station uses.
pub(crate) type Mesh = HookedEngine<Failing>;

/// Archive of the mesh's engine, with the faults and limits that a test sets for this engine.
pub(crate) struct Failing {
    pub(crate) archive: Mutex<Arc<Local>>,
    /// Faults of the next appends, one for each append. Later appends succeed.
    pub(crate) faults: Mutex<VecDeque<Fault>>,
    /// All calls are refused before this time.
    pub(crate) away_until: Mutex<Option<Instant>>,
    /// Average number of accepted records a second, and the time at which the next batch is
    /// accepted; `None` for no rate limit.
    pub(crate) pace: Mutex<Option<(f64, Instant)>>,
    /// Number of throttled appends.
    pub(crate) put_off: Mutex<u64>,
    /// The engine's result for a single record.
    pub(crate) judge: fn(&Record) -> Result<(), EngineError>,
    /// Number of records in all appends that reached the engine. Repetitions count again.
    pub(crate) appended: Mutex<u64>,
    /// Number that the engine reports as watermark and as next number; `None` to report the real
    /// numbers.
    pub(crate) number: Mutex<Option<u64>>,
}

pub(crate) fn new(directory: &Path) -> Arc<Mesh> {
    judging(directory, |_| Ok(()))
}

pub(crate) fn judging(directory: &Path, judge: fn(&Record) -> Result<(), EngineError>) -> Arc<Mesh> {
    HookedEngine::new(Failing {
        archive: Mutex::new(Arc::new(open(directory))),
        faults: Mutex::default(),
        away_until: Mutex::default(),
        pace: Mutex::default(),
        put_off: Mutex::default(),
        judge,
        appended: Mutex::new(0),
        number: Mutex::default(),
    })
}

impl Failing {
    pub(crate) fn local(&self) -> Arc<Local> {
        Arc::clone(&self.archive.lock().unwrap())
    }

    pub(crate) fn go_away(&self, duration: Duration) {
        *self.away_until.lock().unwrap() = Some(Instant::now() + duration);
    }

    fn is_there(&self) -> Result<(), EngineError> {
        match *self.away_until.lock().unwrap() {
            Some(until) if Instant::now() < until => Err(EngineError::Unavailable("the mesh is away".into())),
            _ => Ok(()),
        }
    }
}

/// Opens an archive that accepts every time label and commits at once.
pub(crate) fn open(directory: &Path) -> Local {
    Local::open(config(directory)).unwrap()
}

pub(crate) fn config(directory: &Path) -> LocalConfig {
    LocalConfig { commit_interval: Duration::ZERO, keep: Duration::MAX, ..LocalConfig::new(directory) }
}

/// Runs work with an archive in real time, while a paused clock does not advance.
pub(crate) async fn really<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    static REAL: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
    let handle = REAL.handle().clone();
    tokio::task::spawn_blocking(move || handle.block_on(work)).await.unwrap()
}

#[async_trait::async_trait]
impl EngineHooks for Failing {
    fn route(&self, call: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        if !matches!(
            call,
            EngineCall::Register(_) | EngineCall::Watch | EngineCall::Remove | EngineCall::Subscribe
        ) {
            self.is_there()?;
        }
        Ok(self.local())
    }

    fn fixed_number(&self, _: EngineCall<'_>) -> Option<u64> {
        *self.number.lock().unwrap()
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.is_there()?;
        if let Some((per_s, next)) = self.pace.lock().unwrap().as_mut() {
            let (now, due) = (Instant::now(), *next);
            if now < due {
                *self.put_off.lock().unwrap() += 1;
                return Err(EngineError::Throttled { reason: "too many records".into(), wait: due - now });
            }
            *next = now + Duration::from_secs_f64(batch.len() as f64 / *per_s);
        }
        *self.appended.lock().unwrap() += batch.len() as u64;
        batch.iter().try_for_each(self.judge)?;
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
        let store = async {
            let (local, batch) = (self.local(), batch.to_vec());
            let counts = really(async move { local.append_forwarded(&batch).await }).await?;
            assert_eq!(counts.refused, 0);
            Ok(())
        };
        match fault {
            Fault::None => store.await,
            Fault::Unavailable => Err(EngineError::Unavailable("no majority".into())),
            Fault::StoredUnknown => {
                let () = store.await?;
                Err(EngineError::Unknown("the connection broke".into()))
            }
            Fault::LostUnknown => Err(EngineError::Unknown("the connection broke".into())),
            Fault::AcknowledgedLost => Ok(()),
            Fault::Silent => std::future::pending().await,
        }
    }
}
