//! The receiver's side of a connection.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

use super::buffer_limit::{BufferLimit, BufferReservation};
use super::listener::{AtomicCounters, ListenConfig, Message, count};
use super::sender_table::{SenderState, SenderTable};
use super::wire::{
    AckStatus, Acknowledgement, Assembler, HELLO_BYTES, Header, Hello, SenderId, Welcome, WireError,
};

/// State that all connections of a listener share.
pub(super) struct Shared<H> {
    pub(super) handler: H,
    pub(super) config: Arc<ListenConfig>,
    pub(super) senders: Arc<SenderTable>,
    pub(super) buffer_limit: Arc<BufferLimit>,
    pub(super) counts: Arc<AtomicCounters>,
}

/// Reason why a connection was closed.
enum Closed {
    /// The connection ended, broke or was silent for too long; or this end is shutting down.
    Ended,
    /// No valid hello arrived.
    HandshakeFailed,
    /// There was no room for the connection or its message.
    Full,
    /// The sender broke the protocol.
    Protocol,
    /// The handler rejected a message.
    Rejected,
}

/// Serves one connection until it is closed, and counts the reason. `stopping` completes when the
/// listener shuts down. Each connection has its own `stopping` channel, because a shared channel
/// would need a lock.
pub(super) async fn serve<S, H, R, E>(stream: S, shared: Arc<Shared<H>>, stopping: oneshot::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Fn(Message) -> R + Send + Sync,
    R: Future<Output = Result<(), E>> + Send,
    E: Send,
{
    let counts = &shared.counts;
    match (Service { stream, shared: &shared, stopping }).run().await {
        Closed::Ended => {}
        Closed::HandshakeFailed => count(&counts.handshake_failures),
        Closed::Full => count(&counts.declined),
        Closed::Protocol => count(&counts.protocol_errors),
        Closed::Rejected => count(&counts.rejected),
    }
}

struct Service<'a, S, H> {
    stream: S,
    shared: &'a Shared<H>,
    /// Completes when the listener shuts down. This channel receiver must not be polled after its
    /// completion.
    stopping: oneshot::Receiver<()>,
}

