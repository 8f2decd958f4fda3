//! Quantiles of `barograph forecast` on the command line.

use std::io::{self, Write};
use std::iter::zip;

use barograph_forecast::QUANTILE_RANGE;
use serde::{Serialize, Serializer};

use super::number::Exact;

/// Shares of values that should be below each quantile, in the order of the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares(Vec<f64>);

impl Shares {
    /// Whether no quantile is forecast.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shares with commas between them.
    pub(super) fn query(&self) -> String {
        self.0.iter().map(f64::to_string).collect::<Vec<_>>().join(",")
    }

    /// Writes the names of the columns, each after a comma.
    pub(super) fn header(&self, out: &mut impl Write) -> io::Result<()> {
        self.0.iter().try_for_each(|share| write!(out, ",q{share}"))
    }

    /// The quantiles of each share.
    pub(super) fn quantiles(&self, quantile: impl FnMut(f64) -> Option<f64>) -> Quantiles {
        Quantiles { shares: self.0.clone(), values: self.0.iter().copied().map(quantile).collect() }
    }
}

/// Quantiles, named `q` and their share; `None` until a quantile is calibrated.
#[derive(Clone, Debug, Default)]
pub(super) struct Quantiles {
    shares: Vec<f64>,
    values: Vec<Option<f64>>,
}

impl Quantiles {
    /// Writes the cells of a row, each after a comma.
    pub(super) fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        self.values.iter().try_for_each(|value| match value {
            Some(value) => write!(out, ",{}", Exact(*value)),
            None => out.write_all(b","),
        })
    }

    /// The quantiles that are calibrated, with their shares.
    pub(super) fn known(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        zip(&self.shares, &self.values).filter_map(|(share, value)| Some((*share, (*value)?)))
    }
}

impl Serialize for Quantiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(zip(&self.shares, &self.values).map(|(share, value)| (format!("q{share}"), value)))
    }
}

/// Parses shares with commas between them.
pub(super) fn parse(text: &str) -> Result<Shares, String> {
    let expected = || {
        let (least, most) = (QUANTILE_RANGE.start(), QUANTILE_RANGE.end());
        format!("expected numbers from {least} to {most} with commas between them, such as 0.1,0.5,0.9")
    };
    let mut shares = Vec::new();
    for text in text.split(',') {
        let share = text.parse().map_err(|_| expected())?;
        if !QUANTILE_RANGE.contains(&share) {
            return Err(expected());
        }
        if shares.contains(&share) {
            return Err(format!("{share} is given twice"));
        }
        shares.push(share);
    }
    Ok(Shares(shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_with_commas_between_them() {
        assert_eq!(parse("0.9,.1,0.50"), Ok(Shares(vec![0.9, 0.1, 0.5])));
        for text in ["", "0.1,", "0", "1", "0.004", "0.996", "NaN", "0.1;0.5", "0.1 0.5", "10 %", "0.5,0.50"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
