//! Serves the control connection while work runs in other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::SessionError;
use crate::files::FileError;
use crate::io::control::{Channel, Message};
use crate::io::flow::FlowError;

/// Interval at which to check whether work in a different thread has ended.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Shorter interval at the start and the end of a transfer, because a short transfer has only a
/// start and an end.
const POLL_INTERVAL_SOON: Duration = Duration::from_millis(1);
/// Time for which the shorter interval is used: if work takes longer, an interval of 10 ms adds at
/// most a tenth to the time of the work.
const SOON_FOR: Duration = Duration::from_millis(100);

/// Intervals at which to check whether other work has ended.
#[derive(Debug, Default)]
pub(super) struct PollInterval {
    soon_since: Option<Instant>,
}

impl PollInterval {
    /// Returns the next interval. If `is_soon` is set, the end of the work is near, and the
    /// interval is shorter for the first [`SOON_FOR`].
    pub(super) fn every(&mut self, is_soon: bool) -> Duration {
        if !is_soon {
            self.soon_since = None;
            return POLL_INTERVAL;
        }
        let since = self.soon_since.get_or_insert_with(Instant::now);
        if since.elapsed() < SOON_FOR { POLL_INTERVAL_SOON } else { POLL_INTERVAL }
    }
}

/// Starts work in a separate thread.
pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<JoinHandle<Result<T, SessionError>>, SessionError> {
    Builder::new().name(name.into()).spawn(work).map_err(SessionError::system("a thread"))
}

/// Waits for work and returns its result.
pub(super) fn result<T>(work: JoinHandle<Result<T, SessionError>>) -> Result<T, SessionError> {
    work.join().unwrap_or_else(|_| Err(SessionError::broken()))
}

/// Waits for work, while pings show the other end that this end is alive. During this call, the
/// other end may send only pings.
///
/// If the connection ends or `stop` is set, this call sets `is_over`, and then the work must end.
/// The call waits for the work in any case. If both the work and the connection fail, the error of
/// the work is returned.
pub(super) fn wait_for_work<T>(
    channel: &mut Channel,
    work: JoinHandle<Result<T, SessionError>>,
    stop: &AtomicBool,
    is_over: &AtomicBool,
) -> Result<T, SessionError> {
    let (mut lost, mut interval) = (None, PollInterval::default());
    while !work.is_finished() {
        if lost.is_some() || stop.load(Ordering::Relaxed) {
            break;
        }
        match channel.receive(interval.every(true)) {
            Ok(None) => {}
            Ok(Some(message)) => {
                lost = Some(SessionError::Protocol(format!("{} is not expected here", name(&message))));
            }
            Err(error) => lost = Some(SessionError::connection_lost(error)),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    match result(work) {
        Err(SessionError::File(FileError::Stopped)) => Err(lost.unwrap_or(FlowError::Stopped.into())),
        Ok(came) => lost.map_or(Ok(came), Err),
        Err(error) => Err(error),
    }
}

/// Sends a message. If the message cannot be sent, the other end may have sent a Refuse before.
/// Then the error is the reason of the Refuse.
pub(super) fn send_message(channel: &mut Channel, message: &Message) -> Result<(), SessionError> {
    channel.send(message).map_err(|error| match channel.receive(Duration::ZERO) {
        Err(why) => SessionError::connection_lost(why),
        Ok(_) => SessionError::connection_lost(error),
    })
}

pub(super) fn check_stop(stop: &AtomicBool) -> Result<(), SessionError> {
    if stop.load(Ordering::Relaxed) { Err(FlowError::Stopped.into()) } else { Ok(()) }
}

/// Name of a message, for error messages.
pub(super) fn name(message: &Message) -> &'static str {
    match message {
        Message::Hello { .. } => "Hello",
        Message::Welcome { .. } => "Welcome",
        Message::Offer { .. } => "Offer",
        Message::Accept { .. } => "Accept",
        Message::Durable(_) => "Durable",
        Message::Ping => "Ping",
        Message::Digests(_) => "Digests",
        Message::Done => "Done",
        Message::Refuse { .. } => "Refuse",
    }
}
