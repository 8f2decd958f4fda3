//! `/v1/targets`: what a station measures.

use serde::{Deserialize, Serialize};

use crate::Keyword;

/// All targets of a station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetList {
    /// Targets, in any order.
    pub targets: Vec<Target>,
}

/// What a station measures, and how often.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Name of the target, as in its series.
    pub target: String,
    /// Quantities to measure; empty = the usual quantities for this kind of target.
    pub quantities: Vec<String>,
    /// Time between measurements, in seconds.
    pub period_s: f64,
    /// Source of the target: `default`, `config`, `added` or `mesh`.
    pub from: Keyword,
}

/// A request to measure a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// Address to measure: `host:port`, `http://…` or `https://…`.
    pub target: String,
    /// Quantities to measure; empty = the usual quantities for this kind of target.
    #[serde(default)]
    pub quantities: Vec<String>,
    /// Time between measurements, in seconds, at least 0.1; `None` = the station's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_s: Option<f64>,
}
