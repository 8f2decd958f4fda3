//! Ranking of hosts for a transfer of a given size; marks hosts that are too close to call.

use std::sync::Arc;

use crate::compose::PathEstimate;

/// A host that can be chosen, with the forecasts of the path to it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCandidate {
    /// Name of the host.
    pub host: Arc<str>,
    /// Round-trip time (s).
    pub rtt_s: PathEstimate,
    /// Rate of a long transfer (bit/s); `None` if there is no forecast of it.
    pub goodput_bit_s: Option<PathEstimate>,
}

/// A ranked candidate, with the forecast time of the transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedHost {
    /// Name of the host.
    pub host: Arc<str>,
    /// Forecast time of the transfer (s). The interval follows from the intervals of the
    /// candidate's rate and round-trip time.
    pub time_s: PathEstimate,
    /// Whether the times of this host and of the first host are too close to rank these two hosts;
    /// true for the first host.
    pub is_close: bool,
}

/// Sorts candidates by the forecast time of a transfer of `bytes`, the shortest first, then by
/// name. Leaves out candidates with an invalid forecast: not a finite number, a rate or time that
/// is not above 0, or limits of an interval in the wrong order.
///
/// The time is bytes / goodput plus two round trips, one to connect and one for the request. A
/// candidate counts as equal to the first if the forecast of either lies inside the interval of the
/// other, as on the page of mirrors (docs/guide/mirrors.md).
///
/// A candidate without a rate is left out above [`INITIAL_WINDOW_BYTES`]. Up to that size, if one
/// candidate has no rate, only round-trip times count, for all candidates.
pub fn rank(candidates: &[HostCandidate], bytes: u64) -> Vec<RankedHost> {
    let by_rate = bytes > INITIAL_WINDOW_BYTES || candidates.iter().all(|one| one.goodput_bit_s.is_some());
    let mut ranked: Vec<RankedHost> = candidates
        .iter()
        .filter(|candidate| candidate.rtt_s.is_positive())
        .filter(|candidate| candidate.goodput_bit_s.map_or(!by_rate, |rate| rate.is_positive()))
        .map(|candidate| RankedHost {
            host: Arc::clone(&candidate.host),
            time_s: candidate.time_s(if by_rate { bytes } else { 0 }),
            is_close: false,
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

impl HostCandidate {
    fn time_s(&self, bytes: u64) -> PathEstimate {
        let bits = 8.0 * bytes as f64;
        let sending =
            |end: fn(&PathEstimate) -> f64| self.goodput_bit_s.as_ref().map_or(0.0, |rate| bits / end(rate));
        PathEstimate {
            value: sending(|rate| rate.value) + ROUND_TRIPS * self.rtt_s.value,
            lower: sending(|rate| rate.upper) + ROUND_TRIPS * self.rtt_s.lower,
            upper: sending(|rate| rate.lower) + ROUND_TRIPS * self.rtt_s.upper,
        }
    }
}

/// Bytes that TCP sends in its first round trip (RFC 6928 §2: ten segments). A response up to this
/// size takes only the time of its round trips.
pub const INITIAL_WINDOW_BYTES: u64 = 14_600;

/// Round trips before the first byte of a response: one for the TCP handshake, and one for the
/// request.
const ROUND_TRIPS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(host: &str, rtt_ms: f64, mbit_s: f64, spread: f64) -> HostCandidate {
        let around = |value: f64| PathEstimate { value, lower: value / spread, upper: value * spread };
        HostCandidate {
            host: host.into(),
            rtt_s: around(rtt_ms / 1e3),
            goodput_bit_s: Some(around(mbit_s * 1e6)),
        }
    }

    fn names(ranked: &[RankedHost]) -> Vec<(&str, bool)> {
        ranked.iter().map(|one| (&*one.host, one.is_close)).collect()
    }

    #[test]
    fn transfer_size_decides_between_a_near_and_a_fast_host() {
        let hosts = [candidate("near", 1.0, 10.0, 1.05), candidate("wide", 100.0, 1000.0, 1.05)];
        assert_eq!(names(&rank(&hosts, 1000)), [("near", true), ("wide", false)]);
        assert_eq!(names(&rank(&hosts, 1_000_000_000)), [("wide", true), ("near", false)]);
        let time = rank(&hosts, 12_500_000)[0].time_s;
        // 100 Mbit at 1 Gbit/s take 0.1 s, and two round trips of 100 ms take 0.2 s.
        assert!((time.value - 0.3).abs() < 1e-12 && time.lower < 0.3 && 0.3 < time.upper, "{time:?}");
    }

    #[test]
    fn hosts_with_overlapping_intervals_are_too_close_to_call() {
        let hosts = [
            candidate("a", 1.0, 100.0, 1.2),
            candidate("b", 1.0, 90.0, 1.01),
            candidate("c", 1.0, 50.0, 1.2),
        ];
        assert_eq!(names(&rank(&hosts, 1 << 30)), [("a", true), ("b", true), ("c", false)]);
    }

    #[test]
    fn candidates_with_invalid_forecasts_are_not_ranked() {
        let mut absurd: Vec<HostCandidate> =
            [f64::NAN, f64::INFINITY, 0.0, -1.0].map(|mbit_s| candidate("x", 1.0, mbit_s, 1.1)).into();
        absurd.push(candidate("upside down", 1.0, 1.0, 0.5));
        absurd.push(candidate("no time", 0.0, 1.0, 1.1));
        assert_eq!(rank(&absurd, 1), []);
        absurd.push(candidate("only", 1.0, 1.0, 1.1));
        assert_eq!(names(&rank(&absurd, u64::MAX)), [("only", true)]);
    }

    #[test]
    fn hosts_without_goodput_are_ranked_only_for_sizes_of_the_initial_window() {
        let unknown = HostCandidate { goodput_bit_s: None, ..candidate("near", 1.0, 1.0, 1.1) };
        let hosts = [candidate("far", 50.0, 1000.0, 1.1), unknown];
        let small = rank(&hosts, INITIAL_WINDOW_BYTES);
        assert_eq!(names(&small), [("near", true), ("far", false)]);
        // Each transfer takes two round trips. The rate of `far` is not used.
        assert_eq!(small.iter().map(|one| one.time_s.value).collect::<Vec<_>>(), [0.002, 0.1]);
        assert_eq!(names(&rank(&hosts, INITIAL_WINDOW_BYTES + 1)), [("far", true)]);
    }
}
