//! Limits of the memory that one member can take at the servers and the archive.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectOptions, HeaderMap};
use barograph_engine::{Archiver, Engine as _, Local, LocalConfig, Nats, Record, Selector, token, wire};
use serde_json::Value;

use crate::nats::attack::{Attacker, asked};
use crate::nats::deployed::{self, ARCHIVE, NORTH, SOUTH};
use crate::nats::reflected_replies;
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{eventually, name, record};

/// A server keeps message identifiers in memory for the time in which a stream detects repetitions.
#[tokio::test]
async fn the_directory_refuses_message_ids_and_large_messages() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let archive = Arc::new(Nats::new(server::config(&server.url, ARCHIVE)).unwrap());
    let local = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, local.path());
    server::canary(&*archive, ARCHIVE, 1).await;
    is_bounded(&server).await;
    let client = Attacker::new(&server.url, ConnectOptions::new()).await;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", "m".repeat(60_000));
    for subject in ["$KV.barograph_dir.north", "barograph.m.north.x.rtt"] {
        let answer = client.ask(subject.into(), Some(headers.clone()), "x".into()).await;
        assert!(answer["error"]["code"].is_number(), "{subject}: {answer}");
    }
}

/// Waits until both streams have their bounds.
async fn is_bounded(server: &NatsServer) {
    let client = async_nats::connect(&server.url).await.unwrap();
    for (stream, window_ns, size_max) in
        [("BAROGRAPH", 120_000_000_000_u64, 14 << 10), ("KV_barograph_dir", 100_000_000, 3 << 10)]
    {
        eventually("the bounds of a stream", async || {
            let info = client.request(format!("$JS.API.STREAM.INFO.{stream}"), "".into()).await.ok()?;
            let info: Value = serde_json::from_slice(&info.payload).unwrap();
            let size = info["config"]["max_msg_size"].as_u64()?;
            if stream == "KV_barograph_dir" {
                let bounds =
                    [("max_age", 3_600_000_000_000_u64), ("max_msgs", 1 << 16), ("max_bytes", 1 << 26)];
                for (bound, most) in bounds {
                    assert_eq!(info["config"][bound], most, "{bound}");
                }
            }
            (info["config"]["duplicate_window"] == window_ns && size <= size_max).then_some(())
        })
        .await;
    }
}

/// Messages that are much longer than their records do not make the archive commit once for each
/// mebibyte.
#[tokio::test]
async fn padded_records_do_not_delay_records_of_other_members() {
    const PADDED: u64 = 600;
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let south = Nats::new(server::config(&server.url, SOUTH)).unwrap();
    south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
    let client = Attacker::new(&server.url, ConnectOptions::new()).await;
    for seq in 1..=PADDED {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{}:{seq}", token(NORTH)));
        let text = format!("{}{}", " ".repeat(11_000), wire::record_text(&record(NORTH, "x", seq)));
        client.ask(format!("barograph.m.{}.x.rtt", token(NORTH)), Some(headers), text).await;
    }
    south.append(&[record(SOUTH, "x", 2)]).await.unwrap();
    let archive = Arc::new(Nats::new(server::config(&server.url, ARCHIVE)).unwrap());
    let local = tempfile::tempdir().unwrap();
    let commit_interval = Duration::from_millis(300);
    let config = LocalConfig { commit_interval, keep: Duration::MAX, ..LocalConfig::new(local.path()) };
    let records = Arc::new(Local::open(config).unwrap());
    let archiver = Archiver::start(&archive, Arc::clone(&records), local.path()).unwrap();
    let commits = RefCell::new(BTreeSet::new());
    eventually("all of it", async || {
        let consumed = archiver.statistics().consumed;
        commits.borrow_mut().insert(consumed);
        (consumed == PADDED + 2).then_some(())
    })
    .await;
    let mut commits = commits.into_inner();
    commits.remove(&0);
    assert!(commits.len() <= 2, "a commit each at {commits:?}");
    assert_eq!(records.watermark(&name(NORTH)).await, Ok(PADDED));
    assert_eq!(south.watermark(&name(SOUTH)).await, Ok(2));
}

