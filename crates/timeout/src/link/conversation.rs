//! The sender's side of a connection.

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

/// A connection that is ready for messages. A caller that abandons an exchange drops the
/// connection, because a message or an acknowledgement may be half transferred.
#[derive(Debug)]
pub(super) struct Conversation<S> {
    stream: S,
    /// Length of the longest message that the receiver accepts, in bytes.
    pub(super) message_bytes_max: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Exchanges hello and welcome on a new connection.
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
            // The frame has this version, but its status is that the version is not supported.
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

    /// Checks that nothing arrived since the last acknowledgement, as required before a message.
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

/// Messages up to this length are copied behind their header, so that both leave in one segment.
/// For longer messages the copy would cost more than a segment.
const JOINED_BYTES_MAX: usize = 16 * 1024;
