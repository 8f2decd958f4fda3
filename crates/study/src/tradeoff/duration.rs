//! Periods and test lengths as people write them.

/// A length of time: a number of seconds, or a number followed by `s`, `m`, `h` or `d`; 1 ms to 100 years.
///
/// # Errors
/// A sentence that says what was expected.
pub fn duration_s(text: &str) -> Result<f64, String> {
    let expected = || {
        format!("expected a length of time from 1 ms to 100 years, such as 300, 5m, 1h or 1d; found {text:?}")
    };
    let within = |seconds: &f64| (SECONDS_MIN..=SECONDS_MAX).contains(seconds);
    let unit_s = match text.chars().last() {
        Some('s') => 1.0,
        Some('m') => 60.0,
        Some('h') => 3600.0,
        Some('d') => 86_400.0,
        _ => return positive(text).filter(within).ok_or_else(expected),
    };
    // The last character is one byte.
    positive(&text[..text.len() - 1]).map(|number| number * unit_s).filter(within).ok_or_else(expected)
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

/// The length of the test that a file's name tells: the first part between `_`, `-`, blanks and points that is a number with
/// an `s`, such as `10s` in `goodput_10s.csv`; a point between digits is part of a number, as in `goodput_1.5s.csv`.
#[must_use]
pub fn length_of_name_s(name: &str) -> Option<f64> {
    let is_digit = |at: usize| name.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let is_cut = |&(at, character): &(usize, char)| match character {
        '_' | '-' | ' ' => true,
        '.' => !(at.checked_sub(1).is_some_and(is_digit) && is_digit(at + 1)),
        _ => false,
    };
    let cuts = name.char_indices().filter(is_cut).map(|(at, _)| at).chain([name.len()]);
    // What cuts is one byte long.
    let parts = cuts.scan(0, |from, to| Some(&name[std::mem::replace(from, to + 1)..to]));
    parts.into_iter().find_map(|part| positive(part.strip_suffix('s')?))
}

fn positive(text: &str) -> Option<f64> {
    // "inf" and "nan" are numbers to the parser.
    text.parse().ok().filter(|number: &f64| number.is_finite() && 0.0 < *number)
}

/// No network test is shorter.
const SECONDS_MIN: f64 = 0.001;

/// No series is longer: a hundred years.
const SECONDS_MAX: f64 = 100.0 * 365.25 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_shown() {
        for (text, expected) in [
            ("300", 300.0),
            ("1.5", 1.5),
            ("90s", 90.0),
            ("5m", 300.0),
            ("2h", 7200.0),
            ("1d", 86_400.0),
            ("0.001", 0.001),
        ] {
            assert_eq!(duration_s(text), Ok(expected), "{text}");
        }
        for text in [
            "", "s", "0", "-5m", "inf", "nan", "5 m", "1e999", "5µ", "ü", "0.0009", "1e-300", "36526d",
            "1e300d",
        ] {
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
            ("goodput_1.5s.csv", Some(1.5)),
            ("a.5s.csv", Some(5.0)),
            (".5s", Some(5.0)),
            ("é.2s.ü", Some(2.0)),
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
