//! Tests of `barograph forecast` on files: horizons, quantiles, and the first line of the answer.

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

/// The row of index n has the forecast of values n to n + H − 1, issued before value n was seen.
/// Its errors are those of the earlier rows, as far as their values are known.
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

/// The columns before those of the quantiles are the same as without quantiles.
#[test]
fn quantiles_have_a_column_each_after_the_others() {
    let (csv, shares) = (series(400, 10), "0.9,0.1,0.50,0.03");
    for horizon in [&[][..], &["--horizon", "1"], &["--horizon", "5"], &["--horizon", "60s", "--of", "value"]]
    {
        for interval in [&[][..], &["--interval", "0.8"]] {
            let plain = [&["--steps"], horizon, interval].concat();
            let with = [&plain[..], &["--quantiles", shares]].concat();
            let [plain, table] = [&plain, &with].map(|arguments| filed(arguments, csv.as_bytes()).stdout);
            let objects = filed(&[&with[..], &["--json"]].concat(), csv.as_bytes()).stdout;
            let mut lines = text(&table).lines();
            let header = format!("{},q0.9,q0.1,q0.5,q0.03", text(&plain).lines().next().unwrap());
            assert_eq!(lines.next().unwrap(), header);
            let mut calibrated = 0;
            for ((plain, line), object) in text(&plain).lines().skip(1).zip(lines).zip(text(&objects).lines())
            {
                let cells = line.strip_prefix(plain).unwrap_or_else(|| panic!("{line} begins with {plain}"));
                let quantiles: Vec<f64> = cells.split(',').filter_map(|cell| cell.parse().ok()).collect();
                let object: serde_json::Value = serde_json::from_str(object).unwrap();
                let names = ["q0.9", "q0.1", "q0.5", "q0.03"];
                if let [high, low, middle, least] = quantiles[..] {
                    assert!(least <= low && low <= middle && middle <= high, "{line}");
                    assert_eq!(names.map(|name| object[name].as_f64().unwrap()), [high, low, middle, least]);
                    calibrated += 1;
                } else {
                    assert_eq!(cells, ",,,,", "{line}");
                    assert!(names.iter().all(|name| object[name].is_null()), "{object}");
                }
            }
            assert!(calibrated > 350, "{calibrated} rows with quantiles, {with:?}");
        }
    }
}

#[test]
fn the_answer_has_quantiles_of_the_next_value_and_at_the_horizon() {
    let csv = series(300, 10);
    let arguments = ["--quantiles", "0.1,0.9", "--horizon", "30"];
    let answer = filed(&[&["--json"][..], &arguments].concat(), csv.as_bytes()).stdout;
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    for ends in [&answer, &answer["horizon"]] {
        assert!(ends["q0.1"].as_f64().unwrap() < ends["q0.9"].as_f64().unwrap(), "{answer}");
    }
    let printed = filed(&[&["--unit", "ms"][..], &arguments].concat(), csv.as_bytes()).stdout;
    let lines: Vec<&str> =
        text(&printed).lines().filter(|line| line.starts_with("  quantiles: q0.1 ")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains(", q0.9 ") && line.ends_with(" ms")));
    let young = filed(&arguments, b"0,5\n1,6\n").stdout;
    assert!(!text(&young).contains("quantiles"), "{}", text(&young));
}

#[test]
fn the_first_line_is_the_answer() {
    let first = |arguments: &[&str], input: &str| -> String {
        text(&filed(arguments, input.as_bytes()).stdout).lines().next().unwrap().to_owned()
    };
    let every_10_s = series(1500, 10);
    let line = first(&["--unit", "ms"], &every_10_s);
    let [next, hour] = line.split_inclusive(").").collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert!(next.starts_with("Next: ") && hour.starts_with(" Next hour: "), "{line}");
    for sentence in [next, hour] {
        let (value, interval) = sentence.split_once(" ms (90 %: ").unwrap();
        let value = value.rsplit(' ').next().unwrap();
        let (lower, upper) = interval.strip_suffix(").").unwrap().split_once('–').unwrap();
        let [value, lower, upper] = [value, lower, upper].map(|text| text.parse::<f64>().unwrap());
        assert!(lower <= value && value <= upper, "{line}");
    }
    // Too short for the mean of an hour; too slow for any of the usual horizons; without times.
    assert!(first(&[], &series(300, 10)).contains(". Next 10 minutes: "));
    for input in [
        series(300, 86_400),
        series(300, 10).lines().skip(1).map(|l| l[l.find(',').unwrap() + 1..].to_owned() + "\n").collect(),
    ] {
        let line = first(&[], &input);
        assert!(line.starts_with("Next: ") && line.matches(':').count() == 2, "{line}");
    }
    // The level and the horizon of the command line.
    let line = first(&["--interval", "0.5", "--horizon", "30", "--of", "value"], &every_10_s);
    assert!(line.contains(" (50 %: ") && line.contains("). In 30 values: "), "{line}");
    assert!(first(&["--lifetime", "120"], &every_10_s).contains("). Next 2 minutes: "));
    let line = first(&["--horizon", "30"], "0,5\n1,6\n");
    assert!(line.ends_with(" (no interval yet: 0 forecasts scored)."), "{line}");
    assert!(first(&["--horizon", "30s"], "0,5\n1,6\n").ends_with(" Next 30 seconds: no forecast yet."));
}
