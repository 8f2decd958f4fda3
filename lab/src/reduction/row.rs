//! What is said of a run.

use serde::Serialize;

use super::engine::Run;
use super::strategy::Strategy;

/// A run in numbers; the names of the fields are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) strategy: String,
    pub(crate) mean_s: f64,
    pub(crate) p95_s: f64,
    pub(crate) max_s: f64,
    pub(crate) sd_s: f64,
    /// Of the messages, those sent more than once.
    pub(crate) retried_share: f64,
    /// Copies beyond the first of a message that was sent more than once; 0 if none was.
    pub(crate) retries_per_retried: f64,
    /// Bytes of copies beyond the first, of the bytes of all messages.
    pub(crate) extra_bytes_share: f64,
    /// Reductions in which a send used up its tries.
    pub(crate) abandoned: usize,
}

impl Row {
    pub(crate) fn of(strategy: Strategy, run: &Run) -> Self {
        let summary = Summary::of(&run.times);
        Self {
            strategy: strategy.name(),
            mean_s: summary.mean,
            p95_s: summary.p95,
            max_s: summary.max,
            sd_s: summary.sd,
            retried_share: run.retried as f64 / run.sends as f64,
            retries_per_retried: if run.retried == 0 { 0.0 } else { run.retries as f64 / run.retried as f64 },
            extra_bytes_share: run.bytes.1 as f64 / run.bytes.0 as f64,
            abandoned: run.abandoned(),
        }
    }
}

/// The statistics of the paper's Table 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) mean: f64,
    pub(crate) max: f64,
    pub(crate) min: f64,
    pub(crate) p95: f64,
    pub(crate) sd: f64,
}

impl Summary {
    /// `values` are not empty.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mean = mean(values);
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        Self {
            mean,
            max: sorted[sorted.len() - 1],
            min: sorted[0],
            p95: percentile(&sorted, 0.95),
            sd: variance.sqrt(),
        }
    }

    pub(crate) fn variance(&self) -> f64 {
        self.sd * self.sd
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Between the two nearest ranks, linearly.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_that_of_the_numbers() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 3.0, 5.0]);
        assert_eq!((summary.mean, summary.min, summary.max), (3.0, 1.0, 5.0));
        assert_eq!((summary.p95, summary.variance().round()), (4.8, 2.0));
    }
}
