//! Remaining time of a transfer, by forecasts of its mean rate over that time. Pure: the caller has
//! the clock.

use std::collections::VecDeque;

use barograph_forecast::{
    Forecaster, ForecasterConfig, Horizon, HorizonConfig, QuantileMethod, TransferModel,
};

/// The rates of a transfer so far, one a second, and the remaining time by their forecasts.
///
/// If ten minutes remain, the mean rate over ten minutes counts, not the rate of the next second.
/// The forecaster keeps horizons from two seconds to more than an hour.
#[derive(Debug)]
pub(crate) struct Rates {
    forecaster: Box<Forecaster>,
    least: LeastMeans,
    values: u64,
    /// Time when the first rate began (s).
    start_s: f64,
    /// Time of the newest update (s).
    now_s: f64,
    /// Time (s) and number of bytes when the newest rate ended.
    latest: Option<(f64, u64)>,
    latest_bytes_s: Option<f64>,
    /// The newest forecasts, one after each rate, at most [`SHOWN_FROM`].
    ends: VecDeque<ForecastEnd>,
}

/// A remaining time, and the interval in which nine of ten such times should lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RemainingTime {
    /// Remaining time in seconds, by the median forecast of the rate.
    pub(crate) s: f64,
    /// Earlier and later end of the interval (s). The later end is infinite if the rate may fall
    /// almost to zero. `None` until an interval is calibrated.
    pub(crate) interval_s: Option<(f64, f64)>,
}

/// Time when the transfer ends, by the forecasts of one second (s, on the caller's clock).
#[derive(Clone, Copy, Debug)]
struct ForecastEnd {
    /// Infinite if no byte is expected to arrive.
    s: f64,
    interval_s: Option<(f64, f64)>,
}

impl Default for Rates {
    fn default() -> Self {
        let ladder = (1..=LADDER).map(|power| HorizonConfig {
            horizon: Horizon::Steps(1 << power),
            pending_max: PENDING,
            stride_min: 1,
        });
        let config = ForecasterConfig {
            horizons: ladder.collect(),
            quantiles: Some(QuantileMethod::Blended),
            ..ForecasterConfig::default()
        };
        let forecaster = Forecaster::new(&config).expect("the horizons are within their bounds");
        Self {
            forecaster: Box::new(forecaster),
            least: LeastMeans::default(),
            values: 0,
            start_s: 0.0,
            now_s: 0.0,
            latest: None,
            latest_bytes_s: None,
            ends: VecDeque::new(),
        }
    }
}

impl Rates {
    /// Records that the receiver had `held_bytes` of `all_bytes` at `now_s`, in seconds on the
    /// caller's clock.
    pub(crate) fn update(&mut self, now_s: f64, held_bytes: u64, all_bytes: u64) {
        self.now_s = now_s;
        let Some((latest_s, latest_bytes)) = self.latest else {
            (self.start_s, self.latest) = (now_s, Some((now_s, held_bytes)));
            return;
        };
        let seconds = now_s - latest_s;
        if seconds < TICK_S {
            return;
        }
        self.latest = Some((now_s, held_bytes));
        if SHOWN_FROM as f64 * TICK_S < seconds {
            // After a pause, the ends that were forecast before it may be over.
            self.ends.clear();
        }
        // After a long gap, the mean rate of the whole gap counts as one rate over a second.
        let bytes_s = held_bytes.saturating_sub(latest_bytes) as f64 / seconds;
        self.latest_bytes_s = Some(bytes_s);
        let rate_bit_s = 8.0 * bytes_s;
        // The forecaster always accepts this value, because a finite number of bytes in a second or
        // more is in its range.
        if self.forecaster.update_at(rate_bit_s, now_s).is_err() {
            return;
        }
        self.least.learn(rate_bit_s);
        self.values += 1;
        if VALUES_MIN <= self.values {
            if self.ends.len() == SHOWN_FROM {
                self.ends.pop_front();
            }
            let end = self.end(now_s, all_bytes.saturating_sub(held_bytes));
            self.ends.push_back(end);
        }
    }

    /// Rate over the latest period of a second or more (bytes a second).
    pub(crate) fn latest_bytes_s(&self) -> Option<f64> {
        self.latest_bytes_s
    }

    /// The remaining time at the newest update; `None` if there are too few rates, or if no byte is
    /// expected to arrive.
    ///
    /// It is the median of the forecasts of the last [`SHOWN_FROM`] seconds, so that a stall of one
    /// or two seconds does not change it much.
    pub(crate) fn left(&self) -> Option<RemainingTime> {
        let until = |end_s: f64| (end_s - self.now_s).max(0.0);
        let s = median(self.ends.iter().map(|end| end.s)).map(until)?;
        let known = || self.ends.iter().filter_map(|end| end.interval_s);
        let interval_s = self.ends.back()?.interval_s.and_then(|_| {
            let lower_s = median(known().map(|(lower, _)| lower)).map(until)?;
            let upper_s = median(known().map(|(_, upper)| upper)).map(until)?;
            Some((lower_s.min(s), upper_s.max(s)))
        });
        s.is_finite().then_some(RemainingTime { s, interval_s })
    }

