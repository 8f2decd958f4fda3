//! Periods and test lengths as people write them.

/// A length of time: a number of seconds, or a number followed by `s`, `m`, `h` or `d`.
///
/// # Errors
/// A sentence that says what was expected.
pub fn duration_s(text: &str) -> Result<f64, String> {
    let expected = || format!("expected a length of time such as 300, 5m, 1h or 1d, found {text:?}");
    let unit_s = match text.chars().last() {
        Some('s') => 1.0,
        Some('m') => 60.0,
        Some('h') => 3600.0,
        Some('d') => 86_400.0,
        _ => return positive(text).ok_or_else(expected),
    };
    // The last character is one byte.
    positive(&text[..text.len() - 1]).map(|number| number * unit_s).ok_or_else(expected)
}

/// A period with the unit that suits it.
#[must_use]
pub fn shown_s(seconds: f64) -> String {
    let (unit_s, unit) = match seconds {
        s if s < 1.0 => return format!("{} s", crate::compare::figure(s)),
        s if s < 120.0 => (1.0, "s"),
        s if s < 7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    format!("{} {unit}", crate::plot::short((seconds / unit_s * 100.0).round() / 100.0))
}

/// The length of the test that a file's name tells: the first part between `_`, `-` and `.` that is a number with
/// an `s`, such as `10s` in `goodput_10s.csv`.
#[must_use]
pub fn length_of_name_s(name: &str) -> Option<f64> {
    name.split(['_', '-', '.', ' ']).find_map(|part| positive(part.strip_suffix('s')?))
}

fn positive(text: &str) -> Option<f64> {
    // "inf" and "nan" are numbers to the parser.
    text.parse().ok().filter(|number: &f64| number.is_finite() && 0.0 < *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_shown() {
        for (text, expected) in
            [("300", 300.0), ("1.5", 1.5), ("90s", 90.0), ("5m", 300.0), ("2h", 7200.0), ("1d", 86_400.0)]
        {
            assert_eq!(duration_s(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "0", "-5m", "inf", "nan", "5 m", "1e999", "5µ", "ü"] {
            assert!(duration_s(text).is_err(), "{text}");
        }
        for (seconds, expected) in [
            (0.0051, "0.0051 s"),
            (1.0, "1 s"),
            (300.0, "5 min"),
            (3600.0, "60 min"),
            (7200.0, "2 h"),
            (86_400.0, "24 h"),
            (300.123, "5 min"),
        ] {
            assert_eq!(shown_s(seconds), expected);
        }
    }

    #[test]
    fn a_name_may_tell_the_length() {
        for (name, expected) in [
            ("goodput_10s.csv", Some(10.0)),
            ("a-2s-b_5s.csv", Some(2.0)),
            ("5s", Some(5.0)),
            ("rtt_s_seattle.csv", None),
            ("infs.csv", None),
            ("bw_mbps_5g_static.csv", None),
        ] {
            assert_eq!(length_of_name_s(name), expected, "{name}");
        }
    }
}
