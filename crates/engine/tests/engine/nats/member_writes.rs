//! A member writes records and its registration through an archive.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectOptions, HeaderMap};
use barograph_engine::{
    Archiver, Engine, EngineError, Entry, Event, LeaseState, Local, Nats, NatsConfig, Range, Record, token,
    wire,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::nats::attack::{Attacker, asked, own_subjects};
use crate::nats::deployed::{
    ARCHIVE, NORTH, SOUTH, by_certificate, by_credentials, certificate_options, credentials, has_openssl,
    script, single, stations, stations_that_publish, with_accounts, with_certificates,
};
use crate::nats::proxy::Proxy;
use crate::nats::reflected_replies;
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

const OTHER_ARCHIVE: &str = "archive-2.example.net";
const WEST: &str = "west.example.net";

/// A server with the shipped lists for credentials: two archives and three stations.
struct Site {
    directory: tempfile::TempDir,
    server: NatsServer,
}

/// An archive that answers until it is dropped.
struct RunningArchive {
    nats: Arc<Nats>,
    archiver: Archiver,
    local: Arc<Local>,
    _files: tempfile::TempDir,
}

impl Site {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (Some(_), true) = (server::binary(), has_openssl()) else { return None };
        script(directory.path(), "accounts", &["setup", "3"]);
        for host in [ARCHIVE, OTHER_ARCHIVE] {
            script(directory.path(), "accounts", &["archive", host]);
        }
        for host in [NORTH, SOUTH, WEST] {
            script(directory.path(), "accounts", &["station", host]);
        }
        let server = NatsServer::start_with(directory.path(), &with_accounts(directory.path())).unwrap();
        Some(Self { directory, server })
    }

    fn config(&self, host: &str) -> NatsConfig {
        by_credentials(self.directory.path(), &self.server, host)
    }

    fn nats(&self, host: &str) -> Nats {
        Nats::new(self.config(host)).unwrap()
    }

    /// Starts an archive that is connected to `address`. Returns when the archive has stored and
    /// read a record of its own.
    async fn archive(&self, host: &str, address: Option<&str>) -> RunningArchive {
        let mut config = self.config(host);
        config.servers = address.map_or(config.servers, |address| vec![address.to_owned()]);
        Self::archive_with(config, host).await
    }

    async fn archive_with(config: NatsConfig, host: &str) -> RunningArchive {
        let nats = Arc::new(Nats::new(config).unwrap());
        let files = tempfile::tempdir().unwrap();
        let (archiver, local) = server::archive(&nats, files.path());
        server::canary(&*nats, host, 1).await;
        RunningArchive { nats, archiver, local, _files: files }
    }

    async fn attacker(&self) -> Attacker {
        self.attacker_at(&self.server.url).await
    }

    async fn attacker_at(&self, address: &str) -> Attacker {
        let file = credentials(self.directory.path(), NORTH);
        let options = ConnectOptions::with_credentials_file(file).await.unwrap();
        Attacker::new(address, options).await
    }

    /// Number of messages in the stream of records.
    fn messages(&self) -> u64 {
        let text = reflected_replies::monitoring(&self.server, "/jsz?accounts=1&streams=1");
        let all: Value = serde_json::from_str(&text).unwrap();
        let accounts = all["account_details"].as_array().cloned().unwrap_or_default();
        let mut streams = accounts
            .iter()
            .flat_map(|account| account["stream_detail"].as_array().cloned().unwrap_or_default());
        let records = streams.find(|stream| stream["name"] == "BAROGRAPH");
        records.map_or(0, |records| records["state"]["messages"].as_u64().unwrap())
    }
}

/// Records of the north that need several requests.
fn batch(count: u64) -> Vec<Record> {
    let detail = format!("{{\"x\":\"{}\"}}", "x".repeat(1000));
    (1..=count).map(|seq| Record { detail: detail.clone(), ..record(NORTH, "x", seq) }).collect()
}

fn lines(records: &[Record]) -> String {
    records.iter().map(|record| wire::record_text(record) + "\n").collect()
}

