//! The forecasters of `barograph-forecast` for a web page: numbers in, numbers out, no generated
//! glue.
//!
//! A page refers to each battery by a number. [`battery_new`] creates one, [`battery_update`]
//! learns a value, and [`battery_forecast`] and [`battery_ahead`] write forecasts to one block of
//! `f64` at [`numbers`]. The block is valid until the next call, so a caller copies it at once.
//! `web/src/measure/forecaster.js` is the caller.
//!
//! The module draws and stores nothing, and reads no clock.
// Exported names are unsafe to the compiler, because two equal ones would collide; nothing else
// here is unsafe.
#![allow(unsafe_code)]

use std::cell::RefCell;

use barograph_forecast::{
    BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonBasis, HorizonConfig, HorizonForecast,
    HorizonOf, Interval, LEVEL_RANGE, Objective, Preset, Rule,
};

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

#[derive(Default)]
struct State {
    batteries: Vec<Option<Forecaster>>,
    numbers: Box<[f64; NUMBERS]>,
    methods: [&'static str; 2],
}

/// Creates a battery and returns its number, from 1 on; 0 = there are [`BATTERIES_MAX`] already, or
/// a horizon is out of range.
///
/// `kind` 1 is the Network Weather Service 2.x. Kinds 2 and 3 have the same methods, but select the
/// method with the least squared error (the rule of the JavaNws paper) or the least absolute error
/// so far. Any other value is the default.
///
/// The battery keeps as many horizons as `horizons`, at most [`HORIZONS_MAX`]. The caller has
/// written their lengths to [`numbers`]: seconds, or with a negative sign numbers of values. If
/// `exact` is not 0, the forecast of each value is scored ([`HorizonConfig::exact`]), else only
/// few are ([`HorizonConfig::sampled`]).
#[unsafe(no_mangle)]
pub extern "C" fn battery_new(kind: u32, horizons: u32, exact: u32) -> u32 {
    STATE.with_borrow_mut(|state| {
        let free = state.batteries.iter().position(Option::is_none);
        let index = free.unwrap_or(state.batteries.len());
        if index == BATTERIES_MAX {
            return 0;
        }
        let kept = if exact == 0 { HorizonConfig::sampled } else { HorizonConfig::exact };
        let Some(lengths) = state.numbers.get(..horizons as usize) else { return 0 };
        let horizons = lengths.iter().map(|length| kept(horizon_of(*length))).collect();
        let Some(battery) = forecaster_of(kind, horizons) else { return 0 };
        if index == state.batteries.len() {
            state.batteries.push(None);
        }
        state.batteries[index] = Some(battery);
        index as u32 + 1
    })
}

/// Each call of [`Forecaster::new`] has a constant preset and rule, so that the module contains no
/// others.
fn forecaster_of(kind: u32, horizons: Vec<HorizonConfig>) -> Option<Forecaster> {
    #[inline(always)]
    fn new(preset: Preset, rule: Rule, horizons: Vec<HorizonConfig>) -> Option<Forecaster> {
        let battery = BatteryConfig { preset, rule, levels: Vec::new() };
        let config = ForecasterConfig { battery, horizons, ..ForecasterConfig::default() };
        Forecaster::new(&config).ok()
    }
    match kind {
        1 => new(Preset::Nws, Rule::TwoLevel, horizons),
        2 => new(Preset::Nws, Rule::LeastMse, horizons),
        3 => new(Preset::Nws, Rule::LeastMae, horizons),
        _ => new(Preset::Full, Rule::Blend, horizons),
    }
}

/// A horizon of `length` seconds, or with a negative sign of so many values.
fn horizon_of(length: f64) -> Horizon {
    // The conversion drops fractions, and large numbers become the largest one.
    if length < 0.0 { Horizon::Steps(-length as u32) } else { Horizon::Seconds(length) }
}

/// Frees a battery; does nothing if it does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn battery_free(battery: u32) {
    STATE.with_borrow_mut(|state| {
        if let Some(slot) = state.slot(battery) {
            *slot = None;
        }
    });
}

