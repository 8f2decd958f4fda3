//! The sender's side of one connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::Vec;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::error::TryError;
use super::wire::{
    ACKNOWLEDGEMENT_BYTES, Acknowledgement, Header, Hello, SenderId, VERSION, Verdict, WELCOME_BYTES,
    Welcome, WireError,
};

/// A connection on which messages may go. Whoever gives up on an exchange drops it, for then a message or
/// an acknowledgement may be half-way.
#[derive(Debug)]
pub(super) struct Conversation<S> {
    stream: S,
    /// The longest message the receiver takes, in bytes.
    pub(super) message_bytes_max: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Hello and welcome on a new connection.
    pub(super) async fn open(mut stream: S, sender: SenderId) -> Result<Self, TryError> {
        let mut frame = [0; WELCOME_BYTES];
        let answered: io::Result<()> = async {
            stream.write_all(&Hello { sender }.encode()).await?;
            stream.flush().await?;
            stream.read_exact(&mut frame).await.map(drop)
        }
        .await;
        answered.map_err(TryError::Broken)?;
        match Welcome::decode(&frame)? {
            Welcome::Ready { message_bytes_max } => Ok(Self { stream, message_bytes_max }),
            Welcome::Full => Err(TryError::Full),
            Welcome::Stopping => Err(TryError::Stopping),
            // It claims to speak this version, and that it does not.
            Welcome::OtherVersion => Err(WireError::Version(VERSION).into()),
        }
    }

    /// Sends a message and waits for its acknowledgement.
    pub(super) async fn exchange(&mut self, header: Header, message: &[u8]) -> Result<Verdict, TryError> {
        let mut frame = [0; ACKNOWLEDGEMENT_BYTES];
        let answered: io::Result<()> = async {
            self.write(header, message).await?;
            self.stream.read_exact(&mut frame).await.map(drop)
        }
        .await;
        answered.map_err(TryError::Broken)?;
        let Acknowledgement { id, verdict } = Acknowledgement::decode(&frame)?;
        if id == header.id {
            Ok(verdict)
        } else {
            Err(TryError::WrongMessage { sent: header.id, acknowledged: id })
        }
    }

    async fn write(&mut self, header: Header, message: &[u8]) -> io::Result<()> {
        let header = header.encode();
        if message.len() <= JOINED_BYTES_MAX {
            let joined: Vec<u8> = [&header[..], message].concat();
            self.stream.write_all(&joined).await?;
        } else {
            self.stream.write_all(&header).await?;
            self.stream.write_all(message).await?;
        }
        self.stream.flush().await
    }

    /// Whether nothing came since the last acknowledgement, as it should be before the next message.
    pub(super) async fn quiet(&mut self) -> Result<(), TryError> {
        poll_fn(|context| Poll::Ready(self.heard(context))).await
    }

    fn heard(&mut self, context: &mut Context<'_>) -> Result<(), TryError> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => Err(TryError::Broken(error)),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Err(TryError::Broken(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(Ok(())) => Err(TryError::Stray),
        }
    }
}

/// Up to so many bytes a message is copied behind its header, so that both leave in one segment; beyond, the
/// copy would cost more than a segment.
const JOINED_BYTES_MAX: usize = 16 * 1024;