#[tokio::test]
async fn a_member_appends_and_registers_through_an_archive() {
    let Some(site) = Site::new() else { return };
    let archive = site.archive(ARCHIVE, None).await;
    let [north, south] = [NORTH, SOUTH].map(|host| site.nats(host));
    let mut events = south.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Synced);
    let records = batch(500);
    north.append(&records).await.unwrap();
    assert_eq!(north.watermark(&name(NORTH)).await, Ok(500));
    assert_eq!(north.next_seq(&name(NORTH)).await, Ok(501));
    let newest = north.history(&records[0].series, &Range::newest(1)).await.unwrap().items;
    assert_eq!(newest, records[499..]);
    assert_eq!(archive.archiver.statistics().discarded, 0);
    assert_eq!((site.messages(), reflected_replies::subjects(&site.server)), (501, 2));
    let largest = Record { detail: "x".into(), ..record(NORTH, "x", 501) };
    let detail = format!("{{\"x\":\"{}\"}}", "\\\"".repeat(Record::DETAIL_BYTES_MAX / 2 - 4));
    let largest = Record { detail, ..largest };
    north.append(std::slice::from_ref(&largest)).await.unwrap();
    assert_eq!(north.history(&largest.series, &Range::newest(1)).await.unwrap().items, [largest]);
    let foreign = north.append(&[record(SOUTH, "x", 1)]).await;
    assert!(matches!(foreign, Err(EngineError::Denied(_))), "{foreign:?}");

    let lease = north.register(&entry(NORTH), Duration::from_secs(10)).await.unwrap();
    assert_eq!(next_item(&mut events).await, Event::Up(entry(NORTH)));
    let second = site.nats(NORTH);
    let moved = Entry { addresses: vec!["192.0.2.1:9".parse().unwrap()], ..entry(NORTH) };
    let second_lease = second.register(&moved, Duration::from_secs(3)).await.unwrap();
    assert_eq!(next_item(&mut events).await, Event::Up(moved));
    eventually("the displacement", async || (lease.state() == LeaseState::Displaced).then_some(())).await;
    drop(lease);
    drop(second_lease);
    assert_eq!(next_item(&mut events).await, Event::Down(name(NORTH)));
}

