//! Reads files that are sent, as one object.

mod hash_cache;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, fstat, statat};

use super::lru::LruCache;
use super::system;
use super::walk::{FileState, open_unfollowed, walk};
use super::{EntryKind, FileError, GROUP_BYTES, Manifest, ManifestEntry, SkippedPath, Tree, WalkConfig};
use hash_cache::HashCache;

/// Number of groups that are kept in memory after they were read, 16 MiB in total. So each group is
/// read once for all of its packets.
const BLOCKS_KEPT: usize = 64;

/// Maximum number of files kept open, well below Linux's usual limit of 1024 for a process.
const FILES_OPEN: usize = 64;

/// Maximum number of times that a file is hashed again because only its status changed (by a
/// rename, a link, permissions, or a time that was set back). After that the file counts as
/// changed, so that hashing ends.
const TOUCHES_MAX: u8 = 8;

/// The sender's files as one object.
///
/// Bytes are hashed when they are read for the first time. Whenever a part of a file is read, the
/// present state of the file is compared with its state at the time of the walk. If size, time of
/// modification or inode differ, an error with the file's name is returned. If only the time of the
/// last change of status differs, the file's hashes are discarded, so that [`digest`](Self::digest)
/// is computed from the present contents.
#[derive(Debug)]
pub struct Source {
    manifest: Manifest,
    /// Path and state of each entry.
    files: Vec<SourceFile>,
    open: LruCache<usize, File>,
    blocks: LruCache<(usize, u64), Vec<u8>>,
    /// Buffer of a dropped block, for the next block.
    spare: Vec<u8>,
    trees: HashMap<usize, Tree>,
    digests: HashMap<usize, [u8; 32]>,
    hash_cache: Option<HashCache>,
}

#[derive(Debug)]
struct SourceFile {
    path: PathBuf,
    state: FileState,
    touches: u8,
}

