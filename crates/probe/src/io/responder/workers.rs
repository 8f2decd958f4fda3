//! The responder's threads: started when needed, a few kept for the next session, joined at the end.
//!
//! A thread that is new to the scheduler sits on another processor than its peer and is woken
//! across for its first thousands of exchanges: on loopback 30 to 45 µs instead of 7. A kept one
//! is where the work is. So short sessions are served as a long-lived server would serve them.

use std::io;
use std::sync::mpsc::{self, SendError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that serve one job after the other.
#[derive(Debug)]
pub(super) struct Crew(Mutex<Option<Members>>);

#[derive(Debug, Default)]
struct Members {
    /// Waiting for a job, the latest to finish last, for it is the warmest.
    idle: Vec<Sender<Job>>,
    all: Vec<JoinHandle<()>>,
}

impl Crew {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Members::default()))))
    }

    /// Runs `job` on a thread that is free, or a new one.
    ///
    /// # Errors
    /// After [`Crew::stop`], and when no thread can be started.
    pub(super) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut members = lock(&self.0);
        let Some(members) = members.as_mut() else {
            return Err(io::Error::other("the responder is stopping"));
        };
        let mut job: Job = Box::new(job);
        while let Some(free) = members.idle.pop() {
            match free.send(job) {
                Ok(()) => return Ok(()),
                Err(SendError(returned)) => job = returned,
            }
        }
        members.all.retain(|thread| !thread.is_finished());
        let crew = Arc::clone(self);
        let builder = thread::Builder::new().name("probe".to_string()).stack_size(STACK_BYTES);
        members.all.push(builder.spawn(move || crew.serve(job))?);
        Ok(())
    }

    /// Lets nothing start any more, and waits for what runs; the jobs must have been told to end.
    pub(super) fn stop(&self) {
        // Taken out of the lock first: a thread that ends looks into it. Dropping the senders is
        // the end of those that wait.
        let Some(Members { idle, all }) = lock(&self.0).take() else { return };
        drop(idle);
        for thread in all {
            // A job that panicked has told so on standard error, and ended alone.
            let _ = thread.join();
        }
    }

    /// One thread's life.
    fn serve(&self, mut job: Job) {
        loop {
            job();
            let (sender, next) = mpsc::channel();
            match lock(&self.0).as_mut() {
                Some(members) if members.idle.len() < KEPT_MAX => members.idle.push(sender),
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
        let crew = Crew::new();
        let (sender, ran) = mpsc::channel();
        let mut threads = HashSet::new();
        for _ in 0..100 {
            let sender = sender.clone();
            crew.run(move || sender.send(thread::current().id()).unwrap()).unwrap();
            threads.insert(ran.recv().unwrap());
        }
        // A thread tells that it ran a moment before it is free.
        assert!(threads.len() < 100, "{threads:?}");
        assert!(lock(&crew.0).as_ref().unwrap().idle.len() <= KEPT_MAX);
        crew.stop();
        assert!(crew.run(|| ()).is_err());
    }
}
