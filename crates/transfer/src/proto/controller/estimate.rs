//! Rates of lost packets, rather than of loss events.

use std::collections::VecDeque;
use std::time::Duration;

use super::history::{Events, INTERVALS, Run};

/// All packets lost of all sent since the start: the paper does not define its long-term loss rate (Dickens §2.2), this is how we read it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cumulative {
    packets: u64,
    lost: u64,
}

impl Cumulative {
    /// So many more packets, of which so many were lost.
    pub fn record(&mut self, packets: u64, lost: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.lost = self.lost.saturating_add(lost);
    }

    /// Losses a packet, 0 to 1; 0 where there was none so far.
    pub fn rate(&self) -> f64 {
        if self.lost == 0 { 0.0 } else { (self.lost as f64 / self.packets as f64).min(1.0) }
    }
}

/// Packets lost in the last eight loss events, of those sent since the first of them began; since the start while there were fewer.
#[derive(Clone, Debug, Default)]
pub struct RecentLosses {
    events: Events,
    /// When each began, and packets that were lost in it.
    last: VecDeque<(u64, u64)>,
    began: u64,
}

impl RecentLosses {
    /// Takes a run of losses.
    pub fn lost(&mut self, run: Run, round_trip: Duration) {
        let (last, began) = (&mut self.last, &mut self.began);
        self.events.lost(run, round_trip, |event, lost| match last.back_mut() {
            Some((at, all)) if *at == event.at => *all = all.saturating_add(lost),
            _ => {
                last.push_back((event.at, lost));
                if INTERVALS < last.len() {
                    last.pop_front();
                    *began = last.front().map_or(0, |(at, _)| *at);
                }
            }
        });
    }

    /// Losses a packet (0 to 1) when so many packets are settled; 0 where there was none so far.
    pub fn rate(&self, settled: u64) -> f64 {
        let lost: f64 = self.last.iter().map(|(_, lost)| *lost as f64).sum();
        if lost == 0.0 { 0.0 } else { (lost / settled.saturating_sub(self.began) as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_losses_of_all_packets() {
        let mut estimate = Cumulative::default();
        assert_eq!(estimate.rate(), 0.0);
        estimate.record(1000, 5);
        estimate.record(1000, 0);
        assert_eq!(estimate.rate(), 5.0 / 2000.0);
        estimate.record(0, u64::MAX);
        assert_eq!(estimate.rate(), 1.0);
    }

    #[test]
    fn losses_of_the_last_eight_events() {
        let nanos = Duration::from_nanos;
        let run = |at, packets| Run { at, packets, sent: nanos(at), spacing: nanos(1) };
        let mut estimate = RecentLosses::default();
        for lost in 1..=9 {
            estimate.lost(run(100 * (lost - 1), lost), nanos(10));
        }
        // Nine events, of which that of one packet at 0 is forgotten: 2 + … + 9 of the 800 packets since.
        assert_eq!(estimate.rate(900), 44.0 / 800.0);
        let mut fewer = RecentLosses::default();
        assert_eq!(fewer.rate(50), 0.0);
        fewer.lost(run(50, 5), nanos(10));
        fewer.lost(run(58, 1), nanos(10));
        assert_eq!(fewer.rate(100), 6.0 / 100.0);
    }
}
