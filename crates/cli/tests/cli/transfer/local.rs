//! Transfers of files over the loopback interface.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::Value;

use super::{Running, barograph, receive_here, send, send_all, tree};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = barograph().args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_directory_arrives_unchanged_and_both_ends_report_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("tree"), directory.path().join("in"));
    tree::mixed(&from, 1, 3_000_000);
    let (mut recv, line) = receive_here(&to, &["--create", "--links", "--once"]);
    let kept = directory.path().join("windows");
    let options = ["--links", "--keep-windows", kept.to_str().unwrap()];
    let (code, events, stderr) = send(&mut barograph(), &from, &line, &options).end();
    assert_eq!(code, Some(0), "{stderr}");
    tree::assert_same(&from, &to.join("tree"));
    assert_eq!(fs::metadata(kept).unwrap().permissions().mode() & 0o777, 0o700);

    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let order: Vec<&str> = names.iter().copied().filter(|name| *name != "progress").collect();
    assert_eq!(order, ["connected", "begun", "verifying", "done"]);
    let done = events.last().unwrap();
    assert_eq!(done["files"], 105, "{done}");
    let bytes = done["bytes"].as_u64().unwrap();
    assert!(3_000_000 < bytes && bytes < 3_500_000, "holes do not travel: {bytes}");
    assert_eq!((&done["held_bytes"], &done["verified"]), (&Value::from(0), &Value::from("blake3")));
    assert!(done["goodput_bit_s"].as_f64().unwrap() > 0.0);
    for cause in ["lost_host", "lost_network", "lost_unknown"] {
        assert!((0.0..=1.0).contains(&done[cause].as_f64().unwrap()), "{done}");
    }
    assert_eq!(done["classifier"], "default", "{done}");
    for evidence in ["counter", "marks", "delay", "pattern", "expired", "pending", "taken_back"] {
        assert!(done["losses"][evidence].is_u64(), "{done}");
    }
    let received = recv.until("done");
    assert_eq!((&received["bytes"], &received["files"]), (&done["bytes"], &done["files"]));
    assert_eq!(recv.end().0, Some(0), "--once");
}

#[test]
fn the_text_output_consists_of_sentences() {
    let directory = tempfile::tempdir().unwrap();
    let (file, to) = (directory.path().join("a"), directory.path().join("in"));
    fs::write(&file, tree::bytes(2, 500_000)).unwrap();
    fs::create_dir(&to).unwrap();
    let (_recv, line) = receive_here(&to, &[]);
    let output = barograph().arg("send").arg(&file).arg(&line).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("sent 1 file, 500 kB, to 127.0.0.1:"), "{shown}");
    for row in ["  sent again ", "  losses ", "  verified     BLAKE3 of each file, by the receiver\n"] {
        assert!(shown.contains(row), "{row} is not in\n{shown}");
    }
    let output = barograph().arg("send").arg(&file).arg(&line).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "the same again: {told}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("already there: 1 file, identical (500 kB, to 127.0.0.1:"), "{shown}");
    // Existing files are replaced only on request.
    fs::write(&file, tree::bytes(3, 500_000)).unwrap();
    let output = barograph().args(["send", "--quiet"]).arg(&file).arg(&line).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
    assert!(told.contains("--replace"), "{told}");
}

