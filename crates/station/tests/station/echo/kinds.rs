//! Each kind of experiment, and the counters after it.

use std::time::{Duration, Instant};

use barograph_probe::wire::{DeclineReason, Request};

use super::client::Page;
use crate::http::{get, send};
use crate::{quiet, start, start_new};

#[test]
fn each_experiment_kind_completes_with_every_byte_counted() {
    let station = start_new(quiet);
    let mut page = Page::open(station.address());
    page.rtt(3).unwrap();
    page.request(Request::RttNagle { n: 4 }).unwrap();
    for i in 0..4 {
        page.send(&[i, 0xB0 | i]);
        assert_eq!((page.take(), page.take()), (vec![i], vec![0xB0 | i]));
    }
    for bytes in [1, 65_536, 65_537, 1 << 20] {
        let done = page.up(bytes).unwrap();
        assert_eq!((done.bytes, done.tcp_info), (bytes as u64, None));
        let (came, done) = page.down(bytes).unwrap();
        assert_eq!((came, done.bytes), (bytes, bytes as u64));
        assert_eq!(done.tcp_info.is_some(), cfg!(target_os = "linux"));
    }
    page.rtt(1).unwrap();
    assert_eq!(page.request(Request::Datagrams { n: 1 }), Err(DeclineReason::NotServed));
    assert_eq!(page.request(Request::Rtt { n: 1001 }), Err(DeclineReason::TooLarge { limit: 1000 }));
    assert_eq!(page.up((16 << 20) + 1), Err(DeclineReason::TooLarge { limit: 16 << 20 }));
    page.rtt(1).unwrap();
    station.stop(crate::LIMIT);
    assert_eq!(page.closed(), Some(1001));
}

#[test]
fn the_station_describes_echo_and_explains_a_missing_handshake() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let address = station.address();
    let echo = get(address, "/v1/station").json()["echo"].clone();
    assert_eq!(
        echo,
        serde_json::json!({ "path": "v1/echo", "transfer_bytes_max": 16 << 20, "keeps": false })
    );
    let answer = get(address, "/v1/echo");
    assert_eq!(answer.status, 426);
    assert!(answer.head.contains("upgrade: websocket") && answer.head.contains("sec-websocket-version: 13"));
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let ask = |version: &str, protocol: &str, key: &str| {
        let headers = [
            ("Connection", "keep-alive, Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", version),
            ("Sec-WebSocket-Protocol", protocol),
            ("Sec-WebSocket-Key", key),
        ];
        send(address, "GET", "/v1/echo", &headers, "").status
    };
    assert_eq!(ask("8", "barograph-probe.1", key), 426);
    assert_eq!(ask("13", "chat", key), 400);
    assert_eq!(ask("13", "barograph-probe.1", "short"), 400);
    // A request without an Upgrade does not count as a refused session.
    assert!(get(address, "/metrics").body.contains("barograph_echo_refused_total 3.0"));
    let mut config = quiet(state.path());
    config.echo.enabled = false;
    assert!(station.reload(config).unwrap().is_empty());
    assert!(get(address, "/v1/station").json()["echo"].is_null());
    let refused = get(address, "/v1/echo");
    assert!(refused.status == 403 && refused.error().contains("echo.enabled"));
    assert_eq!(Page::try_open(address, None).err(), Some(403));
    station.stop(crate::LIMIT);
}

/// The second byte waits for the acknowledgement of the first byte. The client's kernel delays this
/// acknowledgement.
#[test]
#[cfg(target_os = "linux")]
fn an_exchange_with_nagle_waits_for_a_delayed_acknowledgement() {
    let station = start_new(quiet);
    let mut page = Page::open(station.address());
    let mut plain = Vec::new();
    page.request(Request::Rtt { n: 9 }).unwrap();
    for _ in 0..9 {
        plain.push(exchange(&mut page, 1));
    }
    let mut impeded = Vec::new();
    page.request(Request::RttNagle { n: 9 }).unwrap();
    for _ in 0..9 {
        // Delay acknowledgements, as the kernel does for a connection that it classifies as
        // interactive.
        socket2::SockRef::from(page.socket.get_ref()).set_tcp_quickack(false).unwrap();
        impeded.push(exchange(&mut page, 2));
    }
    // Linux delays acknowledgements by at least 40 ms. Compare the median of the delayed exchanges
    // with the fastest plain exchange.
    impeded.sort_unstable();
    let fastest = plain.iter().min().unwrap();
    assert!(*fastest * 5 < impeded[4], "{plain:?} {impeded:?}");
    // Nagle's algorithm is off again for the next exchange.
    page.rtt(1).unwrap();
}

fn exchange(page: &mut Page, messages: usize) -> Duration {
    let began = Instant::now();
    page.send(&[7, 7]);
    let came: usize = (0..messages).map(|_| page.take().len()).sum();
    assert_eq!(came, 2);
    began.elapsed()
}
