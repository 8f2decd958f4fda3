//! Tests of `barograph forecast --horizon` on files.

use std::fmt::Write as _;
use std::process::Output;

use super::{barograph, text};

/// Runs `barograph forecast` on a file with these bytes.
fn filed(arguments: &[&str], input: &[u8]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.csv");
    std::fs::write(&path, input).unwrap();
    let output = barograph("forecast", arguments).arg(path).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

/// A series with noise, levels and outliers, one value every `period_s` seconds.
fn series(count: u32, period_s: u32) -> String {
    let mut csv = "time_s,value\n".to_owned();
    for i in 0..count {
        let noise = f64::from(i * 7919 % 101) / 50.0;
        let outlier = if i % 67 == 0 { 30.0 } else { 0.0 };
        let value = 20.0 + noise + outlier + f64::from(i / 150 % 2) * 5.0;
        writeln!(csv, "{},{value}", i * period_s).unwrap();
    }
    csv
}

#[test]
fn a_horizon_of_one_value_prints_what_is_printed_without_a_horizon() {
    let csv = series(400, 10);
    for preset in ["nws", "classic", "full"] {
        for rule in ["two-level", "flat", "blend"] {
            for form in [&["--steps"][..], &["--steps", "--json"]] {
                let arguments = [&["--preset", preset, "--select", rule, "--interval", "0.8"], form].concat();
                let plain = filed(&arguments, csv.as_bytes()).stdout;
                for of in ["mean", "value"] {
                    let ahead = [&arguments[..], &["--horizon", "1", "--of", of]].concat();
                    assert_eq!(text(&filed(&ahead, csv.as_bytes()).stdout), text(&plain), "{ahead:?}");
                }
            }
        }
    }
}

/// The row of index n has the forecast of values n to n + H − 1, issued before value n was seen. Its
/// errors are those of the earlier rows whose values are known.
#[test]
fn rows_have_the_forecast_for_the_horizon_that_begins_with_their_value() {
    let (csv, steps) = (series(300, 10), 5);
    let values: Vec<f64> =
        csv.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    for of in ["mean", "value"] {
        let output =
            filed(&["--steps", "--horizon", "5", "--of", of, "--interval", "0.9"], csv.as_bytes()).stdout;
        let mut rows = text(&output).lines().map(|row| row.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(rows.next().unwrap().len(), 11, "the columns of the next value");
        let rows: Vec<Vec<String>> = rows.collect();
        assert_eq!(rows.len(), values.len() - 1);
        let target = |first: usize| match of {
            "mean" => values[first..first + steps].iter().sum::<f64>() / steps as f64,
            _ => values[first + steps - 1],
        };
        let mut errors: Vec<(f64, f64)> = Vec::new();
        let mut inside = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let number = |column: usize| row[column].parse::<f64>().unwrap();
            let index = i + 1;
            assert_eq!((number(0), number(2)), (index as f64, values[index]));
            let known = &errors[..index.saturating_sub(steps)];
            let scored = known.len().max(1) as f64;
            let mse = known.iter().map(|(mean, _)| mean * mean).sum::<f64>() / scored;
            let mae = known.iter().map(|(_, median)| median.abs()).sum::<f64>() / scored;
            assert!((number(4) - mse).abs() <= 1e-9 * mse, "row {index}: {} {mse}", number(4));
            assert!((number(7) - mae).abs() <= 1e-9 * mae, "row {index}: {} {mae}", number(7));
            if index + steps <= values.len() {
                let target = target(index);
                errors.push((number(3) - target, number(6) - target));
                if !row[9].is_empty() {
                    inside.push(number(9) <= target && target <= number(10));
                }
            }
        }
        let share = inside.iter().filter(|inside| **inside).count() as f64 / inside.len() as f64;
        assert!(inside.len() > 270 && (0.8..=0.97).contains(&share), "{share} of {}", inside.len());
    }
}

#[test]
fn the_answer_has_the_horizon_in_values_or_in_seconds() {
    let csv = series(300, 10);
    let answer = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&filed(&[&["--json"], arguments].concat(), csv.as_bytes()).stdout).unwrap()
    };
    let steps = answer(&["--horizon", "30", "--of", "value"]);
    assert_eq!((&steps["horizon"]["steps"], &steps["horizon"]["of"]), (&30.into(), &"value".into()));
    assert_eq!((&steps["horizon"]["scored"], &steps["horizon"]["basis"]), (&270.into(), &"own".into()));
    let seconds = answer(&["--horizon", "5m"]);
    assert_eq!((&seconds["horizon"]["seconds"], &seconds["horizon"]["of"]), (&300.0.into(), &"mean".into()));
    for horizon in [&steps["horizon"], &seconds["horizon"]] {
        for forecast in ["mean", "median"] {
            for key in ["value", "mse", "mae", "recent_mse", "recent_mae", "weight"] {
                assert!(horizon[forecast][key].is_f64(), "{forecast}.{key} in {horizon}");
            }
        }
        assert!(horizon["lower"].as_f64() < horizon["upper"].as_f64(), "{horizon}");
    }
    // The alias of before.
    let lifetime = answer(&["--lifetime", "300"]);
    assert!(lifetime["horizon"].is_null());
    assert_eq!(lifetime["lifetime"]["mean"], seconds["horizon"]["mean"]);
    assert_eq!(lifetime["lifetime"]["count"], seconds["horizon"]["scored"]);

    let printed = filed(&["--horizon", "5m", "--unit", "ms"], csv.as_bytes()).stdout;
    assert!(text(&printed).contains("\nThe mean of the next 300 s\n"), "{}", text(&printed));
    let printed = filed(&["--horizon", "30", "--of", "value"], csv.as_bytes()).stdout;
    assert!(text(&printed).contains("\nThe value 30 values ahead\n"), "{}", text(&printed));
    let printed = filed(&["--horizon", "30"], b"0,5\n1,6\n").stdout;
    assert!(text(&printed).contains("There is a forecast, but no error yet"), "{}", text(&printed));
    let printed = filed(&["--horizon", "30s"], b"0,5\n1,6\n").stdout;
    assert!(text(&printed).contains("no forecast yet, because few times"), "{}", text(&printed));
}
