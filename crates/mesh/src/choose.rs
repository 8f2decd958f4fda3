//! Ranking of hosts for a transfer of a given size; marks hosts that are too close to call.

use std::sync::Arc;

use barograph_forecast::{Horizon, INITIAL_WINDOW_BYTES, TransferModel};

use crate::compose::PathEstimate;

/// A host that can be chosen, with the forecasts of the path to it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCandidate {
    /// Name of the host.
    pub host: Arc<str>,
    /// Round-trip time (s).
    pub rtt_s: PathEstimate,
    /// Time of the transfer (s), as by [`transfer_time`]; `None` if there is no forecast of a rate.
    pub time_s: Option<PathEstimate>,
}

/// A ranked candidate, with the forecast time of the transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedHost {
    /// Name of the host.
    pub host: Arc<str>,
    /// Forecast time of the transfer (s).
    pub time_s: PathEstimate,
    /// Whether the times of this host and of the first host are too close to rank these two hosts;
    /// true for the first host.
    pub is_close: bool,
}

/// Sorts candidates by the forecast time of a transfer of `bytes`, the shortest first, then by
/// name. Leaves out candidates with an invalid forecast: not a finite number, a time that is not
/// above 0, or limits of an interval in the wrong order.
///
/// A candidate counts as equal to the first if the forecast of either lies inside the interval of
/// the other, as on the page of mirrors (docs/guide/mirrors.md).
///
/// A candidate without a rate is left out above [`INITIAL_WINDOW_BYTES`]. Up to that size, if one
/// candidate has no rate, only round-trip times count, for all candidates.
pub fn rank(candidates: &[HostCandidate], bytes: u64) -> Vec<RankedHost> {
    let by_rate = bytes > INITIAL_WINDOW_BYTES || candidates.iter().all(|one| one.time_s.is_some());
    let time_s = |candidate: &HostCandidate| match by_rate {
        true => candidate.time_s,
        false => time_of(bytes, &candidate.rtt_s, |_| Some(UNLIMITED)),
    };
    let mut ranked: Vec<RankedHost> = candidates
        .iter()
        .filter_map(|candidate| {
            let time_s = time_s(candidate).filter(PathEstimate::is_positive)?;
            Some(RankedHost { host: Arc::clone(&candidate.host), time_s, is_close: false })
        })
        .collect();
    ranked.sort_by(|a, b| a.time_s.value.total_cmp(&b.time_s.value).then_with(|| a.host.cmp(&b.host)));
    if let Some(first) = ranked.first().map(|first| first.time_s) {
        for other in &mut ranked {
            other.is_close = other.time_s.contains(first.value) || first.contains(other.time_s.value);
        }
    }
    ranked
}

/// Forecast time of a transfer of `bytes` over a new TCP connection (s), with an interval that ends
/// where the intervals of both round-trip time and rate end.
///
/// `rate_over` returns the mean rate after slow start over the next so many seconds (bit/s); it is
/// called as by [`TransferModel::time_over`]. `None` if a forecast is not valid, or if the transfer
/// would take longer than a year. A late end beyond that is a year.
pub fn transfer_time(
    bytes: u64,
    rtt_s: &PathEstimate,
    rate_over: impl Fn(f64) -> Option<PathEstimate>,
) -> Option<PathEstimate> {
    time_of(bytes, rtt_s, |horizon_s| rate_over(horizon_s).filter(PathEstimate::is_positive))
}

/// As [`transfer_time`]; a rate may be infinite.
fn time_of(
    bytes: u64,
    rtt_s: &PathEstimate,
    rate_over: impl Fn(f64) -> Option<PathEstimate>,
) -> Option<PathEstimate> {
    let time_s = |rtt_s, share, end: fn(PathEstimate) -> f64| {
        TransferModel::TCP.time_over(bytes, rtt_s, share, |horizon_s| rate_over(horizon_s).map(end))
    };
    if !rtt_s.is_positive() {
        return None;
    }
    let value = time_s(rtt_s.value, 0.5, |rate| rate.value)?;
    let lower = time_s(rtt_s.lower, EARLY_SHARE, |rate| rate.upper)?;
    let upper = time_s(rtt_s.upper, 1.0 - EARLY_SHARE, |rate| rate.lower).unwrap_or(Horizon::SECONDS_MAX);
    Some(PathEstimate { value, lower: lower.min(value), upper: upper.max(value) })
}

/// A rate that takes no time.
const UNLIMITED: PathEstimate =
    PathEstimate { value: f64::INFINITY, lower: f64::INFINITY, upper: f64::INFINITY };

