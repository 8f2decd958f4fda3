//! Tests of the command `barograph forecast` on files.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::{assert_refused, barograph, json, read_one_line, text};

fn piped(arguments: &[&str], input: &[u8]) -> Output {
    super::piped(command(arguments), input)
}

/// Runs `barograph forecast` on a file with these bytes.
fn filed(arguments: &[&str], input: &[u8]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.csv");
    std::fs::write(&path, input).unwrap();
    command(arguments).arg(path).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    barograph("forecast", arguments)
}

#[test]
fn bad_input_in_a_file_prints_one_sentence_and_exits_with_2() {
    let long = [b"0,1\n1,".as_slice(), &b"1".repeat(70_000)].concat();
    let cases: &[(&[u8], &str)] = &[
        (b"time_s,value\n0,1\n1;2\n", "line 3: expected two numbers time_s,value, found \"1;2\""),
        (b"0,1\n1,2,3\n", "line 2: expected two numbers time_s,value"),
        (b"1,a\n", "line 1: expected two numbers time_s,value, or a JSON object"),
        (b"", "no values"),
        (b"time_s,value\n", "no values"),
        (b"# nothing\n", "no values"),
        (b"0,1\n1,NaN\n2,3\n", "line 2: value is NaN, expected a finite number"),
        (b"0,1\n1,-inf\n", "line 2: value is -inf"),
        (b"0,1\n1,1e999\n", "line 2: value is inf"),
        (b"0,1\n1,1e200\n", "line 2: value is 1e200; its magnitude may be at most 1e70"),
        (b"5,1\n4,1\n", "line 2: expected times that do not decrease, found 4 after 5"),
        (b"0,1\n{\"value\":3}\n", "line 2: expected two numbers"),
        (
            b"{\"time_s\":0,\"value\":\"high\"}\n",
            "line 1: expected two numbers time_s,value, or a JSON object",
        ),
        (b"0,1\n\xff,1\n", "line 2: expected UTF-8 text"),
        (&long, "line 2: expected at most 65536 bytes a line"),
    ];
    for (input, message) in cases {
        for arguments in [&["--json"][..], &["--steps"], &[]] {
            let output = filed(arguments, input);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{error}");
            assert!(error.starts_with("barograph: ") && error.contains("series.csv: "), "{error}");
            assert!(error.contains(message), "{error:?} lacks {message:?}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}

/// `flat` is the old name of the rule `two-selectors`.
#[test]
fn rules_are_chosen_by_name() {
    let series = concat!(env!("CARGO_MANIFEST_DIR"), "/../forecast/tests/reference/series.csv");
    let input = std::fs::read(series).unwrap();
    let steps = |rule: &str| {
        let output = filed(&["--preset", "nws", "--steps", "--select", rule], &input);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let [flat, two_selectors, mse, mae] = ["flat", "two-selectors", "mse", "mae"].map(steps);
    assert_eq!(flat, two_selectors);
    assert!(mse != two_selectors && mae != two_selectors && mse != mae);
    for rule in [mse, mae] {
        for row in rule.lines().skip(1) {
            let columns: Vec<&str> = row.split(',').collect();
            let both = [3, 6].map(|at| (columns[at], columns[at + 2]));
            assert_eq!(both[0], both[1], "one method makes both forecasts: {row}");
        }
    }
}

/// Output of the page's "Save CSV": every quantity, in the order of time.
fn page_csv(target: impl Fn(i32) -> &'static str) -> String {
    let header = "time_s,source,target,quantity,unit,value,error,forecast,lower,upper,method,raw\r\n";
    let rows = |i: i32| {
        let end = target(i);
        format!(
            "{i}.5,this browser,{end},rtt,s,0.02,,,,,,\r\n{i}.6,this browser,{end},goodput,bit/s,8e6,,,,,,\r\n"
        )
    };
    header.to_owned() + &(0..20).map(rows).collect::<String>()
}

/// Output of repeated `barograph probe --json` for a station.
fn probe_lines() -> String {
    let line = |i: i32, at: i32, quantity: &str, value: &str| {
        format!(
            "{{\"time_s\":{i}.{at},\"quantity\":\"{quantity}\",\"target\":\"office:10132\",\"value\":{value},\
             \"unit\":\"\",\"n\":11,\"tcp_info\":null}}\n"
        )
    };
    (0..20).map(|i| line(i, 1, "rtt", "0.02") + &line(i, 2, "goodput", "8e6")).collect()
}

#[test]
fn quantities_are_not_mixed_and_one_quantity_can_be_selected() {
    let both = "the series contains \"rtt\" and \"goodput\"; select one with --quantity";
    for input in [page_csv(|_| "aneroid"), probe_lines()] {
        for output in [filed(&[], input.as_bytes()), piped(&["-"], input.as_bytes())] {
            assert_refused(&output, both, ());
        }
        for (quantity, value) in [("rtt", 0.02), ("goodput", 8e6)] {
            let output = filed(&["--json", "--quantity", quantity], input.as_bytes());
            let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(answer["median"]["value"].as_f64(), Some(value), "{answer}");
            assert_eq!(answer["count"], 20, "{answer}");
        }
        let output = filed(&["--quantity", "loss"], input.as_bytes());
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains("the series has no value of \"loss\""),
            "{}",
            text(&output.stderr)
        );
    }
    let alone = filed(&["--json"], b"time_s,quantity,value\n0,rtt,1\n1,rtt,1\n");
    assert!(alone.status.success(), "one quantity needs no option: {}", text(&alone.stderr));
}

#[test]
fn targets_are_not_mixed() {
    let input = page_csv(|i| if i < 10 { "aneroid" } else { "torricelli" });
    let output = filed(&["--quantity", "rtt"], input.as_bytes());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let expected = "the series contains values of two targets, \"aneroid\" and \"torricelli\"; keep the lines of one target";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
}

#[test]
fn bad_usage_exits_with_2() {
    for (arguments, message) in [
        (&["--interval", "1"][..], "0.01 to 0.999"),
        (&["--interval", "0.001"], "0.01 to 0.999"),
        (&["--interval", "NaN"], "0.01 to 0.999"),
        (&["--interval", "most"], "0.01 to 0.999"),
        (&["--lifetime", "0"], "positive number of seconds"),
        (&["--lifetime", "inf"], "positive number of seconds"),
        (&["--horizon", "0"], "a number of values from 1 to 1000000, or a time such as 30s"),
        (&["--horizon", "10 minutes"], "a number of values from 1 to 1000000, or a time such as 30s"),
        (&["--horizon", "5", "--of", "median"], "possible values: mean, value"),
        (&["--of", "value"], "--horizon <N|TIME>"),
        (&["--horizon", "5", "--plot", "drawing.svg"], "cannot be used with"),
        (&["--bytes", "1GB"], "--bytes needs --series"),
        (&["--quantiles", "0.1,1"], "numbers from 0.005 to 0.995 with commas between them"),
        (&["--quantiles", "0.1,"], "numbers from 0.005 to 0.995 with commas between them"),
        (&["--quantiles", "0.5,0.50"], "0.5 is given twice"),
        (&["--horizon", "10m"], "the input has no times; pass a number of values to --horizon"),
        (&["--preset", "best"], "possible values: nws, classic, full, lean"),
        (&["--select", "best"], "possible values: two-level, two-selectors, blend, mse, mae"),
        (&["--unknown"], "unexpected argument"),
    ] {
        let output = filed(arguments, b"1\n2\n");
        assert_refused(&output, message, arguments);
        assert!(output.stdout.is_empty());
    }
    let output = command(&["/nowhere/at all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let expected = "barograph: /nowhere/at all: cannot be opened: No such file or directory\n";
    assert_eq!(text(&output.stderr), expected);
    let output = command(&["/"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "barograph: /: cannot be opened: is a directory\n");
}

#[test]
fn non_finite_values_on_a_pipe_are_skipped_with_a_warning() {
    for input in [
        "1\nNaN\n2\n-inf\n3\n",
        "{\"value\":1}\n{\"value\":NaN}\n{\"value\":2}\n{\"value\":-Infinity}\n{\"value\":3}\n",
    ] {
        let output = piped(&["-", "--steps"], input.as_bytes());
        assert!(output.status.success());
        assert_eq!(text(&output.stdout).lines().count(), 3, "the header and two rows");
        let warnings: Vec<&str> = text(&output.stderr).lines().collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("barograph: warning: standard input: line 2: value is NaN"));
        assert!(warnings[1].contains("line 4: value is -") && warnings[1].ends_with("; skipped"));
    }
    let output = piped(&["-"], b"nan\nnan\n");
    assert_refused(&output, "no values", "nothing but NaN is an empty series");
    let output = piped(&["-"], b"0,1\n1,x\n");
    assert_eq!(output.status.code(), Some(2), "a broken line ends a pipe too");
    assert!(text(&output.stderr).starts_with("barograph: standard input: line 2: expected two numbers"));
}

#[test]
fn each_step_is_printed_as_its_value_arrives() {
    let mut child = command(&["-", "--steps"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("index,time_s,value,"));
    stdin.write_all(b"5\n").unwrap();
    for i in 1..4 {
        stdin.write_all(b"7\n").unwrap();
        // This read would never return if the row came only at the end of the input.
        let row = lines.next().unwrap().unwrap();
        assert!(row.starts_with(&format!("{i},{i},7,")), "{row}");
    }
    drop(stdin);
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_output_pipe_closed_early_is_not_an_error() {
    let rows: String = (0..200_000).map(|i| format!("{}\n", i % 10)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    std::fs::write(&path, rows).unwrap();
    let output =
        read_one_line(barograph("forecast", &["--steps", "--preset", "classic", path.to_str().unwrap()]));
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn one_value_has_a_forecast_and_no_error_yet() {
    let output = filed(&[], b"0,5\n");
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("a forecast, but no error yet"), "{}", text(&output.stdout));
    let output = filed(&["--json"], b"0,5\n");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["count"], 1);
    assert_eq!(answer["mean"]["value"], 5.0);
    assert!(answer["mean"]["mse"].is_null() && answer["lower"].is_null());
    let output = filed(&["--steps"], b"0,5\n");
    assert_eq!(text(&output.stdout).lines().count(), 1, "the header alone");
}

#[test]
fn the_json_output_has_the_expected_keys_and_values() {
    let series = b"0,5\n1,6\n2,5\n10,6\n10,5\n11,5\n12,6\n13,5\n14,6\n15,5\n30,6\n45,5\n";
    let output = filed(&["--json", "--weights", "--interval", "0.8", "--lifetime", "20"], series);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((answer["count"].as_u64(), answer["time_s"].as_f64()), (Some(12), Some(45.0)));
    assert_eq!(answer["level"], 0.8);
    for forecast in ["mean", "median"] {
        for key in ["value", "mse", "mae", "recent_mse", "recent_mae"] {
            assert!(answer[forecast][key].is_f64(), "{forecast}.{key} in {answer}");
        }
        assert!(answer[forecast]["method"].is_string());
        assert!((0.0..=1.0).contains(&answer[forecast]["weight"].as_f64().unwrap()), "{answer}");
        let weights = answer["weights"][forecast].as_array().unwrap();
        let sum: f64 = weights.iter().map(|weight| weight["weight"].as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{answer}");
    }
    assert!(answer["lower"].as_f64() < answer["upper"].as_f64());
    assert_eq!(answer["lifetime"]["seconds"], 20.0);
    assert_eq!(answer["lifetime"]["count"], 0, "no period of 20 s has half of the usual number of values");
    assert!(answer["lifetime"]["mean"]["value"].is_f64() && answer["lifetime"]["mean"]["mse"].is_null());
}

#[test]
fn steps_are_the_same_in_every_form() {
    let csv: String = (0..300).map(|i| format!("{},{}\n", i * 10, f64::from(i * i % 17) / 3.0)).collect();
    let json: String = (0..300)
        .map(|i| format!("{{\"value\":{},\"time_s\":{}}}\n", f64::from(i * i % 17) / 3.0, i * 10))
        .collect();
    let arguments = ["--steps", "--interval", "0.9"];
    let table = filed(&arguments, csv.as_bytes()).stdout;
    assert_eq!(text(&table), text(&filed(&arguments, json.as_bytes()).stdout), "CSV and JSON lines in");

    let objects = filed(&["--steps", "--interval", "0.9", "--json"], csv.as_bytes()).stdout;
    let mut rows = text(&table).lines().map(|row| row.split(',').collect::<Vec<_>>());
    let names = rows.next().unwrap();
    assert_eq!(names.len(), 11);
    assert_eq!((names[9], names[10]), ("lower", "upper"));
    let mut compared = 0;
    for (row, object) in rows.zip(text(&objects).lines()) {
        let object: serde_json::Value = serde_json::from_str(object).unwrap();
        for (name, cell) in names.iter().zip(row) {
            match &object[*name] {
                serde_json::Value::Null => assert_eq!(cell, "", "{name}"),
                serde_json::Value::String(method) => assert_eq!(cell, method),
                number => assert_eq!(cell.parse::<f64>().ok(), number.as_f64(), "{name}"),
            }
        }
        compared += 1;
    }
    assert_eq!(compared, 299, "a row for each value but the first");
}

#[test]
fn a_drawing_is_written_or_the_reason_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("out.svg");
    let output = filed(&["--unit", "ms", "--plot", path.to_str().unwrap()], b"0,5\n10,6\n20,5\n");
    assert!(output.status.success());
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("value (ms)") && svg.contains("90 % interval"));
    let output = filed(&["--plot", "/nowhere/out.svg"], b"0,5\n10,6\n");
    assert_eq!(output.status.code(), Some(1));
    let expected = "barograph: /nowhere/out.svg: cannot be written: No such file or directory\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn a_drawing_does_not_replace_its_series() {
    let folder = tempfile::tempdir().unwrap();
    let series = folder.path().join("series.csv");
    let [symbolic, hard] = ["symbolic", "hard"].map(|name| folder.path().join(name));
    std::fs::write(&series, "0,5\n10,6\n").unwrap();
    std::os::unix::fs::symlink(&series, &symbolic).unwrap();
    std::fs::hard_link(&series, &hard).unwrap();
    for plot in [&series, &symbolic, &hard] {
        let named = command(&["--plot"]).arg(plot).arg(&series).output().unwrap();
        let redirected = std::fs::File::open(&series).unwrap();
        let redirected = command(&["-", "--plot"]).arg(plot).stdin(redirected).output().unwrap();
        for output in [named, redirected] {
            assert_refused(&output, "is the series itself", plot);
            assert_eq!(text(&output.stderr).lines().count(), 1);
            assert!(output.stdout.is_empty());
            assert_eq!(std::fs::read_to_string(&series).unwrap(), "0,5\n10,6\n", "{}", plot.display());
        }
    }
    // An older drawing is replaced.
    let plot = folder.path().join("plot.svg");
    std::fs::write(&plot, "old").unwrap();
    assert!(command(&["--plot"]).arg(&plot).arg(&series).output().unwrap().status.success());
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg"));
}

#[test]
fn a_drawing_is_complete_when_the_steps_are_not_read_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let [series, whole, left] = ["long", "whole.svg", "left.svg"].map(|name| folder.path().join(name));
    let rows: String = (0..20_000).map(|i| format!("{}\n", i % 10)).collect();
    std::fs::write(&series, rows).unwrap();
    let steps = ["--steps", "--preset", "classic", "--plot"];
    assert!(command(&steps).arg(&whole).arg(&series).output().unwrap().status.success());
    let mut child = command(&steps).arg(&left).arg(&series).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    assert!(std::fs::read(&left).unwrap() == std::fs::read(&whole).unwrap(), "the drawings differ");
}

#[test]
fn names_and_units_with_control_characters_stay_on_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let [series, plot] = ["two\nlines\u{1b}[1m", "plot.svg"].map(|name| folder.path().join(name));
    std::fs::write(&series, "0,5\n1,x\n").unwrap();
    let output = command(&[]).arg(&series).output().unwrap();
    assert!(text(&output.stderr).contains(r"two\nlines\u{1b}[1m: line 2: "), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    let output = command(&[]).arg(folder.path().join("no\nfile")).output().unwrap();
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
    let output =
        command(&["--plot"]).arg(folder.path().join("no\nfolder/x.svg")).arg(&series).output().unwrap();
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));

    std::fs::write(&series, "0,5\n1,6\n").unwrap();
    let output = command(&["--unit", "m\n\u{7}s", "--plot"]).arg(&plot).arg(&series).output().unwrap();
    let first = "Next: 6 ms (no interval yet: 1 of 10 forecasts scored).\n2 values, the last 6 ms at 1 s\n";
    assert!(text(&output.stdout).starts_with(first), "{}", text(&output.stdout));
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.contains("value (ms)"), "{svg}");
    assert!(!svg.contains(|c: char| c != '\n' && c.is_control()), "{svg:?}");
}

#[test]
fn a_system_error_is_reported_without_its_number() {
    // The first page of a process's own memory cannot be read.
    let output = command(&["/proc/self/mem"]).output().unwrap();
    if !std::path::Path::new("/proc/self/mem").exists() {
        barograph_sim::report_skipped("an unreadable file: there is no /proc/self/mem");
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "barograph: /proc/self/mem: cannot be read: Input/output error\n");
}

#[test]
fn the_interval_is_described_as_around_the_median() {
    let young = filed(&[], b"0,5\n10,6\n20,5\n30,6\n").stdout;
    assert!(text(&young).contains("  Interval: calibrating (3 of 10 forecasts scored)."), "{}", text(&young));
    assert!(text(&young).contains("   blend, "), "{}", text(&young));
    let series: String = (0..12).map(|i| format!("{},{}\n", 10 * i, 5 + i % 3)).collect();
    let answer = filed(&[], series.as_bytes()).stdout;
    assert!(text(&answer).contains("  90 % interval around the median: "), "{}", text(&answer));
    let help = command(&["--help"]).output().unwrap().stdout;
    assert_eq!(text(&help).matches("around the median forecast").count(), 2, "{}", text(&help));
}

#[test]
fn a_column_is_selected_and_the_names_are_listed_if_it_is_missing() {
    let log = b"timestamp;host;p50;p99\n2026-05-01T12:00:00Z;a;20;31\n2026-05-01T14:00:10+02:00;a;21;35\n";
    let answer = |column| json(&filed(&["--json", "--column", column], log));
    assert_eq!(answer("p99")["time_s"], 1_777_636_810.0);
    assert_eq!(
        (answer("p50")["median"]["value"].as_f64(), answer("p99")["count"].as_u64()),
        (Some(21.0), Some(2))
    );
    assert_refused(
        &filed(&["--column", "p95"], log),
        "line 1: no column \"p95\"; the columns are \"timestamp\", \"host\", \"p50\" and \"p99\"",
        (),
    );
    assert_refused(&filed(&[], log), "line 2: several columns hold numbers, \"p50\" and \"p99\"; ", ());
}

#[test]
fn all_quantities_of_a_file_are_listed_and_a_pipe_is_refused_at_once() {
    let mixed = b"time_s,quantity,value\n0,rtt,1\n1,connect,1\n2,goodput,1\n";
    assert_refused(&filed(&[], mixed), "contains \"rtt\", \"connect\" and \"goodput\"; select one", ());
    assert_refused(&piped(&["-"], mixed), "contains \"rtt\" and \"connect\"; select one", ());
}

#[test]
fn the_output_of_ping_is_forecast_in_milliseconds_with_its_losses() {
    let reply = |n: u32| format!("64 bytes from 192.0.2.1: icmp_seq={n} ttl=57 time={}.5 ms\n", 20 + n % 3);
    let replies: String = (1..=30).filter(|n| n % 10 != 5).map(reply).collect();
    let ping = "PING a (192.0.2.1) 56(84) bytes of data.\n".to_owned() + &replies;
    let output = filed(&[], ping.as_bytes());
    let answer = text(&output.stdout);
    assert!(
        answer.starts_with("Next: 2")
            && answer.lines().next().is_some_and(|line| line.contains(" ms (90 %: ")),
        "{answer}"
    );
    assert!(answer.contains("27 values, the last 20.5 ms\n"), "{answer}");
    assert!(
        answer.contains("\n3 of 30 measurements failed; the next succeeds with a probability of "),
        "{answer}"
    );
    let availability = |input: &str| json(&filed(&["--json"], input.as_bytes()))["availability"].as_f64();
    assert!(availability(&ping).is_some_and(|share| (0.8..1.0).contains(&share)), "{answer}");
    let lossless: String = (1..=30).map(reply).collect();
    assert_eq!(availability(&lossless), None, "nothing failed");
    let steps = text(&filed(&["--steps"], ping.as_bytes()).stdout).to_owned();
    assert_eq!(steps.lines().nth(4).map(|row| row.starts_with("4,5,20.5,")), Some(true), "{steps}");
}