#[test]
fn each_mistake_prints_one_sentence_and_sets_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().to_str().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "a file").unwrap();
    let file = file.to_str().unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    let kept = directory.path().join(".barograph-partial-00");
    fs::create_dir(&kept).unwrap();
    let kept = kept.to_str().unwrap();
    let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut recv =
        Running::start(barograph().arg("recv").arg(directory.path()).args(["--listen", "127.0.0.1:0"]));
    let listening = recv.until("listening");
    assert_eq!(listening["unfinished"], 1);
    let line = listening["lines"][0].as_str().unwrap().to_owned();
    let (start, end) = line.split_at(line.len() - 4);
    let stranger = format!("{start}{}", if end == "AAAA" { "BBBB" } else { "AAAA" });
    let gone = line.replacen(line.split('/').nth(2).unwrap(), &closed_port.to_string(), 1);
    for (arguments, code, words) in [
        (vec!["recv", "/nowhere/at/all"], 2, "does not exist; pass --create to create it"),
        (vec!["recv", file], 2, "is not a directory"),
        (vec!["recv", there, "--quota", "much"], 2, "700MB"),
        (vec!["recv", there, "--udp-ports", "9-8"], 2, "40000-40007"),
        (vec!["recv", there, "--identity", "/nowhere/a.pem"], 2, "/nowhere/a.pem"),
        (vec!["send", file, "north"], 2, "Cannot authenticate north: pass "),
        (vec!["send", file, "brg://nonsense"], 2, "copy the whole address"),
        (vec!["send", &line, file], 2, "the receiver address comes last"),
        (vec!["send", file, file, &line], 1, "two paths would have the name \"file\""),
        (vec!["send", kept, &line], 1, "an unfinished transfer, which cannot be sent"),
        (vec!["recv", there, "--identity", file], 2, "chmod 600"),
        (vec!["send", file, &line, "--controller", "cubic"], 2, "highspeed"),
        (vec!["send", file, &line, "--controller", "fixed"], 2, "--rate"),
        (vec!["send", file, &line, "--rate", "10MB/s"], 2, "multiply bytes by 8"),
        (vec!["send", file, &line, "--model", file], 2, "not a valid model"),
        (vec!["send", file, &line, "--classifier", "learned"], 2, "--keep-windows DIR"),
        (vec!["send", file, &line, "--keep-windows", file], 2, "cannot be created"),
        (vec!["send", "/nowhere", &line], 1, "\"/nowhere\" cannot be read: No such file"),
        (vec!["send", file, &stranger], 1, "use the one it shows now"),
        (vec!["send", file, &gone], 1, "is `barograph recv` running there"),
    ] {
        let (found, stderr) = run(&arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {words} is not in\n{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn the_receiver_decides_about_quota_and_links() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("tree"), directory.path().join("in"));
    tree::mixed(&from, 4, 100_000);
    fs::create_dir(&to).unwrap();
    for (recv, send_options, words) in [
        (vec!["--quota", "50kB", "--links"], vec!["--links"], "--quota"),
        (vec!["--max-files", "9", "--links"], vec!["--links"], "--max-files"),
        (vec![], vec!["--links"], "--links"),
    ] {
        let (_recv, line) = receive_here(&to, &recv);
        let (code, _, stderr) = send(&mut barograph(), &from, &line, &send_options).end();
        assert_eq!(code, Some(1), "{recv:?}: {stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let (_recv, line) = receive_here(&to, &[]);
    let (code, events, stderr) = send(&mut barograph(), &from, &line, &[]).end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(events.iter().any(|event| event["event"] == "notice"), "the link is left out: {events:?}");
    assert!(to.join("tree/large").exists() && !to.join("tree/link").exists());
}

#[test]
fn a_signal_stops_either_end_and_the_same_command_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let (file, to) = (directory.path().join("a"), directory.path().join("in"));
    fs::write(&file, tree::bytes(5, 8_000_000)).unwrap();
    fs::create_dir(&to).unwrap();
    // The transfer takes more than two seconds, so that a signal can stop the transfer.
    let slowly = ["--controller", "fixed", "--rate", "30M"];
    let (recv, line) = receive_here(&to, &[]);
    let mut stopped = send(&mut barograph(), &file, &line, &slowly);
    // On a busy computer, the first progress events may have no bytes.
    while stopped.until("progress")["held_bytes"] == 0 {}
    stopped.signal("INT");
    let (code, events, stderr) = stopped.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("Run the same command again to resume"), "{stderr}");
    assert_eq!(events.last().unwrap()["error"], "stopped");

    let mut again: Running = send(&mut barograph(), &file, &line, &slowly);
    let begun = again.until("begun");
    let held = begun["held_bytes"].as_u64().unwrap();
    assert!(0 < held && held < 8_000_000, "{begun}");
    again.until("progress");
    recv.signal("TERM");
    let (code, _, stderr) = recv.end();
    assert_eq!(code, Some(1), "a transfer was under way: {stderr}");
    let (code, _, stderr) = again.end();
    assert_eq!(code, Some(1));
    assert!(stderr.contains("stopped"), "{stderr}");

    let (recv, line) = receive_here(&to, &[]);
    let done = send_all(&file, &line, &[]);
    assert!(held < done["held_bytes"].as_u64().unwrap(), "{done}");
    assert_eq!(fs::read(to.join("a")).unwrap(), fs::read(&file).unwrap());
    recv.signal("INT");
    assert_eq!(recv.end().0, Some(0), "nothing was under way");
}

#[test]
fn data_is_not_encrypted_if_both_ends_pass_clear() {
    let directory = tempfile::tempdir().unwrap();
    let (file, to) = (directory.path().join("a"), directory.path().join("in"));
    fs::write(&file, tree::bytes(6, 300_000)).unwrap();
    fs::create_dir(&to).unwrap();
    let (_recv, line) = receive_here(&to, &["--clear"]);
    let (code, _, stderr) = send(&mut barograph(), &file, &line, &["--clear"]).end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("not encrypted"), "{stderr}");
    assert_eq!(fs::read(to.join("a")).unwrap(), fs::read(&file).unwrap());
}
