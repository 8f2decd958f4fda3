//! Latency distributions of the exchanges with each peer since the start, separate for idle and
//! loaded exchanges (docs/spec/mesh.md §1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use barograph_forecast::{Name, Quantity, SeriesId};
use barograph_probe::Plan;
use hdrhistogram::Histogram;

use super::PEERS_MAX;
use crate::sync::lock;

#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<BTreeMap<Name, PeerLatency>>);

#[derive(Debug, Default)]
struct PeerLatency {
    /// The idle and the loaded distribution; each is `None` before the first measurement.
    tallies: [Option<Box<LatencyTally>>; 2],
    /// Time up to which due exchanges are counted. `None` = no exchange is due: the station is not
    /// a peer, or was not measured or checked yet.
    counted_to: Option<Instant>,
    /// Time at which the station stopped being a peer.
    gone_at: Option<Instant>,
}

#[derive(Debug)]
struct LatencyTally {
    /// Latencies of answered exchanges, in microseconds.
    histogram: Histogram<u32>,
    /// Number of answered exchanges in each bucket of [`BOUNDS_S`], not cumulative.
    within: [u64; BOUNDS_S.len()],
    count: u64,
    sum_s: f64,
    max_s: f64,
    missed: u64,
}

/// Latency distribution of one peer, idle or loaded, for the API and `/metrics`.
#[derive(Clone, Debug)]
pub(crate) struct LatencyDistribution {
    /// `rtt` or `rtt_loaded`, from this host to the peer.
    pub(crate) series: SeriesId,
    /// Number of answered exchanges.
    pub(crate) count: u64,
    /// Number of exchanges that were due and have no answer.
    pub(crate) missed: u64,
    /// Sum of all latencies, in seconds.
    pub(crate) sum_s: f64,
    pub(crate) max_s: Option<f64>,
    /// Latencies in seconds, for each of [`QUANTILES`]; `None` if the quantile falls among the
    /// missed exchanges.
    pub(crate) quantiles_s: [Option<f64>; QUANTILES.len()],
    /// For each of [`BOUNDS_S`], the number of answered exchanges with at most this latency.
    pub(crate) at_most: [u64; BOUNDS_S.len()],
}

impl Latencies {
    /// Adds exchanges with a peer. The exchanges ended at `now`. `answered_s` are the latencies of
    /// the answered exchanges in seconds, and `missed` is the number of missed exchanges.
    pub(crate) fn add(&self, peer: &Name, is_loaded: bool, answered_s: &[f64], missed: u64, now: Instant) {
        self.change(peer, |of| {
            of.counted_to = Some(now);
            let tally = of.tally(is_loaded);
            answered_s.iter().for_each(|latency_s| tally.answered(*latency_s));
            tally.missed = tally.missed.saturating_add(missed);
        });
    }

    /// Counts missed exchanges for the time in which a peer was checked and not measured. For each
    /// `period` since the last count, adds as many missed exchanges as one latency test has.
    pub(crate) fn unmeasured(&self, peer: &Name, is_loaded: bool, period: Duration, now: Instant) {
        self.change(peer, |of| {
            let from = *of.counted_to.get_or_insert(now);
            let elapsed = now.saturating_duration_since(from);
            let tests = u32::try_from(elapsed.as_nanos() / period.as_nanos().max(1)).unwrap_or(u32::MAX);
            if tests > 0 {
                of.counted_to = from.checked_add(period.saturating_mul(tests));
                let tally = of.tally(is_loaded);
                let missed = u64::from(tests) * u64::from(Plan::RTT_EXCHANGES);
                tally.missed = tally.missed.saturating_add(missed);
            }
        });
    }

    /// Sets the peers from `now` on. No exchanges are due with stations outside `peers`, and the
    /// distributions of such stations are dropped after [`KEPT`].
    pub(crate) fn set_peers(&self, peers: &BTreeSet<Name>, now: Instant) {
        let mut all = lock(&self.0);
        for (name, of) in all.iter_mut() {
            if peers.contains(name) {
                of.gone_at = None;
            } else {
                of.counted_to = None;
                of.gone_at.get_or_insert(now);
            }
        }
        forget(&mut all, now);
    }

    /// Forgets a peer that was removed from the mesh.
    pub(super) fn remove(&self, peer: &Name) {
        lock(&self.0).remove(peer);
    }

