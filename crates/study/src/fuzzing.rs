//! The functions that fuzzers run, so that `cargo test` can replay their corpora.

use std::io::BufReader;

use barograph_forecast::Quantity;

use crate::input::{MeasurementDetail, Sample, SeriesReader};

/// Reads `data` as a series, also with a wanted column, and checks what a reader guarantees for
/// every input.
///
/// # Panics
/// If the reader breaks a guarantee.
pub fn fuzz_series_reader(data: &[u8]) {
    for column in [None, Some("a")] {
        let whole = read(SeriesReader::new(data).of_column(column));
        let piecewise = read(SeriesReader::new(BufReader::with_capacity(3, data)).of_column(column));
        assert_eq!(whole, piecewise, "how the bytes arrive makes no difference");
        check(data, whole);
        let listed = read(SeriesReader::new(data).of_column(column).listing_quantities());
        assert!(listed.1.iter().all(|error| error.lines().count() == 1 && error.len() < ERROR_BYTES_MAX));
    }
}

fn check(data: &[u8], (samples, errors): Results) {
    let lines = data.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!(samples.len() + errors.len() <= lines + 1, "at most one result a line, and the end");
    assert!(!samples.is_empty() || !errors.is_empty(), "an empty series is an error");
    assert!(samples.iter().all(|(sample, _)| sample.time_s.is_finite() && sample.value.is_finite()));
    assert!(samples.is_sorted_by(|(a, _), (b, _)| a.time_s <= b.time_s), "times do not decrease");
    let is_sound = |detail: &MeasurementDetail| {
        detail.min_rtt_s.is_none_or(f64::is_finite)
            && detail.quantity.as_ref().is_none_or(|quantity| quantity.len() <= Quantity::BYTES_MAX)
    };
    assert!(samples.iter().all(|(_, detail)| is_sound(detail)));
    assert!(errors.iter().all(|error| error.lines().count() == 1 && error.len() < ERROR_BYTES_MAX));
}

/// The measurements with their details, and the messages of the errors.
type Results = (Vec<(Sample, MeasurementDetail)>, Vec<String>);

/// Reads the first `RESULTS_MAX` results.
fn read<R: std::io::BufRead>(mut reader: SeriesReader<R>) -> Results {
    let (mut samples, mut errors) = (Vec::new(), Vec::new());
    let mut last = false;
    for _ in 0..RESULTS_MAX {
        let result = reader.next();
        let failures = reader.take_failures();
        assert!(failures < FAILURES_MAX, "{failures} failures before one result");
        let Some(result) = result else { break };
        assert!(!last, "nothing follows a final error");
        match result {
            Ok(sample) => samples.push((sample, reader.detail().clone())),
            Err(error) => {
                last = !error.is_recoverable();
                errors.push(error.to_string());
            }
        }
    }
    (samples, errors)
}

/// Maximum number of results in one run of a fuzzer. Longer inputs find no new defects.
const RESULTS_MAX: usize = 10_000;

/// A message has at most two excerpts of 40 characters, which may be escaped, and a list of names.
const ERROR_BYTES_MAX: usize = 1500;

/// Callers learn each failure. A line of `ping` shows at most twice 2¹⁶ losses; no input of a
/// fuzzer has more than a thousand such lines.
const FAILURES_MAX: u64 = 1 << 27;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    /// Parts of lines of all formats.
    const PARTS: [&str; 40] = [
        "time_s",
        "value",
        "time",
        "ts_ms",
        "rtt",
        "a",
        "error",
        "quantity",
        ",",
        ",",
        ";",
        "\t",
        "\"",
        " ",
        "\n",
        "\n",
        "\n",
        "0",
        "1",
        "7.5",
        "-3e300",
        "NaN",
        "1777636800000",
        "2026-05-01T12:00:00Z",
        "2026-05-01 12:00:00.5+02:00",
        "2026-02-30",
        "{\"a\":",
        "{\"value\":1,\"ts\":\"2026-05-01\"}",
        "}",
        "PING a (::1): 56 data bytes\n",
        "PING a (::1) 56(84) bytes of data.\n",
        "64 bytes from ::1: icmp_seq=",
        "64 bytes from ::1: icmp_seq=3 ttl=57 time=12.3 ms\n",
        "64 bytes from ::1: seq=65535 ttl=1 time=2 ms\n",
        "[1777636800.5] ",
        "Request timeout for icmp_seq 40000\n",
        " time=1 ms",
        " packets transmitted",
        "é",
        "#",
    ];

    proptest! {
        #[test]
        fn lines_made_of_parts_of_all_formats_break_no_guarantee(
            parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..60),
        ) {
            fuzz_series_reader(parts.concat().as_bytes());
        }

        #[test]
        fn lines_below_a_header_break_no_guarantee(
            header in prop::sample::select(vec!["time,a\n", "a;ts_ms;b\n", "\ta\n", "PING a (::1): 56 data bytes\n"]),
            lines in "([0-9a-zT:;,\t \"-]{0,25}\n){0,12}",
        ) {
            fuzz_series_reader((header.to_owned() + &lines).as_bytes());
        }
    }

    #[test]
    fn the_series_corpus_replays_without_panics() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/series");
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz_series_reader(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 10, "the corpus is there, not {replayed} files");
    }
}
