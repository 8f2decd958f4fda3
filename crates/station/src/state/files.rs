//! Files of the state directory that a running station can do without, such as `url` and `peers.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use barograph_engine::with_remedy;

use super::write_whole;
use crate::health::lock;

/// Writes small files of the state directory; a file that cannot be written is kept in memory, reported, and
/// written later. Clones share what is pending.
#[derive(Clone, Debug)]
pub struct StateFiles(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// Held while a file is written; reports do not wait for the disk.
    turn: Mutex<()>,
    pending: Mutex<BTreeMap<&'static str, Pending>>,
}

/// The content of a file that is not on the disk.
#[derive(Clone, Debug)]
struct Pending {
    bytes: Vec<u8>,
    error: String,
    effect: &'static str,
}

impl StateFiles {
    /// The files in `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        Self(Arc::new(Shared { directory, turn: Mutex::default(), pending: Mutex::default() }))
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Writes a file as a whole; `effect` says what its absence means, and is reported until the file was written.
    /// Blocks for the disk.
    pub(crate) fn write(&self, name: &'static str, bytes: Vec<u8>, effect: &'static str) {
        let _turn = lock(&self.0.turn);
        self.try_to_write(name, bytes, effect);
    }

    /// Writes what could not be written before. Blocks for the disk.
    pub(crate) fn retry(&self) {
        let _turn = lock(&self.0.turn);
        let pending = lock(&self.0.pending).clone();
        for (name, Pending { bytes, effect, .. }) in pending {
            self.try_to_write(name, bytes, effect);
        }
    }

    /// Removes a file, also one that is still to be written. A file that stays behind is not reported.
    pub(crate) fn remove(&self, name: &'static str) {
        let _turn = lock(&self.0.turn);
        lock(&self.0.pending).remove(name);
        let _ = std::fs::remove_file(self.0.directory.join(name));
    }

    /// Whether a file is still to be written.
    pub(crate) fn are_pending(&self) -> bool {
        !lock(&self.0.pending).is_empty()
    }

    /// One sentence for each file that is not on the disk.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let reason = |(name, pending): (&&str, &Pending)| {
            let path = self.0.directory.join(name);
            format!("{} cannot be written: {}; {}", path.display(), pending.error, pending.effect)
        };
        lock(&self.0.pending).iter().map(reason).collect()
    }

    /// The caller holds the turn.
    fn try_to_write(&self, name: &'static str, bytes: Vec<u8>, effect: &'static str) {
        let path = self.0.directory.join(name);
        let written = write_whole(&path, &bytes);
        let mut pending = lock(&self.0.pending);
        match written {
            Ok(()) => {
                if pending.remove(name).is_some() {
                    tracing::info!("{} is written now", path.display());
                }
            }
            Err(error) => {
                let error = with_remedy(&error);
                if pending.get(name).is_none_or(|before| before.error != error) {
                    tracing::warn!(
                        "{} cannot be written: {error}; {effect}; it is tried again",
                        path.display()
                    );
                }
                pending.insert(name, Pending { bytes, error, effect });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_reported_and_written_later() {
        let state = tempfile::tempdir().unwrap();
        let files = StateFiles::new(state.path());
        let in_the_way = state.path().join("url");
        std::fs::create_dir_all(in_the_way.join("something")).unwrap();
        files.write("url", b"first".to_vec(), "it is not found");
        files.write("url", b"second".to_vec(), "it is not found");
        files.write("peers.json", b"[]".to_vec(), "peers are not known");
        let reasons = files.reasons();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("url cannot be written") && reasons[0].ends_with("it is not found"));
        assert!(!state.path().join("url.new").exists(), "nothing half-made stays");
        files.retry();
        assert_eq!(files.reasons().len(), 1);
        std::fs::remove_dir_all(&in_the_way).unwrap();
        files.retry();
        assert!(files.reasons().is_empty());
        assert_eq!(std::fs::read_to_string(in_the_way).unwrap(), "second");
    }

    #[test]
    fn a_file_that_was_removed_is_not_written_later() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("later");
        let files = StateFiles::new(&folder);
        files.write("url", b"here".to_vec(), "it is not found");
        files.remove("url");
        std::fs::create_dir(&folder).unwrap();
        files.retry();
        assert!(!folder.join("url").exists() && files.reasons().is_empty());
    }
}