impl<'a, S, H, R, E> Service<'a, S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Message) -> R,
    R: Future<Output = Result<(), E>>,
{
    async fn run(&mut self) -> Closed {
        let sender = match self.read_hello().await {
            Ok(sender) => sender,
            Err(closed) => return closed,
        };
        let Some(known) = self.shared.senders.of(sender) else {
            send_and_close(&mut self.stream, &Welcome::Full.encode()).await;
            return Closed::Full;
        };
        let closed = match self.messages(sender, &known).await {
            Err(closed) => closed,
            Ok(never) => match never {},
        };
        known.leave();
        // Mark the sender as used now, because it was active until it disconnected.
        self.shared.senders.of(sender);
        closed
    }

    async fn read_hello(&mut self) -> Result<SenderId, Closed> {
        let mut frame = [0; HELLO_BYTES];
        self.fill(&mut frame).await.map_err(|()| Closed::HandshakeFailed)?;
        match Hello::decode(&frame) {
            Ok(hello) => Ok(hello.sender),
            Err(error) => {
                if let WireError::Version(_) = error {
                    send_and_close(&mut self.stream, &Welcome::OtherVersion.encode()).await;
                }
                Err(Closed::HandshakeFailed)
            }
        }
    }

    async fn fill(&mut self, frame: &mut [u8]) -> Result<(), ()> {
        let read = timeout(self.shared.config.hello_max, self.stream.read_exact(frame));
        tokio::select! {
            _ = &mut self.stopping => {}
            read = read => return if let Ok(Ok(_)) = read { Ok(()) } else { Err(()) },
        }
        send_and_close(&mut self.stream, &Welcome::Stopping.encode()).await;
        Err(())
    }

    /// Handles message after message until the connection is closed.
    async fn messages(&mut self, sender: SenderId, known: &SenderState) -> Result<Never, Closed> {
        let mut newer = Newer { overtaken: known.arrive(), known: false };
        let message_bytes_max = self.shared.config.message_bytes_max;
        self.write(&Welcome::Ready { message_bytes_max }.encode()).await.map_err(|_| Closed::Ended)?;
        let mut assembler = Assembler::new(message_bytes_max);
        loop {
            let (header, bytes, reservation) = self.message(&mut assembler, &mut newer).await?;
            let status =
                self.handle_once(Message { from: sender, id: header.id, bytes }, &known.last).await?;
            drop(reservation);
            let acknowledgement = Acknowledgement { id: header.id, status };
            self.write(&acknowledgement.encode()).await.map_err(|_| Closed::Ended)?;
        }
    }

    /// Reads the next message, and reserves memory for it.
    async fn message(
        &mut self,
        assembler: &mut Assembler,
        newer: &mut Newer,
    ) -> Result<(Header, Vec<u8>, BufferReservation<'a>), Closed> {
        let mut reservation = self.shared.buffer_limit.reserve();
        let mut chunk = Vec::new();
        loop {
            let wanted = assembler.bytes_wanted();
            // Between messages, the buffer of a connection has only the size of a header, not of a
            // chunk.
            if chunk.len() < wanted {
                chunk.resize(wanted, 0);
            }
            let ListenConfig { idle_max, stall_max, .. } = *self.shared.config;
            let silence_max =
                if assembler.is_partial() || newer.known { stall_max.min(idle_max) } else { idle_max };
            let read = timeout(silence_max, self.stream.read(&mut chunk[..wanted]));
            let read = tokio::select! {
                biased;
                _ = &mut self.stopping => return Err(Closed::Ended),
                read = read => read,
                _ = &mut newer.overtaken, if !newer.known => {
                    newer.known = true;
                    // The sender has abandoned this incomplete message, and sends a whole copy on
                    // the newer connection.
                    if assembler.is_partial() {
                        return Err(Closed::Ended);
                    }
                    // A whole copy may still arrive on this connection, so wait for this copy, but
                    // not longer than `stall_max`.
                    continue;
                }
            };
            let Ok(Ok(n @ 1..)) = read else { return Err(Closed::Ended) };
            if !reservation.more(n) {
                return Err(Closed::Full);
            }
            let mut arrived = &chunk[..n];
            match assembler.push(&mut arrived) {
                Ok(Some((header, bytes))) => return Ok((header, bytes, reservation)),
                Ok(None) => {}
                Err(_) => return Err(Closed::Protocol),
            }
        }
    }

    /// Handles a message unless it was handled before. A later copy waits for the outcome of the
    /// earlier copy, but only while the sender waits for the response to the later copy. Otherwise
    /// a sender with short timeouts would fill all connections with copies.
    async fn handle_once(&mut self, message: Message, last: &Mutex<u64>) -> Result<AckStatus, Closed> {
        let id = message.id;
        let mut byte = [0];
        let at_once = last.try_lock();
        let waited = at_once.is_err();
        let mut last = match at_once {
            Ok(last) => last,
            Err(_) => tokio::select! {
                biased;
                last = last.lock() => last,
                received = self.stream.read(&mut byte) => {
                    return Err(if let Ok(1..) = received { Closed::Protocol } else { Closed::Ended });
                }
            },
        };
        if id == *last {
            count(&self.shared.counts.duplicates);
            return Ok(if waited { AckStatus::Waited } else { AckStatus::Duplicate });
        }
        if id < *last {
            count(&self.shared.counts.stale);
            return Ok(AckStatus::Stale);
        }
        match (self.shared.handler)(message).await {
            Ok(()) => {
                *last = id;
                count(&self.shared.counts.handled);
                Ok(AckStatus::Handled)
            }
            Err(_) => Err(Closed::Rejected),
        }
    }

    /// Writes a frame. The frames of the receiver are short, so a peer that does not accept a frame
    /// in time does not read at all.
    async fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let written = async {
            self.stream.write_all(frame).await?;
            self.stream.flush().await
        };
        timeout(WRITE_MAX, written).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Whether the sender has sent hello on a newer connection, so that the sender has abandoned the
/// data that arrives on this connection.
struct Newer {
    /// Completes when the sender sends hello on a newer connection. This channel receiver must not
    /// be polled after its completion.
    overtaken: oneshot::Receiver<()>,
    known: bool,
}

/// Sends `frame` to a peer that is declined, and makes sure that the peer can read it. If a socket
/// is closed with unread bytes in it, the connection is reset, and the frame may be lost (RFC 9293
/// §3.10.4, RFC 2525 §2.17). So the bytes of the peer, most likely a hello, are read first.
pub(super) async fn send_and_close<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, frame: &[u8]) {
    let said = async {
        stream.write_all(frame).await?;
        stream.shutdown().await?;
        let mut received = [0; HELLO_BYTES];
        for _ in 0..CLOSE_READS_MAX {
            if stream.read(&mut received).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    // A peer that has gone does not need the frame.
    let _ = timeout(CLOSE_MAX, said).await;
}

/// Maximum time to send the frame and wait until the peer closes. The peer closes after it has read
/// the frame, one round trip later.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Maximum number of reads from a peer that is declined. A hello arrives in one or two reads, so
/// data after this number of reads are not a hello.
const CLOSE_READS_MAX: usize = 8;

/// A type without values, for the result of the loop: the loop ends only with an error.
enum Never {}

/// Maximum time to write a frame. A frame of 16 bytes fits into the socket's buffer at once, except
/// if the peer reads nothing.
const WRITE_MAX: Duration = Duration::from_secs(10);
