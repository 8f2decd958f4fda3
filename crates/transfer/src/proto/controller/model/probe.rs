//! Bandwidth probing: when to probe, how far, and what a probe showed (BBR §5.3.3).

use super::state::State;
use super::{BETA, Model, PACING_MARGIN};
use crate::proto::controller::FeedbackSample;

/// Timer of bandwidth probes, and results of the last one.
#[derive(Debug)]
pub(super) struct Probe {
    /// Pseudo-random number in 0..1, evenly spread: fractional parts of multiples of the golden
    /// ratio.
    phase: f64,
    cycle_began_s: f64,
    wait_s: f64,
    pub(super) rounds: u64,
    /// Time (s) since which sent packets probe for bandwidth, while their losses had no response
    /// yet; `None` otherwise.
    sent_since_s: Option<f64>,
    /// A probe has ended, but not all packets that it sent are settled.
    pub(super) is_stopping: bool,
    /// Whether the last probe lost too much; and whether the current probe was stopped before it
    /// lost too much (BBR §5.3.3.6).
    was_too_high: bool,
    was_cut_short: bool,
    /// Consecutive probes that lost too much and gained nothing.
    failed_probes: u32,
    /// Whether the last raise of the rate delivered more.
    has_gained: bool,
    /// Estimated share of this sender in a full link, 0 to 1, from the gains of the last probes.
    share: f64,
    queue: StandingQueue,
    /// Number of rounds of the current probe, and the delivery rate of its last round (bytes a
    /// second).
    raises: u32,
    baseline: f64,
}

/// The standing queue since the last probe.
#[derive(Debug, Default)]
struct StandingQueue {
    /// Consecutive rounds with the queue, and their mean delivery rate (bytes a second at a pacing
    /// gain of 1).
    rounds: u32,
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

    /// Factor on the wait until the next probe.
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

impl Model {
    /// Yields bandwidth if a queue has stood for [`STANDING_ROUNDS`] rounds.
    ///
    /// Such a queue does not come from this sender's probe: together the senders send more than the
    /// link delivers. The new bandwidth is the measured delivery rate, lowered so that at most
    /// [`Model::kept_packets`] packets of this sender stay in the queue.
    ///
    /// All senders see the same queue, so a sender's share of the queue is its share of the link
    /// (in Copa, NSDI 2018, §2, each sender aims at a number of packets). Large shares shrink,
    /// small ones do not.
    pub(super) fn note_queue(&mut self) {
        let least_s = self.round.least_rtt_s;
        let min_s = self.rtt_filter.min_rtt_s().unwrap_or(0.0);
        let got = self.round.bytes_s / (self.state.pacing_gain() * PACING_MARGIN);
        // Subtract the variation of the delay within the round, which is not a standing queue.
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
        // The mean, because the maximum of several rounds exceeds a sender's share, and the sum of
        // these maxima exceeds the link.
        queue.got_bytes_s += (got - queue.got_bytes_s) / f64::from(queue.rounds);
        if queue.rounds == STANDING_ROUNDS {
            let queued_bytes = queue.got_bytes_s * (least_s - min_s);
            let kept = (kept_bytes / queued_bytes).clamp(1.0 - YIELD_MAX, 1.0);
            self.bandwidth.settle(queue.got_bytes_s * kept, self.round.delivered);
            queue.is_answered = true;
        }
    }

    /// Packets that a sender may keep in a standing queue; `min_s` is the round-trip time of the
    /// empty path.
    fn kept_packets(&self, min_s: f64) -> f64 {
        KEPT_PACKETS + KEPT_PACKETS_S * min_s
    }

