//! Reading what is sent.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::recent::Recent;
use super::walk::{State, open_unfollowed, walk};
use super::{Entry, FileError, GROUP_BYTES, Kind, Manifest, Notice, Tree, WalkConfig};

/// Groups kept after they were read, 16 MiB: what is sent next, and what was lost lately, comes from memory.
const BLOCKS_KEPT: usize = 64;

/// Files kept open, well below the 1024 descriptors that a process has at least on Linux.
const FILES_OPEN: usize = 64;

/// The sender's files as one object.
///
/// What is read is hashed as it is read the first time. Each file is compared with what the walk saw whenever a part of it is read: whose
/// size, time of modification or inode is another is an error that names it.
#[derive(Debug)]
pub struct Source {
    manifest: Manifest,
    /// Of each entry, where it is and what it was like.
    places: Vec<(PathBuf, State)>,
    open: Recent<usize, File>,
    blocks: Recent<(usize, u64), Vec<u8>>,
    trees: HashMap<usize, Tree>,
    digests: HashMap<usize, [u8; 32]>,
}

impl Source {
    /// Finds all that is below `paths`, and says what is left out.
    ///
    /// # Errors
    /// What cannot be read or sent.
    pub fn walk(paths: &[PathBuf], config: WalkConfig) -> Result<(Self, Vec<Notice>), FileError> {
        let (found, notices) = walk(paths, config)?;
        let mut by_path: HashMap<Vec<u8>, (PathBuf, State)> = HashMap::new();
        let mut entries: Vec<Entry> = vec![];
        for one in found {
            by_path.insert(one.entry.path.clone(), (one.at, one.state));
            entries.push(one.entry);
        }
        // A path that comes twice is refused here.
        let manifest = Manifest::new(entries)?;
        let places = manifest.entries().iter().filter_map(|entry| by_path.remove(&entry.path)).collect();
        let (open, blocks) = (Recent::new(FILES_OPEN), Recent::new(BLOCKS_KEPT));
        let (trees, digests) = (HashMap::new(), HashMap::new());
        Ok((Self { manifest, places, open, blocks, trees, digests }, notices))
    }

    /// What is sent.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Reads the object from `offset` on, as much as `out` holds.
    ///
    /// # Errors
    /// A file that cannot be read or has changed; a range beyond the object.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FileError> {
        let end = offset.saturating_add(out.len() as u64);
        if self.manifest.bytes() < end {
            return Err(FileError::Beyond { end, bytes: self.manifest.bytes() });
        }
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let Some(piece) = self.manifest.pieces(at..end).next() else { break };
            let of = self.manifest.range(piece.entry);
            let group = (at - of.start) / GROUP_BYTES;
            let within = (at - of.start) % GROUP_BYTES;
            let block = self.block(piece.entry, group)?;
            // As far as the group goes, which may be beyond the extent.
            let have = block.get(within as usize..).unwrap_or_default();
            let count = have.len().min(rest.len());
            if count == 0 {
                break;
            }
            let (into, after) = std::mem::take(&mut rest).split_at_mut(count);
            into.copy_from_slice(&have[..count]);
            (rest, at) = (after, at + count as u64);
        }
        Ok(())
    }

    /// BLAKE3 of a file's data, holes left out (so that of a file without holes is what `b3sum` prints); 0 for what is no file.
    /// What was not read yet is read now: all that the receiver had before.
    ///
    /// # Errors
    /// A file that cannot be read or has changed.
    pub fn digest(&mut self, entry: usize) -> Result<[u8; 32], FileError> {
        if !matches!(self.manifest.entries().get(entry), Some(Entry { kind: Kind::File { .. }, .. })) {
            return Ok([0; 32]);
        }
        let digest = loop {
            if let Some(digest) = self.digests.get(&entry) {
                break *digest;
            }
            let tree = self.tree(entry);
            match tree.root() {
                Some(root) => {
                    self.digests.insert(entry, root);
                    self.trees.remove(&entry);
                }
                None => {
                    let missing: Vec<u64> =
                        (0..tree.groups()).filter(|group| !tree.contains(*group)).collect();
                    for group in missing {
                        self.block(entry, group)?;
                    }
                }
            }
        };
        // What was open all the time may have been replaced.
        if let Some((path, state)) = self.places.get(entry) {
            let metadata = fs::symlink_metadata(path).map_err(|error| FileError::io(path, "found", error))?;
            check(path, *state, State::of(&metadata))?;
        }
        Ok(digest)
    }

    /// The digests of all files, in order.
    ///
    /// # Errors
    /// As [`digest`](Self::digest).
    pub fn digests(&mut self) -> Result<Vec<[u8; 32]>, FileError> {
        let files: Vec<usize> = self.manifest.files().map(|(entry, _)| entry).collect();
        files.into_iter().map(|entry| self.digest(entry)).collect()
    }

    fn tree(&mut self, entry: usize) -> &mut Tree {
        let of = self.manifest.range(entry);
        self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start))
    }

    fn block(&mut self, entry: usize, group: u64) -> Result<&[u8], FileError> {
        let is_hashed = self.digests.contains_key(&entry) || self.tree(entry).contains(group);
        let key = (entry, group);
        if self.blocks.peek(&key).is_none() || !is_hashed {
            let bytes = self.load(entry, group)?;
            if !is_hashed {
                self.tree(entry).insert_bytes(group, &bytes);
            }
            let (block, _) = self.blocks.get_or(key, || Ok::<_, FileError>(bytes))?;
            return Ok(block);
        }
        let (block, _) = self.blocks.get_or(key, || Ok::<_, FileError>(vec![]))?;
        Ok(block)
    }

    fn load(&mut self, entry: usize, group: u64) -> Result<Vec<u8>, FileError> {
        let Some((path, state)) = self.places.get(entry) else { return Ok(vec![]) };
        let (file, _) = self.open.get_or(entry, || {
            let file = open_unfollowed(path).map_err(|error| FileError::io(path, "opened", error))?;
            check(path, *state, state_of(path, &file)?)?;
            Ok::<_, FileError>(file)
        })?;
        let of = self.manifest.range(entry);
        let start = of.start + group * GROUP_BYTES;
        let range = start..of.end.min(start + GROUP_BYTES);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        for piece in self.manifest.pieces(range) {
            let into = (piece.object.start - start) as usize..(piece.object.end - start) as usize;
            let Some(into) = bytes.get_mut(into) else { continue };
            if let Err(error) = file.read_exact_at(into, piece.at) {
                if error.kind() == std::io::ErrorKind::UnexpectedEof {
                    let end = state_of(path, file)?.size;
                    return Err(FileError::Shrank { path: path.clone(), end, size: state.size });
                }
                return Err(FileError::io(path, "read", error));
            }
        }
        check(path, *state, state_of(path, file)?)?;
        Ok(bytes)
    }
}

fn state_of(path: &std::path::Path, file: &File) -> Result<State, FileError> {
    Ok(State::of(&file.metadata().map_err(|error| FileError::io(path, "read", error))?))
}

fn check(path: &std::path::Path, before: State, now: State) -> Result<(), FileError> {
    if now.size < before.size {
        return Err(FileError::Shrank { path: path.into(), end: now.size, size: before.size });
    }
    if now == before { Ok(()) } else { Err(FileError::Changed(path.into())) }
}
