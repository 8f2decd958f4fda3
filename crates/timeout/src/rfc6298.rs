//! The retransmission timer of TCP (RFC 6298).

use core::time::Duration;

use crate::time::bounded;
use crate::{Attempt, AttemptOutcome, MAX_TIMEOUT, TimeoutDecision, TimeoutEstimator, TimeoutReason};

/// SRTT + 4·RTTVAR, doubled with every timeout until a response arrives (RFC 6298 §2, §5.5).
///
/// RFC 6298 §3 (Karn's algorithm) excludes retransmissions unless the response is known to belong
/// to one attempt. Here the attempt of each response is known, so every response is a sample. The
/// minimum of 1 s (§2.4) applies only if set.
///
/// ```
/// use barograph_timeout::{AttemptOutcome, MessageAttempts, Rfc6298, TimeoutEstimator};
/// use std::time::Duration;
///
/// let mut timer = Rfc6298::default().with_floor(Duration::from_secs(1));
/// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
/// timer.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(100)));
/// assert_eq!(timer.timeout(&attempt), Duration::from_secs(1));
/// timer.record(&attempt, AttemptOutcome::TimedOut(Duration::from_secs(1)));
/// assert_eq!(timer.timeout(&attempt), Duration::from_secs(2));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rfc6298 {
    /// SRTT and RTTVAR in seconds, after the first sample.
    smoothed: Option<(f64, f64)>,
    /// Number of timeouts since the last response.
    backoff: u32,
    floor: Duration,
}

impl Rfc6298 {
    /// Sets a minimum timeout, such as the 1 s of RFC 6298 §2.4. The default is no minimum.
    #[must_use]
    pub fn with_floor(self, floor: Duration) -> Self {
        Self { floor: floor.min(MAX_TIMEOUT), ..self }
    }
}

impl TimeoutEstimator for Rfc6298 {
    fn decide(&self, _attempt: &Attempt) -> TimeoutDecision {
        let doubled = 2_u32.saturating_pow(self.backoff.min(BACKOFF_MAX));
        let Some((srtt, rttvar)) = self.smoothed else {
            return TimeoutDecision::bare(
                INITIAL.saturating_mul(doubled).max(self.floor),
                TimeoutReason::Initial,
            );
        };
        // Timeout by RFC 6298 §2.3, with a clock granularity G of 0.
        let rto = bounded(srtt + 4.0 * rttvar, MAX_TIMEOUT);
        TimeoutDecision {
            timeout: rto.max(self.floor).saturating_mul(doubled).min(MAX_TIMEOUT),
            forecast: Some(bounded(srtt, MAX_TIMEOUT)),
            error: Some(bounded(rttvar, MAX_TIMEOUT)),
            timeout_probability: None,
            retry_success: None,
            reason: match self.backoff {
                0 if rto < self.floor => TimeoutReason::Floor,
                0 => TimeoutReason::ForecastError,
                _ => TimeoutReason::Escalated,
            },
        }
    }

    fn record(&mut self, _attempt: &Attempt, ended: AttemptOutcome) {
        match ended {
            AttemptOutcome::Completed(took) => {
                let sample = took.as_secs_f64();
                self.smoothed = Some(match self.smoothed {
                    // RFC 6298 §2.2: the first sample sets SRTT and RTTVAR.
                    None => (sample, sample / 2.0),
                    // RFC 6298 §2.3: compute RTTVAR before SRTT.
                    Some((srtt, rttvar)) => {
                        (srtt + (sample - srtt) / 8.0, rttvar + (libm::fabs(srtt - sample) - rttvar) / 4.0)
                    }
                });
                self.backoff = 0;
            }
            AttemptOutcome::TimedOut(_) => self.backoff = (self.backoff + 1).min(BACKOFF_MAX),
            AttemptOutcome::Hedged(_) | AttemptOutcome::Cancelled(_) | AttemptOutcome::Failed(_) => {}
        }
    }
}

/// Initial timeout. RFC 6298 §2.1 starts at 1 s, and §5.7 starts at 3 s if the first round trip was
/// lost. The longer value is used because messages are larger than a SYN.
const INITIAL: Duration = Duration::from_secs(3);

/// Largest number of doublings: a factor of 64. RFC 6298 §2.5 permits a maximum of 60 s or more,
/// and 64 s is reached from 1 s.
const BACKOFF_MAX: u32 = 6;
