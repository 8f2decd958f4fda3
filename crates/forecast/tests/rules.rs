//! The rules that select one method, compared with a recomputation from the methods' forecasts.

use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};
use proptest::prelude::*;

const PRESETS: [Preset; 4] = [Preset::Nws, Preset::Classic, Preset::Full, Preset::Lean];

fn battery(preset: Preset, rule: Rule) -> Battery {
    Battery::new(&BatteryConfig { preset, rule, ..BatteryConfig::default() })
}

/// The errors of every method of one battery, summed by one measure.
struct Sums {
    squared: bool,
    sums: Vec<f64>,
}

impl Sums {
    fn new(squared: bool) -> Self {
        Self { squared, sums: Vec::new() }
    }

    fn score(&mut self, battery: &Battery, value: f64) {
        let forecasts = battery.method_forecasts();
        self.sums.resize(self.sums.len().max(forecasts.len()), 0.0);
        for (sum, (_, forecast)) in self.sums.iter_mut().zip(forecasts) {
            let error = forecast - value;
            *sum += if self.squared { error * error } else { error.abs() };
        }
    }

    /// The first of the methods with the least sum.
    fn least(&self) -> usize {
        (0..self.sums.len()).fold(0, |least, i| if self.sums[i] < self.sums[least] { i } else { least })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The rules `mse` and `mae` forecast, for both objectives, what the method with the least
    /// error so far forecasts.
    #[test]
    fn the_method_with_the_least_error_so_far_forecasts(
        values in prop::collection::vec(prop_oneof![0.0..100.0f64, (0u8..4).prop_map(f64::from)], 1..200)
    ) {
        for preset in PRESETS {
            for (rule, squared) in [(Rule::LeastMse, true), (Rule::LeastMae, false)] {
                let mut battery = battery(preset, rule);
                let mut sums = Sums::new(squared);
                for value in &values {
                    sums.score(&battery, *value);
                    battery.update(*value).expect("finite");
                    let (method, expected) = battery.method_forecasts()[sums.least()];
                    for objective in [Objective::Squared, Objective::Absolute] {
                        let forecast = battery.forecast(objective).expect("values were seen");
                        prop_assert_eq!((forecast.method, forecast.value), (method, expected));
                        prop_assert_eq!(forecast.weight, None);
                        let weights = battery.weights(objective);
                        prop_assert!(weights.iter().all(|(m, weight)| (*weight == 1.0) == (*m == method)));
                    }
                }
            }
        }
    }
}

/// The rule of the papers and the rule with two selectors are different rules.
#[test]
fn two_selectors_and_mse_differ_on_the_reference_series() {
    let series = include_str!("reference/series.csv").lines().skip(1);
    let values: Vec<f64> = series.filter_map(|line| line.split(',').nth(1)?.parse().ok()).collect();
    let mut batteries = [Rule::LeastMse, Rule::TwoSelectors].map(|rule| battery(Preset::Nws, rule));
    let mut differing = 0;
    for value in &values {
        for battery in &mut batteries {
            battery.update(*value).expect("finite");
        }
        let [mse, two] = batteries.each_ref().map(|battery| battery.forecast(Objective::Squared));
        differing += u32::from(mse.map(|f| f.method) != two.map(|f| f.method));
    }
    assert!(0 < differing && differing < 700, "{differing} of 700 steps");
}
