#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use proptest::prelude::*;

use super::*;

fn file(path: &[u8], size: u64, extents: Option<Vec<Range<u64>>>) -> ManifestEntry {
    let modified = Modified { seconds: -3, nanos: 999_999_999 };
    ManifestEntry { path: path.to_vec(), kind: EntryKind::File { size, extents }, mode: 0o640, modified }
}

fn with(path: &[u8], kind: EntryKind) -> ManifestEntry {
    ManifestEntry { path: path.to_vec(), kind, mode: 0, modified: Modified::default() }
}

#[test]
fn object_offsets_continue_across_files_and_skip_holes() {
    let manifest = Manifest::new(vec![
        file(b"d/a", 10, None),
        with(b"d", EntryKind::Directory),
        file(b"d/empty", 0, None),
        file(b"d/holes", 100, Some(vec![10..15, 90..100])),
        file(b"d/only-a-hole", 1 << 40, Some(vec![])),
        file(b"e\xff", 7, None),
    ])
    .unwrap();
    assert_eq!(manifest.bytes(), 10 + 15 + 7);
    let pieces: Vec<_> =
        manifest.pieces(5..u64::MAX).map(|piece| (piece.entry, piece.object, piece.at)).collect();
    assert_eq!(pieces, [(1, 5..10, 5), (3, 10..15, 10), (3, 15..25, 90), (5, 25..32, 0)]);
    assert_eq!(manifest.pieces(17..18).map(|piece| piece.at).collect::<Vec<_>>(), [92]);
    assert_eq!(manifest.pieces(32..40).count(), 0);
    assert_eq!(manifest.range(3), 10..25);
    assert_eq!(manifest.files().count(), 5);
    assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
}

/// The example of `docs/spec/transfer.md` §7.
#[test]
fn manifest_bytes_match_the_specification() {
    let at = |seconds, nanos| Modified { seconds, nanos };
    let entry =
        |path: &[u8], kind, mode, modified| ManifestEntry { path: path.to_vec(), kind, mode, modified };
    let manifest = Manifest::new(vec![
        entry(b"l", EntryKind::Link { target: b"d/a".to_vec() }, 0, at(0, 0)),
        entry(b"d/s", EntryKind::File { size: 100, extents: Some(vec![10..15, 90..100]) }, 0o600, at(-1, 0)),
        entry(b"d/a", EntryKind::File { size: 3, extents: None }, 0o644, at(2, 5)),
        entry(b"d", EntryKind::Directory, 0o755, at(1, 0)),
    ])
    .unwrap();
    let shown = [
        &[0x42, 0x47, 0x4d, 0x01, 0x04][..],
        &[0x02, 0x01, 0x64, 0x41, 0xed, 0, 0, 0, 0, 0, 0, 0, 1, 0x00],
        &[0x00, 0x03, 0x64, 0x2f, 0x61, 0x41, 0xa4, 0, 0, 0, 0, 0, 0, 0, 2, 0x05, 0x03],
        &[0x01, 0x03, 0x64, 0x2f, 0x73, 0x41, 0x80, 255, 255, 255, 255, 255, 255, 255, 255, 0x00],
        &[0x40, 0x64, 0x02, 0x0a, 0x05, 0x40, 0x4b, 0x0a],
        &[0x03, 0x01, 0x6c, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x03, 0x64, 0x2f, 0x61],
    ]
    .concat();
    assert_eq!((manifest.encode(), manifest.bytes()), (shown.clone(), 18));
    assert_eq!(Manifest::decode(&shown), Ok(manifest));
}

