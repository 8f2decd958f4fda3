//! Tests that no path leads out of the destination, and that no existing file in it is lost.

use std::os::unix::fs::symlink;

use tempfile::tempdir;

use super::path::check_target;
use super::*;

fn file(path: &[u8], size: u64) -> ManifestEntry {
    ManifestEntry {
        path: path.to_vec(),
        kind: EntryKind::File { size, extents: None },
        mode: 0o644,
        modified: Modified::default(),
    }
}

fn link(path: &[u8], target: &[u8]) -> ManifestEntry {
    ManifestEntry { kind: EntryKind::Link { target: target.to_vec() }, mode: 0, ..file(path, 0) }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

#[test]
fn symbolic_links_in_a_path_are_not_followed() {
    let (root, outside) = (tempdir().unwrap(), tempdir().unwrap());
    symlink(outside.path(), root.path().join("way")).unwrap();
    let manifest = Manifest::new(vec![file(b"way/in", 3)]).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::LinkInPath(_))));
    assert!(is_clean(&root), "what is refused leaves nothing");

    // A link that appears after the transfer began.
    let manifest = Manifest::new(vec![file(b"late/in", 3)]).unwrap();
    let mut late = destination(root.path(), &manifest).unwrap();
    late.write(0, b"abc").unwrap();
    symlink(outside.path(), root.path().join("late")).unwrap();
    assert!(matches!(late.finish(&[digest(b"abc")]), Err(FileError::LinkInPath(_))));
    let directory = ManifestEntry { kind: EntryKind::Directory, mode: 0o755, ..file(b"late", 0) };
    fs::remove_dir_all(root.path().join(ID.directory())).unwrap();
    let manifest = Manifest::new(vec![directory, file(b"late/in", 3)]).unwrap();
    assert!(destination(root.path(), &manifest).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn symbolic_links_to_outside_targets_are_not_created() {
    for (path, target) in [
        ("a", "/etc"),
        ("a", ".."),
        ("a", "../x"),
        ("d/a", "../../x"),
        ("d/a", "x/../.."),
        ("m", "a/l/../../etc"),
        ("a", "./.."),
        ("a", "//x"),
    ] {
        let wrong = check_target(path.as_bytes(), target.as_bytes());
        assert!(matches!(wrong, Err(PathError::Outside(_))), "{path} to {target}");
    }
    for (path, target) in
        [("a", "b"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("a", "./b"), ("a", "b/"), ("a", "...")]
    {
        assert_eq!(check_target(path.as_bytes(), target.as_bytes()), Ok(()), "{path} to {target}");
    }
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![link(b"a", b"/etc/passwd")]).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::Path(PathError::Outside(_)))));
    let without = Destination::open(root.path(), ID, manifest, DestinationConfig::default());
    assert!(matches!(without, Err(FileError::Link(_))));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing is made of what is refused");
}

#[test]
fn existing_files_stay_unless_replacement_is_requested() {
    let root = tempdir().unwrap();
    let there = root.path().join("f");
    let manifest = Manifest::new(vec![file(b"f", 3)]).unwrap();
    let mut destination_before = destination(root.path(), &manifest).unwrap();
    destination_before.write(0, b"new").unwrap();
    // The file appears after the transfer began.
    fs::write(&there, "old").unwrap();
    assert!(matches!(destination_before.finish(&[digest(b"new")]), Err(FileError::Exists(_))));
    assert_eq!(fs::read(&there).unwrap(), b"old");

    let config = DestinationConfig { replace: true, ..Default::default() };
    let replacing = Destination::open(root.path(), ID, manifest.clone(), config).unwrap();
    replacing.finish(&[digest(b"new")]).unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"new");
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::Exists(_))));

    // A link is replaced, not its target.
    let kept = make(root.path(), "kept", 10);
    fs::remove_file(&there).unwrap();
    symlink(&kept, &there).unwrap();
    let mut replacing = Destination::open(root.path(), ID, manifest, config).unwrap();
    replacing.write(0, b"new").unwrap();
    replacing.finish(&[digest(b"new")]).unwrap();
    assert!(there.symlink_metadata().unwrap().is_file() && fs::read(&kept).unwrap().len() == 10);
    assert!(is_clean(&root));
}

