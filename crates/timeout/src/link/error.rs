//! Errors of the sender: of one attempt, and of a message.

use std::io;
use std::time::Duration;

use super::wire::{VERSION, WireError};

/// Reason why a message was not sent, or may not have been handled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages state what happened")]
pub enum SendError {
    /// The message exceeds the limit of this link or its peer. It was not sent.
    #[error(
        "the message has {bytes} bytes, at most {max} are allowed; send it in parts, or raise \
         message_bytes_max"
    )]
    TooLarge {
        /// Length of the message, in bytes.
        bytes: usize,
        /// Length that is allowed, in bytes.
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
        /// Attempts made; 0 if no connection was ever set up.
        attempts: u32,
        /// Attempts that timed out.
        timeouts: u32,
        /// Error of the last attempt or set-up.
        #[source]
        last: AttemptError,
    },
    /// The receiver has handled a later message of this sender, so it will not handle this one: the
    /// sender's identity is used twice, or the identifiers of its messages began too low.
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
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        matches!(self, Self::WrongMessage { .. } | Self::UnexpectedData | Self::Wire(_))
    }
}
