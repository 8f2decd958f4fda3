//! One control connection: messages in both directions over TLS 1.3 and TCP.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::Connection;

use super::codec::{HEAD_BYTES, MANIFEST_BYTES_MAX, decode, encode, head};
use super::error::{ControlError, SENDING};
use super::order::{ControlEnd, ControlPhase};
use super::pipe::{ConnectionEnd, TlsStream};
use super::{Message, RefuseReason};
use crate::io::identity::{ALPN, Fingerprint};
use crate::io::seal::Secrets;

/// Time limits of a control connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Longest time for TLS, Hello and Welcome together, however slowly bytes arrive. The same
    /// limit then applies from Welcome until an Offer starts to arrive.
    pub entry_max: Duration,
    /// Longest time from the first byte of a message to its last, in addition to the time that its
    /// length takes at [`PACE`].
    pub message_max: Duration,
    /// Time after which a Ping is sent if no other message was sent.
    pub ping_every: Duration,
    /// Time without any received bytes after which the other end counts as dead.
    pub silence_max: Duration,
}

impl Default for Times {
    /// Ten seconds for each message allow three retransmissions of TCP (RFC 6298 §2: after 1, 3 and
    /// 7 s). `silence_max` is five ping intervals and one second.
    fn default() -> Self {
        Self {
            entry_max: Duration::from_secs(10),
            message_max: Duration::from_secs(10),
            ping_every: Duration::from_secs(5),
            silence_max: Duration::from_secs(26),
        }
    }
}

/// Minimum rate of a long message, in bytes a second: 1 Mbit/s, at which the largest manifest takes
/// 17 minutes.
const PACE: u32 = 1 << 17;

/// Time between two checks of a waiting thread whether to stop.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Longest time for one wait. There is a limit because the sum of a time and a wait must not exceed
/// the range of the clock.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Label of the exporter (RFC 5705 §4: this prefix needs no registration).
const LABEL: &[u8] = b"EXPERIMENTAL barograph-transfer/1";

/// One end of a control connection, for one thread. The thread calls [`Channel::receive`]
/// repeatedly, which also sends queued bytes and pings.
#[derive(Debug)]
pub struct Channel {
    pipe: TlsStream,
    peer: SocketAddr,
    local: SocketAddr,
    end: ControlEnd,
    phase: ControlPhase,
    times: Times,
    manifest_bytes_max: u64,
    /// Bytes of messages that are not complete yet.
    inbox: Vec<u8>,
    /// Time when the first bytes of the incomplete message arrived; `None` if no message is
    /// incomplete.
    receiving_since: Option<Instant>,
    /// Received messages, without Ping, and with only the last of consecutive Durable messages.
    received: VecDeque<Message>,
    /// Time since which queued bytes wait to be sent, and the number of bytes queued since then.
    out: Option<(Instant, usize)>,
    began: Instant,
    /// When this end sent Welcome.
    welcomed_at: Option<Instant>,
    last_received: Instant,
    last_sent: Instant,
}

impl Channel {
    /// Creates a channel over a connected socket. The handshake runs with the first message.
    pub(super) fn new(
        stream: TcpStream,
        tls: Connection,
        end: ControlEnd,
        manifest_bytes_max: u64,
        times: Times,
    ) -> Result<Self, ControlError> {
        let now = Instant::now();
        Ok(Self {
            peer: canonical(stream.peer_addr()?),
            local: canonical(stream.local_addr()?),
            pipe: TlsStream::new(stream, tls)?,
            end,
            phase: ControlPhase::Start,
            times,
            manifest_bytes_max: manifest_bytes_max.min(MANIFEST_BYTES_MAX),
            inbox: vec![],
            receiving_since: None,
            received: VecDeque::new(),
            out: None,
            began: now,
            welcomed_at: None,
            last_received: now,
            last_sent: now,
        })
    }

