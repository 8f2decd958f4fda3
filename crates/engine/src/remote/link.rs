//! The thread and the runtime on which an engine asks.

use std::future::Future;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use crate::{Error, TaskStatus};

/// Held by the engine and all it gave, but by no task that runs here.
pub(super) struct Link {
    handle: Handle,
    /// Dropped to stop.
    stop: Option<oneshot::Sender<()>>,
    /// Clones are held by what must be heard before the thread ends.
    leaving: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Of the thread.
    pub(super) task: Arc<TaskStatus>,
    /// Of those that renew leases.
    pub(super) renewal: Arc<TaskStatus>,
}

impl Link {
    pub(super) fn start() -> Result<Self, Error> {
        let unavailable = |error| Error::Unavailable(format!("no thread for requests: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(unavailable)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (leaving, mut left) = mpsc::channel::<()>(1);
        let (task, renewal) = (TaskStatus::new("remote"), TaskStatus::new("lease_renewal"));
        let ours = Arc::clone(&task);
        let work = move || {
            runtime.block_on(ours.watch(async {
                // Nothing is ever sent: they end with their senders.
                let _ = stopped.await;
                let _ = tokio::time::timeout(LEAVE_LIMIT, left.recv()).await;
            }));
            // A name that is being resolved may take long.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("remote".into()).spawn(work).map_err(unavailable)?;
        Ok(Self { handle, stop: Some(stop), leaving: Some(leaving), thread: Some(thread), task, renewal })
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.handle.spawn(work)
    }

    /// Runs a request here, for whoever waits elsewhere.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let done = self.spawn(work).await;
        done.map_err(|_| Error::Unavailable("the connection was given up".into()))?
    }

    /// What the thread waits for when it ends.
    pub(super) fn leaving(&self) -> mpsc::Sender<()> {
        self.leaving.clone().expect("it is taken in drop alone")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.stop();
        drop(self.stop.take());
        drop(self.leaving.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// What is leaving is heard within a round trip; a station that is gone takes it from the lease.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
