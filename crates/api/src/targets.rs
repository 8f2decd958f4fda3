//! `/v1/targets`: what a station measures.

use serde::{Deserialize, Serialize};

use crate::Word;

/// All targets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetList {
    pub targets: Vec<Target>,
}

/// One target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Its name, as its series have it.
    pub target: String,
    /// Quantities measured; empty = those that it answers.
    pub quantities: Vec<String>,
    /// Time between measurements, seconds.
    pub period_s: f64,
    /// `default`, `config`, `added` or `mesh`.
    pub from: Word,
}

/// A request to measure a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// `host:port`, `http://…` or `https://…`.
    pub target: String,
    /// Quantities to measure; empty = those that it answers.
    #[serde(default)]
    pub quantities: Vec<String>,
    /// Time between measurements, seconds; `None` = the station's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_s: Option<f64>,
}
