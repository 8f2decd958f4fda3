//! Supervision: a status for each long-lived task or thread, with the reason of its last failure.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Status of a long-lived task or thread: whether it works, and its last failure.
///
/// A panic is a failure. A return before [`TaskStatus::stop`] is also a failure, if the work must
/// not end by itself. Each failure is logged once. If the owner of the future drops the future,
/// that is not a failure.
#[derive(Debug)]
pub struct TaskStatus {
    name: &'static str,
    is_stopping: AtomicBool,
    state: Mutex<State>,
    #[cfg(feature = "testkit")]
    kill: testkit::Kill,
}

#[derive(Debug, Default)]
struct State {
    panics: u64,
    /// Time and reason of the last failure.
    failure: Option<(Instant, String)>,
    /// Whether the work was started again after the failure.
    is_restarted: bool,
}

impl TaskStatus {
    /// Status of work that has not failed. `name` is its label in `/metrics`.
    #[must_use]
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            is_stopping: AtomicBool::new(false),
            state: Mutex::default(),
            #[cfg(feature = "testkit")]
            kill: testkit::Kill::default(),
        })
    }

    /// Name of the task or thread, its label in `/metrics`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns false after a failure, until the work is started again.
    #[must_use]
    pub fn is_up(&self) -> bool {
        let state = self.lock();
        state.failure.is_none() || state.is_restarted
    }

    /// Number of panics since this status was created.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.lock().panics
    }

    /// A sentence about the last failure, while the work is down and for a minute after its
    /// restart.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let state = self.lock();
        let (at, why) = state.failure.as_ref()?;
        match state.is_restarted {
            false => Some(format!("the task '{}' ended: {why}", self.name)),
            true if at.elapsed() < PROBATION => {
                Some(format!("the task '{}' ended and was started again: {why}", self.name))
            }
            true => None,
        }
    }

    /// Permits the work to return from now on.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Runs a thread's work, which must not return before [`TaskStatus::stop`]; `None` after a
    /// panic.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.begin();
        let ended = catch_unwind(AssertUnwindSafe(work));
        self.ended(ended.map_err(|panic| panic_message(&*panic)), MustStay::Yes)
    }

    /// Runs one job of a thread that continues after a panic; `None` if the job panicked.
    pub fn run_job<T>(&self, job: impl FnOnce() -> T) -> Option<T> {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            self.kill_point();
            job()
        }));
        let done = self.ended(ended.map_err(|panic| panic_message(&*panic)), MustStay::No);
        self.begin();
        done
    }

    /// Awaits a task's work, which must not return before [`TaskStatus::stop`]; `None` after a
    /// panic.
    pub async fn watch<F: Future>(&self, work: F) -> Option<F::Output> {
        self.begin();
        let ended = self.caught(work).await;
        self.ended(ended, MustStay::Yes)
    }

    /// Awaits a task's work, which may return when it is done; `None` after a panic.
    pub async fn watch_until_done<F: Future>(&self, work: F) -> Option<F::Output> {
        self.begin();
        let ended = self.caught(work).await;
        self.ended(ended, MustStay::No)
    }

    /// Awaits work that may return when it is done, and starts it again after each panic, with
    /// growing pauses.
    pub async fn restart<F: Future<Output = ()>>(&self, mut work: impl FnMut() -> F) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            if self.watch_until_done(work()).await.is_some() {
                return;
            }
            if began.elapsed() >= PROBATION {
                pause = PAUSE_MIN;
            }
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// Point at which a test can kill a thread. The thread calls this function in each iteration of
    /// its loop.
    pub fn kill_point(&self) {
        #[cfg(feature = "testkit")]
        self.kill.panic_if_asked();
    }

    async fn caught<F: Future>(&self, work: F) -> Result<F::Output, String> {
        let mut work = pin!(work);
        #[cfg(feature = "testkit")]
        let mut killed = pin!(self.kill.panic_when_asked());
        poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| {
                #[cfg(feature = "testkit")]
                let _ = killed.as_mut().poll(context);
                work.as_mut().poll(context)
            }));
            match polled {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic_message(&*panic))),
            }
        })
        .await
    }

    fn begin(&self) {
        self.lock().is_restarted = true;
    }

    fn ended<T>(&self, ended: Result<T, String>, must_stay: MustStay) -> Option<T> {
        let (why, done) = match ended {
            Ok(done) if must_stay == MustStay::No || self.is_stopping.load(Ordering::SeqCst) => {
                return Some(done);
            }
            Ok(done) => ("it returned although it was not stopped".to_string(), Some(done)),
            Err(why) => (why, None),
        };
        tracing::error!("the task '{}' ended: {why}", self.name);
        let mut state = self.lock();
        state.panics += u64::from(done.is_none());
        state.failure = Some((Instant::now(), why));
        state.is_restarted = false;
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock, so a poisoned lock does not occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "testkit")]
impl TaskStatus {
    /// Makes the work panic at the next iteration of its loop, or at the next poll. Work that is
    /// not running panics when it starts.
    pub fn kill(&self) {
        self.kill.request();
    }
}

