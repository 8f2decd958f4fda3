//! Exchanges on a timer of their own: when each is to be sent, and how long it took from there. Pure.
//!
//! A client that waits for each answer before it asks again leaves out just what a slow time would have shown:
//! *coordinated omission* (Tene, "How NOT to Measure Latency"). So here no exchange waits for another's answer, and
//! one that is sent late counts from when it was due, as in wrk2.

use std::time::Duration;

/// What is still to be sent and answered; times are since the timer began.
#[derive(Clone, Debug)]
pub struct Pace {
    n: u32,
    every: Duration,
    /// From when each exchange sent counts.
    from: Vec<Duration>,
    answered: usize,
}

impl Pace {
    /// `n` exchanges, the first at once and each further one `every` later.
    #[must_use]
    pub fn new(n: u32, every: Duration) -> Self {
        Self { n, every, from: Vec::new(), answered: 0 }
    }

    /// When the next exchange is to be sent; `None` = all were.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        (self.next() < self.n).then(|| self.every.saturating_mul(self.next()))
    }

    /// The number of the next exchange to be sent, from 0.
    #[must_use]
    pub fn next(&self) -> u32 {
        u32::try_from(self.from.len()).unwrap_or(u32::MAX)
    }

    /// The next exchange is sent at `now`.
    pub fn sent(&mut self, now: Duration) {
        let Some(due) = self.due() else { return };
        let is_late = due + GRAIN < now;
        self.from.push(if is_late { due } else { now });
    }

    /// The oldest exchange under way is answered at `now`: its latency; `None` = none is under way.
    pub fn answered(&mut self, now: Duration) -> Option<Duration> {
        let from = self.from.get(self.answered)?;
        self.answered += 1;
        Some(now.saturating_sub(*from))
    }

    /// The number of the oldest exchange under way; `None` = none is.
    #[must_use]
    pub fn awaited(&self) -> Option<u32> {
        (self.answered < self.from.len()).then(|| u32::try_from(self.answered).unwrap_or(u32::MAX))
    }

    /// Exchanges without an answer, so far, of all that were to be.
    #[must_use]
    pub fn missed(&self) -> u32 {
        self.n.saturating_sub(u32::try_from(self.answered).unwrap_or(u32::MAX))
    }
}

/// Latencies, in seconds, of exchanges whose timer began `late`, each from when it would have been due: who had to wait
/// before it could ask at all was not served meanwhile.
#[must_use]
pub fn since_due(latencies_s: &[f64], every: Duration, late: Duration) -> Vec<f64> {
    let waited_s = |i| late.saturating_sub(every.saturating_mul(i)).as_secs_f64();
    (0..).zip(latencies_s).map(|(i, latency_s)| waited_s(i) + latency_s).collect()
}

/// What a timer of whole milliseconds may be late by itself: that is this host's, and no latency of the path.
const GRAIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(20);

    /// Drives `pace` with a peer that answers after 1 ms, and not at all from 100 to 1100 ms; `blocks` = whoever
    /// sends cannot while an answer is awaited.
    fn through_a_stall(blocks: bool) -> Vec<Duration> {
        let mut pace = Pace::new(100, EVERY);
        let ms = Duration::from_millis;
        let answer = |sent: Duration| {
            let done = sent + ms(1);
            if (ms(100)..ms(1100)).contains(&done) { ms(1100) } else { done }
        };
        let (mut latencies, mut now) = (Vec::new(), Duration::ZERO);
        if blocks {
            while let Some(due) = pace.due() {
                now = now.max(due);
                pace.sent(now);
                now = answer(now);
                latencies.extend(pace.answered(now));
            }
        } else {
            let mut answers = Vec::new();
            while let Some(due) = pace.due() {
                pace.sent(due);
                answers.push(answer(due));
            }
            latencies.extend(answers.into_iter().filter_map(|at| pace.answered(at)));
        }
        assert_eq!((latencies.len(), pace.missed()), (100, 0));
        latencies
    }

    #[test]
    fn a_stall_is_in_every_exchange_that_fell_into_it() {
        for blocks in [false, true] {
            let latencies = through_a_stall(blocks);
            // 50 ticks of 20 ms fall into a second: a client that waited would have seen it once.
            let slow = latencies.iter().filter(|latency| 10 < latency.as_millis()).count();
            assert!((49..=53).contains(&slow), "blocks {blocks}: {slow}");
        }
    }

    #[test]
    fn who_could_not_ask_waited() {
        let counted = since_due(&[0.001; 4], EVERY, Duration::from_millis(50));
        for (counted_s, expected_s) in counted.iter().zip([0.051, 0.031, 0.011, 0.001]) {
            assert!((counted_s - expected_s).abs() < 1e-9, "{counted:?}");
        }
        assert_eq!(since_due(&[0.001], EVERY, Duration::ZERO), [0.001]);
    }

    #[test]
    fn the_timer_s_own_grain_is_no_latency_and_what_is_unanswered_is_missed() {
        let mut pace = Pace::new(3, EVERY);
        assert_eq!((pace.due(), pace.awaited(), pace.answered(EVERY)), (Some(Duration::ZERO), None, None));
        pace.sent(Duration::from_millis(2));
        assert_eq!(pace.answered(Duration::from_millis(5)), Some(Duration::from_millis(3)));
        assert_eq!((pace.due(), pace.missed()), (Some(EVERY), 2));
        pace.sent(EVERY + Duration::from_millis(30));
        assert_eq!(pace.awaited(), Some(1));
        assert_eq!(pace.answered(EVERY + Duration::from_millis(31)), Some(Duration::from_millis(31)));
        pace.sent(3 * EVERY);
        pace.sent(4 * EVERY);
        assert_eq!((pace.due(), pace.missed()), (None, 1));
    }
}
