//! Tests of the windows that a sender keeps.

use std::os::unix::fs::PermissionsExt;

use barograph_loss::{LabelledWindow, Meter, parse_window_comment, read_labelled};
use tempfile::tempdir;

use super::super::window_log::{WindowLog, WindowLogError};
use super::*;
use crate::proto::LossAttributor;

/// Text of the newest file.
fn newest(root: &Path) -> String {
    fs::read_to_string(root.join("windows.txt")).unwrap()
}

fn window(lost: u32) -> LabelledWindow {
    let line = format!("3000,{lost}\tburst=16\tdelay_us=20.0\thost_drops={lost}\tcause=cpu\tkind=observed");
    read_labelled(&line, Some(20_000), &mut Meter::new()).unwrap().unwrap()
}

/// Lost packets of the windows in a text.
fn lost(text: &str) -> Vec<u32> {
    let mut meter = Meter::new();
    let read = |line: &str| read_labelled(line, Some(20_000), &mut meter).unwrap();
    text.lines().filter_map(read).map(|window| window.signature.lost()).collect()
}

fn keep(log: &mut WindowLog, window: LabelledWindow) {
    log.push(window, "5f");
    log.write().unwrap();
}

#[test]
fn windows_of_several_processes_are_appended_to_one_private_file() {
    let root = tempdir().unwrap();
    let directory = root.path().join("a/b");
    let (mut one, mut other) = (WindowLog::open(&directory).unwrap(), WindowLog::open(&directory).unwrap());
    keep(&mut one, window(70));
    keep(&mut other, window(80));
    keep(&mut one, window(90));
    let text = newest(&directory);
    assert_eq!(lost(&text), [70, 80, 90]);
    assert!(text.lines().skip(1).all(|line| line.ends_with("\tcause=cpu\tkind=observed\trun=5f")), "{text}");
    let head = parse_window_comment(text.lines().next().unwrap());
    assert_eq!(head.map(u64::from), Some(LossAttributor::WINDOW_PACKETS));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("windows.txt"))), (0o700, 0o600));
}

#[test]
fn a_line_that_was_cut_off_is_removed() {
    let root = tempdir().unwrap();
    keep(&mut WindowLog::open(root.path()).unwrap(), window(70));
    let whole = newest(root.path());
    fs::write(root.path().join("windows.txt"), format!("{whole}3000,8")).unwrap();
    let mut log = WindowLog::open(root.path()).unwrap();
    assert_eq!(newest(root.path()), whole);
    keep(&mut log, window(90));
    assert_eq!(lost(&newest(root.path())), [70, 90]);
}

#[test]
fn the_oldest_windows_are_removed_when_the_files_are_full() {
    let root = tempdir().unwrap();
    let mut log = WindowLog::open(root.path()).unwrap();
    // A comment as long as half a file, after each window.
    let fill = |text: String| {
        let filler = format!("#{}\n", " ".repeat(WindowLog::FILE_BYTES_MAX as usize / 2));
        fs::write(root.path().join("windows.txt"), text + &filler).unwrap();
    };
    for count in 70..74 {
        keep(&mut log, window(count));
        fill(newest(root.path()));
    }
    let bytes = |name: &str| fs::metadata(root.path().join(name)).unwrap().len();
    let older = fs::read_to_string(root.path().join("windows-old.txt")).unwrap();
    assert_eq!((lost(&older), lost(&newest(root.path()))), (vec![70, 71], vec![72, 73]));
    keep(&mut log, window(74));
    let older = fs::read_to_string(root.path().join("windows-old.txt")).unwrap();
    assert_eq!((lost(&older), lost(&newest(root.path()))), (vec![72, 73], vec![74]));
    assert!(bytes("windows.txt") < 200);
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let root = tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(WindowLog::open(root.path()), Err(WindowLogError::NotPrivate(_))));
}

#[test]
fn windows_wait_while_another_process_writes() {
    let root = tempdir().unwrap();
    let mut log = WindowLog::open(root.path()).unwrap();
    let held = fs::File::open(root.path()).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    keep(&mut log, window(70));
    assert_eq!(newest(root.path()), "");
    drop(held);
    keep(&mut log, window(80));
    assert_eq!(lost(&newest(root.path())), [70, 80]);
}
