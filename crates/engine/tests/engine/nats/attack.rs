//! A member that attempts forbidden operations, and the mesh that it attacks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, HeaderMap};
use barograph_engine::{
    Archiver, BoxStream, Engine, EngineError, Entry, Event, Lease, LeaseState, Local, Nats, NatsConfig,
    Range, Selector, StartAt, token, wire,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::nats::deployed::{ARCHIVE, NORTH, SOUTH};
use crate::nats::reflected_replies::{self, Inventory};
use crate::nats::server::{self, LIMIT, NatsServer};
use crate::nats::values::{entry, eventually, name, next_item, record};

/// Accounts of the stations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accounts {
    /// An account without JetStream, as the shipped scripts make it.
    Apart,
    /// The account of the streams, as older scripts made it.
    One,
}

/// An archive, a victim (the south) and the attacker's station (the north).
pub(crate) struct Mesh {
    pub(crate) archive: Arc<Nats>,
    pub(crate) archiver: Archiver,
    /// A registration that is renewed during the whole test. From its renewals, stations without a
    /// registration of their own detect that the directory accepts writes.
    pub(crate) _lease: Box<dyn Lease>,
    pub(crate) _local: Arc<Local>,
    pub(crate) _directory: tempfile::TempDir,
    pub(crate) south: Nats,
    pub(crate) north: Nats,
}

impl Mesh {
    pub(crate) async fn new(config: impl Fn(&str) -> NatsConfig) -> Self {
        let archive = Arc::new(Nats::new(config(ARCHIVE)).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let (archiver, local) = server::archive(&archive, directory.path());
        server::canary(&*archive, ARCHIVE, 1).await;
        let [south, north] = [SOUTH, NORTH].map(|host| Nats::new(config(host)).unwrap());
        server::canary(&north, NORTH, 1).await;
        let own = Entry { groups: vec![name("archives")], ..entry(ARCHIVE) };
        let lease = archive.register(&own, Duration::from_secs(3)).await.unwrap();
        Self { archive, archiver, _lease: lease, _local: local, _directory: directory, south, north }
    }

    /// Runs the attack of the north, over a connection with `options`.
    pub(crate) async fn is_attacked_by(
        &self,
        server: &NatsServer,
        options: ConnectOptions,
        accounts: Accounts,
    ) {
        let mut events = self.south.watch(&name("local"));
        assert_eq!(next_item(&mut events).await, Event::Synced);
        let lease = self.south.register(&entry(SOUTH), Duration::from_secs(10)).await.unwrap();
        assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));

        let attacker = Attacker::new(&server.url, options).await;
        assert_eq!(self.north.shares_account().await, Ok(accounts == Accounts::One));
        // One inbox of a station does not show the name of the station's next inbox. So a member
        // cannot send false responses to the next inbox.
        let [one, other] =
            [(); 2].map(|()| attacker.client.new_inbox().rsplit('.').next().unwrap().to_owned());
        assert_ne!(one[..8], other[..8]);
        if accounts == Accounts::Apart {
            reflected_replies::attack(&attacker, server, &self.north).await;
        }
        for subject in refused_publications() {
            attacker.cannot("Publish", &subject).await;
        }
        if accounts == Accounts::Apart {
            for subject in own_subjects().into_iter().chain(refused_reads()) {
                attacker.cannot("Publish", &subject).await;
            }
            let all = self.north.subscribe(&Selector::default(), StartAt::Oldest).next().await;
            assert!(matches!(all, Some(Err(EngineError::Denied(_)))), "{all:?}");
        }
        let victims = [format!("_INBOX_{}.>", token(SOUTH)), format!("barograph.b.{}.*.*", token(SOUTH))];
        let all = ["_INBOX.>", ">", "barograph.a.*", "barograph.m.>", "barograph.a.*.*", "barograph.b.>"];
        for subject in all.into_iter().chain(victims.iter().map(String::as_str)) {
            attacker.cannot("Subscription", subject).await;
        }
        let forged = self.north.append(&[record(SOUTH, "x", 1)]).await;
        assert!(matches!(forged, Err(EngineError::Denied(_))), "{forged:?}");
        let forged = self.north.register(&entry(SOUTH), Duration::from_secs(2)).await.map(drop);
        assert!(matches!(forged, Err(EngineError::Denied(_))), "{forged:?}");
        let removed = self.north.remove(&name(SOUTH)).await;
        assert!(matches!(removed, Err(EngineError::Denied(_))), "{removed:?}");

