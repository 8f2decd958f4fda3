//! The battery of `barograph-forecast` for a web page: numbers in, numbers out, no generated glue.
//!
//! A page refers to each battery by a number. [`battery_new`] creates one, [`battery_update`]
//! learns a value, and [`battery_forecast`] writes the forecasts to one block of `f64` at
//! [`numbers`]. The block is valid until the next call, so a caller copies it at once.
//! `web/src/measure/forecaster.js` is the caller.
//!
//! The module draws and stores nothing, and reads no clock.
// Exported names are unsafe to the compiler, because two equal ones would collide; nothing else
// here is unsafe.
#![allow(unsafe_code)]

use std::cell::RefCell;

use barograph_forecast::{Battery, BatteryConfig, Forecast, LEVEL_RANGE, Objective, Preset, Rule};

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

#[derive(Default)]
struct State {
    batteries: Vec<Option<Battery>>,
    numbers: Box<[f64; NUMBERS]>,
    methods: [&'static str; 2],
}

/// Creates a battery and returns its number, from 1 on; 0 = there are [`BATTERIES_MAX`] already.
///
/// `kind` 1 is the Network Weather Service 2.x. Kinds 2 and 3 have the same methods, but select the
/// method with the least squared error (the rule of the JavaNws paper) or the least absolute error
/// so far. Any other value is the default.
#[unsafe(no_mangle)]
pub extern "C" fn battery_new(kind: u32) -> u32 {
    STATE.with_borrow_mut(|state| {
        let free = state.batteries.iter().position(Option::is_none);
        let index = free.unwrap_or(state.batteries.len());
        if index == BATTERIES_MAX {
            return 0;
        }
        if index == state.batteries.len() {
            state.batteries.push(None);
        }
        state.batteries[index] = Some(battery_of(kind));
        index as u32 + 1
    })
}

/// Each call of [`Battery::new`] has a constant preset and rule, so that the module contains no
/// others.
fn battery_of(kind: u32) -> Battery {
    const fn config(preset: Preset, rule: Rule) -> BatteryConfig {
        BatteryConfig { preset, rule, levels: Vec::new() }
    }
    match kind {
        1 => Battery::new(&const { config(Preset::Nws, Rule::TwoLevel) }),
        2 => Battery::new(&const { config(Preset::Nws, Rule::LeastMse) }),
        3 => Battery::new(&const { config(Preset::Nws, Rule::LeastMae) }),
        _ => Battery::new(&const { config(Preset::Full, Rule::Blend) }),
    }
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
/// value.
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
/// same five of the median forecast; `lower, upper`; and the weights of the largest members of
/// both, NaN if there is no blend. Errors are NaN before the first scored forecast, `lower` and
/// `upper` before ten.
#[unsafe(no_mangle)]
pub extern "C" fn battery_forecast(battery: u32, level: f64, time_s: f64) -> u32 {
    STATE.with_borrow_mut(|state| {
        let Some(battery) = state.slot(battery).and_then(|slot| slot.as_ref()) else { return 0 };
        let (Some(mean), Some(median)) = (
            battery.forecast_at(Objective::Squared, time_s),
            battery.forecast_at(Objective::Absolute, time_s),
        ) else {
            return 0;
        };
        let interval = if LEVEL_RANGE.contains(&level) { battery.interval_at(level, time_s) } else { None };
        let (lower, upper) = interval.map_or((f64::NAN, f64::NAN), |ends| (ends.lower, ends.upper));
        let mut numbers = [f64::NAN; NUMBERS];
        // Exact below 2^53.
        numbers[0] = median.count as f64;
        numbers[1..6].copy_from_slice(&value_and_errors(&mean));
        numbers[6..11].copy_from_slice(&value_and_errors(&median));
        numbers[11..13].copy_from_slice(&[lower, upper]);
        numbers[13..].copy_from_slice(&[&mean, &median].map(|forecast| forecast.weight.unwrap_or(f64::NAN)));
        *state.numbers = numbers;
        state.methods = [mean.method.0, median.method.0];
        1
    })
}

/// Address of the numbers of the last [`battery_forecast`].
#[unsafe(no_mangle)]
pub extern "C" fn numbers() -> *const f64 {
    STATE.with_borrow(|state| state.numbers.as_ptr())
}

/// Address of the name, in ASCII, of a method of the last [`battery_forecast`]: 0 = of the mean
/// forecast, 1 = of the median forecast.
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

const NUMBERS: usize = 15;

impl State {
    fn slot(&mut self, battery: u32) -> Option<&mut Option<Battery>> {
        self.batteries.get_mut((battery as usize).checked_sub(1)?)
    }

    fn name(&self, which: u32) -> &'static str {
        self.methods.get(which as usize).copied().unwrap_or_default()
    }
}

fn value_and_errors(forecast: &Forecast) -> [f64; 5] {
    let Forecast { value, mse, mae, recent_mse, recent_mae, .. } = *forecast;
    if forecast.is_scored() {
        [value, mse, mae, recent_mse, recent_mae]
    } else {
        [value, f64::NAN, f64::NAN, f64::NAN, f64::NAN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(index: usize) -> f64 {
        STATE.with_borrow(|state| state.numbers[index])
    }

    #[test]
    fn wasm_forecasts_equal_those_of_the_battery() {
        let number = battery_new(0);
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
        assert_eq!(read(0), 11.0);
        assert_eq!((1..6).map(read).collect::<Vec<_>>(), value_and_errors(&mean));
        assert_eq!((6..11).map(read).collect::<Vec<_>>(), value_and_errors(&median));
        assert_eq!((read(11), read(12)), (interval.lower, interval.upper));
        assert_eq!((Some(read(13)), Some(read(14))), (mean.weight, median.weight));
        assert_eq!(STATE.with_borrow(|state| state.name(1)), median.method.0);
        assert_eq!(method_length(2), 0);
        battery_free(number);
        assert_eq!(battery_update(number, 1.0, f64::NAN), 0, "it is gone");
    }

    #[test]
    fn unknown_batteries_and_invalid_values_are_rejected() {
        let number = battery_new(0);
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
            std::iter::from_fn(|| Some(battery_new(0)).filter(|number| *number != 0)).collect();
        assert_eq!(all.len(), BATTERIES_MAX);
        battery_free(all[7]);
        assert_eq!(battery_new(0), all[7]);
        assert_eq!(battery_new(0), 0);
    }
}
