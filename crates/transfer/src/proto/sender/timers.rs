//! Timers of a sender: the probe timer, the no-feedback timer, and when notes are due.

use std::time::Duration;

use crate::proto::Rtt;
use crate::proto::rtt::REPORT_WAIT;

/// Times when packets were sent and feedback came, and the number of probes since the last new
/// acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Start of the probe timer: time of the last sent packet, new acknowledgement or probe.
    probe_timer_start: Duration,
    probes: u32,
    is_probe_due: bool,
    /// Start of the time without feedback: time of the last new feedback, or of the first packet in
    /// flight if that is later; `None` before the first packet.
    silent_since: Option<Duration>,
    /// Time when the no-feedback timer was last started: by new feedback, by its expiry, or by a
    /// packet sent while none was in flight. Other packets do not restart it (RFC 5348 §4.3).
    no_feedback_timer_start: Duration,
    note_sent: Option<Duration>,
}

impl Timers {
    pub(super) fn sent(&mut self, now: Duration, is_first_in_flight: bool) {
        self.probe_timer_start = now;
        if is_first_in_flight {
            (self.silent_since, self.no_feedback_timer_start) = (Some(now), now);
        }
    }

    /// Records feedback with new information; `has_acked` is true if the feedback acknowledged
    /// packets.
    pub(super) fn on_feedback(&mut self, now: Duration, has_acked: bool) {
        (self.silent_since, self.no_feedback_timer_start) = (self.silent_since.map(|_| now), now);
        if has_acked {
            (self.probe_timer_start, self.probes, self.is_probe_due) = (now, 0, false);
        }
    }

    pub(super) fn silence(&self, now: Duration) -> Duration {
        self.silent_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    pub(super) fn is_probe_due(&self) -> bool {
        self.is_probe_due
    }

    pub(super) fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.is_probe_due)
    }

    /// Returns when the next probe packet is due, if packets are in flight (RFC 9002 §6.2.1). The
    /// wait doubles with each probe, up to [`PROBE_MAX`]. `None` if a probe is already due.
    pub(super) fn probe_at(&self, rtt: &Rtt) -> Option<Duration> {
        let once = rtt.probe_timeout();
        let backed_off = once.saturating_mul(1 << self.probes.min(DOUBLINGS_MAX)).min(PROBE_MAX.max(once));
        (!self.is_probe_due).then(|| self.probe_timer_start + backed_off)
    }

    /// Returns when the no-feedback timer expires (RFC 5348 §4.3): max(4R, 2s/X) after the timer
    /// was started. Before the first round-trip time, 4R is replaced by 2 s (§4.2).
    ///
    /// R is the round-trip time, or the receiver's report timer if that is longer; s is
    /// `packet_bytes`, X is `rate_bytes_s`.
    pub(super) fn no_feedback_at(&self, rtt: &Rtt, packet_bytes: u64, rate_bytes_s: f64) -> Duration {
        let seconds = 2.0 * packet_bytes as f64 / rate_bytes_s;
        let two_packets = Duration::try_from_secs_f64(seconds).unwrap_or(NO_FEEDBACK_MAX);
        let round_trips = rtt.latest.map_or(NO_FEEDBACK_FIRST, |_| rtt.smoothed.max(REPORT_WAIT) * 4);
        self.no_feedback_timer_start + round_trips.max(two_packets).min(NO_FEEDBACK_MAX)
    }

    pub(super) fn restart_no_feedback_timer(&mut self, now: Duration) {
        self.no_feedback_timer_start = now;
    }

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

/// Maximum number of times that the wait for a probe doubles. 2^10 times any probe timeout is
/// longer than [`PROBE_MAX`].
const DOUBLINGS_MAX: u32 = 10;
/// Longest time between probes. One packet in 4 s is no load on any path. The sender still soon
/// detects when the path works again.
const PROBE_MAX: Duration = Duration::from_secs(4);
/// Duration of the no-feedback timer before the first round-trip time (RFC 5348 §4.2).
const NO_FEEDBACK_FIRST: Duration = Duration::from_secs(2);
/// Maximum duration of the no-feedback timer (RFC 5348 §4.3, t_mbi).
const NO_FEEDBACK_MAX: Duration = Duration::from_secs(64);
