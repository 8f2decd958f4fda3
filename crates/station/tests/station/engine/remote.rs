//! Tests of the engine's client while the station is restarted, slow or stopped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use barograph_engine::{
    Cursor, Engine, EngineError, Entry, Event, LeaseState, Range, Record, Remote, RemoteConfig, Selector,
    StartAt,
};
use barograph_forecast::Outcome;
use barograph_testkit::name;
use futures_util::StreamExt as _;

use super::{invite, keeping};
use crate::{serve, serve_new};

fn remote(address: SocketAddr, token: Option<String>) -> Remote {
    let config = RemoteConfig::new(format!("http://{address}/"), name("b"));
    Remote::new(RemoteConfig { token, deadline: Duration::from_secs(5), ..config }).unwrap()
}

fn record(seq: u64) -> Record {
    Record { outcome: Outcome::Value(0.5), ..barograph_testkit::record("b", "south", seq) }
}

fn entry() -> Entry {
    Entry { groups: vec![name("g")], addresses: Vec::new(), ..barograph_testkit::entry("b") }
}

async fn next<T>(stream: &mut barograph_engine::BoxStream<T>) -> Option<Result<T, EngineError>> {
    tokio::time::timeout(crate::LIMIT, stream.next()).await.expect("an item in time")
}

/// The next record of `b`; the station may record its own memory in between.
async fn next_of_b(
    stream: &mut barograph_engine::BoxStream<(Cursor, Record)>,
) -> Result<(Cursor, Record), EngineError> {
    loop {
        let item = next(stream).await.unwrap();
        if !item.as_ref().is_ok_and(|(_, record)| record.origin == name("here")) {
            return item;
        }
    }
}

#[tokio::test]
async fn a_lease_survives_a_server_restart_and_a_stream_does_not() {
    let state = tempfile::tempdir().unwrap();
    let mut config = keeping(state.path());
    let station = serve(config.clone());
    config.listen = station.address();
    let engine = remote(station.address(), Some(invite(station.address(), None)));
    let _lease = engine.register(&entry(), Duration::from_secs(1)).await.unwrap();
    let mut before = engine.watch(&name("g"));
    assert_eq!(next(&mut before).await, Some(Ok(Event::Up(entry()))));
    assert_eq!(next(&mut before).await, Some(Ok(Event::Synced)));
    let mut records = engine.subscribe(&Selector::default(), StartAt::Oldest);
    engine.append(&[record(1)]).await.unwrap();
    let (cursor, first) = next_of_b(&mut records).await.unwrap();
    assert_eq!(first, record(1));
    station.stop(crate::LIMIT);
    assert!(matches!(next(&mut before).await, Some(Err(EngineError::Unavailable(_)))));
    assert_eq!(next(&mut before).await, None, "the stream ends after an error");
    assert!(matches!(next_of_b(&mut records).await, Err(EngineError::Unavailable(_))));
    let refused = engine.append(&[record(2)]).await;
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "nothing was sent: {refused:?}");

    let station = serve(config);
    let mut after = engine.watch(&name("g"));
    // The client registers again automatically. Its entry is in the snapshot or in a later change.
    while next(&mut after).await != Some(Ok(Event::Up(entry()))) {}
    let mut records = engine.subscribe(&Selector::default(), StartAt::After(cursor));
    engine.append(&[record(1), record(2)]).await.unwrap();
    assert_eq!(next_of_b(&mut records).await.unwrap().1, record(2), "after the cursor of the last");
    station.stop(crate::LIMIT);
}

