//! Files of the state directory that a running station can do without, such as `url` and
//! `peers.json`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use barograph_engine::describe_io_error;

use super::{write_new, write_whole};
use crate::sync::lock;

/// Writes small files of the state directory. A file that cannot be written is kept in memory,
/// reported, and written later. Clones share the pending files.
#[derive(Clone, Debug)]
pub struct StateFiles(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// Locked while a file is written. Reports use only the lock of `pending`, so reports do not
    /// wait for the disk.
    write_lock: Mutex<()>,
    pending: Mutex<BTreeMap<&'static str, Pending>>,
}

/// Content of a file that could not be written.
#[derive(Clone, Debug)]
struct Pending {
    bytes: Vec<u8>,
    mode: WriteMode,
    error: String,
    effect: &'static str,
}

/// What a write does if the file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    Replace,
    /// The existing file stays: an operator put it there.
    New,
}

impl StateFiles {
    /// Creates a writer for files in `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        Self(Arc::new(Shared { directory, write_lock: Mutex::default(), pending: Mutex::default() }))
    }

    /// Path of the state directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Writes a file as a whole. `effect` describes the consequence of its absence, and is reported
    /// until the file is written. Blocks for the disk.
    pub(crate) fn write(&self, name: &'static str, bytes: Vec<u8>, effect: &'static str) {
        let _writing = lock(&self.0.write_lock);
        self.try_to_write(name, bytes, WriteMode::Replace, effect);
    }

    /// Writes a file as a whole. If that fails, the file is not written later. Blocks for the disk.
    ///
    /// # Errors
    /// The error of the system; the file is unchanged.
    pub(crate) fn write_now(&self, name: &'static str, bytes: &[u8]) -> std::io::Result<()> {
        let _writing = lock(&self.0.write_lock);
        write_whole(&self.0.directory.join(name), bytes)?;
        // Drop an older pending content.
        lock(&self.0.pending).remove(name);
        Ok(())
    }

    /// Writes a new file like [`StateFiles::write`]. If an operator creates the file before the
    /// station could write it, the operator's file stays, and the station uses that file from its
    /// next start.
    pub(crate) fn write_new(&self, name: &'static str, bytes: Vec<u8>, effect: &'static str) {
        let _writing = lock(&self.0.write_lock);
        self.try_to_write(name, bytes, WriteMode::New, effect);
    }

    /// Writes the pending files. Blocks for the disk.
    pub(crate) fn retry(&self) {
        let _writing = lock(&self.0.write_lock);
        let pending = lock(&self.0.pending).clone();
        for (name, Pending { bytes, mode, effect, .. }) in pending {
            self.try_to_write(name, bytes, mode, effect);
        }
    }

    /// Removes a file, and discards its pending content. If the file cannot be removed, this is not
    /// reported.
    pub(crate) fn remove(&self, name: &'static str) {
        let _writing = lock(&self.0.write_lock);
        lock(&self.0.pending).remove(name);
        let _ = std::fs::remove_file(self.0.directory.join(name));
    }

    /// Whether there are pending files.
    pub(crate) fn are_pending(&self) -> bool {
        !lock(&self.0.pending).is_empty()
    }

    /// A sentence for each pending file.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let reason = |(name, pending): (&&str, &Pending)| {
            let path = self.0.directory.join(name);
            format!("{} cannot be written: {}; {}", path.display(), pending.error, pending.effect)
        };
        lock(&self.0.pending).iter().map(reason).collect()
    }

    /// Writes a file, or makes it pending. The caller holds `write_lock`.
    fn try_to_write(&self, name: &'static str, bytes: Vec<u8>, mode: WriteMode, effect: &'static str) {
        let path = self.0.directory.join(name);
        let written = match mode {
            WriteMode::Replace => write_whole(&path, &bytes),
            WriteMode::New => write_new(&path, &bytes),
        };
        let mut pending = lock(&self.0.pending);
        match written {
            Ok(()) => {
                if pending.remove(name).is_some() {
                    tracing::info!("wrote {}", path.display());
                }
            }
            Err(error) if mode == WriteMode::New && error.kind() == ErrorKind::AlreadyExists => {
                pending.remove(name);
                tracing::warn!(
                    "{} was created meanwhile, and is used from the next start; until then {effect}",
                    path.display()
                );
            }
            Err(error) => {
                let error = describe_io_error(&error);
                if pending.get(name).is_none_or(|before| before.error != error) {
                    tracing::warn!(
                        "{} cannot be written: {error}; {effect}; the station tries again",
                        path.display()
                    );
                }
                pending.insert(name, Pending { bytes, mode, error, effect });
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
    fn a_delayed_new_file_does_not_replace_an_existing_file() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("later");
        let files = StateFiles::new(&folder);
        files.write_new("token", b"ours".to_vec(), "it is in memory alone");
        files.write_new("station.key", b"ours".to_vec(), "it is in memory alone");
        assert_eq!(files.reasons().len(), 2);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("token"), "the operator's").unwrap();
        files.retry();
        assert!(files.reasons().is_empty(), "{:?}", files.reasons());
        assert_eq!(std::fs::read_to_string(folder.join("token")).unwrap(), "the operator's");
        assert_eq!(std::fs::read_to_string(folder.join("station.key")).unwrap(), "ours");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing half-made stays");
    }

    #[test]
    fn an_immediate_write_is_not_replaced_by_an_older_delayed_write() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("later");
        let files = StateFiles::new(&folder);
        files.write("members", b"older".to_vec(), "it is in memory alone");
        assert!(files.write_now("members", b"refused").is_err());
        assert_eq!(files.reasons().len(), 1);
        std::fs::create_dir(&folder).unwrap();
        files.write_now("members", b"newer").unwrap();
        files.retry();
        assert_eq!(std::fs::read_to_string(folder.join("members")).unwrap(), "newer");
        assert!(files.reasons().is_empty());
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
