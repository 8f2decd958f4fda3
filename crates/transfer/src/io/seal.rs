//! Seals of datagrams (`docs/spec/transfer.md` §2).
//!
//! The key changes with the number: packets n of one direction are sealed with key n / 2^23 (RFC 9001 §6.6: AES-128-GCM's limit of
//! confidentiality for packets of any size), which HKDF makes from the direction's secret; nothing is to be agreed on for that.

use crate::wire::Header;

/// How datagrams are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Not at all: anyone who can send to either end can forge.
    Clear,
    /// AES-128-GCM (RFC 5116).
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

/// The secrets of one transfer, from the exporter of its control connection (RFC 8446 §7.5); one for each direction.
#[derive(Clone)]
pub struct Secrets {
    /// Of data.
    pub data: [u8; 32],
    /// Of feedback.
    pub feedback: [u8; 32],
}

/// Seals what one end sends.
#[derive(Debug)]
pub struct Sealer {}

impl Sealer {
    /// With a direction's secret.
    pub fn new(suite: Suite, secret: &[u8; 32]) -> Self {
        todo!()
    }

    /// Bytes that a seal adds: 16 or 0.
    pub fn seal_bytes(&self) -> usize {
        todo!()
    }

    /// Seals a datagram in place: `datagram` is a header, a body and room for the seal.
    pub fn seal(&mut self, number: u64, datagram: &mut [u8]) {
        todo!()
    }
}

/// Opens what the other end sends.
#[derive(Debug)]
pub struct Opener {}

impl Opener {
    /// With a direction's secret.
    pub fn new(suite: Suite, secret: &[u8; 32]) -> Self {
        todo!()
    }

    /// Opens a datagram in place: its header, and where its body is in it; `None` if it is not what was sealed.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(Header, &'a mut [u8])> {
        todo!()
    }
}
