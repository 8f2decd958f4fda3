//! Detects a shift of round-trip times or loss: values that stay outside their forecast interval.

/// Watches one series. The interval that the first surprise was outside of stays the reference for
/// the next values. The forecaster adapts within a few values, so its newer intervals would contain
/// the new level.
#[derive(Debug, Default)]
pub(super) struct ShiftDetector {
    held: Option<HeldInterval>,
}

#[derive(Debug)]
struct HeldInterval {
    lower: f64,
    upper: f64,
    /// Number of values since the interval was held, and of those above and below it.
    values: u32,
    above: u32,
    below: u32,
}

impl ShiftDetector {
    /// Adds a value and the interval issued for it; returns whether the level has shifted:
    /// [`SHIFTED_MIN`] of [`WINDOW`] values are outside the interval on the same side.
    pub(super) fn push(&mut self, value: f64, issued: Option<(f64, f64)>) -> bool {
        let mut held = match (self.held.take(), issued) {
            (Some(held), _) => held,
            (None, Some((lower, upper))) => HeldInterval { lower, upper, values: 0, above: 0, below: 0 },
            (None, None) => return false,
        };
        held.values += 1;
        held.above += u32::from(value > held.upper * MARGIN);
        held.below += u32::from(value * MARGIN < held.lower);
        let most = held.above.max(held.below);
        let is_shifted = most == SHIFTED_MIN;
        // Keep the interval only while the remaining values can still show a shift.
        let can_shift = most > 0 && SHIFTED_MIN - most <= WINDOW - held.values;
        if !is_shifted && can_shift {
            self.held = Some(held);
        }
        is_shifted
    }
}

/// Number of values outside the interval that show a shift, of [`WINDOW`] values. A value is above
/// a 90 % interval by chance once in 20. So chance alone shows a shift about once in 20 000
/// independent values: once in two days for each series with a period of 10 s.
const SHIFTED_MIN: u32 = 4;

/// Number of values among which a shift must show. With a period of 10 s the shift is seen within
/// 50 s.
const WINDOW: u32 = 5;

/// Factor by which a value must be outside. On a quiet local network intervals are narrower than
/// any change that matters for a transfer.
const MARGIN: f64 = 1.2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes the values with an interval from 10 to 20 ms, and returns the number of values until
    /// the first shift.
    fn shifted_after(values_ms: &[f64]) -> Option<usize> {
        let mut detector = ShiftDetector::default();
        let is_shifted = |ms: &f64| detector.push(ms / 1e3, Some((0.010, 0.020)));
        values_ms.iter().map(is_shifted).position(|is_shifted| is_shifted).map(|at| at + 1)
    }

    #[test]
    fn four_of_five_values_on_one_side_are_a_shift() {
        assert_eq!(shifted_after(&[15.0, 30.0, 30.0, 30.0, 30.0]), Some(5));
        assert_eq!(shifted_after(&[30.0, 30.0, 15.0, 30.0, 30.0]), Some(5));
        assert_eq!(shifted_after(&[5.0, 5.0, 5.0, 5.0]), Some(4));
        assert_eq!(shifted_after(&[30.0, 15.0, 15.0, 30.0, 30.0, 30.0, 15.0, 30.0]), Some(8));
    }

    #[test]
    fn outliers_on_both_sides_or_near_the_interval_are_no_shift() {
        assert_eq!(shifted_after(&[30.0, 5.0, 30.0, 5.0, 30.0, 5.0, 30.0, 5.0]), None);
        assert_eq!(shifted_after(&[30.0, 30.0, 15.0, 15.0, 30.0, 30.0, 15.0, 15.0]), None);
        assert_eq!(shifted_after(&[23.0; 20]), None, "15 % above the interval");
    }

    #[test]
    fn the_interval_before_the_shift_stays_the_reference() {
        let mut detector = ShiftDetector::default();
        // The forecaster has learnt the new level from its second value on.
        let shifts: Vec<bool> = [(0.01, 0.02), (0.02, 0.04), (0.02, 0.04), (0.02, 0.04)]
            .into_iter()
            .map(|issued| detector.push(0.03, Some(issued)))
            .collect();
        assert_eq!(shifts, [false, false, false, true]);
        assert!((0..20).all(|_| !detector.push(0.03, Some((0.02, 0.04)))), "the new level is usual");
        assert!(!detector.push(9.0, None), "no interval, no surprise");
    }
}
