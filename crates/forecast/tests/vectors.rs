//! Forecasts of two invented series, to the bit. The tests of Python and of the page's WebAssembly
//! read the same file (`vectors/README.md`).

use std::fmt::Write as _;
use std::fs;

use barograph_forecast::{
    Forecaster, ForecasterConfig, GoodputForecast, Horizon, HorizonConfig, HorizonForecast, HorizonOf,
    Interval, Objective, QuantileMethod, TransferForecast, TransferModel,
};

/// Rows of the series after which there are forecasts: before there are intervals, before and after
/// the first gap, and at the end, after failures.
const ROWS: [usize; 5] = [8, 100, 151, 450, 600];
/// Kept ones, and a shorter, a middle and a longer one.
const HORIZONS: [&str; 5] = ["30", "600s", "10", "50", "3600s"];
const KEPT: [Horizon; 2] = [Horizon::Steps(30), Horizon::Seconds(600.0)];
const SHARES: [f64; 3] = [0.1, 0.5, 0.99];
/// Soon, a few periods and an hour after the newest row (s).
const AGES_S: [f64; 3] = [5.0, 45.0, 3600.0];
const AVAILABILITY_STEPS: [f64; 2] = [1.0, 60.0];
const TRANSFER_BYTES: [u64; 3] = [10_000, 1_000_000, 1_000_000_000];
const TRANSFER_SHARES: [f64; 3] = [0.05, 0.5, 0.95];

#[test]
fn forecasts_equal_the_vectors_to_the_bit() {
    let expected = include_str!("vectors/forecasts.csv");
    let computed = forecasts();
    for (computed, expected) in computed.lines().zip(expected.lines()) {
        assert_eq!(computed, expected);
    }
    assert_eq!(computed.lines().count(), expected.lines().count());
}

#[test]
#[ignore = "writes vectors/forecasts.csv"]
fn write_the_vectors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/forecasts.csv");
    fs::write(path, forecasts()).expect("the folder can be written");
}

fn forecasts() -> String {
    let mut table = Table { text: "rows,what,horizon,figure,value\n".to_owned(), rows: 0 };
    let (mut goodput, mut rtt) = (forecaster(), forecaster());
    for (index, line) in include_str!("vectors/series.csv").lines().skip(1).enumerate() {
        let columns: Vec<Option<f64>> = line.split(',').map(|number| number.parse().ok()).collect();
        let [Some(time_s), Some(goodput_bit_s), rtt_s] = columns[..] else { panic!("three columns: {line}") };
        goodput.update_at(goodput_bit_s, time_s).expect("finite");
        match rtt_s {
            Some(rtt_s) => rtt.update_at(rtt_s, time_s).expect("finite"),
            None => rtt.fail(),
        }
        if ROWS.contains(&(index + 1)) {
            table.rows = index + 1;
            table.push_forecasts(&rtt, time_s);
            table.push_transfers(&goodput, &rtt, time_s);
        }
    }
    table.text
}

fn forecaster() -> Forecaster {
    let config = ForecasterConfig {
        horizons: KEPT.map(HorizonConfig::exact).to_vec(),
        quantiles: Some(QuantileMethod::Blended),
        availability: true,
        ..ForecasterConfig::default()
    };
    Forecaster::new(&config).expect("the horizons are valid")
}

/// Text of `forecasts.csv`.
struct Table {
    text: String,
    rows: usize,
}

impl Table {
    fn push(&mut self, (what, horizon): (&str, &str), figure: &str, value: Option<f64>) {
        // The shortest text that gives the same bits.
        let value = value.map_or_else(String::new, |value| format!("{value:?}"));
        writeln!(self.text, "{},{what},{horizon},{figure},{value}", self.rows).expect("a string grows");
    }

    fn push_forecasts(&mut self, rtt: &Forecaster, time_s: f64) {
        let level = Interval::DEFAULT_LEVEL;
        let next = |objective| rtt.battery().forecast(objective).map(HorizonForecast::from);
        let quantile = |share| rtt.quantile_over(Horizon::Steps(1), HorizonOf::Value, share);
        self.push_figures(("next", ""), next, rtt.battery().interval(level), quantile);
        for (what, of) in [("mean", HorizonOf::Mean), ("value", HorizonOf::Value)] {
            for text in HORIZONS {
                let horizon: Horizon = text.parse().expect("a horizon");
                self.push_figures(
                    (what, text),
                    |objective| rtt.forecast_over(horizon, of, objective),
                    rtt.interval_over(horizon, of, level),
                    |share| rtt.quantile_over(horizon, of, share),
                );
            }
        }
        for age_s in AGES_S {
            let at_s = time_s + age_s;
            self.push_figures(
                ("aged", &age_s.to_string()),
                |objective| rtt.forecast_aged(objective, at_s),
                rtt.interval_aged(level, at_s),
                |share| rtt.quantile_aged(share, at_s),
            );
        }
        for steps in AVAILABILITY_STEPS {
            let probability =
                rtt.availability().and_then(|availability| availability.probability_ahead(steps));
            self.push(("availability", &steps.to_string()), "probability", probability);
        }
    }

    fn push_figures(
        &mut self,
        name: (&str, &str),
        forecast: impl Fn(Objective) -> Option<HorizonForecast>,
        interval: Option<Interval>,
        quantile: impl Fn(f64) -> Option<f64>,
    ) {
        let (mean, median) = (forecast(Objective::Squared), forecast(Objective::Absolute));
        self.push(name, "mean", mean.map(|mean| mean.value));
        self.push(name, "mse", mean.filter(|mean| mean.scored != 0).map(|mean| mean.mse));
        self.push(name, "median", median.map(|median| median.value));
        self.push(name, "mae", median.filter(|median| median.scored != 0).map(|median| median.mae));
        self.push(name, "lower", interval.map(|interval| interval.lower));
        self.push(name, "upper", interval.map(|interval| interval.upper));
        for share in SHARES {
            self.push(name, &share.to_string(), quantile(share));
        }
    }

    fn push_transfers(&mut self, goodput: &Forecaster, rtt: &Forecaster, now_s: f64) {
        let goodput = GoodputForecast { forecaster: goodput, now_s, test: None, least_bit_s: None };
        let transfer = TransferForecast { model: TransferModel::TCP, goodput, rtt };
        for bytes in TRANSFER_BYTES {
            let text = bytes.to_string();
            for share in TRANSFER_SHARES {
                self.push(("transfer", &text), &share.to_string(), transfer.quantile(bytes, share));
            }
        }
    }
}
