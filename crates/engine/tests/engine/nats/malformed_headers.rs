//! A member publishes headers that no client library would send, and that servers and readers may
//! fail to parse.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use barograph_engine::{Engine as _, Event, Nats, Selector, StartAt, token};

use crate::nats::deployed::{self, ARCHIVE, NORTH, SOUTH};
use crate::nats::server::{self, LIMIT, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

/// Longest delay of an ordinary record that is sent after all malformed messages.
const BOUND: Duration = Duration::from_secs(5);

/// A mesh of an older version, where stations share the account of the streams. nats-server
/// (2.15.2) panics when it republishes a header block shorter than its first line.
#[tokio::test]
async fn an_archive_sets_the_current_limits_on_streams_of_older_versions() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let client = async_nats::connect(&server.url).await.unwrap();
    older_streams(&client).await;
    let archive = Arc::new(Nats::new(server::config(&server.url, ARCHIVE)).unwrap());
    let local = tempfile::tempdir().unwrap();
    let (_archiver, _local) = server::archive(&archive, local.path());
    has_bounds_of_now(&client).await;
    let mut member = Member::new(&server, None);
    for subject in ["barograph.m.north.x.rtt", "$KV.barograph_dir.north"] {
        member.send(format!("HPUB {subject} 1 3\r\nx{{}}\r\n").as_bytes()).expect("the server lives");
    }
    server::canary(&*archive, ARCHIVE, 1).await;
}

/// Creates the streams as older versions did.
async fn older_streams(client: &async_nats::Client) {
    for (name, subjects, from, to) in [
        ("BAROGRAPH", "barograph.m.*.*.*", "barograph.m.>", "barograph.n.>"),
        ("KV_barograph_dir", "$KV.barograph_dir.*", "$KV.barograph_dir.>", "barograph.d.>"),
    ] {
        let stream = serde_json::json!({
            "name": name, "subjects": [subjects], "storage": "file", "discard": "old", "allow_direct": true,
            "allow_msg_ttl": true, "deny_delete": true, "deny_purge": true, "max_bytes": 64 << 20,
            "republish": { "src": from, "dest": to },
        });
        let request = format!("$JS.API.STREAM.CREATE.{name}");
        let made = client.request(request, stream.to_string().into()).await.unwrap();
        assert!(!String::from_utf8_lossy(&made.payload).contains("\"error\""), "{made:?}");
    }
}

