//! The batteries' methods: which, in which order, and what they share.

mod classic;
mod full;
mod nws;
mod recent;

pub(crate) use classic::{CLASSIC, Classic};
pub(crate) use full::{FULL, Full};
pub(crate) use nws::{NWS, Nws};
pub(crate) use recent::Recent;

use crate::Method;
use crate::rules::History;

/// A fixed list of `M` methods that learn the same series.
pub(crate) trait Bank<const M: usize> {
    /// The methods' names, in the order in which ties are decided.
    const METHODS: [Method; M];

    /// Windows of the two-level rule's selectors, in values, of [`crate::rules::ALL`]; 0 = everything.
    const WINDOWS: &'static [usize];

    /// What the two-level rule needs to know of errors long past.
    type History: History<M>;

    /// A bank that has learnt nothing; its predictions mean nothing yet.
    fn new() -> Self;

    /// Each method's prediction of the next value, given at least one value was learnt.
    fn predictions(&self) -> &[f64; M];

    /// Lets every method learn `value`, which is finite.
    fn learn(&mut self, value: f64);
}
