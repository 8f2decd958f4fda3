//! Models of the error of composed paths in this mesh, learnt from pairs that are also measured.

use barograph_forecast::Name;
use barograph_mesh::{ComposedQuantity, CompositionModel, LegForecast, PairObservation};

use super::{MeshMembers, PathForecast, PathForecasts};

/// One model for each quantity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Models {
    rtt: CompositionModel,
    goodput: CompositionModel,
    loss: CompositionModel,
}

impl Models {
    /// Makes the models from pairs of members that are measured and also connected by
    /// representatives: at most [`PAIRS_MAX`] for each quantity, spread over all pairs.
    pub(crate) fn learnt(members: &MeshMembers, forecasts: &dyn PathForecasts) -> Self {
        let hosts: Vec<&Name> = members.hosts().filter(|host| !members.is_lost(host)).collect();
        let pairs = hosts.len().saturating_mul(hosts.len().saturating_sub(1));
        let step = coprime_step(pairs);
        let count = pairs.min(LOOKUPS_MAX);
        let chosen = (0..count).map(|i| {
            // Visits pairs in an order in which no pair occurs twice.
            let at = (i as u128 * step as u128 % pairs as u128) as usize;
            let (a, b) = (at / (hosts.len() - 1), at % (hosts.len() - 1));
            (hosts[a], hosts[b + usize::from(a <= b)])
        });
        let kinds = [ComposedQuantity::Rtt, ComposedQuantity::Goodput, ComposedQuantity::Loss];
        let mut training_pairs = kinds.map(|what| (what, Vec::<TrainingPair<'_>>::new()));
        for (from, to) in chosen {
            for (what, found) in &mut training_pairs {
                if found.len() < PAIRS_MAX {
                    found.extend(training_pair(members, forecasts, from, to, *what));
                }
            }
        }
        forecasts.unlock();
        let [rtt, goodput, loss] = training_pairs.map(|(what, found)| {
            CompositionModel::fit(
                what,
                found.iter().map(|(ends, legs, measured)| PairObservation {
                    ends: *ends,
                    legs,
                    measured: *measured,
                }),
            )
        });
        Self { rtt, goodput, loss }
    }

    pub(crate) fn of(&self, what: ComposedQuantity) -> &CompositionModel {
        match what {
            ComposedQuantity::Rtt => &self.rtt,
            ComposedQuantity::Goodput => &self.goodput,
            ComposedQuantity::Loss => &self.loss,
        }
    }
}

/// A measured pair for training: its two ends, the forecasts of its legs, and the forecast of its
/// direct path.
type TrainingPair<'a> = ([&'a Name; 2], Vec<LegForecast>, LegForecast);

fn training_pair<'a>(
    members: &MeshMembers,
    forecasts: &dyn PathForecasts,
    from: &'a Name,
    to: &'a Name,
    what: ComposedQuantity,
) -> Option<TrainingPair<'a>> {
    // Look up the measured path first. This look-up is cheaper than a route, and most pairs of a
    // large mesh are not measured.
    let PathForecast::Fresh(measured, _) = forecasts.path_forecast(from, to, what) else { return None };
    let via = members.route(from, to)?;
    let legs = via.windows(2).map(|leg| match forecasts.path_forecast(&leg[0], &leg[1], what) {
        PathForecast::Fresh(path, _) => Some(path),
        PathForecast::Stale(_) | PathForecast::Missing => None,
    });
    Some(([from, to], legs.collect::<Option<_>>()?, measured))
}

/// A step without a common factor with `n`, close to the golden section of `n`, so that the visited
/// pairs are spread evenly from the beginning.
fn coprime_step(n: usize) -> usize {
    let golden = (n as f64 * 0.618) as usize;
    (golden.max(1)..).find(|step| gcd(*step, n.max(1)) == 1).unwrap_or(1)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Maximum number of pairs to learn a model from: enough to determine the mean and the scatter of
/// the error within a few percent.
const PAIRS_MAX: usize = 1000;

/// Maximum number of pairs to look up: about all pairs of 100 hosts. The look-ups take a few
/// seconds at most, pauses included, and do not run during a request.
const LOOKUPS_MAX: usize = 10_000;
