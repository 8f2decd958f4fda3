//! Numbers as text: with all digits for programs, and short for people.

use std::fmt;

/// A number with all its digits: reading it back gives the same double.
pub(super) struct Exact(pub(super) f64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size != 0.0 && size.is_finite() && !(1e-7..1e16).contains(&size) {
            write!(f, "{:e}", self.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// A number for people: six significant digits.
pub(super) struct Short(pub(super) f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == 0.0 || !size.is_finite() {
            return write!(f, "{}", self.0.abs());
        }
        if !(1e-4..1e9).contains(&size) {
            return write!(f, "{:.3e}", self.0);
        }
        let decimals = (5 - size.log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{:.decimals$}", self.0);
        let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        f.write_str(short)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn numbers_for_people_have_six_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (177.3024999, "177.302"),
            (0.000123456789, "0.000123457"),
            (123456789.0, "123456789"),
            (1e12, "1.000e12"),
            (3e-7, "3.000e-7"),
        ];
        for (number, text) in cases {
            assert_eq!(Short(number).to_string(), text);
        }
    }

    #[test]
    fn printed_exact_numbers_parse_to_the_same_value() {
        for number in [0.0, -0.0, 1.0, 0.1, 1.0 / 3.0, 1e-300, -1.7976931348623157e308, 5e-324, 123456.789] {
            let text = Exact(number).to_string();
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), number.to_bits());
            assert!(text.len() < 26, "{text}");
        }
    }
}
