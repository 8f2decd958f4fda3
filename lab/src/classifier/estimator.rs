//! How a sender estimates the rate of loss that its response function takes.

use std::collections::VecDeque;

use barograph_loss::Gap;

/// An estimate of the long-term rate of loss.
pub(crate) trait Estimator {
    /// So many more packets were sent, of which these gaps were lost.
    fn window(&mut self, packets: u32, gaps: &[Gap]);

    /// Losses a packet, 0 to 1; 0 where there was none so far.
    fn rate(&self) -> f64;
}

/// All packets lost of all sent since the start: the paper does not define its long-term loss rate (§2.2), this is how we read it.
#[derive(Default)]
pub(crate) struct Cumulative {
    sent: u64,
    lost: u64,
}

impl Estimator for Cumulative {
    fn window(&mut self, packets: u32, gaps: &[Gap]) {
        self.sent += u64::from(packets);
        self.lost += gaps.iter().map(|gap| u64::from(gap.lost)).sum::<u64>();
    }

    fn rate(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// Loss events a packet, from the weighted mean of the last eight loss intervals (RFC 5348 §5): losses within one round trip of an
/// event's first are that event. Without the history discounting of §5.5, which is optional.
pub(crate) struct EventHistory {
    events: Events,
    /// Packets between the starts of events, the newest first.
    intervals: VecDeque<f64>,
    /// The interval before the first event (packets), which is not measured but follows from the rate of then (§6.3.1).
    first_interval: f64,
}

impl EventHistory {
    pub(crate) fn new(round_trip_packets: u32, first_interval: f64) -> Self {
        Self { events: Events::new(round_trip_packets), intervals: VecDeque::new(), first_interval }
    }
}

impl Estimator for EventHistory {
    fn window(&mut self, packets: u32, gaps: &[Gap]) {
        let (intervals, first_interval) = (&mut self.intervals, self.first_interval);
        let mut before = self.events.start;
        self.events.window(packets, gaps, |start, _| {
            if before != Some(start) {
                intervals.push_front(before.map_or(first_interval, |before| (start - before) as f64));
                intervals.truncate(WEIGHTS.len());
                before = Some(start);
            }
        });
    }

    /// RFC 5348 §5.4: the interval that is still open counts only where it lowers the rate.
    fn rate(&self) -> f64 {
        let Some(start) = self.events.start else { return 0.0 };
        let open = (self.events.sent - start) as f64;
        let weighted = |intervals: &mut dyn Iterator<Item = f64>| -> f64 {
            intervals
                .zip(WEIGHTS)
                .take(self.intervals.len())
                .map(|(interval, weight)| weight * interval)
                .sum()
        };
        let with = weighted(&mut [open].into_iter().chain(self.intervals.iter().copied()));
        let without = weighted(&mut self.intervals.iter().copied());
        let weights: f64 = WEIGHTS[..self.intervals.len()].iter().sum();
        (weights / with.max(without)).min(1.0)
    }
}

/// RFC 5348 §5.4, for eight intervals.
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Packets lost in the last eight loss events, of those sent since the first of them began; since the start while there were fewer.
pub(crate) struct RecentLosses {
    events: Events,
    /// When each began, and packets that were lost in it.
    last: VecDeque<(u64, u64)>,
    began: u64,
}

impl RecentLosses {
    pub(crate) fn new(round_trip_packets: u32) -> Self {
        Self { events: Events::new(round_trip_packets), last: VecDeque::new(), began: 0 }
    }
}

impl Estimator for RecentLosses {
    fn window(&mut self, packets: u32, gaps: &[Gap]) {
        let (last, began) = (&mut self.last, &mut self.began);
        self.events.window(packets, gaps, |start, lost| match last.back_mut() {
            Some((event, all)) if *event == start => *all += lost,
            _ => {
                last.push_back((start, lost));
                if WEIGHTS.len() < last.len() {
                    last.pop_front();
                    *began = last[0].0;
                }
            }
        });
    }

    fn rate(&self) -> f64 {
        let lost: u64 = self.last.iter().map(|(_, lost)| lost).sum();
        if lost == 0 { 0.0 } else { lost as f64 / (self.events.sent - self.began) as f64 }
    }
}

/// Losses grouped to events.
struct Events {
    round_trip_packets: u64,
    sent: u64,
    /// When the last event began (packets sent before its first loss).
    start: Option<u64>,
}

impl Events {
    fn new(round_trip_packets: u32) -> Self {
        Self { round_trip_packets: u64::from(round_trip_packets.max(1)), sent: 0, start: None }
    }

    /// `say` hears of losses in the order they were sent: when their event began, and how many they are.
    fn window(&mut self, packets: u32, gaps: &[Gap], mut say: impl FnMut(u64, u64)) {
        let mut at = self.sent;
        for gap in gaps {
            at += u64::from(gap.received);
            let end = at + u64::from(gap.lost);
            while at < end {
                let start = match self.start {
                    Some(start) if at < start + self.round_trip_packets => start,
                    _ => at,
                };
                self.start = Some(start);
                let part = end.min(start + self.round_trip_packets);
                say(start, part - at);
                at = part;
            }
        }
        self.sent += u64::from(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(received: u32, lost: u32) -> Gap {
        Gap { received, lost }
    }

    #[test]
    fn all_losses_of_all_packets() {
        let mut estimator = Cumulative::default();
        assert_eq!(estimator.rate(), 0.0);
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
    fn eight_intervals_have_the_weights_of_the_rfc() {
        let mut estimator = EventHistory::new(1, 5.0);
        // Events at 0, then after 10, 20, … 80 packets: the first interval and older ones are forgotten.
        estimator.window(1, &[gap(0, 1)]);
        for interval in (10..=80).step_by(10) {
            estimator.window(interval, &[gap(interval - 1, 1)]);
        }
        let mean = (80.0 + 70.0 + 60.0 + 50.0 + 0.8 * 40.0 + 0.6 * 30.0 + 0.4 * 20.0 + 0.2 * 10.0) / 6.0;
        assert!((estimator.rate() - 1.0 / mean).abs() < 1e-12);
    }

    #[test]
    fn a_gap_longer_than_a_round_trip_is_several_events() {
        let mut estimator = EventHistory::new(100, 1000.0);
        estimator.window(250, &[gap(0, 250)]);
        assert_eq!(estimator.intervals, [100.0, 100.0, 1000.0]);
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
        fewer.window(100, &[gap(50, 5), gap(3, 1)]);
        assert_eq!((fewer.rate(), fewer.last.len()), (6.0 / 100.0, 1));
    }
}
