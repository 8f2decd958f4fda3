//! Tests of the command `barograph compare` on files.

use std::path::Path;
use std::process::Output;

use super::{assert_refused, barograph, text};

/// Writes the series into files and compares them.
fn compared(arguments: &[&str], a: &str, b: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    command(arguments, &write("a.csv", a), &write("b.csv", b))
}

fn command(arguments: &[&str], a: &Path, b: &Path) -> Output {
    barograph("compare", arguments).args([a, b]).output().unwrap()
}

/// The answer as JSON.
fn json(arguments: &[&str], a: &str, b: &str) -> serde_json::Value {
    super::json(&compared(&[arguments, &["--json"]].concat(), a, b))
}

/// A CSV of 60 values, one a second: about 10 times `factor`, with the times shifted by `shift_s`.
fn series(header: &str, factor: f64, shift_s: f64) -> String {
    let line =
        |i: i32| format!("{},{}\n", f64::from(i) + shift_s, factor * (10.0 + f64::from(i * 7 % 13) / 8.0));
    format!("{header}\n") + &(0..60).map(line).collect::<String>()
}

#[test]
fn the_direction_follows_the_quantity_and_a_coefficient_below_1_is_worse() {
    let doubled = |header: &str, better: &[&str]| {
        let answer = json(better, &series(header, 1.0, 0.0), &series(header, 2.0, 0.25));
        (answer["better"].as_str().unwrap().to_owned(), answer["coefficient"].as_f64().unwrap())
    };
    for (header, better, expected) in [
        ("time_s,rtt", &[][..], ("smaller", 0.5)),
        ("time_s,rtt_nagle", &[], ("smaller", 0.5)),
        ("time_s,goodput", &[], ("larger", 2.0)),
        ("time_s,goodput_down", &[], ("larger", 2.0)),
        ("time_s,value", &["--better", "smaller"], ("smaller", 0.5)),
        ("time_s,rtt", &["--better", "larger"], ("larger", 2.0)),
    ] {
        let (word, coefficient) = doubled(header, better);
        assert_eq!(word, expected.0, "{header}");
        assert!((coefficient - expected.1).abs() < 1e-12, "{header}: {coefficient}");
    }
}

#[test]
fn a_column_is_selected_in_both_files() {
    let columns = |factor: f64| -> String {
        let line = |i: i32| format!("{i},{},{}\n", 10 + i % 3, factor * f64::from(20 + i * 7 % 13));
        "time_s,p50,p99\n".to_owned() + &(0..60).map(line).collect::<String>()
    };
    let select = ["--column", "p99", "--better", "smaller"];
    assert_eq!(json(&select, &columns(1.0), &columns(2.0))["coefficient"], 0.5);
    let unnamed = compared(&["--better", "smaller"], &columns(1.0), &columns(2.0));
    assert_refused(&unnamed, "several columns hold numbers, \"p50\" and \"p99\"", ());
}

#[test]
fn the_text_output_contains_every_result() {
    let mut a = series("time_s,rtt,retrans", 1.0, 0.0).replace('\n', ",0\n").replace("retrans,0", "retrans");
    a += "60,2000,3\n61,10,0\n";
    let output = compared(&["--unit", "ms"], &a, &(series("time_s,rtt", 1.0, 0.25) + "60.5,11\n"));
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "rtt, smaller is better",
        "n 62, mean ",
        " ms, variance (n − 1) ",
        "pairs by nearest time: 61; left over: 1 of A, 0 of B",
        "median 0.25 s, largest 0.5 s",
        "coefficient A ÷ B (least squares through the origin; below 1: B reports worse): ",
        "; without outliers: 1.0000",
        "outliers (≥ 100 × median): 1",
        "time 60 s: A 2000 ms (outlier), 3 retransmitted; B 11 ms: network",
        "forecast errors (measured − forecast by full, blend):",
        "Kolmogorov–Smirnov distance of the errors: 0.",
        "error < ms         A    up to         B    up to",
        "1.0000\n",
        "(n 61 and 60; 5 % of independent samples exceed 0.24",
    ] {
        assert!(told.contains(part), "{told}\nlacks {part:?}");
    }
}

