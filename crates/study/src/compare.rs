//! Compares two series of one quantity: whether they are equivalent, and equally predictable.
//!
//! The comparison is that of Krintz and Wolski, "JavaNws: The Network Weather Service for the
//! Desktop" (1999), §4 and §5. The paper compares measurements by C and by Java; this module
//! compares any two series.

mod distance;
mod errors;
mod moments;
mod pairing;
pub mod plot;
mod regression;
mod series;
mod study;

pub use self::distance::{critical_value, kolmogorov_smirnov};
pub use self::errors::{BINS, Histogram, forecast_errors};
pub use self::moments::Moments;
pub use self::pairing::Pairing;
pub use self::regression::{Better, OUTLIER_FACTOR, coefficient, outlier_from};
pub use self::series::{Kernel, Series, SeriesError};
pub use self::study::{Cause, Outlier, Side, Study};
pub use crate::units::figure;
