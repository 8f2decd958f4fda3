//! The remote end of a connection to the station's port.

use std::net::{IpAddr, SocketAddr};

/// The remote end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Address and port of the remote end.
    pub(crate) address: SocketAddr,
    /// Address of this host to which it connected.
    pub(crate) own: IpAddr,
    /// Encryption of the connection.
    pub(crate) channel: Channel,
}

/// Encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Plain text, to a station without certificates.
    Plain,
    /// TLS, with the station's certificate.
    Tls,
    /// Plain text, to a station with certificates; only for probes with a single-use token.
    PlainBesideTls,
}

impl Peer {
    /// Whether the connection comes from this host: over loopback, or from the address to which it
    /// connected. No other host can hold a connection with that address.
    pub(crate) fn is_here(&self) -> bool {
        let ip = self.address.ip().to_canonical();
        ip.is_loopback() || ip == self.own.to_canonical()
    }
}
