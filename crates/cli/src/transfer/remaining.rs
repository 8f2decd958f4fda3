//! Remaining time of a transfer, by forecasts of its rate with their interval. Pure: the caller has
//! the clock.

use barograph_forecast::{Battery, BatteryConfig, Interval, Objective};

/// The rates of a transfer so far, and forecasts from them.
///
/// Pairs of rates over one second are averaged to rates over two seconds, pairs of these to rates
/// over four seconds, and so on. Each length has a battery of its own. If ten minutes remain, the
/// forecast needs the mean rate over minutes, which varies less than the rate of the next second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    begun: Option<(f64, u64)>,
    scales: Vec<RateScale>,
    latest_bytes_s: Option<f64>,
}

/// The rates over periods of one length.
#[derive(Debug)]
struct RateScale {
    battery: Battery,
    values: u64,
    /// The largest absolute error of the battery's forecasts (bytes a second).
    error_max: f64,
    /// First rate of a pair that is not complete.
    pending: Option<f64>,
}

/// A remaining time, and the interval in which at least nine of ten such times should lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RemainingTime {
    /// Remaining time in seconds, by the median forecast of the rate.
    pub(crate) s: f64,
    /// Earlier and later end of the interval (s). The later end is infinite if the rate may fall to
    /// zero. `None` until an interval is calibrated.
    pub(crate) interval_s: Option<(f64, f64)>,
}

impl Rates {
    /// Records that the receiver had `bytes` at `now_s` (seconds since any fixed moment).
    pub(crate) fn update(&mut self, now_s: f64, bytes: u64) {
        let Some((begun_s, begun_bytes)) = self.begun else {
            self.begun = Some((now_s, bytes));
            return;
        };
        let seconds = now_s - begun_s;
        if seconds < TICK_S {
            return;
        }
        self.begun = Some((now_s, bytes));
        let value = bytes.saturating_sub(begun_bytes) as f64 / seconds;
        self.latest_bytes_s = Some(value);
        // After a long gap, the mean rate of the whole gap counts as one rate over a second.
        let mut next = Some(value);
        for at in 0..SCALES {
            let Some(value) = next else { break };
            if self.scales.len() == at {
                self.scales.push(RateScale::new());
            }
            next = self.scales.get_mut(at).and_then(|scale| scale.learn(value));
        }
    }

    /// Rate over the latest period of a second or more (bytes a second).
    pub(crate) fn latest_bytes_s(&self) -> Option<f64> {
        self.latest_bytes_s
    }

    /// Forecast of the time until `bytes` more have arrived; `None` if there are too few rates, or
    /// the forecast rate is 0.
    pub(crate) fn left(&self, bytes: u64) -> Option<RemainingTime> {
        let next_bytes_s = self.scales.first()?.forecast()?.value;
        let horizon_s = bytes as f64 / next_bytes_s;
        let lengths_s = std::iter::successors(Some(TICK_S), |length| Some(2.0 * length));
        let fits = |(scale, length_s): (&RateScale, f64)| {
            (length_s <= horizon_s).then(|| scale.forecast()).flatten()
        };
        let mut fitting: Vec<RateForecast> = self.scales.iter().zip(lengths_s).filter_map(fits).collect();
        let calibrated = fitting.iter().rev().find_map(|scale| scale.interval);
        let ahead = fitting.pop().or(self.scales.first()?.forecast())?;
        // If the longest length has too few errors for an interval, use the interval of a shorter
        // length, widened to include the longest length's forecast plus and minus its largest
        // error. For wandering rates, the interval of the shorter length alone had a coverage of
        // 0.81, not 0.9.
        let (least, most) = (ahead.value - ahead.error_max, ahead.value + ahead.error_max);
        let wide = || calibrated.map(|(lower, upper)| (lower.min(least.max(0.0)), upper.max(most)));
        let left = RemainingTime {
            s: bytes as f64 / ahead.value,
            interval_s: ahead
                .interval
                .or_else(wide)
                .map(|(lower, upper)| (bytes as f64 / upper, bytes as f64 / lower)),
        };
        left.s.is_finite().then_some(left)
    }
}

/// A forecast of a mean rate (bytes a second), with its interval.
struct RateForecast {
    value: f64,
    interval: Option<(f64, f64)>,
    /// The largest absolute error of the forecasts so far.
    error_max: f64,
}

impl RateScale {
    fn new() -> Self {
        let config = BatteryConfig { levels: vec![Interval::DEFAULT_LEVEL], ..BatteryConfig::default() };
        Self { battery: Battery::new(&config), values: 0, error_max: 0.0, pending: None }
    }

    /// Adds a rate. Each call that completes a pair of rates returns their mean, which is one rate
    /// over twice the length.
    fn learn(&mut self, value: f64) -> Option<f64> {
        if let Some(forecast) = self.battery.forecast(Objective::Absolute) {
            self.error_max = self.error_max.max((value - forecast.value).abs());
        }
        // The battery always accepts this value, because a finite number of bytes in a second or
        // more is in the battery's range.
        self.battery.update(value).ok()?;
        self.values += 1;
        match self.pending.take() {
            Some(first) => Some((first + value) / 2.0),
            None => {
                self.pending = Some(value);
                None
            }
        }
    }

