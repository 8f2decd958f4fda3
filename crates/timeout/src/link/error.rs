//! Errors of the sender: of one attempt, and of a message.

use std::io;
use std::time::Duration;

use super::wire::{VERSION, WireError};

/// Reason why a message was not sent, or may not have been handled.
///
/// ```
/// use barograph_timeout::Adaptive;
/// use barograph_timeout::link::{Link, LinkConfig, SendError};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
///
/// let config = LinkConfig { message_bytes_max: 4, ..LinkConfig::default() };
/// let mut link = Link::tcp("receiver.example.org:7000", config, Adaptive::default());
/// let error = link.send(b"hello").await.expect_err("it is too long");
/// assert!(matches!(error, SendError::TooLarge { bytes: 5, max: 4 }));
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages state what happened")]
pub enum SendError {
    /// The message exceeds the limit of this link or its peer. The message was not sent.
    #[error(
        "the message has {bytes} bytes, at most {max} are allowed; send it in parts, or raise \
         message_bytes_max"
    )]
    TooLarge {
        /// Length of the message, in bytes.
        bytes: usize,
        /// Largest length that is allowed, in bytes.
        max: u32,
    },
    /// The peer has a different version of the protocol. The message was not sent.
    #[error(
        "the peer uses version {theirs} of the link protocol, this program version {VERSION}; update the \
         older one"
    )]
    Version { theirs: u8 },
    /// No attempt was acknowledged, or no connection could be set up within `connect_timeout`. The
    /// message may have been handled nevertheless. A copy that is still on the network will not be
    /// handled after a later message was handled.
    #[error("no acknowledgement in {attempts} attempts ({timeouts} timed out); last error: {last}")]
    Unacknowledged {
        /// Number of attempts made; 0 if no connection was ever set up.
        attempts: u32,
        /// Number of attempts that timed out.
        timeouts: u32,
        /// Error of the last attempt or set-up.
        #[source]
        last: AttemptError,
    },
    /// The receiver has handled a later message of this sender, so the receiver will not handle
    /// this message. Either two links use the same sender identity, or the first identifier of this
    /// link was too low.
    #[error(
        "message {id} was not handled: the receiver has handled a later one of this sender; use a new sender \
         identity, or a higher first_id"
    )]
    Stale { id: u64 },
    /// All identifiers of 64 bits are used.
    #[error("all message identifiers of this sender are used; create a new link")]
    IdsSpent,
}

/// Reason why one attempt failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages state what happened")]
pub enum AttemptError {
    /// No acknowledgement arrived within the timeout of the estimator.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// The connection could not be set up.
    #[error("cannot connect to the receiver")]
    Connect(#[source] io::Error),
    /// The connection, including hello and welcome, was not set up in time.
    #[error("connecting timed out after {0:?}")]
    ConnectTimedOut(Duration),
    /// The receiver declined because it is full.
    #[error("the receiver accepts no further connection now")]
    Full,
    /// The receiver declined because it is shutting down.
    #[error("the receiver is shutting down")]
    Stopping,
    /// The connection broke, or the receiver closed it without an acknowledgement.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("message {acknowledged} was acknowledged instead of message {sent}")]
    WrongMessage { sent: u64, acknowledged: u64 },
    /// The peer sent bytes between messages, such as a second acknowledgement.
    #[error("the peer sent data between messages")]
    UnexpectedData,
    /// The peer sent bytes that are not a frame of the protocol.
    #[error("the peer sent an invalid frame")]
    Wire(#[from] WireError),
}

impl AttemptError {
    /// Whether the peer broke the protocol. Otherwise the network broke a connection.
    ///
    /// ```
    /// use barograph_timeout::link::AttemptError;
    /// use std::time::Duration;
    ///
    /// assert!(AttemptError::UnexpectedData.is_protocol());
    /// assert!(!AttemptError::TimedOut(Duration::from_secs(1)).is_protocol());
    /// ```
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        matches!(self, Self::WrongMessage { .. } | Self::UnexpectedData | Self::Wire(_))
    }
}