#[tokio::test]
async fn an_archive_writes_only_what_belongs_to_the_requester() {
    let Some(site) = Site::new() else { return };
    let archive = site.archive(ARCHIVE, None).await;
    let south = site.nats(SOUTH);
    let lease = south.register(&entry(SOUTH), Duration::from_secs(300)).await.unwrap();
    let attacker = site.attacker().await;
    let before = site.messages();

    let own = record(NORTH, "x", 1);
    let foreign = record(SOUTH, "x", 1);
    let mut named_by_others = record(NORTH, "x", 1);
    named_by_others.series.source = name(SOUTH);
    let long = " ".repeat(13 << 10);
    for (records, kind) in [
        (lines(std::slice::from_ref(&foreign)), "denied"),
        (lines(&[own.clone(), foreign]), "denied"),
        (lines(&[named_by_others]), "denied"),
        (wire::record_text(&own).replace("\"seq\":1", "\"seq\":0"), "invalid"),
        (wire::record_text(&own).replace("\"seq\":1", "\"seq\":18446744073709551615"), "invalid"),
        (format!("{}{{}}", lines(std::slice::from_ref(&own))), "invalid"),
        (format!("{long}{}", "\n".repeat(3000)), "invalid"),
        ("NATS/1.0\r\nNats-Rollup: all\r\n\r\n".into(), "invalid"),
    ] {
        let answer = attacker.write("append", json!({}), &records).await;
        assert_eq!(answer["error"]["kind"], kind, "{records:.200}: {answer}");
    }

    let text = wire::entry_text(&entry(NORTH));
    let registration = |id: &str, ttl_s: u64| json!({ "registration": { "id": id, "ttl_s": ttl_s } });
    let long_id = "x".repeat(33);
    for (request, body, kind) in [
        (registration("x", 10), wire::entry_text(&entry(SOUTH)), "denied"),
        (registration("x", 10), "{}".into(), "invalid"),
        (registration("", 10), text.clone(), "invalid"),
        (registration(&long_id, 10), text.clone(), "invalid"),
        (registration("x\r\nNats-Rollup: all", 10), text.clone(), "invalid"),
        (registration("x", 0), text.clone(), "invalid"),
        (registration("x", 301), text.clone(), "invalid"),
        (registration("x", u64::MAX), text.clone(), "invalid"),
        (json!({}), text.clone(), "invalid"),
    ] {
        let answer = attacker.write("register", request, &body).await;
        assert_eq!(answer["error"]["kind"], kind, "{body}: {answer}");
    }
    // The archive reads the entry, and writes only the fields that it knows.
    let padded = format!("{},\"KV-Operation\":\"PURGE\"}}", text.strip_suffix('}').unwrap());
    let stored = attacker.write("register", registration("a1", 10), &padded).await;
    let seq = stored["number"].as_u64().unwrap();
    let mut events = south.watch(&name("local"));
    let mut seen = [next_item(&mut events).await, next_item(&mut events).await];
    seen.sort_by_key(|event| *event == Event::Up(entry(SOUTH)));
    assert_eq!(seen, [Event::Up(entry(NORTH)), Event::Up(entry(SOUTH))]);
    assert_eq!(next_item(&mut events).await, Event::Synced);
    // A condition on the sequence number is kept.
    let over = |seq: u64| json!({ "registration": { "id": "a2", "ttl_s": 10, "over": seq } });
    assert_eq!(attacker.write("register", over(seq + 1), &text).await["conflict"], true);
    assert_eq!(attacker.write("register", over(seq + 1), "").await["conflict"], true);
    assert!(attacker.write("register", over(seq), "").await["number"].is_number());
    assert_eq!(next_item(&mut events).await, Event::Down(name(NORTH)));

    assert_eq!(lease.state(), LeaseState::Held);
    assert_eq!(site.messages(), before, "a refused record was stored");
    assert_eq!(archive.nats.watermark(&name(NORTH)).await, Ok(0));
}

/// A server may publish a response to the subject of another station's request. Such a message has
/// the server's headers, or none.
#[tokio::test]
async fn a_response_of_a_server_is_no_request_to_write() {
    let Some(site) = Site::new() else { return };
    let _archive = site.archive(ARCHIVE, None).await;
    let attacker = site.attacker().await;
    let before = site.messages();
    let nonce = attacker.write("append", json!({}), "").await["nonce"].clone();
    let mut reflected = asked();
    reflected.insert("Nats-Subject", "x");
    let body = |seq: u64| lines(&[record(NORTH, "x", seq)]);
    for (headers, seq) in [(reflected, 1), (HeaderMap::new(), 2)] {
        let request = json!({ "after_place": 0, "answer": "s.1", "nonce": nonce });
        let message = format!("{request}\n{}", body(seq));
        let subject = format!("barograph.a.{}.append", token(NORTH));
        attacker.client.publish_with_headers(subject, headers, message.into()).await.unwrap();
    }
    // The archive receives this request after the messages above, and stores records in order.
    assert!(attacker.write("append", json!({}), &body(3)).await["number"].is_number());
    assert_eq!(site.messages(), before + 1);
}

/// The answer to an append is lost, so the station sends the same records again.
#[tokio::test]
async fn repeated_records_are_stored_once() {
    let Some(site) = Site::new() else { return };
    let archive = site.archive(ARCHIVE, None).await;
    let attacker = site.attacker().await;
    let before = site.messages();
    let body = lines(&batch(10));
    let first = attacker.write("append", json!({}), &body).await;
    let again = attacker.write("append", json!({}), &body).await;
    assert_eq!((&first["number"], site.messages()), (&again["number"], before + 10));
    eventually("the watermark", async || {
        archive.local.watermark(&name(NORTH)).await.ok().filter(|last| *last == 10)
    })
    .await;
}

