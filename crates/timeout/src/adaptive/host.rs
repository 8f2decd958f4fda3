//! What the links of one host learn together, without a lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::histogram::{BINS, Counts};
use super::state::{Reader, StateError, Writer};

/// What the links of one host have learned together: how answers scatter, and whether retries help. Cloning
/// it gives another handle to the same.
///
/// Links read and add to it once in up to 32 messages, and around retries, by atomic operations; nobody ever
/// waits.
#[derive(Clone, Debug, Default)]
pub struct Host(Arc<Pool>);

impl Host {
    /// What it has learned, in a small versioned format that [`Host::load`] reads.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        let counts = self.counts();
        let Evidence { retried: (a, b), passive: (c, d) } = self.evidence();
        counts.answered.iter().chain(&counts.censored).for_each(|count| writer.single(*count));
        [a, b, c, d].into_iter().for_each(|weight| writer.single(weight as f32));
        writer.bytes()
    }

    /// What [`Host::save`] saved.
    ///
    /// # Errors
    /// [`StateError`] when `saved` is nothing of the kind.
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

    /// Adds an observation of some bin.
    pub(super) fn count(&self, bin: usize, censored: bool) {
        let cells = if censored { &self.0.censored } else { &self.0.answered };
        change(&cells[bin], |count| count + 1.0);
    }

    /// Adds to what is known of retries: one was made and was quick or not, or, for nothing, the message after
    /// a slow one was quick or not.
    pub(super) fn witness(&self, helped: bool, retried: bool) {
        let cells = if retried { &self.0.retried } else { &self.0.passive };
        change(&cells[usize::from(!helped)], |count| count + 1.0);
    }

    pub(super) fn evidence(&self) -> Evidence {
        let both = |cells: &[AtomicU32; 2]| (read(&cells[0]).into(), read(&cells[1]).into());
        Evidence { retried: both(&self.0.retried), passive: both(&self.0.passive) }
    }

    pub(super) fn counts(&self) -> Counts {
        let all = |cells: &[AtomicU32; BINS]| core::array::from_fn(|bin| read(&cells[bin]));
        Counts { answered: all(&self.0.answered), censored: all(&self.0.censored) }
    }

    /// Lets old counts fade. Two links that do so at once fade them twice, which does no harm.
    pub(super) fn fade(&self, counts_total: f64) {
        if COUNTS_MAX < counts_total {
            halve(&self.0.answered);
            halve(&self.0.censored);
        }
        let Evidence { retried, passive } = self.evidence();
        if EVIDENCE_MAX < retried.0 + retried.1 {
            halve(&self.0.retried);
        }
        if EVIDENCE_MAX < passive.0 + passive.1 {
            halve(&self.0.passive);
        }
    }
}

/// How often a retry was quick, and how often not; and the same of messages that came after a slow one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    pub(super) retried: (f64, f64),
    pub(super) passive: (f64, f64),
}

impl Evidence {
    /// The share of retries that are quick, from 0 to 1: the mean of a beta distribution that starts uniform
    /// (Laplace's rule of succession). What cost nothing counts half, and for four retries at most.
    pub(super) fn quick(&self) -> f64 {
        let (quick, slow) = self.passive;
        let weight =
            if 0.0 < quick + slow { (PASSIVE_MAX / (quick + slow)).min(PASSIVE_WEIGHT) } else { 0.0 };
        let (yes, no) = (1.0 + self.retried.0 + weight * quick, 1.0 + self.retried.1 + weight * slow);
        yes / (yes + no)
    }
}

/// Counts as the bits of an `f32`.
#[derive(Debug)]
struct Pool {
    answered: [AtomicU32; BINS],
    censored: [AtomicU32; BINS],
    retried: [AtomicU32; 2],
    passive: [AtomicU32; 2],
}

impl Default for Pool {
    fn default() -> Self {
        // All bits 0 are the number 0.
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
    // The function never declines, so the update cannot fail.
    let _ = cell.fetch_update(Relaxed, Relaxed, |bits| Some(to(f32::from_bits(bits)).to_bits()));
}

fn halve(cells: &[AtomicU32]) {
    cells.iter().for_each(|cell| change(cell, |count| 0.5 * count));
}

/// Fades after so many observations of all links: as long as a link's own memory, for a handful of links.
const COUNTS_MAX: f64 = 2000.0;

/// Fades after so much evidence: a path's nature changes within days, not within minutes.
const EVIDENCE_MAX: f64 = 400.0;

/// The message after a slow one comes later than a retry would: it says half as much, and no more than a few
/// retries would.
const PASSIVE_WEIGHT: f64 = 0.5;
const PASSIVE_MAX: f64 = 4.0;

/// Marks a saved host.
const KIND: u8 = b'H';
