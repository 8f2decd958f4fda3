//! The state directory: private, with the token and other small files, each written as a whole or
//! not at all.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

mod files;

pub use files::StateFiles;

/// Creates the directory for its owner alone (mode 0700), if it does not exist.
///
/// # Errors
/// The error of the system. A directory in which other users can write is refused, because other
/// users could replace the token.
pub fn prepare(directory: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mode = std::fs::metadata(directory)?.permissions().mode();
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let message = format!(
        "other users can write to the directory (mode {:04o}); run `chmod go-w {}`",
        mode & 0o7777,
        directory.display()
    );
    Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, message))
}

/// The station's token: read from the directory, or made at the first start (mode 0600). If a new
/// token cannot be written, the station still uses it, and writes it later.
///
/// # Errors
/// The error of the system when reading the file. A file without a valid token is an error, and is
/// not replaced.
pub fn token(files: &StateFiles) -> std::io::Result<String> {
    match std::fs::read_to_string(files.directory().join(TOKEN_FILE)) {
        Ok(text) => check_token(text.trim()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let token = random_token()?;
            files.write_new(TOKEN_FILE, format!("{token}\n").into_bytes(), NO_TOKEN);
            Ok(token)
        }
        Err(error) => Err(error),
    }
}

/// Reads the token for another station from a file.
///
/// # Errors
/// The error of the system, or that the file contains no valid token.
pub(crate) fn other_token(path: &Path) -> std::io::Result<String> {
    check_token(std::fs::read_to_string(path)?.trim())
}

/// Writes the station's URL into the file `url` of the state directory.
pub(crate) fn write_url(files: &StateFiles, url: &str) {
    files.write(URL_FILE, format!("{url}\n").into_bytes(), NO_URL);
}

/// Removes the file that [`write_url`] wrote. If the file cannot be removed, callers that use it
/// get a refused connection.
pub(crate) fn remove_url(files: &StateFiles) {
    files.remove(URL_FILE);
}

/// URL of the station that uses this state directory; `None` if the file `url` cannot be read. A
/// station removes this file when it stops.
#[must_use]
pub fn read_url(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join(URL_FILE)).ok().map(|text| text.trim().to_string())
}

/// Writes a file that only its owner can read, as a whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    put_whole(path, bytes, |new| std::fs::rename(new, path))
}

/// Writes a new file like [`write_whole`]. If the file exists, it stays unchanged, and the error is
/// [`std::io::ErrorKind::AlreadyExists`].
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    put_whole(path, bytes, |new| {
        match std::fs::hard_link(new, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(error),
            // This file system has no hard links. Rename instead; the file did not exist a moment
            // ago.
            Err(_) if !path.try_exists()? => return std::fs::rename(new, path),
            linked => linked?,
        }
        std::fs::remove_file(new)
    })
}

/// Writes a temporary file next to `path`, and calls `put` to move this file to `path`.
fn put_whole(
    path: &Path,
    bytes: &[u8],
    put: impl FnOnce(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let new = path.with_extension("new");
    // Remove a temporary file that a crash may have left. If a different program creates a link in
    // between, `create_new` does not follow that link.
    remove(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| put(&new)).inspect_err(|_| {
        // Remove the partial file, because it would continue to occupy a full disk.
        let _ = std::fs::remove_file(&new);
    })?;
    sync_directory(path)
}

/// Removes a file durably; a missing file is no error.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_directory(path)),
    }
}

/// Syncs the directory of `path`, because without this the name of the file is not durable.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

pub(crate) fn random_token() -> std::io::Result<String> {
    let mut bytes = [0_u8; 32];
    // Use the kernel's random generator: it needs no dependency, and is seeded long before a
    // station starts.
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(barograph_engine::wire::hex(&bytes))
}

fn check_token(token: &str) -> std::io::Result<String> {
    let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        Ok(token.to_string())
    } else {
        let message = format!("a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters");
        Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message))
    }
}

/// Write permission of the group and of other users.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const URL_FILE: &str = "url";
const NO_URL: &str = "commands on this host need `--station URL`";
const NO_TOKEN: &str = "the token is only in memory; a restart makes a new one";
/// Name of the token's file in the state directory.
pub const TOKEN_FILE: &str = "token";
/// Minimum number of bytes of a token, so that a token cannot be guessed over the network.
const TOKEN_BYTES_MIN: usize = 16;
/// Maximum number of bytes of a token, so that a token fits into a header.
const TOKEN_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_token_is_private_random_and_persistent() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("a/b");
        prepare(&state).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o700);
        let first = token(&StateFiles::new(&state)).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(mode(&state.join(TOKEN_FILE)), 0o600);
        assert_eq!(token(&StateFiles::new(&state)).unwrap(), first);
        let other = directory.path().join("c");
        prepare(&other).unwrap();
        assert_ne!(token(&StateFiles::new(&other)).unwrap(), first);
    }

    #[test]
    fn a_state_directory_writable_by_other_users_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, fine) in [(0o755, true), (0o700, true), (0o770, false), (0o777, false)] {
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(prepare(directory.path()).is_ok(), fine, "{mode:o}");
        }
    }

    #[test]
    fn a_symbolic_link_at_the_temporary_path_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, "mine").unwrap();
        std::os::unix::fs::symlink(&elsewhere, directory.path().join("url.new")).unwrap();
        write_url(&StateFiles::new(directory.path()), "http://127.0.0.1:1/");
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "mine");
        assert_eq!(read_url(directory.path()).unwrap(), "http://127.0.0.1:1/");
    }

    #[test]
    fn an_invalid_token_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "short", "with a space in it, and long enough"] {
            std::fs::write(directory.path().join(TOKEN_FILE), text).unwrap();
            assert!(token(&StateFiles::new(directory.path())).is_err(), "{text:?}");
        }
    }
}
