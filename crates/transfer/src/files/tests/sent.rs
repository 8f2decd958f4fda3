//! Tests that all files that are sent arrive, and that changes during a transfer are detected.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::tempdir;

use super::*;

#[test]
fn a_received_tree_equals_the_sent_tree() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let tree = from.path().join("tree");
    let group = GROUP_BYTES as usize;
    for (name, bytes) in
        [("a/one", 1), ("a/exact", group), ("b", 3 * group + 17), ("empty", 0), ("small", 999)]
    {
        make(&tree, name, bytes);
    }
    (0..300).for_each(|index| drop(make(&tree, &format!("many/{index}"), index * 7 % 500)));
    let odd = tree.join(OsStr::from_bytes(b"caf\xe9\n\x1b[31m"));
    fs::write(&odd, b"Latin 1").unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(&noise(3, 70_000), 5 << 20).unwrap();
    sparse.write_all_at(b"end", (64 << 20) - 3).unwrap();
    File::create(tree.join("hole")).unwrap().set_len(1 << 30).unwrap();
    symlink("a/one", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    fs::set_permissions(tree.join("a/one"), Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(tree.join("a"), Permissions::from_mode(0o555)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::new(86_400, 123_456_789);
    File::open(tree.join("small")).unwrap().set_modified(old).unwrap();

    let mut source = source(&tree);
    let manifest = Manifest::decode(&source.manifest().encode()).unwrap();
    assert!(manifest.bytes() < 2 << 20, "holes are not sent, where the file system has them");
    let mut destination = destination(to.path(), &manifest).unwrap();
    send(&mut source, &mut destination, 1, usize::MAX);
    let digests = source.digests().unwrap();
    destination.finish(&digests).unwrap();

    assert!(is_clean(&to));
    let came = to.path().join("tree");
    for entry in manifest.entries() {
        let path = OsStr::from_bytes(&entry.path);
        let (sent, got) = (from.path().join(path), to.path().join(path));
        let (before, after) = (fs::symlink_metadata(&sent).unwrap(), fs::symlink_metadata(&got).unwrap());
        assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()), "{path:?}");
        assert_eq!(before.file_type(), after.file_type());
        if before.is_symlink() {
            assert_eq!(fs::read_link(&sent).unwrap(), fs::read_link(&got).unwrap());
        } else {
            assert_eq!(before.mode() & 0o777, after.mode() & 0o7777, "{path:?}");
        }
        if before.is_file() && before.len() < 1 << 30 {
            assert!(fs::read(&sent).unwrap() == fs::read(&got).unwrap(), "{path:?}");
        }
    }
    for (name, size) in [("sparse", 64 << 20), ("hole", 1 << 30)] {
        let hole = fs::metadata(came.join(name)).unwrap();
        assert!(hole.len() == size && hole.blocks() * 512 < 1 << 20, "its holes are holes");
    }
    let of_b = manifest.files().position(|(_, entry)| entry.path == b"tree/b").unwrap();
    assert_eq!(digests[of_b], *blake3::hash(&fs::read(tree.join("b")).unwrap()).as_bytes());
    for root in [&tree, &came] {
        fs::set_permissions(root.join("a"), Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_file_that_changes_is_named_in_the_error() {
    let from = tempdir().unwrap();
    let path = make(from.path(), "file", 3 * GROUP_BYTES as usize);
    let mut packet = [0; 1000];

    let mut shrinks = source(&path);
    shrinks.read(0, &mut packet).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(300_000).unwrap();
    let error = shrinks.read(2 * GROUP_BYTES, &mut packet).unwrap_err();
    assert!(
        matches!(&error, FileError::Shrank { path: named, end: 300_000, .. } if named.ends_with("file")),
        "{error}"
    );

    let mut grows = source(&path);
    File::options().append(true).open(&path).unwrap().write_all_at(b"more", 0).unwrap();
    assert!(matches!(grows.read(0, &mut packet), Err(FileError::Changed(_))));

    let mut replaced = source(&path);
    let bytes = replaced.manifest().bytes();
    replaced.read(0, &mut packet).unwrap();
    replaced.read(bytes - 1000, &mut packet).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let other = make(from.path(), "other", bytes as usize);
    File::open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &path).unwrap();
    let entry = replaced.manifest().files().next().unwrap().0;
    assert!(matches!(replaced.digest(entry), Err(FileError::Changed(_))), "another inode");
    assert!(matches!(replaced.read(bytes, &mut packet), Err(FileError::OutOfRange { .. })));
}

#[test]
fn a_link_given_as_a_path_is_followed_and_names_the_entry() {
    let from = tempdir().unwrap();
    make(from.path(), "tree/file", 5);
    for (link, target, names) in [
        ("way", "tree/file", vec!["way"]),
        ("further", "way", vec!["further"]),
        ("folder", "tree", vec!["folder", "folder/file"]),
    ] {
        symlink(target, from.path().join(link)).unwrap();
        for links in [false, true] {
            let config = WalkConfig { links, ..Default::default() };
            let (source, notices) = Source::walk(&[from.path().join(link)], config).unwrap();
            let found: Vec<_> = source.manifest().entries().iter().map(|entry| &entry.path[..]).collect();
            assert_eq!((found, notices), (names.iter().map(|name| name.as_bytes()).collect(), vec![]));
            assert_eq!(source.manifest().bytes(), 5);
        }
    }
    symlink("nowhere", from.path().join("broken")).unwrap();
    let broken = Source::walk(&[from.path().join("broken")], WalkConfig::default());
    assert!(matches!(broken, Err(FileError::Io { .. })));
}

#[test]
fn files_that_cannot_be_sent_are_reported() {
    let from = tempdir().unwrap();
    make(from.path(), "tree/file", 5);
    let tree = from.path().join("tree");
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    symlink("/etc/passwd", tree.join("link")).unwrap();
    make(&tree, ".barograph-partial-00/journal", 9);
    let (source, mut notices) = Source::walk(std::slice::from_ref(&tree), WalkConfig::default()).unwrap();
    notices.sort_by_key(|notice| format!("{notice:?}"));
    let tree = fs::canonicalize(tree).unwrap();
    assert_eq!(
        notices,
        [
            SkippedPath::Link(tree.join("link")),
            SkippedPath::Special(tree.join("pipe"), "a FIFO"),
            SkippedPath::Special(tree.join("socket"), "a socket"),
            SkippedPath::Unfinished(tree.join(".barograph-partial-00")),
        ]
    );
    assert_eq!(source.manifest().entries().len(), 2);
    symlink("file", tree.join("within")).unwrap();
    let links = WalkConfig { links: true, ..Default::default() };
    let (source, notices) = Source::walk(std::slice::from_ref(&tree), links).unwrap();
    assert!(notices.contains(&SkippedPath::LinkLeadsOut(tree.join("link"), "/etc/passwd".into())));
    assert_eq!(source.manifest().entries().len(), 3, "the link within is sent");
    let refuse = WalkConfig { special: SpecialFilePolicy::Refuse, ..Default::default() };
    assert!(matches!(Source::walk(std::slice::from_ref(&tree), refuse), Err(FileError::Special(..))));
    assert!(matches!(Source::walk(&["/dev/null".into()], refuse), Err(FileError::Special(_, "a device"))));
    let unfinished = Source::walk(&[tree.join(".barograph-partial-00")], WalkConfig::default());
    assert!(matches!(unfinished, Err(FileError::Special(_, "an unfinished transfer"))), "named, so meant");
    assert!(matches!(Source::walk(&["/".into()], refuse), Err(FileError::Nameless(_))));
    assert!(matches!(Source::walk(&[tree.join("absent")], refuse), Err(FileError::Io { .. })));
    let twice = Source::walk(&[tree.join("file"), tree.join("file")], refuse);
    assert!(matches!(twice, Err(FileError::Manifest(ManifestError::Order(_)))));
    // A named link is followed, and keeps the given name.
    let (named, _) = Source::walk(&[tree.join("link")], refuse).unwrap();
    assert_eq!(named.manifest().entries()[0].path, b"link");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_hash_tree_gives_the_same_digest_for_any_order_of_groups(groups in 0usize..20, rest in 0usize..3000, order in any::<u64>()) {
        let file = noise(order, groups * GROUP_BYTES as usize + rest);
        let mut tree = Tree::new(file.len() as u64);
        let keys = noise(order ^ 5, groups + 1);
        let mut parts: Vec<(usize, &[u8])> = file.chunks(GROUP_BYTES as usize).enumerate().collect();
        parts.sort_by_key(|(group, _)| keys[*group]);
        for (group, bytes) in parts {
            prop_assert_eq!(tree.root(), None);
            tree.insert_bytes(group as u64, bytes);
            prop_assert!(tree.contains(group as u64));
        }
        let mut again = Tree::new(file.len() as u64);
        tree.nodes().for_each(|(level, index, value)| assert!(again.insert(level, index, *value)));
        let root = Some(*blake3::hash(&file).as_bytes());
        prop_assert_eq!((tree.root(), again.root()), (root, root));
        // The tree keeps one node for each 1 bit in the number of groups, and one node for the last
        // group.
        prop_assert!(tree.nodes().count() <= 7);
    }
}

#[test]
fn hashing_beforehand_gives_the_same_digests() {
    let from = tempdir().unwrap();
    let paths = [make(from.path(), "a", 700_000), make(from.path(), "b", 0), make(from.path(), "c", 5)];
    let (mut source, _) = Source::walk(&paths, WalkConfig::default()).unwrap();
    let (mut at, mut steps) = (0, 0);
    while at < source.manifest().bytes() {
        (at, steps) = (source.hash_at(at).unwrap(), steps + 1);
    }
    assert_eq!((at, steps), (700_005, 4), "groups of 256 KiB of one file, and the other");
    assert!(matches!(source.hash_at(at), Err(FileError::OutOfRange { end: 700_006, .. })));
    let wanted: Vec<[u8; 32]> =
        paths.iter().map(|path| *blake3::hash(&fs::read(path).unwrap()).as_bytes()).collect();
    assert_eq!(source.digests().unwrap(), wanted);
}
