//! `/v1/station` and `/healthz`.

use serde::{Deserialize, Serialize};

use crate::Word;

/// A station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Station {
    pub host: String,
    pub version: Word,
    /// Time since the start, seconds.
    pub uptime_s: f64,
    /// Time of the start, seconds since 1970-01-01 UTC.
    pub started_s: f64,
    /// How often a page that cannot stream asks, seconds.
    pub page_period_s: f64,
    pub series: usize,
    /// Most series that are kept.
    pub series_max: usize,
    /// Whether the request comes from the station's own host.
    pub from_this_host: bool,
    /// Work refused lately because of limits, one sentence each.
    pub refusing: Vec<String>,
    /// Echo for pages; `None` = pages cannot measure this station.
    pub echo: Option<Echo>,
}

/// Echo sessions of a station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Echo {
    /// Path of the WebSocket, relative to the station's address.
    pub path: Word,
    /// Most bytes of one transfer.
    pub transfer_bytes_max: u64,
    /// Whether the station keeps what pages report.
    pub keeps: bool,
}

/// Whether a station is well, and how much of its limits is used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// `ok` or `degraded`.
    pub status: Word,
    /// Why it is degraded, one sentence each.
    pub reasons: Vec<String>,
    /// Trouble elsewhere, or refused to callers, that does not keep this station from its work.
    pub warnings: Vec<String>,
    /// Time since the start, seconds.
    pub uptime_s: f64,
    /// Age of the newest measurement, seconds.
    pub last_measurement_age_s: Option<f64>,
    /// Time since the archive last took records, seconds.
    pub last_append_age_s: Option<f64>,
    /// Records that wait for the archive.
    pub spool_records: u64,
    /// Records dropped because too many waited.
    pub spool_dropped: u64,
    /// Measurements dropped because the recorder was too slow.
    pub inbox_dropped: u64,
    pub series: usize,
    pub series_refused: u64,
    pub limits: Vec<LimitUsage>,
}

/// A limit, how much of it is used, and what was refused because of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitUsage {
    pub limit: Word,
    /// Setting that changes it; `None` = it is fixed.
    pub setting: Option<Word>,
    pub max: Option<u64>,
    pub now: Option<u64>,
    pub refused: u64,
    /// When the refusals began that go on, seconds since 1970-01-01 UTC.
    pub since: Option<f64>,
}