/// An archive stores the requests of one station one after the other, each after a long way to the
/// servers. So it has no time for the last of the requests that the station sent at once. The
/// station repeats only those.
#[tokio::test]
async fn a_batch_beyond_the_room_of_an_archive_is_stored_by_one_append() {
    let Some(site) = Site::new() else { return };
    let proxy = Proxy::long(site.server.address(), Duration::from_millis(100)).await;
    let deadline = Duration::from_secs(1);
    let config = NatsConfig { servers: vec![proxy.address.to_string()], deadline, ..site.config(ARCHIVE) };
    let archive = Site::archive_with(config, ARCHIVE).await;
    let north = site.nats(NORTH);
    let answered = || archive.archiver.statistics().answered;
    let before = (site.messages(), answered());
    let records = batch(120);
    north.append(&records).await.unwrap();
    assert_eq!(site.messages(), before.0 + 120, "each record is stored once");
    let parts = 120_usize.div_ceil((16 << 10) / lines(&records[119..]).len()) as u64;
    assert!(before.1 + parts < answered(), "the archive had room for all {parts} requests");
    eventually("the watermark", async || {
        archive.local.watermark(&name(NORTH)).await.ok().filter(|last| *last == 120)
    })
    .await;
}

/// The archive dies after the servers stored the records, and before it answers. The station sends
/// the records again, to another archive.
#[tokio::test]
async fn an_archive_may_die_before_it_answers() {
    let Some(site) = Site::new() else { return };
    let proxy = Proxy::long(site.server.address(), Duration::from_millis(300)).await;
    let archive = site.archive(ARCHIVE, Some(&proxy.address.to_string())).await;
    let north =
        Arc::new(Nats::new(NatsConfig { deadline: Duration::from_secs(2), ..site.config(NORTH) }).unwrap());
    let before = site.messages();
    let records = batch(5);
    let append = {
        let (north, records) = (Arc::clone(&north), records.clone());
        tokio::spawn(async move { north.append(&records).await })
    };
    eventually("the records in the stream", async || (site.messages() == before + 5).then_some(())).await;
    // The acknowledgements are still on their way to the archive.
    proxy.freeze();
    let unknown = append.await.unwrap();
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    let other = site.archive(OTHER_ARCHIVE, None).await;
    eventually("an append", async || north.append(&records).await.ok()).await;
    eventually("the watermark", async || (other.local.watermark(&name(NORTH)).await == Ok(5)).then_some(()))
        .await;
    assert_eq!(site.messages(), before + 1 + 5, "the other archive stored nothing twice");
    drop(archive);
}

