//! The port: connections, TLS, and HTTP on them.

pub(crate) mod server;
pub mod tls;
