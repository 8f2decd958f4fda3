//! When iperf3 makes a test instead of our own stream, and the test that it makes.

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
    /// The test as iperf3 is to make it; `None` = our own stream does: as it is set, and where nothing is known by which
    /// iperf3's bytes could be bounded, or the test would be too short for it.
    pub(super) fn iperf3(&self, peer: &Name, shape: &Shape) -> Result<Option<iperf3::Test>, NoTool> {
        if self.with == BulkWith::Own {
            return Ok(None);
        }
        iperf3_usable().map_err(NoTool::Here)?;
        if !self.board.peers().get(peer).is_some_and(|peer| peer.entry.capabilities.iperf3) {
            return Err(NoTool::There);
        }
        let path = self.path(peer);
        let forecast = path.forecast_bit_s.filter(|_| !path.outgrew_tool);
        Ok(forecast.and_then(|rate| iperf3::Test::new(shape.length, shape.bytes_max, rate)))
    }

    /// Has iperf3 make the test; a peer that allows less is asked for that. `None` = what it allows is too short for iperf3.
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

/// Why iperf3 cannot make a test.
pub(super) enum NoTool {
    /// What is missing here, in a sentence.
    Here(String),
    /// The peer does not serve it.
    There,
}

pub(super) const NO_TOOL_THERE: &str =
    "the peer does not serve iperf3: it needs mesh.bulk_with = \"iperf3\", and iperf3 3.10 or newer";
/// What a test says that has no value.
pub(super) const HELD: &str = "as fast as its bytes allow iperf3 to be: no value of the path; the next test is by Barograph's own stream";
/// When to ask again where iperf3 is missing: somebody has to install or to set it.
pub(super) const TOOL_AGAIN: Duration = Duration::from_secs(60);
