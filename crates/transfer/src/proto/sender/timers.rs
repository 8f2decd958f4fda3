//! Timers that run while no feedback comes.

use std::time::Duration;

use crate::proto::Rtt;
use crate::proto::rtt::REPORT_WAIT;

/// When packets were sent and feedback came, and what was done without feedback.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Start of the probe timer: the last packet, new acknowledgement or probe.
    probe_timer_start: Duration,
    probes: u32,
    is_probe_due: bool,
    /// Start of the silence: the last new feedback, or the first packet in flight; `None` before
    /// the first packet.
    silent_since: Option<Duration>,
    /// When the no-feedback timer was set.
    no_feedback_set: Duration,
    /// When the last note was sent.
    note_sent: Option<Duration>,
}

impl Timers {
    pub(super) fn sent(&mut self, now: Duration, is_first_under_way: bool) {
        self.probe_timer_start = now;
        if is_first_under_way || self.silent_since.is_none() {
            (self.silent_since, self.no_feedback_set) = (Some(now), now);
        }
    }

    /// Records feedback with new information; `is_new` if it acknowledged packets.
    pub(super) fn on_feedback(&mut self, now: Duration, is_new: bool) {
        (self.silent_since, self.no_feedback_set) = (self.silent_since.map(|_| now), now);
        if is_new {
            (self.probe_timer_start, self.probes, self.is_probe_due) = (now, 0, false);
        }
    }

    pub(super) fn silence(&self, now: Duration) -> Duration {
        self.silent_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    pub(super) fn is_probe_due(&self) -> bool {
        self.is_probe_due
    }

    pub(super) fn takes_probe(&mut self) -> bool {
        std::mem::take(&mut self.is_probe_due)
    }

    /// When the next probe packet is due, if packets are in flight (RFC 9002 §6.2.1). The time
    /// doubles with each probe, up to [`PROBE_MAX`].
    pub(super) fn probe_at(&self, rtt: &Rtt) -> Option<Duration> {
        let once = rtt.probe_timeout();
        let backed_off = once.saturating_mul(1 << self.probes.min(DOUBLINGS_MAX)).min(PROBE_MAX.max(once));
        (!self.is_probe_due).then(|| self.probe_timer_start + backed_off)
    }

    /// When the no-feedback timer expires (RFC 5348 §4.3): max(4R, 2s/X) after it was set; 2 s
    /// before the first round-trip time (§4.2).
    ///
    /// R is the round-trip time, or the receiver's report timer if that is longer; s is
    /// `packet_bytes`, X is `rate_bytes_s`.
    pub(super) fn silence_at(&self, rtt: &Rtt, packet_bytes: u64, rate_bytes_s: f64) -> Duration {
        let seconds = 2.0 * packet_bytes as f64 / rate_bytes_s;
        let two_packets = Duration::try_from_secs_f64(seconds).unwrap_or(SILENCE_MAX);
        let round_trips = rtt.latest.map_or(FIRST_SILENCE, |_| rtt.smoothed.max(REPORT_WAIT) * 4);
        self.no_feedback_set + round_trips.max(two_packets).min(SILENCE_MAX)
    }

    /// Restarts the expired no-feedback timer.
    pub(super) fn silence_ended(&mut self, now: Duration) {
        self.no_feedback_set = now;
    }

    /// Makes a probe packet due now.
    pub(super) fn make_probe_due(&mut self, now: Duration) {
        self.is_probe_due = true;
        self.probes = self.probes.saturating_add(1);
        self.probe_timer_start = now;
    }

    /// Whether a note is due: at least twice a round trip.
    pub(super) fn is_note_due(&self, now: Duration, rtt: &Rtt) -> bool {
        self.note_sent.is_none_or(|note_sent| note_sent + rtt.smoothed / 2 <= now)
    }

    pub(super) fn note_sent(&mut self, now: Duration) {
        self.note_sent = Some(now);
    }
}

/// 2^10 times any timeout is above [`PROBE_MAX`].
const DOUBLINGS_MAX: u32 = 10;
/// Longest time between probes. One packet in this time is no load on any path, and soon detects a
/// path that works again.
const PROBE_MAX: Duration = Duration::from_secs(4);
/// No-feedback timer before the first round-trip time (RFC 5348 §4.2).
const FIRST_SILENCE: Duration = Duration::from_secs(2);
/// Longest no-feedback timer (RFC 5348 §4.3, t_mbi).
const SILENCE_MAX: Duration = Duration::from_secs(64);
