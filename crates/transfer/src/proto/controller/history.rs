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
    /// The last events, newest first.
    entries: VecDeque<Entry>,
}

/// A loss event that the history keeps.
#[derive(Clone, Copy, Debug)]
struct Entry {
    event: LossEvent,
    /// Number of packets from the start of the event before to the start of this event.
    interval: f64,
    /// The interval if no event had been before this one.
    first_interval: f64,
    /// Whether no event was before this one.
    is_first: bool,
    /// Number of lost packets of the event.
    lost: u64,
    rates: RatesAtLoss,
}

/// Rates when a loss event was found (bytes a second); 0 if they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RatesAtLoss {
    pub sent: f64,
    pub received: f64,
}

impl LossHistory {
    /// Adds a run of losses. Returns true if a new loss event began in the run.
    ///
    /// `first_interval` (packets) replaces the interval before the first event. That interval does
    /// not show the loss rate, because the sending rate was growing. The caller computes
    /// `first_interval` from the receive rate (RFC 5348 §6.3.1).
    pub fn lost(&mut self, run: LossSpan, round_trip: Duration, first_interval: f64) -> bool {
        self.lost_at(run, round_trip, first_interval, RatesAtLoss::default())
    }

    /// As [`LossHistory::lost`], with the rates that [`LossHistory::take_back`] returns if the
    /// event is dropped.
    pub fn lost_at(
        &mut self,
        run: LossSpan,
        round_trip: Duration,
        first_interval: f64,
        rates: RatesAtLoss,
    ) -> bool {
        let mut before = self.events.newest();
        let mut is_new = false;
        let entries = &mut self.entries;
        self.events.lost(run, round_trip, |event, packets| {
            if before != Some(event) {
                let interval =
                    before.map_or(first_interval, |before| event.at.saturating_sub(before.at) as f64);
                let (interval, is_first) = (interval.max(1.0), before.is_none());
                entries.push_front(Entry { event, interval, first_interval, is_first, lost: 0, rates });
                entries.truncate(INTERVALS);
                before = Some(event);
                is_new = true;
            }
            if let Some(entry) = entries.front_mut() {
                entry.lost = entry.lost.saturating_add(packets);
            }
        });
        is_new
    }

    /// Takes back `packets` lost packets from position `at` on. An event of which all losses are
    /// taken back is dropped, and the intervals before and after it become one. The packets of the
    /// run no longer count, so what is after them moves by their number.
    ///
    /// Returns the highest rates of the dropped events; `None` if no event was dropped. Events that
    /// the history no longer keeps do not come back. If there were any, the last entry stays:
    /// without an entry, slow start would follow losses of the network.
    pub fn take_back(&mut self, at: u64, packets: u64) -> Option<RatesAtLoss> {
        let end = at.saturating_add(packets);
        let mut until = u64::MAX;
        for entry in &mut self.entries {
            let (from, moved) = (entry.event.at, packets.min(entry.event.at.saturating_sub(at)));
            let within = end.min(until).saturating_sub(at.max(from));
            entry.lost = entry.lost.saturating_sub(within);
            // The interval before this event contains the part of the run that is before it, as far
            // as the run begins within the interval.
            if from.saturating_sub(entry.interval as u64) <= at && !entry.is_first {
                entry.interval = (entry.interval - moved as f64).max(1.0);
            }
            entry.event.at -= moved;
            until = from;
        }
        let dropped = self.drop_empty();
        self.events.newest = self.entries.front().map(|entry| entry.event);
        dropped
    }

    /// Drops events without losses, and joins the intervals before and after each.
    fn drop_empty(&mut self) -> Option<RatesAtLoss> {
        let mut highest: Option<RatesAtLoss> = None;
        while let Some(position) = self.entries.iter().rposition(|entry| entry.lost == 0) {
            if self.entries.len() == 1 && self.entries.front().is_some_and(|entry| !entry.is_first) {
                break;
            }
            let dropped = self.entries.remove(position)?;
            if let Some(newer) = position.checked_sub(1).and_then(|newer| self.entries.get_mut(newer)) {
                newer.is_first = dropped.is_first;
                newer.interval = if dropped.is_first {
                    newer.first_interval.max(1.0)
                } else {
                    newer.interval + dropped.interval
                };
            }
            let rates = highest.unwrap_or_default();
            highest = Some(RatesAtLoss {
                sent: rates.sent.max(dropped.rates.sent),
                received: rates.received.max(dropped.rates.received),
            });
        }
        highest
    }

    /// Whether there was no loss event.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Loss events per packet (0 to 1) once `accounted` packets are acknowledged, or lost with a
    /// known cause; 0 before the first event.
    pub fn rate(&self, accounted: u64) -> f64 {
        let Some(newest) = self.events.newest() else { return 0.0 };
        let open = accounted.saturating_sub(newest.at) as f64;
        let weighted = |intervals: &mut dyn Iterator<Item = f64>| -> f64 {
            let each = intervals.zip(WEIGHTS).take(self.entries.len());
            each.map(|(interval, weight)| weight * interval).sum()
        };
        // RFC 5348 §5.4: the current, incomplete interval counts only if it lowers the rate.
        let with_open = weighted(&mut std::iter::once(open).chain(self.intervals()));
        let mean = with_open.max(weighted(&mut self.intervals()));
        let weights: f64 = WEIGHTS.iter().take(self.entries.len()).sum();
        (weights / mean).min(1.0)
    }

    /// Loss intervals: the number of packets between the starts of consecutive events, newest
    /// interval first. At most eight intervals.
    pub fn intervals(&self) -> impl Iterator<Item = f64> + '_ {
        self.entries.iter().map(|entry| entry.interval)
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
    fn a_history_without_an_event_is_one_that_never_saw_it() {
        for dropped in 0..4 {
            let (mut whole, mut never) = (LossHistory::default(), LossHistory::default());
            let mut shift = 0;
            for n in 0..4 {
                let at = 1000 * (n + 1) + 37 * n * n;
                whole.lost(run(at, 5), ROUND_TRIP, 900.0 + n as f64);
                if n == dropped {
                    shift = 5;
                } else {
                    let sent = Duration::from_millis(at);
                    never.lost(LossSpan { at: at - shift, sent, ..run(0, 5) }, ROUND_TRIP, 900.0 + n as f64);
                }
            }
            let at = 1000 * (dropped + 1) + 37 * dropped * dropped;
            // In two parts, as two verdicts take them back.
            assert_eq!(whole.take_back(at, 3), None);
            assert!(whole.take_back(at, 2).is_some());
            let intervals = |history: &LossHistory| history.intervals().collect::<Vec<_>>();
            assert_eq!(intervals(&whole), intervals(&never), "without event {dropped}");
            assert_eq!(whole.rate(9995), never.rate(9995));
        }
    }

    #[test]
    fn a_history_that_forgot_older_events_keeps_an_entry_if_all_others_are_taken_back() {
        let mut history = LossHistory::default();
        for n in 1..=10 {
            history.lost(run(1000 * n, 5), ROUND_TRIP, 900.0);
        }
        // The two oldest events are forgotten. The newest is taken back first, so no position
        // moves.
        for n in (3..=10).rev() {
            history.take_back(1000 * n, 5);
        }
        assert!(!history.is_empty());
        assert_eq!(history.rate(4000), 1.0 / 1000.0);
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
