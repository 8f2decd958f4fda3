//! `/v1/sites`: which stations form a site, by their forecasts (docs/spec/mesh.md §6).

use serde::{Deserialize, Serialize};

use crate::{Estimate, Keyword};

/// Sites according to the forecasts, and this station's own site and role.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sites {
    /// Name of this station.
    pub host: String,
    /// How the station gets its site: `propose` (an operator accepts a proposal) or `auto` (the
    /// station accepts a proposal itself).
    pub mode: Keyword,
    /// Time for which a proposal must stay the same before `auto` accepts it, in seconds.
    pub hold_s: f64,
    /// Present position of the station, and how the position was set.
    pub now: CurrentPosition,
    /// Position that can be accepted; `None` = there is no proposal.
    pub proposed: Option<ProposedPosition>,
    /// Position that the station will take soon; `None` = no change is planned.
    pub pending: Option<PendingPosition>,
    /// Origin of the forecasts: `all` stations, or the station's `own`.
    #[serde(rename = "sees")]
    pub forecast_origin: Keyword,
    /// Level of the intervals, 0 to 1.
    pub level: f64,
    /// Sites, each with its hosts and the reason why they form a site.
    pub sites: Vec<Site>,
    /// Hosts without a usable forecast of a round trip.
    pub unknown: Vec<String>,
    /// Number of hosts that were not considered, because there are too many.
    pub left_out: usize,
}

/// The site of a station, and whether it represents the site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProposedPosition {
    /// Name of the site.
    pub site: String,
    /// Whether the station represents the site to other sites.
    pub represents: bool,
}

/// The position of a station (its site, and whether it represents the site), and how the position
/// was set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CurrentPosition {
    /// Name of the site.
    pub site: String,
    /// Whether the station represents the site to other sites.
    pub represents: bool,
    /// How the position was set: `configured`, `accepted`, `auto` or `default`.
    pub from: Keyword,
}

/// A site and role that the station will accept after a wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingPosition {
    /// Name of the site.
    pub site: String,
    /// Whether the station will represent the site to other sites.
    pub represents: bool,
    /// Time until the station accepts this position, in seconds.
    pub in_s: f64,
}

/// Hosts that are close to each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// Name of the site.
    pub site: String,
    /// Names of the site's hosts.
    pub hosts: Vec<String>,
    /// Host that represents the site; `None` = not all round trips between the site's hosts are
    /// known.
    pub representative: Option<String>,
    /// Why these hosts form a site, as a sentence.
    pub reason: String,
    /// Longest round trip between two hosts of the site, in seconds; `None` = not known.
    pub within: Option<Estimate>,
    /// Nearest host outside the site; `None` = not known.
    pub next: Option<NextHost>,
    /// Hosts outside the site; by their forecasts, these hosts could also belong to the site.
    pub too_close_to_call: Vec<String>,
}

/// The host nearest to a site, with the round trip to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NextHost {
    /// Name of the host.
    pub host: String,
    /// Forecast of the round trip, in seconds.
    pub forecast: f64,
    /// Lower end of the interval of `forecast`, in seconds.
    pub lower: f64,
    /// Upper end of the interval of `forecast`, in seconds.
    pub upper: f64,
}

/// Request of an operator that this station takes the site and role that the stations propose.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptPosition {
    /// Name of the site to accept, so that no other proposal is accepted; `None` = any proposed
    /// site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}
