//! Concurrent work: jobs on all processors, tasks in the background, and cancellation by a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_probe::io::CancellationToken;
use barograph_station::{Signal, signals};
use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error, if that is a terminal: `{pos}/{len}`, then the template
/// `rest`.
pub(crate) fn bar(length: u64, rest: &str) -> ProgressBar {
    bar_like(length, &format!("{{bar:40}} {{pos}}/{{len}} {rest}"))
}

/// A progress bar with a template of its own.
pub(crate) fn bar_like(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

/// Results of `work` on each job, in the jobs' order. It runs on all processors, and a bar shows
/// the names of the jobs.
pub(crate) fn all<J: Sync, R: Send>(
    jobs: &[J],
    name: impl Fn(&J) -> String + Sync,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let bar = bar(jobs.len() as u64, "{msg}");
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let done = at_once(jobs, processors, |job| {
        bar.set_message(name(job));
        let result = work(job);
        bar.inc(1);
        result
    });
    bar.finish_and_clear();
    done
}

/// Results of `work` on each job, in the jobs' order; `count` jobs run at the same time.
pub(crate) fn at_once<J: Sync, R: Send>(jobs: &[J], count: usize, work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return done };
            done.push((index, work(job)));
        }
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..count.min(jobs.len())).map(|_| scope.spawn(take)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("work does not panic")).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A thread that works until it is stopped or dropped.
pub(crate) struct Task<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Task<T> {
    /// Starts the thread. `work` must end soon after its flag is set.
    pub(crate) fn start(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self { stop, thread: Some(thread::spawn(move || work(&stopped))) }
    }

    /// Stops the thread; returns its result, or `None` if it panicked.
    pub(crate) fn finish(mut self) -> Option<T> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The work does not panic, and a panic would have been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sleeps for some time, or until soon after `stop` is set.
pub(crate) fn sleep(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(TICK));
    }
}

/// Longest time until a sleeping task notices that it was stopped.
const TICK: Duration = Duration::from_millis(50);

/// A cancellation flag that the first signal sets. A second stop signal ends the program.
pub(crate) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let signals = signals::listen().context("signals cannot be handled")?;
    let cancel = CancellationToken::default();
    let stop = cancel.clone();
    thread::spawn(move || {
        while let Ok(signal) = signals.recv() {
            if signal == Signal::Stop && stop.is_cancelled() {
                std::process::exit(1);
            }
            stop.cancel();
        }
    });
    Ok(cancel)
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        let squares = super::all(&jobs, u64::to_string, |job| job * job);
        assert_eq!(squares, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        assert!(super::all(&[], u64::to_string, |job| *job).is_empty());
    }
}
