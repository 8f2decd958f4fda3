//! Bandwidth probing: when, how far, and what a probe showed (BBR §5.3.3).

use super::state::State;
use super::{BETA, Model, PACING_MARGIN};
use crate::proto::controller::Seen;

/// The clock of bandwidth probes, and what the last one showed.
#[derive(Debug)]
pub(super) struct Probe {
    /// In 0..1, spread evenly: the fractional parts of multiples of the golden ratio.
    chance: f64,
    cycle_began_s: f64,
    wait_s: f64,
    pub(super) rounds: u64,
    /// What was sent since then was sent to probe, and its losses were not answered yet.
    sent_since_s: Option<f64>,
    /// Whether a probe has ended, but not all that it sent is settled.
    pub(super) is_stopping: bool,
    /// Whether the last probe lost too much, and whether this one stopped before it could (BBR §5.3.3.6).
    was_too_high: bool,
    was_cut_short: bool,
    /// Probes in turn that lost too much and gained nothing.
    barren: u32,
    /// Whether the last raise brought more.
    has_gained: bool,
    /// This sender's share of a full link, 0 to 1, as the gains of the last probes told.
    share: f64,
    queue: Standing,
    /// Rounds of this probe, and what the last delivered (bytes a second).
    raises: u32,
    baseline: f64,
}

/// The queue since the last probe.
#[derive(Debug, Default)]
struct Standing {
    /// Rounds in turn for which it stood, and what they delivered in the mean (bytes a second at a pacing gain of 1).
    rounds: u32,
    got_bytes_s: f64,
    is_answered: bool,
    /// The least round trip of the round before.
    least_s: f64,
}

impl Probe {
    pub(super) fn new(seed: u64) -> Self {
        // 53 bits fill an f64.
        let chance = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
        Self {
            chance,
            cycle_began_s: 0.0,
            wait_s: WAIT_MIN_S,
            rounds: 0,
            sent_since_s: None,
            is_stopping: false,
            was_too_high: false,
            was_cut_short: false,
            barren: 0,
            has_gained: true,
            share: 0.0,
            queue: Standing::default(),
            raises: 0,
            baseline: 0.0,
        }
    }

    /// How much longer than usual to wait.
    fn patience(&self) -> f64 {
        f64::from(1 + self.barren.min(BARREN_MAX))
    }

    /// All have drained together: they should not all probe together.
    pub(super) fn spread_wait(&mut self) {
        self.wait_s *= self.draw();
    }

    /// The probe ends, if there is one.
    pub(super) fn stop(&mut self) {
        self.is_stopping |= self.sent_since_s.is_some();
    }

    fn draw(&mut self) -> f64 {
        self.chance = (self.chance + GOLDEN_PART).fract();
        self.chance
    }
}

impl Model {
    /// A queue that outlasts [`STANDING_ROUNDS`] rounds is not this sender's probe: together the senders ask for more than there is. What
    /// this one got is its bandwidth, less what keeps more than [`Model::kept_packets`] of it in the queue. All see the same queue, so that
    /// its part of it is its part of the link (Copa, NSDI 2018, §2, has each aim at so many packets): large shares shrink, small ones do not.
    pub(super) fn note_queue(&mut self) {
        let least_s = self.round.least_rtt_s;
        let min_s = self.path.min_rtt_s().unwrap_or(0.0);
        let got = self.round.bytes_s / (self.state.pacing_gain() * PACING_MARGIN);
        // A delay that varies within a round by as much is no queue.
        let has_queue = self.path.has_queue(least_s - self.round.rtt_spread_s());
        let kept_bytes = self.kept_packets(min_s) * self.packet_bytes;
        let queue = &mut self.probe.queue;
        let before_s = std::mem::replace(&mut queue.least_s, least_s);
        // What shrinks so fast is the queue of this sender's own probe.
        let is_drained = self.state == State::Down && before_s - least_s > DRAINED_SHARE * min_s;
        if queue.is_answered || is_drained || !has_queue {
            (queue.rounds, queue.got_bytes_s) = (0, 0.0);
            return;
        }
        queue.rounds += 1;
        // The mean: the most of several rounds is more than a share, and the sum of all such more than the link.
        queue.got_bytes_s += (got - queue.got_bytes_s) / f64::from(queue.rounds);
        if queue.rounds == STANDING_ROUNDS {
            let queued_bytes = queue.got_bytes_s * (least_s - min_s);
            let kept = (kept_bytes / queued_bytes).clamp(1.0 - YIELD_MAX, 1.0);
            self.bandwidth.settle(queue.got_bytes_s * kept, self.round.delivered);
            queue.is_answered = true;
        }
    }

