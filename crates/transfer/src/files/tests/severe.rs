//! Tests of crashes at each step, of files that other programs change, and of permissions that deny
//! access.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use tempfile::tempdir;

use super::*;

fn file(path: &[u8], size: u64, mode: u16) -> ManifestEntry {
    let modified = Modified { seconds: 1_000_000, nanos: 5 };
    ManifestEntry { path: path.to_vec(), kind: EntryKind::File { size, extents: None }, mode, modified }
}

fn directory(path: &[u8], mode: u16) -> ManifestEntry {
    ManifestEntry { kind: EntryKind::Directory, ..file(path, 0, mode) }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// Returns whether this user is an ordinary user. If this user is root, runs the test `name` in a
/// process of an ordinary user, and returns `false`.
fn is_ordinary(name: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    let output = run.arg(own).args(["--exact", name]).env("TMPDIR", "/tmp").output();
    match output {
        Ok(output) if output.status.code() != Some(127) && output.status.code() != Some(126) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        _ => barograph_sim::report_skipped(&format!(
            "{name}: no setpriv, or the tests are not an ordinary user's to run"
        )),
    }
    false
}

/// Removes the hashes from the journal, like a crash between its records.
fn lose_nodes(root: &Path, manifest: &Manifest) {
    use std::os::fd::AsFd;
    let path = root.join(ID.directory());
    let partial = fs::File::open(&path).unwrap();
    let (mut journal, mut kept) =
        Journal::open(partial.as_fd(), &path, ID, &manifest.digest(), manifest.bytes()).unwrap();
    kept.nodes.clear();
    journal.replace(&kept).unwrap();
}

#[test]
fn received_ranges_are_not_written_again() {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"f", 600_000, 0o644)]).unwrap();
    let bytes = noise(1, 600_000);
    let mut written = destination(root.path(), &manifest).unwrap();
    written.write(300_000, &bytes[300_000..310_000]).unwrap();
    let mut other = bytes.clone();
    other[300_000..310_000].fill(0);
    written.write(0, &other).unwrap();
    written.write(0, &vec![7; 600_000]).unwrap();
    written.finish(&[digest(&bytes)]).unwrap();
    assert!(fs::read(root.path().join("f")).unwrap() == bytes);
}

#[test]
fn directories_without_owner_permissions_can_be_received_and_finished_again() {
    if !is_ordinary(
        "files::tests::severe::directories_without_owner_permissions_can_be_received_and_finished_again",
    ) {
        return;
    }
    for mode in [0o000, 0o111, 0o333, 0o444, 0o555] {
        for many in [0, 100] {
            let root = tempdir().unwrap();
            let mut entries = vec![
                directory(b"d", mode),
                directory(b"d/e", mode),
                file(b"d/e/f", 3, 0o000),
                file(b"d/g", 3, 0o400),
            ];
            entries.extend((0..many).map(|index| file(format!("x{index}").as_bytes(), 0, 0o644)));
            let manifest = Manifest::new(entries).unwrap();
            let digests: Vec<_> = manifest
                .files()
                .map(|(_, entry)| digest(if entry.stored() == 0 { b"" } else { b"abc" }))
                .collect();
            let mut first = destination(root.path(), &manifest).unwrap();
            first.write(0, b"abcabc").unwrap();
            first.sync().unwrap();
            first.prepare().unwrap();
            first.rename_all().unwrap();
            drop(first);
            // The session was killed after all files had their names. The next session completes
            // the transfer.
            destination(root.path(), &manifest).unwrap().finish(&digests).unwrap();
            assert!(is_clean(&root));
            let path = root.path().join("d");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, u32::from(mode), "{mode:o}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            let below = fs::metadata(path.join("e")).unwrap();
            assert_eq!((below.mode() & 0o7777, below.mtime()), (u32::from(mode), 1_000_000));
            fs::set_permissions(path.join("e"), fs::Permissions::from_mode(0o700)).unwrap();
            assert_eq!(fs::metadata(path.join("e/f")).unwrap().mode() & 0o7777, 0);
        }
    }
}

