//! Three servers that are killed under load: each acknowledged record is stored exactly once.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::ConnectOptions;
use barograph_engine::{Engine, Event, Nats, NatsConfig, Selector, StartAt};
use futures_util::StreamExt as _;
use serde_json::json;

use crate::nats::attack::{Attacker, asked, own_subjects};
use crate::nats::deployed::{
    ARCHIVE, NORTH, SOUTH, by_certificate, by_credentials, certificate_options, certificates, credentials,
    deploy, has_openssl, script, stations,
};
use crate::nats::malformed_headers::Member;
use crate::nats::reflected_replies;
use crate::nats::server::{self, LIMIT, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

const ARCHIVES: [&str; 3] = [ARCHIVE, "archive-2.example.net", "archive-3.example.net"];

/// One server is killed and starts again. Then the two other servers are killed and start again. No
/// record is lost or stored twice.
#[tokio::test]
async fn acknowledged_records_survive_the_death_of_each_cluster_server() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() {
        return;
    }
    let address = &own_address(1);
    let ports = free_ports(address);
    let start = |index: usize| member(directory.path(), address, &ports, index);
    let mut servers: Vec<Option<NatsServer>> = (0..3).map(|index| Some(start(index))).collect();
    let addresses: Vec<String> = ports.iter().map(|[port, _]| format!("{address}:{port}")).collect();
    let config = server::config(&addresses[0], "north");
    let config = NatsConfig { servers: addresses, replicas: 3, deadline: Duration::from_secs(2), ..config };
    let nats = Arc::new(Nats::new(config).unwrap());
    let archive = tempfile::tempdir().unwrap();
    let (archiver, local) = server::archive(&nats, archive.path());
    server::canary(&*nats, "canary", 1).await;

    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(Arc::clone(&nats), Arc::clone(&stop)));
    let watermark = || async { local.watermark(&name("north")).await.unwrap_or(0) };
    let past = async |seq: u64| {
        eventually("progress", async || Some(watermark().await).filter(|now| seq <= *now)).await
    };
    let mut seen = past(300).await;
    for victims in [vec![0], vec![1, 2]] {
        for victim in &victims {
            servers[*victim] = None;
        }
        if victims.len() == 1 {
            past(seen + 300).await;
        } else {
            // Without a majority, no append may be acknowledged. The servers start again after a
            // short time.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for victim in victims {
            servers[victim] = Some(start(victim));
        }
        seen = past(watermark().await + 300).await;
    }
    stop.store(true, Ordering::Relaxed);
    let acknowledged = writer.await.unwrap();

    eventually("the archive", async || Some(watermark().await).filter(|now| acknowledged <= *now)).await;
    let records = local.statistics().records - 1;
    println!("{acknowledged} acknowledged, {records} in the archive");
    assert_eq!(archiver.statistics().discarded, 0);
    assert_eq!(records, acknowledged, "none lost, none double");
    // In the stream, a batch that was interrupted and repeated may be in a different order. Rarely
    // the stream has a record twice, because leaders detect copies only among committed messages.
    // The archive stores each record once.
    let selector = Selector { source: Some(name("north")), ..Selector::default() };
    let mut stream = nats.subscribe(&selector, StartAt::Oldest);
    let (mut seqs, mut read) = (BTreeSet::new(), 0);
    while (seqs.len() as u64) < acknowledged {
        seqs.insert(next_item(&mut stream).await.1.seq);
        read += 1;
    }
    println!("{} of them twice in the stream", read - acknowledged);
    assert!(seqs.into_iter().eq(1..=acknowledged), "none lost, none invented");
}

