//! Thread pool of the responder: threads start on demand, a few stay idle for the next session, and
//! all are joined at the end.
//!
//! The scheduler places a new thread on a different processor than the thread of the client. So the
//! first thousands of exchanges of the new thread need wake-ups across processors: on loopback,
//! each exchange takes 30 to 45 µs instead of 7 µs. A reused idle thread avoids these wake-ups, so
//! short sessions get the latency of a long-lived server.

use std::io;
use std::sync::mpsc::{self, SendError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::io::sync::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that each run one job after the other.
#[derive(Debug)]
pub(super) struct WorkerPool(Mutex<Option<Workers>>);

#[derive(Debug, Default)]
struct Workers {
    /// Idle threads. The thread that became idle last is reused first, because its caches are warm.
    idle: Vec<Sender<Job>>,
    all: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Workers::default()))))
    }

    /// Runs `job` on an idle thread or a new thread.
    ///
    /// # Errors
    /// After [`WorkerPool::stop`], and if no thread can be started.
    pub(super) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut guard = lock(&self.0);
        let Some(workers) = guard.as_mut() else {
            return Err(io::Error::other("the responder is stopping"));
        };
        let mut job: Job = Box::new(job);
        while let Some(free) = workers.idle.pop() {
            match free.send(job) {
                Ok(()) => return Ok(()),
                Err(SendError(returned)) => job = returned,
            }
        }
        workers.all.retain(|thread| !thread.is_finished());
        let pool = Arc::clone(self);
        let builder = thread::Builder::new().name("probe".to_string()).stack_size(STACK_BYTES);
        workers.all.push(builder.spawn(move || pool.serve(job))?);
        Ok(())
    }

    /// Starts no further job and waits until the running jobs have ended. The caller must request
    /// the end of the running jobs before this call.
    pub(super) fn stop(&self) {
        // Take the workers out of the lock first, because a thread needs the lock to end. Dropping
        // the senders ends the idle threads.
        let Some(Workers { idle, all }) = lock(&self.0).take() else { return };
        drop(idle);
        for thread in all {
            // A panic of a job is already on standard error and ended only that job.
            let _ = thread.join();
        }
    }

    fn serve(&self, mut job: Job) {
        loop {
            job();
            let (sender, next) = mpsc::channel();
            match lock(&self.0).as_mut() {
                Some(workers) if workers.idle.len() < KEPT_MAX => workers.idle.push(sender),
                _ => return,
            }
            match next.recv() {
                Ok(another) => job = another,
                Err(_) => return,
            }
        }
    }
}

/// Stack size of a thread in bytes. The size is small, because buffers, including those of TLS
/// records, are on the heap.
const STACK_BYTES: usize = 256 * 1024;
/// Maximum number of idle threads. More sessions at the same time are rare; new threads start for
/// the additional sessions.
const KEPT_MAX: usize = 4;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn worker_threads_are_reused_and_no_job_starts_after_the_stop() {
        let pool = WorkerPool::new();
        let (sender, ran) = mpsc::channel();
        let mut threads = HashSet::new();
        for _ in 0..100 {
            let sender = sender.clone();
            pool.run(move || sender.send(thread::current().id()).unwrap()).unwrap();
            threads.insert(ran.recv().unwrap());
        }
        // A job sends its report shortly before its thread becomes idle, so the next job may start
        // a new thread. But some jobs must reuse a thread.
        assert!(threads.len() < 100, "{threads:?}");
        assert!(lock(&pool.0).as_ref().unwrap().idle.len() <= KEPT_MAX);
        pool.stop();
        assert!(pool.run(|| ()).is_err());
    }
}