/// Scores the issued forecasts on `value`, measured at `time_s` (seconds; NaN = unknown), and
/// learns it. Returns 1, or 0 without any change if the battery does not exist or rejects the
/// value. Horizons in seconds learn only from values with times.
#[unsafe(no_mangle)]
pub extern "C" fn battery_update(battery: u32, value: f64, time_s: f64) -> u32 {
    STATE.with_borrow_mut(|state| {
        let battery = state.slot(battery).and_then(Option::as_mut);
        battery.is_some_and(|battery| battery.update_at(value, time_s).is_ok()).into()
    })
}

/// Writes the forecast of the value at `time_s` (seconds; NaN = the next one, without a gap) and
/// its interval at `level` (0.01 to 0.999) to [`numbers`] and [`method`]. Returns 0 if there is no
/// forecast.
///
/// The numbers are `count`; `value, mse, mae, recent_mse, recent_mae` of the mean forecast; the
/// same five of the median forecast; `lower, upper`; the weights of the largest members of both,
/// NaN if there is no blend; and the numbers of [`battery_ahead`]. Errors are NaN before the first
/// scored forecast, `lower` and `upper` before ten.
#[unsafe(no_mangle)]
pub extern "C" fn battery_forecast(battery: u32, level: f64, time_s: f64) -> u32 {
    STATE.with_borrow_mut(|state| {
        state.read(
            battery,
            level,
            |forecaster, objective| {
                forecaster.battery().forecast_at(objective, time_s).map(HorizonForecast::from)
            },
            |forecaster| forecaster.battery().interval_at(level, time_s),
        )
    })
}

/// Writes the forecast at the horizon of `length`, as for [`battery_new`], and its interval as
/// [`battery_forecast`] does. `of` is 0 for the mean of the values up to the horizon, else the
/// value at the horizon. Returns 0 if there is no forecast, or the horizon is out of range.
///
/// The last four numbers are the number of forecasts that were scored; 0, 1 or 2 for errors that
/// are those of this horizon, interpolated between two others, or those of the longest one; and the
/// lengths of those others, in values (NaN = there is none).
#[unsafe(no_mangle)]
pub extern "C" fn battery_ahead(battery: u32, level: f64, length: f64, of: u32) -> u32 {
    let (horizon, of) = (horizon_of(length), if of == 0 { HorizonOf::Mean } else { HorizonOf::Value });
    STATE.with_borrow_mut(|state| {
        state.read(
            battery,
            level,
            |forecaster, objective| forecaster.forecast_over(horizon, of, objective),
            |forecaster| forecaster.interval_over(horizon, of, level),
        )
    })
}

/// Address of the numbers of the last forecast, and of the lengths for [`battery_new`].
#[unsafe(no_mangle)]
pub extern "C" fn numbers() -> *mut f64 {
    STATE.with_borrow_mut(|state| state.numbers.as_mut_ptr())
}

/// Address of the name, in ASCII, of a method of the last forecast: 0 = of the mean forecast, 1 =
/// of the median forecast.
#[unsafe(no_mangle)]
pub extern "C" fn method(which: u32) -> *const u8 {
    STATE.with_borrow(|state| state.name(which).as_ptr())
}

/// Length of the name at [`method`], in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn method_length(which: u32) -> usize {
    STATE.with_borrow(|state| state.name(which).len())
}

/// Most batteries: more than a page has series. It bounds the memory that an endless loop in a
/// script can take.
pub const BATTERIES_MAX: usize = 1024;

/// Most horizons that a battery keeps: as many as there are numbers.
pub const HORIZONS_MAX: usize = NUMBERS;

const NUMBERS: usize = 19;

impl State {
    fn slot(&mut self, battery: u32) -> Option<&mut Option<Forecaster>> {
        self.batteries.get_mut((battery as usize).checked_sub(1)?)
    }

    /// Writes a forecast and its interval at `level`; returns 0 if there is no forecast.
    fn read(
        &mut self,
        battery: u32,
        level: f64,
        forecast: impl Fn(&Forecaster, Objective) -> Option<HorizonForecast>,
        interval: impl Fn(&Forecaster) -> Option<Interval>,
    ) -> u32 {
        let Some(battery) = self.slot(battery).and_then(|slot| slot.as_ref()) else { return 0 };
        let [Some(mean), Some(median)] =
            [Objective::Squared, Objective::Absolute].map(|objective| forecast(battery, objective))
        else {
            return 0;
        };
        let interval = if LEVEL_RANGE.contains(&level) { interval(battery) } else { None };
        (*self.numbers, self.methods) = (written(&mean, &median, interval), [mean.method.0, median.method.0]);
        1
    }

