//! Decides whether iperf3 or Barograph's own stream runs a test, and runs iperf3.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_probe::io::beside;
use barograph_probe::stream::Streamed;
use barograph_probe::wire::Declined;
use barograph_probe::{ProbeError, Target};

use super::shape::Shape;
use super::{Bulk, LOWERED_MAX, iperf3, iperf3_usable};
use crate::config::BulkWith;

impl Bulk {
    /// Parameters of the test for iperf3. `None` = Barograph's own stream runs the test: because it
    /// is configured, because there is no forecast to limit the bytes of iperf3, or because the
    /// test would be too short.
    pub(super) fn iperf3(&self, peer: &Name, shape: &Shape) -> Result<Option<iperf3::Test>, NoTool> {
        if self.with == BulkWith::Own {
            return Ok(None);
        }
        iperf3_usable().map_err(NoTool::Here)?;
        if !self.mesh_state.peers().get(peer).is_some_and(|peer| peer.entry.capabilities.iperf3) {
            return Err(NoTool::There);
        }
        let path = self.path(peer);
        let forecast = path.forecast_bit_s.filter(|_| !path.outgrew_tool);
        Ok(forecast.and_then(|rate| iperf3::Test::new(shape.length, shape.bytes_max, rate)))
    }

    /// Runs the test with iperf3. If the peer permits only a smaller test, requests the smaller
    /// test. `None` = the permitted test is too short for iperf3.
    pub(super) fn send_iperf3(
        &self,
        peer: &Name,
        target: &Target,
        mut test: iperf3::Test,
        sent: &AtomicU64,
    ) -> Option<Result<Streamed, ProbeError>> {
        let context = self.context(peer);
        let mut tries = 0..LOWERED_MAX;
        loop {
            let run = |at, within| test.send(at, within, &self.cancel, sent);
            let result = beside(target, test.milliseconds(), test.bytes_max, &context, run);
            let limit = match &result {
                Err(ProbeError { declined: Some(Declined::TooLarge { limit }), .. }) => *limit,
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
pub(super) enum NoTool {
    /// iperf3 cannot be used on this host, for this reason.
    Here(String),
    /// The peer does not serve iperf3.
    There,
}

pub(super) const NO_TOOL_THERE: &str =
    "the peer does not serve iperf3: it needs mesh.bulk_with = \"iperf3\", and iperf3 3.10 or newer";
/// Why a test at iperf3's bit rate limit has no value.
pub(super) const HELD: &str = "as fast as its bytes allow iperf3 to be: no value of the path; the next test is by Barograph's own stream";
/// Time before a retry while iperf3 is missing: a person has to install or enable it.
pub(super) const TOOL_AGAIN: Duration = Duration::from_secs(60);
