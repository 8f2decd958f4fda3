//! Groups losses into loss events, and computes loss events per packet (RFC 5348 §5).

use std::collections::VecDeque;
use std::time::Duration;

/// A run of consecutive lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossSpan {
    /// Number of the first packet of the run. Host losses are not counted in these numbers.
    pub at: u64,
    pub packets: u64,
    /// Time when the first packet of the run was sent.
    pub sent: Duration,
    /// Time between the sending of one packet and the next.
    pub spacing: Duration,
}

impl LossSpan {
    /// The run without its first `packets` packets.
    fn skip(self, packets: u64) -> Self {
        let nanos = self.spacing.as_nanos().saturating_mul(u128::from(packets));
        let later = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Self {
            at: self.at.saturating_add(packets),
            packets: self.packets.saturating_sub(packets),
            sent: self.sent.saturating_add(later),
            spacing: self.spacing,
        }
    }

    /// Number of packets of the run that were sent within `time` after the first packet; at least
    /// 1.
    fn within(self, time: Duration) -> u64 {
        match self.spacing.as_nanos() {
            0 => u64::MAX,
            spacing => u64::try_from(time.as_nanos().div_ceil(spacing)).unwrap_or(u64::MAX).max(1),
        }
    }
}

/// A loss event: one or more losses within a round trip (RFC 5348 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossEvent {
    /// Number of the first lost packet of the event.
    pub at: u64,
    /// When this packet was sent.
    pub sent: Duration,
}

/// Groups losses into loss events.
#[derive(Clone, Debug, Default)]
pub struct LossEvents {
    newest: Option<LossEvent>,
}

impl LossEvents {
    pub fn newest(&self) -> Option<LossEvent> {
        self.newest
    }

    /// Adds a run of losses. Calls `on_event` for each event that contains packets of the run, in
    /// order. The arguments are the event and the number of packets of the run in it.
    ///
    /// Packets that were sent before the newest event began belong to the newest event. The loss of
    /// these packets became known late, and no earlier event is added. If a run spans more round
    /// trips than a history keeps, only its first and its last nine events are reported.
    pub fn lost(&mut self, run: LossSpan, round_trip: Duration, mut on_event: impl FnMut(LossEvent, u64)) {
        let round_trip = round_trip.max(Duration::from_nanos(1));
        let mut rest = run;
        while rest.packets > 0 {
            let event = match self.newest {
                // RFC 5348 §5.2.
                Some(event) if rest.sent < event.sent.saturating_add(round_trip) => event,
                _ => LossEvent { at: rest.at, sent: rest.sent },
            };
            self.newest = Some(event);
            let left = event.sent.saturating_add(round_trip).saturating_sub(rest.sent);
            let packets = rest.within(left).min(rest.packets);
            on_event(event, packets);
            rest = rest.skip(packets);
            let each = rest.within(round_trip);
            let old = rest.packets.div_ceil(each).saturating_sub(INTERVALS as u64 + 1);
            rest = rest.skip(old.saturating_mul(each));
        }
    }
}

/// The last eight complete loss intervals and the current, incomplete interval (RFC 5348 §5.3,
/// §5.4), without the optional history discounting of §5.5.
#[derive(Clone, Debug, Default)]
pub struct LossHistory {
    events: LossEvents,
    /// Number of packets between the starts of consecutive events, newest interval first.
    intervals: VecDeque<f64>,
}

impl LossHistory {
    /// Adds a run of losses. Returns true if a new loss event began in the run.
    ///
    /// `first_interval` (packets) replaces the interval before the first event. That interval does
    /// not show the loss rate, because the sending rate was growing. The caller computes
    /// `first_interval` from the receive rate (RFC 5348 §6.3.1).
    pub fn lost(&mut self, run: LossSpan, round_trip: Duration, first_interval: f64) -> bool {
        let mut before = self.events.newest();
        let mut is_new = false;
        let intervals = &mut self.intervals;
        self.events.lost(run, round_trip, |event, _| {
            if before != Some(event) {
                let interval =
                    before.map_or(first_interval, |before| event.at.saturating_sub(before.at) as f64);
                intervals.push_front(interval.max(1.0));
                intervals.truncate(INTERVALS);
                before = Some(event);
                is_new = true;
            }
        });
        is_new
    }