/// The three shipped configurations, with certificates of the shipped script, make a cluster that
/// stores records.
#[tokio::test]
async fn the_shipped_configurations_form_a_cluster() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() || !has_openssl() {
        return;
    }
    let address = &own_address(2);
    certificates(directory.path(), &["authority"]);
    for server in ["n1", "n2", "n3"] {
        certificates(directory.path(), &["server", server, address, server]);
    }
    for station in [ARCHIVE, NORTH] {
        certificates(directory.path(), &["station", station]);
    }
    let ports = free_ports(address);
    let servers: Vec<NatsServer> = (0..3)
        .map(|index| {
            let name = format!("n{}", index + 1);
            let own = directory.path().join(&name);
            std::fs::create_dir_all(&own).unwrap();
            let mut text = std::fs::read_to_string(deploy(&format!("{name}.conf"))).unwrap();
            for (other, [_, route]) in (1..).zip(&ports) {
                text = text.replace(&format!("nats://n{other}:6222"), &format!("nats://{address}:{route}"));
            }
            let [client, route] = ports[index];
            let text = text
                .replace("0.0.0.0:4222", &format!("{address}:{client}"))
                .replace("127.0.0.1:8222", "127.0.0.1:-1")
                .replace("0.0.0.0:6222", &format!("{address}:{route}"))
                .replace("./jetstream", &own.join("jetstream").display().to_string())
                .replace("./tls", &directory.path().join("tls").display().to_string())
                .replace("./nats.pid", &own.join("nats.pid").display().to_string())
                .replace("include stations.conf", &stations(directory.path(), &[ARCHIVE, NORTH]));
            NatsServer::start_with(&own, &text).unwrap()
        })
        .collect();
    let addresses: Vec<String> = ports.iter().map(|[client, _]| format!("{address}:{client}")).collect();
    let config = |host: &str| NatsConfig {
        servers: addresses.clone(),
        replicas: 3,
        ..by_certificate(directory.path(), &servers[0], host)
    };
    let nats = Arc::new(Nats::new(config(ARCHIVE)).unwrap());
    let archive = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&nats, archive.path());
    server::canary(&*nats, ARCHIVE, 1).await;

    // Each server denies a station the streams, whichever server leads them.
    let north = Nats::new(config(NORTH)).unwrap();
    server::canary(&north, NORTH, 1).await;
    for server in &servers {
        let options = certificate_options(directory.path(), NORTH);
        reflected_replies::attack(&Attacker::new(&server.url, options).await, server, &north).await;
    }

    let attacker = Attacker::new(&servers[0].url, certificate_options(directory.path(), NORTH)).await;
    for subject in own_subjects() {
        attacker.cannot("Publish", &subject).await;
    }
    let lease = north.register(&entry(NORTH), Duration::from_secs(3)).await;
    assert!(lease.is_ok(), "{:?}", lease.err());

    // Only servers may connect to the routes: the routes refuse the certificates of stations and a
    // server's certificate for clients.
    let refusals =
        || server::log_of(&directory.path().join("n1")).matches("TLS route handshake error").count();
    let mut expected = refusals();
    for (holder, is_refused) in [("routes/n2", false), (ARCHIVE, true), ("n2", true)] {
        let options = async_nats::ConnectOptions::new()
            .require_tls(true)
            .tls_first()
            .add_root_certificates(directory.path().join("tls/routes/ca.pem"))
            .add_client_certificate(
                directory.path().join(format!("tls/{holder}.pem")),
                directory.path().join(format!("tls/{holder}.key")),
            );
        // A client with a server's route certificate also fails, but only after the TLS handshake.
        options.connect(format!("{address}:{}", ports[0][1])).await.unwrap_err();
        expected += usize::from(is_refused);
        eventually("the refusal", async || (expected <= refusals()).then_some(())).await;
        assert_eq!(refusals(), expected, "{holder}: {}", server::log_of(&directory.path().join("n1")));
    }
    drop(servers);
}

