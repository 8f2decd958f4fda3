//! Writes through archives on servers with little access control, where a test reads and sends
//! every message.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, HeaderMap};
use barograph_engine::{
    Archiver, Engine, EngineError, Entry, LeaseState, Local, Nats, NatsConfig, Range, Record, token, wire,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::nats::attack::{Attacker, asked};
use crate::nats::deployed::{ARCHIVE, NORTH, SOUTH};
use crate::nats::server::{self, NatsServer};
use crate::nats::values::{entry, eventually, name, record};

/// An archive on a server, and a client that sends the requests of the north.
pub(crate) struct Site {
    _directory: tempfile::TempDir,
    server: NatsServer,
    pub(crate) archive: Arc<Nats>,
    _archiver: Archiver,
    local: Arc<Local>,
    pub(crate) north: Attacker,
}

impl Site {
    /// The server permits everything, except that engines may not publish to `denied`.
    pub(crate) async fn new(denied: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let server = limited(directory.path(), denied)?;
        let config = server::config(&server.url, ARCHIVE);
        Some(Self::start(directory, server, config).await)
    }

    /// Starts an archive with `config` on `server`, which has its files in `directory`.
    pub(crate) async fn start(directory: tempfile::TempDir, server: NatsServer, config: NatsConfig) -> Self {
        let archive = Arc::new(Nats::new(config).unwrap());
        let (archiver, local) = server::archive(&archive, directory.path());
        archive.append(&[record(ARCHIVE, "x", 1)]).await.unwrap();
        let north = Attacker::new(&server.url, free()).await;
        Self { _directory: directory, server, archive, _archiver: archiver, local, north }
    }

    async fn append(&self, records: &[Record]) -> Value {
        self.north.write("append", json!({}), &lines(records)).await
    }

    /// Sends `text` to the archive as the entry of the north.
    async fn register(&self, text: &str) -> Value {
        self.north.write("register", json!({ "registration": { "id": "a1", "ttl_s": 10 } }), text).await
    }
}

/// A server on which a test answers the requests of a station as an archive.
pub(crate) struct FakeArchive {
    _directory: tempfile::TempDir,
    server: NatsServer,
    client: Client,
    pub(crate) north: Nats,
}

impl FakeArchive {
    /// The server permits everything, except that engines may not publish to `denied`.
    pub(crate) async fn new(denied: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let server = limited(directory.path(), denied)?;
        let client = Attacker::new(&server.url, free()).await.client;
        let config = server::config(&server.url, NORTH);
        let north = Nats::new(NatsConfig { deadline: Duration::from_millis(500), ..config }).unwrap();
        Some(Self { _directory: directory, server, client, north })
    }

    pub(crate) async fn answer(
        &self,
        answer: impl FnMut(&str, &Value) -> Value + Send + 'static,
    ) -> Arc<AtomicUsize> {
        answer_as_archive(self.client.clone(), answer).await
    }
}

/// A server that denies engines publications to `denied`, and denies nothing to the user of
/// [`free`].
pub(crate) fn limited(directory: &Path, denied: &str) -> Option<NatsServer> {
    let store = directory.join("jetstream");
    let permissions = format!("{{ publish: {{ deny: [\"{denied}\"] }} }}");
    let users = format!(
        "{{ user: free, password: free }}, {{ user: engine, password: engine, permissions: {permissions} }}"
    );
    let text = format!(
        "listen: \"127.0.0.1:-1\"\njetstream {{ store_dir: {store:?} }}\nno_auth_user: engine\n\
         authorization {{ users: [{users}] }}\n"
    );
    NatsServer::start_with(directory, &text)
}

fn free() -> ConnectOptions {
    ConnectOptions::new().user_and_password("free".into(), "free".into())
}

fn lines(records: &[Record]) -> String {
    records.iter().map(|record| wire::record_text(record) + "\n").collect()
}

/// Records of the north that need several requests.
fn batch(count: u64) -> Vec<Record> {
    let detail = format!("{{\"x\":\"{}\"}}", "x".repeat(1000));
    (1..=count).map(|seq| Record { detail: detail.clone(), ..record(NORTH, "x", seq) }).collect()
}

/// Answers the requests of the north with what `answer` returns for the kind in the subject, with
/// the number of an archive if the subject has one, and for the JSON of the request. `Null` is no
/// answer. Returns the number of requests.
async fn answer_as_archive(
    client: Client,
    mut answer: impl FnMut(&str, &Value) -> Value + Send + 'static,
) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let mut requests = client.subscribe(format!("barograph.a.{}.*", token(NORTH))).await.unwrap();
    client.flush().await.unwrap();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let head = request.payload.split(|&byte| byte == b'\n').next().unwrap();
            let head: Value = serde_json::from_slice(head).unwrap();
            let reply = format!("barograph.b.{}.{}", token(NORTH), head["answer"].as_str().unwrap());
            let answer = answer(request.subject.rsplit('.').next().unwrap(), &head);
            if !answer.is_null() {
                client.publish(reply, answer.to_string().into()).await.unwrap();
            }
        }
    });
    count
}