    /// Packets that a sender may keep in a queue that stands, where the empty path takes `min_s`.
    fn kept_packets(&self, min_s: f64) -> f64 {
        KEPT_PACKETS + KEPT_PACKETS_S * min_s
    }

    /// BBR §5.3.3.9.
    pub(super) fn advance_probe_bw(&mut self, now_s: f64, seen: &Seen<'_>) {
        if self.probe.is_stopping && self.round.has_ended {
            // All that the probe sent is settled.
            self.probe.is_stopping = false;
            self.probe.sent_since_s = None;
            if self.state.is_probe_bw() && !self.round.was_limited {
                self.bandwidth.end_cycle();
            }
            if self.state.is_probe_bw() && self.probe.was_cut_short && !self.probe.was_too_high {
                self.go_refill();
                return;
            }
        }
        if self.answer_probe(now_s, seen) {
            return;
        }
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(now_s) => self.go_refill(),
            State::Down => {
                let product = self.bandwidth.max() * self.path.min_rtt_s().unwrap_or(0.0);
                let fits = self.inflight_with_headroom().min(product);
                if seen.in_flight_bytes as f64 <= fits {
                    self.state = State::Cruise;
                }
            }
            State::Refill if self.round.has_ended => self.go_up(now_s),
            State::Up => self.advance_up(now_s, seen),
            _ => {}
        }
    }

    /// Whether a probe lost or marked too much, and was answered (BBR §5.5.10.2).
    fn answer_probe(&mut self, now_s: f64, seen: &Seen<'_>) -> bool {
        let Some(since) = self.probe.sent_since_s else { return false };
        let flight = seen.delivery.map_or(0.0, |delivery| delivery.in_flight_bytes as f64);
        let flight_packets = flight / self.packet_bytes;
        // While a raise still brings more, loss alone may be others': marks never are without meaning (BBR §3.7).
        let is_gaining = self.state == State::Up && self.probe.has_gained;
        if !(self.round.is_heavy(flight_packets) && !is_gaining
            || self.round.is_heavily_marked(flight_packets))
        {
            return false;
        }
        let lost_at = seen.losses.iter().rfind(|loss| loss.sent.as_secs_f64() >= since);
        let in_flight = lost_at.map_or(flight, |loss| loss.in_flight_bytes as f64);
        self.probe.was_too_high = true;
        // A probe that was cut off before its gain was known leaves the question to the next.
        let is_judged = self.probe.raises > 1;
        self.probe.barren = self.probe.barren.saturating_add(u32::from(is_judged));
        self.probe.has_gained |= !is_judged;
        self.probe.sent_since_s = None;
        self.round.forgive(now_s);
        if !self.round.was_limited {
            let target = (self.product_bytes(1.0) + self.aggregation.extra_bytes()).min(self.window_bytes);
            self.inflight_hi = in_flight.max(BETA * target).max(self.window_floor());
        }
        if self.state == State::Up {
            self.go_down(now_s);
            return true;
        }
        false
    }

    /// BBR §5.3.3.7, but what ends a probe is what it gained: see [`SHARE_MAX`].
    fn advance_up(&mut self, now_s: f64, seen: &Seen<'_>) {
        // What was under way before this feedback: the window bounds that, not what is left.
        let lost: f64 = seen.losses.iter().map(|loss| loss.bytes as f64).sum();
        let before = seen.in_flight_bytes as f64 + seen.acked_bytes as f64 + lost;
        if self.probe.was_too_high && before >= self.inflight_hi {
            self.probe.was_cut_short = true;
            self.probe.was_too_high = false;
            self.go_down(now_s);
            return;
        }
        self.inflight_hi = self.inflight_hi.max(before);
        if !self.round.has_ended {
            return;
        }
        if self.round.was_limited {
            // More was asked for than was sent: that brings nothing, and shows nothing, for as long as it lasts.
            self.go_down(now_s);
            return;
        }
        let latest = self.round.bytes_s;
        // The first round settles what was sent before: it is what the others are compared with.
        let is_first = self.probe.raises == 0;
        let before = std::mem::replace(&mut self.probe.baseline, latest);
        let gain = if before > 0.0 { (latest / before).clamp(1.0, UP_GAIN) } else { UP_GAIN };
        self.probe.raises += 1;
        if is_first {
            return;
        }
        let share = (UP_GAIN / gain - 1.0) / (UP_GAIN - 1.0);
        self.probe.share += (share - self.probe.share) / 2.0;
        self.probe.has_gained = self.probe.share <= SHARE_MAX;
        if self.answer_probe(now_s, seen) {
            return;
        }
        if !self.probe.has_gained || self.round.has_queue(&self.path) && self.probe.raises > RAISES_MAX {
            self.probe.was_too_high = false;
            self.probe.barren = 0;
            self.go_down(now_s);
        }
    }

    pub(super) fn go_down(&mut self, now_s: f64) {
        self.probe.rounds = u64::from(self.probe.draw() < 0.5);
        self.probe.wait_s = (WAIT_MIN_S + WAIT_SPREAD_S * self.probe.draw()) * self.probe.patience();
        self.probe.cycle_began_s = now_s;
        self.probe.queue = Standing::default();
        self.probe.is_stopping = true;
        self.round.restart();
        self.state = State::Down;
    }

    fn go_refill(&mut self) {
        self.forget_short_term();
        self.probe.was_cut_short = false;
        self.probe.is_stopping = false;
        self.round.restart();
        self.round.forget_toll();
        self.state = State::Refill;
    }

    fn go_up(&mut self, now_s: f64) {
        self.probe.sent_since_s = Some(now_s);
        (self.probe.raises, self.probe.baseline) = (0, 0.0);
        self.round.restart();
        self.round.forget_toll();
        self.state = State::Up;
    }

    /// BBR §5.3.3.8, but 1–3 s: or as many rounds as Reno takes to gain a window of this size, 63 at most.
    fn is_time_to_probe(&self, now_s: f64) -> bool {
        let packets = self.product_bytes(1.0).min(self.window_bytes) / self.packet_bytes;
        now_s > self.probe.cycle_began_s + self.probe.wait_s
            || self.probe.rounds as f64 >= packets.min(RENO_ROUNDS) * self.probe.patience()
    }
}

