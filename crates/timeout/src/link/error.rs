//! What goes wrong on the sender's side: with one try, and with a message.

use std::io;
use std::time::Duration;

use super::wire::{VERSION, WireError};

/// Why a message was not sent, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum SendError {
    /// It is longer than this link or its peer allows. It was not sent.
    #[error("a message of {bytes} bytes is longer than the {max} that are allowed")]
    TooLarge {
        /// Its length, in bytes.
        bytes: usize,
        /// What is allowed, in bytes.
        max: u32,
    },
    /// The peer speaks another version of the protocol. The message was not sent.
    #[error("the peer speaks version {theirs} of the link protocol, this is version {VERSION}")]
    Version { theirs: u8 },
    /// No try was acknowledged: the last of them, or no connection could be set up for long. The message may have been handled nevertheless, and no copy of it that is
    /// still under way will be once a later message was.
    #[error("no acknowledgement in {attempts} tries, {timeouts} of them timed out; the last: {last}")]
    Unacknowledged {
        /// Tries made; 0 when no connection was ever set up.
        attempts: u32,
        /// How many of them ran into their timeout.
        timeouts: u32,
        /// How the last one ended.
        #[source]
        last: TryError,
    },
    /// The receiver has handled a later message of this sender, so that it will not handle this one: the
    /// sender's identity is in use twice, or its count began too low.
    #[error("message {id} comes after a later one of the same sender")]
    Stale { id: u64 },
    /// Identifiers are 64 bits wide, and all are used.
    #[error("the identifiers of this sender are used up")]
    IdsSpent,
}

/// Why one try failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum TryError {
    /// No acknowledgement in the time the estimator gave.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// The connection was not set up.
    #[error("not connected")]
    Connect(#[source] io::Error),
    /// The connection was not set up in time, hello and welcome included.
    #[error("setting up the connection timed out after {0:?}")]
    ConnectTimedOut(Duration),
    /// The receiver declined, for it is full.
    #[error("the receiver has no room for another connection")]
    Full,
    /// The receiver declined, for it is shutting down.
    #[error("the receiver is shutting down")]
    Stopping,
    /// The connection broke, or the receiver closed it instead of acknowledging.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("message {acknowledged} was acknowledged instead of message {sent}")]
    WrongMessage { sent: u64, acknowledged: u64 },
    /// The peer spoke unasked, as one does that acknowledges twice.
    #[error("the peer spoke unasked")]
    Stray,
    /// What the peer sent is no frame of the protocol.
    #[error("the peer breaks the protocol")]
    Wire(#[from] WireError),
}

impl TryError {
    /// Whether the peer broke the protocol, rather than the network a connection.
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        matches!(self, Self::WrongMessage { .. } | Self::Stray | Self::Wire(_))
    }
}