/// An archive stood still, or was cut off, and receives requests of that time. Their sender may
/// have been withdrawn meanwhile.
#[tokio::test]
async fn an_archive_executes_no_old_requests() {
    let Some(site) = Site::new() else { return };
    let proxy = Proxy::new(site.server.address()).await;
    let deadline = Duration::from_secs(1);
    let servers = vec![proxy.address.to_string()];
    let config = NatsConfig { servers, deadline, ..site.config(ARCHIVE) };
    let _archive = Site::archive_with(config, ARCHIVE).await;
    let attacker = site.attacker().await;
    let register = async |id: &str| {
        let registration = json!({ "registration": { "id": id, "ttl_s": 300 } });
        attacker.write("register", registration, &wire::entry_text(&entry(NORTH))).await
    };
    let answer = register("first").await;
    let (first, nonce) = (answer["number"].as_u64().unwrap(), &answer["nonce"]);
    let before = site.messages();
    let send = async |seq: u64, nonce: &Value| {
        let append = json!({ "answer": "s.1", "nonce": nonce });
        let body = format!("{append}\n{}", lines(&[record(NORTH, "x", seq)]));
        let registration =
            json!({ "answer": "s.2", "nonce": nonce, "registration": { "id": "old", "ttl_s": 300 } });
        let entry = format!("{registration}\n{}", wire::entry_text(&entry(NORTH)));
        for (kind, request) in [("append", body), ("register", entry)] {
            let subject = format!("barograph.a.{}.{kind}", token(NORTH));
            attacker.client.publish_with_headers(subject, asked(), request.into()).await.unwrap();
        }
        attacker.client.flush().await.unwrap();
    };
    // The archive executes such requests while it runs.
    let mut answers = attacker.client.subscribe(format!("barograph.b.{}.s.*", token(NORTH))).await.unwrap();
    send(1, nonce).await;
    for _ in 0..2 {
        let answer = tokio::time::timeout(server::LIMIT, answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert!(answer["number"].is_number(), "{answer}");
    }
    let answer = register("again").await;
    proxy.freeze();
    send(2, &answer["nonce"]).await;
    tokio::time::sleep(3 * deadline).await;
    proxy.thaw();
    let second = eventually("a registration", async || {
        tokio::time::timeout(deadline, register("second")).await.ok()?["number"].as_u64()
    })
    .await;
    assert_eq!(second, first + 3, "the old registration was stored");
    assert_eq!(site.messages(), before + 1, "the old record was stored");
}

/// The network held a request before it reached the server of the archive. The archive was not cut
/// off.
#[tokio::test]
async fn an_archive_executes_no_requests_that_the_network_held() {
    let Some(site) = Site::new() else { return };
    let deadline = Duration::from_secs(1);
    let _archive = Site::archive_with(NatsConfig { deadline, ..site.config(ARCHIVE) }, ARCHIVE).await;
    let proxy = Proxy::new(site.server.address()).await;
    let attacker = site.attacker_at(&proxy.address.to_string()).await;
    let mut answers = attacker.client.subscribe(format!("barograph.b.{}.s.*", token(NORTH))).await.unwrap();
    let before = site.messages();
    for (seq, held_for, is_stored) in [(1, Duration::ZERO, true), (2, 3 * deadline, false)] {
        let nonce = attacker.write("append", json!({}), "").await["nonce"].clone();
        proxy.freeze();
        let request = json!({ "answer": "s.1", "nonce": nonce });
        let message = format!("{request}\n{}", lines(&[record(NORTH, "x", seq)]));
        let subject = format!("barograph.a.{}.append", token(NORTH));
        attacker.client.publish_with_headers(subject, asked(), message.into()).await.unwrap();
        attacker.client.flush().await.unwrap();
        tokio::time::sleep(held_for).await;
        proxy.thaw();
        let answer = tokio::time::timeout(server::LIMIT, answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!(answer["number"].is_number(), is_stored, "{answer}");
        assert_eq!(answer["error"]["kind"] == "stale", !is_stored, "{answer}");
    }
    assert_eq!(site.messages(), before + 1);
}

/// One of two archives is gone without a sign: its host is off. Writes reach the other archive
/// within the lease of a station.
#[tokio::test]
async fn a_station_stays_registered_when_one_of_two_archives_is_gone() {
    let Some(site) = Site::new() else { return };
    let proxy = Proxy::new(site.server.address()).await;
    let gone = site.archive(ARCHIVE, Some(&proxy.address.to_string())).await;
    let [north, south, west] = [NORTH, SOUTH, WEST].map(|host| site.nats(host));
    // The only archive responds, so the stations send their next request to that archive.
    for (station, host) in [(&north, NORTH), (&south, SOUTH), (&west, WEST)] {
        station.append(&[record(host, "x", 1)]).await.unwrap();
    }
    let other = site.archive(OTHER_ARCHIVE, None).await;
    let mut events = other.nats.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Synced);
    let lease = north.register(&entry(NORTH), Duration::from_secs(12)).await.unwrap();
    let watching = other.nats.register(&entry(OTHER_ARCHIVE), Duration::from_secs(12)).await.unwrap();
    while next_item(&mut events).await != Event::Up(entry(OTHER_ARCHIVE)) {}
    proxy.freeze();
    // The servers choose an archive at random, so a station may not reach the other archive. It is
    // improbable that two stations do not reach it.
    let elsewhere = |host| Entry { groups: vec![name("elsewhere")], ..entry(host) };
    let entries = [SOUTH, WEST].map(elsewhere);
    let registered = futures_util::future::join(
        south.register(&entries[0], Duration::from_secs(60)),
        west.register(&entries[1], Duration::from_secs(60)),
    );
    let (one, two) = registered.await;
    assert!(one.is_ok() || two.is_ok(), "{:?}, {:?}", one.err(), two.err());
    let records = batch(40);
    eventually("an append", async || north.append(&records).await.ok()).await;
    eventually("the records", async || {
        other.local.watermark(&name(NORTH)).await.ok().filter(|last| *last == 40)
    })
    .await;
    // Longer than the lease: every renewal reached the other archive in time.
    let silence = tokio::time::timeout(Duration::from_secs(15), next_item(&mut events)).await;
    assert!(silence.is_err(), "{silence:?}");
    assert_eq!((lease.state(), watching.state()), (LeaseState::Held, LeaseState::Held));
    drop(gone);
}

/// While no archive runs, nothing is written, and the directory is read-only. The next archive ends
/// this.
#[tokio::test]
async fn writes_wait_for_an_archive() {
    let Some(site) = Site::new() else { return };
    let north = site.nats(NORTH);
    eventually("a connection", async || north.connected().ok()).await;
    let failed = |error: &EngineError| matches!(error, EngineError::Unavailable(why) if why.contains("no archive responds"));
    let refused = north.append(&batch(100)).await;
    assert!(refused.as_ref().is_err_and(failed), "{refused:?}");
    let refused = north.register(&entry(NORTH), Duration::from_secs(3)).await.map(drop);
    assert!(refused.as_ref().is_err_and(failed), "{refused:?}");

    let archive = site.archive(ARCHIVE, None).await;
    let lease = north.register(&entry(NORTH), Duration::from_secs(3)).await.unwrap();
    let mut events = north.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry(NORTH)));
    assert_eq!(next_item(&mut events).await, Event::Synced);
    drop(archive);
    let why = eventually("a read-only directory", async || north.read_only()).await.error;
    assert!(why.contains("no archive responds"), "{why}");
    eventually("the end of the lease", async || (lease.state() == LeaseState::Lapsed).then_some(())).await;
    let _archive = site.archive(OTHER_ARCHIVE, None).await;
    eventually("a renewal", async || (lease.state() == LeaseState::Held).then_some(())).await;
    assert!(north.read_only().is_none());
    north.append(&batch(100)).await.unwrap();
}

