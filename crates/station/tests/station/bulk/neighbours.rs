//! Faulty peers in bulk tests: each has a limited effect and a clear message.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_engine::Engine;
use barograph_forecast::Name;
use barograph_probe::io::{ChallengeSigner, ProbeContext, stream};
use barograph_probe::signed::{Challenge, Credentials, text_to_sign};
use barograph_probe::wire::{DeclineReason, Reply, Request};
use barograph_probe::{StreamPlan, Target};
use barograph_station::Station;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::Value;

use super::{Served, config, declines, fake, test, until_peers};
use crate::LIMIT;
use crate::http::{HttpResponse, get, get_until};
use crate::mesh::{block_on, directory, entry, joined};

/// Never responds to a request for a test, not even with a refusal. Declines all other requests.
fn never_answers(stream: TcpStream, asked: Option<Request>) {
    match asked {
        // Reads until the other end closes.
        Some(Request::Stream { .. }) => swallow(stream),
        _ => declines(stream, asked),
    }
}

/// Grants the test, reads all data, and never reports what arrived.
fn never_ends(mut stream: TcpStream, asked: Option<Request>) {
    match asked {
        Some(Request::Stream { .. }) => {
            let _ = stream.write_all(&Reply::Ready { nonce: 0 }.encode());
            let kept = stream.try_clone().unwrap();
            swallow(stream);
            // The other end has finished sending and waits for the result, so keep the connection
            // open.
            std::mem::forget(kept);
        }
        _ => declines(stream, asked),
    }
}

/// Grants the test and reads no data.
fn never_reads(mut stream: TcpStream, asked: Option<Request>) {
    match asked {
        Some(Request::Stream { .. }) => {
            let _ = stream.write_all(&Reply::Ready { nonce: 0 }.encode());
            std::mem::forget(stream);
        }
        _ => declines(stream, asked),
    }
}

fn swallow(mut stream: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

#[test]
fn a_peer_that_grants_a_test_and_falls_silent_blocks_no_test_for_long() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    // This budget is large enough for tests on loopback. Each such test moves half a gigabyte.
    let rich = |host: &str| {
        let mut config = config(&state.path().join(host), host);
        config.mesh.bulk_bytes_per_hour = Some(100_000_000_000);
        joined(config, Some(&directory))
    };
    let (a, good) = (rich("a"), rich("good"));
    until_peers(&a, "good");
    until_peers(&good, "a");
    let mute: [(&str, Served); 3] =
        [("mute", never_answers), ("endless", never_ends), ("unread", never_reads)];
    for (name, served) in mute {
        let at = fake(name, served).to_string();
        let mut bad = entry(name, &[&at]);
        bad.capabilities.bulk = true;
        let lease = block_on(directory.register(&bad, Duration::from_secs(60))).unwrap();
        until_peers(&a, name);
        let (answer, took) = test_when_free(&a, name);
        // The test takes the requested 0.2 s, and up to 4 s before and after it.
        assert!(took < Duration::from_secs(6), "{name}: {took:?}");
        let made = answer.json();
        assert_eq!((answer.status, made["state"].as_str()), (200, Some("failed")), "{name}: {made}");
        let why = made["why"].as_str().unwrap();
        assert!(why.starts_with("timed_out: "), "{name}: {why}");
        let path = format!("/v1/latest?source=a&target={name}&quantity=goodput");
        get_until(a.address(), &path, |answer| answer.json()["latest"][0]["error"] == "timed_out");
        // Station a can start the next test at once, because it has released its slot for bulk
        // transfers.
        let (next, _) = test_when_free(&a, "good");
        assert_eq!((next.status, next.json()["state"].as_str()), (200, Some("done")), "{}", next.body);
        drop(lease);
    }
    // All bytes that were sent to peers count as spent, even if the peer did not read them.
    let shown = get(a.address(), "/v1/tests").json();
    let moved = bytes(&shown, "source", "endless") + bytes(&shown, "source", "good");
    let spent = shown["budget"]["spent"]["source"]["bytes"].as_u64().unwrap();
    assert!(0 < moved && moved <= spent, "{shown}");
    good.stop(LIMIT);
    a.stop(LIMIT);
}