    fn change(&self, peer: &Name, change: impl FnOnce(&mut PeerLatency)) {
        let mut all = lock(&self.0);
        if !all.contains_key(peer) && all.len() >= PEERS_MAX {
            let gone = all.iter().filter_map(|(name, of)| Some((of.gone_at?, name.clone()))).min();
            // A mesh has at most [`PEERS_MAX`] peers, so at least one station in the table has left
            // the mesh. If no departure was reported yet, drop the new measurement.
            let Some((_, name)) = gone else { return };
            all.remove(&name);
        }
        change(all.entry(peer.clone()).or_default());
    }

    /// Distributions of all peers, ordered by name. For each peer, the idle distribution precedes
    /// the loaded distribution. `host` is the name of this station.
    pub(crate) fn distributions(&self, host: &Name, now: Instant) -> Vec<LatencyDistribution> {
        let mut all = lock(&self.0);
        forget(&mut all, now);
        let of_peer = |(peer, of): (&Name, &PeerLatency)| {
            let tallies = of.tallies.iter().zip([Quantity::RTT, Quantity::RTT_LOADED]);
            let distributions = tallies.filter_map(|(tally, quantity)| {
                let series = SeriesId { source: host.clone(), target: peer.clone(), quantity };
                Some(tally.as_deref()?.distribution(series))
            });
            distributions.collect::<Vec<_>>()
        };
        all.iter().flat_map(of_peer).collect()
    }
}

fn forget(all: &mut BTreeMap<Name, PeerLatency>, now: Instant) {
    all.retain(|_, of| of.gone_at.is_none_or(|gone| now.saturating_duration_since(gone) < KEPT));
}

impl PeerLatency {
    fn tally(&mut self, is_loaded: bool) -> &mut LatencyTally {
        self.tallies[usize::from(is_loaded)].get_or_insert_with(|| Box::new(LatencyTally::new()))
    }
}

