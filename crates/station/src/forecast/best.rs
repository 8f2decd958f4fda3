//! Ranks hosts by the time of a transfer of so many bytes, from measured and composed paths
//! (docs/spec/best.md).
//!
//! Pure: [`Knowledge`] provides the forecasts of pairs, [`Places`] the members. Each candidate
//! needs three look-ups. If its path is composed, its legs are looked up, too; each leg is looked
//! up once for all candidates.

mod models;
mod pairs;
mod places;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_forecast::Name;
use barograph_mesh::{Candidate, Composition, Estimate, INITIAL_WINDOW_BYTES, Path, rank};

pub(crate) use models::Models;
pub(crate) use pairs::Pairs;
pub(crate) use places::{Place, Places};

/// Forecast of one quantity between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sight {
    /// A usable forecast, and the age of the value that it was made from.
    Fresh(Path, Age),
    /// A forecast made from a value that is too old for a statement about now.
    Stale(Age),
    Nothing,
}

/// Age of a value, by its time label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Age {
    /// Seconds; `None` if the label is ahead of now and the age unknown.
    pub(crate) age_s: Option<f64>,
    /// How far the label was ahead of its arrival, or is ahead of now (s); `None` if the label is
    /// not ahead.
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
pub(crate) trait Knowledge {
    /// Forecast for the path from one host to the other.
    fn sight(&self, from: &Name, to: &Name, what: Composition) -> Sight;

    /// Releases locks: no look-up follows for a while.
    fn rest(&self) {}
}

pub(crate) struct Blank;

impl Knowledge for Blank {
    fn sight(&self, _: &Name, _: &Name, _: Composition) -> Sight {
        Sight::Nothing
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) from: &'a Name,
    pub(crate) hosts: &'a [Name],
    /// Hosts of `hosts` that are lost.
    pub(crate) lost: &'a BTreeSet<Name>,
    pub(crate) bytes: u64,
    /// Address of a station that keeps the measurements of others, if this one does not.
    pub(crate) elsewhere: Option<&'a str>,
}

/// Result of a question: ranked hosts, and hosts without a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Ordered by time, the shortest first.
    pub(crate) ranked: Vec<Found>,
    /// Hosts without a time, by name, each with the reason.
    pub(crate) unknown: Vec<(Name, String)>,
}

/// A ranked host with its estimates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) host: Name,
    pub(crate) time_s: Estimate,
    /// Whether the time is too close to that of the first host to rank the two hosts; true for the
    /// first host itself.
    pub(crate) is_close: bool,
    pub(crate) rtt: Part,
    /// `None` if unknown and the bytes fit the initial window.
    pub(crate) goodput: Option<Part>,
    /// `None` if unknown. Loss does not affect the ranking.
    pub(crate) loss: Option<Part>,
}

/// An estimate and its basis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) estimate: Estimate,
    pub(crate) basis: Basis,
}

/// Basis of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Basis {
    /// The pair's own series, with the age of its newest value.
    Measured(Age),
    /// Composed from the paths between consecutive hosts of this list, both ends included.
    Composed { via: Vec<Name> },
}

/// Ranks the hosts of a question by the known forecasts.
pub(crate) fn best(
    question: &Question<'_>,
    places: &Places,
    models: &Models,
    knowledge: &dyn Knowledge,
) -> Answer {
    let asked = Asked { question, places, models, knowledge, legs: RefCell::default() };
    let mut unknown = Vec::new();
    let mut known = BTreeMap::new();
    for host in question.hosts {
        if question.lost.contains(host) {
            unknown.push((host.clone(), "it is gone from the mesh".into()));
            continue;
        }
        match asked.parts(question.from, host, question.bytes) {
            Ok(parts) => drop(known.insert(host.as_str(), (host, parts))),
            Err(reason) => unknown.push((host.clone(), reason)),
        }
    }
    knowledge.rest();
    let candidate = |(name, (_, parts)): (&&str, &(&Name, Parts))| Candidate {
        host: Arc::from(*name),
        rtt_s: parts.rtt.estimate,
        goodput_bit_s: parts.goodput.as_ref().map(|part| part.estimate),
    };
    let candidates: Vec<Candidate> = known.iter().map(candidate).collect();
    let ranked = rank(&candidates, question.bytes).into_iter().filter_map(|one| {
        let (host, Parts { rtt, goodput, loss }) = known.remove(&*one.host)?;
        Some(Found { host: host.clone(), time_s: one.time_s, is_close: one.is_close, rtt, goodput, loss })
    });
    let ranked = ranked.collect();
    // Forecasts that yield no time, such as a rate of 0.
    unknown.extend(
        known.into_values().map(|(host, _)| (host.clone(), "what is forecast of it is no time".into())),
    );
    unknown.sort();
    Answer { ranked, unknown }
}

