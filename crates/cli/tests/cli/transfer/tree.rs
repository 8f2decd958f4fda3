//! Trees of files to transfer, and their comparison afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use barograph_sim::SeededRng;

/// Random bytes, the same for the same seed.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = SeededRng::new(seed, 0);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// A directory with all kinds of entries: large and small files, an empty file, a file with holes,
/// a file with an unusual name, a program and a link.
pub(crate) fn mixed(at: &Path, seed: u64, large_bytes: usize) {
    fs::create_dir_all(at.join("deep/er")).unwrap();
    fs::create_dir(at.join("hollow")).unwrap();
    fs::write(at.join("large"), bytes(seed, large_bytes)).unwrap();
    fs::write(at.join("empty"), "").unwrap();
    for i in 0..100 {
        fs::write(at.join(format!("deep/{i}")), bytes(seed + i, 17 * i as usize)).unwrap();
    }
    fs::write(at.join("deep/er/name with \u{1b}[2J, ü and \n"), "odd").unwrap();
    fs::write(at.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    sparse.write_all_at(b"island", 2 << 20).unwrap();
    symlink("large", at.join("link")).unwrap();
}

/// Properties of an entry: mode, modification time, and the content of a file or the target of a
/// link.
type Node = (u32, (i64, i64), Vec<u8>);

/// All entries below a directory.
pub(crate) fn read(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut nodes = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        let at = root.join(&path);
        let metadata = fs::symlink_metadata(&at).unwrap();
        let times = (metadata.mtime(), metadata.mtime_nsec());
        let node = if metadata.is_dir() {
            open.extend(fs::read_dir(&at).unwrap().map(|entry| path.join(entry.unwrap().file_name())));
            (metadata.mode() & 0o777, times, Vec::new())
        } else if metadata.is_symlink() {
            // A link's own mode and time are not transferred.
            (0, (0, 0), fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes())
        } else {
            (metadata.mode() & 0o777, times, fs::read(&at).unwrap())
        };
        nodes.insert(path, node);
    }
    nodes
}

pub(crate) fn assert_same(sent: &Path, received: &Path) {
    let (sent, received) = (read(sent), read(received));
    assert_eq!(sent.keys().collect::<Vec<_>>(), received.keys().collect::<Vec<_>>());
    for (path, node) in &sent {
        let other = &received[path];
        assert_eq!((node.0, node.1), (other.0, other.1), "{path:?}: mode and time");
        assert!(node.2 == other.2, "{path:?} has other bytes");
    }
}
