//! Numbers as they are printed.

/// A number with five significant digits.
#[must_use]
pub fn figure(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{number:.4e}");
    }
    // Of these sizes the logarithm lies from −4 to 7.
    let decimals = (4 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_five_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-12.345_678, "-12.346"),
            (0.000_951_234_9, "0.00095123"),
            (123_456.7, "123457"),
            (1e8, "1.0000e8"),
            (2.5e-7, "2.5000e-7"),
        ] {
            assert_eq!(figure(number), text);
        }
    }
}