/// An archive's own questions wait only for records that this archive appended for itself.
#[tokio::test]
async fn questions_of_an_archive_do_not_wait_for_records_of_stations() {
    let Some(site) = Site::new("nothing").await else { return };
    let subject = format!("barograph.a.{}.>", token(ARCHIVE));
    let mut questions = site.north.client.subscribe(subject).await.unwrap();
    site.north.client.flush().await.unwrap();
    let stored = site.append(&[record(NORTH, "x", 1)]).await;
    assert_eq!(stored["number"], 2, "{stored}");
    let own = record(ARCHIVE, "x", 1);
    assert_eq!(site.archive.history(&own.series, &Range::newest(1)).await.unwrap().items, [own]);
    let question: Value = serde_json::from_slice(&questions.next().await.unwrap().payload).unwrap();
    assert_eq!(question["after_place"], 1, "{question}");
}

/// A response without a number does not show that the records were stored.
#[tokio::test]
async fn a_response_without_a_number_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = limited(directory.path(), "$JS.API.STREAM.>") else { return };
    let archive = Attacker::new(&server.url, free()).await;
    answer_as_archive(archive.client, |_, _| json!({ "archive": 1 })).await;
    let north = Nats::new(server::config(&server.url, NORTH)).unwrap();
    let unknown = north.append(&[record(NORTH, "x", 1)]).await;
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
}

/// The server reports records as repetitions, and does not let the engine read them. They may be
/// stored, so the error is not a refusal.
#[tokio::test]
async fn repeated_records_that_cannot_be_read_may_be_stored() {
    let Some(site) = Site::new("$JS.API.DIRECT.GET.BAROGRAPH").await else { return };
    let unknown = site.archive.append(&[record(ARCHIVE, "x", 1)]).await;
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    assert!(site.append(&[record(NORTH, "x", 1)]).await["number"].is_number());
    let again = site.append(&[record(NORTH, "x", 1)]).await;
    assert_eq!(again["error"]["kind"], "unknown", "{again}");
}

/// While an archive limits the rate, a station sends the rest of a batch one request at a time.
#[tokio::test]
async fn a_batch_beyond_a_rate_limit_is_not_sent_many_times() {
    const EVERY: Duration = Duration::from_millis(25);
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = limited(directory.path(), "$JS.API.STREAM.>") else { return };
    let archive = Attacker::new(&server.url, free()).await;
    let (mut free_at, mut stored) = (Instant::now(), 0);
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let requests = answer_as_archive(archive.client, move |_, _| {
        let wait = free_at.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            let wait_ms = wait.as_millis() + 1;
            return json!({ "archive": 1, "error": { "kind": "throttled", "text": "x", "wait_ms": wait_ms } });
        }
        free_at = Instant::now() + EVERY;
        stored += 1;
        counted.store(stored, Ordering::Relaxed);
        json!({ "archive": 1, "number": stored })
    })
    .await;
    let north = Nats::new(server::config(&server.url, NORTH)).unwrap();
    north.append(&batch(400)).await.unwrap();
    let (requests, accepted) = (requests.load(Ordering::Relaxed), accepted.load(Ordering::Relaxed));
    assert!(25 < accepted, "{accepted} requests");
    assert!(requests <= 2 * accepted + 16, "{requests} requests for {accepted} parts");
}

/// An archive limits the rate of every request. The append ends, with an error that shows whether
/// records may be stored.
#[tokio::test]
async fn an_append_ends_while_an_archive_limits_its_rate() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let mut accepted = 0..1;
    fake.answer(move |_, _| match accepted.next() {
        Some(_) => json!({ "archive": 1, "number": 1 }),
        None => json!({ "archive": 1, "error": { "kind": "throttled", "text": "x", "wait_ms": 50 } }),
    })
    .await;
    let append = async || tokio::time::timeout(server::LIMIT / 3, fake.north.append(&batch(400))).await;
    let partly = append().await;
    assert!(matches!(partly, Ok(Err(EngineError::Unknown(_)))), "{partly:?}");
    let refused = append().await;
    assert!(matches!(refused, Ok(Err(EngineError::Throttled { .. }))), "{refused:?}");
}

