//! Tests that a killed transfer resumes where it was interrupted.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use rangemap::RangeSet;
use tempfile::tempdir;

use super::*;

fn tree(root: &Path) -> PathBuf {
    for (name, bytes) in
        [("a", 700_000), ("b", 10), ("d/c", 300_001), ("d/empty", 0), ("e", GROUP_BYTES as usize)]
    {
        make(&root.join("tree"), name, bytes);
    }
    root.join("tree")
}

fn assert_same(from: &Path, to: &Path) {
    for name in ["a", "b", "d/c", "d/empty", "e"] {
        assert!(
            fs::read(from.join("tree").join(name)).unwrap() == fs::read(to.join("tree").join(name)).unwrap()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn only_synced_ranges_are_held_after_a_restart(
        steps in prop::collection::vec((0u64..1000, 1u64..400_000, any::<bool>()), 1..12),
        cut in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
        let mut source = source(&tree(from.path()));
        let manifest = source.manifest().clone();
        let path = to.path().join(ID.directory()).join("journal");
        let mut destination_one = destination(to.path(), &manifest).unwrap();
        let (mut written, mut synced) = (RangeSet::new(), vec![(fs::metadata(&path).unwrap().len(), RangeSet::new())]);
        for (place, bytes, is_synced) in steps {
            let start = manifest.bytes() * place / 1000;
            let end = manifest.bytes().min(start + bytes);
            let mut payload = vec![0; (end - start) as usize];
            source.read(start, &mut payload).unwrap();
            destination_one.write(start, &payload).unwrap();
            written.insert(start..end);
            if is_synced {
                destination_one.sync().unwrap();
                synced.push((fs::metadata(&path).unwrap().len(), written.clone()));
            }
        }
        drop(destination_one);
        // The process may be killed at any byte while it writes the journal.
        let head = synced[0].0 as usize;
        let bytes = fs::read(&path).unwrap();
        let torn = head + cut.index(bytes.len() - head + 1);
        fs::write(&path, &bytes[..torn]).unwrap();

        let mut destination_two = destination(to.path(), &manifest).unwrap();
        let held = destination_two.held().clone();
        let last = synced.iter().rposition(|(end, _)| *end <= torn as u64).unwrap();
        let least = &synced[last].1;
        let most = &synced[(last + 1).min(synced.len() - 1)].1;
        for range in least.iter() {
            prop_assert!(held.gaps(range).next().is_none(), "all that was synced before");
        }
        for range in held.iter() {
            prop_assert!(most.gaps(range).next().is_none(), "nothing that was not");
        }
        send(&mut source, &mut destination_two, seed, usize::MAX);
        destination_two.finish(&source.digests().unwrap()).unwrap();
        assert_same(from.path(), to.path());
        prop_assert!(is_clean(&to));
    }
}

#[test]
fn a_transfer_resumes_many_times() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let path = tree(from.path());
    let mut sessions = 0;
    loop {
        // Each session has a new source and a new destination.
        let mut source = source(&path);
        let mut destination = destination(to.path(), &source.manifest().clone()).unwrap();
        let held: u64 = destination.held().iter().map(|range| range.end - range.start).sum();
        assert_eq!(held, (sessions * 200 * 1000).min(source.manifest().bytes()), "nothing is sent twice");
        send(&mut source, &mut destination, 1, (sessions as usize + 1) * 200);
        destination.sync().unwrap();
        sessions += 1;
        if destination.missing() == 0 {
            destination.finish(&source.digests().unwrap()).unwrap();
            break;
        }
    }
    assert!(sessions > 5, "{sessions}");
    assert_same(from.path(), to.path());
}

#[test]
fn hashes_of_durable_groups_are_kept() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let mut source = source(&tree(from.path()));
    let manifest = source.manifest().clone();
    let mut first = destination(to.path(), &manifest).unwrap();
    send(&mut source, &mut first, 1, usize::MAX);
    first.sync().unwrap();
    drop(first);
    // Durable data is not read again: the digest is right although the file was damaged.
    let entry = manifest.files().next().unwrap().0;
    fs::write(to.path().join(ID.directory()).join(format!("{entry:08x}")), vec![0; 700_000]).unwrap();
    let digest = destination(to.path(), &manifest).unwrap().digest(entry).unwrap();
    assert_eq!(digest, source.digest(entry).unwrap());
}

