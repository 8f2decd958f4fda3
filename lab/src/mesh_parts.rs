//! What a mesh on one machine is made of: processes, NATS servers, and questions to stations over HTTP.

mod http;
mod nats;
mod process;

use std::net::SocketAddr;

use anyhow::Context as _;
use socket2::{Domain, Socket, Type};

pub(crate) use self::http::{get, get_any, post, text};
pub(crate) use self::nats::{Cluster, program};
pub(crate) use self::process::Process;

/// A port of this machine, held until this is dropped.
///
/// The socket is bound and does not listen: connections are refused, the system gives the port to no
/// other program, and a process that sets `SO_REUSEADDR`, as servers do, can listen there, also after it was killed.
pub(crate) struct Port {
    pub(crate) number: u16,
    _held: Socket,
}

impl Port {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let held = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        held.set_reuse_address(true)?;
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        let number = held.local_addr()?.as_socket_ipv4().context("an IPv4 address was bound")?.port();
        Ok(Self { number, _held: held })
    }
}