/// A read may name a request subject of an archive as its reply subject. With credentials on
/// several servers, the server's response then reaches the archive, with the headers of a response
/// or without headers. The message that is read is one that a station stored with older lists.
#[tokio::test]
async fn a_member_cannot_send_requests_as_another_member() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() || !has_openssl() {
        return;
    }
    let servers = with_credentials(directory.path(), &own_address(3));
    let archive = Arc::new(Nats::new(with_credentials_of(directory.path(), &servers, ARCHIVE)).unwrap());
    let files = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, files.path());
    server::canary(&*archive, ARCHIVE, 1).await;

    let options = async |host: &str| {
        ConnectOptions::with_credentials_file(credentials(directory.path(), host)).await.unwrap()
    };
    let [north, south] = [NORTH, SOUTH].map(barograph_engine::token);
    let victim = options(SOUTH).await.custom_inbox_prefix(format!("_INBOX_{south}"));
    let victim = victim.connect(&servers[0].url).await.unwrap();
    let mut answers = victim.subscribe(format!("barograph.b.{south}.forged.*")).await.unwrap();
    victim.flush().await.unwrap();
    let question = |number: u8| {
        json!({ "origin": ARCHIVE, "after_place": 0, "answer": format!("forged.{number}") }).to_string()
    };
    let (key, victims) = (format!("$KV.barograph_dir.{north}"), format!("barograph.a.{south}.watermark"));
    let forged = format!("{}\n{}", question(3), barograph_engine::wire::record_text(&record(SOUTH, "x", 1)));
    let older =
        options(ARCHIVE).await.custom_inbox_prefix(format!("_INBOX_{}", barograph_engine::token(ARCHIVE)));
    let older = older.connect(&servers[0].url).await.unwrap();
    for server in &servers {
        let attacker = Attacker::new(&server.url, options(NORTH).await).await;
        for (stored, onto) in
            [(question(1), victims.clone()), (forged.clone(), format!("barograph.a.{south}.append"))]
        {
            older.request_with_headers(key.clone(), asked(), stored.into()).await.unwrap();
            for no_hdr in [false, true, false, true] {
                let read = json!({ "last_by_subj": key, "no_hdr": no_hdr }).to_string();
                let get = "$JS.API.DIRECT.GET.KV_barograph_dir";
                attacker.client.publish_with_reply(get, onto.clone(), read.into()).await.unwrap();
            }
        }
        // The archive answers this request after the requests above. The request is repeated,
        // because a server that has just started may not have the archive's subscription yet, and
        // then drops the request.
        let own = eventually("an answer", async || {
            let asked = attacker.questions("watermark", 1, json!({ "origin": ARCHIVE, "after_place": 0 }));
            tokio::time::timeout(Duration::from_secs(2), asked).await.ok()
        });
        let own = own.await;
        assert_eq!(own[0]["number"], 1, "{own:?}");
    }
    victim.publish_with_headers(victims, asked(), question(2).into()).await.unwrap();
    let first = tokio::time::timeout(LIMIT, answers.next()).await.unwrap().unwrap();
    assert!(first.subject.ends_with(".2"), "an answer to what was not asked: {first:?}");
    assert_eq!(archive.next_seq(&name(SOUTH)).await, Ok(1), "a forged record");
}

