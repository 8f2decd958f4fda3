//! Labelled windows on disk, from which a sender's own model is learned (docs/spec/classify.md §4).

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use barograph_loss::{LabelledWindow, write_labelled};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, renameat};
use rustix::io::Errno;
use rustix::process::geteuid;
use thiserror::Error;

/// A directory with the labelled windows of earlier transfers.
///
/// Lines are appended to the newest file. If it has no room, it replaces the older file, and a new
/// file begins. So the oldest windows go, and both files together have at most twice
/// [`WindowLog::FILE_BYTES_MAX`]. Several processes may append at the same time. A killed process
/// leaves whole lines. If the system fails, the next process removes a line that was cut off.
#[derive(Debug)]
pub struct WindowLog {
    directory: OwnedFd,
    shown: PathBuf,
    /// Lines that are not written yet.
    waiting: String,
}

/// Reason why windows cannot be kept in a directory.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum WindowLogError {
    #[error("the directory of windows {path:?} cannot be {what}: {source}")]
    Io {
        path: PathBuf,
        /// The operation that was tried, as a past participle such as "opened".
        what: &'static str,
        source: io::Error,
    },
    /// Other users could add windows with wrong labels.
    #[error(
        "{0:?} belongs to another user or is writable by others: keep windows in a directory of your own"
    )]
    NotPrivate(PathBuf),
}

impl WindowLog {
    /// Names of the two files, the older one first.
    pub const FILE_NAMES: [&str; 2] = ["windows-old.txt", "windows.txt"];

    /// Largest length of a file, in bytes: 4 MiB, about 4000 windows of host losses. This is more
    /// than a model needs, and little for a disk.
    pub const FILE_BYTES_MAX: u64 = 4 << 20;

    /// Opens a directory, and creates it if it does not exist. Only the user of this process may
    /// have the right to write to it. Removes a line that was cut off.
    ///
    /// # Errors
    /// [`WindowLogError::NotPrivate`], or an error of the system.
    pub fn open(directory: &Path) -> Result<Self, WindowLogError> {
        let failed = |what, source: io::Error| error(directory, what, source);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let created = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory);
        created.map_err(|error| failed("created", error))?;
        let own = openat(CWD, directory, flags, Mode::empty());
        let own = own.map_err(|error| failed("opened", error.into()))?;
        let stat = fstat(&own).map_err(|error| failed("opened", error.into()))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(WindowLogError::NotPrivate(directory.to_owned()));
        }
        let mut log = Self { directory: own, shown: directory.to_owned(), waiting: String::new() };
        log.write()?;
        Ok(log)
    }

    /// Calls `read` while no process writes to the log, so that no file ends in a part of a line.
    ///
    /// # Errors
    /// An error of the system.
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Result<T, WindowLogError> {
        flock(&self.directory, FlockOperation::LockShared)
            .map_err(|source| error(&self.shown, "locked", source.into()))?;
        let result = read();
        // Ignore an error: the lock ends with the process at the latest.
        let _ = flock(&self.directory, FlockOperation::Unlock);
        Ok(result)
    }

    /// Adds a window of the run `run`, to be written by [`write`](Self::write). Windows are dropped
    /// while too many wait.
    pub fn push(&mut self, mut window: LabelledWindow, run: &str) {
        window.run = run.to_owned();
        let line = write_labelled(&window);
        if self.waiting.len() + line.len() < WAITING_BYTES_MAX {
            self.waiting += &line;
            self.waiting.push('\n');
        }
    }

    /// Whether windows wait to be written.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Appends the windows that wait. If another process writes at this moment, they wait longer.
    ///
    /// # Errors
    /// An error of the system.
    pub fn write(&mut self) -> Result<(), WindowLogError> {
        let failed = |what, source: io::Error| error(&self.shown, what, source);
        match flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(()),
            other => other.map_err(|error| failed("locked", error.into()))?,
        }
        let written = self.append();
        // Ignore an error: the lock ends with the process at the latest.
        let _ = flock(&self.directory, FlockOperation::Unlock);
        written.map_err(|error| failed("written", error))?;
        self.waiting.clear();
        Ok(())
    }

    /// Appends the lines that wait. The caller has the lock.
    fn append(&self) -> io::Result<()> {
        let [older, newest] = Self::FILE_NAMES;
        let mut file = self.file(newest)?;
        let mut bytes = remove_cut_line(&file)?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        if bytes > 0 && bytes + self.waiting.len() as u64 > Self::FILE_BYTES_MAX {
            renameat(&self.directory, newest, &self.directory, older)?;
            file = self.file(newest)?;
            bytes = 0;
        }
        let head = if bytes == 0 { HEAD } else { "" };
        // One call writes whole lines, so a process that is killed leaves no part of a line.
        let written = file.write_all(format!("{head}{}", self.waiting).as_bytes());
        if written.is_err() {
            // Ignore an error: the next process removes what remains of the last line.
            let _ = file.set_len(bytes);
        }
        written
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.directory, name, flags, FILE_MODE)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

fn error(path: &Path, what: &'static str, source: io::Error) -> WindowLogError {
    WindowLogError::Io { path: path.to_owned(), what, source }
}

/// Cuts the file after its last line end. Returns its length.
fn remove_cut_line(file: &File) -> io::Result<u64> {
    let bytes = file.metadata()?.len();
    let mut last = [0];
    if bytes == 0 || (file.read_at(&mut last, bytes - 1)? == 1 && last == *b"\n") {
        return Ok(bytes);
    }
    let from = bytes.saturating_sub(LINE_BYTES_MAX);
    let mut tail = vec![0; usize::try_from(bytes - from).unwrap_or_default()];
    file.read_exact_at(&mut tail, from)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| from + at as u64 + 1);
    // A file without windows begins again with its first line.
    let whole = if whole == HEAD.len() as u64 { 0 } else { whole };
    file.set_len(whole)?;
    Ok(whole)
}

/// Mode of a new directory. The windows show how busy a host was, so they are private.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of a new file: its owner may read and write it.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// First line of a file: the length of the windows. It is
/// [`LossAttributor::WINDOW_PACKETS`](crate::proto::LossAttributor::WINDOW_PACKETS), which a test
/// checks.
const HEAD: &str = "# window 20000\n";
/// Largest number of bytes that wait for the lock. Other processes keep it for less than a
/// millisecond, in which one window is recorded at most; the limit is for a process that was
/// stopped.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Longest line: 10 000 runs of one packet, with two numbers of at most five digits and two commas
/// each, and evidence.
const LINE_BYTES_MAX: u64 = 128 << 10;
