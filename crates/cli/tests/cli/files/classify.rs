//! Tests of the command `barograph classify` on files.

mod fit;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{assert_refused, barograph, read_one_line, text};

const HEADER: &str = "line,packets,lost,loss_rate,na17,complexity,success_proportion,p_cpu,p_network,lost_host,lost_network,lost_unknown,verdict,evidence";

fn command(arguments: &[&str]) -> Command {
    barograph("classify", arguments)
}

fn piped(arguments: &[&str], input: &[u8]) -> Output {
    super::piped(command(&[arguments, &["-"]].concat()), input)
}

/// Runs the command, which must succeed, and returns each row as its columns. `checked` asserts
/// what is true for every row.
fn rows(arguments: &[&str], input: &str) -> Vec<Vec<String>> {
    let output = piped(arguments, input.as_bytes());
    assert!(output.status.success(), "{input:?}: {}", text(&output.stderr));
    let mut lines = text(&output.stdout).lines();
    assert_eq!(lines.next(), Some(HEADER));
    lines.map(checked).collect()
}

fn checked(line: &str) -> Vec<String> {
    let row: Vec<String> = line.split(',').map(str::to_owned).collect();
    assert_eq!(row.len(), 14, "{line}");
    let number = |at: usize| row[at].parse::<f64>().unwrap();
    assert_eq!(number(7) + number(8), 1.0, "{line}");
    assert!((0.0..=1.0).contains(&number(7)) && (0.0..=1.0).contains(&number(5)), "{line}");
    assert_eq!(number(9) + number(10) + number(11), number(2), "{line}");
    match row[12].as_str() {
        "cpu" => assert!(number(7) >= 0.95, "{line}"),
        "network" => assert!(number(8) >= 0.95, "{line}"),
        "hybrid" => assert!(0.05 * number(2) <= number(9).min(number(10)), "{line}"),
        verdict => assert_eq!(verdict, "inconclusive"),
    }
    let known = [
        "pattern",
        "burst",
        "delay",
        "host_drops",
        "marks",
        "disbelieved",
        "extrapolated",
        "outage",
        "policer",
    ];
    assert!(row[13].split(';').all(|name| name.is_empty() || known.contains(&name)), "{line}");
    row
}

#[test]
fn columns_that_do_not_depend_on_a_model_are_exact() {
    // Four windows: the paper's example; one loss in 100 packets; a loss of every second packet; a
    // single packet, which is lost.
    let bits = format!("0010100\n{}\n{}\n0\n", "1".repeat(20) + "0" + &"1".repeat(79), "10".repeat(50));
    for (arguments, input, expected) in [
        (
            &[][..],
            bits.as_str(),
            &[
                "1,7,5,0.7142857142857143,0,0,0.4",
                "2,100,1,0.01,18,0.24528970596719482,0",
                "3,100,50,0.5,2,0.058823529411764705,0",
                "4,1,1,1,0,0,0",
            ][..],
        ),
        (
            &["--window", "1000"],
            "# a comment\r\n\r\n 500, 100 \t burst=4 \r\n1000\n0,1000\n",
            &["3,1000,100,0.1,34,0.29926252007354937,0.99", "4,1000,0,0,1,0,0", "5,1000,1000,1,1,0,0.999"],
        ),
    ] {
        for method in ["default", "paper"] {
            let rows = rows(&[arguments, &["--method", method]].concat(), input);
            assert_eq!(rows.len(), expected.len());
            for (row, expected) in rows.iter().zip(expected) {
                let numbers = |text: &str| text.split(',').map(|n| n.parse().unwrap()).collect::<Vec<f64>>();
                let off = numbers(&row[..7].join(","))
                    .into_iter()
                    .zip(numbers(expected))
                    .map(|(a, b)| (a - b).abs());
                // A logarithm may differ in its last digit from one machine to another.
                assert!(
                    off.clone().count() == 7 && off.fold(0.0, f64::max) < 1e-12,
                    "{row:?} is not {expected}"
                );
            }
        }
    }
}

#[test]
fn bits_and_runs_give_the_same_row() {
    for evidence in
        ["", "\tburst=3", "\tdelay_us=2500.5\tburst=1", "\thost_drops=60", "\thost_drops=3\tmarks=2"]
    {
        let bits = "1".repeat(400) + &"0".repeat(60) + &"1".repeat(100) + "0" + &"1".repeat(439);
        let of_bits = rows(&[], &format!("{bits}{evidence}\n"));
        assert_eq!(of_bits, rows(&["--window", "1000"], &format!("400,60,100,1{evidence}\n")));
        assert_eq!(of_bits[0][..3], ["1", "1000", "61"]);
        // The row names `burst` as evidence exactly if the line contains it. In the lines with
        // `host_drops`, the drop counter decides.
        assert_eq!(of_bits[0][13].contains("burst"), evidence.contains("burst"), "{evidence}");
    }
}