/// The servers permit a station to publish to no subject of a stream, so no message of a station
/// changes a replicated stream.
#[tokio::test]
async fn no_header_block_of_a_member_changes_a_replicated_stream() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() || !has_openssl() {
        return;
    }
    let servers = with_credentials(directory.path(), &own_address(6));
    let config = |host: &str| with_credentials_of(directory.path(), &servers, host);
    let archive = Arc::new(Nats::new(config(ARCHIVE)).unwrap());
    let files = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, files.path());
    server::canary(&*archive, ARCHIVE, 1).await;
    let [south, north_station] = [SOUTH, NORTH].map(|host| Nats::new(config(host)).unwrap());
    south.append(&(1..=20).map(|seq| record(SOUTH, "x", seq)).collect::<Vec<_>>()).await.unwrap();
    let _lease = south.register(&entry(SOUTH), Duration::from_secs(300)).await.unwrap();

    let [north, victim] = [NORTH, SOUTH].map(barograph_engine::token);
    let hidden = |name: &str, rest: &str| {
        let [info, first] = ["Nats-Request-Info", name].map(|name| format!("{name}{name}"));
        format!("NATS/1.0 {info}\r\nNats-Request-Info: {first}\r\n{name}: {rest}\r\n\r\n")
    };
    let blocks = [
        hidden("Nats-Rollup", "all"),
        hidden("Nats-Rollup", "sub"),
        hidden("Nats-Schedule-Next", &format!("purge\r\nNats-Scheduler: $KV.barograph_dir.{victim}")),
        hidden("Nats-TTL", "x"),
    ];
    let subjects: Vec<String> = own_subjects()
        .into_iter()
        .chain(["append", "register", "latest"].map(|kind| format!("barograph.a.{north}.{kind}")))
        .chain(["barograph.g.KV_barograph_dir".to_owned()])
        .collect();
    for server in &servers {
        let mut member = Member::new(server, Some((directory.path(), NORTH)));
        for block in &blocks {
            for subject in &subjects {
                let message =
                    format!("HPUB {subject} {} {}\r\n{block}{{}}\r\n", block.len(), block.len() + 2);
                member.send(message.as_bytes()).expect("the server takes it");
            }
        }
    }
    // The servers process these messages after the messages of the attack.
    server::canary(&north_station, NORTH, 1).await;
    for server in &servers {
        eventually("all records on each server", async || {
            let text = reflected_replies::monitoring(server, "/jsz?accounts=1&streams=1");
            let all: serde_json::Value = serde_json::from_str(&text).unwrap();
            let accounts = all["account_details"].as_array()?;
            let mut streams =
                accounts.iter().filter_map(|account| account["stream_detail"].as_array()).flatten();
            let records = streams.find(|stream| stream["name"] == "BAROGRAPH")?;
            let state = &records["state"];
            assert_eq!(state["first_seq"], 1, "{state}");
            (state["messages"] == 22).then_some(())
        })
        .await;
    }
    let mut events = archive.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));
    let refused: usize = (0..3)
        .map(|index| {
            server::log_of(&directory.path().join(format!("n{index}"))).matches("Publish Violation").count()
        })
        .sum();
    assert!(refused >= servers.len() * blocks.len() * own_subjects().len(), "{refused} refused");
}

/// A header block without its last line requests a trace only after a server has appended headers
/// to it. The next server then publishes the trace without a check of the station's permissions,
/// unless that server's routes import nothing.
#[tokio::test]
async fn a_message_trace_cannot_become_an_entry_of_another_station() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() || !has_openssl() {
        return;
    }
    let servers = with_credentials(directory.path(), &own_address(4));
    let config = |host: &str| with_credentials_of(directory.path(), &servers, host);
    let archive = Arc::new(Nats::new(config(ARCHIVE)).unwrap());
    let files = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, files.path());
    server::canary(&*archive, ARCHIVE, 1).await;
    let south = Nats::new(config(SOUTH)).unwrap();
    let _lease = south.register(&entry(SOUTH), Duration::from_secs(300)).await.unwrap();
    let mut events = archive.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));
    assert_eq!(next_item(&mut events).await, Event::Synced);

    let said = |what: &str| -> usize {
        let log = |index| server::log_of(&directory.path().join(format!("n{index}")));
        (0..3).map(|index| log(index).matches(what).count()).sum()
    };
    let leaders = said("new stream leader");
    assert!(leaders >= 2, "of two streams");
    let [north, victim] = [NORTH, SOUTH].map(barograph_engine::token);
    let keys = format!("$KV.barograph_dir.{victim}");
    for server in &servers {
        let mut member = Member::new(server, Some((directory.path(), NORTH)));
        for onto in [
            &keys,
            &format!("{keys}.x"),
            "$JS.API.STREAM.LEADER.STEPDOWN.BAROGRAPH",
            "$JS.API.STREAM.LEADER.STEPDOWN.KV_barograph_dir",
        ] {
            for subject in ["barograph.a.N.append", "barograph.a.N.latest", "barograph.g.KV_barograph_dir"] {
                let subject = subject.replace(".N", &format!(".{north}"));
                // JetStream treats a payload that is no JSON as an empty request.
                let block = format!(
                    "NATS/1.0\r\nAccept-Encoding: gzip\r\nNats-Trace-Dest: {onto}\r\nNats-Trace-Dest: trace disabled\r\n"
                );
                let message =
                    format!("HPUB {subject} {} {}\r\n{block}{{}}\r\n", block.len(), block.len() + 2);
                member.send(message.as_bytes()).expect("the server takes it");
            }
        }
    }
    // The servers process these messages after the messages of the attack.
    let north = Nats::new(config(NORTH)).unwrap();
    server::canary(&north, NORTH, 1).await;
    let refused = said("Publish Violation");
    assert!(refused > 0, "no server refused a trace: the attack does not get that far any more");
    assert_eq!(said("new stream leader"), leaders, "a leader stepped down");
    let silence = tokio::time::timeout(Duration::from_secs(2), events.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    let mut events = archive.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));
}

