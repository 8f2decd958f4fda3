//! Measurements of one round, and whether the losses of the round are congestion.

use super::bandwidth::rate_of;
use super::path::MinRttFilter;
use crate::proto::controller::{DetectedLossRun, FeedbackSample};

/// The current round (BBR §5.5.1). The round ends when a packet that was sent after the round began
/// is acknowledged.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) count: u64,
    ends_at_delivered: u64,
    /// Total number of bytes delivered so far.
    pub(super) delivered: u64,
    pub(super) has_ended: bool,
    has_lost: bool,
    has_marked: bool,
    /// The sender had too little to send in a part of the round.
    pub(super) was_limited: bool,
    pub(super) least_rtt_s: f64,
    most_rtt_s: f64,
    /// Highest delivery rate (bytes a second), and largest number of bytes delivered during one
    /// packet's flight.
    pub(super) bytes_s: f64,
    pub(super) flight_bytes: f64,
    loss_share: LossShare,
    /// The sender has responded to losses of packets that were sent before this time (s).
    forgiven_until_s: f64,
}

/// Counts from which the share of lost packets is computed. The counts include this round, and
/// earlier rounds if this round has too few packets.
#[derive(Debug, Default)]
struct LossShare {
    rounds: u32,
    accounted: f64,
    lost: f64,
    runs: f64,
    marked: f64,
    /// Position of the first of the lost packets.
    lost_from: u64,
}

impl Round {
    pub(super) fn record(&mut self, seen: &FeedbackSample<'_>) {
        self.loss_share.accounted += seen.acked_packets as f64;
        self.loss_share.marked += seen.marked_packets.min(seen.acked_packets) as f64;
        for loss in seen.losses {
            if loss.sent.as_secs_f64() < self.forgiven_until_s {
                continue;
            }
            if self.loss_share.lost == 0.0 {
                self.loss_share.lost_from = loss.at;
            }
            self.has_lost = true;
            self.loss_share.accounted += f64::from(loss.packets);
            self.loss_share.lost += f64::from(loss.packets);
            self.loss_share.runs += 1.0;
        }
        self.has_marked |= seen.marked_packets > 0;
        if let Some(latest) = seen.round_trip {
            let latest = latest.as_secs_f64();
            self.most_rtt_s = self.most_rtt_s.max(latest);
            self.least_rtt_s = if self.least_rtt_s > 0.0 { self.least_rtt_s.min(latest) } else { latest };
        }
        if let Some(delivery) = &seen.delivery {
            self.was_limited |= delivery.is_app_limited;
            self.delivered = self.delivered.max(delivery.delivered_bytes);
            self.bytes_s = self.bytes_s.max(rate_of(delivery).unwrap_or(0.0));
            let flight = delivery.delivered_bytes.saturating_sub(delivery.prior_delivered_bytes);
            self.flight_bytes = self.flight_bytes.max(flight as f64);
            self.has_ended = delivery.prior_delivered_bytes >= self.ends_at_delivered;
            self.count += u64::from(self.has_ended);
        }
    }

    /// Removes runs from the losses of the round. The packets were not accounted for either. Runs
    /// before these losses only move their positions.
    pub(super) fn take_back(&mut self, runs: &[DetectedLossRun]) {
        let share = &mut self.loss_share;
        for run in runs {
            if run.at < share.lost_from {
                share.lost_from = share.lost_from.saturating_sub(run.packets.into());
                continue;
            }
            let taken = f64::from(run.packets).min(share.lost);
            share.lost -= taken;
            share.accounted -= taken;
        }
        self.has_lost &= share.lost > 0.0;
    }

    /// Begins the next round if this one has ended.
    pub(super) fn close(&mut self) {
        if self.has_ended {
            self.restart();
        }
    }

    /// Begins a new round now. The new round ends when a packet that is sent from now on is
    /// acknowledged.
    pub(super) fn restart(&mut self) {
        self.loss_share.rounds += 1;
        let loss_share = std::mem::take(&mut self.loss_share);
        let is_small = loss_share.accounted < SHARE_PACKETS && loss_share.rounds < SHARE_ROUNDS;
        let (count, delivered, forgiven_until_s) = (self.count, self.delivered, self.forgiven_until_s);
        *self = Self { count, delivered, forgiven_until_s, ends_at_delivered: delivered, ..Self::default() };
        if is_small {
            self.loss_share = loss_share;
        }
    }

    /// Records that the sender has responded to all losses of packets sent until now.
    pub(super) fn forgive(&mut self, now_s: f64) {
        self.forgiven_until_s = now_s;
        self.forget_loss_share();
    }

    pub(super) fn forget_loss_share(&mut self) {
        self.loss_share = LossShare::default();
    }

    /// Highest minus lowest round-trip time of this round (s).
    pub(super) fn rtt_spread_s(&self) -> f64 {
        self.most_rtt_s - self.least_rtt_s
    }

    /// Whether even the least round-trip time of this round includes a queue.
    pub(super) fn has_queue(&self, rtt_filter: &MinRttFilter) -> bool {
        rtt_filter.has_queue(self.least_rtt_s)
    }

    /// Whether losses or marks of this round are congestion: packets were marked, or packets were
    /// lost while a queue existed, or too many packets were lost.
    pub(super) fn is_congested(&self, rtt_filter: &MinRttFilter) -> bool {
        self.has_marked || self.has_lost && (self.has_queue(rtt_filter) || self.is_heavy(0.0))
    }

    /// Whether more than 2 % of the packets were lost or marked. The share is of the packets
    /// accounted for, or of `flight_packets` packets if this number is larger.
    pub(super) fn is_heavy(&self, flight_packets: f64) -> bool {
        let allowed = self.allowed(flight_packets);
        // Random losses have a Poisson distribution: two deviations above 2 % are rare at 2 % loss,
        // and practically impossible at 1 %.
        self.loss_share.lost > allowed + 2.0 * allowed.sqrt() || self.is_heavily_marked(flight_packets)
    }

    /// Like [`Round::is_heavy`], but only for marks. Marks never occur by chance.
    pub(super) fn is_heavily_marked(&self, flight_packets: f64) -> bool {
        self.loss_share.marked > self.allowed(flight_packets)
    }

    fn allowed(&self, flight_packets: f64) -> f64 {
        LOSS_SHARE * self.loss_share.accounted.max(flight_packets)
    }

    /// Whether the losses form more runs than one burst explains (BBR §5.3.1.3).
    pub(super) fn has_many_runs(&self) -> bool {
        self.loss_share.runs + self.loss_share.marked >= STARTUP_RUNS
    }
}

/// Share of lost packets that is tolerated (BBR §2.5, LossThresh). A larger share is not random.
const LOSS_SHARE: f64 = 0.02;

/// Number of packets from which the share of lost packets is reliable: 2 % of 500 are 10 ± 3, so 1
/// % and 4 % are rarely confused.
const SHARE_PACKETS: f64 = 500.0;

/// Maximum number of rounds over which losses are counted. Older losses do not describe the path as
/// it is now.
const SHARE_ROUNDS: u32 = 8;

/// Minimum number of runs of losses that may end Startup (BBR §5.3.1.3, BBRStartupFullLossCnt).
const STARTUP_RUNS: f64 = 6.0;
