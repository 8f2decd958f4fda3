//! One control connection: TLS 1.3 over TCP, messages both ways.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::Connection;

use super::codec::{HEAD_BYTES, MANIFEST_BYTES_MAX, decode, encode, head};
use super::error::ControlError;
use super::order::{End, Phase};
use super::{Message, Reason};
use crate::io::identity::{ALPN, Fingerprint};
use crate::io::seal::Secrets;

/// TCP is connected: TLS, Hello and Welcome within this, however slowly bytes drip. Ten seconds are three retransmissions of a SYN's
/// like (RFC 6298 §2: 1, 2 and 4 s) on the worst path.
pub(super) const ENTRY_MAX: Duration = Duration::from_secs(10);

/// A message, from its first byte on, may take this and its length at [`PACE`].
const MESSAGE_MAX: Duration = Duration::from_secs(10);

/// Bytes a second at which a long message must come or go: 1 Mbit/s, at which the greatest manifest takes 17 minutes.
const PACE: u32 = 1 << 17;

/// A Ping after this long without another message.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Nothing came for this long – five pings and a second –: nobody is there.
const SILENCE_MAX: Duration = Duration::from_secs(26);

/// Whoever waits looks this often whether it should stop.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Label of the exporter (RFC 5705 §4: this prefix needs no registration).
const LABEL: &[u8] = b"EXPERIMENTAL barograph-transfer/1";

/// One end of a control connection, for one thread, which calls [`Channel::receive`] again and again: that sends what waits to be sent,
/// and the pings.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    tls: Connection,
    peer: SocketAddr,
    local: SocketAddr,
    /// Which end this is.
    end: End,
    phase: Phase,
    manifest_bytes_max: u64,
    /// What came of messages that are not whole yet.
    inbox: Vec<u8>,
    /// Of the message that is coming: since when, and its kind and length once they are known.
    coming: Option<Instant>,
    /// What came: at most one Ping, one Durable and one of each other kind.
    came: VecDeque<Message>,
    /// What TLS has not taken yet, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// Until when all that waits must be sent.
    out_until: Option<Instant>,
    began: Instant,
    heard: Instant,
    spoke: Instant,
    /// How it ended, once it did; what came before is still to be had.
    over: Option<Over>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Closed,
    CutOff,
}

