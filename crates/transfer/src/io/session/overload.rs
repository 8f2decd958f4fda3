//! Decides whether to send the rest to a different receiver, because the present receiver's host
//! loses too many packets for too long. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::io::flow::FlowProgress;
use crate::proto::{SendLimit, SenderStats};

/// Decides once a second whether the sender should leave the receiver, because the receiver's host
/// loses too many packets.
///
/// Packets that the host lost had passed the network, so the network delivered more than the host
/// read.
#[derive(Debug, Default)]
pub(super) struct OverloadDetector {
    since: Duration,
    stats: SenderStats,
    seconds: VecDeque<Second>,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    is_overloaded: bool,
    lost_share: f64,
    acked_bytes: u64,
}

impl OverloadDetector {
    /// Adds the progress at `now`, a time since any fixed moment. `left_bytes` bytes are still to
    /// be sent. If the sender should leave the host, returns the share of packets that the host
    /// loses.
    pub(super) fn update(&mut self, now: Duration, progress: &FlowProgress, left_bytes: u64) -> Option<f64> {
        if now.saturating_sub(self.since) < SECOND {
            return None;
        }
        let (before, stats) = (self.stats, progress.stats);
        let since = |count: fn(&SenderStats) -> u64| count(&stats).saturating_sub(count(&before));
        let sent = since(|stats| stats.sent_packets).max(1) as f64;
        let (host, network) = (since(|stats| stats.lost_host), since(|stats| stats.lost_network));
        let lost_share = host as f64 / sent;
        let is_overloaded =
            progress.limit == Some(SendLimit::Drain) || (lost_share >= LOST_MIN && network <= host);
        let acked_bytes = since(|stats| stats.acked_bytes);
        self.seconds.push_back(Second { is_overloaded, lost_share, acked_bytes });
        if self.seconds.len() > LASTING {
            self.seconds.pop_front();
        }
        (self.since, self.stats) = (now, stats);
        let overloaded = self.seconds.iter().filter(|second| second.is_overloaded).count();
        let came: u64 = self.seconds.iter().map(|second| second.acked_bytes).sum();
        let lost = self.seconds.iter().map(|second| second.lost_share).sum::<f64>() / LASTING as f64;
        // If the rest can be sent in about the time that was judged, a change of receiver saves no
        // time.
        (overloaded >= LASTING_MIN && came < left_bytes && lost > 0.0).then_some(lost)
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Number of seconds that are judged together. The load generator of the paper has phases of up to
/// 7 s and pauses of up to 20 s (Dickens §3.1.4): load that ends before a different receiver could
/// start is not a reason for a change.
const LASTING: usize = 10;
/// Minimum number of overloaded seconds among [`LASTING`] seconds. Not all seconds must be
/// overloaded: a sender varies its rate to find the host's rate, so there may be a second without
/// losses.
const LASTING_MIN: usize = 9;
/// Minimum share of packets that the host loses in an overloaded second, unless the drain rate
/// limits the sender. A host that loses 1 of 100 packets reads too slowly. A host that reads fast
/// enough loses 1 of some thousands.
const LOST_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each item is one second with 1000 packets: how many the host lost, how many the network
    /// lost, and whether the drain rate is the limit. Returns the number of seconds after which the
    /// sender should leave the receiver.
    fn left_at(seconds: impl Iterator<Item = (u64, u64, bool)>, left_bytes: u64) -> Option<usize> {
        let (mut judge, mut progress) = (OverloadDetector::default(), FlowProgress::default());
        for (number, (host, network, is_drain)) in seconds.enumerate() {
            progress.stats.sent_packets += 1000;
            progress.stats.lost_host += host;
            progress.stats.lost_network += network;
            progress.stats.acked_bytes += 1000;
            progress.limit = Some(if is_drain { SendLimit::Drain } else { SendLimit::Rate });
            let now = SECOND * (number as u32 + 1);
            assert_eq!(judge.update(now - SECOND / 2, &progress, left_bytes), None, "in the middle");
            if judge.update(now, &progress, left_bytes).is_some() {
                return Some(number + 1);
            }
        }
        None
    }

    #[test]
    fn a_sender_leaves_a_host_that_drops_packets_for_long() {
        assert_eq!(left_at((0..60).map(|_| (100, 0, false)), 1 << 20), Some(9));
        assert_eq!(left_at((0..60).map(|second| (u64::from(second % 7 == 0), 0, true)), 1 << 20), Some(9));
    }

    #[test]
    fn a_sender_stays_with_a_host_that_is_not_overloaded() {
        for (name, of) in [
            ("the network", (|_| (20, 50, false)) as fn(u64) -> (u64, u64, bool)),
            ("few", |_| (9, 0, false)),
            ("not for long", |second| if second % 10 < 8 { (100, 0, false) } else { (0, 0, false) }),
            ("another limit than the host's CPU, without losses", |_| (0, 0, true)),
        ] {
            assert_eq!(left_at((0..60).map(of), 1 << 20), None, "{name}");
        }
        assert_eq!(left_at((0..60).map(|_| (100, 0, false)), 8000), None, "it is nearly over");
    }
}
