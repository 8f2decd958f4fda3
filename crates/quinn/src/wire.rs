//! Wire format of the extension (`docs/spec/quinn.md`).

use std::time::Duration;

use thiserror::Error;

/// First bytes of each datagram of the extension.
pub const MAGIC: [u8; 4] = *b"BGQL";
/// Version of the extension that this code implements.
pub const VERSION: u8 = 1;
/// Maximum number of rises in a report: the newest, and three before it in case that earlier
/// reports were lost.
pub const RISES_MAX: usize = 4;
/// Maximum age of a rise. A sender has decided about all losses that are as old.
pub const AGE_MAX: Duration = Duration::from_secs(60);

/// A datagram of the extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// A sender of data asks its receiver for reports.
    Offer,
    /// A receiver of data reports when its socket dropped datagrams.
    Report(Report),
}

/// When and how much a receiver's socket dropped.
///
/// ```
/// use barograph_quinn::wire::{Datagram, Report};
///
/// let report = Datagram::Report(Report::default());
/// assert_eq!(Datagram::decode(&report.encode()), Ok(report));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of rises of the drop counter that were reported so far; 0 if there was none.
    pub number: u32,
    /// The last rises, newest first. The first one has the number of the report.
    pub rises: Vec<ReportedRise>,
}

/// A rise of the drop counter: the socket dropped datagrams between two reads of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedRise {
    /// Age of the read before the drops (µs), at most [`AGE_MAX`].
    pub from_us: u32,
    /// Age of the read after the drops (µs), at most `from_us`.
    pub to_us: u32,
    /// Estimated number of bytes that were dropped, at least 1.
    pub bytes: u32,
}

/// Reason why a datagram is not one of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The first bytes are not [`MAGIC`], so the datagram is the application's.
    #[error("a datagram of the application")]
    Foreign,
    /// The datagram has another version than [`VERSION`].
    #[error("version {0}, and only {VERSION} is known")]
    Version(u8),
    /// The version does not define this kind.
    #[error("a datagram of the undefined kind {0}")]
    Kind(u8),
    /// The reserved bytes are not 0.
    #[error("reserved bytes are not 0")]
    Reserved,
    /// The datagram has a length that its kind does not have.
    #[error("{0} bytes, which is not a length of this kind")]
    Length(usize),
    /// The report has more rises than its number counts, or none although its number counts some.
    #[error("report {number} with {rises} rises")]
    Rises {
        /// Number of the report.
        number: u32,
        /// Number of rises in the datagram.
        rises: usize,
    },
    /// A rise ends before it begins, is too old, or has no bytes.
    #[error("an impossible rise: from {from_us} µs to {to_us} µs ago, {bytes} bytes")]
    Rise {
        /// Age of the beginning (µs).
        from_us: u32,
        /// Age of the end (µs).
        to_us: u32,
        /// Number of dropped bytes.
        bytes: u32,
    },
}

impl Datagram {
    /// Encodes the datagram. At most [`RISES_MAX`] rises of a report are encoded.
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self {
            Self::Offer => OFFER,
            Self::Report(_) => REPORT,
        };
        let mut bytes = [&MAGIC[..], &[VERSION, kind, 0, 0]].concat();
        if let Self::Report(report) = self {
            bytes.extend(report.number.to_be_bytes());
            for rise in report.rises.iter().take(RISES_MAX) {
                bytes.extend([rise.from_us, rise.to_us, rise.bytes].into_iter().flat_map(u32::to_be_bytes));
            }
        }
        bytes
    }

    /// Decodes a datagram.
    ///
    /// # Errors
    /// The datagram is the application's, or breaks a rule of the specification.
    pub fn decode(datagram: &[u8]) -> Result<Self, WireError> {
        let Some((head, body)) = datagram.split_first_chunk::<HEAD_BYTES>() else {
            return Err(WireError::Foreign);
        };
        let [magic @ .., version, kind, reserved, also_reserved] = *head;
        if magic != MAGIC {
            return Err(WireError::Foreign);
        }
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if (reserved, also_reserved) != (0, 0) {
            return Err(WireError::Reserved);
        }
        match kind {
            OFFER if body.is_empty() => Ok(Self::Offer),
            OFFER => Err(WireError::Length(datagram.len())),
            REPORT => Report::decode(body).map(Self::Report),
            other => Err(WireError::Kind(other)),
        }
    }
}

impl Report {
    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let length = WireError::Length(HEAD_BYTES + body.len());
        let (number, rest) = body.split_first_chunk().ok_or(length)?;
        let number = u32::from_be_bytes(*number);
        let (rises, []) = rest.as_chunks::<RISE_BYTES>() else { return Err(length) };
        if rises.len() > RISES_MAX {
            return Err(length);
        }
        if (number == 0) != rises.is_empty() || (number as usize) < rises.len() {
            return Err(WireError::Rises { number, rises: rises.len() });
        }
        let rises = rises.iter().map(ReportedRise::decode).collect::<Result<_, _>>()?;
        Ok(Self { number, rises })
    }
}

impl ReportedRise {
    fn decode(bytes: &[u8; RISE_BYTES]) -> Result<Self, WireError> {
        let field = |index: usize| {
            let at = |offset: usize| bytes.get(4 * index + offset).copied().unwrap_or_default();
            u32::from_be_bytes([at(0), at(1), at(2), at(3)])
        };
        let (from_us, to_us, bytes) = (field(0), field(1), field(2));
        let is_young = Duration::from_micros(u64::from(from_us)) <= AGE_MAX;
        if to_us <= from_us && is_young && bytes > 0 {
            Ok(Self { from_us, to_us, bytes })
        } else {
            Err(WireError::Rise { from_us, to_us, bytes })
        }
    }
}

const OFFER: u8 = 1;
const REPORT: u8 = 2;
/// Length of magic, version, kind and reserved bytes.
const HEAD_BYTES: usize = 8;
/// Length of a rise: three integers.
const RISE_BYTES: usize = 12;