/// No archive runs for three leases, and one station dies meanwhile. Only that station is reported
/// as lost, by stations and by the next archive.
#[tokio::test]
async fn no_station_is_lost_while_no_archive_runs() {
    const LEASE: Duration = Duration::from_secs(2);
    let Some(site) = Site::new() else { return };
    let archive = site.archive(ARCHIVE, None).await;
    let station =
        |host| Nats::new(NatsConfig { deadline: Duration::from_secs(1), ..site.config(host) }).unwrap();
    let [north, south, west] = [NORTH, SOUTH, WEST].map(station);
    let mut leases = Vec::new();
    for (station, host) in [(&north, NORTH), (&south, SOUTH), (&west, WEST)] {
        leases.push(station.register(&entry(host), LEASE).await.unwrap());
    }
    let mut events = north.watch(&name("local"));
    while next_item(&mut events).await != Event::Synced {}
    drop(archive);
    let outage = tokio::time::timeout(3 * LEASE, next_item(&mut events)).await;
    assert!(outage.is_err(), "lost without an archive: {outage:?}");
    assert!(north.read_only().is_some());
    std::mem::forget(leases.pop());
    drop(west);

    let archive = site.archive(ARCHIVE, None).await;
    let _own = archive.nats.register(&entry(ARCHIVE), LEASE).await.unwrap();
    let mut of_archive = archive.nats.watch(&name("local"));
    let is_held = || leases.iter().all(|lease| lease.state() == LeaseState::Held);
    eventually("all renewed", async || is_held().then_some(())).await;
    assert_eq!(next_item(&mut events).await, Event::Up(entry(ARCHIVE)));
    assert_eq!(next_item(&mut events).await, Event::Down(name(WEST)));
    for events in [&mut events, &mut of_archive] {
        let until = tokio::time::Instant::now() + 2 * LEASE;
        while let Ok(event) = tokio::time::timeout_at(until, next_item(events)).await {
            assert!(!matches!(event, Event::Down(_)), "{event:?}");
        }
    }
}

