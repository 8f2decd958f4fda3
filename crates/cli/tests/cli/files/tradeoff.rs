//! Tests of the command `barograph tradeoff` on files.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::{barograph, json, text};

/// A temporary folder with the files of a test; the command runs in this folder.
struct TestFolder {
    folder: tempfile::TempDir,
}

impl TestFolder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        command(self.folder.path(), arguments)
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        json(&self.run(&[arguments, &["--json"]].concat()))
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Output {
    barograph("tradeoff", arguments).current_dir(folder).output().unwrap()
}

/// A series with the values 10, 14, 12, 20, 8 and a period of 300 s.
const GOLDEN: &str = "time_s,value\n0,10\n300,14\n601,12\n900,20\n1199,8\n";

fn row<'a>(
    answer: &'a serde_json::Value,
    series: usize,
    period_s: f64,
    predictor: &str,
) -> &'a serde_json::Value {
    let rows = answer["series"][series]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["period_s"] == period_s && row["predictor"] == predictor).unwrap()
}

#[test]
fn a_column_is_selected() {
    let two = GOLDEN.replace("value", "slow,fast").replace('\n', ",1\n").replace("fast,1", "fast");
    let folder = TestFolder::new(&[("tests_10s.csv", &two)]);
    let answer = folder.json(&["tests_10s.csv", "--column", "slow"]);
    assert_eq!(answer["series"][0]["mean"], 12.8);
}

#[test]
fn results_match_a_series_computed_by_hand() {
    let folder = TestFolder::new(&[("goodput_10s.csv", GOLDEN)]);
    let answer = folder.json(&["goodput_10s.csv", "--unit", "Mbit/s"]);
    let series = &answer["series"][0];
    assert_eq!(
        (&series["test_s"], &series["base_s"], &series["mean"]),
        (&10.0.into(), &300.0.into(), &12.8.into())
    );
    let plain = row(&answer, 0, 300.0, "last");
    assert_eq!((&plain["mae"]["mean"], &plain["mse"]["mean"]), (&6.5.into(), &57.0.into()));
    assert_eq!(plain["mae_percent"], 100.0 * 6.5 / 12.8);
    // 12.8 Mbit/s for 10 s are 16 MB, twelve times an hour.
    assert_eq!(plain["bytes_per_hour"], 192e6);
    let second = row(&answer, 0, 600.0, "last");
    assert_eq!(second["mae"], serde_json::json!({"mean": 4.5, "spread": 1.5, "worst": 6.0}));
    assert_eq!(second["bytes_per_hour"], 96e6);
    // Each forecast with the value that followed: 10 → 14; 11.4 → 12; 11.61 → 20; 14.5465 → 8.
    let average = row(&answer, 0, 300.0, "exponential")["mae"]["mean"].as_f64().unwrap();
    assert!((average - (4.0 + 0.6 + 8.39 + 6.5465) / 4.0).abs() < 1e-12, "{average}");
    // 1800 s is too long: no two measurements of the series are 1800 s apart.
    assert_eq!(series["too_long_s"].as_array().unwrap()[0], 1800.0);
}

#[test]
fn at_a_horizon_all_periods_forecast_the_same_windows() {
    let folder = TestFolder::new(&[("golden.csv", GOLDEN)]);
    assert!(folder.json(&["golden.csv"]).get("horizon").is_none());
    let answer = folder.json(&["golden.csv", "--horizon", "10m"]);
    assert_eq!(answer["horizon"], serde_json::json!({"seconds": 600.0, "of": "mean"}));
    // The means of two are 13, 16 and 14; the last values 10, 14 and 12.
    let plain = row(&answer, 0, 300.0, "last");
    assert_eq!((&plain["scored"], &plain["mae"]["mean"]), (&3.into(), &(7.0 / 3.0).into()));
    // At 10 min, one offset forecasts from 10 and 12, the other from 14.
    let second = row(&answer, 0, 600.0, "last");
    assert_eq!(second["mae"], serde_json::json!({"mean": 2.25, "spread": 0.25, "worst": 2.5}));
    let value = folder.json(&["golden.csv", "--horizon", "2", "--of", "value"]);
    assert_eq!(row(&value, 0, 300.0, "last")["mae"]["mean"], 4.0);

    let output = folder.run(&["golden.csv", "--horizon", "10m", "--plot", "out.svg"]);
    let told = text(&output.stdout);
    assert!(told.contains("forecasts of the mean of the next 600 s, from tests at each period"), "{told}");
    let drawn = std::fs::read_to_string(folder.path("out.svg")).unwrap();
    assert!(drawn.contains("mean absolute error of the mean of the next 600 s"));
    let long = folder.run(&["golden.csv", "--horizon", "1d"]);
    assert_eq!(long.status.code(), Some(2));
    assert!(text(&long.stderr).contains("the series has no complete horizon"));
}

