//! Reduces measured times to reported values.

#[cfg(feature = "io")]
use crate::quantity_result::{MeasuredValue, TcpInfo};

/// Median of `samples`; for an even count, the mean of the two middle samples.
///
/// Returns `None` if `samples` is empty. Samples must be finite; their order does not matter.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(feature = "io")]
impl MeasuredValue {
    /// Median of `samples`; `None` if there are no samples.
    pub(crate) fn median_of(samples: Vec<f64>, tcp_info: Option<TcpInfo>) -> Option<Self> {
        let value = median(&samples)?;
        let n = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        Some(Self { n, samples, ..Self::one(value, tcp_info) })
    }

    /// A value with one sample, which is the value itself.
    pub(crate) fn one(value: f64, tcp_info: Option<TcpInfo>) -> Self {
        Self { value, n: 1, raw: None, bytes: None, samples: vec![value], tcp_info, refused: false }
    }
}

/// Round-trip time used to correct the rate of a transfer, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrip {
    /// Forecast of the idle round-trip time.
    pub forecast_s: Option<f64>,
    /// Least round-trip time that the kernel of either end measured on the connection of the
    /// transfer.
    pub least_s: Option<f64>,
}

/// Rate of one acknowledged transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// Bits divided by the whole time, in bit/s.
    pub raw: f64,
    /// Bits divided by the time minus one idle round trip, in bit/s; equal to `raw` if that round
    /// trip is unknown.
    pub corrected: f64,
}

/// Rate of `bytes` transferred in `elapsed_s` seconds. The last round trip of that time carried
/// only the acknowledgement (JavaNws §2.1.1: "we subtract the *predicted* round-trip time").
///
/// The function subtracts the forecast, but at most the least round-trip time. Every transfer needs
/// this time, so a larger forecast would give a rate that the path does not have. The function
/// subtracts at most half of `elapsed_s`, so that an error in the least round-trip time stays small
/// relative to the remaining time. If the forecast or the least round-trip time is unknown, the
/// function subtracts nothing. Returns `None` if `elapsed_s` is not positive and finite.
#[must_use]
pub fn goodput(bytes: u64, elapsed_s: f64, round_trip: RoundTrip) -> Option<Goodput> {
    if !(elapsed_s.is_finite() && elapsed_s > 0.0) {
        return None;
    }
    // The conversion is exact up to 2^53 bits, a petabyte.
    let bits = bytes as f64 * 8.0;
    let idle_s = positive(round_trip.forecast_s).min(positive(round_trip.least_s)).min(elapsed_s / 2.0);
    Some(Goodput { raw: bits / elapsed_s, corrected: bits / (elapsed_s - idle_s) })
}

/// Returns `value` if it is positive and finite, else 0.
fn positive(value: Option<f64>) -> f64 {
    value.filter(|value| value.is_finite() && *value > 0.0).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn median_of_samples_is_the_middle_or_the_mean_of_two() {
        for (samples, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0], Some(5.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 3.0, 2.0], Some(2.5)),
        ] {
            assert_eq!(median(samples), expected, "{samples:?}");
        }
    }

    fn round_trip(forecast_s: f64, least_s: f64) -> RoundTrip {
        RoundTrip { forecast_s: Some(forecast_s), least_s: Some(least_s) }
    }

    /// JavaNws §2.1.1: over a long path, a small probe spends most of its time on the round trip.
    #[test]
    fn goodput_subtracts_the_forecast_round_trip() {
        let goodput = goodput(64 * 1024, 0.25, round_trip(0.1, 0.1)).expect("time passed");
        assert!((goodput.raw - 524_288.0 / 0.25).abs() < 1e-3);
        assert!((goodput.corrected - 524_288.0 / 0.15).abs() < 1e-3);
    }

    /// 64 KiB over 10 Mbit/s and 20 ms take 72 ms. The forecast was made while the path was busy.
    #[test]
    fn a_forecast_above_the_least_round_trip_does_not_inflate_the_rate() {
        let elapsed_s = 0.02 + 524_288.0 / 10e6;
        let goodput = goodput(64 * 1024, elapsed_s, round_trip(0.06, 0.02)).expect("time passed");
        assert!((goodput.corrected - 10e6).abs() < 1.0, "{goodput:?}");
    }

    #[test]
    fn an_unknown_round_trip_leaves_the_rate_uncorrected() {
        let unusable = [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)];
        for unknown in unusable {
            for round_trip in [
                RoundTrip { forecast_s: unknown, least_s: Some(0.05) },
                RoundTrip { forecast_s: Some(0.05), least_s: unknown },
            ] {
                let goodput = goodput(1000, 0.1, round_trip).expect("time passed");
                assert_eq!(goodput.raw.to_bits(), goodput.corrected.to_bits(), "{round_trip:?}");
            }
        }
        for elapsed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(goodput(1000, elapsed, RoundTrip::default()), None, "{elapsed}");
        }
    }

    proptest! {
        #[test]
        fn a_median_stays_within_its_samples(samples in prop::collection::vec(-1e9..1e9f64, 1..50)) {
            let median = median(&samples).expect("not empty");
            let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!((low..=high).contains(&median));
        }

        #[test]
        fn a_corrected_rate_is_bounded_by_the_least_round_trip_and_twice_the_raw_rate(
            bytes in 1..1u64 << 50, elapsed in 1e-9..1e6f64, forecast in -1.0..1e6f64, least in -1.0..1e6f64,
        ) {
            let goodput = goodput(bytes, elapsed, round_trip(forecast, least)).expect("time passed");
            prop_assert!(goodput.raw.is_finite() && goodput.corrected.is_finite());
            prop_assert!(goodput.raw <= goodput.corrected && goodput.corrected <= 2.0 * goodput.raw);
            let idle_s = elapsed - bytes as f64 * 8.0 / goodput.corrected;
            prop_assert!(idle_s <= least.max(0.0) + 1e-9 * elapsed);
        }
    }
}
