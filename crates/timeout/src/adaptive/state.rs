//! Binary format of saved states: `BT`, a version, a kind, then little-endian numbers.

use alloc::vec::Vec;
use core::fmt;

/// Reason why a saved state was not loaded.
///
/// ```
/// use barograph_timeout::{Adaptive, AdaptiveConfig, HostStatistics, StateError};
///
/// let (config, host) = (AdaptiveConfig::default(), HostStatistics::default());
/// let error = Adaptive::load(b"no state", &config, &host).expect_err("it is not a saved state");
/// assert_eq!(error, StateError::Unknown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes do not begin like a saved state, or the state is of another kind.
    Unknown,
    /// The format has a version that this code does not support.
    Version(u8),
    /// The number of bytes is wrong.
    Length(usize),
    /// The number at this offset is out of its range.
    Number(usize),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("not a saved timeout, or one of another kind (link or host); start without it")
            }
            Self::Version(version) => {
                write!(
                    f,
                    "the saved timeout has version {version}, this program supports {VERSION}; delete it, \
                     or use the newer program"
                )
            }
            Self::Length(bytes) => write!(
                f,
                "the saved timeout has {bytes} bytes, which is not its length; delete it to start again"
            ),
            Self::Number(offset) => {
                write!(f, "the saved timeout is damaged at byte {offset}; delete it to start again")
            }
        }
    }
}

impl core::error::Error for StateError {}

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u8) -> Self {
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, kind]);
        Self(bytes)
    }

    pub(super) fn single(&mut self, number: f32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn double(&mut self, number: f64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads numbers, and rejects numbers that are out of range.
pub(super) struct Reader<'a> {
    saved: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(saved: &'a [u8], kind: u8) -> Result<Self, StateError> {
        match saved {
            [a, b, version, found, ..] if [*a, *b] == MAGIC => match (*version, *found) {
                (VERSION, found) if found == kind => Ok(Self { saved, at: 4 }),
                (VERSION, _) => Err(StateError::Unknown),
                (version, _) => Err(StateError::Version(version)),
            },
            _ => Err(StateError::Unknown),
        }
    }

    /// Reads a count: not negative, and at most [`COUNT_MAX`].
    pub(super) fn count(&mut self) -> Result<f32, StateError> {
        let at = self.at;
        let count = f32::from_le_bytes(self.take()?);
        // NaN is in no range, so it is rejected.
        if (0.0..=COUNT_MAX).contains(&count) { Ok(count) } else { Err(StateError::Number(at)) }
    }

    /// Reads a number from `min` to `max`.
    pub(super) fn double(&mut self, min: f64, max: f64) -> Result<f64, StateError> {
        let at = self.at;
        let number = f64::from_le_bytes(self.take()?);
        if (min..=max).contains(&number) { Ok(number) } else { Err(StateError::Number(at)) }
    }

    pub(super) fn end(self) -> Result<(), StateError> {
        if self.at == self.saved.len() { Ok(()) } else { Err(StateError::Length(self.saved.len())) }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let rest = &self.saved[self.at..];
        let number = rest.first_chunk::<N>().ok_or(StateError::Length(self.saved.len()))?;
        self.at += N;
        Ok(*number)
    }
}

const MAGIC: [u8; 2] = *b"BT";
const VERSION: u8 = 1;

/// Maximum valid count. Old observations fade, so the counts of a link sum to about 500, and the
/// counts of a host sum to about 2000. A count above this limit means that the state is damaged.
const COUNT_MAX: f32 = 1e7;
