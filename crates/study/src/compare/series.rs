//! A series to compare: its values with their times, and what the kernel said of each.

use std::io::BufRead;

use crate::input::{Detail, Format, InputError, Sample, SeriesReader};

/// A series that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What was measured, where the series says so.
    pub quantity: Option<String>,
    /// Values with their times in seconds, which do not decrease.
    pub samples: Vec<Sample>,
    /// What the kernel's counters were at each value.
    pub kernel: Vec<Kernel>,
}

/// What `TCP_INFO` said at the end of one measurement, where it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Kernel {
    /// Segments sent again.
    pub retrans: Option<u64>,
    /// The smallest round-trip time seen, in seconds.
    pub min_rtt_s: Option<f64>,
}

impl Series {
    /// Adds a value.
    pub fn push(&mut self, sample: Sample, kernel: Kernel) {
        self.samples.push(sample);
        self.kernel.push(kernel);
    }

    /// Reads a series in any format that has times.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence that begins with a line's number where one is to blame.
    pub fn read(input: impl BufRead) -> Result<Self, SeriesError> {
        Self::read_quantity(input, None)
    }

    /// Reads the rows of one quantity where rows name several, as in a page's whole CSV; rows that name none are of it.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when there is no row of it.
    pub fn read_quantity(input: impl BufRead, wanted: Option<&str>) -> Result<Self, SeriesError> {
        let mut reader = SeriesReader::new(input).of_quantity(wanted);
        let mut series = Self::default();
        while let Some(sample) = reader.next() {
            let sample = sample?;
            if matches!(reader.format(), Some(Format::Bare | Format::Json)) {
                return Err(SeriesError::Untimed);
            }
            let Detail { retrans, min_rtt_s, .. } = *reader.detail();
            series.push(sample, Kernel { retrans, min_rtt_s });
        }
        series.quantity = reader.quantity().map(str::to_owned);
        Ok(series)
    }

    /// The values alone.
    pub fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.samples.iter().map(|sample| sample.value)
    }

    /// The times alone, in seconds.
    #[must_use]
    pub fn times_s(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.time_s).collect()
    }
}

/// Why a series cannot be compared.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum SeriesError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("its values have no times; expected time_s beside each value")]
    Untimed,
}
