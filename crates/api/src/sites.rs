//! `/v1/sites` (docs/spec/mesh.md).

use serde::{Deserialize, Serialize};

use crate::{Estimate, Word};

/// Sites as the forecasts show them, and the station's own position.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sites {
    pub host: String,
    /// `propose` or `auto`.
    pub mode: Word,
    /// How long a proposal must hold before `auto` takes it, seconds.
    pub hold_s: f64,
    pub now: SiteOrigin,
    /// Position that can be accepted.
    pub proposed: Option<Position>,
    /// Position that the station is about to take.
    pub pending: Option<PendingPosition>,
    /// Whose forecasts these are from: those of `all` stations, or the station's `own`.
    pub sees: Word,
    /// Level of the intervals, 0 to 1.
    pub level: f64,
    pub sites: Vec<Site>,
    /// Hosts without a forecast round trip.
    pub unknown: Vec<String>,
    /// Hosts beyond those that are looked at.
    pub left_out: usize,
}

/// A station's site, and whether it represents it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Position {
    pub site: String,
    /// Whether the station represents the site to others.
    pub represents: bool,
}

/// A station's position, and where it is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteOrigin {
    pub site: String,
    /// Whether the station represents the site to others.
    pub represents: bool,
    /// `configured`, `accepted`, `auto` or `default`.
    pub from: Word,
}

/// A position that is taken after a wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingPosition {
    pub site: String,
    /// Whether the station will represent the site to others.
    pub represents: bool,
    /// Time until it is taken, seconds.
    pub in_s: f64,
}

/// Hosts that are near each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    pub site: String,
    pub hosts: Vec<String>,
    /// Host that represents it; `None` = round trips between its hosts are not known.
    pub representative: Option<String>,
    /// Why these hosts, one sentence.
    pub reason: String,
    /// Longest round trip between two of them, seconds.
    pub within: Option<Estimate>,
    /// Nearest host that is not in it.
    pub next: Option<NextHost>,
    /// Hosts that might as well be in it.
    pub too_close_to_call: Vec<String>,
}

/// The host nearest to a site, with the round trip to it in seconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NextHost {
    pub host: String,
    pub forecast: f64,
    pub lower: f64,
    pub upper: f64,
}

/// A request to take the proposed position.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// Take it only if this is its site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}