#[test]
fn verified_files_keep_their_modes_if_the_journal_lost_records() {
    if !is_ordinary("files::tests::severe::verified_files_keep_their_modes_if_the_journal_lost_records") {
        return;
    }
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"a", 3, 0o400), file(b"b", 3, 0o000)]).unwrap();
    let mut first = destination(root.path(), &manifest).unwrap();
    first.write(0, b"abcabc").unwrap();
    first.sync().unwrap();
    first.prepare().unwrap();
    drop(first);
    lose_nodes(root.path(), &manifest);
    let second = destination(root.path(), &manifest).unwrap();
    assert!(matches!(second.finish(&[]), Err(FileError::Digests(0, 2))));
    destination(root.path(), &manifest).unwrap().finish(&[digest(b"abc"); 2]).unwrap();
    for (name, mode) in [("a", 0o400), ("b", 0o000)] {
        let metadata = fs::metadata(root.path().join(name)).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (mode, 1_000_000), "{name}");
    }
}

#[test]
fn a_stopped_verification_reads_no_further_and_loses_no_data() {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"f", 600_000, 0o644)]).unwrap();
    let bytes = noise(1, 600_000);
    let mut first = destination(root.path(), &manifest).unwrap();
    first.write(0, &bytes).unwrap();
    first.sync().unwrap();
    drop(first);
    lose_nodes(root.path(), &manifest);
    let digests = [digest(&bytes)];
    for is_stopped in [true, false] {
        let opened = destination(root.path(), &manifest).unwrap();
        let ended = opened.rename_files(&digests, &AtomicBool::new(is_stopped));
        assert_eq!(matches!(ended, Err(FileError::Stopped)), is_stopped, "{ended:?}");
        assert_eq!(root.path().join("f").exists(), !is_stopped);
    }
    assert!(fs::read(root.path().join("f")).unwrap() == bytes);
}

#[test]
fn a_file_that_has_its_final_name_is_not_created_again() {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"a", 3, 0o644), file(b"b", 3, 0o644)]).unwrap();
    let config = DestinationConfig { replace: true, ..Default::default() };
    let open = || Destination::open(root.path(), ID, manifest.clone(), config).unwrap();
    let mut first = open();
    first.write(0, b"abcabc").unwrap();
    first.sync().unwrap();
    first.prepare().unwrap();
    drop(first);
    lose_nodes(root.path(), &manifest);
    fs::rename(root.path().join(ID.directory()).join("00000000"), root.path().join("a")).unwrap();
    let mut second = open();
    assert!(second.digest(0).is_err(), "its hash is lost");
    second.finish(&[digest(b"abc"); 2]).unwrap();
    assert_eq!(fs::read(root.path().join("a")).unwrap(), b"abc");
}

#[test]
fn files_get_their_names_after_a_kill_at_any_step() {
    let names = ["a", "b", "d/c", "d/e/f"];
    for given in 0..=names.len() {
        for has_both in [false, true] {
            for replace in [false, true] {
                let root = tempdir().unwrap();
                let entries = names.iter().map(|name| file(name.as_bytes(), 3, 0o644));
                let manifest = Manifest::new(entries.chain([directory(b"d", 0o555)]).collect()).unwrap();
                let config = DestinationConfig { replace, ..Default::default() };
                let open = || Destination::open(root.path(), ID, manifest.clone(), config).unwrap();
                let mut first = open();
                first.write(0, b"abcabcabcabc").unwrap();
                first.sync().unwrap();
                first.prepare().unwrap();
                drop(first);
                for (index, entry) in manifest.files().take(given) {
                    let from = root.path().join(ID.directory()).join(format!("{index:08x}"));
                    let to = root.path().join(entry.shown());
                    fs::create_dir_all(to.parent().unwrap()).unwrap();
                    // A file system without an exclusive rename takes two steps: link, then unlink.
                    if has_both { fs::hard_link(from, to) } else { fs::rename(from, to) }.unwrap();
                }
                open().finish(&[digest(b"abc"); 4]).unwrap();
                assert!(is_clean(&root));
                for name in names {
                    assert_eq!(fs::read(root.path().join(name)).unwrap(), b"abc");
                }
            }
        }
    }
}

