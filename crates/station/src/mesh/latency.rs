//! How the latencies of exchanges with each peer are spread, idle and loaded apart, since the start (docs/spec/mesh.md §1).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use barograph_forecast::{Name, Quantity, Series};
use hdrhistogram::Histogram;

use super::PEERS_MAX;
use crate::health::lock;

/// Of all peers.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<BTreeMap<Name, Pair>>);

/// Of one peer: idle, and once something was measured under load, loaded.
#[derive(Debug, Default)]
struct Pair([Option<Box<Tally>>; 2]);

#[derive(Debug)]
struct Tally {
    /// In microseconds.
    spread: Histogram<u32>,
    sum_s: f64,
    missed: u64,
}

/// What is shown of one peer, idle or loaded.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// `rtt` or `rtt_loaded`, from this host to the peer.
    pub(crate) series: Series,
    /// Exchanges answered.
    pub(crate) count: u64,
    /// Exchanges that were due and have no answer.
    pub(crate) missed: u64,
    /// Of all latencies, in seconds.
    pub(crate) sum_s: f64,
    pub(crate) max_s: Option<f64>,
    /// In seconds, for each of [`QUANTILES`]; `None` where so many were missed that it is beyond all answers.
    pub(crate) quantiles_s: [Option<f64>; QUANTILES.len()],
    /// How many were at most as long as each of [`BOUNDS_S`].
    pub(crate) at_most: [u64; BOUNDS_S.len()],
}

impl Latencies {
    /// Exchanges with a peer: what was answered, and how many were due and were not.
    pub(crate) fn add(&self, peer: &Name, is_loaded: bool, answered_s: &[f64], missed: u64) {
        let mut pairs = lock(&self.0);
        if !pairs.contains_key(peer) && PEERS_MAX <= pairs.len() {
            // As many as there may be peers are there: one of them is gone. Which, matters to nobody.
            pairs.pop_first();
        }
        let slot = &mut pairs.entry(peer.clone()).or_default().0[usize::from(is_loaded)];
        let tally = slot.get_or_insert_with(|| Box::new(Tally::new()));
        for latency_s in answered_s.iter().copied().filter(|latency_s| latency_s.is_finite()) {
            // Above 0, for a histogram of logarithms; a cast saturates.
            let us = ((latency_s * 1e6).round() as u64).clamp(1, LATENCY_MAX_US);
            tally.spread.saturating_record(us);
            tally.sum_s += latency_s;
        }
        tally.missed = tally.missed.saturating_add(missed);
    }

    /// All of them, by peer, idle before loaded.
    pub(crate) fn spreads(&self, host: &Name) -> Vec<Spread> {
        let pairs = lock(&self.0);
        let of_pair = |(peer, pair): (&Name, &Pair)| {
            let tallies = pair.0.iter().zip([Quantity::RTT, Quantity::RTT_LOADED]);
            let spreads = tallies.filter_map(|(tally, quantity)| {
                let series = Series { source: host.clone(), target: peer.clone(), quantity };
                Some(tally.as_deref()?.spread(series))
            });
            spreads.collect::<Vec<_>>()
        };
        pairs.iter().flat_map(of_pair).collect()
    }
}

impl Tally {
    fn new() -> Self {
        let spread = Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS).expect("the bounds are constants");
        Self { spread, sum_s: 0.0, missed: 0 }
    }

    fn spread(&self, series: Series) -> Spread {
        let count = self.spread.len();
        let due = count + self.missed;
        let quantile = |share: f64| {
            // What was missed took longer than anything that was answered.
            let rank = (share * due as f64).ceil().max(1.0);
            let among_answered = rank / count as f64;
            (rank <= count as f64).then(|| seconds(self.spread.value_at_quantile(among_answered)))
        };
        Spread {
            series,
            count,
            missed: self.missed,
            sum_s: self.sum_s,
            max_s: (0 < count).then(|| seconds(self.spread.max())),
            quantiles_s: QUANTILES.map(quantile),
            at_most: BOUNDS_S.map(|bound| self.spread.count_between(0, (bound * 1e6) as u64)),
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The quantiles that are shown.
pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// Upper bounds of the buckets of `/metrics`, in seconds: from the round trip within a rack to what no program waits for.
pub(crate) const BOUNDS_S: [f64; 16] =
    [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// How often a peer is to be asked within one measurement: as datagrams are sent (docs/spec/probe.md §2.4).
pub(crate) const EVERY: Duration = Duration::from_millis(20);
/// A minute; no experiment is longer.
const LATENCY_MAX_US: u64 = 60_000_000;
/// Buckets of a sixteenth of their value: 1.5 kB for each of a peer's two histograms; a second digit would take 10 kB.
const DIGITS: u8 = 1;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn idle_and_loaded_are_apart_and_quantiles_count_what_was_missed() {
        let latencies = Latencies::default();
        let peer = name("b");
        let ms: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 1e3).collect();
        latencies.add(&peer, false, &ms, 0);
        latencies.add(&peer, true, &[0.5], 1);
        let [idle, loaded] = &latencies.spreads(&name("a"))[..] else { panic!() };
        assert_eq!((idle.series.quantity.as_str(), loaded.series.quantity.as_str()), ("rtt", "rtt_loaded"));
        assert_eq!((idle.count, idle.missed, loaded.count, loaded.missed), (100, 0, 1, 1));
        for (quantile, expected) in idle.quantiles_s.iter().zip([0.050, 0.090, 0.099, 0.100]) {
            let off = quantile.unwrap() / expected - 1.0;
            assert!(off.abs() <= 1.0 / 16.0, "{quantile:?} for {expected}");
        }
        assert!((idle.sum_s - 5.05).abs() < 1e-9);
        assert!(loaded.quantiles_s[0].is_some(), "half were answered");
        assert_eq!(loaded.quantiles_s[1..], [None; 3], "and no more than half");
        latencies.add(&peer, false, &[], 100);
        let idle = &latencies.spreads(&name("a"))[0];
        assert!(idle.quantiles_s[0].is_some_and(|median| 0.09 < median), "{idle:?}");
        assert_eq!(idle.quantiles_s[1], None);
    }

    #[test]
    fn buckets_grow_and_absurd_latencies_stay_within_the_bounds() {
        let latencies = Latencies::default();
        latencies.add(&name("b"), false, &[0.0, 1e-9, 0.003, 7.0, 1e9, f64::NAN, f64::INFINITY, -1.0], 0);
        let spread = &latencies.spreads(&name("a"))[0];
        assert!(spread.at_most.is_sorted() && spread.at_most[0] == 3, "{spread:?}");
        assert_eq!((spread.count, spread.at_most[15]), (6, 5));
        assert!(spread.max_s.unwrap() <= 64.0);
    }

    #[test]
    fn the_number_of_peers_and_the_memory_of_each_are_bounded() {
        let latencies = Latencies::default();
        for peer in 0..2 * PEERS_MAX {
            latencies.add(&name(&format!("p{peer}")), false, &[0.01, 60.0], 0);
        }
        assert_eq!(latencies.spreads(&name("a")).len(), PEERS_MAX);
        let tally = Tally::new();
        let bytes = tally.spread.distinct_values() * size_of::<u32>() + size_of::<Tally>();
        assert!(bytes <= 2048, "{bytes}");
    }
}
