//! Checks whether the limits allow a transfer, and whether the disk has space for it.

use std::collections::HashSet;

use rustix::fs::{AtFlags, FileType, fstatvfs, statat};
use rustix::io::Errno;

use super::super::path::check_target;
use super::super::{EntryKind, Manifest, ManifestEntry, journal, system};
use super::{Destination, DestinationConfig, FileError, partial_name};

impl Destination {
    pub(super) fn check_free(&mut self) -> Result<(), FileError> {
        self.check_name_collisions()?;
        for entry in self.manifest.entries() {
            let found = self.jail.kind(&entry.path)?;
            let is_free = match (found, &entry.kind) {
                (None, _) => true,
                (Some(found), EntryKind::Directory) => found == FileType::Directory,
                (Some(found), _) => self.config.replace && found != FileType::Directory,
            };
            if !is_free {
                return Err(FileError::Exists(self.jail.shown(&entry.path)));
            }
        }
        Ok(())
    }

    /// Refuses two names that differ only in case if the file system ignores case: the second file
    /// would replace the first. Other names that the file system treats as equal are detected when
    /// files get their names.
    fn check_name_collisions(&self) -> Result<(), FileError> {
        if statat(&self.partial, journal::NAME.to_uppercase(), AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Ok(());
        }
        let mut seen = HashSet::new();
        for entry in self.manifest.entries() {
            if !seen.insert(String::from_utf8_lossy(&entry.path).to_lowercase()) {
                return Err(FileError::NamesCollide(self.jail.shown(&entry.path)));
            }
        }
        Ok(())
    }

    /// Bytes that the file system must still allocate: an earlier session may have allocated all of
    /// them already.
    fn needed(&self) -> Result<u64, FileError> {
        let mut needed = 0;
        for (entry, found) in self.manifest.files() {
            let taken = match statat(&self.partial, partial_name(entry), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => (stat.st_blocks as u64).saturating_mul(512),
                Err(Errno::NOENT) => 0,
                Err(error) => return Err(FileError::io(&self.path, "read", error)),
            };
            needed += found.stored().saturating_sub(taken);
        }
        Ok(needed)
    }

    pub(super) fn allocate(&mut self) -> Result<(), FileError> {
        if !self.config.allocate {
            return Ok(());
        }
        // Check first: fallocate(2) allocates all free space before it reports that the space is
        // too small.
        let system = fstatvfs(&self.partial).map_err(|error| FileError::io(&self.path, "measured", error))?;
        let (needed, free) = (self.needed()?, system.f_bavail.saturating_mul(system.f_frsize));
        if free < needed {
            return Err(FileError::NoRoom { path: self.path.clone(), needed, free });
        }
        for entry in 0..self.manifest.entries().len() {
            let pieces: Vec<_> = self.manifest.pieces(self.manifest.range(entry)).collect();
            for piece in pieces {
                let path = self.shown(entry);
                let length = piece.object.end - piece.object.start;
                match system::allocate(self.file(entry)?, piece.at, length) {
                    // Not every file system can allocate.
                    Ok(()) | Err(Errno::NOTSUP) => {}
                    Err(error) => return Err(FileError::io(path, "allocated", error)),
                }
            }
        }
        Ok(())
    }
}

/// Checks that `config` allows `manifest`.
pub(super) fn check_allowed(manifest: &Manifest, config: &DestinationConfig) -> Result<(), FileError> {
    let (names, blocks) = taken(manifest);
    for (what, asked, allowed) in [
        ("bytes", manifest.bytes(), config.bytes_max),
        ("entries", names, config.entries_max),
        (BLOCKS, blocks, config.bytes_max.div_ceil(BLOCK_BYTES)),
    ] {
        if allowed < asked {
            return Err(FileError::Quota { what, asked, allowed });
        }
    }
    for entry in manifest.entries() {
        if let EntryKind::Link { target } = &entry.kind {
            if !config.links {
                return Err(FileError::Link(entry.shown()));
            }
            check_target(&entry.path, target)?;
        }
    }
    Ok(())
}

/// Number of names that a manifest creates, and number of blocks that the names and the data take.
/// A directory above an entry counts, even if the manifest has no entry for the directory.
fn taken(manifest: &Manifest) -> (u64, u64) {
    let entries = manifest.entries();
    let befores = std::iter::once(&b""[..]).chain(entries.iter().map(|entry| &entry.path[..]));
    let names = entries.iter().zip(befores).map(|(entry, before)| names_added(before, &entry.path)).sum();
    let of_entries: u64 = entries.iter().map(blocks).sum();
    // Directories without an entry take one block each.
    (names, of_entries + (names - entries.len() as u64))
}

/// Number of names that `path` adds to a manifest, if the entry before it has the path `before`.
/// Entries are in the order of a tree, so the two paths share directories only at their start.
fn names_added(before: &[u8], path: &[u8]) -> u64 {
    let names = |path| <[u8]>::split(path, |byte| *byte == b'/');
    let shared = names(path).zip(names(before)).take_while(|(name, before)| name == before).count();
    (names(path).count() - shared) as u64
}

/// Number of blocks that an entry takes: at least one, for the entry's name.
fn blocks(entry: &ManifestEntry) -> u64 {
    let of_data = match &entry.kind {
        EntryKind::File { size, extents: None } => size.div_ceil(BLOCK_BYTES),
        EntryKind::File { extents: Some(extents), .. } => {
            // Extents are in ascending order, so a block that two extents share can be counted
            // once.
            let mut end = 0;
            let each = extents.iter().map(|data| {
                let first = (data.start / BLOCK_BYTES).max(end);
                end = data.end.div_ceil(BLOCK_BYTES);
                end - first
            });
            each.sum()
        }
        EntryKind::Directory | EntryKind::Link { .. } => 0,
    };
    of_data.max(1)
}

/// Size of a block in bytes, as in common file systems (ext4, XFS, Btrfs, APFS). A directory takes
/// at least one block, and data take whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// Unit of the limit of blocks, for error messages.
const BLOCKS: &str = "blocks of 4 KiB (at least one for each file, directory and link)";
