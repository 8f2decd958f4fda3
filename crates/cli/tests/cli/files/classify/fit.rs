//! `barograph classify fit`: the model from different files, the report, and what failures leave
//! behind.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{checked, command};
use crate::files::{assert_refused, text};

/// Windows of 2000 packets with a clear cause: the host loses bursts of 60 to 159 packets, and the
/// network loses single packets. Every 50th window has both causes.
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
    fs::write(path("table.gz"), encoder.finish().unwrap()).unwrap();
    fs::write(path("lines"), labelled(false)).unwrap();
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
            "pattern only    cpu",
        ] {
            assert!(said.contains(line), "{said:?} lacks {line:?}");
        }
        let rows: Vec<_> =
            said.lines().filter(|line| line.contains(" cpu ")).map(|line| line[..15].trim_end()).collect();
        let of_default = ["pattern only", "+ burst", "+ delay", "+ counter"];
        assert_eq!(rows, &of_default[..if method == "paper" { 1 } else { 4 }]);
        let of_lines =
            command(&["fit", "--method", method, "--window", "2000", &path("lines")]).output().unwrap();
        assert!(of_lines.status.success(), "{}", text(&of_lines.stderr));
        assert_eq!(fs::read(path("model")).unwrap(), of_lines.stdout, "both forms teach the same");
        // Classification ignores the labels.
        let asked = &["--window", "2000", "--method", method, "--model", &path("model"), &path("lines")];
        let output = command(asked).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).lines().skip(1).map(checked).count(), 600);
    }
}

#[test]
fn unusable_training_input_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    for (name, input, message) in [
        ("empty", "# label\trle\n", "no windows"),
        ("table", "# label\trle\nnet\t3,1\n", "the length of the windows is unknown"),
        ("w20_table", "# label\trle\nnet\t3,1\ncpu\t30,1\n", "line 3: the runs have at least 30 packets"),
        ("unlabelled", "1110\n", "line 1: column or key cause is missing"),
        (
            "cut",
            "# window 20\n# label\tlost\trle\nnet\t9\t3,1\n",
            "line 3: column lost is \"9\", but the run lengths have 1",
        ),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, input).unwrap();
        let output = command(&["fit", path.to_str().unwrap()]).output().unwrap();
        assert_refused(&output, message, name);
        assert!(output.stdout.is_empty());
    }
}