/// Whether work counts as failed if it returns before [`TaskStatus::stop`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum MustStay {
    Yes,
    No,
}

/// Message of a panic.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.map_or_else(|| "a panic without a message".into(), |text| format!("panic: {text}"))
}

/// Lets tests kill a task.
#[cfg(feature = "testkit")]
mod testkit {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    #[derive(Debug, Default)]
    pub(super) struct Kill {
        is_asked: AtomicBool,
        asked: Notify,
    }

    impl Kill {
        pub(super) fn request(&self) {
            self.is_asked.store(true, Ordering::SeqCst);
            self.asked.notify_one();
        }

        pub(super) fn panic_if_asked(&self) {
            assert!(!self.is_asked.swap(false, Ordering::SeqCst), "killed by a test");
        }

        pub(super) async fn panic_when_asked(&self) -> Infallible {
            loop {
                self.panic_if_asked();
                self.asked.notified().await;
            }
        }
    }
}

/// Time after which a restarted task counts as healthy.
const PROBATION: Duration = Duration::from_secs(60);
/// Shortest and longest pause before work is started again after a panic.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the errors that are logged about one task.
    #[derive(Clone, Default)]
    struct Errors(Arc<std::sync::atomic::AtomicU64>);

    impl tracing::Subscriber for Errors {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            // Count only events of this task, because other tests log through the same subscriber.
            let mut count = |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                let is_ours = format!("{value:?}").contains("'logged once' ended");
                let is_error = *event.metadata().level() == tracing::Level::ERROR;
                self.0.fetch_add(u64::from(is_ours && is_error), Ordering::SeqCst);
            };
            event.record(&mut count);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_task_failure_is_logged_once() {
        let errors = Errors::default();
        tracing::subscriber::set_global_default(errors.clone()).expect("no other test sets one");
        let status = TaskStatus::new("logged once");
        status.run(|| panic!("bad"));
        status.stop();
        status.run(|| ());
        assert_eq!(errors.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_panic_or_an_early_return_is_a_failure_and_a_stop_is_not() {
        let status = TaskStatus::new("thread");
        assert!(status.is_up() && status.failure().is_none());
        assert_eq!(status.run(|| -> u8 { panic!("of {}", "a kind") }), None);
        assert!(!status.is_up());
        assert_eq!(status.failure().as_deref(), Some("the task 'thread' ended: panic: of a kind"));
        assert_eq!(status.run(|| 7), Some(7));
        assert!(!status.is_up() && status.panics() == 1, "a return is counted as no panic");
        let stopped = TaskStatus::new("thread");
        stopped.stop();
        assert_eq!(stopped.run(|| 7), Some(7));
        assert!(stopped.is_up() && stopped.failure().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_task_is_up_again_after_a_minute() {
        let status = TaskStatus::new("task");
        let mut tries = 0;
        let work = status.restart(|| {
            tries += 1;
            let is_bad = tries < 3;
            async move {
                assert!(!is_bad, "bad");
                std::future::pending().await
            }
        });
        assert!(tokio::time::timeout(Duration::from_secs(30), work).await.is_err());
        assert!(status.is_up() && status.panics() == 2);
        let failure = status.failure();
        assert_eq!(failure.as_deref(), Some("the task 'task' ended and was started again: panic: bad"));
        tokio::time::advance(PROBATION).await;
        assert_eq!((status.is_up(), status.failure()), (true, None), "dropping the future is no failure");
    }

    #[test]
    fn a_panic_in_a_job_does_not_end_its_thread() {
        let status = TaskStatus::new("jobs");
        assert_eq!(status.run_job(|| -> u8 { panic!("bad") }), None);
        assert_eq!(status.run_job(|| 1), Some(1));
        assert!(status.is_up() && status.panics() == 1 && status.failure().is_some());
    }
}
