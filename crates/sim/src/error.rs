//! What can go wrong, named by what failed.

use std::io;

/// Why a link could not be described, set up or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum Error {
    /// This process may not make network namespaces or TUN devices; tests turn this into a loud skip.
    #[error("not permitted to {action}: emulated links need root with CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    NotPermitted { action: String },
    /// A field of a [`LinkSpec`](crate::LinkSpec) lies outside its range.
    #[error("{field} is {value}, expected {expected}")]
    BadSpec {
        /// The name of the field.
        field: &'static str,
        value: String,
        /// The range it must lie in.
        expected: &'static str,
    },
    /// A line of a replayed delay series is not a delay.
    #[error("line {line}: `{text}` is not a delay in seconds between 0 and 60")]
    BadDelay {
        /// The line, counted from 1.
        line: usize,
        /// What stood there, cut to a readable length.
        text: String,
    },
    /// A replayed delay series has no value, or too many.
    #[error("a replayed delay series holds {count} values, expected 1 to {limit}")]
    BadDelayCount {
        /// How many values were found before reading stopped.
        count: usize,
        /// The largest count that is read.
        limit: usize,
    },
    /// A program of the system (`ip`, `tc`) failed or was too slow.
    #[error("`{command}` failed: {stderr}")]
    Command {
        command: String,
        /// What it wrote to standard error.
        stderr: String,
    },
    #[error("cannot {action}")]
    Io { action: String, source: io::Error },
}

impl Error {
    /// Names an operating-system error; a refusal becomes [`Error::NotPermitted`].
    pub(crate) fn io(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (action, source) = (action.into(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { action },
            _ => Self::Io { action, source },
        }
    }
}