/// A station that gets an error from an archive sends its next request to any archive.
#[tokio::test]
async fn a_station_leaves_an_archive_that_fails() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let error =
        |kind: &str| json!({ "archive": 7, "error": { "kind": kind, "text": "x", "wait_ms": 60_000 } });
    let kinds = ["unavailable", "unknown", "corrupt"];
    let answers = kinds.map(error).into_iter().chain([json!({ "archive": 7, "direct": true })]);
    let failures = kinds.len() + 1;
    let mut answers = answers
        .chain([error("throttled")])
        .flat_map(|failure| [json!({ "archive": 7, "number": 1 }), failure])
        .chain([error("throttled"), error("unknown"), error("throttled")]);
    let (sender, mut kinds) = tokio::sync::mpsc::unbounded_channel();
    fake.answer(move |kind, _| {
        sender.send(kind.to_owned()).unwrap();
        answers.next().unwrap_or(Value::Null)
    })
    .await;
    for _ in 0..=failures {
        fake.north.append(&[record(NORTH, "x", 1)]).await.unwrap();
        assert!(fake.north.append(&[record(NORTH, "x", 2)]).await.is_err());
        assert_eq!([kinds.recv().await.unwrap(), kinds.recv().await.unwrap()], ["append", "append-7"]);
    }
    assert!(fake.north.append(&[record(NORTH, "x", 2)]).await.is_err());
    assert_eq!(kinds.recv().await.unwrap(), "append-7", "a rate limit is no failure");
    for expected in ["append-7", "append", "append"] {
        assert!(fake.north.append(&[record(NORTH, "x", 2)]).await.is_err());
        assert_eq!(kinds.recv().await.unwrap(), expected, "a rate limit does not bring an archive back");
    }
}

/// One archive gets the records and does not answer, and another archive refuses them.
#[tokio::test]
async fn records_that_one_archive_refuses_may_be_stored_by_another() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>\", \"barograph.m.>").await else { return };
    let mut answers = vec![
        json!({ "archive": 7, "number": 1 }),
        Value::Null,
        json!({ "archive": 8, "error": { "kind": "unavailable", "text": "x" } }),
        // The first request of a batch is stored, and the second is not.
        json!({ "archive": 8, "number": 1 }),
        json!({ "archive": 8, "direct": true }),
    ]
    .into_iter();
    fake.answer(move |_, _| answers.next().unwrap_or_else(|| json!({ "archive": 8, "direct": true }))).await;
    fake.north.append(&[record(NORTH, "x", 1)]).await.unwrap();
    for batch in [batch(1), batch(100)] {
        let unknown = fake.north.append(&batch).await;
        assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    }
}

/// A repeated write without a condition could replace a later registration.
#[tokio::test]
async fn a_registration_without_a_condition_is_sent_once() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let unconditional = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&unconditional);
    fake.answer(move |_, request| match request["registration"]["over"].as_u64() {
        Some(_) => json!({ "archive": 1, "conflict": true }),
        None => {
            counted.fetch_add(1, Ordering::Relaxed);
            Value::Null
        }
    })
    .await;
    let unknown = fake.north.register(&entry(NORTH), Duration::from_secs(10)).await.map(drop);
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    assert_eq!(unconditional.load(Ordering::Relaxed), 1);
}

/// One archive does not answer, and another archive reports why it cannot write.
#[tokio::test]
async fn a_failed_registration_reports_the_reason_of_an_archive() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let mut answers = [Value::Null].into_iter();
    fake.answer(move |_, _| {
        let failure = || json!({ "archive": 8, "error": { "kind": "unavailable", "text": "a full disk" } });
        answers.next().unwrap_or_else(failure)
    })
    .await;
    let unknown = fake.north.register(&entry(NORTH), Duration::from_secs(10)).await.map(drop);
    let Err(EngineError::Unknown(why)) = unknown else { panic!("{unknown:?}") };
    assert!(why.contains("a full disk"), "{why}");
}

