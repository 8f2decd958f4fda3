//! A receiver's disk that becomes full.

use std::fs;
use std::path::Path;
use std::process::Command;

use barograph_transfer::io::RefuseReason;
use barograph_transfer::io::SessionError;
use tempfile::tempdir;

use super::common::*;

const DISK: &str = "BAROGRAPH_TEST_SMALL_DISK";

#[test]
fn a_full_disk_is_reported_at_both_ends_and_the_transfer_resumes() {
    if let Some(disk) = std::env::var_os(DISK) {
        return on_a_small_disk(Path::new(&disk));
    }
    // Mount the file system in a new namespace, because this also works for ordinary users.
    let disk = tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$0\" && exec \"$@\"";
    let within = |command: &[&std::ffi::OsStr]| {
        let mut run = Command::new("unshare");
        run.args(["-rm", "sh", "-c", script]).arg(disk.path()).args(command).env(DISK, disk.path());
        run.output()
    };
    if !within(&["true".as_ref()]).is_ok_and(|output| output.status.success()) {
        barograph_sim::report_skipped("a disk that fills: no namespace with a file system of its own");
        return;
    }
    let (_, here) = module_path!().split_once("::").unwrap();
    let name = format!("{here}::a_full_disk_is_reported_at_both_ends_and_the_transfer_resumes");
    let own = std::env::current_exe().unwrap();
    let output = within(&[own.as_ref(), "--exact".as_ref(), name.as_ref()]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn on_a_small_disk(disk: &Path) {
    let from = tempdir().unwrap();
    let path = from.path().join("file");
    fs::write(&path, noise(1, 3 << 20)).unwrap();
    let filler = disk.join("filler");
    fs::write(&filler, noise(2, 2 << 20)).unwrap();
    let served = Served::new(config(disk), false);
    let ours = sent(to_send(&path, served.to())).unwrap_err();
    let SessionError::Refused { reason: RefuseReason::Full, text } = &ours else { panic!("{ours:?}") };
    assert!(text.contains("file") && text.contains("free some space and start the transfer again"), "{text}");
    let theirs = served.ended().unwrap_err().to_string();
    assert!(theirs.contains("no space left for"), "{theirs}");

    fs::remove_file(filler).unwrap();
    let summary = sent(to_send(&path, served.to())).unwrap();
    assert!(summary.held_bytes > 0, "{summary:?}");
    assert!(fs::read(disk.join("file")).unwrap() == fs::read(&path).unwrap());
}
