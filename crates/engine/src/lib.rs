//! Directory, bus and archive behind one trait.
#![forbid(unsafe_code)]

mod record;

pub use record::{
    BoxStream, Capabilities, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range,
    Record, Selector,
};
