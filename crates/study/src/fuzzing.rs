//! The functions that fuzzers run, so that `cargo test` can replay their corpora.

use std::io::BufReader;

use barograph_forecast::Quantity;

use crate::input::{MeasurementDetail, Sample, SeriesReader};

/// Reads `data` as a series, and checks what a reader guarantees for every input.
///
/// # Panics
/// If the reader breaks a guarantee.
pub fn fuzz_series_reader(data: &[u8]) {
    let whole = read(SeriesReader::new(data));
    let piecewise = read(SeriesReader::new(BufReader::with_capacity(3, data)));
    assert_eq!(whole, piecewise, "how the bytes arrive makes no difference");

    let (samples, errors) = whole;
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
    assert!(errors.iter().all(|error| error.lines().count() == 1 && error.len() < 600));
}

/// Reads the first `RESULTS_MAX` results; returns the measurements with their details, and the
/// messages of the errors.
fn read<R: std::io::BufRead>(mut reader: SeriesReader<R>) -> (Vec<(Sample, MeasurementDetail)>, Vec<String>) {
    let (mut samples, mut errors) = (Vec::new(), Vec::new());
    let mut last = false;
    for _ in 0..RESULTS_MAX {
        let Some(result) = reader.next() else { break };
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

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
