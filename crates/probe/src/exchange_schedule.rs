//! Schedules exchanges on a fixed timer and computes their latencies from the scheduled times.
//! Pure.
//!
//! A client that waits for each answer before it sends the next request leaves out the samples that
//! a slow period would have shown: *coordinated omission* (Tene, "How NOT to Measure Latency"). So
//! no exchange waits for the answer to an earlier exchange. The latency of a late exchange counts
//! from the time at which the exchange was due, as in wrk2.

use std::time::Duration;

/// Schedule of the exchanges that are still to be sent or answered. Times count from the timer's
/// start.
#[derive(Clone, Debug)]
pub struct ExchangeSchedule {
    n: u32,
    every: Duration,
    /// For each sent exchange, the time from which its latency counts.
    from: Vec<Duration>,
    answered: usize,
}

impl ExchangeSchedule {
    /// Creates a schedule of `n` exchanges: the first exchange is due at once, and the other
    /// exchanges follow at intervals of `every`.
    #[must_use]
    pub fn new(n: u32, every: Duration) -> Self {
        Self { n, every, from: Vec::new(), answered: 0 }
    }

    /// Time at which the next exchange is due; `None` if all exchanges were sent.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        (self.next() < self.n).then(|| self.every.saturating_mul(self.next()))
    }

    /// Number of the next exchange to send, from 0.
    #[must_use]
    pub fn next(&self) -> u32 {
        u32::try_from(self.from.len()).unwrap_or(u32::MAX)
    }

    /// Records that the next exchange is sent at `now`.
    pub fn sent(&mut self, now: Duration) {
        let Some(due) = self.due() else { return };
        let is_late = due + GRAIN < now;
        self.from.push(if is_late { due } else { now });
    }

    /// Records that the oldest unanswered exchange was answered at `now`, and returns the latency
    /// of this exchange. Returns `None` if no sent exchange is unanswered.
    pub fn answered(&mut self, now: Duration) -> Option<Duration> {
        let from = self.from.get(self.answered)?;
        self.answered += 1;
        Some(now.saturating_sub(*from))
    }

    /// Number of the oldest unanswered exchange; `None` if no sent exchange is unanswered.
    #[must_use]
    pub fn awaited(&self) -> Option<u32> {
        (self.answered < self.from.len()).then(|| u32::try_from(self.answered).unwrap_or(u32::MAX))
    }

    /// Number of exchanges, of all `n`, that have no answer so far.
    #[must_use]
    pub fn missed(&self) -> u32 {
        self.n.saturating_sub(u32::try_from(self.answered).unwrap_or(u32::MAX))
    }
}

/// Latencies in seconds, corrected for a timer that started later than planned. `late` is the delay
/// of the timer's start. Each latency counts from the time at which its exchange would have been
/// due. So the time that the client waited before it could send counts as latency.
#[must_use]
pub fn since_due(latencies_s: &[f64], every: Duration, late: Duration) -> Vec<f64> {
    let waited_s = |i| late.saturating_sub(every.saturating_mul(i)).as_secs_f64();
    (0..).zip(latencies_s).map(|(i, latency_s)| waited_s(i) + latency_s).collect()
}

/// Maximum delay of a timer of whole milliseconds. This host causes the delay, so the delay is not
/// part of the path's latency.
const GRAIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(20);

    /// Drives `schedule` with a peer that answers after 1 ms, except between 100 and 1100 ms. With
    /// `blocks` the sender cannot send while an answer is outstanding.
    fn through_a_stall(blocks: bool) -> Vec<Duration> {
        let mut schedule = ExchangeSchedule::new(100, EVERY);
        let ms = Duration::from_millis;
        let answer = |sent: Duration| {
            let done = sent + ms(1);
            if (ms(100)..ms(1100)).contains(&done) { ms(1100) } else { done }
        };
        let (mut latencies, mut now) = (Vec::new(), Duration::ZERO);
        if blocks {
            while let Some(due) = schedule.due() {
                now = now.max(due);
                schedule.sent(now);
                now = answer(now);
                latencies.extend(schedule.answered(now));
            }
        } else {
            let mut answers = Vec::new();
            while let Some(due) = schedule.due() {
                schedule.sent(due);
                answers.push(answer(due));
            }
            latencies.extend(answers.into_iter().filter_map(|at| schedule.answered(at)));
        }
        assert_eq!((latencies.len(), schedule.missed()), (100, 0));
        latencies
    }

    #[test]
    fn a_stall_delays_every_exchange_that_was_due_during_it() {
        for blocks in [false, true] {
            let latencies = through_a_stall(blocks);
            // 50 ticks of 20 ms fall into one second; a client that waits for answers would have
            // seen one slow exchange.
            let slow = latencies.iter().filter(|latency| latency.as_millis() > 10).count();
            assert!((49..=53).contains(&slow), "blocks {blocks}: {slow}");
        }
    }

    #[test]
    fn time_before_the_first_request_counts_as_latency() {
        let counted = since_due(&[0.001; 4], EVERY, Duration::from_millis(50));
        for (counted_s, expected_s) in counted.iter().zip([0.051, 0.031, 0.011, 0.001]) {
            assert!((counted_s - expected_s).abs() < 1e-9, "{counted:?}");
        }
        assert_eq!(since_due(&[0.001], EVERY, Duration::ZERO), [0.001]);
    }

    #[test]
    fn timer_granularity_is_not_latency_and_unanswered_exchanges_are_missed() {
        let mut schedule = ExchangeSchedule::new(3, EVERY);
        assert_eq!(
            (schedule.due(), schedule.awaited(), schedule.answered(EVERY)),
            (Some(Duration::ZERO), None, None)
        );
        schedule.sent(Duration::from_millis(2));
        assert_eq!(schedule.answered(Duration::from_millis(5)), Some(Duration::from_millis(3)));
        assert_eq!((schedule.due(), schedule.missed()), (Some(EVERY), 2));
        schedule.sent(EVERY + Duration::from_millis(30));
        assert_eq!(schedule.awaited(), Some(1));
        assert_eq!(schedule.answered(EVERY + Duration::from_millis(31)), Some(Duration::from_millis(31)));
        schedule.sent(3 * EVERY);
        schedule.sent(4 * EVERY);
        assert_eq!((schedule.due(), schedule.missed()), (None, 1));
    }
}
