//! The methods of each preset, the order of the methods, and the trait that the sets of methods
//! share.

mod classic;
mod full;
mod lean;
mod nws;
mod recent;

pub(crate) use classic::{CLASSIC, Classic};
pub(crate) use full::{FULL, FULL_LANES, Full};
pub(crate) use lean::{LEAN, Lean};
pub(crate) use nws::{NWS, Nws};
pub(crate) use recent::RecentValues;

use barograph_lanes::Lanes;

use crate::Method;
use crate::horizon::OneStep;
use crate::rules::ErrorHistory;

/// Number of values before the regressions learn: the step scale is accurate enough after four.
const STEPS_FROM: u64 = 4;

/// Number of contexts, and of classes of each context.
pub(crate) const CONTEXTS: usize = 2;
pub(crate) const CLASSES: usize = 3;

/// The class of the last values in each context, from 0 to [`CLASSES`] − 1.
pub(crate) type Classes = [u8; CONTEXTS];

/// A fixed list of `M` methods that learn the same series.
pub(crate) trait MethodSet<const M: usize> {
    /// Names of the methods. If methods have equal errors, the first of these methods is selected.
    const METHODS: [Method; M];

    /// Lengths of the windows of the two-level rule's selectors, in values; 0 = all values. Each
    /// length is in [`crate::rules::WINDOW_LENGTHS`].
    const WINDOWS: &'static [usize];

    /// Methods that forecasts further ahead use: the last value, the running mean, a smoother, a
    /// long median, and the mean of a level or of a long window.
    const HORIZON_METHODS: [usize; OneStep::METHODS];

    /// Type that stores or recomputes the past errors that the two-level rule needs.
    type History: ErrorHistory<M>;

    /// Creates the methods without values. The predictions are not valid before the first value.
    fn new() -> Self;

    /// Each method's prediction of the next value; valid after the first value.
    fn predictions(&self) -> &[f64; M];

    /// The class of the last values in each context.
    fn classes(&self) -> Classes {
        [0; CONTEXTS]
    }

    /// Updates every method with `value`, which is finite. Each kind of `lanes` gives the same
    /// bits.
    fn learn<L: Lanes>(&mut self, lanes: L, value: f64);
}