    /// Loss events per packet (0 to 1) once `accounted` packets are acknowledged, or lost with a
    /// known cause; 0 before the first event.
    pub fn rate(&self, accounted: u64) -> f64 {
        let Some(newest) = self.events.newest() else { return 0.0 };
        let open = accounted.saturating_sub(newest.at) as f64;
        let closed = || self.intervals.iter().copied();
        let weighted = |intervals: &mut dyn Iterator<Item = f64>| -> f64 {
            let each = intervals.zip(WEIGHTS).take(self.intervals.len());
            each.map(|(interval, weight)| weight * interval).sum()
        };
        // RFC 5348 §5.4: the current, incomplete interval counts only if it lowers the rate.
        let with_open = weighted(&mut std::iter::once(open).chain(closed()));
        let mean = with_open.max(weighted(&mut closed()));
        let weights: f64 = WEIGHTS.iter().take(self.intervals.len()).sum();
        (weights / mean).min(1.0)
    }

    /// Loss intervals: the number of packets between the starts of consecutive events, newest
    /// interval first. At most eight intervals.
    pub fn intervals(&self) -> impl Iterator<Item = f64> + '_ {
        self.intervals.iter().copied()
    }
}

/// Weights of eight intervals, newest first (RFC 5348 §5.4).
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Maximum number of loss intervals that a history keeps.
pub const INTERVALS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// A run of lost packets. One packet was sent each millisecond.
    fn run(at: u64, packets: u64) -> LossSpan {
        let spacing = Duration::from_millis(1);
        LossSpan { at, packets, sent: Duration::from_millis(at), spacing }
    }

    #[test]
    fn a_loss_history_matches_a_computation_by_hand() {
        let mut history = LossHistory::default();
        assert_eq!(history.rate(40), 0.0);
        // Events begin at 50 and at 250; the loss at 120 is within 100 ms of the loss at 50, so it
        // belongs to the first event.
        assert!(history.lost(run(50, 1), ROUND_TRIP, 1000.0));
        assert!(!history.lost(run(120, 1), ROUND_TRIP, 1000.0));
        assert!(history.lost(run(250, 2), ROUND_TRIP, 1000.0));
        // Intervals are 200 and 1000: (200 + 1000) / 2. The current interval of 50 would raise the
        // rate, so it does not count.
        assert_eq!(history.rate(300), 1.0 / 600.0);
        // The current interval of 2750 lowers the rate: (2750 + 200) / 2.
        assert_eq!(history.rate(3000), 1.0 / 1475.0);
    }

    #[test]
    fn eight_intervals_have_the_weights_of_the_rfc() {
        let mut history = LossHistory::default();
        // The first event begins at 0. The following intervals have 10, 20, … 80 packets. The
        // interval before the first event is forgotten.
        let mut at = 0;
        history.lost(run(at, 1), Duration::from_millis(1), 5.0);
        for interval in (10..=80).step_by(10) {
            at += interval;
            history.lost(run(at, 1), Duration::from_millis(1), 5.0);
        }
        let mean = (80.0 + 70.0 + 60.0 + 50.0 + 0.8 * 40.0 + 0.6 * 30.0 + 0.4 * 20.0 + 0.2 * 10.0) / 6.0;
        assert!((history.rate(at + 1) - 1.0 / mean).abs() < 1e-12);
    }

    #[test]
    fn a_run_longer_than_a_round_trip_is_several_events() {
        let mut history = LossHistory::default();
        history.lost(run(0, 250), ROUND_TRIP, 1000.0);
        assert_eq!(history.intervals().collect::<Vec<_>>(), [100.0, 100.0, 1000.0]);
        // Lost packets that were sent at the same time are one event, for any number of packets.
        let mut history = LossHistory::default();
        history.lost(LossSpan { spacing: Duration::ZERO, ..run(0, 250) }, ROUND_TRIP, 1000.0);
        assert_eq!(history.intervals().collect::<Vec<_>>(), [1000.0]);
    }

    #[test]
    fn an_endless_run_keeps_only_the_last_events_in_few_steps() {
        let mut history = LossHistory::default();
        history.lost(run(0, u64::MAX / 2), ROUND_TRIP, 1000.0);
        assert_eq!(history.intervals().collect::<Vec<_>>(), [100.0; 8]);
        let mut told = 0;
        LossEvents::default().lost(run(0, u64::MAX), Duration::ZERO, |_, _| told += 1);
        assert!(told <= 10, "{told}");
    }

    #[test]
    fn a_loss_that_is_reported_late_is_not_an_event() {
        let mut history = LossHistory::default();
        history.lost(run(1000, 1), ROUND_TRIP, 1000.0);
        assert!(!history.lost(run(500, 1), ROUND_TRIP, 1000.0));
        assert_eq!(history.intervals().collect::<Vec<_>>(), [1000.0]);
        // The rate is at most 1 for every value of `accounted`.
        assert!(history.lost(run(1200, 1), ROUND_TRIP, 1000.0) && history.rate(0) <= 1.0);
    }
}
