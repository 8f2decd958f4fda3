//! Reads the series of a file: one series for each test length that the lines of the file name.

use std::io::BufRead;

use super::grid::{Grid, GridError};
use super::scores::MeasuredSeries;
use super::test_length::test_length_from_name_s;
use crate::input::{Format, InputError, MeasurementDetail, Sample, SeriesReader};

/// A file to read: its name, and what the user gave on the command line about its series.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions<'a> {
    /// The file's name, without folders.
    pub name: &'a str,
    /// Length of the tests, in seconds, if the user gives it.
    pub length_s: Option<f64>,
    /// The base period in seconds, if the user gives it.
    pub base_s: Option<f64>,
    /// The quantity to read; `None` = the only quantity of the file.
    pub quantity: Option<&'a str>,
    /// The column or key of the values; `None` = a column that is chosen.
    pub column: Option<&'a str>,
    /// The unit of the values, or empty.
    pub unit: &'a str,
}

/// Reads the series of a file onto grids, in ascending order of their test lengths.
///
/// The test length is the length that the user gives, else the length on a line (`test_s`), else
/// the length in the file's name.
///
/// # Errors
/// [`ReadError`] with a sentence about what is wrong with the file.
pub fn read(input: impl BufRead, options: &ReadOptions<'_>) -> Result<Vec<MeasuredSeries>, ReadError> {
    let reader = SeriesReader::new(input).of_quantity(options.quantity).of_column(options.column);
    let mut reader = reader.listing_quantities();
    let mut all: Vec<(Option<f64>, Vec<Sample>)> = Vec::new();
    let mut count = 0_usize;
    while let Some(sample) = reader.next() {
        let mut sample = sample?;
        if !reader.format().is_some_and(Format::is_timed) {
            sample.time_s *= options.base_s.ok_or(ReadError::Untimed)?;
        }
        let MeasurementDetail { test_s, .. } = *reader.detail();
        count += 1;
        if count > VALUES_MAX {
            return Err(ReadError::TooManyValues);
        }
        let length_s = match (options.length_s, test_s) {
            (None, Some(test_s)) if test_s <= 0.0 => return Err(ReadError::Length { test_s }),
            (None, Some(test_s)) => Some(test_s),
            (said, _) => said,
        };
        match all.iter().position(|(length, _)| *length == length_s) {
            Some(index) => all[index].1.push(sample),
            None if all.len() == LENGTHS_MAX => return Err(ReadError::TooManyLengths),
            None => all.push((length_s, vec![sample])),
        }
    }
    all.sort_by(|a, b| a.0.unwrap_or(0.0).total_cmp(&b.0.unwrap_or(0.0)));
    let bit_per_s = bit_per_s(options.unit, reader.quantity().or(options.quantity));
    let measured = |(length_s, samples): (Option<f64>, Vec<Sample>)| {
        let grid = Grid::of(&samples, options.base_s)?;
        let length_s = length_s.or_else(|| test_length_from_name_s(options.name));
        Ok(MeasuredSeries { name: options.name.to_owned(), length_s, bit_per_s, grid })
    };
    all.into_iter().map(measured).collect()
}

/// The factor that converts values to bit/s. The unit determines the factor. Without a unit, the
/// factor for goodput is 1. `None` if the values are not rates.
fn bit_per_s(unit: &str, quantity: Option<&str>) -> Option<f64> {
    match (unit, quantity) {
        ("bit/s", _) | ("", Some("goodput" | "goodput_down")) => Some(1.0),
        ("kbit/s", _) => Some(1e3),
        ("Mbit/s", _) => Some(1e6),
        ("Gbit/s", _) => Some(1e9),
        _ => None,
    }
}

/// Why a file has no series.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum ReadError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Grid(#[from] GridError),
    #[error(
        "the values have no times; add a column or key time_s, or give the time between values with --base"
    )]
    Untimed,
    #[error("test_s is {test_s}; expected more than 0 seconds")]
    Length {
        /// The length on the line, in seconds.
        test_s: f64,
    },
    #[error("the file has more than {VALUES_MAX} values; split it")]
    TooManyValues,
    /// The file has more than `LENGTHS_MAX` test lengths.
    #[error(
        "test_s has more than {LENGTHS_MAX} different values; write the intended length, such as 10 for a test \
         of 10 s"
    )]
    TooManyLengths,
}

/// Maximum number of values in one file, equal to the maximum number of slots in a grid.
const VALUES_MAX: usize = 10_000_000;

/// Maximum number of different test lengths in one file; the paper has five. A file exceeds this
/// number if its column `test_s` contains measured durations, because nearly every duration is
/// different.
const LENGTHS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn lengths(text: &str, options: &ReadOptions<'_>) -> Vec<(Option<f64>, usize)> {
        let series = read(text.as_bytes(), options).unwrap();
        series.iter().map(|measured| (measured.length_s, measured.grid.values().count())).collect()
    }

    #[test]
    fn test_length_comes_from_the_option_the_line_or_the_file_name() {
        let rows = "time_s,goodput,test_s\n0,5,10\n60,3,1\n300,6,10\n360,4,1\n";
        let named = ReadOptions { name: "x_7s.csv", ..ReadOptions::default() };
        assert_eq!(lengths(rows, &named), [(Some(1.0), 2), (Some(10.0), 2)]);
        assert_eq!(lengths(rows, &ReadOptions { length_s: Some(5.0), ..named.clone() }), [(Some(5.0), 4)]);
        assert_eq!(lengths("0,5\n60,3\n", &named), [(Some(7.0), 2)]);
        assert_eq!(lengths("0,5\n60,3\n", &ReadOptions::default()), [(None, 2)]);
        let lines =
            "{\"time_s\":0,\"value\":1,\"test_s\":2}\n{\"time_s\":9,\"value\":1,\"detail\":{\"test_s\":2}}\n";
        assert_eq!(lengths(lines, &named), [(Some(2.0), 2)]);
    }

    #[test]
    fn values_without_times_need_a_period() {
        assert!(matches!(read(&b"1\n2\n"[..], &ReadOptions::default()), Err(ReadError::Untimed)));
        let options = ReadOptions { base_s: Some(300.0), ..ReadOptions::default() };
        assert_eq!(read(&b"1\n2\n"[..], &options).unwrap()[0].grid.slots, [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn goodput_is_detected_by_its_name_or_unit() {
        assert_eq!(bit_per_s("", Some("goodput_down")), Some(1.0));
        assert_eq!(bit_per_s("Mbit/s", None), Some(1e6));
        assert_eq!(bit_per_s("ms", Some("rtt")), None);
        assert_eq!(bit_per_s("", None), None);
    }
}