/// Waits until the lease has this state. The client renews the lease three times a second.
async fn until_state(lease: &dyn barograph_engine::Lease, state: LeaseState) {
    let ends = Instant::now() + crate::LIMIT;
    while lease.state() != state {
        assert!(Instant::now() < ends, "{:?}, never {state:?}", lease.state());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_lease_reports_expiry_and_displacement_by_a_copy() {
    let state = tempfile::tempdir().unwrap();
    let mut config = keeping(state.path());
    let station = serve(config.clone());
    config.listen = station.address();
    let token = invite(station.address(), Some("b"));
    let [first, copy] = [0, 1].map(|_| remote(station.address(), Some(token.clone())));
    let ttl = Duration::from_secs(1);
    let earlier = first.register(&entry(), ttl).await.unwrap();
    assert_eq!(earlier.state(), LeaseState::Held);
    let later = copy.register(&entry(), ttl).await.unwrap();
    until_state(&*earlier, LeaseState::Displaced).await;
    assert_eq!(later.state(), LeaseState::Held);
    station.stop(crate::LIMIT);
    until_state(&*later, LeaseState::Lapsed).await;
    let _station = serve(config);
    until_state(&*later, LeaseState::Held).await;
    assert_eq!(earlier.state(), LeaseState::Displaced, "it does not fight");
}

#[test]
fn the_remote_engine_works_from_any_runtime_and_outlives_each_runtime() {
    let station = serve_new(keeping);
    let engine = remote(station.address(), Some(invite(station.address(), Some("b"))));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut records = runtime().block_on(async { engine.subscribe(&Selector::default(), StartAt::Now) });
    for seq in 1..=3 {
        // Each runtime ends with all its tasks.
        runtime().block_on(engine.append(&[record(seq)])).unwrap();
        assert_eq!(runtime().block_on(next(&mut records)).unwrap().unwrap().1, record(seq));
    }
    let lease = runtime().block_on(engine.register(&entry(), Duration::from_secs(60))).unwrap();
    let mut events = engine.watch(&name("g"));
    let runtime = runtime();
    assert_eq!(runtime.block_on(next(&mut events)), Some(Ok(Event::Up(entry()))));
    assert_eq!(runtime.block_on(next(&mut events)), Some(Ok(Event::Synced)));
    // Drop the lease outside of any runtime.
    drop(lease);
    assert_eq!(runtime.block_on(next(&mut events)), Some(Ok(Event::Down(name("b")))));
}

#[tokio::test]
async fn the_remote_engine_needs_a_token_and_is_denied_foreign_records() {
    let station = serve_new(keeping);
    let engine = remote(station.address(), None);
    assert!(matches!(engine.append(&[record(1)]).await, Err(EngineError::Denied(_))));
    assert!(matches!(engine.watermark(&name("b")).await, Err(EngineError::Denied(_))));
    let mut events = engine.watch(&name("g"));
    assert!(matches!(next(&mut events).await, Some(Err(EngineError::Denied(_)))));
    let engine = remote(station.address(), Some(invite(station.address(), Some("c"))));
    let refused = engine.append(&[record(1)]).await;
    assert!(
        matches!(&refused, Err(EngineError::Denied(why)) if why.contains("belongs to `c`")),
        "{refused:?}"
    );
    assert!(matches!(engine.register(&entry(), Duration::from_secs(10)).await, Err(EngineError::Denied(_))));
    let other = Record { origin: name("c"), ..record(1) };
    assert!(matches!(engine.append(&[other]).await, Err(EngineError::Denied(_))), "told without asking");
}

#[tokio::test]
async fn a_large_batch_is_appended_in_parts_and_read_back_in_pages() {
    let station = serve_new(keeping);
    let engine = remote(station.address(), Some(invite(station.address(), Some("b"))));
    let detail = format!("{{\"x\":\"{}\"}}", "\\\"".repeat((Record::DETAIL_BYTES_MAX - 8) / 2));
    let batch: Vec<Record> = (1..=1000).map(|seq| Record { detail: detail.clone(), ..record(seq) }).collect();
    engine.append(&batch).await.unwrap();
    assert_eq!(engine.watermark(&name("b")).await, Ok(1000));
    let (mut found, mut range, mut pages) = (Vec::new(), Range::newest(1000), 0);
    loop {
        let page = engine.history(&record(1).series, &range).await.unwrap();
        found.extend(page.items);
        pages += 1;
        range.after = page.next;
        if range.after.is_none() {
            break;
        }
    }
    found.reverse();
    assert!(found == batch, "{} records", found.len());
    assert_eq!(pages, 2, "they have more than {} bytes", Range::BYTES_MAX);
    station.stop(crate::LIMIT);
}

/// A server that accepts connections, reads a request of each and calls `answer`.
fn hostile(answer: fn(&mut std::net::TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the process of the test.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                answer(&mut stream);
            });
        }
    });
    address
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n";

