//! Parses and prints receiver addresses.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use super::{AuthToken, Fingerprint};

/// The receiver address: host and port of a receiver, the fingerprint of its certificate, and a
/// token.
///
/// The text is `brg://host:port/` and then 64 characters of base64url, which encode 32 bytes of
/// fingerprint and 16 bytes of token. Any program that has the address may send, so the address is
/// a secret. [`Display`](fmt::Display) shows the token, [`Debug`] does not.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use barograph_transfer::io::identity::ReceiverAddress;
///
/// let text = format!("brg://receiver.example:4433/{}", "A".repeat(64));
/// let address: ReceiverAddress = text.parse()?;
/// assert_eq!((address.host.as_str(), address.port), ("receiver.example", 4433));
/// assert_eq!(address.to_string(), text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port of the receiver.
    pub port: u16,
    /// Fingerprint of the receiver's certificate.
    pub fingerprint: Fingerprint,
    /// Token that authorises the sender.
    pub token: AuthToken,
}

/// Why a text is not a receiver address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum ReceiverAddressError {
    #[error("the receiver address must begin with brg://")]
    Scheme,
    /// The host is missing or not valid.
    #[error("the receiver address has no host: brg://host:port/…")]
    Host,
    #[error("the receiver address has no port from 1 to 65535: brg://host:port/…")]
    Port,
    #[error("the receiver address is cut off: {0} of {CODE} characters after the last slash")]
    CutOff(usize),
    #[error("the receiver address has {0} characters after the last slash instead of {CODE}")]
    TooLong(usize),
    /// The part after the last slash has characters that are not in base64url.
    #[error("the receiver address has characters other than A–Z, a–z, 0–9, - and _ after the last slash")]
    Code,
}

/// Number of characters that encode 48 bytes: 4 characters for each 3 bytes (RFC 4648 §5).
const CODE: usize = 64;

impl fmt::Display for ReceiverAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = URL_SAFE_NO_PAD.encode([&self.fingerprint.0[..], &self.token.0].concat());
        let Self { host, port, .. } = self;
        if host.contains(':') {
            write!(f, "brg://[{host}]:{port}/{code}")
        } else {
            write!(f, "brg://{host}:{port}/{code}")
        }
    }
}

impl FromStr for ReceiverAddress {
    type Err = ReceiverAddressError;

    fn from_str(text: &str) -> Result<Self, ReceiverAddressError> {
        let rest = text.trim().strip_prefix("brg://").ok_or(ReceiverAddressError::Scheme)?;
        let (place, code) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or(ReceiverAddressError::Host)?;
                host.split('%')
                    .next()
                    .and_then(|host| host.parse::<std::net::Ipv6Addr>().ok())
                    .ok_or(ReceiverAddressError::Host)?;
                (host, port.strip_prefix(':').ok_or(ReceiverAddressError::Port)?)
            }
            None => place.rsplit_once(':').ok_or(ReceiverAddressError::Port)?,
        };
        let is_host = |letter: char| letter.is_alphanumeric() || "-._:%".contains(letter);
        if host.is_empty() || !host.chars().all(is_host) || (!place.starts_with('[') && host.contains(':')) {
            return Err(ReceiverAddressError::Host);
        }
        // A port has only digits: no sign, and no leading zeros.
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain).ok_or(ReceiverAddressError::Port)?;
        if !code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Err(ReceiverAddressError::Code);
        }
        match code.len() {
            CODE => {}
            fewer if fewer < CODE => return Err(ReceiverAddressError::CutOff(fewer)),
            more => return Err(ReceiverAddressError::TooLong(more)),
        }
        let bytes = URL_SAFE_NO_PAD.decode(code).map_err(|_| ReceiverAddressError::Code)?;
        let (fingerprint, token) = bytes.split_first_chunk().ok_or(ReceiverAddressError::Code)?;
        let token = token.try_into().map_err(|_| ReceiverAddressError::Code)?;
        Ok(Self { host: host.into(), port, fingerprint: Fingerprint(*fingerprint), token: AuthToken(token) })
    }
}

/// Parses `data` as a receiver address. An accepted address must print as the same text, without
/// white space before and after it.
pub(crate) fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(line) = text.parse::<ReceiverAddress>() else { return };
    assert_eq!(line.to_string(), text.trim());
    assert!(!line.host.is_empty() && !line.host.contains(|letter: char| letter.is_whitespace()), "{line:?}");
}
