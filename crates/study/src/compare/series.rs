//! A series to compare: its values with their times, and the kernel's TCP counters for each.

use std::io::BufRead;

use crate::input::{Format, InputError, MeasurementDetail, Sample, SeriesReader};

/// A series that was read from a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedSeries {
    /// The quantity, if the lines name a quantity.
    pub quantity: Option<String>,
    /// Values with their times in seconds, which do not decrease.
    pub samples: Vec<Sample>,
    /// The kernel's counters at each value.
    pub kernel: Vec<TcpCounters>,
}

/// `TCP_INFO` at the end of one measurement; `None` = not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct TcpCounters {
    /// Number of segments that TCP retransmitted.
    pub retrans: Option<u64>,
    /// The smallest round-trip time seen, in seconds.
    pub min_rtt_s: Option<f64>,
}

impl TimedSeries {
    /// Appends a value with its counters.
    pub fn push(&mut self, sample: Sample, kernel: TcpCounters) {
        self.samples.push(sample);
        self.kernel.push(kernel);
    }

    /// Reads a series in any format that has times.
    ///
    /// # Errors
    /// [`SeriesError`] if a line cannot be read, or if the values have no times.
    pub fn read(input: impl BufRead) -> Result<Self, SeriesError> {
        Self::read_selected(input, None, None)
    }

    /// Reads the rows of one quantity, and the values from one column or key. The rows of a file
    /// may name several quantities, as in the whole CSV of a page. Rows that name no quantity are
    /// also read. `None` = the only quantity of the file, and a column that is chosen.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), and an error if no row is of the wanted quantity or if
    /// there is no such column.
    pub fn read_selected(
        input: impl BufRead,
        quantity: Option<&str>,
        column: Option<&str>,
    ) -> Result<Self, SeriesError> {
        let mut reader =
            SeriesReader::new(input).of_quantity(quantity).of_column(column).listing_quantities();
        let mut series = Self::default();
        while let Some(sample) = reader.next() {
            let sample = sample?;
            if !reader.format().is_some_and(Format::is_timed) {
                return Err(SeriesError::Untimed);
            }
            let MeasurementDetail { retrans, min_rtt_s, .. } = *reader.detail();
            series.push(sample, TcpCounters { retrans, min_rtt_s });
        }
        series.quantity = reader.quantity().map(str::to_owned);
        Ok(series)
    }

    /// The values without their times.
    pub fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.samples.iter().map(|sample| sample.value)
    }

    /// The times of the values, in seconds.
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
    #[error("the values have no times; add a column or key time_s")]
    Untimed,
}
