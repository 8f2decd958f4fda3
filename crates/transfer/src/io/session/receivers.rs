//! Chooses the next of several receivers that share the same storage. Pure.

use std::time::Duration;

use super::SessionError;
use crate::io::control::RefuseReason;
use crate::io::flow::FlowError;

/// Receivers that share the storage, in the given order.
#[derive(Debug)]
pub(super) struct ReceiverRotation {
    /// For each receiver, whether the receiver's host lost too many packets.
    overloaded: Vec<bool>,
    at: usize,
    /// `failed_sessions`: number of consecutive sessions without progress. `since`: end of the
    /// first of these sessions. `is_busy`: whether any of these sessions found the files locked.
    failed_sessions: usize,
    since: Option<Duration>,
    is_busy: bool,
    /// Maximum number of bytes that were reported as durable so far.
    durable_bytes: u64,
}

/// Why a session ended, as far as it matters for the next receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailoverCause {
    /// The receiver cannot be reached or refuses; a different one may accept.
    Gone,
    /// An earlier session still has a lock on the partial files, perhaps because that session has
    /// not ended yet.
    Busy,
    /// The receiver's host lost too many packets.
    ReceiverOverloaded,
    /// No other receiver would do better.
    Permanent,
}

impl FailoverCause {
    fn of(error: &SessionError) -> Self {
        match error {
            SessionError::ReceiverOverloaded { .. } => Self::ReceiverOverloaded,
            SessionError::ConnectionLost(_) | SessionError::Control(_) => Self::Gone,
            // A problem of this receiver, or of the path to it.
            SessionError::Incompatible(_) | SessionError::System { .. } => Self::Gone,
            SessionError::Flow(FlowError::NoFeedback(..)) => Self::Gone,
            SessionError::Refused { reason, .. } => match reason {
                RefuseReason::Busy => Self::Busy,
                RefuseReason::NotAllowed | RefuseReason::Stopped | RefuseReason::Failed => Self::Gone,
                _ => Self::Permanent,
            },
            _ => Self::Permanent,
        }
    }
}

impl ReceiverRotation {
    /// Starts with the first of `count` receivers. `count` is at least 1.
    pub(super) fn new(count: usize) -> Self {
        let overloaded = vec![false; count.max(1)];
        Self { overloaded, at: 0, failed_sessions: 0, since: None, is_busy: false, durable_bytes: 0 }
    }

    /// Index of the present receiver.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Whether the sender may leave this receiver if its host loses too many packets: true if there
    /// is a different receiver that was not yet left for this reason.
    pub(super) fn may_leave(&self) -> bool {
        self.overloaded.iter().enumerate().any(|(index, overloaded)| index != self.at && !overloaded)
    }

    /// Chooses the receiver after a session that ended with `error` when `durable_bytes` were
    /// durable. Returns how long to wait before the session at [`at`](Self::at) begins; `None` if a
    /// further session would not help.
    pub(super) fn after(
        &mut self,
        now: Duration,
        error: &SessionError,
        durable_bytes: u64,
    ) -> Option<Duration> {
        let cause = FailoverCause::of(error);
        if self.overloaded.len() < 2 || cause == FailoverCause::Permanent {
            return None;
        }
        if self.durable_bytes < durable_bytes {
            self.durable_bytes = durable_bytes;
            (self.failed_sessions, self.since, self.is_busy) = (0, None, false);
        }
        let since = *self.since.get_or_insert(now);
        if cause == FailoverCause::ReceiverOverloaded {
            self.leave();
            return Some(Duration::ZERO);
        }
        let is_waited_for = now.saturating_sub(since) < BUSY_MAX;
        if cause == FailoverCause::Busy && is_waited_for && self.overloaded.get(self.at) == Some(&false) {
            // The previous session may not have ended yet. If all other receivers were left because
            // their hosts lose packets, wait at this receiver until the lock of the previous
            // session is free.
            if !self.may_leave() {
                return Some(BUSY_EVERY);
            }
            self.at = self.next();
        } else {
            self.at = (self.at + 1) % self.overloaded.len();
        }
        self.is_busy |= cause == FailoverCause::Busy;
        self.failed_sessions += 1;
        if self.failed_sessions < self.overloaded.len() {
            return Some(Duration::ZERO);
        }
        // All receivers were tried.
        self.failed_sessions = 0;
        (self.is_busy && is_waited_for).then_some(BUSY_EVERY)
    }

    fn leave(&mut self) {
        if let Some(overloaded) = self.overloaded.get_mut(self.at) {
            *overloaded = true;
        }
        self.at = self.next();
    }

    /// Index of the next receiver that was not left. If all receivers were left, the index after
    /// the present one.
    fn next(&self) -> usize {
        let count = self.overloaded.len();
        let mut others = (1..count).map(|step| (self.at + step) % count);
        let next = others.find(|index| self.overloaded.get(*index) == Some(&false));
        next.unwrap_or((self.at + 1) % count)
    }
}

