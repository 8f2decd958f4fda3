//! The account of what the relay moved, how late, and at what cost.

use crate::report::{Counts, Report};
use std::time::{Duration, Instant};

/// The account, shared with whoever asks for a report.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) counts: [Counts; 2],
    started: Instant,
    cpu: Duration,
    /// Where the present window of CPU use began: time, and CPU time then.
    window: (Instant, Duration),
    cpu_peak: f64,
    late_bound: Duration,
    late_max: Duration,
    /// Departures by lateness in steps of [`LATE_STEP`]; the last one holds all above.
    lateness: Box<[u64; LATE_STEPS]>,
}

impl Ledger {
    pub(super) fn new(late_bound: Duration) -> Self {
        let started = Instant::now();
        Self {
            counts: [Counts::default(); 2],
            started,
            cpu: Duration::ZERO,
            window: (started, Duration::ZERO),
            cpu_peak: 0.0,
            late_bound,
            late_max: Duration::ZERO,
            lateness: Box::new([0; LATE_STEPS]),
        }
    }

    pub(super) fn note_departure(&mut self, direction: usize, bytes: usize, late: Duration) {
        let counts = &mut self.counts[direction];
        counts.forwarded += 1;
        counts.forwarded_bytes += bytes as u64;
        counts.late += u64::from(late > self.late_bound);
        self.late_max = self.late_max.max(late);
        let step = (late.as_nanos() / LATE_STEP.as_nanos()) as usize;
        self.lateness[step.min(LATE_STEPS - 1)] += 1;
    }

    /// Notes the thread's CPU time so far, and the share of a core when a window is over.
    pub(super) fn note_cpu(&mut self, cpu: Duration) {
        self.cpu = cpu;
        let (began, cpu_then) = self.window;
        let elapsed = began.elapsed();
        if elapsed >= CPU_WINDOW {
            let share = cpu.saturating_sub(cpu_then).as_secs_f64() / elapsed.as_secs_f64();
            self.cpu_peak = self.cpu_peak.max(share);
            self.window = (Instant::now(), cpu);
        }
    }

    fn late_p99(&self) -> Duration {
        let mut allowed = self.lateness.iter().sum::<u64>() / 100;
        for (step, &count) in self.lateness.iter().enumerate().rev() {
            if count > allowed {
                // The upper edge of the step, which no packet in it has passed.
                return (LATE_STEP * (step as u32 + 1)).min(self.late_max);
            }
            allowed -= count;
        }
        Duration::ZERO
    }

    /// The account so far; the shell adds what it alone can see.
    pub(super) fn report(&self) -> Report {
        let [forward, back] = self.counts;
        Report {
            forward,
            back,
            wall: self.started.elapsed(),
            cpu: self.cpu,
            cpu_peak: self.cpu_peak,
            mean_wait: None,
            late_bound: self.late_bound,
            late_p99: self.late_p99(),
            late_max: self.late_max,
            device_drops: 0,
            realtime: false,
            running: true,
        }
    }
}

/// Long enough that one slow start of a flow does not fill it, short enough to catch a busy second.
const CPU_WINDOW: Duration = Duration::from_millis(250);

/// Lateness is kept to 10 µs up to 10 ms, ten times the default bound.
const LATE_STEP: Duration = Duration::from_micros(10);
const LATE_STEPS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_told_by_its_percentile_and_bound() {
        let mut ledger = Ledger::new(Duration::from_millis(1));
        for number in 0..200 {
            // Three of two hundred are 2 ms late: more than 1 %.
            let late = if number < 3 { 2000 } else { 7 };
            ledger.note_departure(0, 10, Duration::from_micros(late));
        }
        let report = ledger.report();
        assert_eq!(report.forward.late, 3);
        assert_eq!(report.late_max, Duration::from_millis(2));
        assert_eq!(report.late_p99, Duration::from_millis(2));
        assert!(matches!(report.void(), Some(crate::Void::Late { .. })), "{:?}", report.void());
        let mut ledger = Ledger::new(Duration::from_millis(1));
        (0..200).for_each(|_| ledger.note_departure(0, 10, Duration::from_micros(7)));
        assert_eq!(ledger.report().late_p99, Duration::from_micros(7));
        assert_eq!(ledger.report().void(), None);
    }
}