#[test]
fn the_partial_directory_belongs_to_one_user_and_one_transfer() {
    let (root, outside) = (tempdir().unwrap(), tempdir().unwrap());
    let manifest = Manifest::new(vec![file(b"f", 3)]).unwrap();
    let partial = root.path().join(ID.directory());
    symlink(outside.path(), &partial).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::NotOwnDirectory(_))));
    fs::remove_file(&partial).unwrap();
    fs::create_dir(&partial).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&partial, open).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::NotOwnDirectory(_))));
    fs::remove_dir(&partial).unwrap();

    let first = destination(root.path(), &manifest).unwrap();
    assert!(matches!(destination(root.path(), &manifest), Err(FileError::Busy(_))));
    drop(first);
    let other = Manifest::new(vec![file(b"f", 4)]).unwrap();
    assert!(matches!(destination(root.path(), &other), Err(FileError::Journal(_))));
    destination(root.path(), &manifest).unwrap().discard().unwrap();
    assert!(is_clean(&root));
}

#[test]
fn quota_and_disk_space_errors_are_reported_before_any_data_arrives() {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"f", 1 << 50), file(b"g", 0)]).unwrap();
    let open = |config| Destination::open(root.path(), ID, manifest.clone(), config);
    let few = DestinationConfig { entries_max: 1, ..Default::default() };
    assert!(matches!(open(few), Err(FileError::Quota { what: "entries", asked: 2, allowed: 1 })));
    let small = DestinationConfig { bytes_max: (1 << 50) - 1, ..Default::default() };
    assert!(matches!(open(small), Err(FileError::Quota { what: "bytes", .. })));
    assert!(is_clean(&root));
    let allocated = DestinationConfig { allocate: true, ..Default::default() };
    assert!(matches!(open(allocated), Err(FileError::NoRoom { needed: 0x4_0000_0000_0000, .. })));

    let root = tempdir().unwrap();
    let manifest = Manifest::new(vec![file(b"f", 1 << 20)]).unwrap();
    let mut allocated = Destination::open(root.path(), ID, manifest, allocated).unwrap();
    let taken = fs::metadata(root.path().join(ID.directory()).join("00000000")).unwrap();
    assert_eq!((taken.len(), std::os::unix::fs::MetadataExt::blocks(&taken) * 512), (1 << 20, 1 << 20));
    assert!(matches!(allocated.write(1 << 20, b"x"), Err(FileError::OutOfRange { .. })));
}

/// The reply of a receiver with `config` to an offer of `entries`.
fn offered(entries: &[ManifestEntry], config: DestinationConfig) -> Result<(), FileError> {
    let root = tempdir().unwrap();
    let manifest = Manifest::new(entries.to_vec()).unwrap();
    let opened = Destination::open(root.path(), ID, manifest, config).map(drop);
    assert_eq!(is_clean(&root), opened.is_err(), "what is refused leaves nothing");
    opened
}

#[test]
fn parent_directories_count_as_entries() {
    let directory = |path: &[u8]| ManifestEntry { kind: EntryKind::Directory, mode: 0o755, ..file(path, 0) };
    // The entries have nine names: a, b and c; d, e and f; g, h and i.
    let entries = [
        directory(b"a/b"),
        file(b"a/b/c", 0),
        file(b"d/e/f", 0),
        file(b"g", 0),
        directory(b"h"),
        file(b"h/i", 0),
    ];
    for (entries_max, is_taken) in [(8, false), (9, true)] {
        let told = offered(&entries, DestinationConfig { entries_max, ..Default::default() });
        match told {
            Ok(()) => assert!(is_taken),
            Err(FileError::Quota { asked: 9, allowed: 8, .. }) => assert!(!is_taken),
            other => panic!("{other:?}"),
        }
    }
    // Without a configured limit, the limit is that of a manifest's entries.
    let deep = |name: usize| file(&[&b"d/".repeat(250)[..], name.to_string().as_bytes()].concat(), 0);
    let apart = |name: usize| {
        let path = [name.to_string().as_bytes(), &b"/d".repeat(250)].concat();
        file(&path, 0)
    };
    assert!(offered(&(0..5000).map(deep).collect::<Vec<_>>(), Default::default()).is_ok());
    let told = offered(&(0..5000).map(apart).collect::<Vec<_>>(), Default::default());
    assert!(matches!(told, Err(FileError::Quota { asked: 1_255_000, allowed: 0x10_0000, .. })), "{told:?}");
}

