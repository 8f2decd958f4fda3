//! Tests with a disk that becomes full.

use std::process::Command;

use tempfile::tempdir;

use super::*;

const DISK: &str = "BAROGRAPH_TEST_SMALL_DISK";
const DISK_BYTES: usize = 2 << 20;

#[test]
fn a_full_disk_is_reported_and_the_transfer_resumes() {
    if let Some(disk) = std::env::var_os(DISK) {
        return on_a_small_disk(Path::new(&disk));
    }
    // Mount the file system in a separate namespace, because such a mount needs no root privileges.
    let root = tempdir().unwrap();
    let disk = root.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script = format!("mount -t tmpfs -o size={DISK_BYTES} none \"$0\" && exec \"$@\"");
    let within = |command: &[&std::ffi::OsStr]| {
        let mut run = Command::new("unshare");
        run.args(["-rm", "sh", "-c", &script]).arg(&disk).args(command).env(DISK, &disk);
        run.output()
    };
    if !within(&["true".as_ref()]).is_ok_and(|output| output.status.success()) {
        barograph_sim::report_skipped("a disk that fills: no namespace with a file system of its own");
        return;
    }
    let name = "files::tests::full::a_full_disk_is_reported_and_the_transfer_resumes";
    let own = std::env::current_exe().unwrap();
    let output = within(&[own.as_ref(), "--exact".as_ref(), name.as_ref()]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Space that an earlier session allocated is not required again.
fn goes_on_in_what_it_allocated(disk: &Path) {
    let from = tempdir().unwrap();
    let mut source = source(&make(from.path(), "file", 5 << 18));
    let manifest = source.manifest().clone();
    let early = DestinationConfig { allocate: true, ..Default::default() };
    let mut first = Destination::open(disk, ID, manifest.clone(), early).unwrap();
    send(&mut source, &mut first, 1, 10);
    first.sync().unwrap();
    drop(first);
    Destination::open(disk, ID, manifest, early).unwrap().discard().unwrap();
}

/// A directory that is on a different file system is refused before anything is received, because
/// files cannot be renamed into it.
fn refuses_what_is_mounted_below(disk: &Path) {
    let root = disk.parent().unwrap();
    let name = disk.file_name().unwrap().to_str().unwrap();
    let entry = |path: String| ManifestEntry {
        path: path.into_bytes(),
        kind: EntryKind::File { size: 3, extents: None },
        mode: 0o644,
        modified: Modified::default(),
    };
    let manifest = Manifest::new(vec![entry(format!("{name}/f"))]).unwrap();
    assert!(matches!(destination(root, &manifest), Err(FileError::Mounted(_))));
    assert!(!root.join(ID.directory()).exists(), "what is refused leaves nothing");
}

fn on_a_small_disk(disk: &Path) {
    goes_on_in_what_it_allocated(disk);
    refuses_what_is_mounted_below(disk);
    let from = tempdir().unwrap();
    let mut source = source(&make(from.path(), "file", 1 << 20));
    let manifest = source.manifest().clone();
    let filler = make(disk, "filler", 3 << 19);

    let early = DestinationConfig { allocate: true, ..Default::default() };
    let early = Destination::open(disk, ID, manifest.clone(), early);
    assert!(matches!(early, Err(FileError::NoRoom { needed: 0x10_0000, .. })));

    let mut first = destination(disk, &manifest).unwrap();
    let mut packet = vec![0; 1 << 12];
    let mut at = 0;
    let full = loop {
        source.read(at, &mut packet).unwrap();
        match first.write(at, &packet) {
            Ok(()) => at += packet.len() as u64,
            Err(error) => break error,
        }
        if at % (1 << 16) == 0 {
            first.sync().unwrap();
        }
    };
    assert!(matches!(&full, FileError::Full { path, .. } if path.ends_with("file")), "{full}");
    assert!(full.to_string().contains("no space left for"), "{full}");
    assert!(1 << 18 < at && at < 1 << 20);
    drop(first);

    // The disk is still full, but the destination opens and has all synced ranges.
    let mut second = destination(disk, &manifest).unwrap();
    let held: u64 = second.held().iter().map(|range| range.end - range.start).sum();
    assert_eq!(held, at & !0xFFFF, "all that was synced");
    fs::remove_file(filler).unwrap();
    send(&mut source, &mut second, 1, usize::MAX);
    second.finish(&source.digests().unwrap()).unwrap();
    assert!(fs::read(disk.join("file")).unwrap() == fs::read(from.path().join("file")).unwrap());
}
