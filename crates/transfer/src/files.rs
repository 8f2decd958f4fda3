//! Files as one object, and an object as files again (feature `files`, Unix).
//!
//! - A [`Manifest`] says what is sent: files, directories, links. The bytes of all files, end to end, are the *object* whose places
//!   packets carry; small files share packets, and holes of sparse files have no place in it.
//! - A [`Source`] walks paths into a manifest and reads ranges of the object; it notices files that change, and can
//!   [remember](Source::remember) hashes for the next start.
//! - A [`Destination`] writes ranges of the object below one directory and nowhere else; files get their names when all are whole,
//!   verified and on the disk.
//! - [`Present`] files are there already under their names; they are compared by their hashes, and nothing is written.
//! - A [`Journal`] remembers what is on the disk, so that a transfer goes on where it was killed.
//! - A [`Tree`] is the BLAKE3 of a file whose parts come in any order.
//!
//! No clock and no socket; the caller says when to [`Destination::sync`].

#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod destination;
pub(crate) mod error;
mod jail;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod journal;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod kept;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod manifest;
pub(crate) mod path;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod place;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod present;
mod recent;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod source;
mod system;
#[cfg(test)]
mod tests;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod tree;
pub(crate) mod walk;

pub use destination::DestinationConfig;
pub(crate) use destination::{Destination, TransferId};
pub use error::FileError;
pub(crate) use journal::Journal;
pub(crate) use kept::{Kept, Node, Record};
pub use manifest::ManifestError;
pub(crate) use manifest::{Entry, Kind, Manifest, Modified};
pub use path::{PathError, RESERVED_PREFIX};
pub(crate) use place::Placed;
pub(crate) use present::Present;
pub(crate) use source::Source;
pub(crate) use tree::{GROUP_BYTES, Tree};
pub use walk::{Notice, Special, WalkConfig};
