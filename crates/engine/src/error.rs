//! Why an engine could not do what was asked.

use std::time::Duration;

/// Why an engine could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum Error {
    /// It may or may not have been stored: append the same batch again.
    #[error("it is not known whether the records were stored ({0}); append the same batch again")]
    Unknown(String),
    #[error("denied: {0}")]
    Denied(String),
    /// The engine cannot be reached or has stopped, or its disk is full; nothing was stored.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// Too much was asked for in a short time; nothing was stored. It is no fault: the same is taken
    /// after the wait.
    #[error("{why}; again in {:.1} s", wait.as_secs_f64())]
    Throttled {
        /// Which allowance is used up.
        why: String,
        /// How long until it has refilled.
        wait: Duration,
    },
    /// The stored data cannot be read; nothing was deleted.
    #[error("the stored data are damaged: {0}")]
    Corrupt(String),
    /// What was asked for is no longer kept.
    #[error("too old: {0}")]
    TooOld(String),
    /// The archive was written by a newer Barograph.
    #[error("the archive was written by a newer version (format {found}; this version knows {known})")]
    TooNew { found: u32, known: u32 },
    /// The request breaks a stated limit.
    #[error("{0}")]
    Invalid(String),
    #[error("a slow subscriber missed up to {missed} records")]
    Lagged {
        /// How many at most; records that its selector does not match are counted too.
        missed: u64,
    },
}

#[cfg(any(feature = "nats", feature = "remote"))]
impl Error {
    /// An error that another station's archive reported: damage there is none of the caller's own archive.
    pub(crate) fn of_another_archive(self) -> Self {
        match self {
            damage @ Self::Corrupt(_) => Self::Unavailable(format!("another archive reports: {damage}")),
            other => other,
        }
    }
}