        if accounts == Accounts::Apart {
            self.answers_are_no_questions(&attacker).await;
        }
        self.questions_beyond_the_end(&attacker).await;
        match accounts {
            Accounts::Apart => self.forged_requests(&attacker, &mut events).await,
            Accounts::One => {
                self.forged_records(&attacker).await;
                self.a_taken_identity(&attacker).await;
                self.roll_ups(&attacker).await;
                self.own_removal(&attacker, &mut events).await;
                self.forged_entries(&attacker, &mut events).await;
            }
        }
        self.a_key_that_never_rests(&attacker, &*lease, accounts).await;
        match accounts {
            Accounts::Apart => {
                let silence = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
                assert!(silence.is_err(), "{silence:?}");
            }
            // With one account, the attacker can hide renewals of the victim between two polls. The
            // victim may then be reported as down until a later renewal is read.
            Accounts::One => {
                let own = format!("$KV.barograph_dir.{}", token(SOUTH));
                let question = json!({ "last_by_subj": own }).to_string();
                eventually("the victim's renewal", async || {
                    let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
                    let found = attacker.client.request(request, question.clone().into()).await.unwrap();
                    (found.payload == wire::entry_text(&entry(SOUTH)).as_bytes()).then_some(())
                })
                .await;
                events = self.south.watch(&name("local"));
                assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)));
                assert_eq!(next_item(&mut events).await, Event::Synced);
            }
        }

        // After the attacks, the victim is up, and its lease ends when the victim leaves.
        drop(lease);
        assert_eq!(next_item(&mut events).await, Event::Down(name(SOUTH)));
        self.archive.remove(&name(SOUTH)).await.unwrap();
        assert_eq!(next_item(&mut events).await, Event::Removed(name(SOUTH)), "an archive may remove it");
    }

    /// Checks that the mesh continues after a move to other accounts, and that the attacker is
    /// denied. The south's first record must be stored before this call.
    pub(crate) async fn goes_on(&self, server: &NatsServer, attacker: &Attacker, before: Inventory) {
        server::canary(&self.south, SOUTH, 2).await;
        assert_eq!(self.archive.watermark(&name(SOUTH)).await, Ok(2));
        let found =
            self.north.history(&record(SOUTH, "x", 1).series, &Range::newest(10)).await.unwrap().items;
        assert_eq!(found, [record(SOUTH, "x", 1)]);
        assert_eq!(Inventory::of(server), before);
        reflected_replies::attack(attacker, server, &self.north).await;
    }

    /// The archive does not answer a message that may be a response of a server. A server can
    /// publish, to the subject of a request, a text that a station stored earlier; that text could
    /// be a request in the name of a different station. In such a message servers add their headers
    /// or remove all headers.
    async fn answers_are_no_questions(&self, attacker: &Attacker) {
        let north = token(NORTH);
        let mut answers = attacker.client.subscribe(format!("barograph.b.{north}.answers.*")).await.unwrap();
        let subject = format!("barograph.a.{north}.watermark");
        let ask = |number: u8| {
            json!({ "origin": NORTH, "after_place": 0, "answer": format!("answers.{number}") })
                .to_string()
                .into()
        };
        let mut headers = asked();
        headers.insert("Nats-Subject", "x");
        attacker.client.publish_with_headers(subject.clone(), headers, ask(1)).await.unwrap();
        attacker.client.publish(subject.clone(), ask(2)).await.unwrap();
        attacker.client.publish_with_headers(subject, asked(), ask(3)).await.unwrap();
        let first = tokio::time::timeout(LIMIT, answers.next()).await.unwrap().unwrap();
        assert!(first.subject.ends_with(".3"), "{first:?}");
    }

    /// Requests for positions beyond the stream's end do not prevent the archive from answering
    /// other requests.
    async fn questions_beyond_the_end(&self, attacker: &Attacker) {
        // If each of these requests blocked the archive, the loop would take several deadlines.
        let asked = attacker.questions("watermark", 200, json!({ "origin": SOUTH, "after_place": u64::MAX }));
        let began = Instant::now();
        let victims = async {
            for _ in 0..5 {
                assert_eq!(self.south.watermark(&name(SOUTH)).await, Ok(0));
            }
            began.elapsed()
        };
        let (answers, victims) = futures_util::future::join(asked, victims).await;
        println!("the victim's answers after {victims:?}, the attacker's after {:?}", began.elapsed());
        let deadline = server::config("", SOUTH).deadline;
        assert!(victims < deadline / 2, "the archive was held up for {victims:?}");
        for answer in answers {
            let text = answer["error"]["text"].to_string();
            assert!(text.contains("the stream ends at") || text.contains("too many"), "{answer}");
        }
    }

    /// Forges records and entries of the victim in requests to an archive, and in responses of the
    /// server to subjects of the streams.
    async fn forged_requests(&self, attacker: &Attacker, events: &mut BoxStream<Event>) {
        let before = self.archiver.statistics();
        let forged = Entry { addresses: vec!["192.0.2.66:6".parse().unwrap()], ..entry(SOUTH) };
        let registration = |id: &str, ttl_s: u64| json!({ "registration": { "id": id, "ttl_s": ttl_s } });
        let text = wire::record_text(&record(SOUTH, "x", 1));
        assert_eq!(attacker.write("append", json!({}), &text).await["error"]["kind"], "denied");
        let text = wire::entry_text(&forged);
        let answer = attacker.write("register", registration("x", 10), &text).await;
        assert_eq!(answer["error"]["kind"], "denied", "{answer}");
        // Leases that are too long or never end.
        let text = wire::entry_text(&entry(NORTH));
        for ttl_s in [0, 301, 3601, u64::MAX] {
            let answer = attacker.write("register", registration("x", ttl_s), &text).await;
            assert_eq!(answer["error"]["kind"], "invalid", "{ttl_s}: {answer}");
        }
        let stored = attacker.write("register", registration("x", 300), &text).await;
        assert!(stored["number"].is_number(), "{stored}");
        assert_eq!(next_item(events).await, Event::Up(entry(NORTH)));
        let south = token(SOUTH);
        for target in [format!("$KV.barograph_dir.{south}"), format!("barograph.r.{south}")] {
            for no_hdr in [false, true] {
                let question = json!({ "last_by_subj": own_key(), "no_hdr": no_hdr }).to_string();
                let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
                let sent = attacker.client.publish_with_reply(request, target.clone(), question.into());
                sent.await.unwrap();
            }
        }
        // A deletion means that the station left.
        let deleted = attacker.write("register", registration("x", 300), "").await;
        assert!(deleted["number"].is_number(), "{deleted}");
        assert_eq!(next_item(events).await, Event::Down(name(NORTH)));
        server::canary(&self.north, NORTH, 3).await;
        assert_eq!(self.archiver.statistics().discarded, before.discarded);
        assert_eq!(self.archive.watermark(&name(SOUTH)).await, Ok(0));
        assert_eq!(next_item(&mut self.north.watch(&name("local"))).await, Event::Up(entry(SOUTH)));
        self.south.append(&[record(SOUTH, "x", 1)]).await.unwrap();
        assert_eq!(self.south.watermark(&name(SOUTH)).await, Ok(1));
    }

    /// Forges records of the victim, in the attacker's messages and in responses of the server.
    async fn forged_records(&self, attacker: &Attacker) {
        let before = self.archiver.statistics().discarded;
        let forged = record(SOUTH, "x", 1);
        let text = wire::record_text(&forged);
        let mut headers = HeaderMap::new();
        let own = format!("barograph.m.{}.x.rtt", token(NORTH));
        headers.insert("Nats-Msg-Id", format!("{}:1:own", token(SOUTH)));
        attacker.ask(own, Some(headers.clone()), text.clone()).await;
        headers.insert("Nats-Msg-Id", format!("{}:1", token(SOUTH)));
        attacker.ask(format!("barograph.m.{}.y.rtt", token(NORTH)), None, "{}".into()).await;

        let key = own_key();
        attacker.ask(key.clone(), Some(headers), text).await;
        let victims = format!("barograph.m.{}.x.rtt", token(SOUTH));
        for no_hdr in [false, true] {
            let question = json!({ "last_by_subj": key, "no_hdr": no_hdr }).to_string();
            let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
            attacker.client.publish_with_reply(request, victims.clone(), question.into()).await.unwrap();
        }
        // The stream has the attacker's own messages, and the responses that could reach the
        // stream. The archive stores none of them.
        let expected = before + 4;
        eventually("the archive's judgement", async || {
            (expected <= self.archiver.statistics().discarded).then_some(())
        })
        .await;
        server::canary(&self.north, NORTH, 3).await;
        assert_eq!(self.archiver.statistics().discarded, expected);
        assert_eq!(self.archive.watermark(&name(SOUTH)).await, Ok(0));
    }

    /// A record of the attacker with the identifier of the victim's next record does not suppress
    /// that record.
    async fn a_taken_identity(&self, attacker: &Attacker) {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{}:2", token(SOUTH)));
        let own = record(NORTH, "x", 9);
        attacker
            .ask(format!("barograph.m.{}.x.rtt", token(NORTH)), Some(headers), wire::record_text(&own))
            .await;
        self.south
            .append(&[record(SOUTH, "x", 1), record(SOUTH, "x", 2), record(SOUTH, "x", 3)])
            .await
            .unwrap();
        assert_eq!(self.south.watermark(&name(SOUTH)).await, Ok(3));
        let found = self.south.history(&own.series, &Range::newest(10)).await.unwrap().items;
        assert_eq!(found, [], "a record under another's identity");
    }

    /// Forges entries of the victim. The attacker stores a forged entry under its own key, and
    /// requests this entry with the victim's key as the reply subject, so the server sends the
    /// entry to the victim's key. Also stores entries with leases that are too long or never end.
    async fn forged_entries(&self, attacker: &Attacker, events: &mut BoxStream<Event>) {
        let forged = Entry { addresses: vec!["192.0.2.66:6".parse().unwrap()], ..entry(SOUTH) };
        let own = format!("$KV.barograph_dir.{}", token(NORTH));
        let victims = format!("$KV.barograph_dir.{}", token(SOUTH));
        let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
        let get = async |key: &str, reply: Option<&String>, no_hdr: bool| {
            let question = json!({ "last_by_subj": key, "no_hdr": no_hdr }).to_string();
            match reply {
                Some(reply) => {
                    let sent = attacker.client.publish_with_reply(request, reply.clone(), question.into());
                    sent.await.unwrap();
                    None
                }
                None => Some(attacker.client.request(request, question.into()).await.unwrap()),
            }
        };
        for (operation, text) in [(None, wire::entry_text(&forged)), (Some("DEL"), String::new())] {
            let mut headers = HeaderMap::new();
            headers.insert("Barograph-Registration", "forged");
            headers.insert("Nats-TTL", "3600s");
            if let Some(operation) = operation {
                headers.insert("KV-Operation", operation);
            }
            attacker.ask(own.clone(), Some(headers), text.clone()).await;
            for no_hdr in [false, true] {
                get(&own, Some(&victims), no_hdr).await;
                // The forged entry reaches the directory and is stored: any station can read it.
                eventually("the bounce", async || {
                    let found = get(&victims, None, false).await.unwrap();
                    (found.payload == text.as_bytes()).then_some(())
                })
                .await;
                // The victim overwrites the forged entry. Later readers get the victim's entry.
                eventually("the victim's renewal", async || {
                    let found = get(&victims, None, false).await.unwrap();
                    (found.payload == wire::entry_text(&entry(SOUTH)).as_bytes()).then_some(())
                })
                .await;
                assert_eq!(next_item(&mut self.north.watch(&name("local"))).await, Event::Up(entry(SOUTH)));
            }
        }
        self.endless_leases(attacker).await;
        // A watch that ran during the whole attack reported no forged entry.
        let silence = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
        assert!(silence.is_err(), "{silence:?}");
    }

    /// The server sends responses to the victim's key without a pause. These responses do not end
    /// the victim's registration.
    async fn a_key_that_never_rests(&self, attacker: &Attacker, lease: &dyn Lease, accounts: Accounts) {
        let victims = format!("$KV.barograph_dir.{}", token(SOUTH));
        let own = format!("$KV.barograph_dir.{}", token(NORTH));
        // These requests make the server respond with the attacker's own content, and with errors
        // for a missing key and an empty request.
        let questions = [json!({ "last_by_subj": own }), json!({ "last_by_subj": "nobody" }), json!({})];
        let began = Instant::now();
        while began.elapsed() < 2 * lease.ttl() {
            let request = "$JS.API.DIRECT.GET.KV_barograph_dir";
            for question in &questions {
                let text = question.to_string().into();
                attacker.client.publish_with_reply(request, victims.clone(), text).await.unwrap();
            }
            // Each round waits for an answer, so that only one round is pending.
            match accounts {
                Accounts::Apart => {
                    let question = json!({ "last_by_subj": own }).to_string();
                    attacker.client.request(request, question.into()).await.unwrap();
                }
                Accounts::One => drop(attacker.ask(own.clone(), None, "x".into()).await),
            }
            assert_eq!(lease.state(), LeaseState::Held, "after {:?}", began.elapsed());
        }
    }

    /// An entry that never expires, or expires later than the longest lease, is not a registration.
    async fn endless_leases(&self, attacker: &Attacker) {
        let own = format!("$KV.barograph_dir.{}", token(NORTH));
        for ttl in [None, Some("never"), Some("301s"), Some("3601s"), Some("2h")] {
            let mut headers = HeaderMap::new();
            headers.insert("Barograph-Registration", "endless");
            if let Some(ttl) = ttl {
                headers.insert("Nats-TTL", ttl);
            }
            let stored = attacker.ask(own.clone(), Some(headers), wire::entry_text(&entry(NORTH))).await;
            assert!(stored["seq"].is_number(), "{ttl:?}: {stored}");
            let mut events = self.north.watch(&name("local"));
            assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)), "{ttl:?}");
            assert_eq!(next_item(&mut events).await, Event::Synced, "{ttl:?}");
        }
    }

    /// A station that marks its own entry as removed has left: only archives remove a station.
    async fn own_removal(&self, attacker: &Attacker, events: &mut BoxStream<Event>) {
        let lease = self.north.register(&entry(NORTH), Duration::from_secs(10)).await.unwrap();
        assert_eq!(next_item(events).await, Event::Up(entry(NORTH)));
        let headers = || {
            let mut headers = HeaderMap::new();
            for (name, value) in
                [("Barograph-Registration", "x"), ("KV-Operation", "PURGE"), ("Nats-TTL", "60s")]
            {
                headers.insert(name, value);
            }
            headers
        };
        let key = format!("$KV.barograph_dir.{}", token(NORTH));
        let stored = attacker.ask(key, Some(headers()), String::new()).await;
        assert!(stored["seq"].is_number(), "{stored}");
        assert_eq!(next_item(events).await, Event::Down(name(NORTH)));
        drop(lease);
        attacker.cannot("Publish", &format!("$KV.barograph_dir.removed/{}", token(NORTH))).await;
    }

    /// A header that empties a stream is refused on the subjects that the attacker may write.
    async fn roll_ups(&self, attacker: &Attacker) {
        for subject in
            [format!("barograph.m.{}.x.rtt", token(NORTH)), format!("$KV.barograph_dir.{}", token(NORTH))]
        {
            for what in ["all", "sub"] {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Rollup", what);
                let answer = attacker.ask(subject.clone(), Some(headers), "x".into()).await;
                assert!(answer["error"]["code"].is_number(), "{subject}: {answer}");
            }
        }
        let mut events = self.archive.watch(&name("local"));
        assert_eq!(next_item(&mut events).await, Event::Up(entry(SOUTH)), "the directory is as it was");
    }
}

