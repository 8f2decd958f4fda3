//! Formats and parses sizes, rates, shares and times, as people read and type them.

/// Formats bytes with three digits, in powers of 1000.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let steps = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    scaled(bytes as f64, &steps).unwrap_or_else(|| format!("{bytes} B"))
}

/// Formats a rate in bytes per second as bits per second, with three digits.
#[must_use]
pub fn format_byte_rate(bytes_s: f64) -> String {
    format_bit_rate(8.0 * bytes_s)
}

/// Formats a rate in bits per second, with three digits.
#[must_use]
pub fn format_bit_rate(bit_s: f64) -> String {
    let steps = [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    scaled(bit_s, &steps).unwrap_or_else(|| format!("{bit_s:.0} bit/s"))
}

/// Formats a measured or forecast time in seconds, with three digits.
#[must_use]
pub fn format_seconds(seconds: f64) -> String {
    match seconds {
        36_000.0.. => format!("{} h", three_digits(seconds / 3600.0)),
        600.0.. => format!("{} min", three_digits(seconds / 60.0)),
        _ => scaled(seconds, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")])
            .unwrap_or_else(|| format!("{} ns", three_digits(seconds * 1e9))),
    }
}

/// Formats `number` in the first unit that is not larger than the number; `None` if the number is
/// smaller than the last unit.
fn scaled(number: f64, steps: &[(f64, &str)]) -> Option<String> {
    // The limit is 0.9995 and not 1, so that a number that would be rounded to 1000 of a unit is
    // shown as 1 of the next larger unit.
    let (scale, unit) = steps.iter().find(|(scale, _)| 0.9995 * scale <= number)?;
    Some(format!("{} {unit}", three_digits(number / scale)))
}

/// Formats a share in percent with about two digits; a share above 0 is never shown as 0.
#[must_use]
pub fn format_share(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        _ if 0.0 < percent && percent < 0.005 => "<0.01 %".into(),
        ..0.995 => format!("{percent:.2} %"),
        ..9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a remaining or elapsed time with its two largest units, rounded to whole seconds.
#[must_use]
pub fn format_duration(seconds: f64) -> String {
    let whole = seconds.round();
    // The conversion saturates, at 584 billion years.
    let (total, parts) = (whole as u64, |unit: u64, of: u64| (whole as u64 / unit, whole as u64 % unit / of));
    match total {
        0..60 => format!("{total} s"),
        60..3600 => {
            let (minutes, seconds) = parts(60, 1);
            format!("{minutes} min {seconds:02} s")
        }
        3600..86_400 => {
            let (hours, minutes) = parts(3600, 60);
            format!("{hours} h {minutes:02} min")
        }
        // Above a thousand days the exact number does not matter, and it would make the line
        // longer.
        86_400..86_400_000 => {
            let (days, hours) = parts(86_400, 3600);
            format!("{days} d {hours:02} h")
        }
        _ => "over 1000 d".into(),
    }
}

/// Formats a measured duration; below a minute with decimals, because many transfers are short.
#[must_use]
pub fn format_elapsed(seconds: f64) -> String {
    match seconds {
        ..0.0995 => format!("{:.0} ms", 1e3 * seconds),
        ..9.995 => format!("{seconds:.2} s"),
        ..59.95 => format!("{seconds:.1} s"),
        _ => format_duration(seconds),
    }
}

/// Formats the time since an event, or until an event, with about two digits.
#[must_use]
pub fn format_age(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}

/// Formats a period in seconds, minutes or hours, depending on its length.
#[must_use]
pub fn format_period(seconds: f64) -> String {
    let (unit_s, unit) = match seconds {
        s if s < 1.0 => return format!("{} s", format_significant(s)),
        s if s < 120.0 => (1.0, "s"),
        s if s < 7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    format!("{} {unit}", axis_number((seconds / unit_s * 100.0).round() / 100.0))
}

/// Formats a number with its noun: `one` after 1, else `many`.
#[must_use]
pub fn format_count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn three_digits(number: f64) -> String {
    match number {
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// Formats a number with five significant digits.
#[must_use]
pub fn format_significant(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{number:.4e}");
    }
    // For these sizes the logarithm is from −4 to 7.
    let decimals = (4 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a number on an axis.
pub(crate) fn axis_number(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{number:.1e}");
    }
    let text = format!("{number:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Parses a number of bytes with a unit. kB, MB, GB and TB are powers of 1000. KiB, MiB, GiB and
/// TiB are powers of 1024, and so are k, M, G and T, as for `barograph probe`.
///
/// # Errors
/// A sentence that names what was expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a number of bytes such as 700MB, 1GiB or 14600, found {text}");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let power = |letter: u8| match letter.to_ascii_uppercase() {
        b'K' => Some(1),
        b'M' => Some(2),
        b'G' => Some(3),
        b'T' => Some(4),
        _ => None,
    };
    let factor = match *unit.trim_start().as_bytes() {
        [] | [b'B'] => Some(1.0),
        [letter] | [letter, b'i', b'B'] => power(letter).map(|power| 1024_f64.powi(power)),
        [letter, b'B'] => power(letter).map(|power| 1000_f64.powi(power)),
        _ => None,
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number * factor.ok_or_else(wrong)?;
    if (1.0..=1e15).contains(&bytes) {
        Ok(bytes.round() as u64)
    } else {
        Err(format!("expected 1 byte to 1000 TB, found {text}"))
    }
}

/// Parses a rate in bits per second, such as 800k, 100M or 2.5Gbit/s, and returns bytes per second.
/// Prefixes are powers of 1000.
///
/// # Errors
/// A sentence that names what was expected.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("expected bits a second such as 100M, 2.5G or 800kbit/s, found {text}");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = unit.trim_start();
    if unit.contains('B') {
        return Err(format!("{} (rates are in bits: multiply bytes by 8)", wrong()));
    }
    let prefix = unit.trim_end_matches("/s").trim_end_matches("bit");
    let factor = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return Err(wrong()),
    };
    let bits_s = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    if RATES_BIT_S.contains(&bits_s) {
        Ok(bits_s / 8.0)
    } else {
        Err(format!("expected 8 kbit/s to 10 Tbit/s, found {text}"))
    }
}

/// Parses a length of time and returns seconds: a number of seconds, or a number followed by `s`,
/// `m`, `h` or `d`; from 1 ms to 100 years.
///
/// # Errors
/// A sentence that names what was expected.
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
    // The last character is one of `s`, `m`, `h`, `d`, so it is one byte long.
    positive(&text[..text.len() - 1]).map(|number| number * unit_s).filter(within).ok_or_else(expected)
}

pub(crate) fn positive(text: &str) -> Option<f64> {
    // The parser also accepts `inf` and `nan`, so check that the number is finite.
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

/// Range of accepted rates, in bit/s. At a lower rate, a packet of 1000 bytes takes longer than one
/// second. No network has a higher rate.
const RATES_BIT_S: std::ops::RangeInclusive<f64> = 8e3..=1e13;

/// Minimum accepted length of time, in seconds. No network test is shorter.
const SECONDS_MIN: f64 = 0.001;

/// Maximum accepted length of time, in seconds: a hundred years. No series is longer.
const SECONDS_MAX: f64 = 100.0 * 365.25 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_shown_with_three_digits() {
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (9_996, "10.0 kB"),
            (999_499, "999 kB"),
            (999_501, "1.00 MB"),
            (2_900_000_000, "2.90 GB"),
            (u64::MAX, "18446744 TB"),
        ];
        for (bytes, shown) in sizes {
            assert_eq!(format_bytes(bytes), shown);
        }
        for (bytes_s, shown) in [
            (0.0, "0 bit/s"),
            (12.4, "99 bit/s"),
            (125e6, "1.00 Gbit/s"),
            (116.8e6, "934 Mbit/s"),
            (1e9, "8.00 Gbit/s"),
        ] {
            assert_eq!(format_byte_rate(bytes_s), shown);
        }
    }

    #[test]
    fn small_shares_are_not_shown_as_zero() {
        for (given, shown) in [
            (0.0, "0.00 %"),
            (1e-6, "<0.01 %"),
            (0.000_05, "0.01 %"),
            (0.0052, "0.52 %"),
            (0.031, "3.1 %"),
            (0.42, "42 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(format_share(given), shown);
        }
    }

    #[test]
    fn durations_are_shown_with_two_units_or_fewer() {
        for (seconds, shown) in [
            (0.4, "0 s"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (112.0, "1 min 52 s"),
            (3599.6, "1 h 00 min"),
            (7500.0, "2 h 05 min"),
            (100_000.0, "1 d 03 h"),
            (1e300, "over 1000 d"),
            (f64::INFINITY, "over 1000 d"),
        ] {
            assert_eq!(format_duration(seconds), shown);
        }
        for (seconds, shown) in
            [(0.0123, "12 ms"), (0.0996, "0.10 s"), (12.34, "12.3 s"), (59.97, "1 min 00 s")]
        {
            assert_eq!(format_elapsed(seconds), shown);
        }
    }

    #[test]
    fn rates_are_parsed_in_bits_and_never_in_bytes() {
        for (text, bytes_s) in [
            ("8000", 1e3),
            ("800k", 1e5),
            ("100M", 125e5),
            ("2.5Gbit/s", 312.5e6),
            ("1 Gbit", 125e6),
            ("10T", 1.25e12),
        ] {
            assert_eq!(parse_rate(text), Ok(bytes_s), "{text}");
        }
        for bad in ["", "0", "M", "-1M", "1X", "7999", "11T", "1.2.3M", "inf", "nan", "1e9", "1Mbits"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        assert!(
            parse_rate("10MB/s")
                .is_err_and(|told| told.ends_with("(rates are in bits: multiply bytes by 8)"))
        );
    }

    #[test]
    fn byte_counts_are_parsed_with_their_units() {
        for (text, bytes) in [
            ("14600", 14_600),
            ("700MB", 700_000_000),
            ("1GiB", 1 << 30),
            ("1.5 GB", 1_500_000_000),
            ("64k", 65_536),
            ("16M", 16 << 20),
            ("2kB", 2000),
            ("1 B", 1),
            ("1000TB", 1_000_000_000_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "-1", "MB", "1XB", "1MiBs", "1.2.3", "1001TB", "0.4", "64µ", "inf", "1e3"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_parsed_and_shown() {
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
            assert_eq!(format_period(seconds), expected);
        }
    }

    #[test]
    fn numbers_are_shown_with_five_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-12.345_678, "-12.346"),
            (0.000_951_234_9, "0.00095123"),
            (123_456.7, "123457"),
            (1e8, "1.0000e8"),
            (2.5e-7, "2.5000e-7"),
        ] {
            assert_eq!(format_significant(number), text);
        }
    }
}
