//! A budget that refills with time: a token bucket.
//!
//! The state of a bucket is one number, the time at which the bucket is full again: the generic
//! cell rate algorithm in its virtual-scheduling form (ITU-T I.371, annex A).

use std::time::Duration;

/// A rate: bytes, records, milliseconds or other units per hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// Rate of `amount` per hour. An `amount` of 0 is raised to 1.
    #[must_use]
    pub fn per_hour(amount: u64) -> Self {
        Self(amount.max(1))
    }

    /// Rate of `amount` per second. An `amount` of 0 is raised to 1 per hour.
    #[must_use]
    pub fn per_s(amount: u64) -> Self {
        Self::per_hour(amount.saturating_mul(3600))
    }

    /// Time that `amount` takes at this rate, in ns. The time is rounded up, so that the bucket
    /// grants no more than the rate allows.
    fn worth_ns(self, amount: u64) -> u64 {
        let ns = (u128::from(amount) * HOUR_NS).div_ceil(self.0.into());
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// A token bucket, which is full at first.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Time that an empty bucket needs to fill, in ns.
    burst_ns: u64,
    /// Time at which the bucket is full again, in ns since the moment from which `now` counts; in
    /// the past if the bucket is full.
    paid_until_ns: u64,
}

impl TokenBucket {
    /// Creates a full bucket with a capacity of the amount that `rate` adds in the time `burst`.
    #[must_use]
    pub fn new(rate: Rate, burst: Duration) -> Self {
        Self { rate, burst_ns: nanoseconds(burst), paid_until_ns: 0 }
    }

    /// Takes `amount`, or nothing if the bucket holds less. `now` counts from a fixed moment and
    /// must not decrease.
    ///
    /// # Errors
    /// The time until the bucket holds `amount`; `Duration::MAX` if `amount` exceeds the capacity.
    pub fn take(&mut self, amount: u64, now: Duration) -> Result<(), Duration> {
        if self.burst_ns < self.rate.worth_ns(amount) {
            return Err(Duration::MAX);
        }
        let wait = self.wait(amount, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.charge(amount, now);
        Ok(())
    }

    /// Takes `amount` even if the bucket holds less. The content of the bucket is then negative,
    /// and the refill first raises it to 0.
    pub fn charge(&mut self, amount: u64, now: Duration) {
        self.paid_until_ns = self.after(amount, now);
    }

    /// The time until the bucket holds `amount`. If `amount` exceeds the capacity, the time until
    /// the bucket is full.
    #[must_use]
    pub fn wait(&self, amount: u64, now: Duration) -> Duration {
        let worth_ns = self.rate.worth_ns(amount).min(self.burst_ns);
        let after_ns = self.paid_until_ns.max(nanoseconds(now)).saturating_add(worth_ns);
        Duration::from_nanos(after_ns.saturating_sub(nanoseconds(now).saturating_add(self.burst_ns)))
    }

    /// Whether the bucket is full at `now`.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        self.paid_until_ns <= nanoseconds(now)
    }

    /// The amount in the full bucket, rounded down.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        u64::try_from(u128::from(self.rate.0) * u128::from(self.burst_ns) / HOUR_NS).unwrap_or(u64::MAX)
    }

    fn after(&self, amount: u64, now: Duration) -> u64 {
        self.paid_until_ns.max(nanoseconds(now)).saturating_add(self.rate.worth_ns(amount))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const HOUR_NS: u128 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_in_debt_refills_and_reports_the_wait() {
        let mut bucket = TokenBucket::new(Rate::per_s(2), Duration::from_secs(5));
        let at = Duration::from_secs;
        assert_eq!(bucket.take(11, at(0)), Err(Duration::MAX));
        bucket.charge(14, at(0));
        assert_eq!(bucket.wait(0, at(0)), at(2), "4 are owed");
        assert_eq!(bucket.take(1, at(2)), Err(Duration::from_millis(500)));
        assert_eq!(bucket.take(2, at(3)), Ok(()));
        assert_eq!(bucket.wait(99, at(3)), at(5), "until it is full");
        assert!(!bucket.is_full(at(7)) && bucket.is_full(at(8)));
    }

    proptest! {
        /// In any window, the bucket grants at most the burst plus what the rate adds in that time.
        /// After the wait that `take` returned, the bucket grants the amount.
        #[test]
        fn a_bucket_never_grants_more_than_burst_and_rate(
            rate in 1_u64..1 << 40,
            burst_ns in 0_u64..1 << 42,
            steps in prop::collection::vec((0_u64..1 << 42, 0_u64..1 << 36), 1..60),
        ) {
            let mut bucket = TokenBucket::new(Rate::per_hour(rate), Duration::from_nanos(burst_ns));
            let mut granted: Vec<(u64, u64)> = Vec::new();
            let mut now_ns = 0;
            for (pause_ns, amount) in steps {
                now_ns += pause_ns;
                match bucket.take(amount, Duration::from_nanos(now_ns)) {
                    Ok(()) => granted.push((now_ns, amount)),
                    Err(Duration::MAX) => prop_assert!(bucket.capacity() < amount),
                    Err(wait) => {
                        let then = Duration::from_nanos(now_ns) + wait;
                        prop_assert_eq!(TokenBucket::take(&mut bucket.clone(), amount, then), Ok(()));
                    }
                }
            }
            for first in 0..granted.len() {
                for last in first..granted.len() {
                    let sum: u128 = granted[first..=last].iter().map(|(_, amount)| u128::from(*amount)).sum();
                    let window_ns = granted[last].0 - granted[first].0;
                    // sum ≤ rate · (burst + window), in whole numbers.
                    prop_assert!(sum * HOUR_NS <= u128::from(rate) * u128::from(burst_ns + window_ns));
                }
            }
        }

        /// A full bucket grants its whole content. The test above does not show this, because a
        /// bucket that grants nothing passes the test above.
        #[test]
        fn a_full_bucket_grants_its_whole_capacity(rate in 1_u64..1 << 50, after_s in 0_u64..1 << 30) {
            let mut bucket = TokenBucket::new(Rate::per_hour(rate), Duration::from_secs(450));
            prop_assert_eq!(bucket.take(bucket.capacity(), Duration::from_secs(after_s)), Ok(()));
        }
    }
}
