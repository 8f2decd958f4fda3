//! Pages that may measure and read a station, by their origin; and security headers of the
//! station's own page.

use super::client::Page;
use crate::http::{get, send};
use crate::{quiet, start, start_new};

const ELSEWHERE: &str = "https://a.example";

#[test]
fn pages_of_other_sites_can_measure_only_from_allowed_origins() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let address = station.address();
    let own = format!("http://{address}");
    let status = |origin: &str| Page::try_open(address, Some(origin)).err();
    assert_eq!(status(&own), None);
    for origin in [ELSEWHERE, "null", "http://127.0.0.1:1", "not an origin"] {
        assert_eq!(status(origin), Some(403), "{origin}");
    }
    let mut config = quiet(state.path());
    config.echo.origins = vec![ELSEWHERE.into()];
    assert!(station.reload(config.clone()).unwrap().is_empty());
    assert_eq!(status(ELSEWHERE), None);
    assert_eq!(status("https://a.example.evil"), Some(403));
    config.echo.origins = vec!["*".into()];
    assert!(station.reload(config).unwrap().is_empty());
    assert_eq!((status("https://b.example"), status("null")), (None, None));
}

#[test]
fn responses_are_readable_for_pages_of_allowed_origins() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.echo.origins = vec![ELSEWHERE.into()];
    let station = start(config);
    let address = station.address();
    let allow = "access-control-allow-origin";
    for path in ["/v1/series", "/v1/station", "/v1/echo", "/app.css", "/v1/nothing"] {
        let head = send(address, "GET", path, &[("Origin", ELSEWHERE)], "").head;
        assert!(head.contains(&format!("{allow}: {ELSEWHERE}\r\n")), "{path}: {head}");
        assert!(head.contains(&format!("timing-allow-origin: {ELSEWHERE}")), "{path}: {head}");
        assert!(head.contains("cross-origin-resource-policy: cross-origin"), "{path}: {head}");
        assert!(head.contains("vary: origin"), "{path}: {head}");
        for other in ["https://b.example", "null"] {
            let head = send(address, "GET", path, &[("Origin", other)], "").head;
            assert!(!head.contains(allow) && !head.contains("timing-allow-origin"), "{path}: {head}");
            assert!(head.contains("cross-origin-resource-policy: same-origin"), "{path}: {head}");
        }
    }
    // The origin is allowed to read the API, and gets no other permission.
    let json = ("Content-Type", "application/json");
    let post = send(address, "POST", "/v1/measurements", &[("Origin", ELSEWHERE), json], "{\"records\":[]}");
    assert!(post.status == 403 && !post.head.contains(allow), "{}", post.head);
    let probe = [("Origin", ELSEWHERE), ("Connection", "Upgrade"), ("Upgrade", "barograph-probe/1")];
    let probe = send(address, "GET", "/v1/probe", &probe, "");
    assert!(probe.status == 403 && !probe.head.contains(allow), "{}", probe.head);
    let preflight = send(address, "OPTIONS", "/v1/measurements", &[("Origin", ELSEWHERE)], "");
    assert!(preflight.status == 403 && !preflight.head.contains(allow), "{}", preflight.head);
}

#[test]
fn the_page_is_isolated_and_compressed_and_cached_by_etag() {
    let station = start_new(quiet);
    let address = station.address();
    let plain = get(address, "/app.js");
    for header in [
        "cross-origin-opener-policy: same-origin",
        "cross-origin-embedder-policy: require-corp",
        "cross-origin-resource-policy: same-origin",
        "'wasm-unsafe-eval'",
        "vary: accept-encoding",
    ] {
        assert!(plain.head.contains(header), "{header}: {}", plain.head);
    }
    assert!(!plain.head.contains("content-encoding"));
    let headers = [("Accept-Encoding", "br, gzip;q=0.9"), ("Connection", "close")];
    let packed = crate::http::bytes(address, "/app.js", &headers);
    let body = packed.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(String::from_utf8_lossy(&packed[..body]).to_ascii_lowercase().contains("content-encoding: gzip"));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[body..]), &mut text).unwrap();
    assert!(text == plain.body && 2 * (packed.len() - body) < text.len());
    let etag = plain.head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_string();
    let again = send(address, "GET", "/app.js", &[("If-None-Match", &etag.replace('w', "W"))], "");
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    station.stop(crate::LIMIT);
}

/// An IPv6 address is in brackets, and contains colons (RFC 3986 §3.2.2).
#[test]
fn the_own_page_over_ipv6_measures() {
    let state = tempfile::tempdir().unwrap();
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        barograph_sim::report_skipped("this host has no ::1");
        return;
    }
    let mut config = quiet(state.path());
    config.listen = "[::1]:0".parse().unwrap();
    let station = start(config);
    let address = station.address();
    let mut page = Page::try_open(address, Some(&format!("http://[::1]:{}", address.port()))).unwrap();
    page.rtt(1).unwrap();
    for other in ["http://[::1]:1", "http://[::2]", "http://[::1"] {
        assert_eq!(Page::try_open(address, Some(other)).err(), Some(403), "{other}");
    }
}
