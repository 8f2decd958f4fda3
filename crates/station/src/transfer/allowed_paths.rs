//! Decides which paths a transfer may read from or write into.

use std::path::{Path, PathBuf};

/// Resolves the links of `path`, if it is in one of `allowed` and neither inside nor above the
/// station's own `state`.
///
/// # Errors
/// The reason, in a sentence that reveals nothing of a path that is not allowed, not even whether
/// it exists.
pub(super) fn resolve_allowed(path: &Path, allowed: &[PathBuf], state: &Path) -> Result<PathBuf, String> {
    let refused = || {
        format!(
            "{} is not in a directory that this station may use for that (transfer.send, transfer.receive)",
            path.display()
        )
    };
    if !path.is_absolute() {
        return Err(format!("{} is not an absolute path; it must begin with /", path.display()));
    }
    let whole = |path: &Path| path.canonicalize();
    let found = whole(path).map_err(|_| refused())?;
    let is_within = allowed.iter().filter_map(|root| whole(root).ok()).any(|root| found.starts_with(root));
    // The state directory holds the token and the keys.
    let state = whole(state).unwrap_or_else(|_| state.to_path_buf());
    let is_own = found.starts_with(&state) || state.starts_with(&found);
    if is_within && !is_own { Ok(found) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_paths_inside_allowed_directories_and_outside_the_state_are_allowed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for name in ["out/deep", "other", "state", "outer/state"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        symlink(top.join("other"), top.join("out/link")).unwrap();
        symlink(top.join("out"), top.join("alias")).unwrap();
        let allowed = [top.join("alias"), top.join("outer"), top.join("state"), top.join("gone")];
        let judge = |path: &str, state: &str| resolve_allowed(&top.join(path), &allowed, &top.join(state));
        assert_eq!(judge("out/deep", "state").unwrap(), top.join("out/deep"));
        assert_eq!(judge("alias/deep", "state").unwrap(), top.join("out/deep"));
        for path in ["other", "out/link", "out/../other", "out/gone", "state", ".", "gone"] {
            assert!(judge(path, "state").is_err(), "{path}");
        }
        assert!(judge("outer", "outer/state").is_err(), "the state is below it");
        assert!(
            resolve_allowed(Path::new("out"), &allowed, &top.join("state"))
                .unwrap_err()
                .contains("begin with /")
        );
        let refusal = |path: &str| judge(path, "state").unwrap_err().replace(path, "…");
        assert_eq!(refusal("other"), refusal("gone"), "the refusal does not reveal whether it exists");
    }
}
