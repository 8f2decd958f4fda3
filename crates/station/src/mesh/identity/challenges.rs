//! Stateless challenges: a station issues any number of challenges, and remembers only the
//! challenges that were answered. Pure; times are since the station's start.
//!
//! A challenge has 16 bytes: 8 bytes of time and number, and the first 8 bytes of an HMAC-SHA256 of
//! the time and number (RFC 2104). The station makes the HMAC key at its start and never shares it.

use std::collections::HashMap;
use std::time::Duration;

use barograph_forecast::Name;
use ring::hmac;
use ring::rand::SecureRandom;
use subtle::ConstantTimeEq as _;

use super::SignatureError;

/// Issues challenges, and verifies that a challenge was issued by this station.
#[derive(Debug)]
pub(super) struct Challenges {
    key: hmac::Key,
    issued: u64,
    /// For each station, the stamps of the answered challenges that have not expired.
    spent: HashMap<Name, Vec<u64>>,
}

impl Challenges {
    /// Creates a random HMAC key; `None` if the system gives no randomness.
    pub(super) fn new(random: &dyn SecureRandom) -> Option<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, random).ok()?;
        Some(Self { key, issued: 0, spent: HashMap::new() })
    }

    /// Returns a challenge that was never issued before.
    pub(super) fn issue(&mut self, now: Duration) -> [u8; 16] {
        self.issued += 1;
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.with_code((ms << NUMBER_BITS) | (self.issued & NUMBER_MASK))
    }

    /// Whether this station issued `challenge` at most [`LIFETIME`] ago.
    pub(super) fn is_issued(&self, challenge: &[u8; 16], now: Duration) -> bool {
        let stamp = stamp(challenge);
        bool::from(self.with_code(stamp).ct_eq(challenge)) && is_fresh(stamp, now)
    }

    /// Marks a challenge of this station as spent by the station `name`, which signed the
    /// challenge.
    ///
    /// # Errors
    /// [`SignatureError::Challenge`] if the challenge is spent already, and
    /// [`SignatureError::TooMany`] if the station has spent [`SPENT_MAX`] challenges that have not
    /// expired.
    pub(super) fn spend(
        &mut self,
        name: &Name,
        challenge: &[u8; 16],
        now: Duration,
    ) -> Result<(), SignatureError> {
        self.spent.retain(|_, stamps| {
            stamps.retain(|stamp| is_fresh(*stamp, now));
            !stamps.is_empty()
        });
        let stamps = self.spent.entry(name.clone()).or_default();
        if stamps.contains(&stamp(challenge)) {
            return Err(SignatureError::Challenge);
        }
        if stamps.len() >= SPENT_MAX {
            return Err(SignatureError::TooMany);
        }
        stamps.push(stamp(challenge));
        Ok(())
    }

    fn with_code(&self, stamp: u64) -> [u8; 16] {
        let stamp = stamp.to_be_bytes();
        let code = hmac::sign(&self.key, &stamp);
        let mut challenge = [0; 16];
        challenge[..8].copy_from_slice(&stamp);
        challenge[8..].copy_from_slice(&code.as_ref()[..8]);
        challenge
    }
}

/// The stamp of a challenge: its time and number.
fn stamp(challenge: &[u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *challenge;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn is_fresh(stamp: u64, now: Duration) -> bool {
    now <= Duration::from_millis(stamp >> NUMBER_BITS).saturating_add(LIFETIME)
}

/// Time limit for the answer to a challenge. The answer takes a round trip and a handshake.
const LIFETIME: Duration = Duration::from_secs(30);
/// Number of bits in the part of a stamp that contains the challenge's number. 24 bits distinguish
/// 16 million challenges of one millisecond. The other 40 bits count milliseconds, enough for 34
/// years.
const NUMBER_BITS: u32 = 24;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Maximum number of remembered spent challenges of one station. A station signs one request for
/// each experiment with a peer. With three experiments at the shortest period (0.1 s), a station
/// signs 900 requests within [`LIFETIME`]. A thousand peers at this limit take 8 MB.
const SPENT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn challenges() -> Challenges {
        Challenges::new(&ring::rand::SystemRandom::new()).unwrap()
    }

    #[test]
    fn a_challenge_is_valid_until_it_expires_and_usable_once() {
        let (mut challenges, issued_at) = (challenges(), Duration::from_secs(100));
        let challenge = challenges.issue(issued_at);
        assert!(challenges.is_issued(&challenge, issued_at + LIFETIME));
        assert!(!challenges.is_issued(&challenge, issued_at + LIFETIME + Duration::from_millis(1)));
        for at in 0..16 {
            let mut forged = challenge;
            forged[at] ^= 1;
            assert!(!challenges.is_issued(&forged, issued_at), "byte {at}");
        }
        assert!(!super::tests::challenges().is_issued(&challenge, issued_at), "of another start");
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        assert_eq!(challenges.spend(&a, &challenge, issued_at), Ok(()));
        assert_eq!(challenges.spend(&a, &challenge, issued_at + LIFETIME), Err(SignatureError::Challenge));
        let other = challenges.issue(issued_at);
        assert_ne!(other, challenge);
        assert_eq!(challenges.spend(&b, &other, issued_at), Ok(()));
    }

    #[test]
    fn spent_challenges_are_bounded_for_each_station_and_forgotten() {
        let (mut challenges, now) = (challenges(), Duration::from_secs(1));
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let spent = (0..2 * SPENT_MAX).filter(|_| {
            let challenge = challenges.issue(now);
            challenges.spend(&a, &challenge, now).is_ok()
        });
        assert_eq!(spent.count(), SPENT_MAX);
        let challenge = challenges.issue(now);
        assert_eq!(challenges.spend(&a, &challenge, now), Err(SignatureError::TooMany));
        assert_eq!(challenges.spend(&b, &challenge, now), Ok(()), "others are not held up");
        let later = now + LIFETIME * 2;
        let challenge = challenges.issue(later);
        assert_eq!(challenges.spend(&b, &challenge, later), Ok(()));
        assert_eq!(challenges.spent.len(), 1, "nothing is kept of a");
    }
}