impl Source {
    /// Finds all files below `paths`, and returns a notice for each path that is not sent. Errors:
    /// a path cannot be read, or one of `paths` itself cannot be sent.
    pub fn walk(paths: &[PathBuf], config: WalkConfig) -> Result<(Self, Vec<SkippedPath>), FileError> {
        let (found, notices) = walk(paths, config)?;
        let mut by_path: HashMap<Vec<u8>, SourceFile> = HashMap::new();
        let mut entries: Vec<ManifestEntry> = vec![];
        for one in found {
            by_path.insert(one.entry.path.clone(), SourceFile { path: one.at, state: one.state, touches: 0 });
            entries.push(one.entry);
        }
        // This call refuses a path that occurs twice.
        let manifest = Manifest::new(entries)?;
        let files = manifest.entries().iter().filter_map(|entry| by_path.remove(&entry.path)).collect();
        let source = Self {
            manifest,
            files,
            open: LruCache::new(FILES_OPEN),
            blocks: LruCache::new(BLOCKS_KEPT),
            spare: vec![],
            trees: HashMap::new(),
            digests: HashMap::new(),
            hash_cache: None,
        };
        Ok((source, notices))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Fills `out` with the bytes of the object from `offset` on. Whole groups of [`GROUP_BYTES`]
    /// are read straight into `out`.
    /// Errors: a file that cannot be read or has changed; a range beyond the object.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FileError> {
        let end = offset.saturating_add(out.len() as u64);
        if self.manifest.bytes() < end {
            return Err(FileError::OutOfRange { end, bytes: self.manifest.bytes() });
        }
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let Some(piece) = self.manifest.pieces(at..end).next() else { break };
            let entry = piece.entry;
            let of = self.manifest.range(entry);
            let group = (at - of.start) / GROUP_BYTES;
            let whole = self.group(entry, group);
            // The read ends at the end of the group, which may be beyond the end of the extent.
            let part = at..end.min(whole.end);
            let (into, after) = std::mem::take(&mut rest).split_at_mut((part.end - at) as usize);
            let within = (at - whole.start) as usize;
            if let Some(block) = self.blocks.peek(&(entry, group)).and_then(|block| block.get(within..)) {
                let count = into.len().min(block.len());
                into[..count].copy_from_slice(&block[..count]);
            } else if self.is_hashed(entry, group) {
                self.fetch(entry, part.clone(), into)?;
            } else if part == whole {
                self.fetch_and_hash(entry, group, into)?;
            } else {
                let mut block = std::mem::take(&mut self.spare);
                block.resize((whole.end - whole.start) as usize, 0);
                self.fetch_and_hash(entry, group, &mut block)?;
                into.copy_from_slice(block.get(within..within + into.len()).unwrap_or_default());
                self.spare = self.blocks.put((entry, group), block).unwrap_or_default();
            }
            (rest, at) = (after, part.end);
        }
        Ok(())
    }

    /// Reads and hashes the group of a file that contains the byte at `offset`, unless it was
    /// hashed before; returns the offset of the next group. With this function a caller can hash
    /// files before it needs [`digest`](Self::digest)s, one group with each call. Errors: as
    /// [`read`](Self::read).
    pub fn hash_at(&mut self, offset: u64) -> Result<u64, FileError> {
        let Some(piece) = self.manifest.pieces(offset..offset.saturating_add(1)).next() else {
            return Err(FileError::OutOfRange {
                end: offset.saturating_add(1),
                bytes: self.manifest.bytes(),
            });
        };
        let group = (offset - self.manifest.range(piece.entry).start) / GROUP_BYTES;
        let whole = self.group(piece.entry, group);
        if !self.is_hashed(piece.entry, group) {
            let mut block = std::mem::take(&mut self.spare);
            block.resize((whole.end - whole.start) as usize, 0);
            let hashed = self.fetch_and_hash(piece.entry, group, &mut block);
            self.spare = block;
            hashed?;
        }
        Ok(whole.end)
    }

    /// BLAKE3 of a file's data without its holes (for a file without holes, what `b3sum` prints); 0
    /// for an entry that is not a file. Bytes without a hash are read now: they were not sent,
    /// because the receiver had them before, and they have no [kept](Self::use_hash_cache) hash.
    /// Errors: a file that cannot be read or has changed.
    pub fn digest(&mut self, entry: usize) -> Result<[u8; 32], FileError> {
        if !matches!(
            self.manifest.entries().get(entry),
            Some(ManifestEntry { kind: EntryKind::File { .. }, .. })
        ) {
            return Ok([0; 32]);
        }
        loop {
            // Check the file by its path: a file that is kept open may have been replaced.
            if let Some(SourceFile { path, .. }) = self.files.get(entry) {
                let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|error| FileError::io(path, "read", error))?;
                self.compare(entry, FileState::of(&stat))?;
            }
            if let Some(digest) = self.digests.get(&entry) {
                return Ok(*digest);
            }
            let tree = self.tree(entry);
            if let Some(root) = tree.root() {
                self.digests.insert(entry, root);
                // Keep the tree if there is a hash cache: a rewrite of the cache's journal reads
                // the tree.
                if self.hash_cache.is_none() {
                    self.trees.remove(&entry);
                }
                return Ok(root);
            }
            let missing: Vec<u64> = (0..tree.groups()).filter(|group| !tree.contains(*group)).collect();
            let mut block = std::mem::take(&mut self.spare);
            for group in missing {
                let whole = self.group(entry, group);
                block.resize((whole.end - whole.start) as usize, 0);
                self.fetch_and_hash(entry, group, &mut block)?;
            }
            self.spare = block;
        }
    }

    /// The digests of all files, in order.
    /// Errors: as [`digest`](Self::digest).
    pub fn digests(&mut self) -> Result<Vec<[u8; 32]>, FileError> {
        let files: Vec<usize> = self.manifest.files().map(|(entry, _)| entry).collect();
        files.into_iter().map(|entry| self.digest(entry)).collect()
    }

    fn tree(&mut self, entry: usize) -> &mut Tree {
        let of = self.manifest.range(entry);
        self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start))
    }

    pub(super) fn is_hashed(&self, entry: usize, group: u64) -> bool {
        self.digests.contains_key(&entry) || self.trees.get(&entry).is_some_and(|tree| tree.contains(group))
    }

    /// Range of a group of a file in the object.
    fn group(&self, entry: usize, group: u64) -> Range<u64> {
        let of = self.manifest.range(entry);
        let start = of.start + group * GROUP_BYTES;
        start..of.end.min(start + GROUP_BYTES)
    }

    /// Reads a group and hashes it.
    fn fetch_and_hash(&mut self, entry: usize, group: u64, out: &mut [u8]) -> Result<(), FileError> {
        let whole = self.group(entry, group);
        // Read again if the file's status changed meanwhile, at most `TOUCHES_MAX` times.
        while !self.fetch(entry, whole.clone(), out)? {}
        let value = self.tree(entry).insert_bytes(group, out);
        if let Some(cache) = &mut self.hash_cache {
            cache.add(entry, group, value);
            self.keep();
        }
        Ok(())
    }

    /// Reads a part of a group; returns whether the file's status stayed the same meanwhile.
    fn fetch(&mut self, entry: usize, part: Range<u64>, out: &mut [u8]) -> Result<bool, FileError> {
        let Some(SourceFile { path, state, .. }) = self.files.get(entry) else { return Ok(true) };
        let size = state.size;
        let mut before = None;
        let file = self.open.get_or(entry, || {
            let file = open_unfollowed(CWD, path).map_err(|error| FileError::io(path, "opened", error))?;
            before = Some(state_of(path, &file)?);
            system::read_from_start_to_end(&file);
            Ok::<_, FileError>(file)
        })?;
        let mut is_steady = true;
        if let Some(before) = before {
            // Do not read from a FIFO that replaced the file.
            is_steady = compare(path, *state, before)?;
        }
        for piece in self.manifest.pieces(part.clone()) {
            let into = (piece.object.start - part.start) as usize..(piece.object.end - part.start) as usize;
            let Some(into) = out.get_mut(into) else { continue };
            if let Err(error) = file.read_exact_at(into, piece.at) {
                if error.kind() == std::io::ErrorKind::UnexpectedEof {
                    let end = state_of(path, file)?.size;
                    return Err(FileError::Shrank { path: path.clone(), end, size });
                }
                return Err(FileError::io(path, "read", error));
            }
        }
        let now = state_of(path, file)?;
        Ok(is_steady & self.compare(entry, now)?)
    }

    /// Compares a file with its known state. If only its status changed, discards its hashes and
    /// returns `false`.
    fn compare(&mut self, entry: usize, now: FileState) -> Result<bool, FileError> {
        let Some(file) = self.files.get_mut(entry) else { return Ok(true) };
        if compare(&file.path, file.state, now)? {
            return Ok(true);
        }
        if file.touches >= TOUCHES_MAX {
            return Err(FileError::Changed(file.path.clone()));
        }
        (file.state, file.touches) = (now, file.touches + 1);
        self.trees.remove(&entry);
        self.digests.remove(&entry);
        self.blocks.retain(|(of, _)| *of != entry);
        if let Some(cache) = &mut self.hash_cache {
            cache.exclude(entry);
        }
        Ok(false)
    }
}

fn state_of(path: &Path, file: &File) -> Result<FileState, FileError> {
    Ok(FileState::of(&fstat(file).map_err(|error| FileError::io(path, "read", error))?))
}

/// Compares two states of a file. Returns `false` if only the time of the last change of status
/// differs, and an error if anything else differs.
fn compare(path: &Path, before: FileState, now: FileState) -> Result<bool, FileError> {
    if now.size < before.size {
        return Err(FileError::Shrank { path: path.into(), end: now.size, size: before.size });
    }
    if (FileState { changed: before.changed, ..now }) != before {
        return Err(FileError::Changed(path.into()));
    }
    Ok(now.changed == before.changed)
}
