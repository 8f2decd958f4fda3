//! How each end knows the other: by certificate, by a pinned fingerprint, or by the line that a receiver prints.

use std::net::SocketAddr;

use super::control::Token;

/// SHA-256 of a certificate (DER), as `openssl x509 -fingerprint -sha256` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// The line that a receiver prints and a sender is given: where, who, and what for.
///
/// `brg://host:port/` and 64 characters of base64url: 32 bytes of fingerprint, 16 of token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Of the receiver's certificate.
    pub fingerprint: Fingerprint,
    /// Lets the sender in.
    pub token: Token,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Identity {}

/// Whom an end takes for its peer.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Who has the key of this certificate.
    Pinned(Vec<Fingerprint>),
    /// Whom these authorities vouch for (PEM), or the system's if there are none.
    Authorities(Vec<u8>),
}

/// Unused; keeps the address type in view.
pub type Peer = SocketAddr;
