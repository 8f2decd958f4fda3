//! Single-use tokens that expire. For each token, an `https` station admits one connection without
//! TLS.

use std::collections::VecDeque;

/// Tokens that were issued and not yet redeemed. The table is bounded, and the caller provides the
/// time.
///
/// ```
/// use barograph_probe::TokenTable;
/// let mut tokens = TokenTable::new(30.0, 1024);
/// tokens.issue([7; 16], 100.0);
/// assert!(tokens.redeem(&[7; 16], 101.0));
/// assert!(!tokens.redeem(&[7; 16], 101.0), "a token opens one connection");
/// ```
#[derive(Debug)]
pub struct TokenTable {
    /// Issued tokens and their times, oldest first, so that expired tokens are at the front.
    issued: VecDeque<(Token, f64)>,
    lifetime_s: f64,
    count_max: usize,
}

/// A token: 128 random bits.
pub type Token = [u8; 16];

impl TokenTable {
    /// Creates a table of at most `count_max` tokens, each valid for `lifetime_s` seconds.
    #[must_use]
    pub fn new(lifetime_s: f64, count_max: usize) -> Self {
        Self { issued: VecDeque::new(), lifetime_s, count_max }
    }

    /// Adds `token`, which the caller made from a secure random source. `now_s` is the present time
    /// in seconds on any monotonic clock.
    ///
    /// If the table is full, the oldest token is removed.
    pub fn issue(&mut self, token: Token, now_s: f64) {
        self.forget_expired(now_s);
        if self.issued.len() >= self.count_max {
            self.issued.pop_front();
        }
        self.issued.push_back((token, now_s));
    }

    /// Whether `token` is valid: issued, not expired and not redeemed before. This call redeems the
    /// token.
    pub fn redeem(&mut self, token: &Token, now_s: f64) -> bool {
        self.forget_expired(now_s);
        // The comparison of two tokens has no early exit, so its time reveals nothing about
        // matching bytes.
        let found = self.issued.iter().position(|(known, _)| same(known, token));
        found.is_some_and(|at| self.issued.remove(at).is_some())
    }

    fn forget_expired(&mut self, now_s: f64) {
        while self.issued.front().is_some_and(|(_, at)| self.lifetime_s < now_s - at) {
            self.issued.pop_front();
        }
    }
}

/// Encodes a token as 32 lower-case hexadecimal digits, as in headers.
#[must_use]
pub fn to_hex(token: &Token) -> String {
    token
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| HEX[usize::from(digit)] as char)
        .collect()
}

/// Decodes a token from 32 hexadecimal digits; `None` for any other text.
#[must_use]
pub fn from_hex(text: &str) -> Option<Token> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut token = [0; 16];
    for (byte, pair) in token.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(token)
}

fn same(a: &Token, b: &Token) -> bool {
    a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_redeemed_once_and_expires() {
        let mut tokens = TokenTable::new(30.0, 8);
        tokens.issue([1; 16], 0.0);
        tokens.issue([2; 16], 20.0);
        assert!(!tokens.redeem(&[3; 16], 21.0), "never issued");
        assert!(!tokens.redeem(&[1; 16], 31.0), "expired");
        assert!(tokens.redeem(&[2; 16], 31.0));
        assert!(!tokens.redeem(&[2; 16], 31.0), "spent");
        assert!(tokens.issued.is_empty());
    }

    #[test]
    fn a_full_table_removes_the_oldest_token() {
        let mut tokens = TokenTable::new(30.0, 2);
        for token in 1..=3 {
            tokens.issue([token; 16], 0.0);
        }
        assert_eq!(tokens.issued.len(), 2);
        assert!(!tokens.redeem(&[1; 16], 0.0));
        assert!(tokens.redeem(&[3; 16], 0.0));
    }

    #[test]
    fn hexadecimal_tokens_read_back_equal_and_other_text_is_rejected() {
        let token = [0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255];
        assert_eq!(from_hex(&to_hex(&token)), Some(token));
        for bad in ["", "00", &"0".repeat(31), &"0".repeat(33), &"+1".repeat(16), &"é".repeat(16)] {
            assert_eq!(from_hex(bad), None, "{bad:?}");
        }
    }
}