#[test]
fn json_has_the_histograms_and_distributions() {
    let answer = json(&[], &series("time_s,goodput", 1.0, 0.0), &series("time_s,goodput", 1.0, 0.25));
    assert_eq!((answer["coefficient"].as_f64(), answer["ks_distance"].as_f64()), (Some(1.0), Some(0.0)));
    assert_eq!(answer["unit"], "bit/s");
    for side in ["a", "b"] {
        let errors = &answer[side]["errors"];
        assert_eq!(errors["count"], 59);
        assert_eq!(errors["histogram"]["counts"].as_array().unwrap().len(), 100);
        let cdf = errors["cdf"].as_array().unwrap();
        let above = errors["histogram"]["above"].as_f64().unwrap();
        assert_eq!(cdf.len(), 100);
        assert!((cdf[99].as_f64().unwrap() + above / 59.0 - 1.0).abs() < 1e-12, "{errors}");
    }
}

#[test]
fn at_a_horizon_the_errors_are_those_of_forecasts_further_ahead() {
    let (a, b) = (series("time_s,rtt", 1.0, 0.0), series("time_s,rtt", 1.0, 0.25));
    let plain = json(&[], &a, &b);
    assert!(plain.get("horizon").is_none() && plain["a"]["errors"].get("windows").is_none());
    let steps = json(&["--horizon", "10"], &a, &b);
    assert_eq!(steps["horizon"], serde_json::json!({"steps": 10, "of": "mean"}));
    let errors = &steps["a"]["errors"];
    assert_eq!((&errors["count"], &errors["windows"]), (&50.into(), &5.into()));
    let mae = |answer: &serde_json::Value| answer["a"]["errors"]["mean_absolute"].as_f64().unwrap();
    assert!(mae(&steps) < mae(&plain), "a mean varies less than a value");
    assert_eq!(steps["coefficient"], plain["coefficient"], "that of the values");
    let time = json(&["--horizon", "10s", "--of", "value"], &a, &b);
    assert_eq!(time["horizon"], serde_json::json!({"seconds": 10.0, "of": "value"}));
    assert!(mae(&time) > mae(&steps));

    let next = json(&["--horizon", "1"], &a, &b);
    assert_eq!(next["a"]["errors"]["histogram"], plain["a"]["errors"]["histogram"]);
    let told = compared(&["--horizon", "10"], &a, &b);
    let told = text(&told.stdout);
    assert!(
        told.contains("forecast errors of the mean of the next 10 values (measured − forecast"),
        "{told}"
    );
    assert!(told.contains("(n 50 and 50, in 5 and 5 windows that do not overlap; 5 %"), "{told}");
    let long = compared(&["--horizon", "1h"], &a, &b);
    assert!(long.status.success() && text(&long.stdout).contains("there are no forecasts"));
    assert_eq!(compared(&["--horizon", "0"], &a, &b).status.code(), Some(2));
    assert_eq!(compared(&["--of", "value"], &a, &b).status.code(), Some(2), "of needs a horizon");
}

#[test]
fn incomparable_series_print_one_sentence_and_exit_with_2() {
    let good = series("time_s,rtt", 1.0, 0.0);
    let cases = [
        ("1\n2\n", good.as_str(), "a.csv: the values have no times; add a column"),
        (&good, "{\"value\":1}\n", "b.csv: the values have no times"),
        (&good, "", "b.csv: no values"),
        ("0,1\n5,1\n4,1\n", &good, "a.csv: line 3: expected times that do not decrease"),
        ("0,1\n1,NaN\n", &good, "a.csv: line 2: value is NaN"),
        ("0,1\n", "0,1\n", "pass --better, or add a column `quantity`"),
        (
            "time_s,value,quantity\n0,1,rtt\n1,1,goodput\n",
            &good,
            "the series contains \"rtt\" and \"goodput\"",
        ),
        (&good, "time_s,goodput\n0,1\n", "smaller is better for one, larger for the other"),
        ("time_s,value,x\n0,1\n", &good, "line 2: expected a field for each column of the header"),
    ];
    for (a, b, message) in cases {
        let output = compared(&[], a, b);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("barograph: ") && error.contains(message), "{error:?} lacks {message:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty());
    }
    let none = command(&[], Path::new("/nowhere/a.csv"), Path::new("/nowhere/b.csv"));
    assert_refused(&none, "/nowhere/a.csv: cannot be opened", ());
}

