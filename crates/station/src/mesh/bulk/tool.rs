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
    /// iperf3's bytes could be bounded, or the test is too short for it.
    pub(super) fn iperf3(&self, peer: &Name, shape: &Shape) -> Result<Option<iperf3::Test>, &'static str> {
        if self.with == BulkWith::Own {
            return Ok(None);
        }
        iperf3_usable()?;
        if !self.board.peers().get(peer).is_some_and(|peer| peer.entry.capabilities.iperf3) {
            return Err(
                "the peer does not serve iperf3: it needs mesh.bulk_with = \"iperf3\", and iperf3 3.10 or newer",
            );
        }
        let forecast = self.path(peer).forecast_bit_s;
        Ok(forecast.and_then(|rate| iperf3::Test::new(shape.length, shape.bytes_max, rate)))
    }

    pub(super) fn send_iperf3(
        &self,
        peer: &Name,
        target: &Target,
        mut test: iperf3::Test,
        sent: &AtomicU64,
    ) -> Result<Streamed, ProbeError> {
        let context = self.context(peer);
        let mut tries = 0..LOWERED_MAX;
        loop {
            let run = |at| test.send(at, &self.cancel, sent);
            let result = beside(target, iperf3::milliseconds(test), test.bytes_max, &context, run);
            let limit = match &result {
                Err(ProbeError { declined: Some(Declined::TooLarge { limit }), .. }) => *limit,
                _ => return result,
            };
            match test.lowered(limit).filter(|_| tries.next().is_some()) {
                Some(lowered) => test = lowered,
                None => return result,
            }
        }
    }
}

/// When a peer is asked again that does not serve iperf3: somebody has to install or to set it.
pub(super) const TOOL_AGAIN: Duration = Duration::from_secs(60);
