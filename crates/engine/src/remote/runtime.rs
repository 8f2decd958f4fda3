//! The thread and the runtime of an engine's requests.

use std::future::Future;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use crate::{EngineError, TaskStatus};

/// The thread and the runtime of one engine. The engine, its leases and its streams share this
/// value; tasks on the runtime do not share it, so that a task cannot keep the runtime alive.
pub(super) struct RemoteRuntime {
    handle: Handle,
    /// Dropping this sender stops the thread.
    stop: Option<oneshot::Sender<()>>,
    /// Each request that must be sent before the thread ends has a clone of this sender.
    leaving: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Status of the thread.
    pub(super) task: Arc<TaskStatus>,
    /// Status of the tasks that renew leases.
    pub(super) renewal: Arc<TaskStatus>,
}

impl RemoteRuntime {
    pub(super) fn start() -> Result<Self, EngineError> {
        let unavailable = |error| EngineError::Unavailable(format!("no thread for requests: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(unavailable)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (leaving, mut left) = mpsc::channel::<()>(1);
        let (task, renewal) = (TaskStatus::new("remote"), TaskStatus::new("lease_renewal"));
        let ours = Arc::clone(&task);
        let work = move || {
            runtime.block_on(ours.watch(async {
                // No message is ever sent on these channels: a receiver returns when its senders
                // are dropped.
                let _ = stopped.await;
                let _ = tokio::time::timeout(DEREGISTER_TIMEOUT, left.recv()).await;
            }));
            // Do not wait for blocking work, because the resolution of a name may take long.
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

    /// Runs a request on this runtime, for a caller on another runtime.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let done = self.spawn(work).await;
        done.map_err(|_| EngineError::Unavailable("the connection was closed".into()))?
    }

    /// Returns a sender. Before the thread ends, it waits until the sender is dropped, for
    /// [`DEREGISTER_TIMEOUT`] at most.
    pub(super) fn leaving(&self) -> mpsc::Sender<()> {
        self.leaving.clone().expect("it is taken in drop alone")
    }
}

impl Drop for RemoteRuntime {
    fn drop(&mut self) {
        self.task.stop();
        drop(self.stop.take());
        drop(self.leaving.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // If the thread panicked, the panic hook has reported it already.
            let _ = thread.join();
        }
    }
}

/// Longest wait for the last requests, which take one round trip. If the last requests do not
/// arrive, the leases expire at the station.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(1);