impl Channel {
    /// Over a connected socket; the handshake comes with the first message.
    pub(super) fn new(
        stream: TcpStream,
        tls: Connection,
        end: End,
        manifest_bytes_max: u64,
    ) -> Result<Self, ControlError> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            peer: stream.peer_addr()?,
            local: stream.local_addr()?,
            stream,
            tls,
            end,
            phase: Phase::Start,
            manifest_bytes_max: manifest_bytes_max.min(MANIFEST_BYTES_MAX),
            inbox: vec![],
            coming: None,
            came: VecDeque::new(),
            outbox: vec![],
            sent: 0,
            out_until: None,
            began: now,
            heard: now,
            spoke: now,
            over: None,
        })
    }

    /// The other end's address: the handshake showed that it is there (RFC 9000 §8.1), so datagrams may be sent to it.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address, as the route to the peer chose it.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The other end's certificate, if it showed one.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.tls.peer_certificates().and_then(<[_]>::first).map(|certificate| Fingerprint::of(certificate))
    }

    /// The secrets of a transfer's datagrams: the exporter (RFC 8446 §7.5) with the transfer's identifier as context; equal at both ends.
    ///
    /// # Errors
    /// The handshake is not complete.
    pub fn secrets(&self, transfer: u32) -> Result<Secrets, ControlError> {
        let both = self.tls.export_keying_material([0; 64], LABEL, Some(&transfer.to_be_bytes()))?;
        let mut secrets = Secrets { data: [0; 32], feedback: [0; 32] };
        let (data, feedback) = both.split_at(32);
        secrets.data.copy_from_slice(data);
        secrets.feedback.copy_from_slice(feedback);
        Ok(secrets)
    }

    /// Says a message, without waiting: what the socket does not take at once is sent by [`Channel::receive`] and [`Channel::flush`].
    ///
    /// # Errors
    /// It is out of order, or too long; or the connection is over.
    pub fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        let kind = message.kind();
        let next = self.phase.after(kind, self.end).ok_or(ControlError::Misuse(kind))?;
        let frame = encode(message)?;
        self.phase = next;
        let now = Instant::now();
        self.spoke = now;
        let allowed = allowance(frame.len());
        self.out_until = Some(self.out_until.unwrap_or(now) + allowed);
        self.outbox.drain(..std::mem::take(&mut self.sent));
        self.outbox.extend(frame);
        self.push()
    }

    /// The next message; `None` if none came within `within`.
    ///
    /// A Ping is kept to itself: it shows that the other end is there. So are all but the last [`Message::Durable`].
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the other end refuses; what it does wrong, or too slowly; the end of the connection.
    pub fn receive(&mut self, within: Duration) -> Result<Option<Message>, ControlError> {
        let until = Instant::now() + within;
        loop {
            match self.came.pop_front() {
                Some(Message::Refuse { reason, text }) => return Err(ControlError::Refused { reason, text }),
                Some(message) => return Ok(Some(message)),
                None => {}
            }
            match self.over {
                Some(Over::Closed) => return Err(ControlError::Closed),
                Some(Over::CutOff) => return Err(ControlError::CutOff),
                None => {}
            }
            self.turn(until)?;
            if self.came.is_empty() && self.over.is_none() && until <= Instant::now() {
                return Ok(None);
            }
        }
    }

    /// As [`Channel::receive`], for as long as the protocol lets the other end take, or until `stop` is set.
    ///
    /// # Errors
    /// Those, and [`ControlError::Stopped`], within 0.1 s.
    pub fn wait(&mut self, stop: &AtomicBool) -> Result<Message, ControlError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(ControlError::Stopped);
            }
            if let Some(message) = self.receive(LOOK_EVERY)? {
                return Ok(message);
            }
        }
    }

    /// Waits until all is sent that was said, or `stop` is set; takes in what comes meanwhile.
    ///
    /// # Errors
    /// As [`Channel::wait`].
    pub fn flush(&mut self, stop: &AtomicBool) -> Result<(), ControlError> {
        while self.has_more() && self.over.is_none() {
            if stop.load(Ordering::Relaxed) {
                return Err(ControlError::Stopped);
            }
            self.turn(Instant::now() + LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Says why it ends here, and ends it: see [`Channel::close`].
    pub fn refuse(mut self, reason: Reason, text: &str) {
        // If the other end cannot be told, it will see that the connection is gone.
        let _ = self.send(&Message::Refuse { reason, text: text.into() });
        self.close();
    }

    /// Ends it in order: sends what waits and TLS's close_notify (RFC 8446 §6.1), and gives the other end up to a second to read it.
    pub fn close(mut self) {
        let until = Instant::now() + CLOSING_MAX;
        while self.has_more() && Instant::now() < until && self.over.is_none() {
            if self.turn(until).is_err() {
                break;
            }
        }
        self.tls.send_close_notify();
        let mut sink = [0; 4096];
        let mut is_shut = false;
        while Instant::now() < until {
            let mut room = true;
            while self.tls.wants_write() && room {
                room = self.tls.write_tls(&mut &self.stream).is_ok_and(|bytes| 0 < bytes);
            }
            if !self.tls.wants_write() && !is_shut {
                is_shut = self.stream.shutdown(Shutdown::Write).is_ok();
            }
            // A socket that is closed with unread bytes sends a reset, which would overtake what was sent (RFC 1122 §4.2.2.13).
            match (&self.stream).read(&mut sink) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.poll(until).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
    }

    /// Sends and receives what can be, once; waits for it until `until` at most.
    fn turn(&mut self, until: Instant) -> Result<(), ControlError> {
        self.push()?;
        let due = self.check(Instant::now())?;
        self.poll(until.min(due))?;
        self.pull()?;
        self.push()?;
        self.ping()?;
        self.check(Instant::now())?;
        Ok(())
    }

    fn poll(&self, until: Instant) -> Result<(), ControlError> {
        let mut events = PollFlags::POLLIN;
        events.set(PollFlags::POLLOUT, self.has_more());
        // Rounded up, or the last millisecond would be a busy loop.
        let wait = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.stream.as_fd(), events)], wait) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn has_more(&self) -> bool {
        self.tls.wants_write() || self.sent < self.outbox.len()
    }

    /// Gives TLS what it takes, and the socket what TLS has.
    fn push(&mut self) -> Result<(), ControlError> {
        loop {
            if let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
                // Before the end of the handshake it keeps 64 KiB, and sends them then.
                self.sent += self.tls.writer().write(rest)?;
                if self.sent == self.outbox.len() {
                    // A manifest's room is not kept for the rest of the transfer.
                    self.outbox = vec![];
                    self.sent = 0;
                }
            }
            if !self.tls.wants_write() {
                break;
            }
            match self.tls.write_tls(&mut &self.stream) {
                Ok(0) => return Err(ControlError::CutOff),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What the other end said before it went may still be read: the end comes with it.
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        if self.sent == self.outbox.len() {
            self.out_until = None;
        }
        Ok(())
    }

    /// Reads what came, up to a share that leaves others their turn.
    fn pull(&mut self) -> Result<(), ControlError> {
        for _ in 0..READS_MAX {
            if self.over.is_some() {
                break;
            }
            match self.tls.read_tls(&mut &self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_gone(&error) => {
                    self.over = Some(Over::CutOff);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The alert that says why; nothing more can be done for it.
                let _ = self.tls.write_tls(&mut &self.stream);
                return Err(self.judged(error));
            }
            self.take_plain()?;
        }
        Ok(())
    }

    /// An error of TLS, in better words where there are.
    fn judged(&self, error: rustls::Error) -> ControlError {
        use rustls::{CertificateError, Error};
        let unfit = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        match (error == unfit, self.peer_fingerprint()) {
            (true, Some(found)) => crate::io::identity::IdentityError::Untrusted { found }.into(),
            _ => error.into(),
        }
    }

    /// Takes out of TLS what it opened, and messages out of that.
    fn take_plain(&mut self) -> Result<(), ControlError> {
        let mut chunk = [0; 16_384];
        loop {
            match self.tls.reader().read(&mut chunk) {
                Ok(0) => {
                    let is_whole = self.inbox.is_empty();
                    self.over = Some(if is_whole { Over::Closed } else { Over::CutOff });
                    return Ok(());
                }
                Ok(bytes) => {
                    self.heard = Instant::now();
                    self.inbox.extend(chunk.get(..bytes).unwrap_or_default());
                    self.take_messages()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.over = Some(Over::CutOff);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_messages(&mut self) -> Result<(), ControlError> {
        let mut taken = 0;
        while let Some((kind, length)) =
            head(self.inbox.get(taken..).unwrap_or_default(), self.manifest_bytes_max)?
        {
            // Before its body: nothing is held that should not come.
            let from = if self.end == End::Sender { End::Receiver } else { End::Sender };
            let next = self.phase.after(kind, from).ok_or(ControlError::Order(kind))?;
            if self.tls.alpn_protocol() != Some(ALPN) {
                return Err(ControlError::Alpn);
            }
            let body = taken + HEAD_BYTES..taken + HEAD_BYTES + length;
            let Some(body) = self.inbox.get(body) else { break };
            let message = decode(kind, body)?;
            taken += HEAD_BYTES + length;
            self.phase = next;
            self.coming = None;
            match (&message, self.came.back_mut()) {
                (Message::Ping, _) => {}
                (Message::Durable(_), Some(last @ Message::Durable(_))) => *last = message,
                _ => self.came.push_back(message),
            }
        }
        self.inbox.drain(..taken);
        if self.inbox.is_empty() {
            self.coming = None;
            self.inbox = vec![];
        } else {
            self.coming.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    fn ping(&mut self) -> Result<(), ControlError> {
        let is_due = PING_EVERY <= self.spoke.elapsed() && !self.has_more();
        let may = (Phase::LetIn..Phase::Ended).contains(&self.phase) && self.over.is_none();
        if is_due && may { self.send(&Message::Ping) } else { Ok(()) }
    }

    /// Looks at all deadlines; when the next thing is due.
    fn check(&self, now: Instant) -> Result<Instant, ControlError> {
        let coming = self.coming.map(|since| {
            let length = head(&self.inbox, MANIFEST_BYTES_MAX).ok().flatten().map_or(0, |(_, length)| length);
            ("a message", since, allowance(length))
        });
        let entry = (self.phase < Phase::LetIn).then_some(("the handshake", self.began, ENTRY_MAX));
        let silence = entry.is_none().then_some(("a sign of life", self.heard, SILENCE_MAX));
        let out = self.out_until.map(|until| ("sending", until, Duration::ZERO));
        let mut due = self.spoke + PING_EVERY;
        if due < now {
            due = now + PING_EVERY;
        }
        for (what, since, limit) in [coming, entry, silence, out].into_iter().flatten() {
            if since + limit < now {
                return Err(ControlError::Late { what, limit });
            }
            due = due.min(since + limit);
        }
        Ok(due)
    }
}

/// Reads in a row, of at most 4 KiB to 16 KiB each, before others get their turn.
const READS_MAX: usize = 64;

/// For the other end to read why, and to close as well.
const CLOSING_MAX: Duration = Duration::from_secs(1);

fn allowance(bytes: usize) -> Duration {
    MESSAGE_MAX + Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX) / PACE
}

/// The other end closed without reading all, or before that.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}