/// One member requests large pages without a pause. A different member still gets its responses
/// before its deadline, and before the large pages.
#[tokio::test]
async fn expensive_requests_of_one_member_delay_no_other_member() {
    const LARGE_PAGES: u64 = 4000;
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let [archive, south] =
        [ARCHIVE, SOUTH].map(|host| Arc::new(Nats::new(server::config(&server.url, host)).unwrap()));
    let local = tempfile::tempdir().unwrap();
    let (archiver, records) = server::archive(&archive, local.path());
    server::canary(&*south, SOUTH, 1).await;
    let detail = format!("{{\"x\":\"{}\"}}", "x".repeat(Record::DETAIL_BYTES_MAX - 8));
    let large = |seq: u64| Record { detail: detail.clone(), ..record(NORTH, &format!("t{seq}"), seq) };
    records.append(&(1..=2000).map(large).collect::<Vec<_>>()).await.unwrap();
    let attacker = async_nats::connect(&server.url).await.unwrap();
    let (subject, question) = (format!("barograph.a.{}.latest", token(NORTH)), {
        serde_json::json!({ "source": NORTH, "limit": 10_000, "after_place": 0, "answer": "s.1" }).to_string()
    });
    for index in 0..LARGE_PAGES {
        let (subject, reply) = (subject.clone(), format!("_INBOX_{}.{index}", token(NORTH)));
        let question = question.clone().into();
        attacker.publish_with_reply_and_headers(subject, reply, asked(), question).await.unwrap();
    }
    attacker.flush().await.unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let began = std::time::Instant::now();
        assert_eq!(south.watermark(&name(SOUTH)).await, Ok(1));
        let page =
            south.latest(&Selector { source: Some(name(SOUTH)), ..Selector::default() }, None, 10).await;
        assert_eq!(page.map(|page| page.items.len()), Ok(1));
        slowest = slowest.max(began.elapsed());
    }
    let answered = archiver.statistics().answered;
    println!("two answers took {slowest:?} at most; answered: {answered}");
    assert!(answered < LARGE_PAGES, "the other member waited for all large pages");
}

/// With the shipped files, a server keeps nothing for the reply subjects of one member's requests,
/// so other members get their responses. Without these files, the server would keep reply subjects
/// with a wildcard for ever, and would search them for each response.
#[tokio::test]
async fn reply_subjects_of_one_member_delay_no_other_member() {
    const FLOOD: usize = 40_000;
    const ASKED: usize = 10;
    const MEMORY_BYTES: u64 = 200 << 20;
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = deployed::with_certificates(directory.path(), &deployed::stations) else {
        return;
    };
    let nats = |host| Arc::new(Nats::new(deployed::by_certificate(directory.path(), &server, host)).unwrap());
    let (archive, south) = (nats(ARCHIVE), nats(SOUTH));
    let local = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, local.path());
    server::canary(&*south, SOUTH, 1).await;
    let options = deployed::certificate_options(directory.path(), NORTH);
    let attacker = Attacker::new(&server.url, options).await;
    let question = serde_json::json!({ "origin": SOUTH, "after_place": 0, "answer": "s.1" }).to_string();
    let subject = format!("barograph.a.{}.watermark", token(NORTH));
    for index in 0..FLOOD {
        let (subject, reply) = (subject.clone(), format!("_INBOX_{}.{index}.*", token(NORTH)));
        let question = question.clone().into();
        attacker.client.publish_with_reply_and_headers(subject, reply, asked(), question).await.unwrap();
    }
    let mut answered = 0;
    for _ in 0..ASKED {
        answered += usize::from(south.watermark(&name(SOUTH)).await == Ok(1));
    }
    let varz: Value = serde_json::from_str(&reflected_replies::monitoring(&server, "/varz")).unwrap();
    println!("{answered} of {ASKED} answered; the server has {} bytes", varz["mem"]);
    assert_eq!(answered, ASKED, "answers to another member");
    assert!(varz["mem"].as_u64().unwrap() < MEMORY_BYTES, "{}", varz["mem"]);
}

