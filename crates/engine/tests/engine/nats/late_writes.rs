//! Registrations that the servers or an archive execute late, and reads of keys by archives.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Subscriber};
use barograph_engine::{Engine, NatsConfig, token, wire};
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use crate::nats::archive_writes::{Site, limited};
use crate::nats::deployed::{ARCHIVE, NORTH};
use crate::nats::proxy::Proxy;
use crate::nats::server;
use crate::nats::values::{entry, record};

/// Subject of the reads of registrations.
const READ: &str = "$JS.API.DIRECT.GET.KV_barograph_dir";

fn key() -> String {
    format!("$KV.barograph_dir.{}", token(NORTH))
}

/// Sends the entry of the north to the archive.
async fn register(site: &Site, ttl_s: u64, over: Option<u64>) -> Value {
    let mut registration = json!({ "id": "a1", "ttl_s": ttl_s });
    if let Some(over) = over {
        registration["over"] = over.into();
    }
    let text = wire::entry_text(&entry(NORTH));
    site.north.write("register", json!({ "registration": registration }), &text).await
}

/// Writes the mark of a removal to the key of the north. Returns its sequence number.
async fn mark(site: &Site) -> u64 {
    let mut headers = HeaderMap::new();
    for (name, value) in [("Barograph-Registration", "m1"), ("KV-Operation", "PURGE"), ("Nats-TTL", "60s")] {
        headers.insert(name, value);
    }
    site.north.ask(key(), Some(headers), String::new()).await["seq"].as_u64().unwrap()
}

/// A site where messages between the archive and the server take 200 ms, and may be frozen.
async fn distant_site() -> Option<(Site, Proxy)> {
    let directory = tempfile::tempdir().unwrap();
    let server = limited(directory.path(), "nothing")?;
    let proxy = Proxy::long(server.address(), Duration::from_millis(200)).await;
    let config = server::config(&proxy.address.to_string(), ARCHIVE);
    let config = NatsConfig { deadline: Duration::from_secs(60), ..config };
    Some((Site::start(directory, server, config).await, proxy))
}

/// The archive's reads of registrations, and what the server answers to the archive.
struct Reads {
    reads: Subscriber,
    replies: Subscriber,
}

impl Reads {
    async fn new(site: &Site) -> Self {
        let client = &site.north.client;
        let reads = client.subscribe(READ).await.unwrap();
        let replies = client.subscribe(format!("_INBOX_{}.>", token(ARCHIVE))).await.unwrap();
        client.flush().await.unwrap();
        Self { reads, replies }
    }

    /// Waits until the server has answered a read. The answer is then on its way to the archive.
    async fn answered(&mut self) {
        let inbox = self.reads.next().await.unwrap().reply.unwrap();
        while self.replies.next().await.unwrap().subject != inbox {}
    }
}

/// A read may be answered by a replica that is late. The condition of a renewal has a number that
/// the archive has seen in the bucket, so the archive does not read the key.
#[tokio::test]
async fn an_archive_reads_a_key_only_if_a_number_is_new_to_it() {
    let Some(site) = Site::new("nothing").await else { return };
    let mut reads = site.north.client.subscribe(READ).await.unwrap();
    site.north.client.flush().await.unwrap();
    let mut is_read = || reads.next().now_or_never().is_some();
    let first = register(&site, 10, None).await["number"].as_u64().unwrap();
    assert!(is_read());
    let second = register(&site, 10, Some(first)).await["number"].as_u64().unwrap();
    assert!(!is_read());
    assert_eq!(register(&site, 10, Some(first)).await["conflict"], true);
    assert!(!is_read());
    // The number of a later message, such as the mark of a removal, cannot be guessed.
    for unseen in [second + 1, 0] {
        assert_eq!(register(&site, 10, Some(unseen)).await["conflict"], true);
        assert!(is_read(), "{unseen}");
    }
}

/// The first write may be executed after the station was withdrawn, so its lease is short.
#[tokio::test]
async fn an_entry_at_an_empty_key_has_a_short_lease() {
    let Some(site) = Site::new("nothing").await else { return };
    let mut writes = site.north.client.subscribe(key()).await.unwrap();
    site.north.client.flush().await.unwrap();
    let first = register(&site, 300, None).await["number"].as_u64().unwrap();
    assert!(register(&site, 300, Some(first)).await["number"].is_number());
    let mut leases = Vec::new();
    for _ in 0..2 {
        let headers = writes.next().await.unwrap().headers.unwrap();
        leases.push(headers.get("Nats-TTL").unwrap().as_str().to_owned());
    }
    assert_eq!(leases, ["30s", "300s"]);
}

/// A denied read does not mean that the station may not register.
#[tokio::test]
async fn a_read_that_is_denied_to_an_archive_is_no_denial_for_the_station() {
    let Some(site) = Site::new(READ).await else { return };
    let answer = register(&site, 10, None).await;
    assert_eq!(answer["error"]["kind"], "unavailable", "{answer}");
}

/// The way from the archive to the server is long. The station is removed while the archive's write
/// is on its way.
#[tokio::test]
async fn a_write_on_its_way_does_not_replace_a_removal() {
    let Some((site, proxy)) = distant_site().await else { return };
    for is_removed in [false, true] {
        let mut reads = Reads::new(&site).await;
        let remove = async {
            reads.answered().await;
            proxy.freeze();
            let seq = if is_removed { Some(mark(&site).await) } else { None };
            proxy.thaw();
            seq
        };
        let (answer, seq) = tokio::join!(register(&site, 10, None), remove);
        let question = json!({ "last_by_subj": key() }).to_string().into();
        let found = site.north.client.request(READ, question).await.unwrap().headers.unwrap();
        let newest = found.get_last("Nats-Sequence").unwrap().as_str().parse::<u64>().ok();
        assert_eq!((answer["conflict"] == true, newest), (is_removed, seq.or(answer["number"].as_u64())));
    }
}

/// Appends of an archive have no answer.
#[tokio::test]
async fn appends_that_wait_do_not_delay_registrations() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = limited(directory.path(), "nothing") else { return };
    let config = server::config(&server.url, ARCHIVE);
    let config = NatsConfig { deadline: Duration::from_mins(2), ..config };
    let site = Site::start(directory, server, config).await;
    let client = &site.north.client;
    // Without the stream, this test receives the records and reads, and does not answer.
    let _reads = client.subscribe("$JS.API.DIRECT.GET.BAROGRAPH").await.unwrap();
    let mut records = client.subscribe("barograph.m.>").await.unwrap();
    client.request("$JS.API.STREAM.DELETE.BAROGRAPH", "".into()).await.unwrap();
    for seq in 2..2 + 2 * INBOXES_MAX {
        let archive = Arc::clone(&site.archive);
        tokio::spawn(async move { archive.append(&[record(ARCHIVE, "x", seq)]).await });
    }
    // The archive's reader may have one of the subscriptions.
    for _ in 1..INBOXES_MAX {
        tokio::time::timeout(server::LIMIT, records.next()).await.unwrap().unwrap();
    }
    let answer = register(&site, 10, None).await;
    assert!(answer["number"].is_number(), "{answer}");
}

/// Number of subscriptions of an engine for reads and appends.
const INBOXES_MAX: u64 = 12;
