//! Errors of an engine.

use std::time::Duration;

/// Error of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum Error {
    /// The records may be stored or not. Append the same batch again.
    #[error("it is not known whether the records were stored ({0}); append the same batch again")]
    Unknown(String),
    #[error("denied: {0}")]
    Denied(String),
    /// The engine cannot be reached or has stopped, or its disk is full. Nothing was stored.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// A rate limit is reached. Nothing was stored, and nothing is wrong: the same request succeeds
    /// after the wait.
    #[error("{why}; again in {:.1} s", wait.as_secs_f64())]
    Throttled {
        /// The limit that was reached.
        why: String,
        /// Time until the limit permits the request.
        wait: Duration,
    },
    /// The stored data cannot be read. Nothing was deleted.
    #[error("the stored data are damaged: {0}")]
    Corrupt(String),
    /// The requested records are no longer stored.
    #[error("too old: {0}")]
    TooOld(String),
    /// A newer version of Barograph wrote the archive.
    #[error("the archive was written by a newer version (format {found}; this version knows {known})")]
    TooNew { found: u32, known: u32 },
    /// The request breaks a documented limit.
    #[error("{0}")]
    Invalid(String),
    #[error("a slow subscriber missed up to {missed} records")]
    Lagged {
        /// Upper bound of the number of missed records. Records that the selector does not match
        /// count too.
        missed: u64,
    },
}

#[cfg(any(feature = "nats", feature = "remote"))]
impl Error {
    /// Converts an error that another station's archive reported: damage of that archive must not
    /// be reported as damage of the caller's own.
    pub(crate) fn of_another_archive(self) -> Self {
        match self {
            damage @ Self::Corrupt(_) => Self::Unavailable(format!("another archive reports: {damage}")),
            other => other,
        }
    }
}