    /// The end of the transfer if `bytes` remain at `now_s`, the time of the newest rate.
    fn end(&self, now_s: f64, bytes: u64) -> ForecastEnd {
        let time_s = |share: f64| {
            IN_PROGRESS.time_over(bytes, ROUND_TRIP_S, share, |horizon_s| {
                self.rate_bit_s(1.0 - share, now_s, horizon_s)
            })
        };
        let Some(middle_s) = time_s(0.5) else {
            return ForecastEnd { s: f64::INFINITY, interval_s: None };
        };
        let run_s = now_s - self.start_s;
        let interval_s = time_s(EARLY_SHARE).map(|early_s| {
            let late_s = time_s(1.0 - EARLY_SHARE).unwrap_or(f64::INFINITY);
            (now_s + stretched(early_s, middle_s, run_s), now_s + stretched(late_s, middle_s, run_s))
        });
        ForecastEnd { s: now_s + middle_s, interval_s }
    }

    /// The mean rate over the next `horizon_s` seconds (bit/s) that the share `share` of such means
    /// does not exceed; above 0.
    ///
    /// If the rate falls, the forecasts follow within seconds, because it may stay low. Most stalls
    /// end soon. So a mean far below all means over such a time is forecast only when the rate was
    /// low for about that time.
    fn rate_bit_s(&self, share: f64, now_s: f64, horizon_s: f64) -> Option<f64> {
        let rate_bit_s = self.forecaster.quantile_ahead(share, now_s, horizon_s)?;
        let least_share = if share < 0.5 { LEAST_SHARE_LATE } else { LEAST_SHARE };
        let least_bit_s = least_share * self.least.over(horizon_s).unwrap_or(0.0);
        Some(rate_bit_s.max(least_bit_s).max(RATE_MIN_BIT_S))
    }
}

/// The least mean rates over blocks of 1, 2, 4, … seconds.
#[derive(Debug, Default)]
struct LeastMeans {
    lengths: Vec<BlockMeans>,
}

/// The means over blocks of one length.
#[derive(Clone, Copy, Debug)]
struct BlockMeans {
    blocks: u64,
    least: f64,
    /// First mean of a pair that is not complete.
    pending: Option<f64>,
}

impl LeastMeans {
    fn learn(&mut self, value: f64) {
        let mut next = Some(value);
        for at in 0..=LADDER as usize {
            let Some(mean) = next else { break };
            if self.lengths.len() == at {
                self.lengths.push(BlockMeans { blocks: 0, least: f64::INFINITY, pending: None });
            }
            next = self.lengths.get_mut(at).and_then(|means| means.learn(mean));
        }
    }

    /// The least mean over the longest block that is not longer than `horizon_s` and was seen at
    /// least [`BLOCKS_MIN`] times.
    fn over(&self, horizon_s: f64) -> Option<f64> {
        let lengths_s = std::iter::successors(Some(TICK_S), |length_s| Some(2.0 * length_s));
        let usable = self
            .lengths
            .iter()
            .zip(lengths_s)
            .take_while(|(means, length_s)| *length_s <= horizon_s && BLOCKS_MIN <= means.blocks);
        usable.last().map(|(means, _)| means.least)
    }
}

impl BlockMeans {
    /// Adds a mean. Each call that completes a pair returns the mean of the pair, which is the mean
    /// over a block of twice the length.
    fn learn(&mut self, mean: f64) -> Option<f64> {
        self.blocks += 1;
        self.least = self.least.min(mean);
        match self.pending.take() {
            Some(first) => Some((first + mean) / 2.0),
            None => {
                self.pending = Some(mean);
                None
            }
        }
    }
}

/// Moves an end of the interval away from the forecast `middle_s`, if more time remains than the
/// transfer has run: nothing was measured over such a time.
fn stretched(end_s: f64, middle_s: f64, run_s: f64) -> f64 {
    if middle_s <= run_s {
        return end_s;
    }
    middle_s * (end_s / middle_s).powf((middle_s / run_s).powf(STRETCH_EXPONENT))
}

/// The median; of an even number of values, the larger of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A transfer that runs already has neither a set-up nor slow start. With this round-trip time, the
/// initial window fills every path.
const IN_PROGRESS: TransferModel = TransferModel { set_up_round_trips: 0 };
const ROUND_TRIP_S: f64 = 1e-9;

