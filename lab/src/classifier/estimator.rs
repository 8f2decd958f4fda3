//! How a sender estimates the rate of loss that its response function takes: the transfer's estimators, over windows of gaps.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_loss::Gap;
pub(crate) use barograph_transfer::testkit::controller::estimate::Cumulative;
use barograph_transfer::testkit::controller::history::{Events, INTERVALS, LossHistory, Run};

/// An estimate of the long-term rate of loss.
pub(crate) trait Estimator {
    /// So many more packets were sent, of which these gaps were lost.
    fn window(&mut self, packets: u32, gaps: &[Gap]);

    /// Losses a packet, 0 to 1; 0 where there was none so far.
    fn rate(&self) -> f64;
}

impl Estimator for Cumulative {
    fn window(&mut self, packets: u32, gaps: &[Gap]) {
        self.record(packets.into(), gaps.iter().map(|gap| u64::from(gap.lost)).sum());
    }

    fn rate(&self) -> f64 {
        Self::rate(self)
    }
}

/// Loss events a packet (RFC 5348 §5).
pub(crate) struct EventHistory {
    sent: Sent,
    history: LossHistory,
    /// Packets.
    first_interval: f64,
}

impl EventHistory {
    pub(crate) fn new(round_trip_packets: u32, first_interval: f64) -> Self {
        Self { sent: Sent::new(round_trip_packets), history: LossHistory::default(), first_interval }
    }
}

impl Estimator for EventHistory {
    fn window(&mut self, packets: u32, gaps: &[Gap]) {
        for run in self.sent.runs(gaps) {
            self.history.lost(run, self.sent.round_trip, self.first_interval);
        }
        self.sent.packets += u64::from(packets);
    }

    fn rate(&self) -> f64 {
        self.history.rate(self.sent.packets)
    }
}

/// Packets lost in the last eight loss events, of those sent since the first of them began; since the start while there were fewer.
pub(crate) struct RecentLosses {
    sent: Sent,
    events: Events,
    /// When each event began, and packets that were lost in it.
    last: VecDeque<(u64, u64)>,
    began: u64,
}

impl RecentLosses {
    pub(crate) fn new(round_trip_packets: u32) -> Self {
        let sent = Sent::new(round_trip_packets);
        Self { sent, events: Events::default(), last: VecDeque::new(), began: 0 }
    }
}

impl Estimator for RecentLosses {
    fn window(&mut self, packets: u32, gaps: &[Gap]) {
        let (last, began) = (&mut self.last, &mut self.began);
        for run in self.sent.runs(gaps) {
            self.events.lost(run, self.sent.round_trip, |event, lost| match last.back_mut() {
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
        self.sent.packets += u64::from(packets);
    }

    fn rate(&self) -> f64 {
        let lost: f64 = self.last.iter().map(|(_, lost)| *lost as f64).sum();
        if lost == 0.0 { 0.0 } else { (lost / self.sent.packets.saturating_sub(self.began) as f64).min(1.0) }
    }
}

/// What was sent so far, a packet each [`SPACING`].
struct Sent {
    packets: u64,
    round_trip: Duration,
}

impl Sent {
    fn new(round_trip_packets: u32) -> Self {
        Self { packets: 0, round_trip: SPACING * round_trip_packets.max(1) }
    }

    /// The runs that these gaps of the next window are.
    fn runs(&self, gaps: &[Gap]) -> impl Iterator<Item = Run> {
        let mut at = self.packets;
        gaps.iter().map(move |gap| {
            at += u64::from(gap.received);
            let sent = Duration::from_nanos(at);
            let run = Run { at, packets: gap.lost.into(), sent, spacing: SPACING };
            at += run.packets;
            run
        })
    }
}

/// Windows have packets and no times: a nanosecond each, so that a round trip is as many as it has packets.
const SPACING: Duration = Duration::from_nanos(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(received: u32, lost: u32) -> Gap {
        Gap { received, lost }
    }

    #[test]
    fn all_losses_of_all_packets() {
        let mut estimator = Cumulative::default();
        estimator.window(1000, &[gap(10, 3), gap(0, 2)]);
        estimator.window(1000, &[]);
        assert_eq!(estimator.rate(), 5.0 / 2000.0);
    }

    #[test]
    fn a_history_of_events_is_as_computed_by_hand() {
        let mut estimator = EventHistory::new(100, 1000.0);
        estimator.window(40, &[]);
        assert_eq!(estimator.rate(), 0.0);
        // Events begin at 50 and at 250; the loss at 120 is within 100 packets of the first.
        estimator.window(260, &[gap(10, 1), gap(69, 1), gap(129, 2)]);
        // Intervals 200 and 1000, the open one of 50 would raise the rate: (200 + 1000) / 2.
        assert_eq!(estimator.rate(), 1.0 / 600.0);
        // Open for 2750, which lowers it: (2750 + 200) / 2.
        estimator.window(2700, &[]);
        assert_eq!(estimator.rate(), 1.0 / 1475.0);
    }

    #[test]
    fn a_gap_longer_than_a_round_trip_is_several_events() {
        let mut estimator = EventHistory::new(100, 1000.0);
        estimator.window(250, &[gap(0, 250)]);
        assert_eq!(estimator.history.intervals().collect::<Vec<_>>(), [100.0, 100.0, 1000.0]);
    }

    #[test]
    fn losses_of_the_last_eight_events() {
        let mut estimator = RecentLosses::new(10);
        for lost in 1..=9 {
            estimator.window(100, &[gap(0, lost)]);
        }
        // Nine events, of which that of one packet at 0 is forgotten: 2 + … + 9 of the 800 packets since.
        assert_eq!(estimator.rate(), 44.0 / 800.0);
        let mut fewer = RecentLosses::new(10);
        fewer.window(50, &[]);
        assert_eq!(fewer.rate(), 0.0);
        fewer.window(50, &[gap(0, 5), gap(3, 1)]);
        assert_eq!(fewer.rate(), 6.0 / 100.0);
    }
}