/// Longest wait for a lock. An NFS server keeps the locks of a dead host for the time of a lease,
/// 90 s in Linux.
const BUSY_MAX: Duration = Duration::from_secs(120);
/// Wait between tries; each receiver itself waits for the lock for 3 s.
const BUSY_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileError;
    use crate::io::control::ControlError;

    const NOW: Duration = Duration::ZERO;

    fn lost() -> SessionError {
        SessionError::ConnectionLost(ControlError::CutOff)
    }

    fn refused(reason: RefuseReason) -> SessionError {
        SessionError::Refused { reason, text: String::new() }
    }

    fn overloaded() -> SessionError {
        SessionError::ReceiverOverloaded { lost: 0.1 }
    }

    #[test]
    fn rotation_ends_when_no_receiver_makes_progress() {
        let mut receivers = ReceiverRotation::new(3);
        assert_eq!(receivers.after(NOW, &lost(), 0), Some(NOW));
        assert_eq!(
            (receivers.at(), receivers.after(NOW, &refused(RefuseReason::Stopped), 0)),
            (1, Some(NOW))
        );
        assert_eq!((receivers.at(), receivers.after(NOW, &lost(), 0)), (2, None));

        // Each receiver makes progress before it dies.
        let mut receivers = ReceiverRotation::new(2);
        for durable in 1..10 {
            assert_eq!(receivers.at(), (durable as usize - 1) % 2);
            assert_eq!(receivers.after(NOW, &lost(), durable), Some(NOW));
        }
        assert_eq!(receivers.after(NOW, &lost(), 9), None);
    }

    #[test]
    fn rotation_ends_on_an_error_that_every_receiver_would_return() {
        for error in [
            refused(RefuseReason::Full),
            refused(RefuseReason::Digest),
            SessionError::File(FileError::Busy("a".into())),
            SessionError::Flow(FlowError::Stopped),
            SessionError::Protocol(String::new()),
        ] {
            assert_eq!(ReceiverRotation::new(2).after(NOW, &error, 1), None, "{error:?}");
        }
        assert_eq!(ReceiverRotation::new(1).after(NOW, &lost(), 1), None, "there is no other");
    }

    #[test]
    fn waiting_for_the_locks_of_a_dead_host_has_a_time_limit() {
        let mut receivers = ReceiverRotation::new(2);
        let (mut now, mut ends) = (NOW, vec![]);
        for _ in 0..1000 {
            let error = if receivers.at() == 0 { lost() } else { refused(RefuseReason::Busy) };
            match receivers.after(now, &error, 5) {
                Some(wait) => now += wait,
                None => {
                    ends.push(now);
                    break;
                }
            }
        }
        assert_eq!(ends, [BUSY_MAX]);
    }

    #[test]
    fn the_sender_waits_for_a_lock_at_the_next_receiver() {
        let mut receivers = ReceiverRotation::new(2);
        assert_eq!(receivers.after(NOW, &overloaded(), 0), Some(NOW));
        for wait in 0..120 {
            let now = BUSY_EVERY * wait;
            assert_eq!(
                (receivers.at(), receivers.after(now, &refused(RefuseReason::Busy), 0)),
                (1, Some(BUSY_EVERY))
            );
        }
        assert_eq!(receivers.after(BUSY_MAX, &refused(RefuseReason::Busy), 0), Some(NOW));
        assert_eq!(receivers.at(), 0, "better such a host than none");

        // Receivers 1 and 2 were not left, and both are tried alternately.
        let mut receivers = ReceiverRotation::new(3);
        assert_eq!(receivers.after(NOW, &overloaded(), 0), Some(NOW));
        for at in [1, 2, 1, 2] {
            assert_eq!(receivers.at(), at);
            assert!(receivers.after(NOW, &refused(RefuseReason::Busy), 0).is_some());
        }
    }

    #[test]
    fn an_error_of_one_receiver_leads_to_the_next_receiver() {
        let system = SessionError::System { what: "a UDP socket", source: std::io::Error::other("no route") };
        for error in [SessionError::Incompatible("the path"), system] {
            let mut receivers = ReceiverRotation::new(2);
            assert_eq!((receivers.after(NOW, &error, 0), receivers.at()), (Some(NOW), 1), "{error}");
            assert_eq!(receivers.after(NOW, &error, 0), None, "{error}");
        }
    }

    #[test]
    fn each_receiver_is_left_at_most_once_for_overload() {
        let mut receivers = ReceiverRotation::new(2);
        assert!(receivers.may_leave());
        assert_eq!(receivers.after(NOW, &overloaded(), 0), Some(NOW));
        assert_eq!((receivers.at(), receivers.may_leave()), (1, false), "the other lost too much before");
        // A host that loses packets is still better than no host.
        assert_eq!(receivers.after(NOW, &lost(), 0), Some(NOW));
        assert_eq!((receivers.at(), receivers.may_leave()), (0, true));
        assert!(!ReceiverRotation::new(1).may_leave());
    }
}