    /// Advances the phases of ProbeBW (BBR §5.3.3.9).
    pub(super) fn advance_probe_bw(&mut self, now_s: f64, seen: &FeedbackSample<'_>) {
        if self.probe.is_stopping && self.round.has_ended {
            // All packets that the probe sent are settled.
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

    /// Responds to a probe that lost or marked too much (BBR §5.5.10.2). Returns true if that ended
    /// the phase Up.
    fn answer_probe(&mut self, now_s: f64, seen: &FeedbackSample<'_>) -> bool {
        let Some(since) = self.probe.sent_since_s else { return false };
        let flight = seen.delivery.map_or(0.0, |delivery| delivery.in_flight_bytes as f64);
        let flight_packets = flight / self.packet_bytes;
        // While a raise still gains, losses may be caused by other flows; marks always count (BBR
        // §3.7).
        let is_gaining = self.state == State::Up && self.probe.has_gained;
        if !(self.round.is_heavy(flight_packets) && !is_gaining
            || self.round.is_heavily_marked(flight_packets))
        {
            return false;
        }
        let lost_at = seen.losses.iter().rfind(|loss| loss.sent.as_secs_f64() >= since);
        let in_flight = lost_at.map_or(flight, |loss| loss.in_flight_bytes as f64);
        self.probe.was_too_high = true;
        // A probe that was cut off before its gain was known decides nothing; the next one does.
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

    /// Advances the phase Up (BBR §5.3.3.7). Unlike in BBR, a probe ends by what it gained: see
    /// [`SHARE_MAX`].
    fn advance_up(&mut self, now_s: f64, seen: &FeedbackSample<'_>) {
        // Bytes in flight before this feedback: the window limits these, not what is left.
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
            // The rate was raised but not used. Such a probe neither gains nor shows anything, so
            // end it.
            self.go_down(now_s);
            return;
        }
        let latest = self.round.bytes_s;
        // The first round settles packets sent before; the other rounds are compared with it.
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

    /// Whether to probe again (BBR §5.3.3.8): after 1–3 s, or after as many rounds as Reno needs to
    /// gain a window of this size, at most 63.
    fn is_time_to_probe(&self, now_s: f64) -> bool {
        let packets = self.product_bytes(1.0).min(self.window_bytes) / self.packet_bytes;
        now_s > self.probe.cycle_began_s + self.probe.wait_s
            || self.probe.rounds as f64 >= packets.min(RENO_ROUNDS) * self.probe.wait_factor()
    }
}

/// BBR §5.3.3.8.3 waits 2–3 s, which suits Reno flows. A wait of 1–3 s, a range twice as wide,
/// keeps the probes of several senders apart. The range was chosen on seeds 1 to 4 of
/// `tests/model`; 2 to 4 s brought four senders no closer to each other.
const WAIT_MIN_S: f64 = 1.0;
const WAIT_SPREAD_S: f64 = 2.0;

/// BBR §5.3.3.8.3: 62 or 63 rounds; the count begins at 0 or 1.
const RENO_ROUNDS: f64 = 63.0;

/// The golden ratio minus one. Its multiples fill 0..1 evenly (Weyl).
const GOLDEN_PART: f64 = 0.618_033_988_749_894_9;

/// Pacing gain of the phase Up (BBR §5.6.1).
pub(super) const UP_GAIN: f64 = 1.25;

/// Rounds after which a queue counts as standing. The queue of a sender's own probe, a quarter or
/// half of the product, is drained after about four rounds.
const STANDING_ROUNDS: u32 = 4;

/// Share of the least round-trip time by which a queue must shrink in a round to count as this
/// sender's own. If a sender alone on a link sends a tenth less, its queue shrinks by a tenth of
/// that time in each round; with half of the link, by a twentieth.
const DRAINED_SHARE: f64 = 0.08;

/// Packets that a sender may keep in a standing queue: a constant, and more for each second of the
/// empty path's round trip.
///
/// Four senders keep 170 packets in a queue of 20 ms at 100 Mbit/s, which is all that it holds, and
/// 360 at 100 ms, which is less than half. With a smaller number, one sender beside a CUBIC flow
/// falls behind it at 20 ms; with a larger one, none of four senders yields there. A longer path
/// delivers more before all senders have seen the queue and yielded, so each may keep more: 600
/// packets a second are 7 Mbit/s. The numbers were chosen on seeds 11 to 15 and 41 to 45 of the
/// lab's paths, at 100 Mbit/s. They are absolute: if every share of a long path is far above them,
/// all senders yield alike.
const KEPT_PACKETS: f64 = 30.0;
const KEPT_PACKETS_S: f64 = 600.0;

/// Largest share that is yielded at once. A measured queue is out of date, so at least two fifths
/// remain; two probes win the rest back.
const YIELD_MAX: f64 = 0.6;

/// A probe ends when the sender's share of the link exceeds this.
///
/// A sender with a share s of a full link that sends a quarter more gets 1.25 ÷ (1 + s ÷ 4) times
/// as much: 1.11 at a half. So a probe goes on while bandwidth is free or other flows have more,
/// and ends when this flow has half or all of the link.
const SHARE_MAX: f64 = 0.5;

/// Three raises by a quarter double the rate. More in one probe would exceed a fair share if other
/// flows keep a queue.
const RAISES_MAX: u32 = 3;

/// Probes that gained nothing and cost other flows packets become up to three times as rare.
const FAILED_PROBES_MAX: u32 = 2;