impl LatencyTally {
    fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS).expect("the bounds are constants");
        Self { histogram, within: [0; BOUNDS_S.len()], count: 0, sum_s: 0.0, max_s: 0.0, missed: 0 }
    }

    fn answered(&mut self, latency_s: f64) {
        if !latency_s.is_finite() {
            return;
        }
        let latency_s = latency_s.clamp(0.0, seconds(LATENCY_MAX_US));
        // At least 1 µs, because the buckets of the histogram are logarithmic.
        self.histogram.saturating_record(((latency_s * 1e6).round() as u64).max(1));
        if let Some(within) = BOUNDS_S.iter().position(|bound| latency_s <= *bound) {
            self.within[within] += 1;
        }
        self.count += 1;
        self.sum_s += latency_s;
        self.max_s = self.max_s.max(latency_s);
    }

    fn distribution(&self, series: SeriesId) -> LatencyDistribution {
        let count = self.count;
        let due = count.saturating_add(self.missed);
        let quantile = |share: f64| {
            // A missed exchange counts as longer than all answered exchanges.
            let rank = (share * due as f64).ceil().max(1.0);
            let among_answered = rank / count as f64;
            let value = || seconds(self.histogram.value_at_quantile(among_answered)).min(self.max_s);
            (rank <= count as f64).then(value)
        };
        let mut so_far = 0;
        LatencyDistribution {
            series,
            count,
            missed: self.missed,
            sum_s: self.sum_s,
            max_s: (count > 0).then_some(self.max_s),
            quantiles_s: QUANTILES.map(quantile),
            at_most: self.within.map(|within| {
                so_far += within;
                so_far
            }),
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Delay of a latency test beyond the allowed delay. `waited` is the time that the test waited for
/// a different experiment with the peer. `opened_after` is the time to open the session of the
/// test. The allowed time depends on the fastest answer.
pub(crate) fn excess_delay(waited: Duration, opened_after: Duration, answered_s: &[f64]) -> Duration {
    let fastest_s = answered_s.iter().copied().fold(f64::INFINITY, f64::min);
    let round = Duration::try_from_secs_f64(fastest_s).unwrap_or_default();
    let allowed = OPENING.saturating_add(round.saturating_mul(OPENING_ROUNDS));
    waited.saturating_sub(TURN).saturating_add(opened_after.saturating_sub(allowed))
}

pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// Upper bounds of the buckets of `/metrics`, in seconds: from a round trip within a rack to ten
/// seconds.
pub(crate) const BOUNDS_S: [f64; 16] =
    [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Time for which the distributions of a departed peer are shown. These distributions help to find
/// out why the peer left.
const KEPT: Duration = Duration::from_hours(1);
/// Allowed time to open a session, in addition to [`OPENING_ROUNDS`]. Only a longer time counts as
/// a delay. TCP retransmits a lost first segment after this time (RFC 6298 §2).
const OPENING: Duration = Duration::from_secs(1);
/// Number of round trips to open a session: two connections, the refusal with its challenge, the
/// Upgrade, and the request.
const OPENING_ROUNDS: u32 = 5;
/// Allowed time for which a test waits for a different experiment with the same peer. Only a longer
/// wait counts as a delay. The datagrams of such an experiment take 1.2 s plus the time to open a
/// session.
const TURN: Duration = Duration::from_secs(3);
/// Interval between two exchanges of one measurement, the same as for datagrams (docs/spec/probe.md
/// §2.4).
pub(crate) const EXCHANGE_PERIOD: Duration = Duration::from_millis(20);
/// Maximum latency of the histogram, in microseconds: a minute. No experiment takes longer than a
/// minute.
const LATENCY_MAX_US: u64 = 60_000_000;
/// Number of significant digits of a histogram. With one digit, the width of a bucket is a
/// sixteenth of its value, and a histogram takes 1.5 kB. With two digits a histogram would take 10
/// kB. A peer has two histograms.
const DIGITS: u8 = 1;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn idle_and_loaded_latencies_are_separate_and_quantiles_count_missed_tests() {
        let (latencies, now) = (Latencies::default(), Instant::now());
        let peer = name("b");
        let ms: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 1e3).collect();
        latencies.add(&peer, false, &ms, 0, now);
        latencies.add(&peer, true, &[0.5], 1, now);
        let [idle, loaded] = &latencies.distributions(&name("a"), now)[..] else { panic!() };
        assert_eq!((idle.series.quantity.as_str(), loaded.series.quantity.as_str()), ("rtt", "rtt_loaded"));
        assert_eq!((idle.count, idle.missed, loaded.count, loaded.missed), (100, 0, 1, 1));
        for (quantile, expected) in idle.quantiles_s.iter().zip([0.050, 0.090, 0.099, 0.100]) {
            let off = quantile.unwrap() / expected - 1.0;
            assert!(off.abs() <= 1.0 / 16.0, "{quantile:?} for {expected}");
        }
        assert!((idle.sum_s - 5.05).abs() < 1e-9);
        assert!(loaded.quantiles_s[0].is_some(), "half were answered");
        assert_eq!(loaded.quantiles_s[1..], [None; 3], "and no more than half");
        latencies.add(&peer, false, &[], 100, now);
        let idle = &latencies.distributions(&name("a"), now)[0];
        assert!(idle.quantiles_s[0].is_some_and(|median| median > 0.09), "{idle:?}");
        assert_eq!(idle.quantiles_s[1], None);
    }

    #[test]
    fn buckets_grow_and_absurd_latencies_stay_within_the_bounds() {
        let (latencies, now) = (Latencies::default(), Instant::now());
        latencies.add(
            &name("b"),
            false,
            &[0.0, 1e-9, 0.003, 7.0, 1e9, f64::NAN, f64::INFINITY, -1.0],
            0,
            now,
        );
        let distribution = &latencies.distributions(&name("a"), now)[0];
        assert!(distribution.at_most.is_sorted() && distribution.at_most[0] == 3, "{distribution:?}");
        assert_eq!((distribution.count, distribution.at_most[15]), (6, 5));
        assert_eq!(
            (distribution.max_s, distribution.sum_s),
            (Some(60.0), 67.003 + 1e-9),
            "no latency is longer than a minute"
        );
    }

    #[test]
    fn the_number_of_peers_and_the_memory_of_each_are_bounded() {
        let (latencies, now) = (Latencies::default(), Instant::now());
        for peer in 0..2 * PEERS_MAX {
            latencies.add(&name(&format!("p{peer}")), false, &[0.01, 60.0], 0, now);
        }
        assert_eq!(latencies.distributions(&name("a"), now).len(), PEERS_MAX);
        let tally = LatencyTally::new();
        let bytes = tally.histogram.distinct_values() * size_of::<u32>() + size_of::<LatencyTally>();
        assert!(bytes <= 2048, "{bytes}");
    }

    #[test]
    fn bucket_bounds_are_exact_and_inclusive() {
        let (latencies, now) = (Latencies::default(), Instant::now());
        latencies.add(&name("b"), false, &[0.000_999, 0.001, 0.001_01, 0.001_01], 0, now);
        let distribution = &latencies.distributions(&name("a"), now)[0];
        assert_eq!(BOUNDS_S[3], 0.001);
        assert_eq!((distribution.at_most[2], distribution.at_most[3], distribution.at_most[4]), (0, 2, 4));
        assert_eq!(distribution.max_s, Some(0.001_01));
        assert!(distribution.quantiles_s.iter().flatten().all(|quantile| *quantile <= 0.001_01));
    }

    #[test]
    fn tests_of_a_silent_peer_count_as_missed_until_its_lease_ends() {
        let (latencies, began, period) = (Latencies::default(), Instant::now(), Duration::from_secs(10));
        let (peer, at) = (name("b"), |s| began + Duration::from_secs(s));
        let missed =
            |now| latencies.distributions(&name("a"), now).iter().map(|of| of.missed).collect::<Vec<_>>();
        latencies.add(&peer, false, &[0.01; 11], 0, at(0));
        // Checks as the station makes them, with growing pauses.
        for s in [2, 6, 14, 30, 62] {
            latencies.unmeasured(&peer, false, period, at(s));
        }
        assert_eq!(missed(at(62)), [66], "six tests in a minute");
        latencies.unmeasured(&peer, true, period, at(122));
        assert_eq!(missed(at(122)), [66, 66], "with the load of then");
        // The lease has ended: nothing is due until the peer is back.
        latencies.set_peers(&BTreeSet::new(), at(130));
        latencies.set_peers(&BTreeSet::from([peer.clone()]), at(1000));
        latencies.unmeasured(&peer, false, period, at(1001));
        assert_eq!(missed(at(1001)), [66, 66]);
        latencies.unmeasured(&peer, false, period, at(1011));
        assert_eq!(missed(at(1011)), [77, 66]);
        latencies.unmeasured(&name("new"), false, period, at(5));
        assert_eq!(missed(at(1011)).len(), 2, "nothing was due of one that was never there");
    }

    #[test]
    fn only_departed_peers_are_replaced_and_forgotten() {
        let (latencies, now) = (Latencies::default(), Instant::now());
        let all: BTreeSet<Name> = (0..PEERS_MAX).map(|peer| name(&format!("p{peer}"))).collect();
        all.iter().for_each(|peer| latencies.add(peer, false, &[0.01], 0, now));
        let targets = |now| {
            let distributions = latencies.distributions(&name("a"), now);
            distributions.into_iter().map(|of| of.series.target).collect::<BTreeSet<_>>()
        };
        latencies.add(&name("new"), false, &[0.01], 0, now);
        assert_eq!(targets(now), all, "nobody is put out who is there");
        let gone = name("p7");
        let rest: BTreeSet<Name> = all.iter().filter(|peer| **peer != gone).cloned().collect();
        latencies.set_peers(&rest, now);
        assert_eq!(targets(now + KEPT / 2), all, "it is still shown");
        latencies.add(&name("new"), false, &[0.01], 0, now);
        assert!(targets(now).contains(&name("new")) && !targets(now).contains(&gone));
        latencies.set_peers(&rest, now);
        assert_eq!(targets(now + KEPT), rest);
    }

    #[test]
    fn the_excess_delay_of_a_test_leaves_out_usual_waiting_and_connecting() {
        let ms = Duration::from_millis;
        for (waited, opened_after, fastest_s, late) in [
            (0, 100, 0.02, 0),
            (0, 3100, 0.02, 2000),
            // A satellite's path.
            (0, 3000, 0.6, 0),
            (2500, 100, 0.02, 0),
            (8000, 100, 0.02, 5000),
            (8000, 3100, 0.02, 7000),
        ] {
            assert_eq!(
                excess_delay(ms(waited), ms(opened_after), &[1.0, fastest_s]),
                ms(late),
                "{waited} {opened_after}"
            );
        }
        assert_eq!(excess_delay(ms(0), ms(2000), &[]), ms(1000));
    }
}
