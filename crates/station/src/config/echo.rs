//! The `[echo]` table: what pages in browsers may cost a station.

use super::value::Value;

/// Settings of the probes over WebSocket (docs/spec/echo.md).
#[derive(Clone, Debug, PartialEq)]
pub struct EchoConfig {
    /// Whether pages may measure this station.
    pub enabled: bool,
    /// Origins of other sites whose pages may measure and read this station; `*` = any.
    pub origins: Vec<String>,
    /// Most sessions at once.
    pub sessions_max: usize,
    /// Most transfers at once.
    pub transfers_max: usize,
    /// Bytes an hour, of all callers from elsewhere together.
    pub bytes_per_hour: u64,
    /// Bytes an hour of one address.
    pub peer_bytes_per_hour: u64,
    /// Whether what pages report is kept.
    pub keep: bool,
    /// Most names of pages in use at once whose reports are kept.
    pub keep_sources_max: usize,
    /// Most reports kept an hour.
    pub keep_reports_per_hour: u64,
}

impl Default for EchoConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            origins: Vec::new(),
            sessions_max: 256,
            transfers_max: 16,
            bytes_per_hour: 10 << 30,
            peer_bytes_per_hour: 1 << 30,
            keep: false,
            keep_sources_max: 64,
            keep_reports_per_hour: 36_000,
        }
    }
}

impl EchoConfig {
    /// Sets a key of the table; `None` = there is no such key.
    pub(super) fn assign(&mut self, key: &str, value: &Value) -> Option<Result<(), String>> {
        Some(match key {
            "enabled" => value.flag().map(|v| self.enabled = v),
            "origins" => value.words().and_then(origins).map(|v| self.origins = v),
            "sessions_max" => value.integer(1, 65_536).map(|v| self.sessions_max = v as usize),
            "transfers_max" => value.integer(1, 1024).map(|v| self.transfers_max = v as usize),
            "bytes_per_hour" => value.integer(1 << 20, 1 << 50).map(|v| self.bytes_per_hour = v),
            "peer_bytes_per_hour" => value.integer(1 << 20, 1 << 50).map(|v| self.peer_bytes_per_hour = v),
            "keep" => value.flag().map(|v| self.keep = v),
            "keep_sources_max" => value.integer(1, 65_536).map(|v| self.keep_sources_max = v as usize),
            // An eighth of a quarter is one: what an address may report at once.
            "keep_reports_per_hour" => value.integer(32, 1 << 30).map(|v| self.keep_reports_per_hour = v),
            _ => return None,
        })
    }

    /// Whether `new` differs in what is read only at the start.
    pub(super) fn needs_restart(&self, new: &Self) -> bool {
        // These are read at every request.
        let fixed = |of: &Self| Self { enabled: true, origins: Vec::new(), keep: false, ..of.clone() };
        fixed(self) != fixed(new)
    }
}

/// Origins as browsers write them; any other spelling would never match.
fn origins(words: Vec<String>) -> Result<Vec<String>, String> {
    for word in words.iter().filter(|word| *word != "*") {
        check_origin(word).map_err(|why| {
            format!(
                "expected origins such as https://a.example or http://a.example:8080, or *; `{}` {why}",
                super::value::short(word)
            )
        })?;
    }
    Ok(words)
}

/// A scheme, a host in small letters, a port unless it is the scheme's own (RFC 6454 §6.2).
fn check_origin(word: &str) -> Result<(), String> {
    let (authority, own_port) = match (word.strip_prefix("https://"), word.strip_prefix("http://")) {
        (Some(authority), _) => (authority, 443),
        (_, Some(authority)) => (authority, 80),
        _ => return Err("does not begin with https:// or http:// in small letters".into()),
    };
    if authority.contains(['/', '?', '#']) {
        return Err("has a path: an origin ends with its host and port, without a slash".into());
    }
    if authority.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("has capitals: browsers write hosts in small letters".into());
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((ip, rest)) => {
            check_v6(ip)?;
            (ip, rest.strip_prefix(':').or((!rest.is_empty()).then_some(rest)))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) {
        return Err("has no host of letters, digits, dots and hyphens (other letters as xn--…)".into());
    }
    match port.map(|port| (port, port.parse::<u16>())) {
        None => Ok(()),
        Some((_, Ok(port))) if port == own_port => {
            Err(format!("has the port that browsers leave out: write it without :{port}"))
        }
        Some((text, Ok(port))) if port.to_string() == text && 0 < port => Ok(()),
        Some(_) => Err("has no port from 1 to 65535 after its colon".into()),
    }
}

/// Browsers write IPv6 addresses in their shortest form (RFC 5952).
fn check_v6(ip: &str) -> Result<(), String> {
    match ip.parse::<std::net::Ipv6Addr>().map(|parsed| parsed.to_string()) {
        Ok(shortest) if shortest == ip || ip.contains('.') || shortest.contains('.') => Ok(()),
        Ok(shortest) => Err(format!("has an address that browsers write [{shortest}]")),
        Err(_) => Err("has no IPv6 address in its brackets".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn origins_are_spelt_as_browsers_do() {
        let good = [
            "*",
            "https://a.example",
            "http://a.example:8080",
            "https://a.example:80",
            "http://localhost:10132",
            "http://192.0.2.1",
            "http://[::1]:10132",
            "https://[2001:db8::1]",
            "https://xn--bcher-kva.example",
        ];
        assert!(origins(good.map(String::from).to_vec()).is_ok());
        for (bad, hint) in [
            ("https://a.example:443", "without :443"),
            ("http://x:80", "without :80"),
            ("http://[::1]:80", "without :80"),
            ("https://a:b:c", "port"),
            ("https://a:", "port"),
            ("https://a:0", "port"),
            ("https://a:+1", "port"),
            ("https://a:081", "port"),
            ("https://a:65536", "port"),
            ("https://[::1]8080x", "port"),
            ("https://a.example/", "slash"),
            ("https://a.example/page", "path"),
            ("https://a.example?x", "path"),
            ("https://A.example", "small letters"),
            ("HTTPS://a.example", "small letters"),
            ("https://", "no host"),
            ("https://:8080", "no host"),
            ("https://*.example", "no host"),
            ("https://user@a.example", "no host"),
            ("https://bücher.example", "xn--"),
            ("https://[::x]", "IPv6"),
            ("https://[0:0::1]", "[::1]"),
            ("a.example", "https://"),
            ("null", "https://"),
            ("", "https://"),
        ] {
            let error = origins(vec!["https://a.example".into(), bad.into()]).unwrap_err();
            assert!(error.contains(hint) && error.contains(bad), "{bad}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_judged(text in ".{0,40}", tail in "(https?://)?[a-z\\[\\]:.0-9/]{0,20}") {
            let _ = check_origin(&text);
            let _ = check_origin(&tail);
        }
    }
}
