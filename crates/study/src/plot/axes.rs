//! Axes with numbers of a few digits, whatever the series' magnitude.

use std::ops::Range;

use super::PlotColumn;
use crate::units::axis_number;

/// The axis of values. Values that are too large or too small for the drawing library are scaled.
/// The range is wider than rounding errors, as the drawing library requires.
pub(super) struct ValueAxis {
    /// Exponent of the power of ten by which values are divided.
    exponent: i32,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl ValueAxis {
    /// The axis for values in this range, and whether it is logarithmic.
    pub(super) fn of((least, greatest): (f64, f64)) -> (Self, bool) {
        let size = least.abs().max(greatest.abs());
        let exponent = if size == 0.0 || (1e-4..1e7).contains(&size) { 0 } else { magnitude(size) };
        let mut value_axis = Self { exponent, low: f64::NEG_INFINITY, high: f64::INFINITY };
        let (least, greatest) = (value_axis.at(least), value_axis.at(greatest));
        let logarithmic = least > 0.0 && least * LOGARITHMIC_FROM < greatest;
        (value_axis.low, value_axis.high) = if logarithmic {
            (least.max(greatest / LOGARITHMIC_TO) / 1.3, greatest * 1.3)
        } else {
            let margin = (greatest - least).max(greatest.abs() * 1e-6).max(1e-9) * 0.06;
            (least - margin, greatest + margin)
        };
        (value_axis, logarithmic)
    }

    /// The position of a value on the axis; a value outside the range of the axis gets the position
    /// of the nearer end.
    pub(super) fn at(&self, value: f64) -> f64 {
        (value / 10f64.powi(self.exponent)).clamp(self.low, self.high)
    }

    pub(super) fn name(&self, unit: &str) -> String {
        match (unit, self.exponent) {
            ("", 0) => "value".to_owned(),
            (unit, 0) => format!("value ({unit})"),
            (unit, exponent) => {
                format!("value (1e{exponent}{}{unit})", if unit.is_empty() { "" } else { " " })
            }
        }
    }
}

/// The axis of time, from the first value on.
pub(super) struct TimeAxis {
    pub(super) name: String,
    unit_s: f64,
    first_s: f64,
    last: f64,
}

impl TimeAxis {
    /// Chooses a unit in which times have a few digits.
    pub(super) fn of(columns: &[PlotColumn], timed: bool) -> Self {
        let first_s = columns.first().map_or(0.0, |column| column.first_s);
        let last_s = columns.last().map_or(0.0, |column| column.last_s);
        let span_s = last_s - first_s;
        let (name, unit_s) = match span_s {
            _ if !timed => ("measurement".to_owned(), 1.0),
            s if s == 0.0 || (1e-2..=600.0).contains(&s) => ("time (s)".to_owned(), 1.0),
            s if (600.0..=4.0 * 3600.0).contains(&s) => ("time (min)".to_owned(), 60.0),
            s if (4.0 * 3600.0..=4.0 * 86_400.0).contains(&s) => ("time (h)".to_owned(), 3600.0),
            s if (4.0 * 86_400.0..=1e10).contains(&s) => ("time (days)".to_owned(), 86_400.0),
            s => {
                let exponent = magnitude(s.min(f64::MAX));
                (format!("time (1e{exponent} s)"), 10f64.powi(exponent))
            }
        };
        let mut time_axis = Self { name, unit_s, first_s, last: 1.0 };
        time_axis.last = time_axis.at(last_s);
        time_axis
    }

    pub(super) fn at(&self, time_s: f64) -> f64 {
        time_s / self.unit_s - self.first_s / self.unit_s
    }

    pub(super) fn range(&self) -> Range<f64> {
        // If there is only one point, or all points have the same time, the range must still not be
        // empty.
        if self.last > 0.0 { 0.0..self.last } else { -0.5..0.5 }
    }
}

/// The exponent of the power of ten below a positive number, limited so that `f64` can divide by
/// that power.
fn magnitude(number: f64) -> i32 {
    (number.log10().floor() as i32).clamp(-300, 300)
}

/// The label of `number` on a linear axis of this range. The library Plotters adds up steps, so its
/// number for zero may have a rounding error; such a number gets the label 0.
pub(crate) fn tick_label(number: f64, range: &Range<f64>) -> String {
    let has_zero = range.start <= 0.0 && 0.0 <= range.end;
    let is_rounding = number.abs() < (range.end - range.start) * ROUNDING;
    axis_number(if has_zero && is_rounding { 0.0 } else { number })
}

/// Share of an axis' length that counts as a rounding error: far more than the errors of a few
/// dozen steps, far less than one step.
const ROUNDING: f64 = 1e-9;

/// Ratio of the greatest to the least value above which the scale is logarithmic. On a linear
/// scale, all values except the outliers would be a flat line.
pub(super) const LOGARITHMIC_FROM: f64 = 100.0;

/// Maximum ratio of the two ends of a logarithmic scale. Values below the lower end do not matter.
const LOGARITHMIC_TO: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_labels_show_rounding_errors_of_zero_as_0() {
        for (number, range, label) in [
            (-2.2e-16, -0.6..0.8, "0"),
            (5.6e-17, -0.1..0.1, "0"),
            (-1e-22, -1e-20..1e-20, "-1.0e-22"),
            (1e-12, 1e-12..1.0, "1.0e-12"),
            (0.2, -0.6..0.8, "0.2"),
        ] {
            assert_eq!(tick_label(number, &range), label, "{range:?}");
        }
    }
}
