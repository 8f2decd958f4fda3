//! Ranks hosts by the time that a transfer of a given number of bytes takes, from measured and
//! composed paths (docs/spec/best.md).
//!
//! Pure: [`PathForecasts`] provides the forecasts of pairs, [`MeshMembers`] the members. Each
//! candidate needs a look-up for each quantity, and one for the goodput over each time that the
//! transfer may take. If the path to a candidate is composed, the forecasts of the legs are looked
//! up instead. Each leg is looked up once for all candidates.

mod members;
mod models;
mod pairs;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_forecast::{INITIAL_WINDOW_BYTES, Name, SCORED_MIN_FOR_INTERVAL};
use barograph_mesh::{ComposedQuantity, HostCandidate, LegForecast, PathEstimate, rank, transfer_time};

pub(crate) use members::{MeshMember, MeshMembers};
pub(crate) use models::Models;
pub(crate) use pairs::{Pairs, is_goodput, series_transfer_time};

/// Forecast of one quantity between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PathForecast {
    /// A usable forecast, and the age of the value that it was made from.
    Fresh(LegForecast, Age),
    /// A forecast made from a value that is too old to describe the present.
    Stale(Age),
    Missing,
}

/// Age of a value, by its time label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Age {
    /// Age in seconds; `None` if the label is ahead of now, because the age is then unknown.
    pub(crate) age_s: Option<f64>,
    /// Time (s) by which the label was ahead of the clock when the value arrived, or by which the
    /// label is ahead of now; `None` if the label is not ahead.
    pub(crate) ahead_s: Option<f64>,
}

impl Age {
    /// Age at `now_unix_ns` of a value with the effective time `time_unix_ns`. The original label
    /// of the value was `ahead_s` later than its arrival.
    pub(crate) fn at(now_unix_ns: i64, time_unix_ns: i64, ahead_s: Option<f64>) -> Self {
        let age_s = now_unix_ns.saturating_sub(time_unix_ns) as f64 / 1e9;
        if age_s < -SAME_S {
            return Self { age_s: None, ahead_s: Some(ahead_s.unwrap_or(0.0) - age_s) };
        }
        Self { age_s: Some(age_s.max(0.0)), ahead_s }
    }

    /// Time between the value and now, in either direction (s).
    fn distance_s(self) -> f64 {
        self.age_s.or(self.ahead_s).unwrap_or(f64::INFINITY)
    }
}

/// Source of forecasts between hosts.
pub(crate) trait PathForecasts {
    /// Forecast of the next measurement of the path from one host to the other. A goodput is the
    /// rate after slow start.
    fn path_forecast(&self, from: &Name, to: &Name, what: ComposedQuantity) -> PathForecast;

    /// As [`PathForecasts::path_forecast`] of the goodput, for the mean over the next `horizon_s`
    /// seconds; 0 = the next measurement. `rtt_s` is the round trip of the path (s). It turns
    /// goodputs that include slow start into rates after it, also if it was composed.
    fn goodput_over(&self, from: &Name, to: &Name, horizon_s: f64, rtt_s: f64) -> PathForecast;

    /// Releases locks. Call this function if no look-up follows soon.
    fn unlock(&self) {}
}

pub(crate) struct NoForecasts;

impl PathForecasts for NoForecasts {
    fn path_forecast(&self, _: &Name, _: &Name, _: ComposedQuantity) -> PathForecast {
        PathForecast::Missing
    }

    fn goodput_over(&self, _: &Name, _: &Name, _: f64, _: f64) -> PathForecast {
        PathForecast::Missing
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BestRequest<'a> {
    pub(crate) from: &'a Name,
    pub(crate) hosts: &'a [Name],
    /// Hosts of `hosts` that are lost.
    pub(crate) lost: &'a BTreeSet<Name>,
    pub(crate) bytes: u64,
    /// URL or description of the station that has the measurements of other stations; `None` if
    /// this station has them.
    pub(crate) other_source: Option<&'a str>,
}

/// Result of a request: ranked hosts, and hosts without a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranking {
    /// Ordered by time, the shortest first.
    pub(crate) ranked: Vec<RankedHost>,
    /// Hosts without a time, by name, each with the reason.
    pub(crate) unknown: Vec<(Name, String)>,
}

