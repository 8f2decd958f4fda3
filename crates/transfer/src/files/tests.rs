#![allow(clippy::unwrap_used)]

mod full;
mod hash_cache;
mod jailed;
mod journal;
mod large;
mod resumed;
mod sent;
mod severe;
mod window_log;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

const ID: TransferId = TransferId([7; 16]);

/// Pseudo-random bytes, the same for each seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn source(path: &Path) -> Source {
    let (source, notices) =
        Source::walk(&[path.into()], WalkConfig { links: true, ..Default::default() }).unwrap();
    assert_eq!(notices, []);
    source
}

fn destination(root: &Path, manifest: &Manifest) -> Result<Destination, FileError> {
    Destination::open(
        root,
        ID,
        manifest.clone(),
        DestinationConfig { links: true, files_open: 3, ..Default::default() },
    )
}

/// Divides the object into packets of 1000 bytes, in an order that depends on `seed`. Sends those
/// of the first `packets` packets that the destination does not have.
fn send(source: &mut Source, destination: &mut Destination, seed: u64, packets: usize) {
    let bytes = source.manifest().bytes();
    let mut starts: Vec<u64> = (0..bytes.div_ceil(1000)).map(|packet| packet * 1000).collect();
    let keys = noise(seed, starts.len() * 2);
    starts.sort_by_key(|start| (start / 40_000, keys[*start as usize / 1000 * 2]));
    for start in starts.into_iter().take(packets) {
        let range = start..bytes.min(start + 1000);
        let missing: Vec<_> = destination.held().gaps(&range).collect();
        for part in missing {
            let mut payload = vec![0; (part.end - part.start) as usize];
            source.read(part.start, &mut payload).unwrap();
            destination.write(part.start, &payload).unwrap();
        }
    }
}

/// Creates a file of `bytes` below `root`.
fn make(root: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, noise(bytes as u64, bytes)).unwrap();
    path
}

/// Whether no directory of an unfinished transfer is left.
fn is_clean(root: &TempDir) -> bool {
    fs::read_dir(root.path())
        .unwrap()
        .all(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with(RESERVED_PREFIX))
}
