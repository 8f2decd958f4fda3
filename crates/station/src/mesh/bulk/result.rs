//! Evaluates the result of a test: its row in the log, its record, and its calibration.

use std::time::{Duration, Instant};

use barograph_api::{BulkTest, BulkTestState};
use barograph_forecast::{Failure, Name, Outcome};
use barograph_mesh::Cost;
use barograph_probe::ProbeError;
use barograph_probe::stream::{StreamEnd, StreamResult};
use barograph_probe::wire::DeclineReason;

use super::log;
use super::parameters::{self, TestParameters};
use super::use_iperf3::RATE_LIMITED;
use super::{Bulk, TestAttempt};
use crate::detail;
use crate::forecast::series::{Measurement, RATE_MAX_BIT_S};
use crate::sync::lock;
use crate::time::now_unix_ns;

impl Bulk {
    /// Records the result of a test, and updates the state of the path.
    pub(super) fn evaluate(
        &self,
        peer: &Name,
        parameters: &TestParameters,
        row: BulkTest,
        cost: Cost,
        result: Result<StreamResult, ProbeError>,
    ) -> (BulkTest, TestAttempt) {
        let row = BulkTest { duration_s: Some(cost.duration.as_secs_f64()), bytes: Some(cost.bytes), ..row };
        let streamed = match result {
            Ok(streamed) => streamed,
            Err(error) if error.stopped => {
                let row = BulkTest {
                    state: BulkTestState::Failed,
                    why: Some("this station stopped".into()),
                    ..row
                };
                return (row, TestAttempt::Stopped);
            }
            Err(error) => {
                if let Some(retry_after) = refusal(error.declined) {
                    let reason = error.message.clone();
                    let retry_after_s = Some(retry_after.as_secs_f64()).filter(|seconds| *seconds > 0.0);
                    return (
                        log::refused(row, error.message, retry_after_s),
                        TestAttempt::Refused { reason, retry_after },
                    );
                }
                let outcome = Outcome::Failed { failure: error.failure, after_s: error.after_s };
                self.record(
                    peer,
                    outcome,
                    detail::failed_test(&error.message, parameters.length.as_secs_f64()),
                );
                let why = format!("{}: {}", error.failure.as_str(), error.message);
                let row = BulkTest { state: BulkTestState::Failed, why: Some(why), ..row };
                return (row.clone(), TestAttempt::Ran { row, cost });
            }
        };
        let is_own = row.with.is_none();
        let is_rate_limited = !is_own && matches!(streamed.ended, StreamEnd::Bytes);
        self.learn(peer, parameters, &streamed, is_own);
        let ended = Some(streamed.ended.as_str().into());
        if is_rate_limited {
            // The rate is the bit rate limit, not a property of the path.
            let row = BulkTest { state: BulkTestState::Failed, ended, why: Some(RATE_LIMITED.into()), ..row };
            return (row.clone(), TestAttempt::Ran { row, cost });
        }
        let rate = streamed.rate_bit_s();
        let detail = detail::of_test(
            &streamed,
            parameters.length.as_secs_f64(),
            parameters.is_audit,
            row.with.as_deref(),
        );
        self.record(peer, Outcome::Value(rate), detail);
        let row = BulkTest { state: BulkTestState::Done, goodput_bit_s: Some(rate), ended, ..row };
        (row.clone(), TestAttempt::Ran { row, cost })
    }

    fn learn(&self, peer: &Name, parameters: &TestParameters, streamed: &StreamResult, is_own: bool) {
        let (peers, now) = (self.mesh_state.peers(), self.now());
        let mut paths = lock(&self.paths);
        let path = paths.entry(peer.clone()).or_default();
        path.reached_rate_limit = !is_own && matches!(streamed.ended, StreamEnd::Bytes);
        if is_own {
            path.learn(parameters, streamed);
        }
        parameters::prune(&mut paths, |path| path == peer || peers.get(path).is_some(), now);
    }

    fn record(&self, peer: &Name, outcome: Outcome, detail: String) {
        let (series, time_unix_ns) = (self.series(peer), now_unix_ns());
        self.inbox.offer(Measurement { series, time_unix_ns, outcome, detail });
    }
}

/// Time to wait before a retry, if the peer refused only this test. Zero if the peer named no time.
/// `None` if the peer does not support or serve such tests.
fn refusal(declined: Option<DeclineReason>) -> Option<Duration> {
    match declined? {
        DeclineReason::BusyFor { retry_ms } | DeclineReason::SpentFor { retry_ms } => {
            Some(Duration::from_millis(retry_ms))
        }
        DeclineReason::Busy | DeclineReason::Spent | DeclineReason::Full | DeclineReason::Stopping => {
            Some(Duration::ZERO)
        }
        // The peer does not support or serve the experiment, so the test counts as a failure of
        // this path.
        DeclineReason::Malformed | DeclineReason::NotServed | DeclineReason::TooLarge { .. } => None,
    }
}

/// Checks that the rate is possible and that the duration is not zero. Otherwise returns an error,
/// and the test counts as failed.
pub(super) fn checked(streamed: StreamResult, began: Instant) -> Result<StreamResult, ProbeError> {
    let rate = streamed.rate_bit_s();
    if 0.0 < rate && rate <= RATE_MAX_BIT_S && streamed.duration_s > 0.0 {
        return Ok(streamed);
    }
    let message = format!("impossible result: {rate} bit/s in {} s", streamed.duration_s);
    let after_s = began.elapsed().as_secs_f64();
    Err(ProbeError { failure: Failure::InvalidResponse, after_s, message, stopped: false, declined: None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_probe::stream::Samples;

    use super::*;

    fn streamed(rate: f64, duration_s: f64) -> StreamResult {
        StreamResult {
            bytes: 1,
            duration_s,
            elapsed_s: duration_s,
            whole_bit_s: rate,
            settled_bit_s: None,
            startup_s: None,
            ended: StreamEnd::Full,
            proposed: None,
            partials: Default::default(),
            estimate_rejected: false,
            tcp_info: None,
            samples: Samples::new(),
        }
    }

    #[test]
    fn absurd_rates_are_failures_and_never_numbers() {
        for (rate, duration_s) in [
            (1.1e13, 1.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (0.0, 1.0),
            (-1.0, 1.0),
            (1e9, 0.0),
            (1e9, f64::NAN),
        ] {
            let error = checked(streamed(rate, duration_s), Instant::now()).unwrap_err();
            assert_eq!(error.failure, Failure::InvalidResponse, "{rate} {duration_s}");
        }
        assert!(checked(streamed(1e13, 0.1), Instant::now()).is_ok());
    }

    #[test]
    fn a_refusal_is_not_a_failure_but_an_unsupported_test_is() {
        let wait = Duration::from_millis(7);
        assert_eq!(refusal(Some(DeclineReason::SpentFor { retry_ms: 7 })), Some(wait));
        assert_eq!(refusal(Some(DeclineReason::Busy)), Some(Duration::ZERO));
        for failure in [None, Some(DeclineReason::Malformed), Some(DeclineReason::NotServed)] {
            assert_eq!(refusal(failure), None);
        }
    }
}
