//! Statistics of the relay: packets, lateness and CPU time.

use crate::report::{DirectionCounts, RelayReport};
use std::time::{Duration, Instant};

/// Statistics of the relay, shared with the callers of `report`.
#[derive(Debug)]
pub(super) struct RelayStats {
    pub(super) counts: [DirectionCounts; 2],
    started: Instant,
    cpu: Duration,
    /// Start of the current window of CPU use, and the CPU time at that moment.
    window: (Instant, Duration),
    cpu_peak: f64,
    late_bound: Duration,
    late_max: Duration,
    /// Departures by lateness in steps of [`LATE_STEP`]; the last entry counts all larger values.
    lateness: Box<[u64; LATE_STEPS]>,
}

impl RelayStats {
    pub(super) fn new(late_bound: Duration) -> Self {
        let started = Instant::now();
        Self {
            counts: [DirectionCounts::default(); 2],
            started,
            cpu: Duration::ZERO,
            window: (started, Duration::ZERO),
            cpu_peak: 0.0,
            late_bound,
            late_max: Duration::ZERO,
            lateness: Box::new([0; LATE_STEPS]),
        }
    }

    pub(super) fn record_departure(&mut self, direction: usize, bytes: usize, late: Duration) {
        let counts = &mut self.counts[direction];
        counts.forwarded += 1;
        counts.forwarded_bytes += bytes as u64;
        counts.late += u64::from(late > self.late_bound);
        self.late_max = self.late_max.max(late);
        let step = (late.as_nanos() / LATE_STEP.as_nanos()) as usize;
        self.lateness[step.min(LATE_STEPS - 1)] += 1;
    }

    /// Records the thread's CPU time so far. At the end of a window, also records the thread's
    /// share of a core.
    pub(super) fn record_cpu(&mut self, cpu: Duration) {
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
                // The upper edge of the step; no packet in the step was later.
                return (LATE_STEP * (step as u32 + 1)).min(self.late_max);
            }
            allowed -= count;
        }
        Duration::ZERO
    }

    /// The statistics so far. The caller adds the values that only it can read.
    pub(super) fn report(&self) -> RelayReport {
        let [forward, back] = self.counts;
        RelayReport {
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

/// Length of the window in which CPU use is measured: longer than the slow start of one flow, and
/// short enough to detect a busy second.
const CPU_WINDOW: Duration = Duration::from_millis(250);

/// Resolution and range of the recorded lateness: 10 µs up to 10 ms, ten times the default bound.
const LATE_STEP: Duration = Duration::from_micros(10);
const LATE_STEPS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packets_are_reported_as_percentile_and_maximum() {
        let mut stats = RelayStats::new(Duration::from_millis(1));
        for number in 0..200 {
            // Three of two hundred packets are 2 ms late, which is more than 1 %.
            let late = if number < 3 { 2000 } else { 7 };
            stats.record_departure(0, 10, Duration::from_micros(late));
        }
        let report = stats.report();
        assert_eq!(report.forward.late, 3);
        assert_eq!(report.late_max, Duration::from_millis(2));
        assert_eq!(report.late_p99, Duration::from_millis(2));
        assert!(
            matches!(report.invalid_reason(), Some(crate::InvalidRun::Late { .. })),
            "{:?}",
            report.invalid_reason()
        );
        let mut stats = RelayStats::new(Duration::from_millis(1));
        (0..200).for_each(|_| stats.record_departure(0, 10, Duration::from_micros(7)));
        assert_eq!(stats.report().late_p99, Duration::from_micros(7));
        assert_eq!(stats.report().invalid_reason(), None);
    }
}
