//! What is said of a run.

use serde::Serialize;

use super::run::Run;
use super::strategy::Strategy;
use crate::stats::Summary;
use crate::table::number;

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

    /// Retries of a message that was retried, as tables have it.
    pub(crate) fn retries(&self, decimals: usize) -> String {
        number((0.0 < self.retried_share).then_some(self.retries_per_retried), decimals)
    }
}
