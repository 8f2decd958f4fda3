//! Targets as users write them: a URL, or an address with a port.

use std::fmt;

/// A target: the host and port to connect to and, for a URL, the path to request.
///
/// ```
/// use barograph_probe::Target;
/// let target = Target::parse("https://example.org/index.html")?;
/// assert_eq!((target.host(), target.port(), target.path()), ("example.org", 443, "/index.html"));
/// assert_eq!(Target::parse("[::1]:8700")?.to_string(), "[::1]:8700");
/// assert!(Target::parse("example.org").is_err(), "a bare host has no port");
/// # Ok::<(), barograph_probe::TargetError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    scheme: Scheme,
    /// Host name or address, without brackets.
    host: String,
    port: u16,
    /// Path in origin form: begins with `/`.
    path: String,
}

/// Protocol that a target uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `host:port`: a TCP listener with an unknown protocol.
    Address,
    /// HTTP without encryption (`http://…`).
    Http,
    /// HTTP over TLS (`https://…`).
    Https,
}

impl Target {
    /// Maximum length of a target in bytes. The target becomes the name of a series.
    pub const BYTES_MAX: usize = barograph_forecast::Name::BYTES_MAX;

    /// Parses `http://host[:port][/path]`, `https://…`, `host:port` or `[v6]:port`.
    ///
    /// # Errors
    /// [`TargetError`] with the text and what was expected instead.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let refuse = |expected| Err(TargetError { text: shortened(text), expected });
        if text.len() > Self::BYTES_MAX {
            return refuse("at most 255 bytes");
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return refuse("no white space or control characters");
        }
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::Address, text),
            Some((word, rest)) if word.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((word, rest)) if word.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some(_) => return refuse("http:// or https://, or host:port"),
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            None => (rest, ""),
            Some(_) if scheme == Scheme::Address => {
                return refuse("`http://` or `https://` before a host with a path");
            }
            Some(at) => rest.split_at(at),
        };
        let (host, port) = match split_authority(authority) {
            Ok(parts) => parts,
            Err(expected) => return refuse(expected),
        };
        let port = match (port, scheme) {
            (Some(port), _) => port,
            (None, Scheme::Http) => 80,
            (None, Scheme::Https) => 443,
            (None, Scheme::Address) => return refuse("host:port, or http://host"),
        };
        // A client does not send the fragment (RFC 9110 §4.2.5).
        let path = path.split('#').next().unwrap_or_default();
        if !path.is_ascii() {
            return refuse("a path in ASCII, with %XX for other characters");
        }
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let target = Self { scheme, host: host.to_ascii_lowercase(), port, path };
        // The canonical form may be longer by the `/` of an empty path.
        if target.to_string().len() > Self::BYTES_MAX { refuse("at most 255 bytes") } else { Ok(target) }
    }

    /// Protocol that the target uses.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port, never 0. If the text of the target has no port, this is the default port of the
    /// scheme: 80 for `http`, 443 for `https`.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query in origin form (RFC 9112 §3.2.1), `/` when none was given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Value of the `Host` header; the default port of the scheme is omitted.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = self.bracketed();
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Scheme, host and port as an `http` or `https` URL without a path.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Https => "https",
            Scheme::Http | Scheme::Address => "http",
        };
        format!("{scheme}://{}", self.authority())
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

impl fmt::Display for Target {
    /// Writes the canonical form; [`Target::parse`] reads it back as an equal target.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::Address => write!(f, "{}:{}", self.bracketed(), self.port),
            Scheme::Http | Scheme::Https => write!(f, "{}{}", self.origin(), self.path),
        }
    }
}

/// Why a text is not a valid [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a target: expected {expected}")]
pub struct TargetError {
    /// The text, cut to 80 characters.
    pub text: String,
    /// What was expected instead.
    pub expected: &'static str,
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port` into host (without brackets) and port.
fn split_authority(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    if authority.contains('@') {
        return Err("a target without user name and password");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("a `]` after the IPv6 address")?;
            // A zone (`%eth0`) names an interface of this host (RFC 4007 §11).
            let address = host.split('%').next().unwrap_or_default();
            address.parse::<std::net::Ipv6Addr>().map_err(|_| "an IPv6 address in the brackets")?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err("`:port` after the brackets"),
            }
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("brackets around an IPv6 address, as in [::1]:80");
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("a host name or address");
    }
    if !authority.starts_with('[') && !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    {
        return Err("a host name of letters, digits, `-` and `.`");
    }
    match port {
        None => Ok((host, None)),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => Err("a port from 1 to 65535"),
            Ok(port) => Ok((host, Some(port))),
        },
        Some(_) => Err("a port from 1 to 65535"),
    }
}

/// At most 80 characters of `text`, so that an error fits on one line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}
