//! `barograph classify` as its users meet it: the built binary, its output, messages and exit codes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

const HEADER: &str = "line,packets,lost,loss_rate,na17,complexity,success_proportion,p_cpu,p_network,lost_host,lost_network,lost_unknown,verdict,evidence";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_barograph"));
    command.arg("classify").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `barograph classify` with `input` on a pipe.
fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments).arg("-").stdin(Stdio::piped()).spawn().unwrap();
    // The child may stop reading at the first error.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// The rows of a run that went well, by their columns, each of which is checked for what holds of every row.
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
        "cpu" => assert!(0.95 <= number(7), "{line}"),
        "network" => assert!(0.95 <= number(8), "{line}"),
        "hybrid" => assert!(0.05 * number(2) <= number(9).min(number(10)), "{line}"),
        verdict => assert_eq!(verdict, "inconclusive"),
    }
    let known =
        ["pattern", "delay", "host_drops", "marks", "disbelieved", "extrapolated", "outage", "policer"];
    assert!(row[13].split(';').all(|name| name.is_empty() || known.contains(&name)), "{line}");
    row
}

#[test]
fn the_columns_that_no_model_has_a_say_in_are_exact() {
    // The paper's example, one loss of many, a burst, losses that alternate, and one packet.
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
    }
}

#[test]
fn the_kernels_count_decides_unless_it_is_passed_over() {
    let input = "400,60\thost_drops=60\n400,60\thost_drops=0\n400,60\n";
    let told = rows(&["--window", "1000"], input);
    assert_eq!([&told[0][12], &told[0][9]], ["cpu", "60"]);
    assert!(told[0][13].split(';').any(|name| name == "host_drops"), "{told:?}");
    assert_eq!([&told[1][12], &told[1][10]], ["network", "60"]);
    for ignored in [&["--ignore-evidence", "host_drops"][..], &["--ignore-evidence=delay_us,host_drops"]] {
        let rows = rows(&[&["--window", "1000"], ignored].concat(), input);
        assert!(rows.iter().all(|row| row[1..] == told[2][1..]), "{rows:?}");
    }
    // The paper knows the pattern alone.
    let paper = rows(&["--window", "1000", "--method", "paper"], input);
    assert!(paper.iter().all(|row| row[1..] == paper[2][1..]));
}

#[test]
fn a_window_that_nothing_is_known_of_is_inconclusive() {
    for input in ["1\n", "0\n", "1111111111111110\thost_drops=1\n", "11111111111111111111\thost_drops=0\n"] {
        for method in ["default", "paper"] {
            let row = &rows(&["--method", method], input)[0];
            assert_eq!(row[12], "inconclusive", "{input}");
        }
    }
    // More drops than losses is no claim to be believed.
    let row = &rows(&["--window", "1000"], "400,60\thost_drops=61\n")[0];
    assert!(row[13].split(';').any(|name| name == "disbelieved"), "{row:?}");
}

