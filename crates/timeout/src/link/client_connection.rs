//! The sender's side of a connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::Vec;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::error::AttemptError;
use super::wire::{
    ACKNOWLEDGEMENT_BYTES, AckStatus, Acknowledgement, Header, Hello, SenderId, VERSION, WELCOME_BYTES,
    Welcome, WireError,
};

/// A connection that is ready for messages. A caller that abandons a message drops the
/// connection, because a message or an acknowledgement may be half transferred.
#[derive(Debug)]
pub(super) struct ClientConnection<S> {
    stream: S,
    /// Length of the longest message that the receiver accepts, in bytes.
    pub(super) message_bytes_max: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    /// Exchanges hello and welcome on a new connection.
    pub(super) async fn open(mut stream: S, sender: SenderId) -> Result<Self, AttemptError> {
        let mut frame = [0; WELCOME_BYTES];
        let answered: io::Result<()> = async {
            stream.write_all(&Hello { sender }.encode()).await?;
            stream.flush().await?;
            stream.read_exact(&mut frame).await.map(drop)
        }
        .await;
        answered.map_err(AttemptError::Broken)?;
        match Welcome::decode(&frame)? {
            Welcome::Ready { message_bytes_max } => Ok(Self { stream, message_bytes_max }),
            Welcome::Full => Err(AttemptError::Full),
            Welcome::Stopping => Err(AttemptError::Stopping),
            // The frame has the version of this program, but its status says that the version is
            // not supported.
            Welcome::OtherVersion => Err(WireError::Version(VERSION).into()),
        }
    }

    /// Sends a message and waits for its acknowledgement.
    pub(super) async fn exchange(
        &mut self,
        header: Header,
        message: &[u8],
    ) -> Result<AckStatus, AttemptError> {
        let mut frame = [0; ACKNOWLEDGEMENT_BYTES];
        let answered: io::Result<()> = async {
            self.write(header, message).await?;
            self.stream.read_exact(&mut frame).await.map(drop)
        }
        .await;
        answered.map_err(AttemptError::Broken)?;
        let Acknowledgement { id, status } = Acknowledgement::decode(&frame)?;
        if id == header.id {
            Ok(status)
        } else {
            Err(AttemptError::WrongMessage { sent: header.id, acknowledged: id })
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
    pub(super) async fn quiet(&mut self) -> Result<(), AttemptError> {
        poll_fn(|context| Poll::Ready(self.check_no_data(context))).await
    }

    fn check_no_data(&mut self, context: &mut Context<'_>) -> Result<(), AttemptError> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => Err(AttemptError::Broken(error)),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Err(AttemptError::Broken(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(Ok(())) => Err(AttemptError::UnexpectedData),
        }
    }
}

/// Length, in bytes, up to which a message is copied behind its header, so that header and message
/// are sent in one segment. For longer messages the copy would cost more than a segment.
const JOINED_BYTES_MAX: usize = 16 * 1024;
