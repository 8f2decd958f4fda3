//! The rules that make one forecast of many, for squared and for absolute error at once.

mod blend;
mod history;
mod selection;

pub(crate) use blend::Blend;
pub(crate) use history::{History, LAGS, Ring};
pub(crate) use selection::{ALL, Flat, TwoLevel};

/// The forecast of one rule under one loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Choice {
    pub(crate) value: f64,
    /// The method behind it, or that with the largest weight.
    pub(crate) method: usize,
    /// Its weight among all, where there are weights.
    pub(crate) weight: Option<f64>,
}

/// A rule over `M` methods.
///
/// `observe` is called for every value with the predictions made before it was seen (for the first
/// value they mean nothing), then `choose` with the predictions of the next.
pub(crate) trait Choose<const M: usize> {
    fn new() -> Self;

    /// Scores `predictions` on `value`, the `number`th of the series from 0.
    fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64);

    /// The forecasts for squared and for absolute error.
    fn choose(&mut self, predictions: &[f64; M]) -> [Choice; 2];

    /// Heap memory in bytes.
    fn heap_bytes(&self) -> usize;

    /// Every method's weight under squared (0) or absolute (1) error in the last choice.
    fn weights(&self, loss: usize) -> [f64; M];
}

/// The place of the least score; ties go to the first, and NaN is never least.
pub(crate) fn least<const M: usize>(scores: &[f64; M]) -> usize {
    // Two lanes, which one instruction compares; then the first that is as low.
    let mut lanes = [f64::INFINITY; 2];
    for pair in scores.chunks(2) {
        for (lane, score) in lanes.iter_mut().zip(pair) {
            *lane = if *score < *lane { *score } else { *lane };
        }
    }
    let low = if lanes[1] < lanes[0] { lanes[1] } else { lanes[0] };
    scores.iter().position(|score| *score <= low).unwrap_or(0)
}

/// The place of the greatest weight; ties go to the first.
pub(crate) fn most<const M: usize>(weights: &[f64; M]) -> usize {
    let mut high = f64::NEG_INFINITY;
    for weight in weights {
        high = if high < *weight { *weight } else { high };
    }
    weights.iter().position(|weight| *weight == high).unwrap_or(0)
}
