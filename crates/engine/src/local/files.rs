//! The state directory: its lock, the archive file, the file's format and its errors.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{EngineError, Local};

/// The state directory, locked while this value lives.
pub(super) struct Files {
    pub(super) archive: PathBuf,
    /// Whether the disk has returned an I/O error since the last commit.
    disk_failed: AtomicBool,
    _lock: File,
}

impl Files {
    /// Creates the directory if it is missing, and locks it against a second station.
    pub(super) fn lock(directory: &Path) -> Result<Self, EngineError> {
        let lock = lock(directory)?;
        let archive = directory.join(Local::FILE);
        // SQLite creates its side files with the mode of the archive file.
        OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&archive)
            .and_then(|_| File::open(directory)?.sync_all())
            .map_err(|error| {
                EngineError::Unavailable(format!(
                    "{} cannot be written: {}",
                    archive.display(),
                    describe_io_error(&error)
                ))
            })?;
        Ok(Self { archive, disk_failed: AtomicBool::new(false), _lock: lock })
    }

    /// Opens the archive for writing. An empty file becomes a new archive.
    pub(super) fn open(&self) -> Result<Connection, EngineError> {
        self.check_lengths()?;
        let mut connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        self.identify(&connection)?;
        self.prepare(&mut connection).map_err(|error| self.error_at_opening(&error))?;
        self.check(&connection)?;
        Ok(connection)
    }

    /// Opens a connection that only reads. Call [`Files::open`] first.
    pub(super) fn open_reader(&self) -> Result<Connection, EngineError> {
        let connection = self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }

    /// Converts an SQLite error for the caller.
    ///
    /// After an input/output error SQLite may report the file as malformed until the disk responds
    /// again. So "malformed" after an input/output error is reported as a failure of the disk. Real
    /// damage is detected when the archive is opened again.
    pub(super) fn error(&self, error: &rusqlite::Error) -> EngineError {
        let path = self.archive.display();
        let code = error.sqlite_error_code();
        if code == Some(ErrorCode::SystemIoFailure) && !lacks_index(error) {
            self.disk_failed.store(true, Ordering::Relaxed);
        }
        match code {
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase,
            ) if self.disk_failed.load(Ordering::Relaxed) => EngineError::Unavailable(format!(
                "the disk of {path} does not answer ({error}). Acknowledged records are on it. Repair or remount it, \
                 then restart"
            )),
            Some(ErrorCode::DiskFull) => EngineError::Unavailable(format!(
                "the disk of {path} is full; nothing was stored. Free some space; storing resumes automatically"
            )),
            // The archive makes every key, and each key is new. So a key that already exists shows
            // that the archive is damaged.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation) => {
                self.corrupt(&error.to_string())
            }
            Some(_) => EngineError::Unavailable(format!("{path}: {error}")),
            // A value does not have the format in which the archive writes it, so the file is
            // damaged.
            None => self.corrupt(&error.to_string()),
        }
    }

    /// Converts an SQLite error of an archive that is being opened, where no caller waits for
    /// space.
    pub(super) fn error_at_opening(&self, error: &rusqlite::Error) -> EngineError {
        // Without disk space for the index of the write-ahead log, SQLite cannot even read the
        // archive.
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) || lacks_index(error) {
            let full = io::Error::from(io::ErrorKind::StorageFull);
            return EngineError::Unavailable(format!(
                "{} cannot be opened: {}",
                self.archive.display(),
                describe_io_error(&full)
            ));
        }
        self.error(error)
    }

    /// Records that the disk accepted a commit.
    pub(super) fn committed(&self) {
        self.disk_failed.store(false, Ordering::Relaxed);
    }

    fn corrupt(&self, what: &str) -> EngineError {
        EngineError::Corrupt(format!(
            "{}: {what}. Nothing was deleted. Restore a backup, or move the file with its -wal and -shm files away to \
             start a new archive",
            self.archive.display()
        ))
    }

    fn connect(&self, mode: OpenFlags) -> Result<Connection, EngineError> {
        let connection = Connection::open_with_flags(&self.archive, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|error| self.error(&error))?;
        connection.busy_timeout(BUSY).map_err(|error| self.error(&error))?;
        Ok(connection)
    }

    /// Refuses files that SQLite would overwrite as an empty database: a file shorter than a page,
    /// and an empty file beside a log that has data.
    fn check_lengths(&self) -> Result<(), EngineError> {
        let bytes = |path: &Path| match fs::metadata(path) {
            Ok(file) => Ok(file.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(EngineError::Unavailable(format!("{}: {error}", path.display()))),
        };
        let log = self.archive.with_extension("db-wal");
        match (bytes(&self.archive)?, bytes(&log)?) {
            (0, 0) => Ok(()),
            (0, _) => Err(self.corrupt("the file is empty, but its log is not")),
            (1..PAGE_BYTES_MIN, _) => Err(self.corrupt("the file is too short to be an archive")),
            _ => Ok(()),
        }
    }

    /// Refuses a file that is no archive of a supported format, before anything is written.
    fn identify(&self, connection: &Connection) -> Result<(), EngineError> {
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let identity = || {
            let tables =
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
            Ok((pragma("application_id")?, pragma("user_version")?, tables))
        };
        let (application, format, tables) = identity().map_err(|error| self.error_at_opening(&error))?;
        match (application, u32::try_from(format)) {
            (0, Ok(0)) if tables == 0 => Ok(()),
            (APPLICATION, Ok(found)) if found > FORMAT => Err(EngineError::TooNew { found, known: FORMAT }),
            (APPLICATION, Ok(FORMAT)) => Ok(()),
            (APPLICATION, _) => Err(self.corrupt(&format!("unknown format {format}"))),
            _ => Err(self.corrupt("an SQLite database of another program")),
        }
    }

    fn prepare(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // On macOS, fsync alone leaves data in the drive's cache. The two settings have no effect
        // elsewhere.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
        let transaction = connection.transaction()?;
        if transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))? == 0 {
            transaction.execute_batch(include_str!("schema.sql"))?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
        }
        transaction.commit()
    }

    /// Checks a small archive completely for damage. A large archive is not checked, because that
    /// would delay the start by seconds; SQLite detects the damage of a large archive when SQLite
    /// reads the damaged page.
    fn check(&self, connection: &Connection) -> Result<(), EngineError> {
        if fs::metadata(&self.archive).is_ok_and(|file| file.len() > CHECKED_BYTES) {
            return Ok(());
        }
        let found: String = connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|error| self.error(&error))?;
        if found == "ok" { Ok(()) } else { Err(self.corrupt(found.trim())) }
    }
}