/// Estimates for the path to one host.
struct Parts {
    rtt: Part,
    goodput: Option<Part>,
    loss: Option<Part>,
}

/// A question in progress, with the legs already looked up.
struct Asked<'a> {
    question: &'a Question<'a>,
    places: &'a Places,
    models: &'a Models,
    knowledge: &'a dyn Knowledge,
    legs: RefCell<BTreeMap<(Name, Name, Composition), Sight>>,
}

impl Asked<'_> {
    /// Estimates round trip, goodput and loss, or returns why there is no time.
    fn parts(&self, from: &Name, to: &Name, bytes: u64) -> Result<Parts, String> {
        // Computed once for all quantities, and only if one has to be composed.
        let way = OnceCell::new();
        let via = || way.get_or_init(|| self.places.via(from, to)).as_deref();
        let part = |what| self.part(from, to, what, via);
        let rtt = part(Composition::Rtt)?;
        let goodput = match part(Composition::Goodput) {
            Ok(goodput) => Some(goodput),
            Err(_) if bytes <= INITIAL_WINDOW_BYTES => None,
            Err(reason) => {
                let rtt_ms = 1e3 * rtt.estimate.value;
                return Err(format!("only its round-trip time is known, {rtt_ms:.1} ms: {reason}"));
            }
        };
        Ok(Parts { rtt, goodput, loss: part(Composition::Loss).ok() })
    }

    /// Uses the measured forecast if it is fresh; composes it otherwise.
    fn part<'v>(
        &self,
        from: &Name,
        to: &Name,
        what: Composition,
        via: impl FnOnce() -> Option<&'v [Name]>,
    ) -> Result<Part, String> {
        let sight = self.knowledge.sight(from, to, what);
        if let Sight::Fresh(path, age) = sight {
            return Ok(Part { estimate: path.forecast, basis: Basis::Measured(age) });
        }
        self.composed(via(), what).map_err(|why| match sight {
            Sight::Stale(Age { age_s: Some(age_s), .. }) => {
                format!("its newest {} is {} old, and {why}", word(what), span(age_s))
            }
            Sight::Stale(Age { ahead_s, .. }) => {
                let ahead = span(ahead_s.unwrap_or(0.0));
                format!("its newest {} is labelled {ahead} ahead of now, and {why}", word(what))
            }
            Sight::Fresh(..) | Sight::Nothing => format!("no {} was measured, and {why}", word(what)),
        })
    }

    fn composed(&self, via: Option<&[Name]>, what: Composition) -> Result<Part, String> {
        let via = via.ok_or("no representatives connect the two")?;
        let mut legs = Vec::with_capacity(via.len());
        for leg in via.windows(2) {
            let Sight::Fresh(path, _) = self.leg(&leg[0], &leg[1], what) else {
                let hint = match self.question.elsewhere.filter(|_| leg[0] != *self.question.from) {
                    Some(whom) => format!("; what {} measures is not known here, ask {whom}", leg[0]),
                    None => String::new(),
                };
                return Err(format!(
                    "none is known from {} to {}, on the way by representatives{hint}",
                    leg[0], leg[1]
                ));
            };
            legs.push(path);
        }
        let estimate = self.models.of(what).estimate(&legs);
        let estimate = estimate.ok_or("what is known of the way by representatives makes no estimate")?;
        Ok(Part { estimate, basis: Basis::Composed { via: via.to_vec() } })
    }

    /// Looks up one leg; most candidates of a question share all legs but the last.
    fn leg(&self, from: &Name, to: &Name, what: Composition) -> Sight {
        let key = (from.clone(), to.clone(), what);
        *self.legs.borrow_mut().entry(key).or_insert_with(|| self.knowledge.sight(from, to, what))
    }
}

fn word(what: Composition) -> &'static str {
    match what {
        Composition::Rtt => "round-trip time",
        Composition::Goodput => "goodput",
        Composition::Loss => "loss",
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

/// Largest difference between synchronised clocks of hosts (s).
const SAME_S: f64 = 1.0;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
