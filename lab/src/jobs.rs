//! Runs jobs on all processors, with a bar on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `work` on each of the jobs, in their order.
pub(crate) fn all<J: Sync, R: Send>(
    jobs: &[J],
    name: impl Fn(&J) -> String + Sync,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    // It draws on standard error, and only on a terminal.
    let bar = ProgressBar::new(jobs.len() as u64).with_style(style);
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return done };
            bar.set_message(name(job));
            done.push((index, work(job)));
            bar.inc(1);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("work does not panic")).collect()
    });
    bar.finish_and_clear();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
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