    /// The other end's address. The handshake validated this address (RFC 9000 §8.1), so datagrams
    /// may be sent to this address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address, which the system chose by the route to the peer.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Fingerprint of the other end's certificate, if that end sent one.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.pipe
            .tls
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(|certificate| Fingerprint::of(certificate))
    }

    /// The secrets of a transfer's datagrams, equal at both ends: the exporter (RFC 8446 §7.5) with
    /// the transfer's identifier as context.
    /// Errors: the handshake is not complete.
    pub fn secrets(&self, transfer: u32) -> Result<Secrets, ControlError> {
        let both = self.pipe.tls.export_keying_material([0; 64], LABEL, Some(&transfer.to_be_bytes()))?;
        let mut secrets = Secrets { data: [0; 32], feedback: [0; 32] };
        let (data, feedback) = both.split_at(32);
        secrets.data.copy_from_slice(data);
        secrets.feedback.copy_from_slice(feedback);
        Ok(secrets)
    }

    /// Queues a message without waiting. What the socket does not accept at once is sent by
    /// [`Channel::receive`] and [`Channel::flush`].
    /// Errors: the message is out of order or too long; the connection is over.
    pub fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        let kind = message.kind();
        let next = self.phase.after(kind, self.end).ok_or(ControlError::SentOutOfOrder(kind))?;
        let frame = encode(message)?;
        self.phase = next;
        let now = Instant::now();
        if next == ControlPhase::Welcomed {
            self.welcomed_at.get_or_insert(now);
        }
        self.last_sent = now;
        let (since, bytes) = self.out.unwrap_or((now, 0));
        self.out = Some((since, bytes + frame.len()));
        self.pipe.put(&frame);
        self.push()
    }

    /// Returns the next message; `None` if no message arrived within `within`. If `within` is
    /// longer than a day, it counts as a day.
    ///
    /// A Ping is not returned: it only shows that the other end is alive. Only the last of
    /// consecutive [`Message::Durable`]s is returned. Errors: [`ControlError::Refused`] if the
    /// other end refuses; a message that is wrong or too slow; the end of the connection.
    pub fn receive(&mut self, within: Duration) -> Result<Option<Message>, ControlError> {
        let until = Instant::now() + within.min(DAY);
        loop {
            match self.received.pop_front() {
                Some(Message::Refuse { reason, text }) => return Err(ControlError::Refused { reason, text }),
                Some(message) => return Ok(Some(message)),
                None => {}
            }
            match self.over() {
                Some(ConnectionEnd::Closed) => return Err(ControlError::Closed),
                Some(ConnectionEnd::CutOff) => return Err(ControlError::CutOff),
                None => {}
            }
            self.turn(until)?;
            if self.received.is_empty() && self.over().is_none() && until <= Instant::now() {
                return Ok(None);
            }
        }
    }

    /// Like [`Channel::receive`], but waits for as long as the protocol allows, or until `stop` is
    /// set. Errors: those of [`Channel::receive`], and [`ControlError::Stopped`] within 0.1 s.
    pub fn wait(&mut self, stop: &AtomicBool) -> Result<Message, ControlError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(ControlError::Stopped);
            }
            if let Some(message) = self.receive(POLL_INTERVAL)? {
                return Ok(message);
            }
        }
    }

    /// Waits until all queued messages are sent, or `stop` is set. Messages that arrive meanwhile
    /// are kept.
    /// Errors: as [`Channel::wait`].
    pub fn flush(&mut self, stop: &AtomicBool) -> Result<(), ControlError> {
        while self.pipe.has_more() && self.over().is_none() {
            if stop.load(Ordering::Relaxed) {
                return Err(ControlError::Stopped);
            }
            self.turn(Instant::now() + POLL_INTERVAL)?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn set_times(&mut self, times: Times) {
        self.times = times;
    }

    /// Shuts the socket down without close_notify, as the system does when a process dies.
    #[cfg(test)]
    pub(super) fn shut_socket(&self) {
        let _ = self.pipe.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Whether a part of a message has arrived, but not all of it.
    #[cfg(test)]
    pub(super) fn is_amid(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Number of received messages that were not returned yet.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.received.len()
    }

    /// Sends any bytes, even if they are not a message.
    #[cfg(test)]
    pub(super) fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.pipe.put(bytes);
        self.push()
    }

    /// Whether the TLS handshake is not complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.pipe.tls.is_handshaking()
    }

    /// Sends the reason for a refusal, and then ends the connection like [`Channel::close`].
    pub fn refuse(mut self, reason: RefuseReason, text: &str) {
        // If the reason cannot be sent, the other end only detects that the connection ended.
        let _ = self.send(&Message::Refuse { reason, text: text.into() });
        self.close();
    }

    /// Ends the connection in order: sends queued bytes and TLS's close_notify (RFC 8446 §6.1), and
    /// gives the other end up to a second to read them.
    pub fn close(mut self) {
        let until = Instant::now() + CLOSING_MAX;
        while self.pipe.has_more() && Instant::now() < until && self.over().is_none() {
            if self.turn(until).is_err() {
                break;
            }
        }
        self.pipe.close(until);
    }

    /// Waits until bytes can be sent or received, at most until `until`; then sends and receives
    /// once.
    fn turn(&mut self, until: Instant) -> Result<(), ControlError> {
        self.push()?;
        let now = Instant::now();
        let due = self.deadlines().into_iter().flatten().map(|(_, since, limit)| since + limit).min();
        let ping =
            self.times.ping_every.saturating_sub(now.duration_since(self.last_sent)).max(POLL_INTERVAL);
        self.pipe.poll(until.min(due.unwrap_or(until)).min(now + ping))?;
        // Read before the deadlines are checked. Then bytes that arrived in time are accepted, even
        // if this function is called late.
        self.pull()?;
        self.push()?;
        self.ping()?;
        let now = Instant::now();
        match self.deadlines().into_iter().flatten().find(|(_, since, limit)| *since + *limit < now) {
            Some((what, _, limit)) if self.over().is_none() => Err(ControlError::Timeout { what, limit }),
            _ => Ok(()),
        }
    }

    fn push(&mut self) -> Result<(), ControlError> {
        self.pipe.push()?;
        if !self.pipe.has_more() {
            self.out = None;
        }
        Ok(())
    }

    /// Reads what arrived, up to a limit, so that the caller's other work is not delayed.
    fn pull(&mut self) -> Result<(), ControlError> {
        for _ in 0..READS_MAX {
            let before = self.inbox.len();
            let is_more = self.pipe.pull(&mut self.inbox)?;
            if before < self.inbox.len() {
                self.last_received = Instant::now();
                self.take_messages()?;
            }
            if !is_more {
                break;
            }
        }
        Ok(())
    }

    fn take_messages(&mut self) -> Result<(), ControlError> {
        let mut taken = 0;
        while let Some((kind, length)) =
            head(self.inbox.get(taken..).unwrap_or_default(), self.manifest_bytes_max)?
        {
            // Check the order before the body arrives, so that no memory is used for a message that
            // is out of order.
            let from = if self.end == ControlEnd::Sender { ControlEnd::Receiver } else { ControlEnd::Sender };
            let next = self.phase.after(kind, from).ok_or(ControlError::Order(kind))?;
            if self.pipe.tls.alpn_protocol() != Some(ALPN) {
                return Err(ControlError::Alpn);
            }
            let body = taken + HEAD_BYTES..taken + HEAD_BYTES + length;
            let Some(body) = self.inbox.get(body) else { break };
            let message = decode(kind, body)?;
            taken += HEAD_BYTES + length;
            self.phase = next;
            self.receiving_since = None;
            match (&message, self.received.back_mut()) {
                (Message::Ping, _) => {}
                (Message::Durable(_), Some(last @ Message::Durable(_))) => *last = message,
                // The first Refuse has the reason. Later messages are dropped, so that they take no
                // memory.
                (Message::Refuse { .. }, Some(Message::Refuse { .. })) => {}
                _ => self.received.push_back(message),
            }
        }
        self.inbox.drain(..taken);
        if self.inbox.is_empty() {
            self.receiving_since = None;
            self.inbox = vec![];
        } else {
            self.receiving_since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Longest time for a message of `bytes`.
    fn allowance(&self, bytes: usize) -> Duration {
        self.times.message_max + Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX) / PACE
    }

    fn ping(&mut self) -> Result<(), ControlError> {
        let is_due = self.times.ping_every <= self.last_sent.elapsed() && !self.pipe.has_more();
        let may =
            (ControlPhase::Welcomed..ControlPhase::Ended).contains(&self.phase) && self.over().is_none();
        if is_due && may { self.send(&Message::Ping) } else { Ok(()) }
    }

    /// All current time limits: what is awaited, since when, and for how long at most.
    fn deadlines(&self) -> [Option<(&'static str, Instant, Duration)>; 5] {
        let message = self.receiving_since.map(|since| {
            let length = head(&self.inbox, MANIFEST_BYTES_MAX).ok().flatten().map_or(0, |(_, length)| length);
            ("message", since, self.allowance(length))
        });
        let is_in = ControlPhase::Welcomed <= self.phase;
        let entry = (!is_in).then_some(("handshake", self.began, self.times.entry_max));
        let silence = is_in.then_some(("sign of life", self.last_received, self.times.silence_max));
        let out = self.out.map(|(since, bytes)| (SENDING, since, self.allowance(bytes)));
        let is_mute =
            self.phase == ControlPhase::Welcomed && self.end == ControlEnd::Receiver && message.is_none();
        let offer = self.welcomed_at.filter(|_| is_mute).map(|since| ("offer", since, self.times.entry_max));
        [message, entry, offer, silence, out]
    }

    /// How the connection ended, if it has ended. A connection that ended within a message counts
    /// as cut off.
    fn over(&self) -> Option<ConnectionEnd> {
        let is_whole = self.inbox.is_empty();
        self.pipe.over.map(|over| if is_whole { over } else { ConnectionEnd::CutOff })
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4 (RFC 4291 §2.5.5.2). Sockets of both families use
/// such addresses.
fn canonical(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}

/// Maximum number of consecutive reads, of 16 KiB each at most.
const READS_MAX: usize = 64;

/// Longest time for the other end to read the last bytes, and to close the connection as well.
const CLOSING_MAX: Duration = Duration::from_secs(1);