/// Share of the transfers that end before the interval, and after it, at the usual level of 90 %.
const EARLY_SHARE: f64 = 0.05;

/// Shortest time over which a rate is measured, in seconds. A person reads the display about once
/// in this time. On any path, this time is long enough for many round trips.
const TICK_S: f64 = 1.0;

/// Powers of two of the kept horizons. The longest horizon is 2^12 values, more than an hour.
const LADDER: u32 = 12;

/// Forecasts of a horizon that wait for their values. The intervals of horizons up to 16 s are
/// calibrated as early as possible, those of longer ones after less than three horizons.
const PENDING: u32 = 16;

/// Minimum number of rates for a forecast. The interval of a forecast needs ten errors.
const VALUES_MIN: u64 = 5;

/// Number of forecasts, one a second, of which the median is shown. The median ignores two of
/// five, as after a stall of two seconds; [`LEAST_SHARE`] bounds longer ones.
const SHOWN_FROM: usize = 5;

/// Share of the least measured mean over a time that a forecast over this time may reach, and half
/// of it for the late end of the interval. Larger shares make late ends too early; without a bound,
/// rates that are 0 now and then make most of them infinite.
const LEAST_SHARE: f64 = 0.5;
const LEAST_SHARE_LATE: f64 = 0.25;

/// Least number of blocks for their least mean to count: a least of two or three is too high.
const BLOCKS_MIN: u64 = 4;

/// Least rate (bit/s): less than a bit in a year. It gives no time, but a longer horizon may.
const RATE_MIN_BIT_S: f64 = 1e-9;

/// Exponent with which intervals widen if more time remains than has run. Without it,
/// intervals of times longer than the run are too narrow; ½ is too wide for independent rates.
const STRETCH_EXPONENT: f64 = 0.25;

#[cfg(test)]
mod tests {
    use barograph_forecast::Interval;
    use barograph_sim::SeededRng;

    use super::*;

    /// The remaining time after a transfer that ran at each of these rates for one second, if
    /// `bytes` remain then.
    fn left_after(bytes: u64, rates_bytes_s: &[f64]) -> Option<RemainingTime> {
        let all_bytes = rates_bytes_s.iter().sum::<f64>() as u64 + bytes;
        track(all_bytes, rates_bytes_s).pop().flatten()
    }

    /// The remaining time after each second of a transfer of `all_bytes`.
    fn track(all_bytes: u64, rates_bytes_s: &[f64]) -> Vec<Option<RemainingTime>> {
        let (mut rates, mut bytes) = (Rates::default(), 0.0);
        rates.update(0.0, 0, all_bytes);
        let step = |(second, rate): (u32, &f64)| {
            bytes += rate;
            rates.update(f64::from(second), bytes as u64, all_bytes);
            rates.left()
        };
        (1..).zip(rates_bytes_s).map(step).collect()
    }

    /// `seconds` rates of about 1 MB/s, with noise of 5 %.
    fn steady(seconds: usize) -> Vec<f64> {
        let mut rng = SeededRng::new(3, 7);
        (0..seconds).map(|_| 1e6 * (1.0 + 0.05 * rng.normal())).collect()
    }

    #[test]
    fn a_steady_rate_gives_an_exact_forecast_after_enough_values() {
        assert_eq!(Rates::default().left(), None);
        assert_eq!(left_after(1_000_000, &[1e6; 4]), None);
        let left = left_after(10_000_000, &[1e6; 5]).expect("five values are enough");
        assert!((left.s - 10.0).abs() < 1e-6 && left.interval_s.is_none(), "{left:?}");
        let left = left_after(10_000_000, &[1e6; 11]).expect("eleven values are enough");
        let (lower_s, upper_s) = left.interval_s.expect("ten errors are enough for an interval");
        assert!(lower_s <= left.s && left.s <= upper_s && upper_s < 10.001, "{left:?}");
    }

    #[test]
    fn a_stalled_transfer_has_no_forecast() {
        assert_eq!(left_after(1, &[0.0; 20]), None);
    }

    #[test]
    fn a_rate_that_may_stay_at_zero_has_an_interval_without_a_late_end() {
        let rates = [1e6, 1e6, 0.0, 0.0, 1e6, 1e6, 1e6, 0.0, 0.0, 1e6, 1e6, 1e6];
        let left = left_after(10_000_000, &rates).expect("it moves");
        let (lower_s, upper_s) = left.interval_s.expect("ten errors were made");
        assert!(upper_s.is_infinite() && lower_s < left.s, "{left:?}");
    }

