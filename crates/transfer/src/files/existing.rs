//! Compares files that already exist under their final names with the files of a sender.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, openat, readlinkat, seek, statat};
use rustix::io::Errno;

use super::jail::Jail;
use super::{DestinationConfig, EntryKind, FileError, Manifest, ManifestEntry};

/// A manifest of which all entries exist already, with the same sizes. This type never writes.
#[derive(Debug)]
pub struct ExistingFiles {
    jail: Jail,
    manifest: Manifest,
}

impl ExistingFiles {
    /// Finds all entries below the directory `root`: files by size, links by target. Permissions
    /// and times are not compared. `None` if an entry is missing or differs. Errors: a path through
    /// a link or to another file system; an error of the system; [`FileError::Stopped`] once `stop`
    /// is set.
    pub fn find(
        root: &Path,
        manifest: Manifest,
        config: &DestinationConfig,
        stop: &AtomicBool,
    ) -> Result<Option<Self>, FileError> {
        let mut jail = Jail::open(root, config.forbid_links_in_path)?;
        for entry in manifest.entries() {
            FileError::check_stop(stop)?;
            if !is_there(&mut jail, entry)? {
                return Ok(None);
            }
        }
        Ok(Some(Self { jail, manifest }))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads all files and compares them with the sender's `digests`, in the order of
    /// [`Manifest::files`].
    /// Errors: [`FileError::Exists`] with the first file that differs or cannot be read; an error
    /// of the system; [`FileError::Stopped`] within one read after `stop` is set.
    pub fn verify(mut self, digests: &[[u8; 32]], stop: &AtomicBool) -> Result<(), FileError> {
        let files = self.manifest.files().count();
        if files != digests.len() {
            return Err(FileError::Digests(digests.len(), files));
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        for ((_, entry), digest) in self.manifest.files().zip(digests) {
            FileError::check_stop(stop)?;
            let path = self.jail.shown(&entry.path);
            let Some(file) = open(&mut self.jail, entry)? else { return Err(FileError::Exists(path)) };
            match holds(&file, entry, digest, &mut buffer, stop) {
                Ok(true) => {}
                Ok(false) => {
                    FileError::check_stop(stop)?;
                    return Err(FileError::Exists(path));
                }
                Err(error) => return Err(FileError::io(path, "read", error)),
            }
        }
        Ok(())
    }
}

fn is_there(jail: &mut Jail, entry: &ManifestEntry) -> Result<bool, FileError> {
    let path = jail.shown(&entry.path);
    let Some((parent, name)) = jail.parent(&entry.path, false)? else { return Ok(false) };
    let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(error) => return Err(FileError::io(path, "read", error)),
    };
    let found = FileType::from_raw_mode(stat.st_mode);
    Ok(match &entry.kind {
        EntryKind::File { size, .. } => found == FileType::RegularFile && stat.st_size as u64 == *size,
        EntryKind::Directory => found == FileType::Directory,
        EntryKind::Link { target } => {
            readlinkat(parent, name, Vec::new()).is_ok_and(|there| there.as_bytes() == &target[..])
        }
    })
}

/// Opens the file of an entry. Returns `None` if the file is missing or is a link, or if this
/// process has no permission to read it.
fn open(jail: &mut Jail, entry: &ManifestEntry) -> Result<Option<File>, FileError> {
    let path = jail.shown(&entry.path);
    let Some((parent, name)) = jail.parent(&entry.path, false)? else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(error) => Err(FileError::io(path, "opened", error)),
    }
}

/// Whether a file has the contents of an entry: the same size, the same BLAKE3 of the data, and
/// zeros in the holes. Also returns `false` if `stop` is set.
fn holds(
    file: &File,
    entry: &ManifestEntry,
    digest: &[u8; 32],
    buffer: &mut [u8],
    stop: &AtomicBool,
) -> std::io::Result<bool> {
    let EntryKind::File { size, extents } = &entry.kind else { return Ok(false) };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != *size {
        return Ok(false);
    }
    let whole = 0..*size;
    let (mut hasher, mut end) = (blake3::Hasher::new(), 0);
    for data in extents.as_deref().unwrap_or(std::slice::from_ref(&whole)) {
        let is_same = is_zeros(file, end..data.start, buffer, stop)?
            && read(file, data.clone(), buffer, stop, |data| {
                hasher.update(data);
                true
            })?;
        if !is_same {
            return Ok(false);
        }
        end = data.end;
    }
    // Holes are not read, so only the length shows whether a file was cut within its last hole.
    let is_same = is_zeros(file, end..*size, buffer, stop)? && file.metadata()?.len() == *size;
    Ok(is_same && hasher.finalize().as_bytes() == digest)
}

/// Whether all bytes of a range are zeros. The file's own holes are not read: a manifest of a few
/// bytes can claim a hole that would take days to read.
fn is_zeros(file: &File, range: Range<u64>, buffer: &mut [u8], stop: &AtomicBool) -> std::io::Result<bool> {
    let mut at = range.start;
    while at < range.end {
        let data = next_data(file, at..range.end)?;
        at = data.end;
        if !read(file, data, buffer, stop, |data| data.iter().all(|byte| *byte == 0))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the first data of a file within `range`: from its first byte to the next hole. If there
/// is no data in `range`, returns an empty range at the end of `range`. If the file system does not
/// report holes, returns all of `range`.
fn next_data(file: &File, range: Range<u64>) -> Result<Range<u64>, Errno> {
    let start = match seek(file, SeekFrom::Data(range.start)) {
        Ok(start) => start.clamp(range.start, range.end),
        Err(Errno::NXIO) => range.end,
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(range),
        Err(error) => return Err(error),
    };
    if start == range.end {
        return Ok(start..start);
    }
    match seek(file, SeekFrom::Hole(start)) {
        Ok(end) if start < end => Ok(start..end.min(range.end)),
        // The file changed meanwhile, or the file system contradicts itself: treat the rest as
        // data.
        Ok(_) | Err(Errno::NXIO) => Ok(start..range.end),
        Err(error) => Err(error),
    }
}

/// Whether `fits` accepts every piece of a range. Stops at the first piece that `fits` refuses.
/// Also returns `false` if the file became shorter, or if `stop` is set.
fn read(
    file: &File,
    range: Range<u64>,
    buffer: &mut [u8],
    stop: &AtomicBool,
    mut fits: impl FnMut(&[u8]) -> bool,
) -> std::io::Result<bool> {
    let mut at = range.start;
    while at < range.end {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let length = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let Some(piece) = buffer.get_mut(..length) else { return Ok(false) };
        match file.read_exact_at(piece, at) {
            Ok(()) if fits(piece) => at += length as u64,
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Size of a read in bytes. Large files need few system calls, several transfers on a host need
/// little memory, and a read takes less than a second on the slowest disks.
const BUFFER_BYTES: usize = 1 << 20;