/// A ranked host with its estimates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankedHost {
    pub(crate) host: Name,
    pub(crate) time_s: PathEstimate,
    /// Whether the time is too close to the time of the first host to rank the two hosts; true for
    /// the first host itself.
    pub(crate) is_close: bool,
    pub(crate) rtt: QuantityEstimate,
    /// Estimate of the goodput; `None` if unknown. A host without this estimate is ranked only if
    /// the bytes of the transfer fit into the initial window.
    pub(crate) goodput: Option<QuantityEstimate>,
    /// Estimate of the loss; `None` if unknown. Loss does not affect the ranking.
    pub(crate) loss: Option<QuantityEstimate>,
}

/// An estimate and its basis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuantityEstimate {
    pub(crate) estimate: PathEstimate,
    pub(crate) basis: Basis,
    /// Whether the interval is known from errors of earlier forecasts; otherwise it is a guess.
    pub(crate) is_calibrated: bool,
}

/// Basis of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Basis {
    /// The pair's own series, with the age of its newest value.
    Measured(Age),
    /// Composed from the paths between consecutive hosts of this list, both ends included.
    Composed { via: Vec<Name> },
}

/// Ranks the hosts of a request by the known forecasts.
pub(crate) fn best(
    request: &BestRequest<'_>,
    members: &MeshMembers,
    models: &Models,
    forecasts: &dyn PathForecasts,
) -> Ranking {
    let context = RankingContext { request, members, models, forecasts, legs: RefCell::default() };
    let mut unknown = Vec::new();
    let mut known = BTreeMap::new();
    for host in request.hosts {
        if request.lost.contains(host) {
            unknown.push((host.clone(), "its lease has ended (lost)".into()));
            continue;
        }
        match context.host_estimates(request.from, host, request.bytes) {
            Ok(estimates) => drop(known.insert(host.as_str(), (host, estimates))),
            Err(reason) => unknown.push((host.clone(), reason)),
        }
    }
    forecasts.unlock();
    let candidate = |(name, (_, estimates)): (&&str, &(&Name, HostEstimates))| HostCandidate {
        host: Arc::from(*name),
        rtt_s: estimates.rtt.estimate,
        time_s: estimates.time_s,
    };
    let candidates: Vec<HostCandidate> = known.iter().map(candidate).collect();
    let ranked = rank(&candidates, request.bytes).into_iter().filter_map(|one| {
        let (host, HostEstimates { rtt, goodput, loss, .. }) = known.remove(&*one.host)?;
        Some(RankedHost {
            host: host.clone(),
            time_s: one.time_s,
            is_close: one.is_close,
            rtt,
            goodput,
            loss,
        })
    });
    let ranked = ranked.collect();
    // The remaining hosts have round trips that yield no time.
    unknown.extend(known.into_values().map(|(host, _)| (host.clone(), NO_TIME.into())));
    unknown.sort();
    Ranking { ranked, unknown }
}

/// Estimates for the path to one host.
struct HostEstimates {
    rtt: QuantityEstimate,
    goodput: Option<QuantityEstimate>,
    loss: Option<QuantityEstimate>,
    /// Time of the transfer (s); `None` without a goodput, or if the forecasts yield no time.
    time_s: Option<PathEstimate>,
}

/// A request in progress, with the legs already looked up.
struct RankingContext<'a> {
    request: &'a BestRequest<'a>,
    members: &'a MeshMembers,
    models: &'a Models,
    forecasts: &'a dyn PathForecasts,
    legs: RefCell<BTreeMap<(Name, Name, ComposedQuantity), PathForecast>>,
}

