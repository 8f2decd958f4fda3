//! What a mesh on one machine is made of: processes, NATS servers, and questions to stations over HTTP.

mod http;
mod nats;
mod process;

use std::net::TcpListener;

pub(crate) use self::http::{get, post, text};
pub(crate) use self::nats::{Cluster, program};
pub(crate) use self::process::Process;

/// A port of this machine that was free a moment ago: a process that is killed comes back under it.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