#[test]
fn a_session_ends_its_locks_although_a_child_process_has_copies_of_the_descriptors() {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"f", 3, 0o644)]).unwrap();
    let first = destination(root.path(), &manifest).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::Busy(_))));
    let _copies = first.copies_of_locks();
    drop(first);
    destination(root.path(), &manifest).unwrap();
}

#[test]
fn missing_or_truncated_partial_files_are_received_again() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    for name in ["a", "b", "c"] {
        make(&from.path().join("t"), name, 300_000);
    }
    let mut source = source(&from.path().join("t"));
    let manifest = source.manifest().clone();
    let mut first = destination(to.path(), &manifest).unwrap();
    send(&mut source, &mut first, 1, usize::MAX);
    first.sync().unwrap();
    drop(first);
    let partial = to.path().join(ID.directory());
    fs::remove_file(partial.join("00000001")).unwrap();
    fs::File::options().write(true).open(partial.join("00000002")).unwrap().set_len(5).unwrap();
    // Open the destination twice, to show that the journal also records the discarded files.
    for _ in 0..2 {
        let second = destination(to.path(), &manifest).unwrap();
        assert!(second.held().iter().eq([&(600_000..900_000)]));
    }
    let mut third = destination(to.path(), &manifest).unwrap();
    send(&mut source, &mut third, 1, usize::MAX);
    third.finish(&source.digests().unwrap()).unwrap();
    assert!(fs::read(to.path().join("t/a")).unwrap() == fs::read(from.path().join("t/a")).unwrap());
}

#[test]
fn a_foreign_directory_with_the_partial_name_stays_unchanged() {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"f", 3, 0o644)]).unwrap();
    let partial = root.path().join(ID.directory());
    // The name of the partial directory belongs to a directory of the user.
    let there = make(&partial, "00000000", 10);
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::NotOwnDirectory(_))));
    assert_eq!(fs::read(&there).unwrap().len(), 10);
    fs::remove_file(there).unwrap();
    // The earlier session was killed before its journal was complete.
    fs::write(partial.join("journal.new"), "half").unwrap();
    let mut opened = destination(root.path(), &manifest).unwrap();
    // A FIFO is opened without waiting, and refused.
    let fifo = partial.join("00000000");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(matches!(opened.write(0, b"abc"), Err(FileError::NotOwnDirectory(_))));
    drop(opened);
    fs::remove_file(partial.join("journal")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, partial.join("journal"), rustix::fs::Mode::from_raw_mode(0o600))
        .unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::NotOwnDirectory(_))));
}

#[test]
fn modification_times_of_any_age_are_accepted() {
    for seconds in [i64::MIN, -62_135_596_800, -1, 0, 1 << 33, i64::MAX] {
        let root = tempdir().unwrap();
        let modified = Modified { seconds, nanos: 999_999_999 };
        let manifest = Manifest::new(vec![
            ManifestEntry { modified, ..file(b"d/f", 0, 0o644) },
            ManifestEntry { modified, ..directory(b"d", 0o755) },
        ])
        .unwrap();
        destination(root.path(), &manifest).unwrap().finish(&[digest(b"")]).unwrap();
        if (-1..1 << 34).contains(&seconds) {
            assert_eq!(fs::metadata(root.path().join("d/f")).unwrap().mtime(), seconds);
        }
    }
}

#[test]
fn long_names_arrive_and_fifos_are_replaced_unopened() {
    let root = tempdir().unwrap();
    let long = [b'x'; 255];
    let manifest = Manifest::new(vec![file(&long, 0, 0o644), file(b"p", 0, 0o644)]).unwrap();
    let fifo = root.path().join("p");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::Exists(_))));
    let config = DestinationConfig { replace: true, ..Default::default() };
    let replacing = Destination::open(root.path(), ID, manifest, config).unwrap();
    replacing.finish(&[digest(b""); 2]).unwrap();
    assert!(fs::symlink_metadata(fifo).unwrap().is_file());
    assert!(root.path().join(std::str::from_utf8(&long).unwrap()).exists());
}
