//! A consistent copy of the archive, taken while it is in use.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::files::Files;
use crate::Error;

/// Copies the archive to `path`, which appears when the copy is whole and durable.
pub(super) fn backup(files: &Files, path: &Path) -> Result<(), Error> {
    let refused =
        |error: io::Error| Error::Unavailable(format!("{} cannot be written: {error}", path.display()));
    if path.try_exists().map_err(refused)? {
        return Err(Error::Invalid(format!("{} exists; a backup overwrites nothing", path.display())));
    }
    let partial = Partial::create(path)?;
    copy(files, &partial.path).map_err(|error| match error.sqlite_error_code() {
        // Errors of the copy are about its own file; damage is in the one that is read.
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => files.error(&error),
        _ => Error::Unavailable(format!("{} cannot be written: {error}", path.display())),
    })?;
    // Unlike a rename, a link does not replace a file that appeared in the meantime.
    fs::hard_link(&partial.path, path).map_err(refused)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(refused)
}

fn copy(files: &Files, path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags(&files.archive, flags | OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut to = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // A read that stays open holds the state that is copied, so that commits meanwhile neither
    // show in the copy nor make it begin anew; and they do not wait for it (WAL).
    let snapshot = from.unchecked_transaction()?;
    snapshot.query_row("SELECT count(*) FROM archive", [], |_| Ok(()))?;
    let backup = Backup::new(&from, &mut to)?;
    loop {
        match backup.step(PAGES)? {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The unfinished copy; removed when dropped, by when its good name may be linked to it.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(path: &Path) -> Result<Self, Error> {
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let path = PathBuf::from(name);
        match OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path) {
            Ok(_) => Ok(Self { path }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Invalid(format!(
                "{} exists: another backup is under way, or was cut short and its remnant must be removed",
                path.display()
            ))),
            Err(error) => Err(Error::Unavailable(format!("{} cannot be written: {error}", path.display()))),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // If it cannot be removed, the next backup names it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Pages copied in one step: 4 MiB.
const PAGES: i32 = 1024;