#[tokio::test]
async fn a_broken_connection_makes_an_append_unknown_and_reads_unavailable() {
    let closing = remote(hostile(|_| {}), None);
    assert!(matches!(closing.append(&[record(1)]).await, Err(EngineError::Unknown(_))));
    assert!(matches!(closing.next_seq(&name("b")).await, Err(EngineError::Unavailable(_))));
    let gateway = |stream: &mut std::net::TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad");
    };
    let gateway = remote(hostile(gateway), None);
    assert!(matches!(gateway.append(&[record(1)]).await, Err(EngineError::Unknown(_))));
    assert!(matches!(gateway.watermark(&name("b")).await, Err(EngineError::Unavailable(_))));
    let garbage = |stream: &mut std::net::TcpStream| drop(stream.write_all(b"SSH-2.0-x\r\n"));
    assert!(matches!(
        remote(hostile(garbage), None).append(&[record(1)]).await,
        Err(EngineError::Unknown(_))
    ));
}

#[tokio::test]
async fn responses_of_a_hostile_server_are_bounded() {
    let endless_line = |stream: &mut std::net::TcpStream| {
        let _ = stream.write_all(HEAD);
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    };
    let engine = remote(hostile(endless_line), None);
    let garbage =
        |error: &EngineError| matches!(error, EngineError::Unavailable(why) if why.contains("more than"));
    assert!(garbage(&engine.history(&record(1).series, &Range::newest(9)).await.unwrap_err()));
    assert!(garbage(&next(&mut engine.watch(&name("g"))).await.unwrap().unwrap_err()));
    assert!(matches!(engine.watermark(&name("b")).await, Err(EngineError::Unavailable(_))));

    let endless_page = |stream: &mut std::net::TcpStream| {
        let _ = stream.write_all(HEAD);
        let line = format!("{}\n", barograph_engine::wire::record_text(&record(1)));
        while stream.write_all(line.as_bytes()).is_ok() {}
    };
    let page = remote(hostile(endless_page), None).history(&record(1).series, &Range::newest(9)).await;
    assert!(matches!(&page, Err(EngineError::Unavailable(why)) if why.contains("more records")), "{page:?}");

    let cut_page = |stream: &mut std::net::TcpStream| {
        let _ = stream.write_all(HEAD);
        let _ = stream.write_all(format!("{}\n", barograph_engine::wire::record_text(&record(1))).as_bytes());
    };
    let page = remote(hostile(cut_page), None).history(&record(1).series, &Range::newest(9)).await;
    assert!(matches!(&page, Err(EngineError::Unavailable(why)) if why.contains("last line")), "{page:?}");
}

#[tokio::test]
async fn a_silent_server_is_detected_in_a_bounded_time() {
    let silent = |stream: &mut std::net::TcpStream| {
        let _ = stream.write_all(HEAD);
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let address = hostile(silent);
    let began = Instant::now();
    let engine = remote(address, None);
    let mut events = engine.watch(&name("g"));
    let page = engine.latest(&Selector::default(), None, 10).await;
    assert!(matches!(page, Err(EngineError::Unavailable(_))), "{page:?}");
    assert!(began.elapsed() < Duration::from_secs(7), "the deadline is 5 s");
    assert!(matches!(next(&mut events).await, Some(Err(EngineError::Unavailable(_)))));
    assert!(began.elapsed() < Duration::from_secs(10), "three heartbeats are missing after 7 s");
}

#[test]
fn an_invalid_remote_configuration_is_refused_at_once() {
    let state = tempfile::tempdir().unwrap();
    let empty = state.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let good = || RemoteConfig { token: Some("x".into()), ..RemoteConfig::new("http://a:1/", name("b")) };
    assert!(Remote::new(good()).is_ok());
    for url in ["", "a:1", "ftp://a/", "http://", "http:///", "http://a@b/", "http://a/?x", "http://a b/"] {
        let config = RemoteConfig { url: url.into(), ..good() };
        assert!(matches!(Remote::new(config), Err(EngineError::Invalid(_))), "{url}");
    }
    assert!(matches!(
        Remote::new(RemoteConfig { token: Some("\n".into()), ..good() }),
        Err(EngineError::Invalid(_))
    ));
    let config = RemoteConfig { url: "https://a/".into(), ca: Some(empty), ..good() };
    assert!(matches!(Remote::new(config), Err(EngineError::Invalid(_))));
    assert!(!format!("{:?}", RemoteConfig { token: Some("secret".into()), ..good() }).contains("secret"));
}
