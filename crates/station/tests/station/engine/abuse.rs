//! Hostile members: each has a limited effect and gets a clear response.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use barograph_engine::{Engine as _, EngineError, Remote, RemoteConfig, wire};
use barograph_forecast::Name;
use serde_json::{Value, json};

use super::{ask, entry, invite, keeping, kind, lines, record, register};
use crate::http::{connect, get, get_until};
use crate::{quiet, serve, serve_new};

/// Opens a watch, and reads the head of the response.
pub(super) fn open_watch(address: SocketAddr, bearer: &str, group: &str) -> BufReader<TcpStream> {
    open_stream(address, bearer, &format!("watch?group={group}"))
}

/// Opens a stream, and reads the head of the response.
fn open_stream(address: SocketAddr, bearer: &str, path: &str) -> BufReader<TcpStream> {
    let mut stream = connect(address);
    write!(stream, "GET /v1/engine/{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {bearer}\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    lines
}

/// Reads the stream until it ends.
pub(super) fn rest(stream: &mut BufReader<TcpStream>) -> String {
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    rest
}

/// Lines of a watch, from the first line to the line `"synced"`.
pub(super) fn first_lines(address: SocketAddr, bearer: &str, group: &str) -> Vec<String> {
    let mut stream = open_watch(address, bearer, group);
    let mut found = Vec::new();
    while found.last().is_none_or(|line| line != "\"synced\"") {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "{found:?}");
        // Skip the framing of chunks.
        if line.starts_with(['{', '"']) {
            found.push(line.trim_end().to_string());
        }
    }
    found
}

#[test]
fn invalid_entries_are_refused_with_a_reason() {
    let station = serve_new(quiet);
    let address = station.address();
    let token = invite(address, Some("b"));
    let with = |key: &str, value: Value| {
        let mut entry = entry("b");
        entry[key] = value;
        entry
    };
    let many = |count: usize, text: fn(usize) -> String| json!((0..count).map(text).collect::<Vec<_>>());
    for (entry, sentence) in [
        (with("groups", many(65, |i| format!("g{i}"))), "65 groups (at most 64)"),
        (with("addresses", many(17, |i| format!("192.0.2.{i}:1"))), "17 addresses (at most 16)"),
        (with("version", json!("1".repeat(65))), "65 bytes of version (at most 64)"),
        (with("addresses", json!(["everywhere"])), "not a entry"),
        (with("groups", json!(["a b"])), "group"),
        (with("key", json!("00")), "64 hexadecimal digits"),
        (with("host", json!("")), "host"),
    ] {
        let refused = ask(address, &token, "PUT", "entry?ttl_s=10", &entry.to_string());
        assert_eq!((refused.status, kind(&refused).as_str()), (400, "invalid"), "{}", refused.body);
        assert!(refused.error().contains(sentence), "{sentence}: {}", refused.body);
    }
    let large = with("version", json!("1".repeat(130 << 10))).to_string();
    assert_eq!(ask(address, &token, "PUT", "entry?ttl_s=10", &large).status, 413);
    for ttl in ["0.9", "301", "-1", "NaN", "inf", "x", ""] {
        let refused = ask(address, &token, "PUT", &format!("entry?ttl_s={ttl}"), &entry("b").to_string());
        assert_eq!(refused.status, 400, "{ttl}");
    }
    assert_eq!(first_lines(address, &format!("Bearer {token}"), "local:lab"), ["\"synced\""]);
}