    fn name(&self, which: u32) -> &'static str {
        self.methods.get(which as usize).copied().unwrap_or_default()
    }
}

fn written(mean: &HorizonForecast, median: &HorizonForecast, interval: Option<Interval>) -> [f64; NUMBERS] {
    let (lower, upper) = interval.map_or((f64::NAN, f64::NAN), |ends| (ends.lower, ends.upper));
    let (basis, from_steps) = match median.basis {
        HorizonBasis::Own => (0.0, [f64::NAN; 2]),
        HorizonBasis::Between { shorter, longer } => (1.0, [shorter, longer]),
        HorizonBasis::Beyond { longest } => (2.0, [longest, f64::NAN]),
    };
    let mut numbers = [f64::NAN; NUMBERS];
    // Exact below 2^53.
    numbers[0] = median.count as f64;
    numbers[1..6].copy_from_slice(&value_and_errors(mean));
    numbers[6..11].copy_from_slice(&value_and_errors(median));
    numbers[11..13].copy_from_slice(&[lower, upper]);
    numbers[13..15].copy_from_slice(&[mean, median].map(|forecast| forecast.weight.unwrap_or(f64::NAN)));
    numbers[15..17].copy_from_slice(&[median.scored as f64, basis]);
    numbers[17..].copy_from_slice(&from_steps);
    numbers
}