/// Waits until both streams have the current bounds.
async fn has_bounds_of_now(client: &async_nats::Client) {
    for (name, window_ns, size_max) in
        [("BAROGRAPH", 120_000_000_000_u64, 14 << 10), ("KV_barograph_dir", 100_000_000, 3 << 10)]
    {
        eventually("a stream with the bounds of now", async || {
            let request = format!("$JS.API.STREAM.INFO.{name}");
            let info = client.request(request, "".into()).await.unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
            let config = &info["config"];
            let is_small = config["max_msg_size"].as_u64().is_some_and(|size| size <= size_max);
            let is_bounded = is_small && config["duplicate_window"] == window_ns;
            (is_bounded && config["republish"].is_null()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn malformed_headers_of_a_member_do_not_stop_other_members() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(_), true) = (server::binary(), deployed::has_openssl()) else { return };
    deployed::script(directory.path(), "accounts", &["setup", "3"]);
    for (role, host) in [("archive", ARCHIVE), ("station", NORTH), ("station", SOUTH)] {
        deployed::script(directory.path(), "accounts", &[role, host]);
    }
    let server =
        NatsServer::start_with(directory.path(), &deployed::with_accounts(directory.path())).unwrap();
    let own = deployed::credentials(directory.path(), ARCHIVE);
    let own = ConnectOptions::with_credentials_file(own).await.unwrap();
    let client =
        own.custom_inbox_prefix(format!("_INBOX_{}", token(ARCHIVE))).connect(&server.url).await.unwrap();
    older_streams(&client).await;
    let nats = |host| Nats::new(deployed::by_credentials(directory.path(), &server, host)).unwrap();
    let archive = Arc::new(nats(ARCHIVE));
    let local = tempfile::tempdir().unwrap();
    let (archiver, _local) = server::archive(&archive, local.path());
    has_bounds_of_now(&client).await;
    let south = nats(SOUTH);
    server::canary(&south, SOUTH, 1).await;
    let _own = archive.register(&entry(ARCHIVE), Duration::from_secs(10)).await.unwrap();
    let mut events = south.watch(&name("local"));
    assert_eq!(next_item(&mut events).await, Event::Up(entry(ARCHIVE)));
    let mut records = archive.subscribe(&Selector::default(), StartAt::Now);

    let sent = flood(directory.path(), &server);
    assert!(
        server::log_of(directory.path()).lines().all(|line| !line.contains("panic:")),
        "the server panicked"
    );

    let began = Instant::now();
    server::canary(&south, SOUTH, 2).await;
    assert_eq!(next_item(&mut records).await.1, record(SOUTH, "canary", 2));
    let stored = began.elapsed();
    let _lease = eventually("a registration", async || {
        south.register(&entry(SOUTH), Duration::from_secs(10)).await.ok()
    })
    .await;
    while next_item(&mut events).await != Event::Up(entry(SOUTH)) {}
    // Readers that start later read all these messages, too.
    let later = nats(SOUTH);
    let mut all = archive.subscribe(&Selector::default(), StartAt::Oldest);
    for seq in [1, 2] {
        assert_eq!(next_item(&mut all).await.1, record(SOUTH, "canary", seq));
    }
    let mut members = later.watch(&name("local"));
    while next_item(&mut members).await != Event::Synced {}
    assert_eq!(later.watermark(&name(NORTH)).await, Ok(0));
    assert!(archiver.statistics().discarded > 0, "{:?}", archiver.statistics());
    println!("{sent} messages; the next record after {stored:?}, all after {:?}", began.elapsed());
    assert!(began.elapsed() < BOUND, "the next record after {stored:?}, all after {:?}", began.elapsed());
}

/// A server ends a header at CR LF only, the client library also at LF. So a station could write a
/// lease that the server does not know, and stay in the directory after its withdrawal.
#[tokio::test]
async fn an_entry_with_a_lease_behind_a_bare_line_feed_is_no_registration() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let south = Nats::new(server::config(&server.url, SOUTH)).unwrap();
    let _lease = eventually("a registration", async || {
        south.register(&entry(SOUTH), Duration::from_secs(60)).await.ok()
    })
    .await;
    let mut member = Member::new(&server, None);
    for (end, expected) in [("\n", None), ("\r\n", Some(Event::Up(entry(NORTH))))] {
        let block = format!("NATS/1.0\r\nBarograph-Registration: r{end}Nats-TTL: 60s\r\n\r\n");
        let text = barograph_engine::wire::entry_text(&entry(NORTH));
        let subject = format!("$KV.barograph_dir.{}", token(NORTH));
        let sizes = format!("{} {}", block.len(), block.len() + text.len());
        let message = format!("HPUB {subject} {sizes}\r\n{block}{text}\r\n");
        member.send(message.as_bytes()).expect("the server takes it");
        let mut events = south.watch(&name("local"));
        let mut seen = Vec::new();
        while seen.last() != Some(&Event::Synced) {
            seen.push(next_item(&mut events).await);
        }
        assert!(seen.contains(&Event::Up(entry(SOUTH))), "{seen:?}");
        assert_eq!(seen.into_iter().find(|event| *event == Event::Up(entry(NORTH))), expected, "{end:?}");
    }
}

/// Sends every block to every subject that the north may write, and to the streams in the archive's
/// name: with older lists, a station could store such messages. Returns the number of accepted
/// messages.
fn flood(directory: &Path, server: &NatsServer) -> usize {
    let (north, archive) = (token(NORTH), token(ARCHIVE));
    let subjects: [(&str, Vec<u8>); 9] = [
        (ARCHIVE, format!("barograph.r.{north}").into()),
        (ARCHIVE, format!("$KV.barograph_dir.{north}").into()),
        (ARCHIVE, [b"barograph.m.", archive.as_bytes(), b".\xff\xfe.rtt"].concat()),
        (ARCHIVE, format!("barograph.m.{archive}.\u{2003}\u{85}.rtt").into()),
        (NORTH, format!("barograph.a.{north}.watermark").into()),
        (NORTH, format!("barograph.a.{north}.append").into()),
        (NORTH, format!("barograph.a.{north}.register").into()),
        (NORTH, [b"barograph.a.", north.as_bytes(), b".\xff"].concat()),
        (NORTH, format!("barograph.a.{north}.\u{2003}\u{85}").into()),
    ];
    [ARCHIVE, NORTH]
        .into_iter()
        .map(|host| {
            let own = subjects.iter().filter(|(holder, _)| *holder == host);
            flood_as(directory, server, host, &own.map(|(_, subject)| &subject[..]).collect::<Vec<_>>())
        })
        .sum()
}

fn flood_as(directory: &Path, server: &NatsServer, host: &str, subjects: &[&[u8]]) -> usize {
    let text = r#"{"origin":"north"}"#;
    let reply = format!("_INBOX_{}.x", token(host));
    let mut taken = 0;
    let mut member = Member::new(server, Some((directory, host)));
    for (block, claimed) in blocks() {
        for (subject, reply) in subjects.iter().flat_map(|subject| {
            [(subject, reply.as_bytes().to_vec()), (subject, [reply.as_bytes(), b".\xff\xc2\x85"].concat())]
        }) {
            let total = block.len() + text.len();
            let sizes = format!(" {claimed} {total}\r\n");
            let line = [b"HPUB ", *subject, b" ", &reply, sizes.as_bytes()].concat();
            let message = [&line, &block, text.as_bytes(), b"\r\n"].concat();
            match member.send(&message) {
                Some(()) => taken += 1,
                // The server refused the message and closed the connection.
                None => member = Member::new(server, Some((directory, host))),
            }
        }
    }
    taken
}

/// Header blocks, with the length that is claimed for each.
fn blocks() -> Vec<(Vec<u8>, usize)> {
    let key =
        |length: usize| [b"NATS/1.0\r\n".to_vec(), vec![b'k'; length], b": v\r\n\r\n".to_vec()].concat();
    let mut blocks: Vec<Vec<u8>> = [
        &b""[..],
        b"x",
        b"\r\n",
        b"NATS",
        b"NATS/1.0",
        b"NATS/1.0\r",
        b"NATS/1.0\r\n",
        b"NATS/1.0\r\n\r\n",
        b"NATS/2.0\r\na: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n\r\n",
        b"NATS/1.0 99999999999 x\r\n\r\n",
        b"NATS/1.0 1\r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n: no name\r\n\r\n",
        b"NATS/1.0\r\na b: space\r\n\r\n",
        b"NATS/1.0\r\na\0b: nul\r\n\r\n",
        b"NATS/1.0\r\na: nul\0\r\n\r\n",
        b"NATS/1.0\r\n\xff\xfe: bytes\r\n\r\n",
        b"NATS/1.0\r\na: \xc3\x28\r\n\r\n",
        b"NATS/1.0\r\n\xc3\xa4: letter\r\n\r\n",
        b"NATS/1.0\r\na: carriage\rreturn\r\n\r\n",
        b"NATS/1.0\ra: b\r\r",
        b"NATS/1.0\na: b\n\n",
        b"NATS/1.0\r\na: b\r\n  c\rd\r\n\r\n",
        b"NATS/1.0\r\n a: b\r\n\r\n",
        b"NATS/1.0\r\n\r\n\r\nx\r\n\r\n",
        b"NATS/1.0\r\nNats-Sequence: 1\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\nNats-Subject: barograph.m.x.x.rtt\r\n\xff\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: x",
        b"NATS/1.0\r\nNats-TTL",
        b"NATS/1.0\r\nNats-TTL: \xff\r\n\r\n",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    blocks.extend([key(4000), key(300)]);
    let mut sized: Vec<_> = blocks.iter().map(|block| (block.clone(), block.len())).collect();
    // Claimed lengths: shorter than the block, up to a position in the payload, and beyond the
    // payload.
    let whole = b"NATS/1.0\r\na: b\r\n\r\n".to_vec();
    sized.extend([0, 1, 9, 11, 14, 17, 20, 30, 1000].map(|claimed| (whole.clone(), claimed)));
    sized
}

/// A station's connection as plain bytes.
pub(crate) struct Member(BufReader<TcpStream>);

impl Member {
    /// Connects with the credentials of a station in a directory; `None` = no credentials.
    pub(crate) fn new(server: &NatsServer, credentials: Option<(&Path, &str)>) -> Self {
        let stream = TcpStream::connect(server.address()).expect("the server lives");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut member = Self(BufReader::new(stream));
        let mut info = String::new();
        member.0.read_line(&mut info).unwrap();
        let mut connect = serde_json::json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1,
            "lang": "none", "version": "0",
        });
        if let Some((directory, host)) = credentials {
            let info: serde_json::Value = serde_json::from_str(info.strip_prefix("INFO ").unwrap()).unwrap();
            let credentials = std::fs::read_to_string(deployed::credentials(directory, host)).unwrap();
            connect["jwt"] = credentials.lines().nth(1).into();
            connect["sig"] = sign(directory, host, info["nonce"].as_str().unwrap()).into();
        }
        member.send(format!("CONNECT {connect}\r\n").as_bytes()).expect("it is let in");
        member
    }

    /// Sends a message; `None` if the server closed the connection.
    pub(crate) fn send(&mut self, message: &[u8]) -> Option<()> {
        let stream = self.0.get_mut();
        stream.write_all(message).and_then(|()| stream.write_all(b"PING\r\n")).ok()?;
        let mut line = Vec::new();
        while line != b"PONG\r\n" {
            line.clear();
            if self.0.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
        }
        Some(())
    }
}

/// Signature of the server's nonce by the station `host`.
fn sign(directory: &Path, host: &str, nonce: &str) -> String {
    std::fs::write(directory.join("nonce"), nonce).unwrap();
    let line = format!(
        "openssl pkeyutl -sign -rawin -inkey accounts.keys/user.{} -in nonce | basenc --base64url -w0 | tr -d =",
        token(host)
    );
    let signed = Command::new("sh")
        .args(["-c", &line])
        .current_dir(directory)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    String::from_utf8(signed.stdout).unwrap()
}