/// With the shipped files for certificates, the server limits what it keeps for a member that sends
/// requests and does not read the responses.
#[tokio::test]
async fn shipped_servers_limit_the_pending_data_of_each_member() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = deployed::with_certificates(directory.path(), &|directory, names| {
        deployed::stations(directory, names)
    }) else {
        return;
    };
    let varz: Value = serde_json::from_str(&reflected_replies::monitoring(&server, "/varz")).unwrap();
    assert_eq!(varz["max_pending"], 8 << 20, "{varz}");
    assert_eq!(varz["max_subscriptions"], 200, "{varz}");
    let stations = std::fs::read_to_string(directory.path().join("stations.conf")).unwrap();
    let (exports, thresholds) =
        (stations.matches("response: ").count(), stations.matches("threshold: \"5s\"").count());
    assert!(exports > 0 && exports == thresholds, "{stations}");
    assert!(stations.contains("max_payload: 20KB"), "{stations}");
    let options = deployed::certificate_options(directory.path(), NORTH);
    let attacker = Attacker::new(&server.url, options).await;
    let mut kept = Vec::new();
    for index in 0..30 {
        let inbox = format!("_INBOX_{}.{index}", token(NORTH));
        kept.push(attacker.client.subscribe(inbox).await.unwrap());
    }
    eventually("the refusal", async || {
        attacker.client.flush().await.ok();
        attacker.said_any("maximum subscriptions").await.then_some(())
    })
    .await;
    // The server accepts neither a long request to an archive nor any other long message.
    let inbox = format!("_INBOX_{}.x", token(NORTH));
    let (question, long) = (format!("barograph.a.{}.watermark", token(NORTH)), "x".repeat(21_000));
    let attacker = Attacker::new(&server.url, deployed::certificate_options(directory.path(), NORTH)).await;
    attacker.client.publish_with_reply(question, inbox, long.into()).await.unwrap();
    eventually("the refusal", async || {
        attacker.client.flush().await.ok();
        attacker.said_any("maximum payload").await.then_some(())
    })
    .await;
    // The server does not accept an unlimited number of connections of one member.
    let mut connected = Vec::new();
    while let Ok(client) = deployed::certificate_options(directory.path(), NORTH).connect(&server.url).await {
        connected.push(client);
        assert!(connected.len() <= 8, "{} connections", connected.len());
    }
    assert!(connected.len() > 4, "{} connections", connected.len());
    // The mesh continues meanwhile.
    let archive = Arc::new(Nats::new(deployed::by_certificate(directory.path(), &server, ARCHIVE)).unwrap());
    let local = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, local.path());
    server::canary(&*archive, ARCHIVE, 1).await;
}

/// Runs with the shipped files for credentials, and checks the limits of the accounts.
#[tokio::test]
async fn accounts_limit_the_resources_of_each_member() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), deployed::has_openssl()) else { return };
    deployed::script(directory.path(), "accounts", &["setup", "3"]);
    deployed::script(directory.path(), "accounts", &["archive", ARCHIVE]);
    let server =
        NatsServer::start_with(directory.path(), &deployed::with_accounts(directory.path())).unwrap();
    let archive = Nats::new(deployed::by_credentials(directory.path(), &server, ARCHIVE)).unwrap();
    // A server loads an account when a client of that account connects.
    eventually("a connection", async || archive.connected().ok()).await;
    let (mut exports, mut stations) = (0, 0);
    let all: Value = serde_json::from_str(&reflected_replies::monitoring(&server, "/accountz")).unwrap();
    for account in all["accounts"].as_array().unwrap() {
        let path = format!("/accountz?acc={}", account.as_str().unwrap());
        let account: Value = serde_json::from_str(&reflected_replies::monitoring(&server, &path)).unwrap();
        let account = &account["account_detail"]["decoded_jwt"];
        let claims = &account["nats"];
        if account["name"].as_str().is_some_and(|name| name.starts_with("STATION_")) {
            assert_eq!(claims["limits"]["conn"], 8, "{claims}");
            let text = claims.to_string();
            let published =
                ["$KV.", "barograph.r", "barograph.m"].into_iter().find(|subject| text.contains(subject));
            assert_eq!(published, None, "a subject of a stream: {claims}");
            stations += 1;
        }
        let exports_of = claims["exports"].as_array().into_iter().flatten();
        for export in exports_of.filter(|export| export["type"] == "service") {
            assert_eq!(export["response_threshold"], 5_000_000_000_u64, "{export}");
            exports += 1;
        }
    }
    assert!(exports > 0 && stations == 3, "{all}");
    let template = std::fs::read_to_string(deployed::deploy("station.template.json")).unwrap();
    let template: Value = serde_json::from_str(&template).unwrap();
    assert_eq!((&template["subs"], &template["payload"]), (&20.into(), &20480.into()));
}

/// The shipped configurations use only options that every documented version accepts, from 2.12 on.
#[test]
fn every_shipped_server_configuration_sets_its_limits() {
    for file in ["single.conf", "n1.conf", "n2.conf", "n3.conf"] {
        let text = std::fs::read_to_string(deployed::deploy(file)).unwrap();
        for line in [
            "max_pending: 8MB",
            "max_subscriptions: 200",
            "ping_interval: \"20s\"",
            "request_queue_limit: 64",
            "max_buffered_msgs: 2000",
        ] {
            assert!(text.contains(line), "{file} has no {line}");
        }
        assert!(!text.contains("info_queue_limit"), "{file}: 2.12 does not know it");
    }
}
