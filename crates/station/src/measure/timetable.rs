//! Times at which jobs are due: periods with jitter, seeded by the job's name. Pure: the caller
//! provides the time.
//!
//! Because of the jitter, stations do not probe at the same times. The jitter is uniform within
//! ±`JITTER` of the period. Each job has its own generator, so other jobs do not change its phase.

use std::collections::BTreeMap;
use std::time::Duration;

/// Jobs of type `J` and when they are due, as time since the start of the timetable.
#[derive(Clone, Debug)]
pub struct Timetable<J: Ord> {
    jobs: BTreeMap<J, Row>,
}

#[derive(Clone, Debug)]
struct Row {
    period: Duration,
    due: Duration,
    random: SplitMix64,
}

impl<J: Ord + Clone> Timetable<J> {
    /// Creates a timetable without jobs.
    #[must_use]
    pub fn new() -> Self {
        Self { jobs: BTreeMap::new() }
    }

    /// Adds a job, or changes the period of an existing one. A new job is due within `FIRST_WITHIN`
    /// (or its period, if shorter), so that the first value appears soon after the start.
    pub fn set(&mut self, job: J, name: &str, period: Duration, now: Duration) {
        match self.jobs.get_mut(&job) {
            Some(row) if row.period == period => {}
            Some(row) => {
                row.period = period;
                row.due = Duration::min(row.due, now + period);
            }
            None => {
                let mut random = SplitMix64(seed(name));
                let due = now + Duration::min(FIRST_WITHIN, period).mul_f64(random.unit());
                self.jobs.insert(job, Row { period, due, random });
            }
        }
    }

    /// As [`Timetable::set`], but a new job first waits a random part of its whole period. Use this
    /// function for costly jobs.
    pub fn set_spread(&mut self, job: J, name: &str, period: Duration, now: Duration) {
        if self.jobs.contains_key(&job) {
            return self.set(job, name, period, now);
        }
        let mut random = SplitMix64(seed(name));
        let due = now + period.mul_f64(random.unit());
        self.jobs.insert(job, Row { period, due, random });
    }

    /// Removes every job for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&J) -> bool) {
        self.jobs.retain(|job, _| keep(job));
    }

    /// Time of the next job; `None` without jobs.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.jobs.values().map(|row| row.due).min()
    }

    /// Returns the jobs due at `now`, most overdue first, and schedules their next times.
    ///
    /// A late job (the host slept) is due once, not once for each missed period.
    pub fn take_due(&mut self, now: Duration) -> Vec<J> {
        let mut due: Vec<(Duration, J)> = Vec::new();
        for (job, row) in &mut self.jobs {
            if row.due <= now {
                due.push((row.due, job.clone()));
                let factor = 1.0 - JITTER + 2.0 * JITTER * row.random.unit();
                let next = row.due + row.period.mul_f64(factor);
                row.due = if next <= now { now + row.period.mul_f64(factor) } else { next };
            }
        }
        due.sort();
        due.into_iter().map(|(_, job)| job).collect()
    }

    /// Sets the next time of `job` to `at`, because the job could not begin.
    pub fn postpone(&mut self, job: &J, at: Duration) {
        if let Some(row) = self.jobs.get_mut(job) {
            row.due = at;
        }
    }
}

impl<J: Ord + Clone> Default for Timetable<J> {
    fn default() -> Self {
        Self::new()
    }
}

/// SplitMix64 generator (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// OOPSLA 2014, figure 16).
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Next random number, uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Seed from a name by FNV-1a, 64 bits (draft-eastlake-fnv §2): the same on every host and version.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Jitter, as a share of the period, in both directions.
const JITTER: f64 = 0.1;

/// Longest time until a new job runs for the first time, so that the page is not empty for long.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn run(name: &str, rounds: usize) -> Vec<Duration> {
        let mut table = Timetable::new();
        table.set(0, name, 10 * SECOND, Duration::ZERO);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let now = table.next_due().expect("one job");
            assert_eq!(table.take_due(now), [0]);
            times.push(now);
        }
        times
    }

    #[test]
    fn periods_stay_within_the_jitter_and_keep_their_mean() {
        let times = run("a", 1000);
        assert!(times[0] < SECOND);
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
        assert!(gaps.iter().all(|gap| (9.0..=11.0).contains(gap)));
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn job_names_give_different_but_repeatable_times() {
        assert_eq!(run("a", 20), run("a", 20));
        assert_ne!(run("a", 20), run("b", 20));
    }

    #[test]
    fn a_suspended_host_does_not_cause_a_burst_of_overdue_jobs() {
        let mut table = Timetable::new();
        table.set(0, "a", SECOND, Duration::ZERO);
        let late = 3600 * SECOND;
        assert_eq!(table.take_due(late), [0]);
        assert!(table.take_due(late).is_empty());
        assert!(late < table.next_due().expect("one job"));
    }

    #[test]
    fn jobs_come_most_overdue_first_and_can_be_changed_and_forgotten() {
        let mut table = Timetable::new();
        for (job, name) in [(1, "x"), (2, "y"), (3, "z")] {
            table.set(job, name, 10 * SECOND, Duration::ZERO);
        }
        table.postpone(&2, Duration::ZERO);
        assert_eq!(table.take_due(SECOND)[0], 2);
        table.set(1, "x", Duration::from_millis(10), SECOND);
        assert!(table.next_due().expect("jobs") <= SECOND + Duration::from_millis(10));
        table.retain(|job| *job == 3);
        assert_eq!(table.take_due(100 * SECOND), [3]);
        table.set_spread(9, "dear", 600 * SECOND, Duration::ZERO);
        table.retain(|job| *job == 9);
        assert!(table.next_due().expect("jobs") < 600 * SECOND);
    }
}
