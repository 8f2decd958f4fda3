//! Two receivers of one directory, where the first receiver is killed.

use super::{barograph, receive_here, send, tree};
use std::fs;

/// Size of the object, in bytes. Sending the object at [`RATE`] takes eight seconds. [`RATE`] is
/// lower than the rate of any disk.
const BYTES: usize = 24_000_000;
const RATE: &str = "24M";
/// Number of bytes that the first receiver has when it is killed. At least half of these bytes must
/// be durable. The other half is sent in two seconds: one second because the receiver makes data
/// durable once a second, and one second more for a busy machine.
const KILLED_BYTES: u64 = 12_000_000;

#[test]
fn the_remaining_bytes_go_to_the_fallback_when_the_receiver_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, to) = (directory.path().join("object"), directory.path().join("to"));
    fs::write(&file, tree::bytes(11, BYTES)).unwrap();
    fs::create_dir(&to).unwrap();
    let (first, line) = receive_here(&to, &[]);
    let (mut second, other) = receive_here(&to, &["--once"]);
    let options = ["--fallback", &other, "--controller", "fixed", "--rate", RATE];
    let mut sender = send(&mut barograph(), &file, &line, &options);
    sender.until("begun");
    while sender.until("progress")["held_bytes"].as_u64().unwrap() < KILLED_BYTES {}
    first.kill();
    let told = sender.until("elsewhere");
    assert_eq!(told["error"], "lost", "{told}");
    let begun = sender.until("begun");
    let held = begun["held_bytes"].as_u64().unwrap();
    assert!(KILLED_BYTES / 2 <= held && held < BYTES as u64, "{begun}");
    let (code, events, stderr) = sender.end();
    assert_eq!(code, Some(0), "{stderr} {events:?}");
    let done = events.last().unwrap();
    assert_eq!(done["held_bytes"], 0, "{done}");
    assert!(done["sent_again_bytes"].as_u64().unwrap() <= KILLED_BYTES / 2, "{done}");
    second.until("done");
    assert!(fs::read(to.join("object")).unwrap() == fs::read(&file).unwrap());
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn receivers_must_all_be_given_by_address_or_all_by_host() {
    let (_recv, line) = receive_here(tempfile::tempdir().unwrap().path(), &[]);
    let (code, _, stderr) = send(&mut barograph(), "/dev/null", &line, &["--or", "host"]).end();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("by receiver address, or all by host"), "{stderr}");
}