/// Share of transfers that end before an interval of a [`PathEstimate`], at 90 %.
const EARLY_SHARE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn around(value: f64, spread: f64) -> PathEstimate {
        PathEstimate { value, lower: value / spread, upper: value * spread }
    }

    /// A candidate for a transfer of `bytes`, with intervals from 1/`spread` to `spread` times.
    fn candidate(host: &str, rtt_ms: f64, mbit_s: f64, spread: f64, bytes: u64) -> HostCandidate {
        let rtt_s = around(rtt_ms / 1e3, spread);
        let time_s = transfer_time(bytes, &rtt_s, |_| Some(around(mbit_s * 1e6, spread)));
        HostCandidate { host: host.into(), rtt_s, time_s }
    }

    fn names(ranked: &[RankedHost]) -> Vec<(&str, bool)> {
        ranked.iter().map(|one| (&*one.host, one.is_close)).collect()
    }

    #[test]
    fn transfer_size_decides_between_a_near_and_a_fast_host() {
        let hosts = |bytes| {
            [candidate("near", 1.0, 10.0, 1.05, bytes), candidate("wide", 100.0, 1000.0, 1.05, bytes)]
        };
        assert_eq!(names(&rank(&hosts(1000), 1000)), [("near", true), ("wide", false)]);
        let large = 1_000_000_000;
        assert_eq!(names(&rank(&hosts(large), large)), [("wide", true), ("near", false)]);
        let time = rank(&hosts(12_500_000), 12_500_000)[0].time_s;
        // Two round trips of 100 ms, and nine with windows that do not fill 12.5 MB: 7.4 MB. The
        // rest, 5.1 MB, takes 41 ms at 1 Gbit/s.
        let expected = 1.1 + 8.0 * (12_500_000.0 - 511.0 * 14_480.0) / 1e9;
        assert!((time.value - expected).abs() < 1e-9 && time.lower < expected && expected < time.upper);
    }

    #[test]
    fn hosts_with_overlapping_intervals_are_too_close_to_call() {
        let large = 1 << 30;
        let hosts = [
            candidate("a", 1.0, 100.0, 1.2, large),
            candidate("b", 1.0, 90.0, 1.01, large),
            candidate("c", 1.0, 50.0, 1.2, large),
        ];
        assert_eq!(names(&rank(&hosts, large)), [("a", true), ("b", true), ("c", false)]);
    }

    #[test]
    fn candidates_with_invalid_forecasts_are_not_ranked() {
        let mut absurd: Vec<HostCandidate> = [f64::NAN, f64::INFINITY, 0.0, -1.0]
            .map(|mbit_s| candidate("x", 1.0, mbit_s, 1.1, 20_000))
            .into();
        absurd.push(candidate("upside down", 1.0, 1.0, 0.5, 20_000));
        absurd.push(candidate("no time", 0.0, 1.0, 1.1, 20_000));
        assert_eq!(rank(&absurd, 20_000), []);
        absurd.push(candidate("only", 1.0, 1.0, 1.1, 20_000));
        assert_eq!(names(&rank(&absurd, 20_000)), [("only", true)]);
        assert_eq!(candidate("for ever", 1.0, 1.0, 1.1, u64::MAX).time_s, None);
    }

    #[test]
    fn an_interval_without_a_late_end_ends_after_a_year() {
        let rate = PathEstimate { value: 1e6, lower: 1e-6, upper: 2e6 };
        let time = transfer_time(1_000_000, &around(0.01, 1.1), |_| Some(rate));
        assert_eq!(time.map(|time| time.upper), Some(Horizon::SECONDS_MAX));
    }

    #[test]
    fn hosts_without_goodput_are_ranked_only_for_sizes_of_the_initial_window() {
        let unknown =
            HostCandidate { time_s: None, ..candidate("near", 1.0, 1.0, 1.1, INITIAL_WINDOW_BYTES) };
        let hosts = [candidate("far", 50.0, 1000.0, 1.1, INITIAL_WINDOW_BYTES), unknown];
        let small = rank(&hosts, INITIAL_WINDOW_BYTES);
        assert_eq!(names(&small), [("near", true), ("far", false)]);
        // Each transfer takes two round trips. The rate of `far` is not used.
        assert_eq!(small.iter().map(|one| one.time_s.value).collect::<Vec<_>>(), [0.002, 0.1]);
        assert_eq!(names(&rank(&hosts, INITIAL_WINDOW_BYTES + 1)), [("far", true)]);
    }
}
