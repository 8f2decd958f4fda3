//! Errors of an engine.

use std::time::Duration;

/// Error of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum EngineError {
    /// The records may be stored or not. Append the same batch again.
    #[error("the records may or may not be stored ({0}); append the same batch again")]
    Unknown(String),
    #[error("denied: {0}")]
    Denied(String),
    /// The engine cannot be reached or has stopped, or its disk is full. Nothing was stored.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// A rate limit is reached. Nothing was stored, and nothing is wrong: the same request succeeds
    /// after the wait.
    #[error("{reason}; retry in {:.1} s", wait.as_secs_f64())]
    Throttled {
        /// The limit that was reached.
        reason: String,
        /// Time until the limit permits the request.
        wait: Duration,
    },
    /// The stored data cannot be read. Nothing was deleted.
    #[error("the archive is damaged: {0}")]
    Corrupt(String),
    /// The requested records are no longer stored.
    #[error("too old: {0}")]
    TooOld(String),
    /// A newer version of Barograph wrote the archive.
    #[error(
        "a newer version wrote the archive (format {found}; this version reads up to {known}); \
         install that version"
    )]
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
impl EngineError {
    /// Converts an error that another station's archive reported: damage of that archive must not
    /// be reported as damage of the caller's own archive.
    pub(crate) fn of_another_archive(self) -> Self {
        match self {
            damage @ Self::Corrupt(_) => Self::Unavailable(format!("another archive reports: {damage}")),
            other => other,
        }
    }
}
