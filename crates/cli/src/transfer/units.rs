//! Sizes, rates, shares and times, as people read them and type them.

/// Bytes with three digits, by powers of 1000.
pub(crate) fn size(bytes: u64) -> String {
    let steps = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    // What would be rounded up to 1000 of a unit is 1 of the next.
    match steps.into_iter().find(|(scale, _)| 0.9995 * scale <= bytes as f64) {
        Some((scale, unit)) => format!("{} {unit}", three_digits(bytes as f64 / scale)),
        None => format!("{bytes} B"),
    }
}

/// Bits a second, of bytes a second.
pub(crate) fn rate(bytes_s: f64) -> String {
    let bits_s = 8.0 * bytes_s;
    let steps = [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    match steps.into_iter().find(|(scale, _)| 0.9995 * scale <= bits_s) {
        Some((scale, unit)) => format!("{} {unit}", three_digits(bits_s / scale)),
        None => format!("{bits_s:.0} bit/s"),
    }
}

/// A share with two digits where there are two to tell, never 0 for what is more.
pub(crate) fn share(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        _ if 0.0 < percent && percent < 0.005 => "<0.01 %".into(),
        ..0.995 => format!("{percent:.2} %"),
        ..9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A time to come or gone by, to the second, or to what counts beside it.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.round();
    // Saturates: nobody waits for a forecast of 584 billion years to end.
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
        // A thousand days are as good as never, and end no line too late.
        86_400..86_400_000 => {
            let (days, hours) = parts(86_400, 3600);
            format!("{days} d {hours:02} h")
        }
        _ => "over 1000 d".into(),
    }
}

/// A time that was measured: below a minute with a decimal, for many transfers are short.
pub(crate) fn lasted(seconds: f64) -> String {
    match seconds {
        ..0.0995 => format!("{:.0} ms", 1e3 * seconds),
        ..9.995 => format!("{seconds:.2} s"),
        ..59.95 => format!("{seconds:.1} s"),
        _ => time(seconds),
    }
}

/// `one` or `many` with its number.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn three_digits(number: f64) -> String {
    match number {
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A rate on the command line in bits a second, given as bytes a second: 800k, 100M, 2.5Gbit/s; powers of 1000.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("expected bits a second such as 100M, 2.5G or 800kbit/s, found {text}");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = unit.trim_start();
    if unit.contains('B') {
        return Err(format!("{} (bits: eight times the bytes)", wrong()));
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

/// Below, a packet takes longer than a second; above, nothing is built.
const RATES_BIT_S: std::ops::RangeInclusive<f64> = 8e3..=1e13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_have_three_digits() {
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
            assert_eq!(size(bytes), shown);
        }
        for (bytes_s, shown) in [
            (0.0, "0 bit/s"),
            (12.4, "99 bit/s"),
            (125e6, "1.00 Gbit/s"),
            (116.8e6, "934 Mbit/s"),
            (1e9, "8.00 Gbit/s"),
        ] {
            assert_eq!(rate(bytes_s), shown);
        }
    }

    #[test]
    fn shares_do_not_hide_what_is_there() {
        for (given, shown) in [
            (0.0, "0.00 %"),
            (1e-6, "<0.01 %"),
            (0.000_05, "0.01 %"),
            (0.0052, "0.52 %"),
            (0.031, "3.1 %"),
            (0.42, "42 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(share(given), shown);
        }
    }

    #[test]
    fn times_are_as_fine_as_they_are_short() {
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
            assert_eq!(time(seconds), shown);
        }
        for (seconds, shown) in
            [(0.0123, "12 ms"), (0.0996, "0.10 s"), (12.34, "12.3 s"), (59.97, "1 min 00 s")]
        {
            assert_eq!(lasted(seconds), shown);
        }
    }

    #[test]
    fn rates_are_read_in_bits_and_never_in_bytes() {
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
        assert!(parse_rate("10MB/s").is_err_and(|told| told.ends_with("(bits: eight times the bytes)")));
    }
}
