//! The responder's threads: started when needed, a few kept for the next session, joined at the end.
//!
//! A thread that is new to the scheduler sits on another processor than its peer and is woken
//! across for its first thousands of exchanges: on loopback 30 to 45 µs instead of 7. A kept one
//! is where the work is. So short sessions are served as a long-lived server would serve them.

use std::io;
use std::sync::mpsc::{self, SendError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::io::sync::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that serve one job after the other.
#[derive(Debug)]
pub(super) struct WorkerPool(Mutex<Option<Workers>>);

#[derive(Debug, Default)]
struct Workers {
    /// Waiting for a job, the latest to finish last, for it is the warmest.
    idle: Vec<Sender<Job>>,
    all: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Workers::default()))))
    }

    /// Runs `job` on a thread that is free, or a new one.
    ///
    /// # Errors
    /// After [`WorkerPool::stop`], and when no thread can be started.
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

    /// Starts no further job, and waits for those that run; their end must have been requested before.
    pub(super) fn stop(&self) {
        // Taken out of the lock first: a thread that ends takes the lock. Dropping the senders ends
        // those that wait.
        let Some(Workers { idle, all }) = lock(&self.0).take() else { return };
        drop(idle);
        for thread in all {
            // The panic of a job is on standard error already, and ended that job alone.
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

/// Buffers are on the heap, TLS records included; what is left is shallow.
const STACK_BYTES: usize = 256 * 1024;
/// Threads kept while idle: more sessions than this at once are rare, and start threads.
const KEPT_MAX: usize = 4;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn threads_are_kept_and_nothing_starts_after_the_stop() {
        let pool = WorkerPool::new();
        let (sender, ran) = mpsc::channel();
        let mut threads = HashSet::new();
        for _ in 0..100 {
            let sender = sender.clone();
            pool.run(move || sender.send(thread::current().id()).unwrap()).unwrap();
            threads.insert(ran.recv().unwrap());
        }
        // A job reports a moment before its thread is free.
        assert!(threads.len() < 100, "{threads:?}");
        assert!(lock(&pool.0).as_ref().unwrap().idle.len() <= KEPT_MAX);
        pool.stop();
        assert!(pool.run(|| ()).is_err());
    }
}
