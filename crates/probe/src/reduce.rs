//! From what was timed to what is reported.

/// The median of `samples`; the mean of the two middle ones where their count is even.
///
/// `None` when there is none. Samples are finite by construction; their order does not matter.
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

/// The rate of one acknowledged transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// Bits over the whole time, in bit/s.
    pub raw: f64,
    /// Bits over the time less the forecast round trip, in bit/s; equal to `raw` where no usable
    /// forecast was given.
    pub corrected: f64,
}

/// The rate of `bytes` in `elapsed_s` seconds, the last round trip of which was only the
/// acknowledgement (JavaNws §2.1.1: "we subtract the *predicted* round-trip time").
///
/// A forecast that is no finite positive number, or not smaller than the time itself, cannot have
/// been part of it and is left out: the correction never gives an infinite or negative rate.
/// `None` when the clock saw no time pass.
#[must_use]
pub fn goodput(bytes: u64, elapsed_s: f64, rtt_forecast_s: Option<f64>) -> Option<Goodput> {
    if !(elapsed_s.is_finite() && 0.0 < elapsed_s) {
        return None;
    }
    // Exact up to 2^53 bits, a petabyte.
    let bits = bytes as f64 * 8.0;
    let usable = rtt_forecast_s.filter(|rtt| rtt.is_finite() && 0.0 < *rtt && *rtt < elapsed_s);
    let raw = bits / elapsed_s;
    Some(Goodput { raw, corrected: usable.map_or(raw, |rtt| bits / (elapsed_s - rtt)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians() {
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

    /// JavaNws §2.1.1: a small probe over a long path is mostly round trip.
    #[test]
    fn the_forecast_round_trip_is_subtracted() {
        let goodput = goodput(64 * 1024, 0.15, Some(0.1)).expect("time passed");
        assert!((goodput.raw - 524_288.0 / 0.15).abs() < 1e-3);
        assert!((goodput.corrected - 524_288.0 / 0.05).abs() < 1e-3);
    }

    #[test]
    fn an_unusable_forecast_corrects_nothing() {
        for forecast in
            [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY), Some(0.1), Some(0.2)]
        {
            let goodput = goodput(1000, 0.1, forecast).expect("time passed");
            assert_eq!(goodput.raw.to_bits(), goodput.corrected.to_bits(), "{forecast:?}");
        }
        for elapsed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(goodput(1000, elapsed, None), None, "{elapsed}");
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
        fn a_corrected_rate_is_finite_and_never_below_the_raw_one(
            bytes in 1..1u64 << 50, elapsed in 1e-9..1e6f64, forecast in -1.0..1e6f64,
        ) {
            let goodput = goodput(bytes, elapsed, Some(forecast)).expect("time passed");
            prop_assert!(goodput.raw.is_finite() && goodput.corrected.is_finite());
            prop_assert!(goodput.raw <= goodput.corrected);
        }
    }
}
