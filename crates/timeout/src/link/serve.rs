//! The receiver's side of one connection.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::listener::{Counts, ListenConfig, Message, count};
use super::memory::{Last, Memory};
use super::wire::{
    Acknowledgement, Assembler, HELLO_BYTES, Header, Hello, SenderId, Verdict, Welcome, WireError,
};

/// What all connections of a listener share.
pub(super) struct Shared<H> {
    pub(super) handler: H,
    pub(super) config: Arc<ListenConfig>,
    pub(super) memory: Arc<Memory>,
    pub(super) room: Arc<Semaphore>,
    pub(super) counts: Arc<Counts>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Why a connection was closed.
enum Closed {
    /// It ended, broke, or was silent for too long; or this end is shutting down.
    Ended,
    /// It did not say hello.
    Stranger,
    /// There is no room.
    Full,
    /// It broke the protocol.
    Protocol,
    /// The handler did not accept a message.
    Rejected,
}

/// Serves one connection until it is closed, and counts why it was.
pub(super) async fn serve<S, H, R, E>(stream: S, shared: Arc<Shared<H>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Fn(Message) -> R + Send + Sync,
    R: Future<Output = Result<(), E>> + Send,
    E: Send,
{
    let counts = &shared.counts;
    let stopping = shared.stopping.clone();
    match (Service { stream, shared: &shared, stopping }).run().await {
        Closed::Ended => {}
        Closed::Stranger => count(&counts.strangers),
        Closed::Full => count(&counts.declined),
        Closed::Protocol => count(&counts.protocol_errors),
        Closed::Rejected => count(&counts.rejected),
    }
}

struct Service<'a, S, H> {
    stream: S,
    shared: &'a Shared<H>,
    stopping: watch::Receiver<bool>,
}

impl<S, H, R, E> Service<'_, S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Message) -> R,
    R: Future<Output = Result<(), E>>,
{
    async fn run(&mut self) -> Closed {
        let sender = match self.greet().await {
            Ok(sender) => sender,
            Err(closed) => return closed,
        };
        let Some(last) = self.shared.memory.of(sender) else {
            let _ = self.write(&Welcome::Full.encode()).await;
            return Closed::Full;
        };
        let closed = match self.messages(sender, &last).await {
            Err(closed) => closed,
            Ok(never) => match never {},
        };
        // Who leaves was here until now.
        self.shared.memory.of(sender);
        closed
    }

    /// Waits for the hello.
    async fn greet(&mut self) -> Result<SenderId, Closed> {
        let mut frame = [0; HELLO_BYTES];
        self.fill(&mut frame).await.map_err(|()| Closed::Stranger)?;
        match Hello::decode(&frame) {
            Ok(hello) => Ok(hello.sender),
            Err(error) => {
                if let WireError::Version(_) = error {
                    let _ = self.write(&Welcome::OtherVersion.encode()).await;
                }
                Err(Closed::Stranger)
            }
        }
    }

    async fn fill(&mut self, frame: &mut [u8]) -> Result<(), ()> {
        let read = timeout(self.shared.config.hello_max, self.stream.read_exact(frame));
        tokio::select! {
            _ = self.stopping.wait_for(|&stopping| stopping) => {}
            read = read => return if let Ok(Ok(_)) = read { Ok(()) } else { Err(()) },
        }
        let _ = self.write(&Welcome::Stopping.encode()).await;
        Err(())
    }

    /// Message by message, until something closes the connection.
    async fn messages(&mut self, sender: SenderId, last: &Last) -> Result<Never, Closed> {
        let message_bytes_max = self.shared.config.message_bytes_max;
        self.write(&Welcome::Ready { message_bytes_max }.encode()).await.map_err(|_| Closed::Ended)?;
        let mut assembler = Assembler::new(message_bytes_max);
        loop {
            let (header, bytes, held) = self.message(&mut assembler).await?;
            let verdict = self.judge(Message { from: sender, id: header.id, bytes }, last).await?;
            drop(held);
            let acknowledgement = Acknowledgement { id: header.id, verdict };
            self.write(&acknowledgement.encode()).await.map_err(|_| Closed::Ended)?;
        }
    }

    /// The next message, and the room that it takes.
    async fn message(
        &mut self,
        assembler: &mut Assembler,
    ) -> Result<(Header, Vec<u8>, OwnedSemaphorePermit), Closed> {
        let mut held = self.hold(0)?;
        let mut chunk = Vec::new();
        loop {
            let room = assembler.room();
            // Between messages a connection holds a header's worth, not a chunk.
            if chunk.len() < room {
                chunk.resize(room, 0);
            }
            let read = timeout(self.shared.config.idle_max, self.stream.read(&mut chunk[..room]));
            let read = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|&stopping| stopping) => return Err(Closed::Ended),
                read = read => read,
            };
            let Ok(Ok(n @ 1..)) = read else { return Err(Closed::Ended) };
            held.merge(self.hold(n)?);
            let mut arrived = &chunk[..n];
            match assembler.push(&mut arrived) {
                Ok(Some((header, bytes))) => return Ok((header, bytes, held)),
                Ok(None) => {}
                Err(_) => return Err(Closed::Protocol),
            }
        }
    }

    /// Never waits: connections that each hold a part and wait for the rest would wait for each other.
    fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Closed> {
        let bytes = u32::try_from(bytes).expect("a chunk is short");
        self.shared.room.clone().try_acquire_many_owned(bytes).map_err(|_| Closed::Full)
    }

    /// Handles a message unless it was handled before. A copy waits here for the outcome of the one before
    /// it, but not for longer than its sender does: else an impatient one would fill all places with copies.
    async fn judge(&mut self, message: Message, last: &Last) -> Result<Verdict, Closed> {
        let id = message.id;
        let mut byte = [0];
        let at_once = last.try_lock();
        let waited = at_once.is_err();
        let mut last = match at_once {
            Ok(last) => last,
            Err(_) => tokio::select! {
                biased;
                last = last.lock() => last,
                heard = self.stream.read(&mut byte) => {
                    return Err(if let Ok(1..) = heard { Closed::Protocol } else { Closed::Ended });
                }
            },
        };
        if id == *last {
            count(&self.shared.counts.duplicates);
            return Ok(if waited { Verdict::Waited } else { Verdict::Duplicate });
        }
        if id < *last {
            count(&self.shared.counts.stale);
            return Ok(Verdict::Stale);
        }
        match (self.shared.handler)(message).await {
            Ok(()) => {
                *last = id;
                count(&self.shared.counts.handled);
                Ok(Verdict::Handled)
            }
            Err(_) => Err(Closed::Rejected),
        }
    }

    /// Frames of this side are short: who does not take one soon takes none.
    async fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let written = async {
            self.stream.write_all(frame).await?;
            self.stream.flush().await
        };
        timeout(WRITE_MAX, written).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// No value: a loop that ends with an error alone.
enum Never {}

/// A frame of 16 bytes goes into the socket's buffer at once unless the peer reads nothing.
const WRITE_MAX: Duration = Duration::from_secs(10);
