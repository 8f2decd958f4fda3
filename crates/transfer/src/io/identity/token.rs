//! The token that authorises a sender.

use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// The 128 bits of a receiver address that authorise a sender.
///
/// ```
/// use barograph_transfer::io::identity::AuthToken;
///
/// // Logs do not show the bits.
/// let token = AuthToken::random().unwrap();
/// assert_eq!(format!("{token:?}"), "AuthToken(…)");
/// ```
#[derive(Clone, Copy)]
pub struct AuthToken(pub [u8; 16]);

impl AuthToken {
    /// Creates a token from random numbers of the system.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn random() -> Result<Self, Unspecified> {
        random().map(Self)
    }
}

/// Compares two tokens in a time that does not depend on their bytes.
impl PartialEq for AuthToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for AuthToken {}

impl std::fmt::Debug for AuthToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("AuthToken(…)")
    }
}

/// Returns random bytes from the operating system, which cannot be guessed.
pub(in crate::io) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Unspecified> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(bytes)
}
