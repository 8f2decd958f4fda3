//! Signed requests between stations: the challenge, the credentials, and the text that is signed
//! (docs/spec/mesh.md §2). Pure: the caller provides keys, clock and randomness.

use barograph_forecast::Name;

use crate::percent;
use crate::token::{self, Token};

/// The authentication scheme, in `WWW-Authenticate` and in `Authorization` (RFC 9110 §11.1).
pub const SCHEME: &str = "Barograph-Station";

/// Response header with the station's name, encoded by [`name_text`], in every response about
/// probes.
pub const NAME_HEADER: &str = "barograph-station";

/// Encodes a name for a header: every byte except unreserved characters becomes `%XX` (RFC 3986
/// §2.1).
#[must_use]
pub fn name_text(name: &Name) -> String {
    percent::encode(name.as_str())
}

/// Decodes a name from a header; `None` if the decoded text is not a valid name.
#[must_use]
pub fn read_name(text: &str) -> Option<Name> {
    Name::new(&percent::decode(text, Name::BYTES_MAX)?).ok()
}

/// The challenge that a station sends when it requires a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Name of the responding station.
    pub realm: Name,
    /// 128 random bits, valid for one signature.
    pub challenge: Token,
}

/// A caller's response to a [`Challenge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The caller's name; the responder finds the caller's public key by this name.
    pub name: Name,
    /// The challenge that was received.
    pub challenge: Token,
    /// Ed25519 signature (RFC 8032) of [`text_to_sign`].
    pub signature: [u8; 64],
}

impl Challenge {
    /// Value of the `WWW-Authenticate` header.
    #[must_use]
    pub fn header(&self) -> String {
        format!(
            "{SCHEME} realm=\"{}\", challenge=\"{}\"",
            name_text(&self.realm),
            token::to_hex(&self.challenge)
        )
    }

    /// Parses the value of a `WWW-Authenticate` header, which may name other schemes first.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let parameters = parameters(value)?;
        let realm = read_name(parameter(parameters, "realm")?)?;
        let challenge = token::from_hex(parameter(parameters, "challenge")?)?;
        Some(Self { realm, challenge })
    }
}

impl Credentials {
    /// Value of the `Authorization` header.
    #[must_use]
    pub fn header(&self) -> String {
        format!(
            "{SCHEME} name=\"{}\", challenge=\"{}\", signature=\"{}\"",
            name_text(&self.name),
            token::to_hex(&self.challenge),
            self.signature.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        )
    }

    /// Parses the value of an `Authorization` header.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let parameters = parameters(value)?;
        let name = read_name(parameter(parameters, "name")?)?;
        let challenge = token::from_hex(parameter(parameters, "challenge")?)?;
        let digits = parameter(parameters, "signature")?;
        let mut signature = [0; 64];
        if digits.len() != 2 * signature.len() {
            return None;
        }
        for (part, digits) in signature.chunks_exact_mut(16).zip(digits.as_bytes().chunks_exact(32)) {
            part.copy_from_slice(&token::from_hex(std::str::from_utf8(digits).ok()?)?);
        }
        Some(Self { name, challenge, signature })
    }
}

/// Text that the caller signs. Names contain no line break, so two different requests never give
/// the same text. The text contains the responder's name, so that a station cannot forward another
/// station's challenge to its own callers.
#[must_use]
pub fn text_to_sign(challenge: &Token, responder: &Name, caller: &Name, method: &str, path: &str) -> String {
    let challenge = token::to_hex(challenge);
    format!("barograph-station-1\n{challenge}\n{responder}\n{caller}\n{method} {path}")
}

/// The part of a header value after the scheme's name.
fn parameters(value: &str) -> Option<&str> {
    let at = value.char_indices().map(|(at, _)| at).find(|at| {
        // The scheme's name must start an element of the list, not be the middle of another word.
        let begins = value[..*at].trim_end().chars().next_back().is_none_or(|c| c == ',');
        let word = value.get(*at..*at + SCHEME.len());
        begins && word.is_some_and(|word| word.eq_ignore_ascii_case(SCHEME))
    })?;
    value[at + SCHEME.len()..].strip_prefix(' ')
}

/// The quoted value of `key`. Our values are percent-encoded, so they contain no quote and no
/// comma.
fn parameter<'a>(parameters: &'a str, key: &str) -> Option<&'a str> {
    parameters.split(',').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.trim().eq_ignore_ascii_case(key).then_some(())?;
        value.trim().strip_prefix('"')?.strip_suffix('"')
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_challenge_is_parsed_beside_other_schemes() {
        let challenge = Challenge { realm: Name::new("näch\"ste,a=b").unwrap(), challenge: [0x5a; 16] };
        for value in [
            challenge.header(),
            format!("Bearer, {}", challenge.header()),
            format!("Basic realm=\"x\",{}", challenge.header().replacen("Barograph-S", "barograph-s", 1)),
        ] {
            assert_eq!(Challenge::parse(&value), Some(challenge.clone()), "{value}");
        }
        for bad in [
            "Bearer",
            "Barograph-Station",
            "Barograph-Station realm=\"a\"",
            "Barograph-Station realm=\"a\", challenge=\"12\"",
            "Barograph-Station realm=a, challenge=\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"",
            "Barograph-Station realm=\"a%2\", challenge=\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"",
            "Barograph-Station realm=\"a%20b\", challenge=\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"",
            "XBarograph-Station realm=\"a\", challenge=\"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a\"",
        ] {
            assert_eq!(Challenge::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_text_to_sign_equals_the_specification() {
        let name = |text| Name::new(text).unwrap();
        assert_eq!(
            text_to_sign(&[0xab; 16], &name("b"), &name("a"), "GET", "/v1/probe"),
            "barograph-station-1\nabababababababababababababababab\nb\na\nGET /v1/probe"
        );
    }

    proptest! {
        #[test]
        fn credentials_parse_from_their_header(
            name in "[^\\s\\p{C}\\p{Z}]{1,60}", challenge in any::<[u8; 16]>(),
            half in any::<[u8; 32]>(), other in any::<[u8; 32]>(),
        ) {
            prop_assume!(Name::new(&name).is_ok());
            let mut signature = [0; 64];
            signature[..32].copy_from_slice(&half);
            signature[32..].copy_from_slice(&other);
            let given = Credentials { name: Name::new(&name).unwrap(), challenge, signature };
            let header = given.header();
            prop_assert!(header.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
            prop_assert_eq!(Credentials::parse(&header), Some(given));
        }

        #[test]
        fn no_header_causes_a_panic(
            text in ".{0,60}", tail in "[Bb]arograph-Station [a-z=\"%0-9, é]{0,80}",
        ) {
            let _ = (Challenge::parse(&text), Credentials::parse(&text));
            let _ = (Challenge::parse(&tail), Credentials::parse(&tail));
        }
    }
}
