//! The forecasting methods, one family in each file; each method learns values and predicts the
//! next value.

pub(crate) mod adaptive;
pub(crate) mod analogues;
pub(crate) mod autoregressive;
pub(crate) mod cascade;
pub(crate) mod lane_window;
pub(crate) mod lattice;
pub(crate) mod level_shift;
pub(crate) mod lms;
pub(crate) mod reversion;
pub(crate) mod smoothing;
pub(crate) mod window;

/// `value`, or the bound that `value` is beyond.
///
/// `f64::clamp` panics with both bounds in its message. The code that formats them would be 22 KB
/// of the page's WebAssembly.
#[inline(always)]
pub(crate) fn limited(value: f64, low: f64, high: f64) -> f64 {
    debug_assert!(low <= high, "the bounds are in order");
    let raised = if value < low { low } else { value };
    if high < raised { high } else { raised }
}