fn value_and_errors(forecast: &HorizonForecast) -> [f64; 5] {
    let HorizonForecast { value, mse, mae, recent_mse, recent_mae, scored, .. } = *forecast;
    if scored != 0 {
        [value, mse, mae, recent_mse, recent_mae]
    } else {
        [value, f64::NAN, f64::NAN, f64::NAN, f64::NAN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_forecast::{Battery, Forecast};

    fn read(index: usize) -> f64 {
        STATE.with_borrow(|state| state.numbers[index])
    }

    #[test]
    fn wasm_forecasts_equal_those_of_the_battery() {
        let number = battery_new(0, 0, 0);
        let mut battery = Battery::new(&BatteryConfig::default());
        assert_eq!(battery_forecast(number, 0.9, f64::NAN), 0, "no value yet");
        for value in [3.0, 4.0, 3.5, 9.0, 3.25, 4.5, 3.0, 3.5, 4.0, 5.0, 4.25] {
            assert_eq!(battery_update(number, value, f64::NAN), 1);
            assert!(battery.update(value).is_ok());
        }
        assert_eq!(battery_forecast(number, 0.9, f64::NAN), 1);
        let mean = battery.forecast(Objective::Squared).expect("values were seen");
        let median = battery.forecast(Objective::Absolute).expect("values were seen");
        let interval = battery.interval(0.9).expect("forecasts were scored");
        let errors = |forecast: Forecast| value_and_errors(&forecast.into());
        assert_eq!(read(0), 11.0);
        assert_eq!((1..6).map(read).collect::<Vec<_>>(), errors(mean));
        assert_eq!((6..11).map(read).collect::<Vec<_>>(), errors(median));
        assert_eq!((read(11), read(12)), (interval.lower, interval.upper));
        assert_eq!((Some(read(13)), Some(read(14))), (mean.weight, median.weight));
        assert_eq!(STATE.with_borrow(|state| state.name(1)), median.method.0);
        assert_eq!(method_length(2), 0);
        battery_free(number);
        assert_eq!(battery_update(number, 1.0, f64::NAN), 0, "it is gone");
    }

    fn write(lengths: &[f64]) {
        STATE.with_borrow_mut(|state| state.numbers[..lengths.len()].copy_from_slice(lengths));
    }

    #[test]
    fn forecasts_further_ahead_equal_those_of_the_forecaster() {
        write(&[300.0, -30.0]);
        let number = battery_new(0, 2, 1);
        let horizons = [Horizon::Seconds(300.0), Horizon::Steps(30)].map(HorizonConfig::exact);
        let config = ForecasterConfig { horizons: horizons.to_vec(), ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config).expect("the horizons are valid");
        assert_eq!(battery_ahead(number, 0.9, 300.0, 0), 0, "no value yet");
        for n in 0..400_u32 {
            let (value, time_s) = (f64::from(n * 7919 % 101), 10.0 * f64::from(n));
            assert_eq!(battery_update(number, value, time_s), 1);
            assert!(forecaster.update_at(value, time_s).is_ok());
        }
        let nan = f64::NAN;
        for (length, basis, from_steps) in [
            (300.0, 0.0, [nan, nan]),
            (-30.0, 0.0, [nan, nan]),
            (100.0, 1.0, [1.0, 30.0]),
            (-90.0, 2.0, [30.0, nan]),
        ] {
            for (number_of, of) in [HorizonOf::Mean, HorizonOf::Value].into_iter().enumerate() {
                assert_eq!(battery_ahead(number, 0.9, length, number_of as u32), 1);
                let horizon = horizon_of(length);
                let [mean, median] = [Objective::Squared, Objective::Absolute].map(|objective| {
                    forecaster.forecast_over(horizon, of, objective).expect("there are values")
                });
                let interval = forecaster.interval_over(horizon, of, 0.9).expect("it is calibrated");
                assert_eq!((1..6).map(read).collect::<Vec<_>>(), value_and_errors(&mean));
                assert_eq!((6..11).map(read).collect::<Vec<_>>(), value_and_errors(&median));
                assert_eq!((read(11), read(12)), (interval.lower, interval.upper));
                assert_eq!((read(15), read(16)), (median.scored as f64, basis), "{length}");
                assert_eq!([read(17), read(18)].map(f64::to_bits), from_steps.map(f64::to_bits), "{length}");
                assert_eq!(STATE.with_borrow(|state| state.name(0)), mean.method.0);
            }
        }
    }

    #[test]
    fn horizons_out_of_range_are_rejected() {
        for length in [0.0, f64::NAN, f64::INFINITY, -0.5, -1e9] {
            write(&[length]);
            assert_eq!(battery_new(0, 1, 0), 0, "{length}");
        }
        assert_eq!(battery_new(0, HORIZONS_MAX as u32 + 1, 0), 0);
        let number = battery_new(0, 0, 0);
        assert_eq!(battery_update(number, 1.0, 0.0), 1);
        assert_eq!((battery_ahead(number, 0.9, -5.0, 0), read(16)), (1, 2.0), "beyond the next value");
        for length in [f64::NAN, -1e9, 5.0] {
            assert_eq!(battery_ahead(number, 0.9, length, 0), 0, "{length}: out of range, or no period");
        }
    }

    #[test]
    fn unknown_batteries_and_invalid_values_are_rejected() {
        let number = battery_new(0, 0, 0);
        for value in [f64::NAN, f64::INFINITY, 1e71] {
            assert_eq!(battery_update(number, value, f64::NAN), 0, "{value}");
        }
        assert_eq!(battery_update(number, 1.0, f64::NAN), 1);
        assert_eq!(battery_forecast(number, 7.0, f64::NAN), 1, "a forecast without an interval");
        assert!(read(11).is_nan() && read(2).is_nan());
        for stranger in [0, number + 1, u32::MAX] {
            assert_eq!(battery_update(stranger, 1.0, f64::NAN), 0);
            assert_eq!(battery_forecast(stranger, 0.9, f64::NAN), 0);
            battery_free(stranger);
        }
    }

    #[test]
    fn the_number_of_batteries_is_bounded_and_freed_numbers_are_reused() {
        let all: Vec<u32> =
            std::iter::from_fn(|| Some(battery_new(0, 0, 0)).filter(|number| *number != 0)).collect();
        assert_eq!(all.len(), BATTERIES_MAX);
        battery_free(all[7]);
        assert_eq!(battery_new(0, 0, 0), all[7]);
        assert_eq!(battery_new(0, 0, 0), 0);
    }
}