/// The server does not deliver the message at the station's key. The station soon registers without
/// the message's number, and its lease begins with the write that was stored.
#[tokio::test]
async fn a_key_that_cannot_be_read_does_not_delay_a_registration_by_its_lease() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let client = &fake.client;
    let _silent = client.subscribe("$JS.API.DIRECT.GET.KV_barograph_dir").await.unwrap();
    let mut answers = [json!({ "archive": 1, "conflict": true })].into_iter();
    fake.answer(move |_, _| answers.next().unwrap_or_else(|| json!({ "archive": 1, "number": 1 }))).await;
    let config = server::config(&fake.server.url, NORTH);
    let north = Nats::new(NatsConfig { deadline: Duration::from_mins(2), ..config }).unwrap();
    let entry = entry(NORTH);
    let lease = north.register(&entry, Duration::from_secs(2));
    let lease = tokio::time::timeout(server::LIMIT, lease).await.unwrap().unwrap();
    assert_eq!(lease.state(), LeaseState::Held);
}

/// A write of a registration may be executed late, so it must not replace a later registration.
#[tokio::test]
async fn a_new_registration_replaces_only_what_the_station_has_read() {
    let Some(site) = Site::new("nothing").await else { return };
    let key = format!("$KV.barograph_dir.{}", token(NORTH));
    let mut writes = site.north.client.subscribe(key.clone()).await.unwrap();
    site.north.client.flush().await.unwrap();
    let stations = [(); 2].map(|()| Nats::new(server::config(&site.server.url, NORTH)).unwrap());
    let mut leases = Vec::new();
    let mut conditions = Vec::new();
    for station in &stations {
        leases.push(station.register(&entry(NORTH), Duration::from_secs(300)).await.unwrap());
        let headers = writes.next().await.unwrap().headers.unwrap();
        let condition = headers.get("Nats-Expected-Last-Subject-Sequence");
        conditions.push(condition.map(|condition| condition.as_str().to_owned()));
    }
    assert_eq!(conditions, [Some("0".to_owned()), Some("1".to_owned())]);

    // A deletion that was executed and has no answer is sent again. Its repetition stops when the
    // key has the deletion.
    let question = json!({ "last_by_subj": key }).to_string().into();
    let stored = site.north.client.request("$JS.API.DIRECT.GET.KV_barograph_dir", question).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(
        "Barograph-Registration",
        stored.headers.unwrap().get("Barograph-Registration").unwrap().as_str(),
    );
    for (header, value) in [("KV-Operation", "DEL"), ("Nats-TTL", "60s")] {
        headers.insert(header, value);
    }
    assert_eq!(site.north.ask(key, Some(headers), String::new()).await["seq"], 3);
    assert!(writes.next().await.is_some());
    drop(leases.pop());
    let repeated = writes.next().await.unwrap().headers.unwrap();
    let condition = repeated.get("Nats-Expected-Last-Subject-Sequence").map(|condition| condition.as_str());
    assert_eq!(condition, Some("2"));
    let further = tokio::time::timeout(Duration::from_millis(500), writes.next()).await;
    assert!(further.is_err(), "{further:?}");
}

/// Many writes of stations find that the streams are missing. The archive creates the streams once.
#[tokio::test]
async fn an_archive_creates_missing_streams_once_for_many_writes() {
    let Some(site) = Site::new("nothing").await else { return };
    let client = &site.north.client;
    for stream in ["KV_barograph_dir", "BAROGRAPH"] {
        client.request(format!("$JS.API.STREAM.DELETE.{stream}"), "".into()).await.unwrap();
    }
    let mut created = client.subscribe("$JS.API.STREAM.CREATE.BAROGRAPH").await.unwrap();
    client.flush().await.unwrap();
    let text = wire::entry_text(&entry(NORTH));
    let registration = json!({ "registration": { "id": "a1", "ttl_s": 10 } });
    eventually("the streams", async || {
        let answers = site.north.requests("register", vec![(registration.clone(), text.clone()); 8]).await;
        let is_stored = |answer: &Value| answer["number"].is_number();
        let is_written = |answer: &Value| is_stored(answer) || answer["conflict"] == true;
        (answers.iter().all(is_written) && answers.iter().any(is_stored)).then_some(())
    })
    .await;
    client.flush().await.unwrap();
    let mut count = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(100), created.next()).await {
        count += 1;
    }
    // The archive's reader may create the stream at the same time.
    assert!((1..=2).contains(&count), "{count} times");
}

