//! Bytes through TLS over a socket that never blocks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::Connection;

use super::error::ControlError;
use crate::io::identity::{IdentityError, Untrusted};

/// A TLS connection over a non-blocking socket.
#[derive(Debug)]
pub(super) struct TlsStream {
    pub stream: TcpStream,
    pub tls: Connection,
    /// Bytes that TLS has not accepted yet, from index `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// How the connection ended, once it did.
    pub over: Option<ConnectionEnd>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    Closed,
    /// Without close_notify (RFC 8446 §6.1).
    CutOff,
}

impl TlsStream {
    pub(super) fn new(stream: TcpStream, tls: Connection) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, tls, outbox: vec![], sent: 0, over: None })
    }

    /// Queues bytes for [`TlsStream::push`] to write.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.outbox.drain(..std::mem::take(&mut self.sent));
        self.outbox.extend(bytes);
    }

    /// Waits until bytes can be read, until queued bytes can be written, or until `until`.
    pub(super) fn poll(&self, until: Instant) -> Result<(), ControlError> {
        let mut events = PollFlags::POLLIN;
        events.set(PollFlags::POLLOUT, self.has_more());
        // Round up to milliseconds: if the time were rounded down to 0, the last millisecond would
        // be a busy loop.
        let wait = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.stream.as_fd(), events)], wait) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Whether bytes wait to be written.
    pub(super) fn has_more(&self) -> bool {
        self.tls.wants_write() || self.sent < self.outbox.len()
    }

    /// Passes queued bytes to TLS, and TLS's bytes to the socket.
    pub(super) fn push(&mut self) -> Result<(), ControlError> {
        loop {
            if let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
                // Until the handshake is complete, TLS buffers up to 64 KiB.
                self.sent += self.tls.writer().write(rest)?;
                if self.sent == self.outbox.len() {
                    // Free the memory: a sent manifest may take many megabytes.
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
                // Continue: bytes that the other end sent before it closed can still be read.
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads once, and appends the bytes that TLS decrypts: buffered bytes and at most 16 KiB more.
    /// Returns whether there was something to read.
    pub(super) fn pull(&mut self, into: &mut Vec<u8>) -> Result<bool, ControlError> {
        if self.over.is_some() {
            return Ok(false);
        }
        match self.tls.read_tls(&mut &self.stream) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if is_gone(&error) => {
                self.over = Some(ConnectionEnd::CutOff);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // Send TLS's alert with the reason; ignore a failure to send it.
            let _ = self.tls.write_tls(&mut &self.stream);
            return Err(classify_error(error));
        }
        let mut chunk = [0; 16_384];
        loop {
            match self.tls.reader().read(&mut chunk) {
                Ok(0) => {
                    self.over = Some(ConnectionEnd::Closed);
                    return Ok(false);
                }
                Ok(bytes) => into.extend(chunk.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.over = Some(ConnectionEnd::CutOff);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends close_notify, and reads until the other end has closed as well, or until `until`.
    pub(super) fn close(mut self, until: Instant) {
        self.tls.send_close_notify();
        let mut sink = [0; 4096];
        let mut is_shut = false;
        while Instant::now() < until {
            let mut room = true;
            while self.tls.wants_write() && room {
                room = self.tls.write_tls(&mut &self.stream).is_ok_and(|bytes| bytes > 0);
            }
            if !self.tls.wants_write() && !is_shut {
                is_shut = self.stream.shutdown(Shutdown::Write).is_ok();
            }
            // Read all bytes first: a socket that is closed with unread bytes sends a reset, and
            // the other end may then lose the last sent bytes (RFC 1122 §4.2.2.13).
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
}

/// Converts an error of TLS to a more specific [`ControlError`], if there is one.
fn classify_error(error: rustls::Error) -> ControlError {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    match &error {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<Untrusted>() {
                Some(Untrusted(found)) => IdentityError::Untrusted { found: *found }.into(),
                None => error.into(),
            }
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied,
        ) => ControlError::CertificateRejected(error),
        Error::AlertReceived(Alert::NoApplicationProtocol) => ControlError::Alpn,
        _ => error.into(),
    }
}

/// Whether the error means that the other end closed or reset the connection.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}
