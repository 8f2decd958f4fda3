//! Computes what a longer period or a shorter test costs in forecast error, and saves in bytes.
//!
//! The computation is that of Lee, Stepanek, Wolski, Kesselman and Foster, "A Network Performance
//! Tool for Grid Environments" (SC '99, "Gloperf"), §4: a series is subsampled to longer periods,
//! at every offset, and predictors of the next measurement are scored on each subsample.

mod duration;
mod grid;
mod plot;
mod predictor;
mod reading;
mod study;

pub use self::duration::length_of_name_s;
pub use self::grid::{Grid, GridError};
pub use self::plot::svg;
pub use self::predictor::{EXPONENTIAL_WEIGHT, Errors, Predictor};
pub use self::reading::{ReadError, Source, read};
pub use self::study::{Measured, Over, Row, Study};
pub use crate::units::{duration_s, shown_s};