#[test]
fn the_kernel_drop_count_decides_unless_ignored() {
    let input = "400,60\thost_drops=60\n400,60\thost_drops=0\n400,60\n";
    let told = rows(&["--window", "1000"], input);
    assert_eq!([&told[0][12], &told[0][9]], ["cpu", "60"]);
    assert!(told[0][13].split(';').any(|name| name == "host_drops"), "{told:?}");
    assert_eq!([&told[1][12], &told[1][10]], ["network", "60"]);
    for ignored in [&["--ignore-evidence", "host_drops"][..], &["--ignore-evidence=delay_us,host_drops"]] {
        let rows = rows(&[&["--window", "1000"], ignored].concat(), input);
        assert!(rows.iter().all(|row| row[1..] == told[2][1..]), "{rows:?}");
    }
    // The paper's method uses the pattern only.
    let paper = rows(&["--window", "1000", "--method", "paper"], input);
    assert!(paper.iter().all(|row| row[1..] == paper[2][1..]));
}

#[test]
fn a_window_without_evidence_is_inconclusive() {
    for input in ["1\n", "0\n", "1111111111111110\thost_drops=1\n", "11111111111111111111\thost_drops=0\n"] {
        for method in ["default", "paper"] {
            let row = &rows(&["--method", method], input)[0];
            assert_eq!(row[12], "inconclusive", "{input}");
        }
    }
    // More drops than losses is not plausible.
    let row = &rows(&["--window", "1000"], "400,60\thost_drops=61\n")[0];
    assert!(row[13].split(';').any(|name| name == "disbelieved"), "{row:?}");
}

#[test]
fn bad_lines_print_one_sentence_exit_with_2_and_keep_earlier_rows() {
    for (arguments, line, message) in [
        (&[][..], "11x", "line 3: column 3: expected 1 (received) or 0 (lost), found 'x'"),
        (&[], "3,1", "for run lengths, give the length of the windows (--window N)"),
        (
            &["--window", "20"],
            "19,2",
            "line 3: the runs have at least 21 packets, more than the window of 20",
        ),
        (&["--window", "20"], "3,-1", "line 3: column 3: expected a run length"),
        (&["--window", "20"], "99999999999999999999", "expected a run length"),
        (&["--window", "20"], "3,1\tdelay_us=NaN", "line 3: delay_us is \"NaN\", expected microseconds"),
        (
            &["--window", "20"],
            "3,1\tdelay_us=-5",
            "line 3: delay_us is \"-5\", expected microseconds above the path's minimum, from 0",
        ),
        (&["--window", "20"], "3,1\tburst=0", "line 3: burst is \"0\""),
        (&["--window", "20"], "3,1\tburst=2\tburst=2", "line 3: burst is given twice"),
        (&["--window", "20"], "3,1\tspeed=2", "line 3: found \"speed=2\""),
        (&["--window", "20"], "3,1\u{7f}\u{0}", "line 3: "),
        (&[], "\u{feff}1", "line 3: column 1: expected 1 (received) or 0 (lost)"),
    ] {
        let good = if arguments.is_empty() { "1110\n" } else { "3,1\n" };
        let output = piped(arguments, format!("{good}{good}{line}\n{good}").as_bytes());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("barograph: standard input: "), "{error}");
        assert!(error.contains(message) && error.lines().count() == 1, "{error:?} lacks {message:?}");
        assert_eq!(text(&output.stdout).lines().count(), 3, "the header and the two rows before");
    }
    for (input, message) in [
        (&b""[..], "no windows"),
        (b"# nothing\n\n", "no windows"),
        (b"10\n\xff0\n", "line 2: expected UTF-8 text"),
        (b"\x1f\x8b\x08 no gzip", "is not a gzip file, or is cut off"),
    ] {
        let output = piped(&[], input);
        assert_refused(&output, message, ());
    }
}

#[test]
fn bad_usage_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let hostile = [
        path("empty", b""),
        path("cut", b"{\"version\": 1"),
        path("newer", b"{\"version\": 2}"),
        path("numbers", b"1 nan inf 1e999\n"),
        path("bytes", b"\xff\xfe\x00"),
    ];
    for model in &hostile {
        for method in ["default", "paper"] {
            let output = piped(&["--model", model, "--method", method], b"1110\n");
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{model} {error}");
            assert!(error.starts_with("barograph: /") && error.lines().count() == 1, "{error}");
            assert!(output.stdout.is_empty());
        }
    }
    for (arguments, message) in [
        (&["--window", "0"][..], "0 is not in 1..=16777216"),
        (&["--window", "16777217"], "is not in 1..=16777216"),
        (&["--window", "-5"], "-5"),
        (&["--method", "best"], "possible values: default, paper"),
        (&["--ignore-evidence", "speed"], "possible values: burst, delay_us, host_drops, marks"),
        (&["--model", "/nowhere/at all"], "/nowhere/at all: cannot be opened: No such file or directory"),
    ] {
        let output = piped(arguments, b"1110\n");
        assert_refused(&output, message, arguments);
    }
    for (arguments, message) in [
        (&["/nowhere"][..], "/nowhere: cannot be opened"),
        (&["/"], "/: cannot be opened: is a directory"),
        (&[], "required arguments were not provided"),
        (&["fit"], "required arguments were not provided"),
        (&["fit", "/nowhere"], "/nowhere: cannot be opened"),
    ] {
        let output = command(arguments).output().unwrap();
        assert_refused(&output, message, arguments);
    }
}

