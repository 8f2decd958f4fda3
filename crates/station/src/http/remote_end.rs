//! The remote end of a connection to the station's port.

use std::net::{IpAddr, SocketAddr};

/// The remote end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteEnd {
    /// Address and port of the remote end.
    pub(crate) address: SocketAddr,
    /// Address of this host to which the remote end connected.
    pub(crate) local_ip: IpAddr,
    pub(crate) encryption: Encryption,
}

/// Encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// Plain text, to a station without certificates.
    Plain,
    /// TLS, with the station's certificate.
    Tls,
    /// Plain text, to a station with certificates; only for probes with a single-use token.
    PlainWithTls,
}

impl RemoteEnd {
    /// Whether the connection comes from this host: over loopback, or from the address to which it
    /// connected. No other host can hold a connection with that address.
    pub(crate) fn is_same_host(&self) -> bool {
        let ip = self.address.ip().to_canonical();
        ip.is_loopback() || ip == self.local_ip.to_canonical()
    }
}
