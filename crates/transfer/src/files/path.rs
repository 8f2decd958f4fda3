//! Checks the names and paths of files that are sent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use thiserror::Error;

/// Prefix of the names of unfinished transfers. Files with such a name are neither sent nor
/// accepted.
pub const RESERVED_PREFIX: &str = ".barograph-partial-";

/// Maximum size of a path, in bytes: Linux's PATH_MAX is 4096, including the NUL at the end.
pub(super) const PATH_BYTES_MAX: usize = 4095;

/// Maximum size of a component, in bytes: NAME_MAX of all common file systems.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Maximum number of components in a path. Each component costs a system call, and a manifest may
/// have a million paths.
pub(super) const DEPTH_MAX: usize = 256;

/// Why a path may not be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty, begins or ends with a slash, or has two slashes in a row.
    #[error("{0:?} has an empty component, or is absolute")]
    Empty(PathBuf),
    /// A component is `.` or `..`.
    #[error("{0:?} has a component that is . or ..")]
    Dots(PathBuf),
    /// The path contains a NUL.
    #[error("{0:?} contains a NUL")]
    Nul(PathBuf),
    /// The path or a component is too long, or there are too many components.
    #[error(
        "{0:?} is too long: at most {PATH_BYTES_MAX} bytes, {DEPTH_MAX} components, {NAME_BYTES_MAX} bytes each"
    )]
    TooLong(PathBuf),
    /// A component has the name of an unfinished transfer.
    #[error("{0:?} has the name of an unfinished transfer ({RESERVED_PREFIX}…)")]
    Reserved(PathBuf),
    /// A link's target is absolute, or leads or may lead out of the directory.
    #[error("the link's target {0:?} may lead out of the directory")]
    Outside(PathBuf),
}

/// `bytes` as a path, for messages.
pub(super) fn shown(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Whether a name is reserved for unfinished transfers, in any case: some file systems ignore case.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    let head = name.get(..RESERVED_PREFIX.len()).unwrap_or_default();
    head.eq_ignore_ascii_case(RESERVED_PREFIX.as_bytes())
}

/// Checks that `path` is relative, stays below its start, and is within the limits.
pub fn check_path(path: &[u8]) -> Result<(), PathError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong(shown(path.get(..64).unwrap_or(path))));
    }
    let mut depth = 0;
    for name in path.split(|byte| *byte == b'/') {
        depth += 1;
        if name.is_empty() {
            return Err(PathError::Empty(shown(path)));
        }
        if name == b"." || name == b".." {
            return Err(PathError::Dots(shown(path)));
        }
        if name.contains(&0) {
            return Err(PathError::Nul(shown(path)));
        }
        if name.len() > NAME_BYTES_MAX || depth > DEPTH_MAX {
            return Err(PathError::TooLong(shown(path)));
        }
        if is_reserved(name) {
            return Err(PathError::Reserved(shown(path)));
        }
    }
    Ok(())
}

/// Checks that a link at `path` to `target` stays within the directory in which `path` begins.
///
/// `..` is allowed at the start of the target only. `..` after a name would apply to the target of
/// that name. If the name is a link too, two links that are harmless alone can lead out together
/// (`a/l` → `..`, `m` → `a/l/../../etc`). Errors: [`PathError::Outside`] if the link may lead out,
/// others if the target is not valid.
pub fn check_target(path: &[u8], target: &[u8]) -> Result<(), PathError> {
    if target.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong(shown(target.get(..64).unwrap_or(target))));
    }
    if target.is_empty() {
        return Err(PathError::Empty(shown(target)));
    }
    if target.contains(&0) {
        return Err(PathError::Nul(shown(target)));
    }
    let above = path.iter().filter(|byte| **byte == b'/').count();
    let (mut ups, mut is_below) = (0, false);
    for name in target.split(|byte| *byte == b'/').enumerate().map(|(index, name)| {
        // If the first component is empty, the target is absolute.
        if index == 0 && name.is_empty() { b"/" } else { name }
    }) {
        match name {
            b"/" => return Err(PathError::Outside(shown(target))),
            b".." if is_below || above <= ups => return Err(PathError::Outside(shown(target))),
            b".." => ups += 1,
            b"." | b"" => {}
            _ => is_below = true,
        }
    }
    Ok(())
}