/// Makes a test, and returns its duration. Repeats the request while a different test, such as the
/// first test of a path, runs.
fn test_when_free(station: &Station, to: &str) -> (HttpResponse, Duration) {
    let waiting = Instant::now();
    loop {
        let began = Instant::now();
        let answer = test(station, to);
        if answer.status != 429 || !answer.body.contains("another") {
            return (answer, began.elapsed());
        }
        assert!(waiting.elapsed() < LIMIT, "{}", answer.body);
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Bytes of the listed tests with a peer.
fn bytes(shown: &Value, role: &str, peer: &str) -> u64 {
    let tests = shown["tests"].as_array().unwrap().iter();
    let with = tests.filter(|test| test["role"] == role && test["peer"] == peer);
    with.filter_map(|test| test["bytes"].as_u64()).sum()
}

/// The key pair of a peer, to sign requests without running a station.
struct Key(Ed25519KeyPair);

impl ChallengeSigner for Key {
    fn sign(&self, challenge: &Challenge, method: &str, path: &str) -> Option<Credentials> {
        let name = Name::new("greedy").unwrap();
        let text = text_to_sign(&challenge.challenge, &challenge.realm, &name, method, path);
        let signature = self.0.sign(text.as_bytes()).as_ref().try_into().unwrap();
        Some(Credentials { name, challenge: challenge.challenge, signature })
    }
}

#[test]
fn a_peer_that_requests_endless_tests_gets_only_its_share() {
    const HOUR: u64 = 20_000_000;
    const ONE: u64 = 1_000_000;
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let mut small = config(&state.path().join("a"), "a");
    small.mesh.bulk_bytes_per_hour = Some(HOUR);
    let a = joined(small, Some(&directory));
    let mut modest = config(&state.path().join("other"), "other");
    modest.mesh.bulk_bytes_per_hour = Some(HOUR / 5);
    let other = joined(modest, Some(&directory));
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let mut greedy = entry("greedy", &["192.0.2.1:1"]);
    greedy.capabilities.bulk = true;
    greedy.key = Some(key.public_key().as_ref().try_into().unwrap());
    let lease = block_on(directory.register(&greedy, Duration::from_secs(60))).unwrap();
    until_peers(&a, "other");
    until_peers(&other, "a");
    get_until(a.address(), "/v1/peers", |answer| answer.body.contains("\"greedy\""));

    let target = Target::parse(&a.address().to_string()).unwrap();
    let context =
        ProbeContext { sign: Some(Arc::new(Key(key))), signs_first: true, ..ProbeContext::default() };
    let plan = StreamPlan { seconds: 0.1, bytes_max: ONE, ..StreamPlan::full() };
    let began = Instant::now();
    let (mut got, mut refused) = (0, 0);
    while refused < 200 {
        assert!(began.elapsed() < 3 * LIMIT, "{got} bytes, {refused} refusals");
        match stream(&target, &plan, &context).map_err(|error| (error.declined, error)) {
            Ok(streamed) => got += streamed.bytes,
            Err((Some(DeclineReason::SpentFor { retry_ms }), _)) => {
                assert!(retry_ms > 1000, "{retry_ms} ms");
                refused += 1;
            }
            // The target has not finished the previous test yet.
            Err((Some(DeclineReason::BusyFor { .. } | DeclineReason::Full), _)) => {}
            Err((_, error)) => panic!("{error:?}"),
        }
    }
    // The peer gets at most its equal share of the budget, plus less than the bytes of one test.
    assert!((ONE..HOUR / 2 + ONE).contains(&got), "{got} bytes");
    let shown = get(a.address(), "/v1/tests").json();
    assert_eq!(bytes(&shown, "target", "greedy"), got, "{shown}");
    let rows = shown["tests"].as_array().unwrap();
    let last = rows.iter().find(|test| test["peer"] == "greedy").unwrap();
    assert_eq!(last["state"], "refused", "{last}");
    assert!(last["why"].as_str().unwrap().starts_with("the budget for tests is spent"), "{last}");
    assert!(
        last["times"].as_u64().is_some_and(|times| times > 100),
        "refusals in a row are one line: {last}"
    );
    // The rest of the budget is available to others.
    let (answer, _) = test_when_free(&other, "a");
    assert_eq!((answer.status, answer.json()["state"].as_str()), (200, Some("done")), "{}", answer.body);
    drop(lease);
}