#[test]
fn bad_lines_are_one_sentence_and_exit_2_and_lose_nothing() {
    for (arguments, line, message) in [
        (&[][..], "11x", "line 3: column 3: expected 1 (received) or 0 (lost), found 'x'"),
        (&[], "3,1", "run lengths need the length of their window"),
        (&["--window", "20"], "19,2", "line 3: runs of 21 packets and more do not fit a window of 20"),
        (&["--window", "20"], "3,-1", "line 3: column 3: expected a run of packets"),
        (&["--window", "20"], "99999999999999999999", "expected a run of packets"),
        (&["--window", "20"], "3,1\tdelay_us=NaN", "line 3: delay_us is \"NaN\", expected microseconds"),
        (&["--window", "20"], "3,1\tdelay_us=-5", "line 3: delay_us is \"-5\""),
        (&["--window", "20"], "3,1\tburst=0", "line 3: burst is \"0\""),
        (&["--window", "20"], "3,1\tburst=2\tburst=2", "line 3: burst is given twice"),
        (&["--window", "20"], "3,1\tspeed=2", "line 3: found \"speed=2\""),
        (&["--window", "20"], "3,1\u{7f}\u{0}", "line 3: "),
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
        (b"\x1f\x8b\x08 no gzip", "is no gzip, or is cut off"),
    ] {
        let output = piped(&[], input);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}

#[test]
fn bad_usage_is_exit_2() {
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
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    for (arguments, message) in [
        (&["/nowhere"][..], "/nowhere: cannot be opened"),
        (&["/"], "/: cannot be opened: is a directory"),
        (&[], "required arguments were not provided"),
        (&["fit"], "required arguments were not provided"),
        (&["fit", "/nowhere"], "/nowhere: cannot be opened"),
    ] {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}

#[test]
fn a_gzip_is_read_as_what_is_in_it() {
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
    for (object, row) in objects.iter().zip(csv) {
        for (name, cell) in HEADER.split(',').zip(row) {
            match &object[name] {
                serde_json::Value::String(text) => assert_eq!(*text, cell),
                serde_json::Value::Number(number) => assert_eq!(number.as_f64(), cell.parse().ok()),
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
fn each_window_is_answered_as_it_arrives() {
    let mut child = command(&["-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), HEADER);
    for number in 1..4 {
        stdin.write_all(b"1111101111101111111\n").unwrap();
        // This read would wait for ever if the row came only at the end of the input.
        assert!(lines.next().unwrap().unwrap().starts_with(&format!("{number},19,2,")));
    }
    drop(stdin);
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    std::fs::write(&path, "1111101111101111111\n".repeat(50_000)).unwrap();
    let mut child = command(&[path.to_str().unwrap()]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

/// Windows of 2000 packets whose cause is plain: the host's come in bursts of 60 to 159, the network's one by one; every 50th is of both.
fn labelled(as_table: bool) -> String {
    let mut text = if as_table {
        "# window 2000\n# label\trun\twindow\tkind\tbatch\tlost\towd_before_loss_us\tcpu_fraction\trle(ok,lost,ok,lost,...)\n".to_owned()
    } else {
        String::new()
    };
    for n in 0..600_u32 {
        let single =
            (0..4 + n % 40).map(|i| format!("{},1", 5 + (n * 7 + i * 13) % 31)).collect::<Vec<_>>().join(",");
        let burst = format!("{},{}", 20 + n % 90, 60 + n % 100);
        let (label, cause, lost, share, runs) = match n {
            _ if n % 50 == 49 => ("hyb", "both", 64 + n % 40 + n % 100, 0.5, format!("{single},{burst}")),
            _ if n % 2 == 0 => ("cpu", "cpu", 60 + n % 100, 1.0, burst),
            _ => ("net", "network", 4 + n % 40, 0.0, single),
        };
        let (run, delay_us) = (n / 10 * 2 + n % 2, if label == "cpu" { 5 } else { 2000 });
        text += &if as_table {
            format!("{label}\tr{run}\t{n}\tmade\t1\t{lost}\t{delay_us}\t{share:.4}\t{runs}\n")
        } else {
            let drops = (f64::from(lost) * share).round();
            format!(
                "{runs}\tburst=1\tdelay_us={delay_us}\thost_drops={drops}\tcause={cause}\tkind=made\trun=r{run}\n"
            )
        };
    }
    text
}

#[test]
fn a_model_is_learned_from_tables_and_from_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(labelled(true).as_bytes()).unwrap();
    std::fs::write(path("table.gz"), encoder.finish().unwrap()).unwrap();
    std::fs::write(path("lines"), labelled(false)).unwrap();
    for method in ["default", "paper"] {
        let output = command(&["fit", "--method", method, "--out", &path("model"), &path("table.gz")])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && output.stdout.is_empty(), "{said}");
        for line in [
            "cpu            300     60",
            "network        288     60",
            "both            12",
            "cross-validated",
        ] {
            assert!(said.contains(line), "{said:?} lacks {line:?}");
        }
        let of_lines =
            command(&["fit", "--method", method, "--window", "2000", &path("lines")]).output().unwrap();
        assert!(of_lines.status.success(), "{}", text(&of_lines.stderr));
        assert_eq!(std::fs::read(path("model")).unwrap(), of_lines.stdout, "both forms teach the same");
        // Labels are passed over.
        let asked = &["--window", "2000", "--method", method, "--model", &path("model"), &path("lines")];
        let output = command(asked).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).lines().skip(1).map(checked).count(), 600);
    }
}

#[test]
fn what_nothing_can_be_learned_from_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (name, input, message) in [
        ("empty", "# label\trle\n", "no windows"),
        ("table", "# label\trle\nnet\t3,1\n", "the length of the windows is not known"),
        ("w20_table", "# label\trle\nnet\t3,1\ncpu\t30,1\n", "line 3: runs of 30 packets and more"),
        ("unlabelled", "1110\n", "line 1: cause is missing"),
        (
            "cut",
            "# window 20\n# label\tlost\trle\nnet\t9\t3,1\n",
            "line 3: lost is \"9\", but the runs lost 1",
        ),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, input).unwrap();
        let output = command(&["fit", path.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
