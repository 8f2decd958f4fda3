//! Tests that a restarted sender reads again only bytes that may have changed.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use tempfile::tempdir;

use super::*;

const BYTES: usize = 5 * GROUP_BYTES as usize + 7;

/// Changes a file's bytes, and restores its size and time of modification.
fn rewrite(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let metadata = file.metadata().unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(&noise(99, metadata.len() as usize), 0).unwrap();
    file.set_modified(metadata.modified().unwrap()).unwrap();
}

/// Changes a file's status until the time of its status differs. One change may not be enough,
/// because the file system's clock advances in ticks.
fn touch(path: &Path) {
    use std::os::unix::fs::MetadataExt;
    let changed = || fs::metadata(path).map(|now| (now.ctime(), now.ctime_nsec())).unwrap();
    let before = changed();
    for _ in 0..1_000_000 {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        if changed() != before {
            return;
        }
    }
    panic!("a clock that stands still");
}

#[test]
fn a_file_rewritten_with_the_same_size_and_time_is_hashed_again() {
    let from = tempdir().unwrap();
    let path = make(from.path(), "file", BYTES);
    touch(&path);
    let mut source = source(&path);
    let mut packet = [0; 1000];
    source.read(0, &mut packet).unwrap();
    let before = source.digest(0).unwrap();
    touch(&path);
    rewrite(&path);
    let now = *blake3::hash(&fs::read(&path).unwrap()).as_bytes();
    assert_ne!(now, before);
    assert_eq!(source.digest(0).unwrap(), now);
    // A change of the file's permissions does not change the digest.
    touch(&path);
    let (mut all, mut all_at_once) = (vec![0; BYTES], vec![0; BYTES]);
    all.chunks_mut(999).enumerate().for_each(|(at, out)| source.read(at as u64 * 999, out).unwrap());
    source.read(0, &mut all_at_once).unwrap();
    assert!(all == all_at_once && all == fs::read(&path).unwrap());
    assert_eq!(source.digest(0).unwrap(), now);
    // If the status changes too often, the file counts as changed.
    let end = (0..100).find_map(|_| {
        touch(&path);
        source.digest(0).err()
    });
    assert!(matches!(end, Some(FileError::Changed(_))));
}

#[test]
fn hashes_are_kept_for_the_next_sender() {
    let (from, state) = (tempdir().unwrap(), tempdir().unwrap());
    let path = make(from.path(), "tree/file", BYTES);
    make(from.path(), "tree/small", 100);
    let tree = from.path().join("tree");
    let keeping = state.path().join("barograph/sending");
    let remembering = || {
        let mut source = source(&tree);
        source.use_hash_cache_older(&keeping, ID, -1).unwrap();
        source
    };
    let mut first = remembering();
    let mut most = vec![0; 4 * GROUP_BYTES as usize + 100];
    first.read(0, &mut most).unwrap();
    assert!(matches!(source(&tree).use_hash_cache(&keeping, ID), Err(FileError::Busy(_))));
    drop(first);

    // A restarted sender has the hashes of the groups that were read before.
    let entry = 1;
    let digest = *blake3::hash(&fs::read(&path).unwrap()).as_bytes();
    let mut second = remembering();
    let read = |source: &Source| (0..6).map(|group| source.is_hashed(entry, group)).collect::<Vec<_>>();
    assert_eq!(read(&second), [true, true, true, true, true, false]);
    assert_eq!(second.digest(entry).unwrap(), digest);
    drop(second);
    let third = remembering();
    assert_eq!(read(&third), [true; 6]);
    drop(third);

    // If the journal is cut or has a flipped bit, the sender uses the records before the damage.
    let journal = keeping.join(ID.directory()).join("journal");
    let whole = fs::read(&journal).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes.truncate(whole.len() - at % 3);
        fs::write(&journal, bytes).unwrap();
        assert_eq!(remembering().digest(entry).unwrap(), digest, "{at}");
        fs::write(&journal, &whole).unwrap();
    }

    // No kept hash is used for a file that was replaced or rewritten.
    fs::write(&journal, &whole).unwrap();
    touch(&path);
    rewrite(&path);
    let mut fourth = remembering();
    assert_eq!(read(&fourth), [false; 6]);
    let digest = *blake3::hash(&fs::read(&path).unwrap()).as_bytes();
    assert_eq!(fourth.digest(entry).unwrap(), digest);
    fourth.remove_hash_cache().unwrap();
    assert_eq!(fs::read_dir(&keeping).unwrap().count(), 0, "nothing is left");
    assert!(!read(&remembering()).contains(&true));
}

#[test]
fn hashes_of_recently_changed_files_are_not_kept() {
    let (from, state) = (tempdir().unwrap(), tempdir().unwrap());
    let path = make(from.path(), "file", BYTES);
    for _ in 0..2 {
        let mut source = source(&path);
        // Files are fresh for a day.
        source.use_hash_cache_older(state.path(), ID, 86_400).unwrap();
        assert!(!source.is_hashed(0, 0));
        source.digest(0).unwrap();
    }
    // No hashes are kept of a file that changed while it was sent.
    let mut touched = source(&path);
    touched.use_hash_cache_older(state.path(), ID, -1).unwrap();
    touched.digest(0).unwrap();
    touch(&path);
    touched.digest(0).unwrap();
    drop(touched);
    let mut next = source(&path);
    next.use_hash_cache_older(state.path(), ID, -1).unwrap();
    assert!(!next.is_hashed(0, 0));
}

#[test]
fn the_hash_cache_stays_small() {
    let (from, state) = (tempdir().unwrap(), tempdir().unwrap());
    let tree = from.path().join("tree");
    let files = 5000;
    (0..files).for_each(|index| drop(make(&tree, &format!("{index}"), 10)));
    let mut source = source(&tree);
    source.use_hash_cache_older(state.path(), ID, -1).unwrap();
    let digests = source.digests().unwrap();
    // The journal is written while the file is read, not only when the source is dropped.
    let journal = state.path().join(ID.directory()).join("journal");
    assert!(4096 * 34 < fs::metadata(&journal).unwrap().len());
    drop(source);
    let mut again = super::source(&tree);
    again.use_hash_cache_older(state.path(), ID, -1).unwrap();
    assert!(again.manifest().files().all(|(entry, _)| again.is_hashed(entry, 0)));
    assert_eq!(again.digests().unwrap(), digests);
}