    #[test]
    fn updates_more_often_than_each_second_change_nothing() {
        let (mut often, mut seldom) = (Rates::default(), Rates::default());
        for tenth in 0..=200_u32 {
            let (now_s, bytes) = (f64::from(tenth) / 8.0, u64::from(tenth) * 100_000);
            often.update(now_s, bytes, 1 << 30);
            if tenth % 8 == 0 {
                seldom.update(now_s, bytes, 1 << 30);
            }
        }
        assert_eq!(often.left(), seldom.left());
        assert!(often.left().is_some());
    }

    #[test]
    fn the_remaining_time_falls_between_two_rates() {
        let mut rates = Rates::default();
        for second in 0..=20_u32 {
            rates.update(f64::from(second), u64::from(second) * 1_000_000, 100_000_000);
        }
        let before = rates.left().expect("twenty rates are enough");
        rates.update(20.5, 20_500_000, 100_000_000);
        let after = rates.left().expect("it moves");
        assert!((before.s - after.s - 0.5).abs() < 1e-6, "{before:?}, {after:?}");
    }

    #[test]
    fn a_transfer_is_not_over_after_a_pause_longer_than_its_remaining_time() {
        let mut rates = Rates::default();
        for second in 0..=60_u32 {
            rates.update(f64::from(second), u64::from(second) * 1_000_000, 100_000_000);
        }
        // Stopped for an hour; then 40 MB remain.
        for second in 60..=65_u32 {
            rates.update(3600.0 + f64::from(second), u64::from(second) * 1_000_000, 100_000_000);
            let left = rates.left();
            assert!(left.is_none_or(|left| 20.0 < left.s), "{left:?} at {second} MB");
        }
        assert!(rates.left().is_some());
    }

    #[test]
    fn a_stall_of_three_seconds_hardly_moves_the_remaining_time() {
        let mut rates = steady(120);
        rates[60..63].fill(0.0);
        let shown = track(240_000_000, &rates);
        let shown: Vec<f64> = shown.iter().flatten().map(|left| left.s).collect();
        assert_eq!(shown.len(), 116, "one after each second from the fifth on");
        for (before, after) in shown[10..].iter().zip(&shown[11..]) {
            assert!((after + 1.0 - before).abs() < 0.15 * before, "{before} s, then {after} s");
        }
    }

    #[test]
    fn a_rate_that_halves_is_noticed_within_fifteen_seconds() {
        let mut rates = steady(75);
        rates[60..].iter_mut().for_each(|rate| *rate *= 0.5);
        let bytes = 150_000_000;
        let left = left_after(bytes, &rates).expect("it moves");
        assert!((240.0..=360.0).contains(&left.s), "{left:?}, not 300 s");
    }

    #[test]
    fn intervals_widen_if_more_time_remains_than_the_transfer_has_run() {
        let width = |bytes| {
            let left = left_after(bytes, &steady(40)).expect("it moves");
            left.interval_s.map(|(lower_s, upper_s)| upper_s / lower_s).expect("it is calibrated")
        };
        let (near, far) = (width(30_000_000), width(3_000_000_000));
        assert!(1.0 < near && near < far && far.is_finite(), "{near}, {far}");
        assert_eq!(stretched(20.0, 10.0, 10.0), 20.0);
        assert!((stretched(320.0, 160.0, 10.0) - 640.0).abs() < 1e-9, "sixteen times: the square");
    }

    /// The coverage is at least 0.9 in 150 transfers with independent rates and 150 with wandering
    /// rates. With independent rates it is higher: few errors are known at a horizon of half the
    /// time that the transfer has run, so that its interval is wide.
    #[test]
    fn interval_coverage_reaches_its_level_for_two_kinds_of_rates() {
        for (kind, memory) in [("independent", 0.0), ("wandering", 0.9)] {
            let mut inside = 0;
            for seed in 0..150 {
                let mut rng = SeededRng::new(seed, 7);
                let mut state = 0.0;
                let mut rate = || {
                    state = memory * state + rng.normal() * (1.0_f64 - memory * memory).sqrt();
                    1e6 * (1.0 + 0.2 * state).max(0.05)
                };
                let rates: Vec<f64> = (0..60).map(|_| rate()).collect();
                let bytes = 30_000_000_u64;
                let (mut gone, mut took_s) = (0.0, 0.0);
                while gone < bytes as f64 {
                    gone += rate();
                    took_s += 1.0;
                }
                let left = left_after(bytes, &rates).expect("60 values");
                // The transfer may end within its last second, so a whole second is allowed.
                let (lower_s, upper_s) = left.interval_s.expect("ten errors were made");
                inside += u32::from((lower_s..=upper_s + 1.0).contains(&took_s));
            }
            let cover = f64::from(inside) / 150.0;
            assert!(cover >= Interval::DEFAULT_LEVEL, "{kind}: {cover}");
        }
    }
}
