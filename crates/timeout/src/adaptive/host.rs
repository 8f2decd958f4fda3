//! State that the links of one host share without a lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::histogram::{BINS, BinCounts};
use super::state::{Reader, StateError, Writer};

/// What the links of one host have learned together: the distribution of response times around
/// their forecasts, and whether retries help. A clone is another handle to the same state.
///
/// A link reads and writes this state by atomic operations: after retries, after slow messages, and
/// once in up to 32 other messages. No link ever waits.
///
/// ```
/// use barograph_timeout::{Adaptive, AdaptiveConfig, HostStatistics};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (config, host) = (AdaptiveConfig::default(), HostStatistics::default());
/// let _to_one_target = Adaptive::new(&config, &host);
/// let _to_another_target = Adaptive::new(&config, &host);
/// let saved = host.save();
/// assert_eq!(HostStatistics::load(&saved)?.save(), saved);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct HostStatistics(Arc<Pool>);

impl HostStatistics {
    /// Saves what was learned, in a small versioned format that [`HostStatistics::load`] reads.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        let counts = self.counts();
        let RetryEvidence { retried: (a, b), passive: (c, d) } = self.evidence();
        counts.answered.iter().chain(&counts.censored).for_each(|count| writer.single(*count));
        [a, b, c, d].into_iter().for_each(|weight| writer.single(weight as f32));
        writer.bytes()
    }

    /// Loads what [`HostStatistics::save`] saved.
    ///
    /// # Errors
    /// [`StateError`] if `saved` is not the state of a host.
    pub fn load(saved: &[u8]) -> Result<Self, StateError> {
        let mut reader = Reader::new(saved, KIND)?;
        let host = Self::default();
        let pool = &*host.0;
        for cell in pool.answered.iter().chain(&pool.censored).chain(&pool.retried).chain(&pool.passive) {
            cell.store(reader.count()?.to_bits(), Relaxed);
        }
        reader.end()?;
        Ok(host)
    }

    /// Counts an observation in `bin`.
    pub(super) fn count(&self, bin: usize, censored: bool) {
        let cells = if censored { &self.0.censored } else { &self.0.answered };
        change(&cells[bin], |count| count + 1.0);
    }

    /// Counts one piece of evidence on retries: whether an attempt was quick.
    pub(super) fn record_retry_evidence(&self, source: EvidenceSource, is_quick: bool) {
        let cells = match source {
            EvidenceSource::Retry => &self.0.retried,
            EvidenceSource::NextMessage => &self.0.passive,
        };
        change(&cells[usize::from(!is_quick)], |count| count + 1.0);
    }

    pub(super) fn evidence(&self) -> RetryEvidence {
        let both = |cells: &[AtomicU32; 2]| (read(&cells[0]).into(), read(&cells[1]).into());
        RetryEvidence { retried: both(&self.0.retried), passive: both(&self.0.passive) }
    }

    pub(super) fn counts(&self) -> BinCounts {
        let all = |cells: &[AtomicU32; BINS]| core::array::from_fn(|bin| read(&cells[bin]));
        BinCounts { answered: all(&self.0.answered), censored: all(&self.0.censored) }
    }

    /// Halves old counts. If two links halve the counts at once, the counts fade twice, which is
    /// harmless.
    pub(super) fn fade(&self, counts_total: f64) {
        if counts_total > COUNTS_MAX {
            halve(&self.0.answered);
            halve(&self.0.censored);
        }
        let RetryEvidence { retried, passive } = self.evidence();
        if retried.0 + retried.1 > EVIDENCE_MAX {
            halve(&self.0.retried);
        }
        if passive.0 + passive.1 > EVIDENCE_MAX {
            halve(&self.0.passive);
        }
    }
}

/// Attempt that shows whether retries help.
#[derive(Clone, Copy, Debug)]
pub(super) enum EvidenceSource {
    /// First retry of a message.
    Retry,
    /// First attempt of the message after a slow message. Such evidence needs no retry.
    NextMessage,
}

/// Number of quick and of slow retries (`retried`), and of quick and of slow messages after a slow
/// message (`passive`).
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryEvidence {
    pub(super) retried: (f64, f64),
    pub(super) passive: (f64, f64),
}

impl RetryEvidence {
    /// Estimated share of retries that are quick, from 0 to 1: the mean of a beta distribution that
    /// starts uniform (Laplace's rule of succession). Messages after a slow message have half the
    /// weight of a retry, and all such messages together have at most the weight of four retries.
    pub(super) fn quick(&self) -> f64 {
        let (quick, slow) = self.passive;
        let weight =
            if quick + slow > 0.0 { (PASSIVE_MAX / (quick + slow)).min(PASSIVE_WEIGHT) } else { 0.0 };
        let (yes, no) = (1.0 + self.retried.0 + weight * quick, 1.0 + self.retried.1 + weight * slow);
        yes / (yes + no)
    }
}

/// Counts of a host. Each count is stored as the bits of an `f32`.
#[derive(Debug)]
struct Pool {
    answered: [AtomicU32; BINS],
    censored: [AtomicU32; BINS],
    retried: [AtomicU32; 2],
    passive: [AtomicU32; 2],
}

impl Default for Pool {
    fn default() -> Self {
        // The `f32` 0.0 has the bits 0.
        fn zeros<const N: usize>() -> [AtomicU32; N] {
            core::array::from_fn(|_| AtomicU32::new(0))
        }
        Self { answered: zeros(), censored: zeros(), retried: zeros(), passive: zeros() }
    }
}

fn read(cell: &AtomicU32) -> f32 {
    f32::from_bits(cell.load(Relaxed))
}

fn change(cell: &AtomicU32, to: impl Fn(f32) -> f32) {
    // The closure always returns `Some`, so the update cannot fail.
    let _ = cell.fetch_update(Relaxed, Relaxed, |bits| Some(to(f32::from_bits(bits)).to_bits()));
}

fn halve(cells: &[AtomicU32]) {
    cells.iter().for_each(|cell| change(cell, |count| 0.5 * count));
}

/// Number of observations of all links after which the counts are halved. If the host has a few
/// links, these counts fade about as fast as the counts in the histogram of one link.
const COUNTS_MAX: f64 = 2000.0;

/// Number of retries and other messages counted as evidence, after which these counts are halved.
/// Whether retries help on a path changes within days, not within minutes.
const EVIDENCE_MAX: f64 = 400.0;

/// Weight of one message after a slow message, and largest weight of all such messages together.
/// The unit is the weight of one retry. The weights are small, because such a message comes later
/// than a retry would.
const PASSIVE_WEIGHT: f64 = 0.5;
const PASSIVE_MAX: f64 = 4.0;

/// Kind of a saved state: a host.
const KIND: u8 = b'H';