#[test]
fn a_batch_is_bounded_and_stored_as_a_whole_or_not_at_all() {
    let station = serve_new(keeping);
    let address = station.address();
    let token = invite(address, Some("b"));
    let append = |body: &str| ask(address, &token, "POST", "records", body);
    let many: Vec<Value> = (1..=10_001).map(|seq| record("b", "b", seq)).collect();
    for (body, status, sentence) in [
        (lines(&many), 400, "at most 10000 records"),
        (format!("{}\n", "x".repeat(33 << 10)), 400, "more than 32768 bytes"),
        ("x".repeat(33 << 10), 400, "more than 32768 bytes"),
        (format!("{}{{}}\n", lines(&[record("b", "b", 1)])), 400, "record 1: not a record"),
        (lines(&[record("b", "b", 1), record("b", "b", 0)]), 400, "the sequence number is not in 1 to"),
        (lines(&[record("b", "b", 1)]).trim_end().to_string(), 400, "the last line has no line end"),
    ] {
        let refused = append(&body);
        assert_eq!((refused.status, kind(&refused).as_str()), (status, "invalid"), "{}", refused.body);
        assert!(refused.error().contains(sentence), "{sentence}: {}", refused.body);
    }
    let bearer = format!("Bearer {token}");
    let json = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    assert_eq!(crate::http::send(address, "POST", "/v1/engine/records", &json, "").status, 415);
    let head = |length: usize| {
        format!(
            "POST /v1/engine/records HTTP/1.1\r\nHost: {address}\r\nAuthorization: {bearer}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )
    };
    assert_eq!(crate::http::raw(address, head((16 << 20) + 1).as_bytes()).status, 413);
    // Send half of the body, and then nothing more.
    let body = lines(&[record("b", "b", 1), record("b", "b", 2)]);
    let mut half = connect(address);
    half.write_all(head(body.len()).as_bytes()).unwrap();
    half.write_all(&body.as_bytes()[..body.len() / 2 + 3]).unwrap();
    drop(half);
    assert_eq!(ask(address, &token, "GET", "next_seq?origin=b", "").json(), json!({ "next_seq": 1 }));
    assert_eq!(append("").json(), json!({ "records": 0 }));
    assert_eq!(append(&lines(&many[..10_000])).json(), json!({ "records": 10_000 }));
    assert_eq!(append(&lines(&many[..10])).json(), json!({ "records": 10 }), "idempotent");
    assert_eq!(ask(address, &token, "GET", "watermark?origin=b", "").json(), json!({ "watermark": 10_000 }));
}

#[test]
fn a_member_that_used_its_burst_gets_a_retry_time() {
    let station = serve_new(keeping);
    let address = station.address();
    let token = invite(address, Some("b"));
    let body = lines(&(1..=10_000).map(|seq| record("b", "b", seq)).collect::<Vec<_>>());
    let began = Instant::now();
    let append = || ask(address, &token, "POST", "records", &body);
    for _ in 0..10 {
        let answer = append();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    // The burst of 100 000 records is used up. The station accepts one more body, and returns the
    // time for which the member must then wait, at 200 records a second.
    let answer = append();
    assert_eq!(answer.status, 200, "{}", answer.body);
    let wait_s = answer.json()["wait_s"].as_f64().unwrap();
    let refilled_s = began.elapsed().as_secs_f64();
    assert!((50.0 - refilled_s..=50.0).contains(&wait_s), "{wait_s} s, begun {refilled_s} s ago");
    let refused = append();
    assert_eq!((refused.status, kind(&refused).as_str()), (429, "unavailable"), "{}", refused.body);
    let head = refused.head.to_ascii_lowercase();
    let again = head.split("retry-after: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    assert!(
        (wait_s - 20.0..=wait_s + 1.0).contains(&again.trim().parse::<f64>().unwrap()),
        "{again} of {wait_s}"
    );

    // The engine of a member returns this refusal as an error, and does not retry before the time
    // in the response.
    let config = RemoteConfig::new(format!("http://{address}/"), Name::new("b").unwrap());
    let remote = Remote::new(RemoteConfig { token: Some(token.clone()), ..config }).unwrap();
    let batch = [wire::read_record(record("b", "b", 1).to_string().as_bytes()).unwrap()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..2 {
        let refused = runtime.block_on(remote.append(&batch));
        let Err(EngineError::Throttled { wait, .. }) = refused else { panic!("{refused:?}") };
        assert!((20.0..=51.0).contains(&wait.as_secs_f64()), "{wait:?}");
    }
}

#[test]
fn ten_thousand_registrations_are_refused_without_delaying_other_members() {
    let station = serve_new(quiet);
    let address = station.address();
    let (flooder, other) = (invite(address, Some("b")), invite(address, Some("c")));
    let mut watch = open_watch(address, &format!("Bearer {other}"), "local:lab");
    let body = entry("b").to_string();
    let request = format!(
        "PUT /v1/engine/entry?ttl_s=10 HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {flooder}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // Send requests on one persistent connection, as fast as possible.
    let stream = connect(address);
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        for _ in 0..10_000 {
            writer.write_all(request.as_bytes()).unwrap();
        }
    });
    let mut counts = std::collections::BTreeMap::new();
    let mut answers = BufReader::new(stream);
    let mut answered = 0;
    while answered < 10_000 {
        let mut line = String::new();
        assert_ne!(answers.read_line(&mut line).unwrap(), 0, "{counts:?}");
        // The body of a response does not end with a line feed, so the status line of the next
        // response follows directly.
        if let Some(at) = line.find("HTTP/1.1 ") {
            *counts.entry(line[at + 9..at + 12].to_string()).or_insert(0) += 1;
            answered += 1;
        }
    }
    sender.join().unwrap();
    assert_eq!(counts.keys().map(String::as_str).collect::<Vec<_>>(), ["200", "429"], "{counts:?}");
    assert!(20 <= counts["200"] && counts["200"] < 100, "{counts:?}");
    // The watch receives all changes and stays open. The next member can register.
    assert_eq!(register(address, &other, "c").status, 200);
    let mut line = String::new();
    while !line.contains(r#""host":"c""#) {
        line.clear();
        assert_ne!(watch.read_line(&mut line).unwrap(), 0);
        assert!(!line.contains("lagged"), "{line}");
    }
}

#[test]
fn a_slow_subscriber_does_not_delay_a_writer_and_streams_are_limited() {
    let station = serve_new(keeping);
    let address = station.address();
    let (slow, writer) = (invite(address, None), invite(address, Some("b")));
    let bearer = format!("Bearer {slow}");
    // Open streams that the client does not read any more.
    let held: Vec<_> = (0..80).map(|_| open_watch(address, &bearer, "local:lab")).collect();
    let more = ask(address, &slow, "GET", "watch?group=local:lab", "");
    assert_eq!((more.status, kind(&more).as_str()), (429, "unavailable"), "{}", more.body);
    assert!(more.head.contains("retry-after"), "{}", more.head);
    assert_eq!(register(address, &writer, "b").status, 200);
    let answer = ask(address, &writer, "POST", "records", &lines(&[record("b", "b", 1)]));
    assert_eq!(answer.status, 200, "{}", answer.body);
    drop(held);
    // The permits of these streams are free again when the station has detected that they are
    // closed.
    let path = "/v1/members";
    get_until(address, path, |_| {
        let mut stream = connect(address);
        let request = "GET /v1/engine/watch?group=x HTTP/1.1";
        write!(stream, "{request}\r\nHost: {address}\r\nAuthorization: {bearer}\r\n\r\n").unwrap();
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).unwrap();
        status.starts_with("HTTP/1.1 200")
    });
}

#[test]
fn subscriptions_of_one_member_are_limited() {
    let station = serve_new(keeping);
    let address = station.address();
    let (greedy, other) = (invite(address, None), invite(address, None));
    let bearer = |token: &str| format!("Bearer {token}");
    let path = "subscribe?from=oldest&source=nobody-there";
    let _held: Vec<_> = (0..16).map(|_| open_stream(address, &bearer(&greedy), path)).collect();
    let more = ask(address, &greedy, "GET", path, "");
    assert_eq!((more.status, kind(&more).as_str()), (429, "unavailable"), "{}", more.body);
    let _watch = open_stream(address, &bearer(&greedy), "watch?group=local:lab");
    let _other = open_stream(address, &bearer(&other), path);
}

#[test]
fn series_beyond_the_share_of_a_member_are_stored_but_not_forecast() {
    let state = tempfile::tempdir().unwrap();
    let mut config = keeping(state.path());
    config.series_max = 40;
    let station = serve(config);
    let address = station.address();
    let token = invite(address, Some("b"));
    let records: Vec<Value> = (1..=30)
        .map(|seq| {
            let mut record = record("b", "b", seq);
            record["target"] = json!(format!("t{seq}"));
            record
        })
        .collect();
    assert_eq!(ask(address, &token, "POST", "records", &lines(&records)).status, 200);
    assert_eq!(get(address, "/v1/series?source=b").json()["series"].as_array().unwrap().len(), 10);
    let stored = ask(address, &token, "GET", "latest?source=b", "");
    assert_eq!(stored.body.matches("\"origin\":\"b\"").count(), 30);
}

#[test]
fn records_beyond_the_archive_capacity_are_not_acknowledged() {
    let station = serve_new(keeping);
    let address = station.address();
    let token = invite(address, Some("b"));
    let append = |seqs: &[u64]| {
        let records: Vec<Value> = seqs.iter().map(|&seq| record("b", "b", seq)).collect();
        ask(address, &token, "POST", "records", &lines(&records))
    };
    let gaps: Vec<u64> = (1..=10_000).map(|i| 2 * i).collect();
    assert_eq!(append(&gaps).status, 200);
    assert_eq!(append(&[30_001]).status, 200, "the last gap that it takes of one origin");
    let refused = append(&[40_001]);
    assert_eq!((refused.status, kind(&refused).as_str()), (503, "unavailable"), "{}", refused.body);
    assert!(refused.error().contains("no further origin or gap"), "{}", refused.body);
    assert_eq!(crate::limits::limit(address, "archive_gaps")["refused"], 1);
    assert_eq!(append(&[1, 3]).status, 200, "what closes gaps is taken");
}

#[test]
fn impossible_values_of_a_quantity_are_refused_and_not_shown() {
    let station = serve_new(keeping);
    let address = station.address();
    let token = invite(address, Some("b"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let of = |seq: u64, quantity: &str, value: Value| {
        let mut record = record("b", "b", seq);
        record["quantity"] = json!(quantity);
        record["value"] = value;
        record["time_unix_ns"] = json!(now + seq);
        record
    };
    let honest: Vec<Value> = (1..=20)
        .flat_map(|i| [of(2 * i - 1, "rtt", json!(0.02)), of(2 * i, "goodput", json!(1e8))])
        .collect();
    assert_eq!(ask(address, &token, "POST", "records", &lines(&honest)).status, 200);
    let best = || get(address, "/v1/best?from=b&to=south&bytes=100000000").json()["hosts"][0].clone();
    let before = best();
    assert!(before["forecast"].as_f64().is_some_and(|seconds| 7.9 < seconds && seconds < 8.2), "{before}");
    for (quantity, value, told) in [
        ("rtt", json!(-1.0), "expected 0 to 3600 for rtt, found -1"),
        ("rtt_loaded", json!(-1e-9), "expected 0 to 3600 for rtt_loaded"),
        ("rtt_udp", json!(3601.0), "expected 0 to 3600 for rtt_udp, found 3601"),
        ("goodput", json!(-5.0), "expected 0 to 10000000000000 for goodput"),
        ("goodput", json!(1e69), "expected 0 to 10000000000000 for goodput, found 1"),
        ("goodput_down", json!(1.1e13), "expected 0 to 10000000000000 for goodput_down, found 11"),
        ("goodput", json!(1e300), "is out of range: its magnitude may be at most 1e70"),
        ("loss", json!(7.0), "expected 0 to 1 for loss, found 7"),
        ("loss", json!(null), "has either a value, or an error"),
    ] {
        // Send the bad record together with a valid one: the station stores all records of a
        // request or none.
        let batch = [of(41, "rtt", json!(0.02)), of(42, quantity, value.clone())];
        let refused = ask(address, &token, "POST", "records", &lines(&batch));
        assert_eq!((refused.status, kind(&refused).as_str()), (400, "invalid"), "{value}: {}", refused.body);
        assert!(refused.error().contains(told), "{told}: {}", refused.body);
    }
    assert_eq!(ask(address, &token, "GET", "watermark?origin=b", "").json(), json!({ "watermark": 40 }));
    let after = best();
    assert_eq!((&after["forecast"], &after["upper"]), (&before["forecast"], &before["upper"]));
    let series = get(address, "/v1/series?source=b").json();
    assert_eq!(series["series"].as_array().unwrap().len(), 2, "what the page shows: {series}");
    let metrics = get(address, "/metrics").body;
    let is_told = |line: &&str| line.contains("source=\"b\"") && !line.contains("residual");
    let of_b: Vec<f64> = metrics
        .lines()
        .filter(is_told)
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(!of_b.is_empty() && of_b.iter().all(|value| (0.0..1e9).contains(value)), "{of_b:?}");
}

#[test]
fn one_record_does_not_make_a_name_unusable() {
    let station = serve_new(keeping);
    let address = station.address();
    let token = invite(address, Some("b"));
    let append = |seqs: std::ops::RangeInclusive<u64>| {
        let records: Vec<Value> = seqs.map(|seq| record("b", "b", seq)).collect();
        ask(address, &token, "POST", "records", &lines(&records))
    };
    let next = || ask(address, &token, "GET", "next_seq?origin=b", "").body;
    let at = |seq: u64| {
        json!({ "time_unix_ns": 1_767_225_600_000_000_000_u64, "seq": seq, "origin": "b",
        "source": "b", "target": "south", "quantity": "rtt", "value": 0.25 })
    };
    assert_eq!(append(1..=5).status, 200);
    let before = next();
    let far = (1_u64 << 53) - 5;
    let passing = json!({ "time_unix_ns": 0, "seq": far, "origin": "b", "source": "nobody", "target": "b",
        "quantity": "loss", "error": "refused", "after_s": 0.0, "detail": "{\"passes_over_from\":6}" });
    for record in [at(far), passing] {
        let refused = ask(address, &token, "POST", "records", &lines(&[record]));
        assert_eq!((refused.status, kind(&refused).as_str()), (400, "invalid"), "{}", refused.body);
        assert!(refused.error().contains("above its highest, 5"), "{}", refused.body);
    }
    let fed = json!({ "origin": "b", "records": [{ "quantity": "rtt", "value": 1, "seq": far }] });
    // A record that an application submits under the name of a member does not change the next
    // sequence number.
    assert_eq!(crate::http::post(address, "/v1/measurements", &fed.to_string()).status, 409);
    assert_eq!(next(), before, "the name goes on where it was");
    assert_eq!(append(6..=8).status, 200);
    let count = || get(address, "/v1/series?source=b&target=south").json()["series"][0]["count"].clone();
    assert_eq!(count(), 8);
    // Send a record with the highest sequence number to which a station may jump. The station then
    // continues above this number.
    assert_eq!(ask(address, &token, "POST", "records", &lines(&[at(1 << 52)])).status, 200);
    assert_eq!(append((1 << 52) + 1..=(1 << 52) + 3).status, 200);
    assert_eq!(count(), 12);
    // A station without this record continues below its sequence number. A repeated record is not
    // learnt twice.
    for _ in 0..2 {
        assert_eq!(append(9..=10).status, 200);
        assert_eq!(count(), 14);
    }
}
