//! `/v1/best`: hosts ranked by the expected time of a transfer (docs/spec/best.md).

use serde::{Deserialize, Serialize};

use crate::Keyword;

/// Hosts, ordered by the expected time of a transfer from one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRanking {
    /// Name of the host that sends.
    pub from: String,
    /// Size of the transfer, in bytes.
    pub bytes: u64,
    /// Level of the intervals, 0 to 1.
    pub level: f64,
    /// Host with the shortest time; `None` = the times are too close to rank, or no host has a
    /// forecast.
    pub best: Option<String>,
    /// Names of the hosts with transfer times too close to rank, with the first host included;
    /// empty if `best` names a host.
    pub too_close_to_call: Vec<String>,
    /// Hosts with a forecast, the fastest first.
    pub hosts: Vec<HostForecast>,
    /// Hosts without a forecast, with the reason.
    pub unknown: Vec<UnknownHost>,
}

/// One host, with the forecast of its transfer time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostForecast {
    /// Name of the host.
    pub host: String,
    /// Forecast of the transfer time, in seconds.
    pub forecast: f64,
    /// Lower end of the interval of the transfer time, in seconds.
    pub lower: f64,
    /// Upper end of the interval of the transfer time, in seconds.
    pub upper: f64,
    /// Whether the interval is a guess, because the round-trip time or the goodput has too few
    /// measurements.
    pub is_calibrating: bool,
    /// Whether the transfer times of this host and of the first host are too close to rank the two
    /// hosts; true for the first host.
    pub is_close: bool,
    /// `measured`, or `composed` if the round-trip time or the goodput of the host is composed.
    pub basis: Keyword,
    /// Round-trip time, in seconds.
    pub rtt: QuantityForecast,
    /// Goodput, in bit/s; `None` = not known.
    pub goodput: Option<QuantityForecast>,
    /// Share of datagrams lost, 0 to 1; `None` = not known.
    pub loss: Option<QuantityForecast>,
}

/// A forecast of one quantity, from which the transfer time of a [`HostForecast`] is computed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QuantityForecast {
    /// Forecast, in the unit of the quantity.
    pub forecast: f64,
    /// Lower end of the forecast's interval, in the unit of the quantity.
    pub lower: f64,
    /// Upper end of the forecast's interval, in the unit of the quantity.
    pub upper: f64,
    /// Source of the forecast: `measured` or `composed`.
    pub basis: Keyword,
    /// Age of the newest measurement, in seconds; `None` if its time label is ahead of now, or if
    /// the forecast is composed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Time in seconds by which the time label of the newest measurement was ahead of the clock
    /// when the measurement arrived, if this time was more than a minute. Otherwise it is the time
    /// by which the label is ahead of now. `None` = the label is not ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<f64>,
    /// Hosts on the path from which the forecast was composed, both ends included; `None` = the
    /// forecast is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Vec<String>>,
}

/// A host without a forecast.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownHost {
    /// Name of the host.
    pub host: String,
    /// Why there is no forecast, as a sentence.
    pub reason: String,
}

/// A forecast with its interval, in the unit of the forecast quantity.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    /// Forecast, in the unit of the quantity.
    pub forecast: f64,
    /// Lower end of the forecast's interval, in the unit of the quantity.
    pub lower: f64,
    /// Upper end of the forecast's interval, in the unit of the quantity.
    pub upper: f64,
}
