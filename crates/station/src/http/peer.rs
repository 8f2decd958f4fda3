//! The other end of a connection to the port.

use std::net::{IpAddr, SocketAddr};

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// The address of this host that it came to.
    pub(crate) own: IpAddr,
    /// How it speaks to us.
    pub(crate) channel: Channel,
}

/// How a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Plainly, and nothing else is offered.
    Plain,
    /// Through TLS.
    Tls,
    /// Plainly, to a station that has certificates: only for probes with a single-use token.
    PlainBesideTls,
}

impl Peer {
    /// Whether the connection comes from this host: over loopback, or from the address it came to, which
    /// no one else can hold a connection from.
    pub(crate) fn is_here(&self) -> bool {
        let ip = self.address.ip().to_canonical();
        ip.is_loopback() || ip == self.own.to_canonical()
    }
}
