//! Errors that end a transfer early, and what is sent to the other end about them.

use std::io;

use crate::files::FileError;
use crate::io::control::{ControlError, Reason};
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
    #[error("the other end says: {text}")]
    Refused { reason: Reason, text: String },
    #[error(transparent)]
    Control(ControlError),
    /// The control connection ended before the transfer did.
    #[error(
        "the connection to the other end is lost ({0}); what came is kept, start the transfer again to go on"
    )]
    Lost(ControlError),
    /// The receiver's host reads less than arrives, and the rest should be sent to a different
    /// receiver.
    #[error(
        "the CPU of the receiver's host was the limit in nine of ten seconds; {:.2} % of the packets were lost there",
        100.0 * lost
    )]
    Contended {
        /// Lost packets as a share of the packets sent, 0 to 1.
        lost: f64,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The other end breaks the protocol.
    #[error("the other end breaks the protocol: {0}")]
    Protocol(String),
    #[error("{0}")]
    Unsuited(&'static str),
    /// The limit of simultaneous transfers is reached.
    #[error("{0} transfers are under way, which is as many as are taken at once")]
    Crowded(usize),
    /// The system refuses a socket or a thread.
    #[error("{what} is not to be had: {source}")]
    System { what: &'static str, source: io::Error },
}

impl SessionError {
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// A thread panicked, which is a defect.
    pub(super) fn broken() -> Self {
        Self::System { what: "a thread's result", source: io::Error::other("it panicked") }
    }

    /// An error of a connection that was established before.
    pub(super) fn lost(error: ControlError) -> Self {
        match Self::from(error) {
            Self::Control(
                error @ (ControlError::Closed
                | ControlError::CutOff
                | ControlError::Io(_)
                | ControlError::Late { .. }),
            ) => Self::Lost(error),
            other => other,
        }
    }

    /// Reason and text of the Refuse to send; `None` if the other end ended the transfer or cannot
    /// be reached any more.
    pub(super) fn told(&self) -> Option<(Reason, String)> {
        let reason = match self {
            Self::Refused { .. } | Self::Lost(_) => return None,
            Self::Flow(FlowError::Stopped) | Self::Contended { .. } => Reason::Stopped,
            Self::Flow(FlowError::Violation(_)) | Self::Protocol(_) | Self::Unsuited(_) => Reason::Protocol,
            Self::Flow(FlowError::File(error)) | Self::File(error) => of_file(error),
            Self::Crowded(_) => Reason::Busy,
            Self::Control(ControlError::Frame(_) | ControlError::Order(_)) => Reason::Protocol,
            _ => Reason::Failed,
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

fn of_file(error: &FileError) -> Reason {
    match error {
        FileError::Full { .. } | FileError::NoRoom { .. } => Reason::Full,
        FileError::Quota { .. } | FileError::Link(_) => Reason::Quota,
        FileError::Exists(_) => Reason::Exists,
        FileError::Changed(_) | FileError::Shrank { .. } => Reason::Changed,
        FileError::Digest(_) => Reason::Digest,
        FileError::Stopped => Reason::Stopped,
        FileError::Busy(_) => Reason::Busy,
        FileError::Manifest(_) | FileError::Path(_) | FileError::Beyond { .. } | FileError::Digests(..) => {
            Reason::Protocol
        }
        _ => Reason::Failed,
    }
}
