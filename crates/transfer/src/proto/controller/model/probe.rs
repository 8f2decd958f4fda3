//! Bandwidth probing: when to probe, by how much to raise the rate, and what a probe showed (BBR
//! §5.3.3).

use super::state::State;
use super::{BETA, ModelController, PACING_MARGIN};
use crate::proto::controller::FeedbackSample;

/// Timer of bandwidth probes, and results of the last probes.
#[derive(Debug)]
pub(super) struct Probe {
    /// Pseudo-random number from 0 to 1. Successive numbers are evenly spread: they are the
    /// fractional parts of multiples of the golden ratio.
    phase: f64,
    cycle_began_s: f64,
    wait_s: f64,
    pub(super) rounds: u64,
    /// Start (s) of the current probe, while the sender has not responded to losses of this probe;
    /// `None` otherwise.
    sent_since_s: Option<f64>,
    /// Whether a probe has ended, but some of its packets are not yet acknowledged or declared
    /// lost.
    pub(super) is_stopping: bool,
    /// Whether the last probe lost too many packets (BBR §5.3.3.6).
    was_too_high: bool,
    /// Whether the current probe was stopped before it lost too many packets (BBR §5.3.3.6).
    was_cut_short: bool,
    /// Number of consecutive probes that lost too many packets and gained no bandwidth.
    failed_probes: u32,
    /// Whether the delivery rate grew after the last increase of the sending rate.
    has_gained: bool,
    /// Estimated share of a full link that this sender uses (0 to 1), computed from the gains of
    /// the last probes.
    share: f64,
    queue: StandingQueue,
    /// Number of rounds of the current probe so far.
    raises: u32,
    /// Delivery rate of the last round of the current probe (bytes a second).
    baseline: f64,
}

/// The standing queue since the last probe.
#[derive(Debug, Default)]
struct StandingQueue {
    /// Number of consecutive rounds in which the queue existed.
    rounds: u32,
    /// Mean delivery rate of these rounds (bytes a second at a pacing gain of 1).
    got_bytes_s: f64,
    is_answered: bool,
    /// Least round-trip time (s) of the previous round.
    least_s: f64,
}

impl Probe {
    pub(super) fn new(seed: u64) -> Self {
        // An f64 has 53 bits of precision.
        let phase = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
        Self {
            phase,
            cycle_began_s: 0.0,
            wait_s: WAIT_MIN_S,
            rounds: 0,
            sent_since_s: None,
            is_stopping: false,
            was_too_high: false,
            was_cut_short: false,
            failed_probes: 0,
            has_gained: true,
            share: 0.0,
            queue: StandingQueue::default(),
            raises: 0,
            baseline: 0.0,
        }
    }

    /// Factor by which the wait until the next probe is multiplied.
    fn wait_factor(&self) -> f64 {
        f64::from(1 + self.failed_probes.min(FAILED_PROBES_MAX))
    }

    /// Shortens the wait at random: flows that drained together should not probe together.
    pub(super) fn spread_wait(&mut self) {
        self.wait_s *= self.draw();
    }

    /// Ends the current probe, if there is one.
    pub(super) fn stop(&mut self) {
        self.is_stopping |= self.sent_since_s.is_some();
    }

    fn draw(&mut self) -> f64 {
        self.phase = (self.phase + GOLDEN_PART).fract();
        self.phase
    }
}

impl ModelController {
    /// Yields bandwidth if a queue has existed for [`STANDING_ROUNDS`] successive rounds.
    ///
    /// Such a queue does not come from this sender's probe: together the senders send more than the
    /// link delivers. The new bandwidth is the measured delivery rate, lowered so that at most
    /// [`ModelController::kept_packets`] packets of this sender stay in the queue.
    ///
    /// All senders see the same queue, so a sender's share of the queue is its share of the link
    /// (in Copa, NSDI 2018, §2, each sender aims at a number of packets). Large shares shrink,
    /// small shares do not.
    pub(super) fn on_standing_queue(&mut self) {
        let least_s = self.round.least_rtt_s;
        let min_s = self.rtt_filter.min_rtt_s().unwrap_or(0.0);
        let got = self.round.bytes_s / (self.state.pacing_gain() * PACING_MARGIN);
        // Subtract the variation of the delay within the round: this variation is not a standing
        // queue.
        let has_queue = self.rtt_filter.has_queue(least_s - self.round.rtt_spread_s());
        let kept_bytes = self.kept_packets(min_s) * self.packet_bytes;
        let queue = &mut self.probe.queue;
        let before_s = std::mem::replace(&mut queue.least_s, least_s);
        // A queue that shrinks this fast comes from this sender's own probe.
        let is_drained = self.state == State::Down && before_s - least_s > DRAINED_SHARE * min_s;
        if queue.is_answered || is_drained || !has_queue {
            (queue.rounds, queue.got_bytes_s) = (0, 0.0);
            return;
        }
        queue.rounds += 1;
        // Use the mean: the maximum of several rounds exceeds a sender's share, and the sum of all
        // senders' maxima exceeds the link's rate.
        queue.got_bytes_s += (got - queue.got_bytes_s) / f64::from(queue.rounds);
        if queue.rounds == STANDING_ROUNDS {
            let queued_bytes = queue.got_bytes_s * (least_s - min_s);
            let kept = (kept_bytes / queued_bytes).clamp(1.0 - YIELD_MAX, 1.0);
            self.bandwidth.give_up_above(queue.got_bytes_s * kept, self.round.delivered);
            queue.is_answered = true;
        }
    }

