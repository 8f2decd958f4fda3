//! Time to read and write files, compared with the time of the disk alone.
//!
//! `cargo bench -p barograph-transfer --features files,testkit --bench files -- [DIRECTORY] [MIB]`
//!
//! The same run also measures the disk alone and the hash alone. Only ratios of these figures are
//! meaningful.

#![allow(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use barograph_transfer::testkit::files::{
    Destination, DestinationConfig, GROUP_BYTES, Manifest, Source, TransferId, WalkConfig,
};

const MIB: usize = 1 << 20;
/// Number of bytes that are written between two syncs, the same as in a session.
const SYNC_BYTES: usize = 256 * MIB;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let root = args.next().unwrap_or_else(|| std::env::temp_dir().to_str().unwrap().into());
    let bytes = args.next().map_or(512, |arg| arg.parse().unwrap()) * MIB;
    let root = tempfile::tempdir_in(root).unwrap();
    let root = root.path();
    let noise: Vec<u8> =
        (0..8 * MIB as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let packet = |at: usize, bytes: usize| &noise[at % (4 * MIB)..][..bytes];

    let start = Instant::now();
    for at in (0..bytes).step_by(GROUP_BYTES as usize) {
        std::hint::black_box(blake3::hash(packet(at, GROUP_BYTES as usize)));
    }
    print("BLAKE3 alone, groups", bytes, start.elapsed(), None);

    // Remove each file before the next measurement, so that the measurement reuses freed memory:
    // pages that were never used before cost more.
    let plain = root.join("plain");
    for round in 0..3 {
        println!("round {round}");
        for size in [1428, 64 * 1428, MIB] {
            let (lasted, longest) = write_plain(&plain, bytes, packet);
            fs::remove_file(&plain).unwrap();
            print("write and fdatasync alone, 1 MiB", bytes, lasted, Some(longest));
            let (lasted, longest) = write(root, bytes, size, packet);
            print(&format!("Destination::write, {size} B"), bytes, lasted, Some(longest));
        }
    }
    write_plain(&plain, bytes, packet);
    for round in 0..2 {
        println!("round {round}");
        read(&plain, bytes);
    }
    fs::remove_file(plain).unwrap();
    many(root, packet);
}

fn print(what: &str, bytes: usize, lasted: Duration, longest: Option<Duration>) {
    let rate = bytes as f64 / lasted.as_secs_f64() / 1e9;
    let longest =
        longest.map_or(String::new(), |time| format!(", longest sync {:.0} ms", time.as_secs_f64() * 1e3));
    println!("{what:40} {rate:6.2} GB/s{longest}");
}

fn write_plain<'a>(
    path: &Path,
    bytes: usize,
    packet: impl Fn(usize, usize) -> &'a [u8],
) -> (Duration, Duration) {
    let start = Instant::now();
    let file = File::create(path).unwrap();
    file.set_len(bytes as u64).unwrap();
    let mut longest = Duration::ZERO;
    for at in (0..bytes).step_by(MIB) {
        file.write_all_at(packet(at, MIB), at as u64).unwrap();
        if (at + MIB).is_multiple_of(SYNC_BYTES) || at + MIB == bytes {
            let start = Instant::now();
            file.sync_data().unwrap();
            longest = longest.max(start.elapsed());
        }
    }
    (start.elapsed(), longest)
}

fn write<'a>(
    root: &Path,
    bytes: usize,
    size: usize,
    packet: impl Fn(usize, usize) -> &'a [u8],
) -> (Duration, Duration) {
    let entry = barograph_transfer::testkit::files::ManifestEntry {
        path: b"file".to_vec(),
        kind: barograph_transfer::testkit::files::EntryKind::File { size: bytes as u64, extents: None },
        mode: 0o644,
        modified: Default::default(),
    };
    let manifest = Manifest::new(vec![entry]).unwrap();
    let mut to =
        Destination::open(root, TransferId([1; 16]), manifest, DestinationConfig::default()).unwrap();
    let start = Instant::now();
    let (mut longest, mut synced) = (Duration::ZERO, 0);
    for at in (0..bytes).step_by(size) {
        to.write(at as u64, packet(at, size.min(bytes - at))).unwrap();
        if synced + SYNC_BYTES <= at || bytes <= at + size {
            let start = Instant::now();
            to.sync().unwrap();
            longest = longest.max(start.elapsed());
            synced = at;
        }
    }
    let lasted = start.elapsed();
    to.digest(0).unwrap();
    to.discard().unwrap();
    (lasted, longest)
}

fn read(path: &Path, bytes: usize) {
    let mut out = vec![0; MIB];
    let start = Instant::now();
    let file = File::open(path).unwrap();
    for at in (0..bytes).step_by(MIB) {
        file.read_exact_at(&mut out, at as u64).unwrap();
    }
    print("read alone, cached, 1 MiB", bytes, start.elapsed(), None);
    for size in [1428, 64 * 1428, MIB] {
        let (mut source, _) = Source::walk(&[path.into()], WalkConfig::default()).unwrap();
        let start = Instant::now();
        for at in (0..bytes).step_by(size) {
            source.read(at as u64, &mut out[..size.min(bytes - at)]).unwrap();
        }
        print(&format!("Source::read, {size} B"), bytes, start.elapsed(), None);
        let start = Instant::now();
        for at in (0..bytes).step_by(size) {
            source.read(at as u64, &mut out[..size.min(bytes - at)]).unwrap();
        }
        print(&format!("Source::read again, {size} B"), bytes, start.elapsed(), None);
    }
}

/// Writes 10^4 files of 4 KiB each. Only the first six batches of files are synced.
fn many<'a>(root: &Path, packet: impl Fn(usize, usize) -> &'a [u8]) {
    let from = root.join("many");
    fs::create_dir(&from).unwrap();
    let (files, size) = (10_000, 4096);
    for file in 0..files {
        fs::write(from.join(format!("{file}")), packet(file, size)).unwrap();
    }
    let (mut source, _) = Source::walk(std::slice::from_ref(&from), WalkConfig::default()).unwrap();
    let mut out = vec![0; MIB];
    let bytes = source.manifest().bytes();
    let start = Instant::now();
    for at in (0..bytes).step_by(MIB) {
        source.read(at, &mut out[..MIB.min((bytes - at) as usize)]).unwrap();
    }
    source.digests().unwrap();
    println!("{files} files of {size} B read and hashed in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    for each in [8, 32, 128, 512] {
        let manifest = source.manifest().clone();
        let to = root.join("to");
        fs::create_dir(&to).unwrap();
        let start = Instant::now();
        let mut to_all =
            Destination::open(&to, TransferId([1; 16]), manifest, DestinationConfig::default()).unwrap();
        let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
        let step = each * size;
        for at in (0..bytes).step_by(step) {
            to_all.write(at, &packet(0, MIB.max(step))[..step.min((bytes - at) as usize)]).unwrap();
            if 6 * step <= at as usize {
                continue;
            }
            let start = Instant::now();
            to_all.sync().unwrap();
            longest = longest.max(start.elapsed());
            all += start.elapsed();
        }
        let written = start.elapsed();
        println!(
            "{each:6} files a sync: all written in {:.0} ms, sync {:.2} ms a file, longest {:.0} ms",
            written.as_secs_f64() * 1e3,
            all.as_secs_f64() * 1e3 / (files.min(each * 6)) as f64,
            longest.as_secs_f64() * 1e3
        );
        to_all.discard().unwrap();
        fs::remove_dir_all(to).unwrap();
    }
}
