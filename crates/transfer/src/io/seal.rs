//! Encryption and authentication of datagrams, called seals (`docs/spec/transfer.md` §2).
//!
//! The key depends on the packet's number: packet n of a direction is sealed with key ⌊n / 2^23⌋.
//! So a key seals at most 2^23 packets, the confidentiality limit of AES-128-GCM for packets of any
//! size (RFC 9001 §6.6). HKDF derives the keys from the direction's secret, so the ends need not
//! agree on a change of keys.

#[cfg(test)]
mod tests;

use std::fmt;

use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

use crate::proto::wire::{HEADER_BYTES, Header, SEAL_BYTES};

/// Algorithm that seals datagrams, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// No seal: any host that can send to an end can forge datagrams.
    Clear,
    /// AES-128-GCM (RFC 5116 §5.1).
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439 §2.8).
    ChaCha20Poly1305,
}

impl Suite {
    /// The fastest suite on this machine: AES-128-GCM if the CPU has instructions for AES and for
    /// carry-less products, otherwise ChaCha20-Poly1305, which is safe from timing attacks even
    /// without special instructions (RFC 8439 §1).
    pub fn fastest() -> Self {
        if has_aes() { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The suites that encrypt datagrams, for an Offer. The suite that is fastest on this machine
    /// comes first.
    pub fn sealed() -> [Self; 2] {
        match Self::fastest() {
            Self::ChaCha20Poly1305 => [Self::ChaCha20Poly1305, Self::Aes128Gcm],
            _ => [Self::Aes128Gcm, Self::ChaCha20Poly1305],
        }
    }

    /// The suite's algorithm, its name for key derivation, and the maximum number of datagrams that
    /// may fail to open (the integrity limit of RFC 9001 §6.6).
    fn parts(self) -> Option<(&'static ring::aead::Algorithm, &'static [u8], u64)> {
        match self {
            Self::Clear => None,
            Self::Aes128Gcm => Some((&AES_128_GCM, b"aes-128-gcm", 1 << 52)),
            Self::ChaCha20Poly1305 => Some((&CHACHA20_POLY1305, b"chacha20-poly1305", 1 << 36)),
        }
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// The secrets of one transfer, one for each direction, from the exporter of its control connection
/// (RFC 8446 §7.5).
#[derive(Clone)]
pub struct Secrets {
    pub data: [u8; 32],
    pub feedback: [u8; 32],
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// Seals the datagrams that one end sends.
pub struct Sealer {
    keys: Option<Keys>,
    current: Option<Key>,
}

impl Sealer {
    /// Creates a sealer with the secret of a direction.
    pub fn new(suite: Suite, secret: &[u8; 32]) -> Self {
        let keys = Keys::new(suite, secret);
        Self { current: keys.as_ref().and_then(|keys| keys.key(0)), keys }
    }

    /// Number of bytes that a seal adds to a datagram: 16 or 0.
    pub fn seal_bytes(&self) -> usize {
        if self.keys.is_some() { SEAL_BYTES } else { 0 }
    }

    /// Seals a datagram in place: `datagram` is a header, a body and room for the seal. The same
    /// number must never be used twice.
    ///
    /// Returns `false` if the datagram has no room for header and seal. A datagram that was not
    /// sealed must not be sent.
    #[must_use]
    pub fn seal(&mut self, number: u64, datagram: &mut [u8]) -> bool {
        let Some(keys) = &self.keys else { return datagram.len() >= HEADER_BYTES };
        if self.current.as_ref().is_none_or(|key| key.epoch != epoch(number)) {
            self.current = keys.key(epoch(number));
        }
        let Some(key) = &self.current else { return false };
        let Some((header, body)) = datagram.split_at_mut_checked(HEADER_BYTES) else { return false };
        let Some((body, room)) = body.split_last_chunk_mut::<SEAL_BYTES>() else { return false };
        let sealed = key.key.seal_in_place_separate_tag(key.nonce(number), Aad::from(&*header), body);
        sealed.map(|tag| room.copy_from_slice(tag.as_ref())).is_ok()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({:?})", self.keys.as_ref().map_or(Suite::Clear, |keys| keys.suite))
    }
}

/// Opens the datagrams that the other end sends.
pub struct Opener {
    keys: Option<Keys>,
    /// Epoch of the packet with the highest number that was opened.
    current: u64,
    /// Keys of the epochs before, at and after `current`, at the index of their epoch modulo 3.
    near: [Option<Key>; 3],
    /// Number of datagrams that may still fail to open before the limit of the suite is reached.
    forgeries_left: u64,
}

impl Opener {
    /// Creates an opener with the secret of a direction.
    pub fn new(suite: Suite, secret: &[u8; 32]) -> Self {
        let keys = Keys::new(suite, secret);
        let near = [keys.as_ref().and_then(|keys| keys.key(0)), None, None];
        Self { keys, current: 0, near, forgeries_left: suite.parts().map_or(0, |(.., limit)| limit) }
    }

    /// Opens a datagram in place; returns its header and body, or `None` if the datagram was not
    /// sealed with this number and the right key.
    ///
    /// Keys are derived and kept only for the epoch of the highest number that was opened, and for
    /// the epochs directly before and after it. So forged numbers in headers cause at most two key
    /// derivations for each epoch. If no packet of a whole epoch arrives (2^23 consecutive
    /// packets), no later packet of that sender opens.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(Header, &'a mut [u8])> {
        let (header, _) = Header::decode(datagram).ok()?;
        let (head, body) = datagram.split_at_mut_checked(HEADER_BYTES)?;
        let Some(keys) = &self.keys else { return Some((header, body)) };
        let epoch = epoch(header.number);
        if epoch.abs_diff(self.current) > 1 || self.forgeries_left == 0 {
            return None;
        }
        let slot = self.near.get_mut((epoch % 3) as usize)?;
        if slot.as_ref().is_none_or(|key| key.epoch != epoch) {
            *slot = keys.key(epoch);
        }
        let key = slot.as_ref()?;
        let (body, seal) = body.split_last_chunk_mut::<SEAL_BYTES>()?;
        let (nonce, seal) = (key.nonce(header.number), Tag::from(*seal));
        match key.key.open_in_place_separate_tag(nonce, Aad::from(&*head), seal, body, 0..) {
            Ok(body) => {
                self.current = self.current.max(epoch);
                Some((header, body))
            }
            Err(ring::error::Unspecified) => {
                self.forgeries_left -= 1;
                None
            }
        }
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener({:?})", self.keys.as_ref().map_or(Suite::Clear, |keys| keys.suite))
    }
}

struct Keys {
    suite: Suite,
    algorithm: &'static ring::aead::Algorithm,
    name: &'static [u8],
    secret: Prk,
}

impl Keys {
    fn new(suite: Suite, secret: &[u8; 32]) -> Option<Self> {
        let (algorithm, name, _) = suite.parts()?;
        // The secret is uniformly random, so HKDF's extract step is not needed (RFC 5869 §3.3).
        Some(Self { suite, algorithm, name, secret: Prk::new_less_safe(HKDF_SHA256, secret) })
    }

    /// Key and IV of an epoch: HKDF-Expand(secret, label ‖ name of the suite ‖ epoch, length of key
    /// and IV).
    fn key(&self, epoch: u64) -> Option<Key> {
        let mut made = [0; KEY_BYTES_MAX + NONCE_LEN];
        let made = made.get_mut(..self.algorithm.key_len() + NONCE_LEN)?;
        let info: [&[u8]; 3] = [LABEL, self.name, &epoch.to_be_bytes()];
        self.secret.expand(&info, Bytes(made.len())).and_then(|out| out.fill(made)).ok()?;
        let (key, iv) = made.split_last_chunk()?;
        let key = UnboundKey::new(self.algorithm, key).ok()?;
        Some(Key { epoch, key: LessSafeKey::new(key), iv: *iv })
    }
}

/// Number of bytes that HKDF derives.
#[derive(Clone, Copy)]
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// Key and IV of an epoch.
struct Key {
    epoch: u64,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl Key {
    /// Nonce of a packet: the packet's number, padded on the left with zeros, XOR the IV (RFC 8446
    /// §5.3).
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

fn epoch(number: u64) -> u64 {
    number >> EPOCH_BITS
}

/// Binary logarithm of the number of packets that one key seals: 2^23 packets (RFC 9001 §6.6; §B.1
/// allows 2^28 if no packet has more than 2^11 bytes).
const EPOCH_BITS: u32 = 23;
/// First part of HKDF's `info`: the purpose of the keys, where 1 is the protocol's version.
const LABEL: &[u8] = b"barograph transfer 1 ";
/// Maximum size of a key, in bytes: the size of a key of ChaCha20-Poly1305.
const KEY_BYTES_MAX: usize = 32;
