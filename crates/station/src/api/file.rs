//! An embedded file as a response: compressed if the client accepts compression, and not sent again
//! if the file is unchanged.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A file embedded in the binary.
pub(super) struct File {
    pub(super) path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// Whether pages of other sites may also load the file, as code in these pages.
    public: bool,
    packed: OnceLock<Packed>,
}

/// Tag and compressed form of a file, made once.
pub(super) struct Packed {
    etag: String,
    /// `None` if compression does not make the file smaller.
    gzip: Option<Vec<u8>>,
}

impl File {
    /// A file for pages of this station.
    pub(super) const fn own(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { path, content_type, bytes, public: false, packed: OnceLock::new() }
    }

    /// A file for pages of any site.
    pub(super) const fn public(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { path, content_type, bytes, public: true, packed: OnceLock::new() }
    }

    /// Compresses the file at the first call.
    pub(super) fn pack(&self) -> &Packed {
        self.packed.get_or_init(|| Packed::of(self.bytes))
    }

    pub(super) fn answer(&'static self, asked: &HeaderMap) -> Response {
        let packed = self.pack();
        let mut response = if client_has(asked, &packed.etag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            match packed.gzip.as_deref().filter(|_| takes_gzip(asked)) {
                Some(gzip) => ([(header::CONTENT_ENCODING, "gzip")], gzip).into_response(),
                None => self.bytes.into_response(),
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        // The binary may be replaced at any time: clients must revalidate.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        if let Ok(etag) = HeaderValue::from_str(&packed.etag) {
            headers.insert(header::ETAG, etag);
        }
        if self.public {
            let anyone = HeaderValue::from_static("*");
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, anyone.clone());
            headers.insert("timing-allow-origin", anyone);
        }
        response
    }
}

impl Packed {
    fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        // Weak tag: the plain and the compressed form of a file have the same tag (RFC 9110
        // §8.8.3).
        let etag = format!("W/\"{:016x}\"", hasher.finish());
        let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
        let gzip = encoder.write_all(bytes).and_then(|()| encoder.finish()).ok();
        Self { etag, gzip: gzip.filter(|gzip| gzip.len() < bytes.len()) }
    }
}

/// Whether the client has the file with this tag (RFC 9110 §13.1.2).
fn client_has(asked: &HeaderMap, etag: &str) -> bool {
    words(asked, &header::IF_NONE_MATCH)
        .any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag.trim_start_matches("W/"))
}

/// Whether the client accepts gzip at least as much as the plain file (RFC 9110 §12.5.3).
fn takes_gzip(asked: &HeaderMap) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    for word in words(asked, &header::ACCEPT_ENCODING) {
        let (coding, weight) = word.split_once(';').unwrap_or((word, ""));
        let weight = quality(weight);
        match coding.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "*" => any = Some(weight),
            "identity" => identity = Some(weight),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0.0);
    gzip > 0.0 && identity.unwrap_or(0.0) <= gzip
}

/// The weight in `q=0.5`; 1 if `parameter` is empty (RFC 9110 §12.4.2), 0 if `parameter` is
/// invalid.
fn quality(parameter: &str) -> f32 {
    match parameter.trim().split_once('=') {
        None if parameter.trim().is_empty() => 1.0,
        Some((name, number)) if name.trim().eq_ignore_ascii_case("q") => {
            number.trim().parse().ok().filter(|quality| (0.0..=1.0).contains(quality)).unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

/// Items of the comma-separated lists in all lines of a header.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Level of compression. Level 9 would make the page 0.2 % smaller, but compression at every start
/// would take four times as long.
const LEVEL: Compression = Compression::new(6);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn accept_encoding_weights_are_respected() {
        for (accepts, takes) in [
            ("gzip, deflate, br, zstd", true),
            ("GZIP", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("gzip;q=x", false),
            ("br", false),
            ("", false),
            ("*", true),
            ("*;q=0", false),
            ("gzip;q=0, *", false),
            ("identity, gzip;q=0.5", false),
            ("identity;q=0.5, gzip;q=0.8", true),
        ] {
            assert_eq!(takes_gzip(&with(header::ACCEPT_ENCODING, accepts)), takes, "{accepts}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_file_with_a_matching_etag_is_not_sent_again() {
        let etag = "W/\"01\"";
        for (tags, has) in [("W/\"01\"", true), ("\"2\", \"01\"", true), ("*", true), ("\"2\"", false)] {
            assert_eq!(client_has(&with(header::IF_NONE_MATCH, tags), etag), has, "{tags}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_header_values_do_not_panic(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
            near in "[ ,;=*qQgzipx/W\"0-9.eE+-]{0,40}",
            word in "(gzip|\\*|identity|br)?;? ?(q=)?[0-9.eE+naif-]{0,12}",
        ) {
            for text in [&bytes[..], near.as_bytes(), word.as_bytes()] {
                let Ok(value) = HeaderValue::from_bytes(text) else { continue };
                for name in [header::ACCEPT_ENCODING, header::IF_NONE_MATCH] {
                    let headers = HeaderMap::from_iter([(name, value.clone())]);
                    let _ = (takes_gzip(&headers), client_has(&headers, "W/\"01\""));
                }
            }
            for text in [&near, &word] {
                proptest::prop_assert!((0.0..=1.0).contains(&quality(text)), "{}", text);
            }
        }
    }
}
