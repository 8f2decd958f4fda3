//! Compares `Preset::Nws` and `Preset::Classic` with an independent model of NWS, step by step.

use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};

#[test]
fn every_forecast_equals_that_of_the_reference_implementation() {
    let cases = [
        (Preset::Nws, Rule::TwoLevel, include_str!("reference/nws.two-level.csv")),
        (Preset::Nws, Rule::TwoSelectors, include_str!("reference/nws.flat.csv")),
        (Preset::Nws, Rule::LeastMse, include_str!("reference/nws.mse.csv")),
        (Preset::Nws, Rule::LeastMae, include_str!("reference/nws.mae.csv")),
        (Preset::Classic, Rule::TwoLevel, include_str!("reference/classic.two-level.csv")),
        (Preset::Classic, Rule::TwoSelectors, include_str!("reference/classic.flat.csv")),
    ];
    let series: Vec<f64> = include_str!("reference/series.csv")
        .lines()
        .skip(1)
        .map(|line| number(line.split(',').nth(1).expect("two columns")))
        .collect();
    for (preset, rule, expected) in cases {
        let mut battery = Battery::new(&BatteryConfig { preset, rule, ..BatteryConfig::default() });
        battery.update(series[0]).expect("finite");
        let mut rows = 0;
        for (row, value) in expected.lines().skip(1).zip(&series[1..]) {
            let columns: Vec<&str> = row.split(',').collect();
            for (objective, at) in [(Objective::Squared, 3), (Objective::Absolute, 6)] {
                let forecast = battery.forecast(objective).expect("values were seen");
                let error = if at == 3 { forecast.mse } else { forecast.mae };
                for (ours, theirs) in [(forecast.value, columns[at]), (error, columns[at + 1])] {
                    let theirs = number(theirs);
                    // The model prints nine significant digits.
                    assert!(
                        (ours - theirs).abs() <= 6e-9 * theirs.abs(),
                        "{preset:?} {rule:?} {ours}: {row}"
                    );
                }
                assert_eq!(forecast.method.0, columns[at + 2], "{preset:?} {rule:?}: {row}");
            }
            battery.update(*value).expect("finite");
            rows += 1;
        }
        assert_eq!(rows, series.len() - 1);
    }
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}
