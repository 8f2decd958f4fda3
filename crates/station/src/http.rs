//! The station's port: connections, and HTTP on them.

pub(crate) mod peer;
pub(crate) mod server;
