//! `/v1/best` (docs/spec/best.md).

use serde::{Deserialize, Serialize};

use crate::Word;

/// Hosts in the order in which a transfer from one host is expected to be over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Best {
    /// Host that sends.
    pub from: String,
    pub bytes: u64,
    /// Level of the intervals, 0 to 1.
    pub level: f64,
    /// First host; `None` = too close to call, or nothing is known.
    pub best: Option<String>,
    /// Hosts that cannot be told from the first one, and that one; empty where `best` is known.
    pub too_close_to_call: Vec<String>,
    /// Hosts with a forecast, the fastest first.
    pub hosts: Vec<BestHost>,
    pub unknown: Vec<UnknownHost>,
}

/// One host with its forecast.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BestHost {
    pub host: String,
    /// Forecast of the transfer's time, seconds.
    pub forecast: f64,
    /// Lower end of its interval, seconds.
    pub lower: f64,
    /// Upper end of its interval, seconds.
    pub upper: f64,
    /// Whether it may be as fast as the first.
    pub is_close: bool,
    /// `measured`, or `composed` if a part is.
    pub basis: Word,
    /// Round-trip time, seconds.
    pub rtt: BestPart,
    /// Goodput, bit/s; `None` = not known.
    pub goodput: Option<BestPart>,
    /// Share of datagrams lost, 0 to 1; `None` = not known.
    pub loss: Option<BestPart>,
}

/// A forecast that a [`BestHost`]'s time rests on, in the unit of its quantity.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BestPart {
    pub forecast: f64,
    pub lower: f64,
    pub upper: f64,
    /// `measured` or `composed`.
    pub basis: Word,
    /// Age of the newest measurement, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// How far its time label is ahead of the station's clock, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<f64>,
    /// Hosts of the path that it was composed along, both ends included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Vec<String>>,
}

/// A host of which nothing can be said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownHost {
    pub host: String,
    pub reason: String,
}

/// A forecast with its interval, in the unit of what is estimated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    pub forecast: f64,
    pub lower: f64,
    pub upper: f64,
}
