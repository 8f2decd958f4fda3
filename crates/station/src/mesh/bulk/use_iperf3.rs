//! Decides whether iperf3 or Barograph's own stream runs a test, and runs iperf3.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_probe::io::iperf3_session;
use barograph_probe::stream::StreamResult;
use barograph_probe::wire::DeclineReason;
use barograph_probe::{ProbeError, Target};

use super::parameters::TestParameters;
use super::{Bulk, LOWERED_MAX, iperf3, iperf3_usable};
use crate::config::BulkWith;

impl Bulk {
    /// Parameters of the test for iperf3. `None` = Barograph's own stream runs the test, for one of
    /// three reasons: the configuration selects Barograph's stream; no forecast exists to limit the
    /// bytes of iperf3; or the test would be too short for iperf3.
    pub(super) fn iperf3(
        &self,
        peer: &Name,
        parameters: &TestParameters,
    ) -> Result<Option<iperf3::Test>, Iperf3Unavailable> {
        if self.with == BulkWith::Own {
            return Ok(None);
        }
        iperf3_usable().map_err(Iperf3Unavailable::Local)?;
        if !self.mesh_state.peers().get(peer).is_some_and(|peer| peer.entry.capabilities.iperf3) {
            return Err(Iperf3Unavailable::Peer);
        }
        let path = self.path(peer);
        let forecast = path.forecast_bit_s.filter(|_| !path.reached_rate_limit);
        Ok(forecast.and_then(|rate| iperf3::Test::new(parameters.length, parameters.bytes_max, rate)))
    }

    /// Runs the test with iperf3. If the peer permits only a smaller test, requests the smaller
    /// test. `None` = the permitted test is too short for iperf3.
    pub(super) fn send_iperf3(
        &self,
        peer: &Name,
        target: &Target,
        mut test: iperf3::Test,
        sent: &AtomicU64,
    ) -> Option<Result<StreamResult, ProbeError>> {
        let context = self.context(peer);
        let mut tries = 0..LOWERED_MAX;
        loop {
            let run = |at, within| test.send(at, within, &self.cancel, sent);
            let result = iperf3_session(target, test.milliseconds(), test.bytes_max, &context, run);
            let limit = match &result {
                Err(ProbeError { declined: Some(DeclineReason::TooLarge { limit }), .. }) => *limit,
                _ => return Some(result),
            };
            if tries.next().is_none() {
                return Some(result);
            }
            test = test.lowered(limit)?;
        }
    }
}

/// Why iperf3 cannot run a test.
pub(super) enum Iperf3Unavailable {
    /// iperf3 cannot be used on this host. The field contains the reason.
    Local(String),
    /// The peer does not serve iperf3.
    Peer,
}

pub(super) const PEER_LACKS_IPERF3: &str =
    "the peer does not serve iperf3: set mesh.bulk_with = \"iperf3\" there, and install iperf3 3.10 or newer";
/// Message for a test that reached iperf3's bit rate limit: why the test gives no measured value.
pub(super) const RATE_LIMITED: &str = "the test reached iperf3's bit rate limit, so it measured the limit, not the path; \
                                       the next test uses Barograph's own stream";
/// Time before a retry while iperf3 is missing: a person has to install or enable it.
pub(super) const IPERF3_RETRY: Duration = Duration::from_secs(60);