#[test]
fn invalid_manifests_are_refused() {
    let error = |entries: Vec<ManifestEntry>| Manifest::new(entries).unwrap_err();
    for path in [
        &b""[..],
        b"/etc/passwd",
        b"a//b",
        b"a/",
        b"..",
        b"../x",
        b"a/../b",
        b"a/./b",
        b"a\0b",
        b"x/.barograph-partial-1/y",
    ] {
        assert!(matches!(error(vec![file(path, 1, None)]), ManifestError::Path(_)), "{path:?}");
    }
    for long in [vec![b'x'; 256], b"xy/".repeat(1400), b"a/".repeat(300)] {
        assert!(matches!(error(vec![file(&long, 1, None)]), ManifestError::Path(PathError::TooLong(_))));
    }
    assert!(matches!(error(vec![file(b"a", 1, None), file(b"a", 2, None)]), ManifestError::Order(_)));
    let link = || with(b"a", EntryKind::Link { target: b"/etc".to_vec() });
    let below = error(vec![link(), file(b"a b", 1, None), file(b"a/passwd", 1, None)]);
    assert!(matches!(below, ManifestError::Below(_)), "{below}");
    assert!(Manifest::new(vec![link(), file(b"ab/c", 1, None)]).is_ok());
    for extents in [vec![0..0], vec![0..5, 5..7], vec![5..7, 0..2], vec![8..11], vec![0..10]] {
        assert!(matches!(error(vec![file(b"a", 10, Some(extents))]), ManifestError::Field(..)));
    }
    assert!(matches!(error(vec![file(b"a", 0, Some(vec![]))]), ManifestError::Field(..)));
    for entry in [
        ManifestEntry { mode: 0o4755, ..file(b"a", 1, None) },
        ManifestEntry { modified: Modified { seconds: 0, nanos: 1_000_000_000 }, ..file(b"a", 1, None) },
        with(b"a", EntryKind::Link { target: vec![] }),
        with(b"a", EntryKind::Link { target: b"x\0".to_vec() }),
        file(b"a", NUMBER_MAX + 1, None),
    ] {
        assert!(matches!(error(vec![entry]), ManifestError::Field(..)));
    }
    let most = Manifest::new(vec![file(b"a", NUMBER_MAX, None)]).unwrap();
    assert_eq!(Manifest::decode(&most.encode()), Ok(most));
    let sum = error(vec![file(b"a", NUMBER_MAX, None), file(b"b", 1, None)]);
    assert!(matches!(sum, ManifestError::TooMany(..)));
}

#[test]
fn entries_are_ordered_by_path_component() {
    let manifest =
        Manifest::new(vec![file(b"a b", 1, None), file(b"a/b", 1, None), with(b"a", EntryKind::Directory)])
            .unwrap();
    let paths: Vec<_> = manifest.entries().iter().map(|entry| &entry.path[..]).collect();
    assert_eq!(paths, [&b"a"[..], b"a/b", b"a b"]);
}

#[test]
fn the_longest_manifest_fits_the_limit_for_its_number_of_entries() {
    let name = |at: u8| [&[b'a' + at][..], &b"/bcdefghijklmno".repeat(255)].concat();
    for long in [
        with(&name(0), EntryKind::Link { target: vec![b'x'; 4095] }),
        ManifestEntry {
            mode: 0o777,
            ..file(
                &name(0),
                NUMBER_MAX,
                Some((1..1 << 10).map(|at| at << 40..(at << 40) + (1 << 39)).collect()),
            )
        },
    ] {
        let bytes = Manifest::new(vec![long]).unwrap().encode().len() as u64;
        assert!(bytes <= Manifest::encoded_bytes_max(1), "{bytes} bytes");
    }
    let more = |entries| Manifest::encoded_bytes_max(entries + 1) - Manifest::encoded_bytes_max(entries);
    assert_eq!((more(0), more(1)), (8209, 8209), "two paths of 4097 bytes with their lengths, and 15");
    assert_eq!(Manifest::encoded_bytes_max(u64::MAX), ENCODED_BYTES_MAX as u64);
}

#[test]
fn a_large_number_of_entries_allocates_no_memory() {
    let mut bytes = b"BGM\x01".to_vec();
    crate::proto::wire::varint::put(&mut bytes, ENTRIES_MAX as u64);
    assert_eq!(Manifest::decode(&bytes), Err(ManifestError::Wire(WireError::Truncated("an entry"))));
    bytes.truncate(4);
    crate::proto::wire::varint::put(&mut bytes, ENTRIES_MAX as u64 + 1);
    assert!(matches!(Manifest::decode(&bytes), Err(ManifestError::TooMany(..))));
}

/// Appends a sparse file with `extents` extents of two bytes each: a hole of a byte, and a byte of
/// data.
fn put_sparse(bytes: &mut Vec<u8>, name: u8, extents: usize) {
    use crate::proto::wire::varint;
    bytes.extend([1, 1, name, 0]);
    bytes.extend([0; 9]);
    varint::put(bytes, 2 * extents as u64);
    varint::put(bytes, extents as u64);
    bytes.extend([1, 1].repeat(extents));
}

#[test]
fn too_many_extents_are_refused_before_allocation() {
    for extents in [&[4 * EXTENTS_MAX][..], &[EXTENTS_MAX, 1], &[3, EXTENTS_MAX - 2]] {
        let mut bytes = b"BGM\x01".to_vec();
        crate::proto::wire::varint::put(&mut bytes, extents.len() as u64);
        let named = extents.iter().zip(b'a'..);
        named.for_each(|(extents, name)| put_sparse(&mut bytes, name, *extents));
        let all: usize = extents.iter().sum();
        let taken = allocation_counter::measure(|| {
            let most = EXTENTS_MAX as u64;
            assert_eq!(Manifest::decode(&bytes), Err(ManifestError::TooMany(all as u64, "extents", most)));
        });
        // The maximum number of extents needs 16 MiB of memory: 16 bytes for each extent.
        assert!(taken.bytes_max <= 17 << 20, "{extents:?}: {} bytes", taken.bytes_max);
    }
    let mut bytes = b"BGM\x01\x02".to_vec();
    put_sparse(&mut bytes, b'a', EXTENTS_MAX / 2);
    put_sparse(&mut bytes, b'b', EXTENTS_MAX / 2);
    assert_eq!(Manifest::decode(&bytes).unwrap().bytes(), EXTENTS_MAX as u64);
}