#[test]
fn the_text_output_shows_periods_blanks_and_lengths() {
    let rows = "time_s,goodput,test_s\n0,4e6,1\n60,5e6,10\n300,6e6,1\n360,5e6,10\n900,5e6,1\n960,7e6,10\n1200,5e6,1\n1260,7e6,10\n";
    let folder = TestFolder::new(&[("cycle.csv", rows)]);
    let output = folder.run(&["cycle.csv"]);
    let shown = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(shown.contains("4 tests of 1 s, one in 300 s; 1 of 5 periods blank"), "{shown}");
    assert!(shown.contains("mean 5.0000e6") || shown.contains("mean 5000000 bit/s"), "{shown}");
    assert!(shown.contains("against the length of the tests: battery"), "{shown}");
    assert!(shown.contains("no two measurements are so far apart"), "{shown}");
}

#[test]
fn the_drawing_is_svg_and_does_not_replace_a_series() {
    let folder = TestFolder::new(&[("a_1s.csv", GOLDEN), ("b_5s.csv", GOLDEN)]);
    let output = folder.run(&["a_1s.csv", "b_5s.csv", "--plot", "out.svg", "--unit", "Mbit/s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(folder.path("out.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("bytes an hour") && svg.contains("tests of 5 s"));
    let output = folder.run(&["a_1s.csv", "--plot", "a_1s.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(folder.path("a_1s.csv")).unwrap(), GOLDEN);
}

#[test]
fn bad_input_prints_one_sentence_and_exits_with_2() {
    let folder = TestFolder::new(&[
        ("negative.csv", "0,1\n300,-2\n"),
        ("nan.csv", "0,1\n300,nan\n"),
        ("one.csv", "0,1\n"),
        ("bare.csv", "1\n2\n"),
        ("standing.csv", "5,1\n5,2\n"),
        ("apart.csv", "0,1\n1,2\n2,1\n1e300,4\n"),
        ("blanks.csv", "0,1\n5,1\n"),
        ("length.csv", "time_s,value,test_s\n0,1,-1\n"),
        ("two.csv", "time_s,value,quantity\n0,1,rtt\n1,1,goodput\n"),
        ("golden.csv", GOLDEN),
    ]);
    for (arguments, expected) in [
        (&["negative.csv"][..], "value at 300 s is -2; expected no negative values"),
        (&["nan.csv"], "line 2: value is NaN"),
        (&["one.csv"], "the series has 1 values; expected at least 2"),
        (&["bare.csv"], "the values have no times"),
        (&["standing.csv"], "all values have the same time"),
        (&["apart.csv"], "the series exceeds 10000000 periods of 1 s"),
        (&["blanks.csv", "--base", "1", "--periods", "2s"], "no forecast could be scored"),
        (&["length.csv"], "test_s is -1"),
        (&["two.csv"], "\"rtt\" and \"goodput\""),
        (&["two.csv", "--quantity", "loss"], "no value of \"loss\""),
        (&["absent.csv"], "cannot be opened"),
        (&["."], "cannot be opened"),
        (&["golden.csv", "--length", "other.csv=5"], "--length names other.csv"),
        (&["golden.csv", "--length", "golden.csv=x"], "expected a length of time"),
        (&["golden.csv", "--periods", "5m,0"], "expected a length of time"),
        (&[], "FILE"),
    ] {
        let output = folder.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let folder = TestFolder::new(&[("golden.csv", GOLDEN)]);
    let output = folder.run(&["golden.csv", "--plot", "absent/out.svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be written"), "{}", text(&output.stderr));
}

#[test]
fn the_seed_alone_determines_random_results() {
    let folder = TestFolder::new(&[("golden.csv", GOLDEN)]);
    let run = |seed: &str| folder.run(&["golden.csv", "--json", "--seed", seed]).stdout;
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}
