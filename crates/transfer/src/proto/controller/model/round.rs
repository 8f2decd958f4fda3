//! What a round trip in packets showed, and whether its losses are congestion.

use super::bandwidth::rate_of;
use super::path::Path;
use crate::proto::controller::Seen;

/// The current round (BBR §5.5.1): it ends when a packet is acknowledged that was sent after it began.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) count: u64,
    ends_at_delivered: u64,
    /// Bytes delivered in all.
    pub(super) delivered: u64,
    pub(super) has_ended: bool,
    has_lost: bool,
    has_marked: bool,
    /// The sender had too little to send for a part of it.
    pub(super) was_limited: bool,
    pub(super) least_rtt_s: f64,
    most_rtt_s: f64,
    /// Most bytes a second, and most bytes that a packet's flight delivered.
    pub(super) bytes_s: f64,
    pub(super) flight_bytes: f64,
    toll: Toll,
    /// Losses of what was sent before were answered.
    forgiven_until_s: f64,
}

/// Packets over which the share of lost ones is judged: of this round, and of those before it while they were few.
#[derive(Debug, Default)]
struct Toll {
    rounds: u32,
    settled: f64,
    lost: f64,
    runs: f64,
    marked: f64,
}

impl Round {
    pub(super) fn note(&mut self, seen: &Seen<'_>) {
        self.toll.settled += seen.acked_packets as f64;
        self.toll.marked += seen.marked_packets.min(seen.acked_packets) as f64;
        for loss in seen.losses {
            if loss.sent.as_secs_f64() < self.forgiven_until_s {
                continue;
            }
            self.has_lost = true;
            self.toll.settled += f64::from(loss.packets);
            self.toll.lost += f64::from(loss.packets);
            self.toll.runs += 1.0;
        }
        self.has_marked |= seen.marked_packets > 0;
        if let Some(latest) = seen.round_trip {
            let latest = latest.as_secs_f64();
            self.most_rtt_s = self.most_rtt_s.max(latest);
            self.least_rtt_s = if self.least_rtt_s > 0.0 { self.least_rtt_s.min(latest) } else { latest };
        }
        if let Some(delivery) = &seen.delivery {
            self.was_limited |= delivery.is_limited;
            self.delivered = self.delivered.max(delivery.delivered_bytes);
            self.bytes_s = self.bytes_s.max(rate_of(delivery).unwrap_or(0.0));
            let flight = delivery.delivered_bytes.saturating_sub(delivery.prior_delivered_bytes);
            self.flight_bytes = self.flight_bytes.max(flight as f64);
            self.has_ended = delivery.prior_delivered_bytes >= self.ends_at_delivered;
            self.count += u64::from(self.has_ended);
        }
    }

    /// Begins the next round, if this one has ended.
    pub(super) fn close(&mut self) {
        if self.has_ended {
            self.restart();
        }
    }

    /// Begins a round now: it ends with the first packet that is sent from here on.
    pub(super) fn restart(&mut self) {
        self.toll.rounds += 1;
        let toll = std::mem::take(&mut self.toll);
        let is_small = toll.settled < TOLL_PACKETS && toll.rounds < TOLL_ROUNDS;
        let (count, delivered, forgiven_until_s) = (self.count, self.delivered, self.forgiven_until_s);
        *self = Self { count, delivered, forgiven_until_s, ends_at_delivered: delivered, ..Self::default() };
        if is_small {
            self.toll = toll;
        }
    }

    /// Losses of what was sent until now are answered, and count no more.
    pub(super) fn forgive(&mut self, now_s: f64) {
        self.forgiven_until_s = now_s;
        self.forget_toll();
    }

    /// Forgets what was lost before.
    pub(super) fn forget_toll(&mut self) {
        self.toll = Toll::default();
    }

    /// How far the round trips of this round lie apart.
    pub(super) fn rtt_spread_s(&self) -> f64 {
        self.most_rtt_s - self.least_rtt_s
    }

    /// Whether even the least round trip of this round met a queue.
    pub(super) fn has_queue(&self, path: &Path) -> bool {
        path.has_queue(self.least_rtt_s)
    }

    /// Whether what was lost or marked in this round is congestion: marks came, a queue stood there, or it was too much.
    pub(super) fn is_congested(&self, path: &Path) -> bool {
        self.has_marked || self.has_lost && (self.has_queue(path) || self.is_heavy(0.0))
    }

    /// Whether more than 2 % were lost or marked, of `flight_packets` if as many are not settled yet.
    pub(super) fn is_heavy(&self, flight_packets: f64) -> bool {
        let allowed = self.allowed(flight_packets);
        // Chance makes Poisson counts: two deviations above 2 % are rare at 2 %, and next to impossible at 1 %.
        self.toll.lost > allowed + 2.0 * allowed.sqrt() || self.is_heavily_marked(flight_packets)
    }

    /// The same of marks alone, which come by no chance.
    pub(super) fn is_heavily_marked(&self, flight_packets: f64) -> bool {
        self.toll.marked > self.allowed(flight_packets)
    }

    fn allowed(&self, flight_packets: f64) -> f64 {
        LOSS_SHARE * self.toll.settled.max(flight_packets)
    }

    /// Whether losses came in so many runs that one burst does not explain them (BBR §5.3.1.3).
    pub(super) fn has_many_runs(&self) -> bool {
        self.toll.runs + self.toll.marked >= STARTUP_RUNS
    }
}

/// BBR §2.5, LossThresh: what is tolerated, and where "random" ends.
const LOSS_SHARE: f64 = 0.02;

/// 2 % of 500 are 10 ± 3: from there on 1 % and 4 % are told apart with hardly an error.
const TOLL_PACKETS: f64 = 500.0;

/// Losses older than eight rounds say nothing of now.
const TOLL_ROUNDS: u32 = 8;

/// BBR §5.3.1.3, BBRStartupFullLossCnt.
const STARTUP_RUNS: f64 = 6.0;