/// A plain client with the permissions of a station.
pub(crate) struct Attacker {
    pub(crate) client: Client,
    said: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Attacker {
    pub(crate) async fn new(url: &str, options: ConnectOptions) -> Self {
        let (sender, said) = mpsc::unbounded_channel();
        let options =
            options.custom_inbox_prefix(format!("_INBOX_{}", token(NORTH))).event_callback(move |event| {
                let _ = sender.send(event.to_string());
                std::future::ready(())
            });
        let client = options.connect(url).await.unwrap();
        Self { client, said: said.into() }
    }

    /// Checks that the server denies a publication or a subscription to `subject`.
    pub(crate) async fn cannot(&self, what: &str, subject: &str) {
        if what == "Publish" {
            self.client.publish(subject.to_owned(), "{}".into()).await.unwrap();
        } else {
            drop(self.client.subscribe(subject.to_owned()).await.unwrap());
        }
        self.client.flush().await.unwrap();
        let expected = format!("Permissions Violation for {what} to \"{subject}\"").to_lowercase();
        let mut said = self.said.lock().await;
        loop {
            let received = tokio::time::timeout(LIMIT, said.recv()).await;
            let Ok(Some(text)) = received else { panic!("{what} to {subject} was not refused") };
            if text.to_lowercase().contains(&expected) {
                return;
            }
        }
    }

    /// Returns whether the server has sent an error that contains `what` since the last call.
    pub(crate) async fn said_any(&self, what: &str) -> bool {
        let mut said = self.said.lock().await;
        std::iter::from_fn(|| said.try_recv().ok()).any(|text| text.to_lowercase().contains(what))
    }

    /// Publishes to a permitted subject. Returns the server's response.
    pub(crate) async fn ask(&self, subject: String, headers: Option<HeaderMap>, payload: String) -> Value {
        let headers = headers.unwrap_or_default();
        let answer = self.client.request_with_headers(subject, headers, payload.into()).await.unwrap();
        serde_json::from_slice(&answer.payload).unwrap()
    }

    /// Sends `count` requests to an archive at once. Returns the responses, on whichever subject
    /// each response arrives.
    pub(crate) async fn questions(&self, kind: &str, count: usize, question: Value) -> Vec<Value> {
        self.requests(kind, vec![(question, String::new()); count]).await
    }

    /// Sends one request to an archive to write `body`. Returns the response.
    pub(crate) async fn write(&self, kind: &str, request: Value, body: &str) -> Value {
        self.requests(kind, vec![(request, body.to_owned())]).await.remove(0)
    }

    /// Sends requests, each with its body, to an archive at once. Requests to write have a nonce of
    /// this archive. Returns the responses in the order of their arrival.
    pub(crate) async fn requests(&self, kind: &str, mut requests: Vec<(Value, String)>) -> Vec<Value> {
        if !matches!(kind, "append" | "register") {
            return self.send(kind, requests).await;
        }
        let refused = self.send(kind, vec![(json!({}), String::new())]).await.remove(0);
        for (request, _) in &mut requests {
            request["nonce"] = refused["nonce"].clone();
        }
        self.send(&format!("{kind}-{}", refused["archive"]), requests).await
    }

    async fn send(&self, kind: &str, requests: Vec<(Value, String)>) -> Vec<Value> {
        let inbox = self.client.new_inbox();
        let session = inbox.rsplit('.').next().unwrap();
        let answers = format!("barograph.b.{}.{session}.*", token(NORTH));
        let mut subscriptions = Vec::new();
        for subject in [answers, format!("{inbox}.*")] {
            subscriptions.push(self.client.subscribe(subject).await.unwrap());
        }
        let count = requests.len();
        for (index, (mut request, body)) in requests.into_iter().enumerate() {
            request["after_place"] = request["after_place"].as_u64().unwrap_or(0).into();
            request["answer"] = format!("{session}.{index}").into();
            let subject = format!("barograph.a.{}.{kind}", token(NORTH));
            let reply = format!("{inbox}.{index}");
            let body = if body.is_empty() { body } else { format!("\n{body}") };
            let message = format!("{request}{body}").into();
            self.client.publish_with_reply_and_headers(subject, reply, asked(), message).await.unwrap();
        }
        let messages = futures_util::stream::select_all(subscriptions).take(count);
        let answers = messages.map(|message| serde_json::from_slice(&message.payload).unwrap());
        tokio::time::timeout(LIMIT, answers.collect()).await.unwrap()
    }
}

/// Headers of a request to archives.
pub(crate) fn asked() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Barograph-Question", "1");
    headers
}