#[test]
fn gzip_input_gives_the_same_rows_as_plain_input() {
    let input = "400,60\tburst=2\n\n9,1\n";
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(input.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    let plain = piped(&["--window", "500"], input.as_bytes());
    let unpacked = piped(&["--window", "500"], &packed);
    assert_eq!((plain.status.code(), &plain.stdout), (unpacked.status.code(), &unpacked.stdout));
    let cut = piped(&["--window", "500"], &packed[..packed.len() - 9]);
    assert_eq!(cut.status.code(), Some(2), "{}", text(&cut.stderr));
}

#[test]
fn json_has_the_columns_by_name() {
    let input = "400,60\thost_drops=60\n# between\n9,1\n";
    let output = piped(&["--window", "500", "--json"], input.as_bytes());
    let csv = rows(&["--window", "500"], input);
    let objects: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), csv.len());
    for ((object, line), row) in objects.iter().zip(text(&output.stdout).lines()).zip(csv) {
        for (name, cell) in HEADER.split(',').zip(row) {
            match &object[name] {
                serde_json::Value::String(text) => assert_eq!(*text, cell),
                serde_json::Value::Number(number) => {
                    assert_eq!(number.as_f64(), cell.parse().ok());
                    assert!(
                        line.contains(&format!("\"{name}\":{cell},")),
                        "{line} has not the digits of {cell}"
                    );
                }
                serde_json::Value::Array(names) => {
                    let names: Vec<_> = names.iter().filter_map(serde_json::Value::as_str).collect();
                    assert_eq!(names.join(";"), cell);
                }
                other => panic!("{name} is {other}"),
            }
        }
    }
}

#[test]
fn each_row_is_printed_as_its_window_arrives() {
    let mut child = command(&["-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), HEADER);
    for number in 1..4 {
        stdin.write_all(b"1111101111101111111\n").unwrap();
        // This read would never return if the row came only at the end of the input.
        assert!(lines.next().unwrap().unwrap().starts_with(&format!("{number},19,2,")));
    }
    drop(stdin);
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_output_pipe_closed_early_is_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    std::fs::write(&path, "1111101111101111111\n".repeat(50_000)).unwrap();
    let output = read_one_line(command(&[path.to_str().unwrap()]));
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_beginning() {
    assert_eq!(rows(&["--window", "20"], "\u{feff}3,1\n"), rows(&["--window", "20"], "3,1\n"));
    assert_eq!(rows(&[], "\u{feff}# a comment\n10\n")[0][0], "2");
}

#[test]
fn a_table_of_labelled_windows_is_refused_with_a_hint_to_classify_fit() {
    for arguments in [&[][..], &["--window", "20"]] {
        let output = piped(arguments, b"# label\trun\trle\nnet\tr1\t3,1\n");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(error.contains("line 2: ") && error.contains("use `barograph classify fit`"), "{error}");
    }
    assert!(!text(&piped(&[], b"# labels\nnet\n").stderr).contains("classify fit"));
}

#[test]
fn windows_beyond_the_range_of_the_model_are_marked() {
    let named = |arguments: &[&str], input: &str| {
        rows(arguments, input).remove(0)[13].split(';').map(str::to_owned).collect::<Vec<_>>()
    };
    // 1200 losses of 20 000 packets, in runs too short for an outage.
    let lossy = ["900,200"; 6].join(",");
    for method in ["default", "paper"] {
        let of = |window: &str, line: &str| named(&["--method", method, "--window", window], line);
        assert_eq!(of("20000", "4000,200"), ["pattern"], "{method}");
        for (window, line) in [("1000", "400,9"), ("200000", "4000,200"), ("20000", lossy.as_str())] {
            assert_eq!(of(window, line), ["pattern", "extrapolated"], "{method} {window} {line}");
        }
        // These windows have too few packets for a verdict, so no evidence was used.
        assert_eq!(of("16", "4,7"), [""], "{method}");
        assert_eq!(of("16", "0,16"), [""], "{method}");
    }
    let by_default = |line: &str| named(&["--window", "1000"], line);
    assert_eq!(by_default("400,60\thost_drops=60"), ["host_drops"]);
    // If nothing arrived, there is no pattern.
    assert_eq!(by_default("0,1000"), ["outage"]);
}
