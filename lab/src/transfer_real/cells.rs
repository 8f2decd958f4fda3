//! Cells of a table: several at once where a machine has room, and how long they take.

use std::ops::{Add, AddAssign};
use std::time::Duration;

use crate::jobs;

/// How much a part has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) cells: u64,
    /// An estimate.
    pub(crate) time: Duration,
}

impl Plan {
    /// So many cells that take so long, so many at once.
    pub(crate) fn of(cells: u64, each: Duration, at_once: usize) -> Self {
        Self { cells, time: each * u32::try_from(cells).unwrap_or(u32::MAX) / at_once.max(1) as u32 }
    }
}

impl Add for Plan {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cells: self.cells + other.cells, time: self.time + other.time }
    }
}

impl AddAssign for Plan {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Plan {
    fn sum<I: Iterator<Item = Self>>(plans: I) -> Self {
        plans.fold(Self::default(), Add::add)
    }
}

/// How many jobs run at once, as long as that does them no harm.
pub(crate) struct Lanes(usize);

impl Lanes {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(at_once.max(1))
    }

    /// Runs all jobs, and returns what came of them in their order. What is void, as others ran beside it, is run again alone; when that is more
    /// than a third, jobs run alone from now on.
    pub(crate) fn run<J: Sync, T: Send>(
        &mut self,
        jobs: &[J],
        run: impl Fn(&J) -> T + Sync,
        is_void: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        if self.0 == 1 {
            return jobs.iter().map(run).collect();
        }
        let found = jobs::at_once(jobs, self.0, &run);
        let spoilt = found.iter().filter(|came| is_void(came)).count();
        if jobs.len() < 3 * spoilt {
            self.0 = 1;
        }
        let again = |(came, job): (T, &J)| if is_void(&came) { run(job) } else { came };
        found.into_iter().zip(jobs).map(again).collect()
    }
}

/// A length of time for people: `45 s`, `12 min`.
pub(crate) fn for_people(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// What a run takes beside its own time: two namespaces, two processes, their end (0.3 s here), and a little for a machine that is busy.
pub(crate) const AROUND: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[test]
    fn what_is_void_is_run_again_alone() {
        let runs = AtomicUsize::new(0);
        let jobs: Vec<usize> = (0..20).collect();
        // Of the first time that each is run, the odd ones are void.
        let seen: Mutex<Vec<usize>> = Mutex::default();
        let mut lanes = Lanes::new(3);
        let found = lanes.run(
            &jobs,
            |job| {
                runs.fetch_add(1, Ordering::Relaxed);
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let is_first = !seen.contains(job);
                seen.push(*job);
                (*job, is_first && job % 2 == 1)
            },
            |(_, is_void)| *is_void,
        );
        assert_eq!(found, jobs.iter().map(|job| (*job, false)).collect::<Vec<_>>());
        assert_eq!(runs.load(Ordering::Relaxed), 30);
        assert_eq!(lanes.0, 1, "half of them were spoilt");
    }

    #[test]
    fn alone_nothing_is_run_twice() {
        let runs = AtomicUsize::new(0);
        let found =
            Lanes::new(1).run(&[1, 2, 3], |job| (runs.fetch_add(1, Ordering::Relaxed), *job).1, |_| true);
        assert_eq!(found, [1, 2, 3]);
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn plans_add_up() {
        let plan = Plan::of(6, Duration::from_secs(10), 2) + Plan::of(1, Duration::from_secs(5), 1);
        assert_eq!(plan, Plan { cells: 7, time: Duration::from_secs(35) });
        assert_eq!(for_people(plan.time), "35 s");
        assert_eq!(for_people(Duration::from_secs(600)), "10 min");
    }
}
