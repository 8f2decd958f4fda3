//! The `[echo]` table: limits for pages in browsers that measure the station.

use super::Config;
use super::kind::{flag, integer, list};
use super::setting::settings;
use super::value::short;

settings! {
    |config: Config| config.echo;

    /// Probes over WebSocket, with which pages in browsers measure this station
    /// (docs/spec/echo.md). They need no token; these settings limit what pages can cost. Callers
    /// on this host are not charged for bytes, and limits for one address do not apply to them.
    /// Behind a proxy on this host that speaks HTTP/1.1 and adds no X-Forwarded-… header, every
    /// visitor counts as such a caller and is unlimited: set loopback_needs_token = true. Then all
    /// visitors are one address, that of the proxy, and share its limits. Open sessions continue
    /// when settings change.
    pub struct EchoConfig {
        /// Whether pages may measure this station.
        enabled: bool = true => "echo.enabled", flag(), AtOnce;
        /// Other sites with pages that may read this station and measure it, as their origins,
        /// spelt as browsers send them: `"https://a.example"`, `"http://b.example:8080"`, or `"*"`
        /// for all. Pages of the station itself may always read and measure it. Pages of other
        /// sites may never make changes or use /v1/probe.
        origins: Vec<String> = Vec::new() => "echo.origins", list(origins), AtOnce;
        /// Maximum number of sessions at once; a page has two. Each address of another host gets at
        /// most a quarter of the sessions. An eighth of the sessions is reserved for callers on
        /// this host. For 200 clients behind one address with two sessions each, set 2048, and
        /// allow as many open files (ulimit -n).
        sessions_max: usize = 256 => "echo.sessions_max", integer(1..=65_536), AtStart;
        /// Maximum number of transfers at once; further transfers wait for up to 2 s. Each address
        /// of another host gets at most an eighth of the transfers, and each network (/24, /48) at
        /// most half. An eighth of the transfers is reserved for callers on this host. More
        /// transfers at once would distort each other's results.
        transfers_max: usize = 16 => "echo.transfers_max", integer(1..=1024), AtStart;
        /// Maximum number of bytes per hour for all callers on other hosts; an eighth of this
        /// number may be used at once. 10 GiB an hour are 24 Mbit/s. A page that moves 64 KiB in
        /// each direction every second needs half a GiB an hour.
        bytes_per_hour: u64 = 10 << 30 => "echo.bytes_per_hour", integer(1 << 20..=1 << 50), AtStart;
        /// Maximum number of bytes per hour for each address of another host (for IPv6, each /64);
        /// an eighth of this number may be used at once. Behind a reverse proxy all callers are one
        /// address: raise this to bytes_per_hour.
        peer_bytes_per_hour: u64 = 1 << 30 => "echo.peer_bytes_per_hour", integer(1 << 20..=1 << 50), AtStart;
        /// Whether to keep measurements that pages report, as series of `web:NAME`. The station
        /// stores a random name made by the page, the quantity, the value and the time, for as long
        /// as any record. It stores neither the address nor anything else about the browser. A page
        /// reports only if its reader has agreed. Any caller that may open a session may report any
        /// value, so these series cannot be trusted.
        keep: bool = false => "echo.keep", flag(), AtOnce;
        /// Maximum number of names in use at once, each with up to five series. Each address of
        /// another host gets at most a quarter of the names. A name that is idle for an hour makes
        /// room for another; its records stay. New series are kept only while half of
        /// limits.series_max is free.
        keep_sources_max: usize = 64 => "echo.keep_sources_max", integer(1..=65_536), AtStart;
        /// Maximum number of reports per hour; the default is twenty pages with five quantities
        /// every 10 s. Each address of another host gets at most a quarter of the reports, and may
        /// use an eighth of this quarter at once. Reports are records of this station. When the
        /// archive has reached archive.keep_bytes, reports take space from the station's own
        /// measurements. A report takes 62 bytes; the default rate fills 1 GiB in 20 days.
        keep_reports_per_hour: u64 = 36_000 => "echo.keep_reports_per_hour", integer(32..=1 << 30), AtStart;
    }
}

/// Checks that origins are spelt as browsers send them; any other spelling would never match.
fn origins(words: Vec<String>) -> Result<Vec<String>, String> {
    for word in words.iter().filter(|word| *word != "*") {
        check_origin(word).map_err(|why| {
            format!(
                "expected origins such as https://a.example or http://a.example:8080, or *; `{}` {why}",
                short(word)
            )
        })?;
    }
    Ok(words)
}

/// Checks for a scheme, a host in small letters, and no default port of the scheme (RFC 6454 §6.2).
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
            Err(format!("has the default port of its scheme; write it without :{port}"))
        }
        Some((text, Ok(port))) if port.to_string() == text && port > 0 => Ok(()),
        Some(_) => Err("has no port from 1 to 65535 after its colon".into()),
    }
}

/// Checks for the shortest form of an IPv6 address, as browsers send it (RFC 5952).
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
    fn origins_must_be_written_as_in_browser_requests() {
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
        fn checking_an_arbitrary_origin_does_not_panic(text in ".{0,40}", tail in "(https?://)?[a-z\\[\\]:.0-9/]{0,20}") {
            let _ = check_origin(&text);
            let _ = check_origin(&tail);
        }
    }
}
