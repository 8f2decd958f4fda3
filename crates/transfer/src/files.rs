//! Files as one object, and the object as files again (feature `files`, Unix).
//!
//! - A [`Manifest`] lists what is sent: files, directories, links. The *object* is the bytes of all
//!   files, one file after the other; each packet has an offset in the object. Small files share
//!   packets, and holes of sparse files are not part of the object.
//! - A [`Source`] creates the manifest of all files below some paths, and reads ranges of the
//!   object. A source detects files that change, and can [keep](Source::use_hash_cache) hashes for
//!   the next run.
//! - A [`Destination`] writes ranges of the object below one directory, and nowhere else. Files get
//!   their names when all files are complete, verified and durable.
//! - [`ExistingFiles`] compares the hashes of files that exist already under their names, and
//!   writes nothing.
//! - A [`Journal`] records what is durable, so that a killed transfer can resume.
//! - A [`WindowLog`] keeps windows with known causes of loss, to learn a model from.
//! - A [`Tree`] is the BLAKE3 hash of a file that arrives in parts, in any order.
//!
//! This module has no clock and no socket: the caller decides when to [`Destination::sync`].

#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod destination;
pub(crate) mod error;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod existing;
mod jail;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod journal;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod journal_state;
mod lru;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod manifest;
pub(crate) mod path;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod rename;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod source;
mod system;
#[cfg(test)]
mod tests;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod tree;
pub(crate) mod walk;
pub(crate) mod window_log;

pub use destination::DestinationConfig;
pub(crate) use destination::{Destination, TransferId};
pub use error::FileError;
pub(crate) use existing::ExistingFiles;
pub(crate) use journal::Journal;
pub(crate) use journal_state::{HashNode, JournalRecord, JournalState};
pub use manifest::ManifestError;
pub(crate) use manifest::{EntryKind, Manifest, ManifestEntry, Modified};
pub use path::{PathError, RESERVED_PREFIX};
pub(crate) use rename::RenamedFiles;
pub(crate) use source::Source;
pub(crate) use tree::{GROUP_BYTES, Tree};
pub use walk::{SkippedPath, SpecialFilePolicy, WalkConfig};
pub use window_log::{WindowLog, WindowLogError};