#[test]
fn a_file_with_a_wrong_digest_is_received_again() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let mut source = source(&tree(from.path()));
    let manifest = source.manifest().clone();
    let digests = source.digests().unwrap();
    let mut first = destination(to.path(), &manifest).unwrap();
    first.write(700_000 - 1, &[0xAA]).unwrap();
    send(&mut source, &mut first, 1, usize::MAX);
    let error = first.finish(&digests).unwrap_err();
    assert!(matches!(&error, FileError::Digest(path) if path.ends_with("tree/a")), "{error}");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1, "no file has its name");

    let mut second = destination(to.path(), &manifest).unwrap();
    assert_eq!(second.missing(), 700_000);
    assert!(matches!(second.digest(1), Err(FileError::Incomplete { missing: 700_000 })));
    send(&mut source, &mut second, 1, usize::MAX);
    assert!(matches!(second.digest(1), Ok(digest) if digest == digests[0]));
    second.finish(&digests).unwrap();
    assert_same(from.path(), to.path());
}

#[test]
fn an_incomplete_transfer_gives_no_file_its_name() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let mut source = source(&tree(from.path()));
    let digests = source.digests().unwrap();
    let open = || destination(to.path(), source.manifest()).unwrap();
    assert!(matches!(open().finish(&digests), Err(FileError::Incomplete { .. })));
    let mut all = open();
    all.write(0, &vec![0; source.manifest().bytes() as usize]).unwrap();
    assert!(matches!(all.finish(&digests[1..]), Err(FileError::Digests(4, 5))));
}

#[test]
fn remaining_files_get_their_names_after_a_crash() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let path = tree(from.path());
    for name in ["a", "d/c"] {
        let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o400);
        fs::set_permissions(path.join(name), read_only).unwrap();
    }
    let mut source = source(&path);
    let manifest = source.manifest().clone();
    let digests = source.digests().unwrap();
    let mut first = destination(to.path(), &manifest).unwrap();
    send(&mut source, &mut first, 1, usize::MAX);
    first.sync().unwrap();
    first.prepare().unwrap();
    drop(first);
    // The session is killed when some files already have their names.
    let partial = to.path().join(ID.directory());
    let (b, _) = manifest.files().find(|(_, entry)| entry.path == b"tree/b").unwrap();
    fs::create_dir(to.path().join("tree")).unwrap();
    fs::rename(partial.join(format!("{b:08x}")), to.path().join("tree/b")).unwrap();
    destination(to.path(), &manifest).unwrap().finish(&digests).unwrap();
    assert_same(from.path(), to.path());
    assert!(is_clean(&to));
}

#[test]
fn a_sender_that_missed_done_receives_done_if_the_files_are_unchanged() {
    use std::time::{Duration, SystemTime};
    type Act = fn(&Path);
    let away: [(&str, Act); 4] = [
        ("nothing", |_| ()),
        ("taken away", |path| fs::remove_file(path).unwrap()),
        ("another time", |path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(60)).unwrap();
        }),
        ("another in its place", |path| {
            let modified = fs::metadata(path).unwrap().modified().unwrap();
            fs::write(path, "another").unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
        }),
    ];
    for (what, act) in away {
        let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
        let mut source = source(&tree(from.path()));
        let manifest = source.manifest().clone();
        let digests = source.digests().unwrap();
        let mut first = destination(to.path(), &manifest).unwrap();
        send(&mut source, &mut first, 1, usize::MAX);
        drop(first.rename_files(&digests, &AtomicBool::new(false)).unwrap());
        assert_same(from.path(), to.path());

        act(&to.path().join("tree/a"));
        match destination(to.path(), &manifest) {
            Ok(again) if what == "nothing" => {
                assert_eq!(again.missing(), 0);
                again.rename_files(&digests, &AtomicBool::new(false)).unwrap().remove_journal().unwrap();
                assert_same(from.path(), to.path());
                assert!(is_clean(&to));
            }
            // The other files have their names already, so the transfer is refused like any
            // finished one.
            Err(FileError::Exists(_)) if what != "nothing" => {}
            other => panic!("{what}: {:?}", other.map(|again| again.missing())),
        }
        // If all files were removed, all files are received again.
        fs::remove_dir_all(to.path().join("tree")).unwrap();
        let mut anew = destination(to.path(), &manifest).unwrap();
        assert_eq!(anew.missing(), manifest.bytes(), "{what}");
        send(&mut source, &mut anew, 1, usize::MAX);
        anew.finish(&digests).unwrap();
        assert_same(from.path(), to.path());
        assert!(is_clean(&to));
    }
}
