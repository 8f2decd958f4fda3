//! Errors that end a transfer early, and the Refuse that is sent to the other end for each of them.

use std::io;

use crate::files::FileError;
use crate::io::control::{ControlError, RefuseReason};
use crate::io::flow::FlowError;
use crate::io::identity::IdentityError;

/// Why a transfer did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum SessionError {
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the other end refused: {text}")]
    Refused { reason: RefuseReason, text: String },
    #[error(transparent)]
    Control(ControlError),
    /// The control connection ended before the transfer did.
    #[error(
        "lost the connection to the other end ({0}); received data is kept: start the transfer again to resume"
    )]
    ConnectionLost(ControlError),
    /// The receiver's host reads fewer packets than arrive, so the rest should be sent to a
    /// different receiver.
    #[error(
        "the receiver's host was too slow for nine of ten seconds and lost {:.2} % of the packets",
        100.0 * lost
    )]
    ReceiverOverloaded {
        /// Share of the sent packets that the host lost, 0 to 1.
        lost: f64,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The other end breaks the protocol.
    #[error("the other end breaks the protocol: {0}")]
    Protocol(String),
    #[error("{0}")]
    Incompatible(&'static str),
    /// The limit of simultaneous transfers is reached.
    #[error("{0} transfers are running, which is the limit of this receiver: try again later")]
    TooManyTransfers(usize),
    /// The system did not provide a socket or a thread.
    #[error("cannot get {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl SessionError {
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// Error for a thread that panicked. A panic is always a defect of this program.
    pub(super) fn broken() -> Self {
        Self::System { what: "a thread's result", source: io::Error::other("it panicked") }
    }

    /// Converts an error of a connection that was established before.
    pub(super) fn connection_lost(error: ControlError) -> Self {
        match Self::from(error) {
            Self::Control(
                error @ (ControlError::Closed
                | ControlError::CutOff
                | ControlError::Io(_)
                | ControlError::Timeout { .. }),
            ) => Self::ConnectionLost(error),
            other => other,
        }
    }

    /// Reason and text of the Refuse to send; `None` if the other end ended the transfer or cannot
    /// be reached any more.
    pub(super) fn refusal(&self) -> Option<(RefuseReason, String)> {
        let reason = match self {
            Self::Refused { .. } | Self::ConnectionLost(_) => return None,
            Self::Flow(FlowError::Stopped) | Self::ReceiverOverloaded { .. } => RefuseReason::Stopped,
            Self::Flow(FlowError::Violation(_)) | Self::Protocol(_) | Self::Incompatible(_) => {
                RefuseReason::Protocol
            }
            Self::Flow(FlowError::File(error)) | Self::File(error) => of_file(error),
            Self::TooManyTransfers(_) => RefuseReason::Busy,
            Self::Control(ControlError::Frame(_) | ControlError::Order(_)) => RefuseReason::Protocol,
            _ => RefuseReason::Failed,
        };
        Some((reason, self.to_string()))
    }
}

impl From<ControlError> for SessionError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused { reason, text } => Self::Refused { reason, text },
            ControlError::Stopped => Self::Flow(FlowError::Stopped),
            error => Self::Control(error),
        }
    }
}

fn of_file(error: &FileError) -> RefuseReason {
    match error {
        FileError::Full { .. } | FileError::NoRoom { .. } => RefuseReason::Full,
        FileError::Quota { .. } | FileError::Link(_) => RefuseReason::Quota,
        FileError::Exists(_) => RefuseReason::Exists,
        FileError::Changed(_) | FileError::Shrank { .. } => RefuseReason::Changed,
        FileError::Digest(_) => RefuseReason::Digest,
        FileError::Stopped => RefuseReason::Stopped,
        FileError::Busy(_) => RefuseReason::Busy,
        FileError::Manifest(_)
        | FileError::Path(_)
        | FileError::OutOfRange { .. }
        | FileError::Digests(..) => RefuseReason::Protocol,
        _ => RefuseReason::Failed,
    }
}
