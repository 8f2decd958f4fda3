//! Whether what is to come may, and fits.

use rustix::fs::{FallocateFlags, FileType, fallocate, fstatvfs};
use rustix::io::Errno;

use super::super::path::check_target;
use super::super::{Kind, Manifest};
use super::{Destination, DestinationConfig, FileError};

impl Destination {
    pub(super) fn check_free(&mut self) -> Result<(), FileError> {
        for entry in self.manifest.entries() {
            let found = self.jail.kind(&entry.path)?;
            let is_free = match (found, &entry.kind) {
                (None, _) => true,
                (Some(found), Kind::Directory) => found == FileType::Directory,
                (Some(found), _) => self.config.replace && found != FileType::Directory,
            };
            if !is_free {
                return Err(FileError::Exists(self.jail.shown(&entry.path)));
            }
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self) -> Result<(), FileError> {
        if !self.config.allocate {
            return Ok(());
        }
        // fallocate(2) takes all there is before it says that this is too little.
        let system = fstatvfs(&self.partial).map_err(|error| FileError::io(&self.path, "measured", error))?;
        let (needed, free) = (self.missing(), system.f_bavail.saturating_mul(system.f_frsize));
        if free < needed {
            return Err(FileError::NoRoom { path: self.path.clone(), needed, free });
        }
        for entry in 0..self.manifest.entries().len() {
            let pieces: Vec<_> = self.manifest.pieces(self.manifest.range(entry)).collect();
            for piece in pieces {
                let path = self.shown(entry);
                let length = piece.object.end - piece.object.start;
                match fallocate(self.file(entry)?, FallocateFlags::empty(), piece.at, length) {
                    // Not every file system can.
                    Ok(()) | Err(Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(FileError::io(path, "given its room", error)),
                }
            }
        }
        Ok(())
    }
}

/// Whether a receiver of `config` takes `manifest` at all.
pub(super) fn check_allowed(manifest: &Manifest, config: &DestinationConfig) -> Result<(), FileError> {
    let entries = manifest.entries().len() as u64;
    for (what, asked, allowed) in
        [("bytes", manifest.bytes(), config.bytes_max), ("entries", entries, config.entries_max)]
    {
        if allowed < asked {
            return Err(FileError::Quota { what, asked, allowed });
        }
    }
    for entry in manifest.entries() {
        if let Kind::Link { target } = &entry.kind {
            if !config.links {
                return Err(FileError::Link(entry.shown()));
            }
            check_target(&entry.path, target)?;
        }
    }
    Ok(())
}
