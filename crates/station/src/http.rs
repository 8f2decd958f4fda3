//! The station's port: connections, and HTTP on them.

pub(crate) mod remote_end;
pub(crate) mod server;