/// If one server reads a stored trace-only message from a different server, the message is dropped.
/// With older lists, stations could store such messages.
/// All other messages are still read, and a station that dies is still reported as lost.
#[tokio::test]
async fn undeliverable_messages_do_not_block_readers() {
    let directory = tempfile::tempdir().unwrap();
    if server::binary().is_none() || !has_openssl() {
        return;
    }
    let servers = with_credentials(directory.path(), &own_address(5));
    // One server has the streams, so archives that are connected to the other servers read over a
    // route.
    let config =
        |host: &str| NatsConfig { replicas: 1, ..with_credentials_of(directory.path(), &servers, host) };
    let archives: Vec<_> = servers
        .iter()
        .zip(ARCHIVES)
        .map(|(server, host)| {
            let config = NatsConfig { servers: vec![server.url.clone()], ..config(host) };
            let files = tempfile::tempdir().unwrap();
            let archive = Arc::new(Nats::new(config).unwrap());
            let (archiver, local) = server::archive(&archive, files.path());
            (archive, archiver, local, files)
        })
        .collect();
    server::canary(&*archives[0].0, ARCHIVE, 1).await;
    let south = Nats::new(config(SOUTH)).unwrap();
    let lease = south.register(&entry(SOUTH), Duration::from_secs(5)).await.unwrap();
    // An archive detects the loss of a station only if the archive's own registration is renewed
    // after the end of the station's lease.
    let _own = archives[0].0.register(&entry(ARCHIVE), Duration::from_secs(5)).await.unwrap();
    let mut watches: Vec<_> = archives.iter().map(|(archive, ..)| archive.watch(&name("local"))).collect();
    for events in &mut watches {
        while next_item(events).await != Event::Synced {}
    }

    let north = barograph_engine::token(NORTH);
    let mut attackers: Vec<_> =
        servers.iter().map(|server| Member::new(server, Some((directory.path(), ARCHIVE)))).collect();
    let trace_only = |subject: &str| {
        let block =
            "NATS/1.0\r\nNats-Trace-Dest: x\r\nNats-Trace-Only: true\r\nNats-Trace-Dest: trace disabled\r\n";
        format!("HPUB {subject} {} {}\r\n{block}{{}}\r\n", block.len(), block.len() + 2)
    };
    let record_of_north = trace_only(&format!("barograph.r.{north}"));
    let messages = trace_only(&format!("$KV.barograph_dir.{north}")) + &record_of_north;
    let mut attack = || {
        for attacker in &mut attackers {
            attacker.send(messages.as_bytes()).expect("the server takes it");
        }
    };
    attack();
    // Send more consecutive messages than the 1000 that one read returns.
    let burst = record_of_north.repeat(1200);
    for server in &servers {
        Member::new(server, Some((directory.path(), ARCHIVE)))
            .send(burst.as_bytes())
            .expect("the server takes it");
    }
    for (_, archiver, ..) in &archives {
        eventually("the burst", async || (archiver.statistics().discarded >= 1200).then_some(())).await;
    }
    // Every archive gets the records that follow the dropped messages.
    for seq in 1..=20 {
        south.append(&[record(SOUTH, "x", seq)]).await.unwrap();
        attack();
    }
    for (_, _, local, _) in &archives {
        let read = async || local.watermark(&name(SOUTH)).await.ok().filter(|read| *read == 20);
        eventually("the records", read).await;
    }
    let discarded: Vec<_> =
        archives.iter().map(|(_, archiver, ..)| archiver.statistics().discarded).collect();
    println!("{discarded:?} discarded");
    assert!(discarded.iter().all(|count| *count >= 1200), "{discarded:?}");
    // The station dies without a message.
    std::mem::forget(lease);
    drop(south);
    let began = std::time::Instant::now();
    for events in &mut watches {
        loop {
            attack();
            match tokio::time::timeout(Duration::from_millis(200), next_item(events)).await {
                Ok(Event::Down(host)) if host == name(SOUTH) => break,
                _ => assert!(began.elapsed() < LIMIT, "the south is still up after {:?}", began.elapsed()),
            }
        }
    }
    println!("lost after {:?}", began.elapsed());
}

