//! Tests that write-back of large files starts while they are received.

use tempfile::tempdir;

use super::*;

#[test]
fn a_large_file_written_in_two_sessions_has_the_right_digest() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    let bytes = 40 << 20;
    let path = from.path().join("file");
    let noise = noise(5, 1 << 20);
    fs::write(&path, noise.repeat(40)).unwrap();
    let mut source = source(&path);
    let manifest = source.manifest().clone();
    let digest = source.digest(0).unwrap();
    assert_eq!(digest, *blake3::hash(&fs::read(&path).unwrap()).as_bytes());
    let mut first = destination(to.path(), &manifest).unwrap();
    // Groups are incomplete when write-back starts, and the system may then drop them from memory.
    let part = 300_000;
    let parts = || (0..bytes).step_by(part).map(|at| at..bytes.min(at + part));
    let at = |range: &std::ops::Range<usize>| range.clone().map(|at| noise[at % (1 << 20)]);
    for range in parts().filter(|range| range.start / part % 3 != 1) {
        first.write(range.start as u64, &at(&range).collect::<Vec<_>>()).unwrap();
    }
    first.sync().unwrap();
    drop(first);
    let mut second = destination(to.path(), &manifest).unwrap();
    for range in parts().filter(|range| range.start / part % 3 == 1) {
        second.write(range.start as u64, &at(&range).collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(second.digest(0).unwrap(), digest);
    second.finish(&[digest]).unwrap();
    assert!(fs::read(to.path().join("file")).unwrap() == fs::read(&path).unwrap());
}
