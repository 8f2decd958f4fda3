//! Computes how much a longer period or a shorter test increases the forecast error, and how many
//! bytes this change saves.
//!
//! The computation is that of Lee, Stepanek, Wolski, Kesselman and Foster, "A Network Performance
//! Tool for Grid Environments" (SC '99, "Gloperf"), §4: a series is subsampled to longer periods,
//! at every offset, and predictors of the next measurement are scored on each subsample.

mod ahead;
mod grid;
mod plot;
mod predictor;
mod reading;
mod scores;
mod test_length;

pub use self::grid::{Grid, GridError};
pub use self::plot::svg;
pub use self::predictor::{EXPONENTIAL_WEIGHT, OffsetErrors, Predictor};
pub use self::reading::{ReadError, ReadOptions, read};
pub use self::scores::{MeasuredSeries, OffsetStatistics, ScoreRow, TradeoffScores};
pub use self::test_length::test_length_from_name_s;
pub use crate::units::{duration_s, format_period};