    fn forecast(&self) -> Option<RateForecast> {
        let value = self.battery.forecast(Objective::Absolute)?.value;
        let interval = self
            .battery
            .interval(Interval::DEFAULT_LEVEL)
            .map(|interval| (interval.lower.max(0.0), interval.upper));
        (self.values >= VALUES_MIN && value > 0.0).then_some(RateForecast {
            value,
            interval,
            error_max: self.error_max,
        })
    }
}

/// Shortest time over which a rate is measured, in seconds. A person reads the display about once
/// in this time. On any path, this time is long enough for many round trips.
const TICK_S: f64 = 1.0;

/// Number of lengths. The longest length is 2^12 s, more than an hour; means over longer times
/// would not forecast better.
const SCALES: usize = 13;

/// Minimum number of rates for a forecast. The interval of a forecast needs ten errors.
const VALUES_MIN: u64 = 5;

#[cfg(test)]
mod tests {
    use barograph_sim::SeededRng;

    use super::*;

    /// State of [`Rates`] after a transfer that ran at each of these rates for one second.
    fn after(rates_bytes_s: impl IntoIterator<Item = f64>) -> Rates {
        let (mut rates, mut bytes) = (Rates::default(), 0.0);
        rates.update(0.0, 0);
        for (second, rate) in (1..).zip(rates_bytes_s) {
            bytes += rate;
            rates.update(f64::from(second), bytes as u64);
        }
        rates
    }

    #[test]
    fn a_steady_rate_gives_an_exact_forecast_after_enough_values() {
        assert_eq!(Rates::default().left(1), None);
        assert_eq!(after([1e6; 4]).left(1_000_000), None);
        let left = after([1e6; 5]).left(10_000_000).expect("five values are enough");
        assert!((left.s - 10.0).abs() < 1e-6 && left.interval_s.is_none(), "{left:?}");
        let left = after([1e6; 11]).left(10_000_000).expect("eleven values are enough");
        let (lower_s, upper_s) = left.interval_s.expect("ten errors are enough for an interval");
        assert!(lower_s <= left.s && left.s <= upper_s && upper_s < 10.001, "{left:?}");
    }

    #[test]
    fn a_stalled_transfer_has_no_forecast() {
        assert_eq!(after([0.0; 20]).left(1), None);
        let left = after([1e6, 0.0, 1e6, 0.0, 1e6, 1e6, 0.0, 1e6, 1e6, 0.0, 1e6, 1e6]);
        let left = left.left(5_000_000).expect("it moves");
        let (lower_s, upper_s) = left.interval_s.expect("ten errors were made");
        assert!(upper_s.is_infinite() && lower_s < left.s, "{left:?}");
    }

    #[test]
    fn updates_more_often_than_each_second_change_nothing() {
        let (mut often, mut seldom) = (Rates::default(), Rates::default());
        for tenth in 0..=200_u32 {
            let bytes = u64::from(tenth) * 100_000;
            often.update(f64::from(tenth) / 8.0, bytes);
            if tenth % 8 == 0 {
                seldom.update(f64::from(tenth) / 8.0, bytes);
            }
        }
        assert_eq!(often.left(1 << 30), seldom.left(1 << 30));
        assert!(often.left(1 << 30).is_some());
    }

    /// The coverage is at least 0.9 in 400 transfers with independent rates and 400 with wandering
    /// rates. The coverage may be higher, because the interval of rates over a shorter time than
    /// the remaining time is too wide.
    #[test]
    fn interval_coverage_reaches_its_level_for_two_kinds_of_rates() {
        for (kind, memory) in [("independent", 0.0), ("wandering", 0.9)] {
            let mut inside = 0;
            for seed in 0..400 {
                let mut rng = SeededRng::new(seed, 7);
                let mut state = 0.0;
                let mut rate = || {
                    state = memory * state + rng.normal() * (1.0_f64 - memory * memory).sqrt();
                    1e6 * (1.0 + 0.2 * state).max(0.05)
                };
                let rates = after((0..60).map(|_| rate()));
                let bytes = 30_000_000_u64;
                let (mut gone, mut took_s) = (0.0, 0.0);
                while gone < bytes as f64 {
                    gone += rate();
                    took_s += 1.0;
                }
                let left = rates.left(bytes).expect("60 values");
                // The transfer may end within its last second, so a whole second is allowed.
                let (lower_s, upper_s) = left.interval_s.expect("ten errors were made");
                inside += u32::from((lower_s..=upper_s + 1.0).contains(&took_s));
            }
            let cover = f64::from(inside) / 400.0;
            assert!(cover >= Interval::DEFAULT_LEVEL, "{kind}: {cover}");
        }
    }
}
