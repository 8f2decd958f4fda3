//! What a station answers to `GET /v1/best`, as far as this study needs it.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct BestAnswer {
    pub(super) best: Option<String>,
    pub(super) too_close_to_call: Vec<String>,
    /// The shortest time first; hosts without a time are missing.
    pub(super) hosts: Vec<HostForecast>,
}

/// Forecast time of a transfer in seconds, with its 90 % interval.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct HostForecast {
    pub(super) host: String,
    pub(super) forecast: f64,
    pub(super) lower: f64,
    pub(super) upper: f64,
    pub(super) is_calibrating: bool,
}

impl BestAnswer {
    pub(super) fn of(&self, host: &str) -> Option<&HostForecast> {
        self.hosts.iter().find(|forecast| forecast.host == host)
    }
}
