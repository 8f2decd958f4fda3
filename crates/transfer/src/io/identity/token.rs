//! What lets a sender in.

use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// 128 bits that a receiver's line carries.
#[derive(Clone, Copy)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// One that nobody can guess.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn random() -> Result<Self, Unspecified> {
        random().map(Self)
    }
}

/// In a time that does not tell how much is equal.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl std::fmt::Debug for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Token(…)")
    }
}

/// Bytes that nobody can guess.
pub(in crate::io) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Unspecified> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(bytes)
}