/// BBR §5.3.3.8.3 waits 2–3 s, for Reno's sake and for people's. The same span twice as wide, a little shorter in the mean, keeps probes of
/// several senders apart (chosen on seeds 1 to 4 of `tests/model`; 2 to 4 s brought four of them no nearer to each other).
const WAIT_MIN_S: f64 = 1.0;
const WAIT_SPREAD_S: f64 = 2.0;

/// BBR §5.3.3.8.3: 62 or 63; the count begins at 0 or 1.
const RENO_ROUNDS: f64 = 63.0;

/// The golden ratio less one: its multiples fill 0..1 evenly (Weyl).
const GOLDEN_PART: f64 = 0.618_033_988_749_894_9;

/// BBR §5.6.1.
pub(super) const UP_GAIN: f64 = 1.25;

/// A probe's own queue, a quarter of the product or two, is gone in about four rounds.
const STANDING_ROUNDS: u32 = 4;

/// A sender alone that sends a tenth less takes a tenth of the least round trip off its queue in each; one that shares the link equally with
/// another, half of that.
const DRAINED_SHARE: f64 = 0.08;

/// Four senders keep 170 packets in a queue of 20 ms at 100 Mbit/s, all that it holds, and 360 at 100 ms, less than half. With less, one beside
/// cubic falls behind it at 20 ms; with more, none of four yields there. A longer path delivers more by the time that all have seen the
/// queue and yielded, so that more is left to each: 600 packets a second are 7 Mbit/s (chosen on seeds 11 to 15 and 41 to 45 of the lab's
/// paths, at 100 Mbit/s). They are absolute: where every share of a long path is far above them, all yield alike.
const KEPT_PACKETS: f64 = 30.0;
const KEPT_PACKETS_S: f64 = 600.0;

/// What is seen of a queue is old: no yield leaves less than two fifths, which two probes take back.
const YIELD_MAX: f64 = 0.6;

/// A sender with the share s of a full link that sends a quarter more gets 1.25 ÷ (1 + s ÷ 4) of what it got: 1.12 at a half. So a probe
/// goes on where bandwidth is free or where others have more, and ends where this flow has half or all of the link.
const SHARE_MAX: f64 = 0.5;

/// Three raises by a quarter double: more in one probe would overshoot a fair share, where others stand in the queue.
const RAISES_MAX: u32 = 3;

/// Probes that gained nothing and cost others their packets come up to three times as seldom.
const BARREN_MAX: u32 = 2;