/// The servers deny an archive the keys of stations. The archive reports that, and the station
/// writes its own key.
#[tokio::test]
async fn a_station_registers_by_itself_if_the_servers_deny_it_to_archives() {
    let Some(site) = Site::new(&format!("$KV.barograph_dir.{}", token(NORTH))).await else { return };
    let answer = site.register(&wire::entry_text(&entry(NORTH))).await;
    assert_eq!((&answer["direct"], &answer["number"]), (&json!(true), &Value::Null), "{answer}");

    let directory = tempfile::tempdir().unwrap();
    let server = limited(directory.path(), "$JS.API.STREAM.>").unwrap();
    let archive = Attacker::new(&server.url, free()).await;
    let bucket = json!({
        "name": "KV_barograph_dir", "subjects": ["$KV.>"], "max_msgs_per_subject": 1, "allow_direct": true,
        "allow_msg_ttl": true, "storage": "memory",
    });
    let made = archive.ask("$JS.API.STREAM.CREATE.KV_barograph_dir".into(), None, bucket.to_string()).await;
    assert!(made["error"].is_null(), "{made}");
    let asked =
        answer_as_archive(archive.client.clone(), |_, _| json!({ "archive": 1, "direct": true })).await;
    let north = Nats::new(server::config(&server.url, NORTH)).unwrap();
    let _lease = north.register(&entry(NORTH), Duration::from_secs(10)).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let question = json!({ "last_by_subj": format!("$KV.barograph_dir.{}", token(NORTH)) });
    let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
    let stored = archive.client.request(request, question.to_string().into()).await.unwrap();
    assert_eq!(stored.payload, wire::entry_text(&entry(NORTH)).as_bytes());
}

/// An archive writes its own text of a record, so padding does not reach the stream. It refuses
/// entries that are longer than the bucket accepts.
#[tokio::test]
async fn an_archive_stores_no_long_records_and_entries() {
    let Some(site) = Site::new("nothing").await else { return };
    let own = record(NORTH, "x", 1);
    let padded = wire::record_text(&own).replacen('{', &format!("{{{}", " ".repeat(13 << 10)), 1);
    let stored = site.north.write("append", json!({}), &padded).await;
    let question = json!({ "seq": stored["number"] }).to_string().into();
    let found = site.north.client.request("$JS.API.DIRECT.GET.BAROGRAPH", question).await.unwrap();
    assert_eq!(found.payload, wire::record_text(&own).as_bytes());
    let groups = (0..10).map(|index| name(&format!("{index}{}", "x".repeat(250)))).collect();
    let answer = site.register(&wire::entry_text(&Entry { groups, ..entry(NORTH) })).await;
    let text = answer["error"]["text"].as_str().unwrap_or_default();
    assert!(answer["error"]["kind"] == "invalid" && text.contains("bytes as JSON, more than"), "{answer}");
}

/// A marker of skipped numbers reaches archives as the records do.
#[tokio::test]
async fn an_archive_stores_markers_of_skipped_numbers() {
    let Some(site) = Site::new("nothing").await else { return };
    let marker = Record::skip_marker(&name(NORTH), 1, 6);
    assert!(site.append(&[marker, record(NORTH, "x", 7)]).await["number"].is_number());
    eventually("the watermark", async || (site.local.watermark(&name(NORTH)).await == Ok(7)).then_some(()))
        .await;
    let foreign = site.append(&[Record::skip_marker(&name(SOUTH), 1, 6)]).await;
    assert_eq!(foreign["error"]["kind"], "denied", "{foreign}");
}

/// A server sends a trace of a message to the subject that the message names. A trace is no
/// request.
#[tokio::test]
async fn a_trace_is_no_request_to_write() {
    let Some(site) = Site::new("nothing").await else { return };
    let subject = format!("barograph.a.{}.append", token(SOUTH));
    let mut traces = site.north.client.subscribe(subject.clone()).await.unwrap();
    let mut headers = asked();
    headers.insert("Nats-Trace-Dest", subject.as_str());
    let request = json!({ "answer": "s.1", "nonce": site.append(&[]).await["nonce"] });
    let message = format!("{request}\n{}", lines(&[record(SOUTH, "x", 1)]));
    site.north.client.publish_with_headers("unused", headers, message.into()).await.unwrap();
    let trace = tokio::time::timeout(server::LIMIT, traces.next()).await.unwrap().unwrap();
    assert!(trace.headers.is_none_or(|headers| headers.get("Barograph-Question").is_none()));
    // The archive receives this request after the trace, and stores records in order.
    assert_eq!(site.append(&[record(NORTH, "x", 1)]).await["number"], 2);
}