/// Key of the attacker's entry.
fn own_key() -> String {
    format!("$KV.barograph_dir.{}", token(NORTH))
}

/// Subjects of the streams to which the attacker may publish with older lists.
pub(crate) fn own_subjects() -> Vec<String> {
    let north = token(NORTH);
    vec![
        format!("barograph.m.{north}.x.rtt"),
        format!("barograph.r.{north}"),
        own_key(),
        format!("$KV.barograph_dir.removed/{north}"),
    ]
}

fn refused_publications() -> Vec<String> {
    let (south, north) = (token(SOUTH), token(NORTH));
    let mut subjects = vec![
        format!("barograph.m.{south}.x.rtt"),
        format!("barograph.n.{south}.x.rtt"),
        format!("barograph.r.{south}"),
        format!("barograph.d.{south}"),
        format!("barograph.m.{SOUTH}.x.rtt"),
        format!("$KV.barograph_dir.{south}"),
        format!("_INBOX_{south}.x"),
        format!("barograph.b.{south}.x.1"),
        format!("barograph.b.{north}.x.1"),
        format!("_INBOX_{north}.x"),
        "$SYS.REQ.SERVER.PING".into(),
        "$JS.API.STREAM.CREATE.OTHER".into(),
    ];
    for stream in ["BAROGRAPH", "KV_barograph_dir"] {
        let calls =
            ["STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT"];
        subjects.extend(calls.map(|call| format!("$JS.API.{call}.{stream}")));
        subjects.extend([
            format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.thief.barograph.m.x.x.rtt"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.archive"),
            format!("$JS.API.CONSUMER.DELETE.{stream}.archive"),
        ]);
    }
    subjects
}

/// Requests with which a member could make a server copy or search without a limit: batches and
/// scans of the stream of records, and the extent of a stream with its subjects or gaps.
fn refused_reads() -> Vec<String> {
    let stored = format!("barograph.m.{}.x.rtt", token(NORTH));
    let mut subjects = vec!["barograph.g.BAROGRAPH".into(), "$JS.API.DIRECT.GET.BAROGRAPH".into()];
    // Requests to an archive in the name of a different station, or without a name.
    subjects.extend([format!("barograph.a.{}.latest", token(SOUTH)), "barograph.a.latest".into()]);
    subjects.extend([format!("$JS.API.DIRECT.GET.BAROGRAPH.{stored}"), "$JS.API.INFO".into()]);
    for stream in ["BAROGRAPH", "KV_barograph_dir"] {
        subjects.extend([format!("$JS.API.STREAM.INFO.{stream}"), format!("barograph.i.{stream}")]);
    }
    subjects
}