/// From the open signatures, `scripts/fit-models` makes exactly the models that are shipped.
#[test]
fn the_shipped_models_are_made_by_the_script() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let open = repository.join("../shared/signatures");
    if !open.is_dir() {
        return barograph_sim::report_skipped(&format!("the open signatures are not at {}", open.display()));
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(repository.join("scripts/fit-models"))
        .args([&open, folder.path()])
        .env("BAROGRAPH", env!("CARGO_BIN_EXE_barograph"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    for name in ["default.toml", "paper.toml"] {
        let shipped = fs::read_to_string(repository.join("crates/loss/models").join(name)).unwrap();
        let made = fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(made, shipped, "{name} is not what scripts/fit-models makes");
    }
}

#[test]
fn the_order_of_files_does_not_change_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let all = labelled(false);
    // Three files, each with every ninth window, from a different first window.
    let files: Vec<String> = (0..3)
        .map(|part| {
            let path = folder.path().join(format!("part{part}"));
            let lines: Vec<_> = all.lines().skip(part).step_by(9).collect();
            fs::write(&path, lines.join("\n")).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    for method in ["default", "paper"] {
        let [one, other] = [[0, 1, 2], [2, 0, 1]].map(|order| {
            let files = order.map(|at| files[at].as_str());
            command(&[&["fit", "--window", "2000", "--method", method][..], &files].concat())
                .output()
                .unwrap()
        });
        assert!(one.status.success(), "{}", text(&one.stderr));
        assert_eq!(text(&one.stdout), text(&other.stdout), "{method}");
        assert_eq!(text(&one.stderr), text(&other.stderr), "{method}");
    }
}

#[test]
fn kinds_and_lengths_are_chosen_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // A fifth of the windows is enough, and makes the test quick.
    let made: String = labelled(false).lines().step_by(5).map(|line| format!("{line}\n")).collect();
    let random = made.replace("kind=made", "kind=random");
    fs::write(path("random"), &random).unwrap();
    fs::write(path("both"), made.replace("run=r", "run=m") + &random).unwrap();
    // This file has too few windows of its length to fit a model.
    let long = |cause: &str| format!("9000,90\tcause={cause}\tkind=random\trun=l{cause}\n");
    fs::write(path("long"), format!("# window 20000\n{}{}", long("cpu"), long("network"))).unwrap();
    let fit = |arguments: &[&str]| {
        command(&[&["fit", "--method", "paper", "--window", "2000"], arguments].concat()).output().unwrap()
    };
    let alone = fit(&[&path("random")]);
    assert!(alone.status.success(), "{}", text(&alone.stderr));
    for kinds in ["random", "paper", "paper,random"] {
        assert_eq!(text(&fit(&["--kinds", kinds, &path("both")]).stdout), text(&alone.stdout), "{kinds}");
    }
    assert_ne!(text(&fit(&["--kinds", "random,made", &path("both")]).stdout), text(&alone.stdout));
    let with_long = fit(&[&path("random"), &path("long")]);
    assert_eq!(text(&with_long.stdout), text(&alone.stdout));
    assert!(
        text(&with_long.stderr)
            .contains("windows of 20000 packets: too few windows with losses of the host only at loss rates of 0.0005 to 0.05: 1 of the 10 needed"),
        "{}",
        text(&with_long.stderr)
    );
    let without = fit(&["--lengths", "2000", &path("random"), &path("long")]);
    assert_eq!((text(&without.stdout), text(&without.stderr)), (text(&alone.stdout), text(&alone.stderr)));
    for (arguments, message) in [
        (&["--kinds", "randon"][..], "no window has kind \"randon\"; available: made, random"),
        (&["--lengths", "1000"], "no window has 1000 packets; available: 2000"),
        (&["--lengths", "0"], "0 is not in 1..=16777216"),
    ] {
        let output = fit(&[arguments, &[&path("both")]].concat());
        assert_refused(&output, message, arguments);
    }
}

#[test]
fn an_existing_model_stays_until_the_new_model_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("lines"), labelled(false)).unwrap();
    fs::write(path("few"), "3,1\tcause=cpu\n").unwrap();
    fs::write(path("model"), "before").unwrap();
    for method in ["default", "paper"] {
        let asked = ["fit", "--window", "2000", "--method", method, "--out", &path("model"), &path("few")];
        let output = command(&asked).output().unwrap();
        let error = text(&output.stderr).lines().last().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(
            error.contains("too few windows with losses of the ") && error.contains(" needed"),
            "{error}"
        );
        // The message must not contain names from the code.
        assert!(!["Host", "FitError", "Cause", "{", "::"].iter().any(|name| error.contains(name)), "{error}");
    }
    assert_eq!(fs::read_to_string(path("model")).unwrap(), "before");
    let fit =
        |out: &str| command(&["fit", "--window", "2000", "--out", out, &path("lines")]).output().unwrap();
    let nowhere = fit(&path("no folder/model"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("no folder/model: cannot be written: No such file or directory"));
    let a_folder = fit(folder.path().to_str().unwrap());
    assert_eq!(a_folder.status.code(), Some(1), "{}", text(&a_folder.stderr));
    assert!(fit(&path("model")).status.success());
    assert!(fs::read_to_string(path("model")).unwrap().starts_with("# The default classifier"));
    // If the output is a device, the command writes to the device and does not replace it.
    assert!(fit("/dev/null").status.success());
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["few", "lines", "model"], "nothing is left beside");
}

#[test]
fn no_window_counts_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("table"), labelled(true)).unwrap();
    fs::write(path("lines"), labelled(false)).unwrap();
    let rows: Vec<_> = labelled(true).lines().map(str::to_owned).collect();
    // `again` repeats the second window of the table. `elsewhere` and `longer` have the same window
    // number in a different run and for a different length.
    let again = format!("{}\n{}\n", rows[1], rows[3]);
    fs::write(path("again"), format!("# window 2000\n{again}")).unwrap();
    fs::write(path("elsewhere"), format!("# window 2000\n{}", again.replace("\tr1\t", "\telse\t"))).unwrap();
    fs::write(path("longer"), format!("# window 3000\n{again}")).unwrap();
    let fit = |files: &[&str]| command(&[&["fit", "--window", "2000"], files].concat()).output().unwrap();
    for (files, message) in [
        (&["lines", "table", "lines"][..], "lines: this file is named twice"),
        (&["lines", "./lines"], "lines: this file is named twice"),
        (&["table", "again"], "again: line 3: window 1 of run r1, of 2000 packets, is in "),
        (&["again", "table"], "table: line 4: window 1 of run r1, of 2000 packets, is in "),
    ] {
        let paths: Vec<String> = files.iter().map(|name| path(name)).collect();
        let output = fit(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        assert_refused(&output, message, files);
        assert!(output.stdout.is_empty());
    }
    for other in ["elsewhere", "longer"] {
        let output = fit(&[&path("table"), &path(other)]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}