/// Three servers with accounts for an archive and two stations (`NORTH`, `SOUTH`), and with the
/// route permissions of `deploy/nats/n1.conf`.
fn with_credentials(directory: &Path, address: &str) -> Vec<NatsServer> {
    script(directory, "accounts", &["setup", "4"]);
    for host in ARCHIVES {
        script(directory, "accounts", &["archive", host]);
    }
    for host in [NORTH, SOUTH] {
        script(directory, "accounts", &["station", host]);
    }
    let accounts = std::fs::read_to_string(directory.join("accounts.conf")).unwrap();
    let shipped = std::fs::read_to_string(deploy("n1.conf")).unwrap();
    let (_, permissions) = shipped.split_once("  permissions {").unwrap();
    let (permissions, _) = permissions.split_once("\n  }\n").unwrap();
    let permissions = format!("permissions {{{permissions}\n}}\n");
    let ports = free_ports(address);
    (0..3).map(|index| member_with(directory, address, &ports, index, [&permissions, &accounts])).collect()
}

fn with_credentials_of(directory: &Path, servers: &[NatsServer], host: &str) -> NatsConfig {
    NatsConfig {
        servers: servers.iter().map(|server| server.url.clone()).collect(),
        replicas: 3,
        ..by_credentials(directory, &servers[0], host)
    }
}

/// Appends batches until the task is stopped. Each batch is repeated until it is acknowledged.
/// Returns the last sequence number.
async fn write(nats: Arc<Nats>, stop: Arc<AtomicBool>) -> u64 {
    let mut seq = 0;
    while !stop.load(Ordering::Relaxed) {
        let batch: Vec<_> = (seq + 1..=seq + 20).map(|seq| record("north", "south", seq)).collect();
        while nats.append(&batch).await.is_err() {}
        seq += 20;
    }
    seq
}

/// Starts one of the three servers. The server syncs every write.
pub(crate) fn member(directory: &Path, address: &str, ports: &[[u16; 2]; 3], index: usize) -> NatsServer {
    member_with(directory, address, ports, index, [""; 2])
}

/// Like the function above, with permissions for routes, and with accounts.
fn member_with(
    directory: &Path,
    address: &str,
    ports: &[[u16; 2]; 3],
    index: usize,
    [permissions, accounts]: [&str; 2],
) -> NatsServer {
    let own = directory.join(format!("n{index}"));
    std::fs::create_dir_all(&own).unwrap();
    let [client, route] = ports[index];
    let routes: Vec<String> = ports.iter().map(|[_, route]| format!("nats://{address}:{route}")).collect();
    let store = own.join("jetstream");
    let text = format!(
        "server_name: n{index}\nlisten: {address}:{client}\nhttp: 127.0.0.1:-1\n\
         jetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
         cluster {{ name: T, listen: {address}:{route}, routes: [{}]\n{permissions} }}\n{accounts}",
        routes.join(", ")
    );
    NatsServer::start_with(&own, &text).unwrap()
}

/// Six different free ports, because servers of a cluster need each other's ports in their
/// configuration.
pub(crate) fn free_ports(address: &str) -> [[u16; 2]; 3] {
    let listeners = [[(); 2]; 3].map(|two| two.map(|()| TcpListener::bind((address, 0)).unwrap()));
    listeners.map(|two| two.map(|listener| listener.local_addr().unwrap().port()))
}

/// An address of this host for a test. Outgoing connections of other programs do not use ports of
/// this address.
pub(crate) fn own_address(test: u8) -> String {
    let id = std::process::id();
    if cfg!(target_os = "linux") {
        format!("127.{}.{}.{test}", 1 + id / 254 % 254, 1 + id % 254)
    } else {
        "127.0.0.1".into()
    }
}