/// One member sends as many requests as it can. Another member's writes and questions are not
/// delayed.
#[tokio::test]
async fn writes_of_one_member_delay_no_other_member() {
    const REQUESTS: usize = 1500;
    let Some(site) = Site::new() else { return };
    let _archive = site.archive(ARCHIVE, None).await;
    let attacker = site.attacker().await;
    let south = site.nats(SOUTH);
    server::canary(&south, SOUTH, 1).await;
    let body = lines(&batch(14));
    let flood = attacker.requests("append", vec![(json!({}), body); REQUESTS]);
    let victim = async {
        let mut slowest = Duration::ZERO;
        for seq in 2..=8 {
            let began = std::time::Instant::now();
            south.append(&[record(SOUTH, "x", seq)]).await.unwrap();
            assert_eq!(south.watermark(&name(SOUTH)).await, Ok(seq));
            assert!(south.register(&entry(SOUTH), Duration::from_secs(10)).await.is_ok());
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let (answers, slowest) = futures_util::future::join(flood, victim).await;
    let refused = answers.iter().filter(|answer| answer["error"]["kind"] == "throttled").count();
    println!("{slowest:?} at most; {refused} of {REQUESTS} requests refused");
    assert!(refused > REQUESTS / 2, "{refused} of {REQUESTS}");
    assert!(slowest < server::config("", SOUTH).deadline / 2, "{slowest:?}");
}

/// With the lists of the previous version, the servers deny an archive the records of stations, so
/// stations publish by themselves. With the new lists, they write through the archive.
#[tokio::test]
async fn a_mesh_moves_to_lists_with_which_stations_do_not_publish() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = with_certificates(directory.path(), &stations_that_publish) else { return };
    let config = |host: &str| by_certificate(directory.path(), &server, host);
    let archive = Arc::new(Nats::new(config(ARCHIVE)).unwrap());
    let files = tempfile::tempdir().unwrap();
    let (archiver, _local) = server::archive(&archive, files.path());
    server::canary(&*archive, ARCHIVE, 1).await;
    let north = Nats::new(config(NORTH)).unwrap();
    let records: Vec<Record> = (1..=300).map(|seq| record(NORTH, "x", seq)).collect();
    north.append(&records).await.unwrap();
    north.append(&records).await.unwrap();
    assert_eq!(north.watermark(&name(NORTH)).await, Ok(300));
    let log = server::log_of(directory.path());
    let denied = format!("Subject \"barograph.r.{}\"", token(NORTH));
    assert!(log.lines().any(|line| line.contains("Publish Violation") && line.contains(&denied)), "{log}");
    let lease = north.register(&entry(NORTH), Duration::from_secs(3)).await.unwrap();

    let text = single(directory.path(), &stations(directory.path(), &[ARCHIVE, NORTH, SOUTH]));
    let server = server.restart(directory.path(), &text);
    server::canary(&north, NORTH, 301).await;
    eventually("a renewal", async || (lease.state() == LeaseState::Held).then_some(())).await;
    let options = certificate_options(directory.path(), NORTH);
    let attacker = Attacker::new(&server.url, options).await;
    for subject in own_subjects() {
        attacker.cannot("Publish", &subject).await;
    }
    assert_eq!(archiver.statistics().discarded, 0);
}