#[test]
fn the_drawing_shows_all_parts_and_does_not_replace_a_series() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, svg] = ["a <1>.csv", "b.csv", "c.svg"].map(|name| folder.path().join(name));
    std::fs::write(&a, series("time_s,rtt", 0.01, 0.0)).unwrap();
    std::fs::write(&b, series("time_s,rtt", 0.02, 0.25)).unwrap();
    let output = command(&["--plot", svg.to_str().unwrap()], &a, &b);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    for part in ["<svg", "a &lt;1&gt;.csv", "value (ms)", "values in a bin", "share of the errors"] {
        assert!(drawn.contains(part), "the drawing lacks {part:?}");
    }
    let before = std::fs::read(&a).unwrap();
    let output = command(&["--plot", a.to_str().unwrap()], &a, &b);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is one of the series; pass another file to --plot"));
    assert_eq!(std::fs::read(&a).unwrap(), before);
}

#[test]
fn unusual_series_are_drawn_without_an_error() {
    let odd =
        ["0,0\n", "0,5\n1,5\n", "0,-1e70\n1,1e70\n", "0,5e-324\n1,0\n2,1e-300\n", "-1e308,1\n1e308,2\n"];
    for a in odd {
        for b in odd {
            let folder = tempfile::tempdir().unwrap();
            let svg = folder.path().join("odd.svg");
            let output = compared(&["--better", "larger", "--plot", svg.to_str().unwrap()], a, b);
            assert!(output.status.success(), "{a:?} {b:?}: {}", text(&output.stderr));
            let drawn = std::fs::read_to_string(&svg).unwrap();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{a:?} {b:?}");
            let answer = json(&["--better", "larger"], a, b);
            assert!(answer["pairs"]["count"].as_u64().is_some_and(|count| count > 0), "{answer}");
        }
    }
}

#[test]
fn zero_on_an_axis_is_labelled_zero() {
    // Values around zero, with axis steps that `f64` cannot represent exactly. The drawing library
    // adds up such steps to compute the labels.
    let around = |factor: f64| {
        let line = |i: i32| format!("{i},{}\n", factor * (f64::from(i * 7 % 13) / 6.0 - 1.0));
        (0..60).map(line).collect::<String>()
    };
    let is_rounding = |label: &str| label.trim().parse().is_ok_and(|n: f64| n != 0.0 && n.abs() < 1e-12);
    for factor in [0.1, 0.2, 0.3, 0.4, 0.7] {
        let folder = tempfile::tempdir().unwrap();
        let svg = folder.path().join("zero.svg");
        let arguments = ["--better", "larger", "--plot", svg.to_str().unwrap()];
        let output = compared(&arguments, &around(factor), &around(-factor));
        assert!(output.status.success(), "{}", text(&output.stderr));
        let drawn = std::fs::read_to_string(&svg).unwrap();
        let wrong: Vec<&str> = drawn.split(['<', '>']).filter(|label| is_rounding(label)).collect();
        assert!(wrong.is_empty(), "{factor}: {wrong:?}");
    }
}

#[test]
fn one_quantity_is_selected_from_a_page_csv_and_from_probe_lines() {
    let header = "time_s,source,target,quantity,unit,value,error,forecast,lower,upper,method,raw\r\n";
    let page = |i: i32| {
        format!(
            "{i}.5,this browser,aneroid,rtt,s,0.02,,,,,,\r\n{i}.6,this browser,aneroid,goodput,bit/s,8e6,,,,,,\r\n"
        )
    };
    let page = header.to_owned() + &(0..9).map(page).collect::<String>() + "9.5,b,a,rtt,s,,reset,,,,,\r\n";
    let probe = |i: i32| {
        format!(
            "{{\"time_s\":{i},\"quantity\":\"rtt\",\"value\":0.01,\"tcp_info\":null}}\n\
             {{\"time_s\":{i}.1,\"quantity\":\"goodput\",\"error\":\"reset\",\"after_s\":1}}\n\
             {{\"time_s\":{i}.2,\"quantity\":\"goodput\",\"value\":9e6}}\n"
        )
    };
    let probe: String = (0..9).map(probe).collect();
    let answer = json(&["--quantity", "rtt"], &probe, &page);
    assert_eq!((answer["coefficient"].as_f64(), answer["pairs"]["count"].as_u64()), (Some(0.5), Some(9)));
    assert_eq!(answer["unit"], "s");
    let of_none = compared(&["--quantity", "loss"], &probe, &page);
    assert_eq!(of_none.status.code(), Some(2));
    assert!(text(&of_none.stderr).contains("a.csv: the series has no value of \"loss\""));
    let own =
        "# rtt in s from this browser to aneroid\n# left out: 0 failures\ntime_s,rtt\n0.5,0.02\n1.5,0.02\n";
    assert_eq!(json(&["--quantity", "rtt"], &probe, own)["coefficient"], 0.5);
}
