//! Reading what is sent.

mod remembered;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, fstat, statat};

use super::recent::Recent;
use super::system;
use super::walk::{State, open_unfollowed, walk};
use super::{Entry, FileError, GROUP_BYTES, Kind, Manifest, Notice, Tree, WalkConfig};
use remembered::Remembered;

/// Groups kept after they were read, 16 MiB: what is sent next comes from memory.
const BLOCKS_KEPT: usize = 64;

/// Files kept open, well below the 1024 descriptors that a process has at least on Linux.
const FILES_OPEN: usize = 64;

/// A file is hashed anew each time its status changes and its size and time of modification do not (a name, a link, permissions, or somebody
/// who sets the time back); after so many times it counts as changed, so that there is an end.
const TOUCHES_MAX: u8 = 8;

/// The sender's files as one object.
///
/// What is read is hashed as it is read the first time. Each file is compared with what the walk saw whenever a part of it is read: whose
/// size, time of modification or inode is another is an error that names it. Where only the time of its status is another, what was hashed
/// of it is forgotten, so that [`digest`](Self::digest) is of what it says then.
#[derive(Debug)]
pub struct Source {
    manifest: Manifest,
    /// Of each entry, where it is and what it was like.
    places: Vec<Place>,
    open: Recent<usize, File>,
    blocks: Recent<(usize, u64), Vec<u8>>,
    /// Of a block that went, for the next.
    spare: Vec<u8>,
    trees: HashMap<usize, Tree>,
    digests: HashMap<usize, [u8; 32]>,
    remembered: Option<Remembered>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    state: State,
    touches: u8,
}

impl Source {
    /// Finds all that is below `paths`, and says what is left out.
    /// Errors: what cannot be read or sent.
    pub fn walk(paths: &[PathBuf], config: WalkConfig) -> Result<(Self, Vec<Notice>), FileError> {
        let (found, notices) = walk(paths, config)?;
        let mut by_path: HashMap<Vec<u8>, Place> = HashMap::new();
        let mut entries: Vec<Entry> = vec![];
        for one in found {
            by_path.insert(one.entry.path.clone(), Place { path: one.at, state: one.state, touches: 0 });
            entries.push(one.entry);
        }
        // A path that comes twice is refused here.
        let manifest = Manifest::new(entries)?;
        let places = manifest.entries().iter().filter_map(|entry| by_path.remove(&entry.path)).collect();
        let source = Self {
            manifest,
            places,
            open: Recent::new(FILES_OPEN),
            blocks: Recent::new(BLOCKS_KEPT),
            spare: vec![],
            trees: HashMap::new(),
            digests: HashMap::new(),
            remembered: None,
        };
        Ok((source, notices))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads the object from `offset` on, as much as `out` holds. Whole groups of [`GROUP_BYTES`] go straight to `out`.
    /// Errors: a file that cannot be read or has changed; a range beyond the object.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FileError> {
        let end = offset.saturating_add(out.len() as u64);
        if self.manifest.bytes() < end {
            return Err(FileError::Beyond { end, bytes: self.manifest.bytes() });
        }
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let Some(piece) = self.manifest.pieces(at..end).next() else { break };
            let entry = piece.entry;
            let of = self.manifest.range(entry);
            let group = (at - of.start) / GROUP_BYTES;
            let whole = self.group(entry, group);
            // As far as the group goes, which may be beyond the extent.
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

    /// Reads, and hashes, the group of a file that has its bytes at `offset`, if it was not yet; where the next one begins. Who has time
    /// before [`digest`](Self::digest)s are asked for spends it here, a group at a time.
    /// Errors: as [`read`](Self::read).
    pub fn hash_at(&mut self, offset: u64) -> Result<u64, FileError> {
        let Some(piece) = self.manifest.pieces(offset..offset.saturating_add(1)).next() else {
            return Err(FileError::Beyond { end: offset.saturating_add(1), bytes: self.manifest.bytes() });
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

    /// BLAKE3 of a file's data, holes left out (so that of a file without holes is what `b3sum` prints); 0 for what is no file.
    /// What was not read yet is read now: all that the receiver had before, and that was not [remembered](Self::remember).
    /// Errors: a file that cannot be read or has changed.
    pub fn digest(&mut self, entry: usize) -> Result<[u8; 32], FileError> {
        if !matches!(self.manifest.entries().get(entry), Some(Entry { kind: Kind::File { .. }, .. })) {
            return Ok([0; 32]);
        }
        loop {
            // What was open all the time may have been replaced.
            if let Some(Place { path, .. }) = self.places.get(entry) {
                let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|error| FileError::io(path, "found", error))?;
                self.compare(entry, State::of(&stat))?;
            }
            if let Some(digest) = self.digests.get(&entry) {
                return Ok(*digest);
            }
            let tree = self.tree(entry);
            if let Some(root) = tree.root() {
                self.digests.insert(entry, root);
                // Else it is written again.
                if self.remembered.is_none() {
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

    /// Where a group of a file is in the object.
    fn group(&self, entry: usize, group: u64) -> Range<u64> {
        let of = self.manifest.range(entry);
        let start = of.start + group * GROUP_BYTES;
        start..of.end.min(start + GROUP_BYTES)
    }

    /// Reads a group and hashes it.
    fn fetch_and_hash(&mut self, entry: usize, group: u64, out: &mut [u8]) -> Result<(), FileError> {
        let whole = self.group(entry, group);
        // Again, if its status changed meanwhile: as often as `TOUCHES_MAX`.
        while !self.fetch(entry, whole.clone(), out)? {}
        let value = self.tree(entry).insert_bytes(group, out);
        if let Some(remembered) = &mut self.remembered {
            remembered.add(entry, group, value);
            self.keep();
        }
        Ok(())
    }

    /// Reads a part of a group; whether the file's status stayed as it was meanwhile.
    fn fetch(&mut self, entry: usize, part: Range<u64>, out: &mut [u8]) -> Result<bool, FileError> {
        let Some(Place { path, state, .. }) = self.places.get(entry) else { return Ok(true) };
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
            // Of a FIFO that came in its place nothing is read.
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

    /// Compares a file with what it was; `false` if only its status changed, and then what was hashed of it is forgotten.
    fn compare(&mut self, entry: usize, now: State) -> Result<bool, FileError> {
        let Some(place) = self.places.get_mut(entry) else { return Ok(true) };
        if compare(&place.path, place.state, now)? {
            return Ok(true);
        }
        if TOUCHES_MAX <= place.touches {
            return Err(FileError::Changed(place.path.clone()));
        }
        (place.state, place.touches) = (now, place.touches + 1);
        self.trees.remove(&entry);
        self.digests.remove(&entry);
        self.blocks.retain(|(of, _)| *of != entry);
        if let Some(remembered) = &mut self.remembered {
            remembered.exclude(entry);
        }
        Ok(false)
    }
}

fn state_of(path: &Path, file: &File) -> Result<State, FileError> {
    Ok(State::of(&fstat(file).map_err(|error| FileError::io(path, "read", error))?))
}

/// `false` if nothing but the time of the status is another.
fn compare(path: &Path, before: State, now: State) -> Result<bool, FileError> {
    if now.size < before.size {
        return Err(FileError::Shrank { path: path.into(), end: now.size, size: before.size });
    }
    if (State { changed: before.changed, ..now }) != before {
        return Err(FileError::Changed(path.into()));
    }
    Ok(now.changed == before.changed)
}