/// Files of one byte each, in a thousand directories.
fn many(entries: usize) -> Manifest {
    let path = |number: usize| format!("directory-{:03}/file-{number:07}", number % 1000);
    let all = (0..entries).map(|number| file(path(number).as_bytes(), 1, None)).collect();
    Manifest::new(all).unwrap()
}

/// Encodes and decodes a manifest, and finds each file by its offset, as a receiver does.
fn is_read_and_found(manifest: &Manifest) {
    let entries = manifest.entries().len();
    let bytes = manifest.encode();
    // Each entry has a path of 26 bytes and 17 other bytes; the head has 8.
    assert!(bytes.len() <= 43 * entries + 8, "{} bytes", bytes.len());
    let read = Manifest::decode(&bytes).unwrap();
    assert!(read == *manifest);
    // Search once for each file. If a search read all of the 10^5 entries, all searches together
    // would read 10^10 entries.
    for at in 0..entries as u64 {
        assert_eq!(read.pieces(at..at + 1).map(|piece| piece.entry as u64).collect::<Vec<_>>(), [at]);
    }
}

#[test]
fn a_hundred_thousand_files_are_read_and_found() {
    is_read_and_found(&many(100_000));
}

/// Shows the memory of a million files. To run it:
/// `cargo test --release -p barograph-transfer --features files -- --ignored --nocapture a_million`
#[test]
#[ignore = "what it shows, a hundred thousand show; it tells the memory"]
fn a_million_files() {
    let manifest = many(1_000_000);
    is_read_and_found(&manifest);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    println!("{} bytes; {most}", manifest.encode().len());
}

fn any_entry() -> impl Strategy<Value = ManifestEntry> {
    let path =
        prop::collection::vec(prop::collection::vec(1u8.., 1..4), 1..4).prop_map(|names| names.join(&b'/'));
    let kind = prop_oneof![
        (0..=NUMBER_MAX >> 8, prop::option::of(prop::collection::vec(1u64..1000, 0..6))).prop_map(
            |(size, cuts)| {
                let extents = cuts.map(|cuts| {
                    let mut at = 0;
                    cuts.chunks_exact(2)
                        .map(|cut| {
                            let start = at + cut[0];
                            at = start + cut[1];
                            start..at
                        })
                        .collect()
                });
                EntryKind::File { size: size.max(1 << 20), extents }
            }
        ),
        Just(EntryKind::Directory),
        prop::collection::vec(1u8.., 1..9).prop_map(|target| EntryKind::Link { target }),
    ];
    (path, kind, 0u16..=0o777, any::<i64>(), 0u32..1_000_000_000).prop_map(
        |(path, kind, mode, seconds, nanos)| {
            let mode = if matches!(kind, EntryKind::Link { .. }) { 0 } else { mode };
            ManifestEntry { path, kind, mode, modified: Modified { seconds, nanos } }
        },
    )
}

proptest! {
    #[test]
    fn an_encoded_manifest_decodes_to_the_same_manifest(entries in prop::collection::vec(any_entry(), 0..12), at in 0u64..1 << 40, more in 0u64..1 << 30) {
        // Some lists of entries are not a manifest: for example, an entry is below a file, or two
        // entries have the same path.
        let Ok(manifest) = Manifest::new(entries) else { return Ok(()) };
        let bytes = manifest.encode();
        prop_assert_eq!(&Manifest::decode(&bytes).unwrap(), &manifest);
        prop_assert!(Manifest::decode(&bytes[..bytes.len() - 1]).is_err());
        let mut end = at;
        for piece in manifest.pieces(at..at + more) {
            prop_assert_eq!(piece.object.start, end);
            prop_assert!(piece.object.start < piece.object.end);
            let of = manifest.range(piece.entry);
            prop_assert!(of.start <= end && piece.object.end <= of.end);
            end = piece.object.end;
        }
        prop_assert_eq!(end, (at + more).min(manifest.bytes()).max(at));
    }

    #[test]
    fn any_bytes_decode_to_a_manifest_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::testkit::fuzz::fuzz_manifest(&bytes);
        crate::testkit::fuzz::fuzz_manifest(&[b"BGM\x01", &bytes[..]].concat());
    }
}