/// Returns whether the error reports that there was no space for the index of the write-ahead log.
fn lacks_index(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == SQLITE_IOERR_SHMSIZE)
}

fn lock(directory: &Path) -> Result<File, EngineError> {
    let unavailable = |error: io::Error| {
        EngineError::Unavailable(format!(
            "{} cannot be written: {}",
            directory.display(),
            describe_io_error(&error)
        ))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unavailable)?;
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join("lock"))
        .map_err(unavailable)?;
    let give_up = Instant::now() + LOCK_WAIT;
    while let Err(refused) = file.try_lock() {
        match refused {
            TryLockError::WouldBlock if Instant::now() < give_up => thread::sleep(LOCK_RETRY),
            TryLockError::WouldBlock => {
                let mut holder = String::new();
                // The process number is only for the message, so a failed read is ignored.
                let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut holder);
                return Err(EngineError::Unavailable(format!(
                    "another station (process {}) uses {}; stop it, or choose another state directory",
                    holder.trim(),
                    directory.display()
                )));
            }
            TryLockError::Error(error) => return Err(unavailable(error)),
        }
    }
    // The process number is only for the message above, so a failed write is ignored: a full disk
    // must not prevent opening the archive.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Message of a file system error, with the remedy for an administrator, if a remedy is known.
#[must_use]
pub fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{error}: free {ROOM} on its file system, or inodes (df -h, df -i)")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}: make its file system writable, or use another state directory")
        }
        _ => error.to_string(),
    }
}

/// Free space that a new archive needs: 140 KB with its log, and one block for each small file in
/// the directory.
const ROOM: &str = "1 MiB";

/// The shared-memory file of an archive, `-shm`, cannot grow to the size that it needs.
const SQLITE_IOERR_SHMSIZE: i32 = 10 | 19 << 8;

/// Application ID of an archive, "baro" in ASCII. The command `file` and SQLite's tools identify an
/// archive by this ID.
const APPLICATION: i64 = 0x6261_726f;

/// Number of the format of `schema.sql`. The number increases with each change that an older
/// version could not read.
const FORMAT: u32 = 1;

/// Longest wait for another program that has locked the database, such as `sqlite3`.
const BUSY: Duration = Duration::from_secs(5);

/// Size of the smallest page of an SQLite database, in bytes (SQLite's file format, §1.3.2).
const PAGE_BYTES_MIN: u64 = 512;

/// Longest wait for a station that is being stopped to release its archive.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Interval of retries of the lock.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Size in bytes to which the write-ahead log is truncated after a long read or a large backup made
/// it grow.
const LOG_BYTES: i64 = 16 << 20;

/// Largest size, in bytes, of an archive that is checked completely at the start. The check takes
/// about 0.1 s.
const CHECKED_BYTES: u64 = 64 << 20;

/// Capacity of the cache of prepared statements. There are fewer different statements, so each
/// statement is prepared once.
const STATEMENTS: usize = 32;
