//! Compares two series of one quantity: whether they are equivalent, and equally predictable.
//!
//! The comparison is that of Krintz and Wolski, "JavaNws: The Network Weather Service for the
//! Desktop" (2000), §4 and §5. The paper compares measurements by C and by Java; this module
//! compares any two series.

mod comparison;
mod distance;
mod errors;
mod moments;
mod pairing;
pub mod plot;
mod regression;
mod series;

pub use self::comparison::{ComparedSeries, Outlier, OutlierCause, SeriesComparison};
pub use self::distance::{critical_value, kolmogorov_smirnov};
pub use self::errors::{AheadError, BINS, ErrorsAhead, Histogram, forecast_errors};
pub use self::moments::Moments;
pub use self::pairing::Pairing;
pub use self::regression::{OUTLIER_FACTOR, Preference, coefficient, outlier_from};
pub use self::series::{SeriesError, TcpCounters, TimedSeries};
pub use crate::units::format_significant;
