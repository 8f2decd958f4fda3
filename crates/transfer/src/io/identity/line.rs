//! The receiver address that a receiver prints.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use super::{Fingerprint, Token};

/// The receiver address: host and port of a receiver, the fingerprint of its certificate, and a
/// token.
///
/// `brg://host:port/` and 64 characters of base64url: 32 bytes of fingerprint, 16 of token. Any
/// program that has the address may send, so the address is a secret. [`Display`](fmt::Display)
/// shows the token, [`Debug`] does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port of the receiver.
    pub port: u16,
    /// Fingerprint of the receiver's certificate.
    pub fingerprint: Fingerprint,
    /// Token that authorises the sender.
    pub token: Token,
}

/// Why a text is not a receiver address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum LineError {
    #[error("it does not begin with brg://")]
    Scheme,
    /// The host is missing or not valid.
    #[error("there is no host in it: brg://host:port/…")]
    Host,
    #[error("there is no port from 1 to 65535 in it: brg://host:port/…")]
    Port,
    #[error("it is cut off: {0} characters of {CODE} behind the last slash")]
    CutOff(usize),
    #[error("there is too much behind the last slash: {0} characters, {CODE} belong there")]
    TooLong(usize),
    /// Characters that are not of base64url.
    #[error("what is behind the last slash is no base64url (A–Z, a–z, 0–9, - and _)")]
    Code,
}

/// Characters of 48 bytes: 4 for each 3 (RFC 4648 §5).
const CODE: usize = 64;

impl fmt::Display for Line {
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

impl FromStr for Line {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let rest = text.trim().strip_prefix("brg://").ok_or(LineError::Scheme)?;
        let (place, code) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or(LineError::Host)?;
                host.split('%')
                    .next()
                    .and_then(|host| host.parse::<std::net::Ipv6Addr>().ok())
                    .ok_or(LineError::Host)?;
                (host, port.strip_prefix(':').ok_or(LineError::Port)?)
            }
            None => place.rsplit_once(':').ok_or(LineError::Port)?,
        };
        let is_host = |letter: char| letter.is_alphanumeric() || "-._:%".contains(letter);
        if host.is_empty() || !host.chars().all(is_host) || (!place.starts_with('[') && host.contains(':')) {
            return Err(LineError::Host);
        }
        // Digits only: no sign, no leading zeros.
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain).ok_or(LineError::Port)?;
        if !code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Err(LineError::Code);
        }
        match code.len() {
            CODE => {}
            fewer if fewer < CODE => return Err(LineError::CutOff(fewer)),
            more => return Err(LineError::TooLong(more)),
        }
        let bytes = URL_SAFE_NO_PAD.decode(code).map_err(|_| LineError::Code)?;
        let (fingerprint, token) = bytes.split_first_chunk().ok_or(LineError::Code)?;
        let token = token.try_into().map_err(|_| LineError::Code)?;
        Ok(Self { host: host.into(), port, fingerprint: Fingerprint(*fingerprint), token: Token(token) })
    }
}

/// Parses `data` as a receiver address. What is accepted must print as the same text, without white
/// space around it.
pub(crate) fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(line) = text.parse::<Line>() else { return };
    assert_eq!(line.to_string(), text.trim());
    assert!(!line.host.is_empty() && !line.host.contains(|letter: char| letter.is_whitespace()), "{line:?}");
}
