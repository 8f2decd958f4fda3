//! Errors of the emulator, named by the action that failed.

use std::io;

/// Why a link could not be described, set up or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum Error {
    /// The process may not create network namespaces or TUN devices; tests then print that they
    /// skip.
    #[error("not permitted to {action}: run as root with CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted { action: String },
    /// A field of a [`LinkSpec`](crate::LinkSpec), a [`Hop`](crate::Hop) or a `Switch` lies outside
    /// its range.
    #[error("{field} is {value}, expected {expected}")]
    BadSpec {
        /// Name of the field.
        field: &'static str,
        value: String,
        /// Range of valid values.
        expected: &'static str,
    },
    /// A line of a replayed delay series is not a delay.
    #[error("line {line}: `{text}` is not a delay in seconds between 0 and 60")]
    BadDelay {
        /// Number of the line, from 1.
        line: usize,
        /// Text of the line, cut to 40 characters.
        text: String,
    },
    /// A replayed delay series has no values, or too many.
    #[error("the delay series has {count} values, expected 1 to {limit}")]
    BadDelayCount {
        /// Number of values before reading stopped.
        count: usize,
        /// Maximum number of values.
        limit: usize,
    },
    /// A program of the system (`ip`, `tc`) failed or exceeded its time limit.
    #[error("`{command}` failed: {stderr}")]
    Command {
        command: String,
        /// Output of the program on standard error.
        stderr: String,
    },
    #[error("cannot {action}")]
    Io { action: String, source: io::Error },
}

impl Error {
    /// Wraps an I/O error with the action that failed; "permission denied" becomes
    /// [`Error::NotPermitted`].
    pub(crate) fn io(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (action, source) = (action.into(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { action },
            _ => Self::Io { action, source },
        }
    }
}
