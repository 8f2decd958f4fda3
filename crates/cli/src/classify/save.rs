//! Writes a file completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a temporary file beside `path`, and renames it once it is on the disk: on any failure the
/// old file stays. A pipe or a device is written to directly.
pub(super) fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Replace the target of a symbolic link, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return fs::OpenOptions::new().write(true).open(&path)?.write_all(bytes);
    }
    let beside = beside(&path)?;
    let written = (|| {
        let mut file = File::create_new(&beside)?;
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
        // Ignore errors: the temporary file may not exist, and the caller needs the first error.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A name in the same folder that no other process uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    name.push(format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(name))
}