#[test]
fn a_quota_counts_whole_blocks_and_at_least_one_block_for_each_name() {
    let sparse = |path: &[u8], extents: &[u64]| {
        let extents = extents.iter().map(|start| *start..start + 1).collect();
        ManifestEntry { kind: EntryKind::File { size: 1 << 40, extents: Some(extents) }, ..file(path, 0) }
    };
    let directory = |path: &[u8]| ManifestEntry { kind: EntryKind::Directory, mode: 0o755, ..file(path, 0) };
    for (entries, blocks) in [
        (vec![file(b"f", 0)], 1),
        (vec![file(b"f", 4096)], 1),
        (vec![file(b"f", 4097)], 2),
        (vec![directory(b"d"), file(b"d/f", 5000)], 3),
        (vec![file(b"d/e/f", 1)], 3),
        // Two bytes in one block, two bytes in two blocks, and a file that is only a hole.
        (vec![sparse(b"a", &[0, 4095]), sparse(b"b", &[4095, 4097]), sparse(b"c", &[])], 4),
        ((0..100).map(|name| link(format!("{name:03}").as_bytes(), b"x")).collect(), 100),
    ] {
        let quota = |bytes_max| DestinationConfig { bytes_max, links: true, ..Default::default() };
        offered(&entries, quota(blocks * 4096)).unwrap();
        let few = offered(&entries, quota((blocks - 1) * 4096));
        assert!(matches!(few, Err(FileError::Quota { .. })), "{entries:?}: {few:?}");
    }
    // The limit is rounded up to whole blocks, so a file of exactly the maximum length is accepted.
    let exact = DestinationConfig { bytes_max: 5000, ..Default::default() };
    offered(&[file(b"f", 5000)], exact).unwrap();
}

#[test]
fn links_created_after_a_path_was_resolved_are_not_followed() {
    let top = tempdir().unwrap();
    let top = fs::canonicalize(top.path()).unwrap();
    make(&top, "secret/key", 5);
    make(&top, "out/deep/file", 5);
    fs::create_dir_all(top.join("in/deep")).unwrap();
    let walk = |path: &str| {
        let config = WalkConfig { forbid_links_in_path: true, links: true, ..Default::default() };
        Source::walk(&[top.join(path)], config).map(|(source, _)| source.manifest().entries().len())
    };
    let manifest = Manifest::new(vec![file(b"file", 0)]).unwrap();
    let open = |path: &str| {
        let config = DestinationConfig { forbid_links_in_path: true, ..Default::default() };
        Destination::open(&top.join(path), ID, manifest.clone(), config).map(drop)
    };
    assert_eq!((walk("out/deep").unwrap(), walk("out/deep/file").unwrap()), (2, 1));
    open("in/deep").unwrap();
    for name in ["in/deep", "out/deep"] {
        fs::rename(top.join(name), top.join(format!("{name}-before"))).unwrap();
        symlink(top.join("secret"), top.join(name)).unwrap();
    }
    symlink("key", top.join("secret/file")).unwrap();
    for path in ["out/deep", "out/deep/key", "secret/file", "out/../secret"] {
        assert!(matches!(walk(path), Err(FileError::LinkInPath(_))), "{path}: {:?}", walk(path));
    }
    assert!(matches!(open("in/deep"), Err(FileError::LinkInPath(_))));
    assert_eq!(fs::read_dir(top.join("secret")).unwrap().count(), 2, "nothing came");
}

/// The forbidden directory is recognised by its inode, because a file system may treat different
/// names as equal.
#[test]
fn no_path_reaches_a_forbidden_directory() {
    let root = tempfile::tempdir().unwrap();
    for name in ["closed", "open"] {
        std::fs::create_dir(root.path().join(name)).unwrap();
    }
    let mut jail = crate::files::jail::Jail::open(root.path(), false).unwrap();
    assert!(jail.parent(b"closed/file", false).unwrap().is_some());
    let mut jail = crate::files::jail::Jail::open(root.path(), false).unwrap();
    jail.close(&rustix::fs::stat(root.path().join("closed")).unwrap());
    assert!(matches!(jail.parent(b"closed/file", true), Err(FileError::LinkInPath(_))));
    assert!(jail.parent(b"open/file", true).unwrap().is_some());
    let capitals = format!("{}0/file", RESERVED_PREFIX.to_uppercase());
    assert!(matches!(jail.parent(capitals.as_bytes(), true), Err(FileError::Path(PathError::Reserved(_)))));
}