impl RankingContext<'_> {
    /// Estimates round trip, goodput and loss, or returns why there is no time.
    fn host_estimates(&self, from: &Name, to: &Name, bytes: u64) -> Result<HostEstimates, String> {
        // Compute the route once for all quantities, and only if a quantity has to be composed.
        let route = OnceCell::new();
        let via = || route.get_or_init(|| self.members.route(from, to)).as_deref();
        let part = |what, forecast| self.quantity_estimate(what, forecast, via);
        let own = |what| self.forecasts.path_forecast(from, to, what);
        let rtt = part(ComposedQuantity::Rtt, own(ComposedQuantity::Rtt))?;
        let rate = self.forecasts.goodput_over(from, to, 0.0, rtt.estimate.value);
        let goodput = match part(ComposedQuantity::Goodput, rate) {
            Ok(goodput) => Some(goodput),
            Err(_) if bytes <= INITIAL_WINDOW_BYTES => None,
            Err(reason) => {
                let rtt_ms = 1e3 * rtt.estimate.value;
                return Err(format!("no goodput forecast (round trip {rtt_ms:.1} ms): {reason}"));
            }
        };
        let time_s =
            goodput.as_ref().and_then(|goodput| self.time_s((from, to), bytes, &rtt.estimate, goodput));
        if goodput.is_some() && time_s.is_none() {
            return Err(NO_TIME.into());
        }
        let loss = part(ComposedQuantity::Loss, own(ComposedQuantity::Loss)).ok();
        Ok(HostEstimates { rtt, goodput, loss, time_s })
    }

    /// Time of a transfer. A measured goodput is that of the time of the transfer.
    fn time_s(
        &self,
        (from, to): (&Name, &Name),
        bytes: u64,
        rtt_s: &PathEstimate,
        goodput: &QuantityEstimate,
    ) -> Option<PathEstimate> {
        if let Basis::Composed { .. } = goodput.basis {
            return transfer_time(bytes, rtt_s, |_| Some(goodput.estimate));
        }
        // Value and both ends of the interval need the same horizons.
        let known = RefCell::new(Vec::<(f64, Option<PathEstimate>)>::new());
        transfer_time(bytes, rtt_s, |horizon_s| {
            if let Some((_, rate)) = known.borrow().iter().find(|(known_s, _)| *known_s == horizon_s) {
                return *rate;
            }
            let rate = match self.forecasts.goodput_over(from, to, horizon_s, rtt_s.value) {
                PathForecast::Fresh(path, _) => Some(path.forecast),
                PathForecast::Stale(_) | PathForecast::Missing => None,
            };
            known.borrow_mut().push((horizon_s, rate));
            rate
        })
    }

    /// Uses the measured `forecast` if it is fresh; otherwise composes a forecast.
    fn quantity_estimate<'v>(
        &self,
        what: ComposedQuantity,
        forecast: PathForecast,
        via: impl FnOnce() -> Option<&'v [Name]>,
    ) -> Result<QuantityEstimate, String> {
        if let PathForecast::Fresh(path, age) = forecast {
            let is_calibrated = SCORED_MIN_FOR_INTERVAL < path.count;
            return Ok(QuantityEstimate {
                estimate: path.forecast,
                basis: Basis::Measured(age),
                is_calibrated,
            });
        }
        self.composed(via(), what).map_err(|why| match forecast {
            PathForecast::Stale(Age { age_s: Some(age_s), .. }) => {
                format!("its newest {} is {} old, and {why}", word(what), span(age_s))
            }
            PathForecast::Stale(Age { ahead_s, .. }) => {
                let ahead = span(ahead_s.unwrap_or(0.0));
                format!("its newest {} is labelled {ahead} ahead of now, and {why}", word(what))
            }
            PathForecast::Fresh(..) | PathForecast::Missing => {
                format!("the {} was never measured, and {why}", word(what))
            }
        })
    }

    fn composed(&self, via: Option<&[Name]>, what: ComposedQuantity) -> Result<QuantityEstimate, String> {
        let via = via.ok_or("no representatives connect the two sites")?;
        let mut legs = Vec::with_capacity(via.len());
        for leg in via.windows(2) {
            let PathForecast::Fresh(path, _) = self.leg(&leg[0], &leg[1], what) else {
                let hint = match self.request.other_source.filter(|_| leg[0] != *self.request.from) {
                    Some(other) => {
                        format!("; this station has no measurements made by {}; ask {other}", leg[0])
                    }
                    None => String::new(),
                };
                return Err(format!(
                    "no forecast from {} to {}, a part of the path through representatives{hint}",
                    leg[0], leg[1]
                ));
            };
            legs.push(path);
        }
        let model = self.models.of(what);
        let estimate = model.estimate(&legs).ok_or("the forecasts of the parts yield no estimate")?;
        let basis = Basis::Composed { via: via.to_vec() };
        Ok(QuantityEstimate { estimate, basis, is_calibrated: model.pairs() > 0 })
    }

    /// Looks up one leg; most candidates of a request share all legs but the last.
    fn leg(&self, from: &Name, to: &Name, what: ComposedQuantity) -> PathForecast {
        let key = (from.clone(), to.clone(), what);
        *self.legs.borrow_mut().entry(key).or_insert_with(|| self.forecasts.path_forecast(from, to, what))
    }
}

fn word(what: ComposedQuantity) -> &'static str {
    match what {
        ComposedQuantity::Rtt => "round-trip time",
        ComposedQuantity::Goodput => "goodput",
        ComposedQuantity::Loss => "loss",
    }
}

/// Formats a duration for people.
fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

/// Reason why a host is not ranked: its rate is 0, or its transfer would take more than a year.
const NO_TIME: &str = "its forecasts yield no time";

/// Largest difference between synchronised clocks of hosts (s).
const SAME_S: f64 = 1.0;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
