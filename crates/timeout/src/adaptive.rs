//! The default: learns from what it cut off, asks whether a retry helps, knows sizes, keeps a budget.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::nws::escalate;
use crate::time::bounded;
use crate::{Attempt, Decision, Ended, LIMIT, Reason, START, Timeout};

/// What an [`Adaptive`] is to do. The default is meant to be right.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The largest share of attempts that may be cut off, 0 to 1.
    pub budget: f64,
    /// The timeout while nothing is known.
    pub start: Duration,
    /// How long the last try may run; no timeout is longer.
    pub limit: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { budget: 0.2, start: START, limit: LIMIT }
    }
}

/// What the links of one host have learned together; cloning it gives another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct Host(Arc<()>);

/// The default estimator of one link.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: Config,
    _host: Host,
    level: f64,
    count: u64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::new(&Config::default(), &Host::default())
    }
}

impl Adaptive {
    /// A link that knows nothing but what `host` has learned on others.
    #[must_use]
    pub fn new(config: &Config, host: &Host) -> Self {
        Self { config: config.clone(), _host: host.clone(), level: 0.0, count: 0 }
    }

    /// Starts from a forecast made elsewhere, such as a station's for this pair, and its error; ignored
    /// once this link has answers of its own.
    pub fn start_from(&mut self, forecast: Duration, _error: Duration) {
        if self.count == 0 {
            self.level = libm::log2(forecast.as_secs_f64().max(1e-9));
            self.count = 1;
        }
    }

    /// All it has learned, in a small versioned format that [`Adaptive::load`] reads.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = self.level.to_le_bytes().to_vec();
        bytes.extend(self.count.to_le_bytes());
        bytes
    }

    /// What [`Adaptive::save`] saved, under a configuration that may be another.
    ///
    /// # Errors
    /// [`StateError`] when `saved` is no such state; nothing that it contains can make a timeout wild.
    pub fn load(saved: &[u8], config: &Config, host: &Host) -> Result<Self, StateError> {
        let (level, count) = saved.split_at_checked(8).ok_or(StateError::Length(saved.len()))?;
        let level = f64::from_le_bytes(level.try_into().map_err(|_| StateError::Length(saved.len()))?);
        let count = u64::from_le_bytes(count.try_into().map_err(|_| StateError::Length(saved.len()))?);
        Ok(Self { level, count, ..Self::new(config, host) })
    }

    /// Memory of this link in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl Timeout for Adaptive {
    fn decide(&self, attempt: &Attempt) -> Decision {
        let first = if self.count == 0 {
            Decision::bare(self.config.start, Reason::Start)
        } else {
            let forecast = libm::exp2(self.level);
            Decision {
                timeout: bounded(4.0 * forecast, self.config.limit),
                forecast: Some(bounded(forecast, self.config.limit)),
                error: None,
                expected_timeouts: f64::NAN,
                help: f64::NAN,
                reason: Reason::Restart,
            }
        };
        escalate(first, attempt, self.config.limit)
    }

    fn record(&mut self, _attempt: &Attempt, ended: Ended) {
        if let Ended::Answered(took) = ended {
            let value = libm::log2(took.as_secs_f64().max(1e-9));
            self.level += if self.count == 0 { value } else { (value - self.level) / 8.0 };
            self.count += 1;
        }
    }
}

/// Why a saved state was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateError {
    /// It has the wrong length.
    Length(usize),
    /// It was written in a version of the format that this code does not know.
    Version(u8),
    /// A number in it is not one that could have been saved.
    Damaged,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "a saved timeout of {bytes} bytes is no saved timeout"),
            Self::Version(version) => write!(f, "version {version} of a saved timeout is not known here"),
            Self::Damaged => f.write_str("the saved timeout is damaged"),
        }
    }
}

impl core::error::Error for StateError {}
