//! Which host first, for so many bytes now: a ranking that says when it is too close to call.

use std::sync::Arc;

use crate::compose::Estimate;

/// A host that could be chosen, and what is forecast of the path to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub host: Arc<str>,
    /// Round-trip time (s).
    pub rtt_s: Estimate,
    /// Rate of a long transfer (bit/s); `None` = nothing is known of it.
    pub goodput_bit_s: Option<Estimate>,
}

/// A candidate in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Its name.
    pub host: Arc<str>,
    /// Forecast time of the transfer (s), and the interval of the candidate's rate and round trip in it.
    pub time_s: Estimate,
    /// Whether it cannot be told from the first; true of the first itself.
    pub is_close: bool,
}

/// The candidates by forecast time for a transfer, the shortest first; names decide between equals. One whose forecast makes
/// no sense (no number, a rate or a time not above 0, an interval upside down) is left out.
///
/// Time is bytes / goodput and two round trips, one to connect and one for the request. Too close to call is what lies, with its forecast, inside the
/// interval of the first, or has the first's forecast inside its own: as on the page of mirrors (docs/mirrors.md).
///
/// A candidate of which no rate is known is left out beyond [`INITIAL_WINDOW_BYTES`]. Up to them it has its place by its round trip, and then no
/// other's rate counts either.
pub fn rank(candidates: &[Candidate], bytes: u64) -> Vec<Ranked> {
    let by_rate = INITIAL_WINDOW_BYTES < bytes || candidates.iter().all(|one| one.goodput_bit_s.is_some());
    let mut ranked: Vec<Ranked> = candidates
        .iter()
        .filter(|candidate| candidate.rtt_s.is_positive())
        .filter(|candidate| candidate.goodput_bit_s.map_or(!by_rate, |rate| rate.is_positive()))
        .map(|candidate| Ranked {
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

impl Candidate {
    fn time_s(&self, bytes: u64) -> Estimate {
        let bits = 8.0 * bytes as f64;
        let sending =
            |end: fn(&Estimate) -> f64| self.goodput_bit_s.as_ref().map_or(0.0, |rate| bits / end(rate));
        Estimate {
            value: sending(|rate| rate.value) + ROUND_TRIPS * self.rtt_s.value,
            lower: sending(|rate| rate.upper) + ROUND_TRIPS * self.rtt_s.lower,
            upper: sending(|rate| rate.lower) + ROUND_TRIPS * self.rtt_s.upper,
        }
    }
}

/// What TCP sends in its first round trip (RFC 6928 §2: ten segments): an answer up to this size takes no time but round trips.
pub const INITIAL_WINDOW_BYTES: u64 = 14_600;

/// TCP's handshake, and a request with the first byte of its answer.
const ROUND_TRIPS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(host: &str, rtt_ms: f64, mbit_s: f64, spread: f64) -> Candidate {
        let around = |value: f64| Estimate { value, lower: value / spread, upper: value * spread };
        Candidate {
            host: host.into(),
            rtt_s: around(rtt_ms / 1e3),
            goodput_bit_s: Some(around(mbit_s * 1e6)),
        }
    }

    fn names(ranked: &[Ranked]) -> Vec<(&str, bool)> {
        ranked.iter().map(|one| (&*one.host, one.is_close)).collect()
    }

    #[test]
    fn bytes_decide_between_near_and_wide() {
        let hosts = [candidate("near", 1.0, 10.0, 1.05), candidate("wide", 100.0, 1000.0, 1.05)];
        assert_eq!(names(&rank(&hosts, 1000)), [("near", true), ("wide", false)]);
        assert_eq!(names(&rank(&hosts, 1_000_000_000)), [("wide", true), ("near", false)]);
        let time = rank(&hosts, 12_500_000)[0].time_s;
        // 100 Mbit at 1 Gbit/s, and twice 100 ms.
        assert!((time.value - 0.3).abs() < 1e-12 && time.lower < 0.3 && 0.3 < time.upper, "{time:?}");
    }

    #[test]
    fn what_intervals_do_not_part_is_too_close_to_call() {
        let hosts = [
            candidate("a", 1.0, 100.0, 1.2),
            candidate("b", 1.0, 90.0, 1.01),
            candidate("c", 1.0, 50.0, 1.2),
        ];
        assert_eq!(names(&rank(&hosts, 1 << 30)), [("a", true), ("b", true), ("c", false)]);
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let mut absurd: Vec<Candidate> =
            [f64::NAN, f64::INFINITY, 0.0, -1.0].map(|mbit_s| candidate("x", 1.0, mbit_s, 1.1)).into();
        absurd.push(candidate("upside down", 1.0, 1.0, 0.5));
        absurd.push(candidate("no time", 0.0, 1.0, 1.1));
        assert_eq!(rank(&absurd, 1), []);
        absurd.push(candidate("only", 1.0, 1.0, 1.1));
        assert_eq!(names(&rank(&absurd, u64::MAX)), [("only", true)]);
    }

    #[test]
    fn without_a_rate_only_what_fits_the_initial_window_has_a_time() {
        let unknown = Candidate { goodput_bit_s: None, ..candidate("near", 1.0, 1.0, 1.1) };
        let hosts = [candidate("far", 50.0, 1000.0, 1.1), unknown];
        let small = rank(&hosts, INITIAL_WINDOW_BYTES);
        assert_eq!(names(&small), [("near", true), ("far", false)]);
        // Two round trips, and nothing for the rate of the one that has one.
        assert_eq!(small.iter().map(|one| one.time_s.value).collect::<Vec<_>>(), [0.002, 0.1]);
        assert_eq!(names(&rank(&hosts, INITIAL_WINDOW_BYTES + 1)), [("far", true)]);
    }
}
