//! Files as the origin and the sink of flows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{Destination, ExistingFiles, FileError, Manifest, RenamedFiles, Source};
use crate::io::flow::{FlowError, Origin, Sink};
use rangemap::RangeSet;

/// The sender's files. The flow and the threads that compute digests read them.
#[derive(Clone, Debug)]
pub(super) struct SharedSource {
    source: Arc<Mutex<Option<Source>>>,
    /// Number of reads of the flow that wait for the files. Other readers wait until this number is
    /// 0.
    waiting: Arc<AtomicUsize>,
}

impl SharedSource {
    pub(super) fn new(source: Source) -> Self {
        Self { source: Arc::new(Mutex::new(Some(source))), waiting: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Source>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with the files, unless they were closed.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut Source) -> Result<T, FileError>,
    ) -> Result<T, FlowError> {
        let mut source = self.lock();
        Ok(act(source.as_mut().ok_or(FlowError::Stopped)?)?)
    }

    /// Takes the files out and returns them. Later reads end with [`FlowError::Stopped`].
    pub(super) fn close(&self) -> Option<Source> {
        self.lock().take()
    }

    /// Whether the flow waits to read the files. If so, other readers should wait.
    pub(super) fn has_waiting_read(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Origin for SharedSource {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.with(|source| {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            source.read(offset, out)
        })
    }
}

#[derive(Debug)]
pub(super) enum ReceivedFiles {
    /// Files to be written, and then given their names.
    Written(Box<Destination>),
    /// Files that all existed before, to be compared.
    Existing(Box<ExistingFiles>),
}

impl ReceivedFiles {
    pub(super) fn manifest(&self) -> &Manifest {
        match self {
            Self::Written(destination) => destination.manifest(),
            Self::Existing(existing) => existing.manifest(),
        }
    }

    /// Ranges of the object that the receiver has.
    pub(super) fn held(&self) -> RangeSet<u64> {
        match self {
            Self::Written(destination) => destination.held().clone(),
            Self::Existing(existing) => {
                let all = 0..existing.manifest().bytes();
                Some(all).filter(|all| !all.is_empty()).into_iter().collect()
            }
        }
    }

    /// Verifies all files, unless `stop` is set meanwhile, and gives files their names; returns
    /// `None` if all files had their names before the transfer.
    pub(super) fn finish(
        self,
        digests: &[[u8; 32]],
        stop: &AtomicBool,
    ) -> Result<Option<RenamedFiles>, FileError> {
        match self {
            Self::Written(destination) => destination.rename_files(digests, stop).map(Some),
            Self::Existing(existing) => existing.verify(digests, stop).map(|()| None),
        }
    }
}

/// The receiver's files, until they are finished.
#[derive(Clone, Debug)]
pub(super) struct SharedDestination(Arc<Mutex<Option<ReceivedFiles>>>);

impl SharedDestination {
    pub(super) fn new(received: ReceivedFiles) -> Self {
        Self(Arc::new(Mutex::new(Some(received))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<ReceivedFiles>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the files out and returns them. Later writes end with [`FlowError::Stopped`].
    pub(super) fn close(&self) -> Option<ReceivedFiles> {
        self.lock().take()
    }
}

impl Sink for SharedDestination {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        match self.lock().as_mut().ok_or(FlowError::Stopped)? {
            ReceivedFiles::Written(destination) => Ok(destination.write(offset, bytes)?),
            // All files exist already, so received bytes are dropped.
            ReceivedFiles::Existing(_) => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        match self.lock().as_mut().ok_or(FlowError::Stopped)? {
            ReceivedFiles::Written(destination) => Ok(destination.sync()?),
            ReceivedFiles::Existing(_) => Ok(()),
        }
    }
}
