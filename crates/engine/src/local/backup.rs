//! Makes a consistent copy of the archive while it is in use.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::files::Files;
use crate::EngineError;

/// Copies the archive to `path`. The file appears when the copy is complete and durable.
pub(super) fn backup(files: &Files, path: &Path) -> Result<(), EngineError> {
    let refused =
        |error: io::Error| EngineError::Unavailable(format!("{} cannot be written: {error}", path.display()));
    if path.try_exists().map_err(refused)? {
        return Err(exists(path));
    }
    let partial = Partial::create(path)?;
    copy(files, &partial.path, BUSY_MAX).map_err(|error| match error.sqlite_error_code() {
        // Of all errors, only damage concerns the archive that is copied. All other errors concern
        // the new file.
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => files.error(&error),
        _ => EngineError::Unavailable(format!("{} cannot be written: {error}", path.display())),
    })?;
    publish(&partial.path, path, |from, to| fs::hard_link(from, to)).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => refused(error),
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(refused)
}

fn exists(path: &Path) -> EngineError {
    EngineError::Invalid(format!(
        "{} exists; choose another file name, a backup overwrites nothing",
        path.display()
    ))
}

/// Gives the complete copy its final name, without replacing a file of that name that appeared
/// during the copy.
fn publish(partial: &Path, path: &Path, link: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    match link(partial, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            // FAT and some network disks have no hard links. There, create an empty file with the
            // final name first, then replace it by the copy.
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
            fs::rename(partial, path).inspect_err(|_| {
                let _ = fs::remove_file(path);
            })
        }
        done => done,
    }
}

/// Copies page by page. Returns an error if another program's lock stops the copy for `busy_max`.
fn copy(files: &Files, path: &Path, busy_max: Duration) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags(&files.archive, flags | OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut to = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // A read transaction keeps the snapshot that is copied: commits during the copy neither change
    // nor restart it, and do not wait for it (WAL mode).
    let snapshot = from.unchecked_transaction()?;
    snapshot.query_row("SELECT count(*) FROM archive", [], |_| Ok(()))?;
    to.busy_timeout(Duration::ZERO)?;
    let backup = Backup::new(&from, &mut to)?;
    let mut moved = Instant::now();
    loop {
        match backup.step(PAGES)? {
            StepResult::Done => return Ok(()),
            StepResult::More => moved = Instant::now(),
            _ if moved.elapsed() > busy_max => {
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                let what = format!("another program has kept a lock for {busy_max:?}");
                return Err(rusqlite::Error::SqliteFailure(code, Some(what)));
            }
            _ => std::thread::sleep(BUSY_RETRY),
        }
    }
}

/// Temporary name of the unfinished copy. Dropping this value removes the temporary name. If the
/// copy is complete by then, the file also has its final name, and keeps that name.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(path: &Path) -> Result<Self, EngineError> {
        // If a backup is killed, its unfinished file remains. This file must not prevent the next
        // backup.
        for number in 1..=REMNANTS_MAX {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".partial{number}"));
            let path = PathBuf::from(name);
            match OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(EngineError::Unavailable(format!(
                        "{} cannot be written: {error}",
                        path.display()
                    )));
                }
            }
        }
        Err(EngineError::Invalid(format!(
            "{REMNANTS_MAX} backups to {0} were interrupted; remove their files {0}.partial1 and so on",
            path.display()
        )))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Ignore the error: the file was renamed, or it cannot be removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Number of pages copied in one step; together they have 4 MiB.
const PAGES: i32 = 1024;

/// Longest time that another program may lock the copy or the archive before the backup fails.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// Interval of retries while the lock is held.
const BUSY_RETRY: Duration = Duration::from_millis(10);

/// Largest number of unfinished copies. If there are more, no backup ever completes, and each copy
/// takes space.
const REMNANTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::{Local, LocalConfig};

    #[test]
    fn publish_without_hard_links_renames_the_copy_and_replaces_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let (partial, path) = (directory.path().join("partial"), directory.path().join("backup"));
        let no_links = |_: &Path, _: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        fs::write(&partial, "whole").unwrap();
        publish(&partial, &path, no_links).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");

        fs::write(&partial, "another").unwrap();
        for refused in
            [publish(&partial, &path, no_links), publish(&partial, &path, |from, to| fs::hard_link(from, to))]
        {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn copy_fails_if_another_program_locks_the_destination() {
        let directory = tempfile::tempdir().unwrap();
        drop(Local::open(LocalConfig::new(directory.path())).unwrap());
        let files = Files::lock(directory.path()).unwrap();
        let path = directory.path().join("copy");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE other (x); BEGIN EXCLUSIVE").unwrap();
        let refused = copy(&files, &path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{refused}");
        assert!(refused.to_string().contains("another program"), "{refused}");
    }
}
