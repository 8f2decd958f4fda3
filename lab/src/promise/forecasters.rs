//! Forecasters of the time of a transfer.

use barograph_forecast::{Forecaster, ForecasterConfig, Horizon, HorizonConfig, transfer_interval_shares};
use barograph_study::input::Sample;

use crate::error_window::ErrorWindow;
use crate::stats::EWMA_GAIN;

/// Intended share of times inside the promised interval.
pub(super) const LEVEL: f64 = 0.9;

/// Shares of the ends of an interval, and of the median, for a rate that has no interval itself.
const SHARES: [f64; 3] = [0.05, 0.5, 0.95];

/// A promised time of a transfer, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Promise {
    pub(super) low_s: f64,
    pub(super) median_s: f64,
    pub(super) high_s: f64,
}

impl Promise {
    pub(super) fn width_s(self) -> f64 {
        self.high_s - self.low_s
    }

    /// The promise with the logarithms of the ratios of ends to median multiplied by `factor`.
    pub(super) fn scaled(self, factor: f64) -> Self {
        let end = |end_s: f64| {
            if factor == 1.0 { end_s } else { self.median_s * (end_s / self.median_s).powf(factor) }
        };
        Self { low_s: end(self.low_s), high_s: end(self.high_s), ..self }
    }

    /// The least factor with which the scaled promise includes `time_s`.
    pub(super) fn factor_for(self, time_s: f64) -> f64 {
        let end_s = if time_s < self.median_s { self.low_s } else { self.high_s };
        let distance = |end_s: f64| (end_s / self.median_s).ln().abs();
        if time_s == self.median_s { 0.0 } else { distance(time_s) / distance(end_s) }
    }
}

/// Barograph's forecaster of goodput, which learns the times of transfers.
pub(super) struct OwnForecaster(Forecaster);

impl OwnForecaster {
    /// Promises after the values with the numbers `moments`; `None` if one cannot be made.
    pub(super) fn promises(samples: &[Sample], moments: &[usize], bits: f64) -> Option<Vec<Promise>> {
        let horizons = LADDER_S.map(|seconds| HorizonConfig::exact(Horizon::Seconds(seconds))).to_vec();
        let config = ForecasterConfig { horizons, transfers: true, ..ForecasterConfig::default() };
        let mut own = Self(Forecaster::new(&config).ok()?);
        let mut wanted = vec![false; samples.len()];
        moments.iter().for_each(|moment| wanted[*moment] = true);
        let mut all = vec![None; samples.len()];
        for (index, sample) in samples.iter().enumerate() {
            own.0.update_at(sample.value, sample.time_s).ok()?;
            if wanted[index] {
                all[index] = own.promise(bits, sample.time_s);
            }
        }
        moments.iter().map(|moment| all[*moment]).collect()
    }

    fn promise(&self, bits: f64, now_s: f64) -> Option<Promise> {
        let [early, late] = transfer_interval_shares(LEVEL);
        // The series is in Mbit/s.
        let time_s = |share| self.0.transfer_time(1e-6 * bits, share, now_s);
        Some(Promise { low_s: time_s(early)?, median_s: time_s(0.5)?, high_s: time_s(late)? })
    }
}

/// Horizons that the forecaster keeps.
const LADDER_S: [f64; 6] = [5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];

/// Rates by which others divide the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rates {
    Last,
    AverageSinceStart,
    MovingAverage,
}

impl Rates {
    pub(super) const ALL: [Self; 3] = [Self::Last, Self::AverageSinceStart, Self::MovingAverage];

    /// The rate after each value, in Mbit/s.
    pub(super) fn after_each(self, samples: &[Sample]) -> Vec<f64> {
        let (mut moved, mut level) = (0.0, samples.first().map_or(0.0, |first| first.value));
        let after = |(index, sample): (usize, &Sample)| {
            let first_s = samples[0].time_s;
            moved += sample.value * (sample.time_s - samples[index.saturating_sub(1)].time_s);
            level += EWMA_GAIN * (sample.value - level);
            let rate = match self {
                Self::Last => sample.value,
                Self::AverageSinceStart if sample.time_s == first_s => sample.value,
                Self::AverageSinceStart => moved / (sample.time_s - first_s),
                Self::MovingAverage => level,
            };
            rate.max(RATE_MIN)
        };
        samples.iter().enumerate().map(after).collect()
    }
}

/// Least rate: 1 kbit/s. After a value of 0, a rate of 0 would promise no time at all.
const RATE_MIN: f64 = 1e-3;

/// Promises from rates, after each value: the bits divided by the rate, times quantiles of the
/// ratio of real to forecast time of the transfers that have ended. `times_s` are the real times,
/// as far as they are known.
pub(super) fn with_error_quantiles(
    rates: &[f64],
    times_s: &[f64],
    samples: &[Sample],
    bits: f64,
) -> Vec<Option<Promise>> {
    let forecast_s = |index: usize| bits / (1e6 * rates[index]);
    let mut errors = ErrorWindow::new(usize::MAX);
    let mut ended = 0;
    let after = |(index, sample): (usize, &Sample)| {
        while times_s.get(ended).is_some_and(|time_s| samples[ended].time_s + time_s <= sample.time_s) {
            errors.push((times_s[ended] / forecast_s(ended)).ln());
            ended += 1;
        }
        let at = |share| Some(forecast_s(index) * errors.quantile(share)?.exp());
        let [low_s, median_s, high_s] = SHARES.map(at);
        Some(Promise { low_s: low_s?, median_s: median_s?, high_s: high_s? })
    };
    samples.iter().enumerate().map(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(count: u32) -> Vec<Sample> {
        (0..count).map(|i| Sample { time_s: f64::from(i), value: 8.0 }).collect()
    }

    #[test]
    fn a_steady_rate_has_one_time() {
        let samples = steady(400);
        let promise = OwnForecaster::promises(&samples, &[350], 80e6).unwrap()[0];
        assert!((promise.median_s - 10.0).abs() < 0.01, "{promise:?}");
        assert!(promise.low_s <= promise.median_s && promise.width_s() < 0.1, "{promise:?}");
        let simple =
            with_error_quantiles(&Rates::MovingAverage.after_each(&samples), &[10.0; 300], &samples, 80e6);
        assert_eq!(simple.iter().position(Option::is_some), Some(29), "20 transfers have ended");
        assert!((simple[29].unwrap().median_s - 10.0).abs() < 1e-9);
    }

    #[test]
    fn an_average_since_the_start_weights_values_with_their_time() {
        let samples = [(0.0, 9.0), (1.0, 3.0), (4.0, 1.0)].map(|(time_s, value)| Sample { time_s, value });
        assert_eq!(Rates::AverageSinceStart.after_each(&samples), [9.0, 3.0, 1.5]);
        assert_eq!(Rates::Last.after_each(&samples), [9.0, 3.0, 1.0]);
    }
}
