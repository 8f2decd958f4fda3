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

mod destination;
mod error;
mod jail;
mod journal;
mod kept;
mod manifest;
mod path;
mod place;
mod present;
mod recent;
mod source;
mod system;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

pub use destination::{Destination, DestinationConfig, TransferId};
pub use error::FileError;
pub use journal::Journal;
pub use kept::{Check, Kept, Node, Record};
pub use manifest::{Entry, Kind, Manifest, ManifestError, Modified, Piece};
pub use path::{PathError, RESERVED_PREFIX, check_path, check_target};
pub use place::Placed;
pub use present::Present;
pub use source::Source;
pub use tree::{GROUP_BYTES, Tree};
pub use walk::{Notice, Special, WalkConfig};