    /// Number of packets that a sender may keep in a standing queue; `min_s` is the round-trip time
    /// of the empty path.
    fn kept_packets(&self, min_s: f64) -> f64 {
        KEPT_PACKETS + KEPT_PACKETS_S * min_s
    }

    /// Advances the phases of ProbeBW (BBR §5.3.3.9).
    pub(super) fn advance_probe_bw(&mut self, now_s: f64, seen: &FeedbackSample<'_>) {
        if self.probe.is_stopping && self.round.has_ended {
            // All packets of the probe have been acknowledged or declared lost.
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
                let product = self.bandwidth.max() * self.rtt_filter.min_rtt_s().unwrap_or(0.0);
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

    /// Responds if too many packets of a probe were lost or marked (BBR §5.5.10.2). Returns true if
    /// this response ended the phase Up.
    fn answer_probe(&mut self, now_s: f64, seen: &FeedbackSample<'_>) -> bool {
        let Some(since) = self.probe.sent_since_s else { return false };
        let flight = seen.delivery.map_or(0.0, |delivery| delivery.in_flight_bytes as f64);
        let flight_packets = flight / self.packet_bytes;
        // While an increase of the rate still gains bandwidth, other flows may cause the losses, so
        // losses do not count. Marks always count (BBR §3.7).
        let is_gaining = self.state == State::Up && self.probe.has_gained;
        if !(self.round.is_heavy(flight_packets) && !is_gaining
            || self.round.is_heavily_marked(flight_packets))
        {
            return false;
        }
        let lost_at = seen.losses.iter().rfind(|loss| loss.sent.as_secs_f64() >= since);
        let in_flight = lost_at.map_or(flight, |loss| loss.in_flight_bytes as f64);
        self.probe.was_too_high = true;
        // A probe that ended before its gain was known does not count as failed. The next probe
        // decides.
        let is_judged = self.probe.raises > 1;
        self.probe.failed_probes = self.probe.failed_probes.saturating_add(u32::from(is_judged));
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

    /// Advances the phase Up (BBR §5.3.3.7). Unlike in BBR, the gain of a probe decides when the
    /// probe ends: see [`SHARE_MAX`].
    fn advance_up(&mut self, now_s: f64, seen: &FeedbackSample<'_>) {
        // Bytes in flight before this feedback. The window limits this number, not the number after
        // the feedback.
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
            // The sender had too little to send and did not use the raised rate. Such a probe shows
            // nothing, so end the probe.
            self.go_down(now_s);
            return;
        }
        let latest = self.round.bytes_s;
        // The packets that are acknowledged in the first round were sent before the probe. Each
        // later round is compared with the round before it.
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
        if !self.probe.has_gained || self.round.has_queue(&self.rtt_filter) && self.probe.raises > RAISES_MAX
        {
            self.probe.was_too_high = false;
            self.probe.failed_probes = 0;
            self.go_down(now_s);
        }
    }

    pub(super) fn go_down(&mut self, now_s: f64) {
        self.probe.rounds = u64::from(self.probe.draw() < 0.5);
        self.probe.wait_s = (WAIT_MIN_S + WAIT_SPREAD_S * self.probe.draw()) * self.probe.wait_factor();
        self.probe.cycle_began_s = now_s;
        self.probe.queue = StandingQueue::default();
        self.probe.is_stopping = true;
        self.round.restart();
        self.state = State::Down;
    }

    fn go_refill(&mut self) {
        self.forget_short_term();
        self.undo.forget();
        self.probe.was_cut_short = false;
        self.probe.is_stopping = false;
        self.round.restart();
        self.round.forget_loss_share();
        self.state = State::Refill;
    }

    fn go_up(&mut self, now_s: f64) {
        self.probe.sent_since_s = Some(now_s);
        (self.probe.raises, self.probe.baseline) = (0, 0.0);
        self.round.restart();
        self.round.forget_loss_share();
        self.state = State::Up;
    }

    /// Whether to probe again (BBR §5.3.3.8). A probe is due after 1–3 s, or after the number of
    /// rounds that Reno needs to gain a window of this size, but at most 63 rounds. After failed
    /// probes, both limits are multiplied by [`Probe::wait_factor`].
    fn is_time_to_probe(&self, now_s: f64) -> bool {
        let packets = self.product_bytes(1.0).min(self.window_bytes) / self.packet_bytes;
        now_s > self.probe.cycle_began_s + self.probe.wait_s
            || self.probe.rounds as f64 >= packets.min(RENO_ROUNDS) * self.probe.wait_factor()
    }
}

/// Minimum wait between probes, and the range of its random addition (s). BBR §5.3.3.8.3 waits 2–3
/// s, which suits Reno flows. A wait of 1–3 s has a range twice as wide, so several senders rarely
/// probe at the same time. The range was chosen on seeds 1 to 4 of `tests/model`. With 2 to 4 s,
/// the rates of four senders were not closer to each other.
const WAIT_MIN_S: f64 = 1.0;
const WAIT_SPREAD_S: f64 = 2.0;

/// Maximum number of rounds between probes. BBR §5.3.3.8.3: 62 or 63 rounds, because the count
/// begins at 0 or 1 at random.
const RENO_ROUNDS: f64 = 63.0;

/// The golden ratio minus one. The fractional parts of the multiples of this number are spread
/// evenly from 0 to 1 (Weyl).
const GOLDEN_PART: f64 = 0.618_033_988_749_894_9;

/// Pacing gain of the phase Up (BBR §5.6.1).
pub(super) const UP_GAIN: f64 = 1.25;

/// Number of successive rounds after which a queue counts as standing. The queue of a sender's own
/// probe, a quarter or half of the bandwidth–delay product, is drained after about four rounds.
const STANDING_ROUNDS: u32 = 4;

/// Share of the least round-trip time by which a queue must shrink in a round to count as this
/// sender's own queue. If a sender uses the whole link and sends a tenth less, its queue shrinks by
/// a tenth of the least round-trip time in each round. If the sender uses half of the link, the
/// queue shrinks by a twentieth.
const DRAINED_SHARE: f64 = 0.08;

/// Number of packets that a sender may keep in a standing queue: a constant, plus a number for each
/// second of the empty path's round-trip time.
///
/// At 100 Mbit/s, four senders keep 170 packets in a queue of 20 ms, which fill this queue. In a
/// queue of 100 ms they keep 360 packets, which fill less than half. With a smaller number, one
/// sender beside a CUBIC flow gets less than CUBIC at 20 ms. With a larger number, none of four
/// senders yields at 20 ms. A longer path delivers more before all senders have seen the queue and
/// yielded, so each sender may keep more packets: 600 packets a second are 7 Mbit/s. The numbers
/// were chosen on seeds 11 to 15 and 41 to 45 of the lab's paths, at 100 Mbit/s. The numbers do not
/// depend on the rate of the link. If every sender keeps far more packets than this number, all
/// senders yield by the same share.
const KEPT_PACKETS: f64 = 30.0;
const KEPT_PACKETS_S: f64 = 600.0;

/// Largest share that is yielded at once. A measured queue is out of date, so a sender keeps at
/// least two fifths of its bandwidth. Two probes regain the rest.
const YIELD_MAX: f64 = 0.6;

/// A probe ends when the sender's share of the link exceeds this number.
///
/// A sender with a share s of a full link that sends a quarter more gets 1.25 ÷ (1 + s ÷ 4) times
/// as much: 1.11 times as much if s is a half. So a probe continues while bandwidth is free or
/// other flows have more than this flow. The probe ends when this flow has at least half of the
/// link.
const SHARE_MAX: f64 = 0.5;

/// Maximum number of increases in one probe while a queue exists. Three increases by a quarter
/// double the rate. More increases would exceed a fair share if other flows keep a queue.
const RAISES_MAX: u32 = 3;

/// Maximum number of failed probes that lengthen the wait: after two successive probes that lost
/// too many packets and gained nothing, probes are three times as rare.
const FAILED_PROBES_MAX: u32 = 2;
