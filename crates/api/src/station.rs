//! `/v1/station` and `/healthz`: the state of a station, and the use of its limits.

use serde::{Deserialize, Serialize};

use crate::Keyword;

/// A station, and what it serves to this caller.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Station {
    /// Name of the station.
    pub host: String,
    /// Version of Barograph that the station runs.
    pub version: Keyword,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Time of the start, in seconds since 1970-01-01 UTC.
    pub started_s: f64,
    /// Time in seconds between two requests of a page that cannot use a live stream.
    pub page_period_s: f64,
    /// Number of series in memory.
    pub series: usize,
    /// Maximum number of series in memory.
    pub series_max: usize,
    /// Whether the request comes from the station's own host.
    pub from_this_host: bool,
    /// Work refused in the last ten minutes because of limits, one sentence each.
    pub refusing: Vec<String>,
    /// Echo sessions for pages; `None` = pages cannot measure this station.
    pub echo: Option<Echo>,
}

/// Echo sessions of a station; pages use them to measure the station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Echo {
    /// Path of the WebSocket, relative to the station's address.
    pub path: Keyword,
    /// Maximum size of one transfer, in bytes.
    pub transfer_bytes_max: u64,
    /// Whether the station stores what pages report.
    pub keeps: bool,
}

/// Whether a station is well, and how much of its limits is used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// `ok` or `degraded` (with HTTP status 503).
    pub status: Keyword,
    /// Reasons why the station is degraded, one sentence each.
    pub reasons: Vec<String>,
    /// Problems that do not degrade this station, one sentence each: problems of other stations,
    /// and work that this station refused to callers.
    pub warnings: Vec<String>,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Age of the newest measurement, in seconds; `None` = there is none.
    pub last_measurement_age_s: Option<f64>,
    /// Time since the archive last acknowledged records, in seconds; `None` = the archive has
    /// acknowledged none.
    pub last_append_age_s: Option<f64>,
    /// Number of records in memory that wait for the archive.
    pub spool_records: u64,
    /// Number of records dropped because too many waited.
    pub spool_dropped: u64,
    /// Number of measurements dropped because the recorder was too slow.
    pub inbox_dropped: u64,
    /// Number of series in memory.
    pub series: usize,
    /// Number of measurements and series refused because there were too many series.
    pub series_refused: u64,
    /// All limits, with their use.
    pub limits: Vec<LimitUsage>,
}

/// A limit, the present use of the limit, and the work that was refused because of the limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitUsage {
    /// Name of the limit, such as `connections`.
    pub limit: Keyword,
    /// Setting that changes the limit, such as `limits.connections_max`; `None` = the limit is
    /// fixed.
    pub setting: Option<Keyword>,
    /// Value of the limit; `None` = no single number states it.
    pub max: Option<u64>,
    /// Present use of the limit; `None` = no single number states it.
    pub now: Option<u64>,
    /// Amount of work that was refused since the start because of the limit.
    pub refused: u64,
    /// When the present refusals began, in seconds since 1970-01-01 UTC; `None` = there were no
    /// refusals in the last ten minutes.
    pub since: Option<f64>,
}
