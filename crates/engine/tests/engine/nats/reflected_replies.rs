//! Attack: a station makes the server send responses with chosen content to the server's own
//! subjects. A server publishes a response in the server's name, without a check of permissions.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use async_nats::HeaderMap;
use barograph_engine::{Engine as _, Nats, token, wire};
use serde_json::{Value, json};

use crate::nats::attack::{Attacker, asked};
use crate::nats::deployed::NORTH;
use crate::nats::server::{self, LIMIT, NatsServer};
use crate::nats::values::{entry, eventually, name};

/// State of a server's JetStream in its monitoring: streams with their configuration, consumers,
/// accounts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inventory(Vec<Value>);

impl Inventory {
    pub(crate) fn of(server: &NatsServer) -> Self {
        let text = monitoring(server, "/jsz?accounts=1&streams=1&consumers=1&config=1");
        let all: Value = serde_json::from_str(&text).unwrap();
        let accounts = all["account_details"].as_array().cloned().unwrap_or_default();
        let mut found = Vec::new();
        for account in &accounts {
            for stream in account["stream_detail"].as_array().cloned().unwrap_or_default() {
                let first = &stream["state"]["first_seq"];
                let is_records = stream["name"] == "BAROGRAPH";
                found.push(json!({
                    "account": account["name"],
                    "stream": stream["name"],
                    "created": stream["created"],
                    "config": stream["config"],
                    "consumers": stream["state"]["consumer_count"],
                    // In the directory each key has only its newest entry, so the first number of
                    // that stream changes without an attack.
                    "first": if is_records { first.clone() } else { Value::Null },
                    "deleted": if is_records { stream["state"]["num_deleted"].clone() } else { Value::Null },
                }));
            }
        }
        found.sort_by_key(|stream| stream["stream"].to_string());
        Self(found)
    }

    /// Names of the server's accounts, in the form that the header of a request needs.
    fn accounts(&self) -> BTreeSet<String> {
        self.0.iter().filter_map(|stream| stream["account"].as_str().map(str::to_owned)).collect()
    }
}

/// Number of subjects of the stream of records.
pub(crate) fn subjects(server: &NatsServer) -> u64 {
    let text = monitoring(server, "/jsz?accounts=1&streams=1");
    let all: Value = serde_json::from_str(&text).unwrap();
    let accounts = all["account_details"].as_array().unwrap().iter();
    let mut streams = accounts.flat_map(|account| account["stream_detail"].as_array().unwrap());
    let records = streams.find(|stream| stream["name"] == "BAROGRAPH").unwrap();
    records["state"]["num_subjects"].as_u64().unwrap()
}

/// The server's own subjects, each with the most harmful content.
fn targets() -> Vec<(String, Value)> {
    let north = token(NORTH);
    let mut targets = vec![
        ("$JS.API.STREAM.CREATE.STOLEN".into(), json!({"name": "STOLEN", "subjects": ["stolen"]})),
        ("$JS.API.STREAM.NAMES".into(), json!({})),
        ("$JS.API.ACCOUNT.PURGE.BAROGRAPH".into(), json!({})),
        ("$JS.API.META.LEADER.STEPDOWN".into(), json!({})),
        ("$JS.API.SERVER.REMOVE".into(), json!({"peer": "nats"})),
        ("$SYS.REQ.SERVER.PING".into(), json!({})),
        ("$SYS.REQ.SERVER.PING.KICK".into(), json!({"cid": 1})),
        ("$SYS.REQ.CLAIMS.UPDATE".into(), json!({})),
        ("$SYS.REQ.CLAIMS.DELETE".into(), json!({})),
        ("$SYS.REQ.USER.INFO".into(), json!({})),
    ];
    for stream in ["BAROGRAPH", "KV_barograph_dir"] {
        let subjects = match stream {
            "BAROGRAPH" => "barograph.r.*",
            _ => "$KV.barograph_dir.*",
        };
        let consumer = |durable: Option<&str>| {
            let mut config =
                json!({"deliver_subject": format!("_INBOX_{north}.stolen"), "ack_policy": "none"});
            if let Some(name) = durable {
                config["durable_name"] = name.into();
            }
            json!({"stream_name": stream, "config": config})
        };
        targets.extend([
            (
                format!("$JS.API.STREAM.UPDATE.{stream}"),
                json!({"name": stream, "subjects": [subjects], "max_msgs": 5, "num_replicas": 1}),
            ),
            (format!("$JS.API.STREAM.MSG.DELETE.{stream}"), json!({"seq": 1})),
            (format!("$JS.API.STREAM.PURGE.{stream}"), json!({})),
            (format!("$JS.API.STREAM.SNAPSHOT.{stream}"), json!({"deliver_subject": "stolen"})),
            (format!("$JS.API.STREAM.RESTORE.{stream}"), json!({"config": {"name": stream}, "state": {}})),
            (format!("$JS.API.STREAM.PEER.REMOVE.{stream}"), json!({"peer": "nats"})),
            (format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"), json!({})),
            (format!("$JS.API.CONSUMER.CREATE.{stream}"), consumer(None)),
            (format!("$JS.API.CONSUMER.CREATE.{stream}.thief"), consumer(None)),
            (format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.thief"), consumer(Some("thief"))),
            (format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.thief"), json!({"batch": 1})),
            (format!("$JS.API.STREAM.DELETE.{stream}"), json!({})),
        ]);
    }
    targets
}

/// Runs the attack of a station that publishes to no stream; the attack must have no effect.
pub(crate) async fn attack(attacker: &Attacker, server: &NatsServer, attackers: &Nats) {
    let before = Inventory::of(server);
    let north = token(NORTH);
    let registration = json!({ "registration": { "id": "x", "ttl_s": 300 } });
    // A station chooses some of the text of its entry.
    let stored = wire::entry_text(&entry(NORTH));
    eventually("an entry", async || {
        attacker.write("register", registration.clone(), &stored).await["number"].as_u64()
    })
    .await;
    let questions = ["watermark", "append", "register"].map(|kind| format!("barograph.a.{north}.{kind}"));
    for (target, content) in &targets() {
        for headers in before.accounts().iter().flat_map(|account| forged(account, target)) {
            for subject in questions.iter().map(String::as_str).chain(["barograph.g.KV_barograph_dir"]) {
                let (subject, reply) = (subject.to_owned(), target.clone());
                let content = content.to_string().into();
                let sent =
                    attacker.client.publish_with_reply_and_headers(subject, reply, headers.clone(), content);
                sent.await.unwrap();
            }
        }
        let key = format!("$KV.barograph_dir.{north}");
        read_onto(attacker, "KV_barograph_dir", &key, target).await;
        answer_onto(attacker, &questions, target, content).await;
        attacker.client.flush().await.unwrap();
    }
    // The server processes earlier requests before this request.
    let seq = eventually("a number", async || attackers.next_seq(&name(NORTH)).await.ok()).await;
    server::canary(attackers, NORTH, seq).await;
    assert_eq!(Inventory::of(server), before);
}

/// Runs the attack on a server where stations share the account of the streams, as in older
/// versions. There the attack deletes a stream, which shows that the attack itself works.
pub(crate) async fn control(attacker: &Attacker, server: &NatsServer) {
    let before = Inventory::of(server);
    let deletes = targets().into_iter().filter(|(target, _)| target.starts_with("$JS.API.STREAM.DELETE."));
    reflect(attacker, &before, &deletes.collect::<Vec<_>>()).await;
    eventually("a stream less", async || (Inventory::of(server).0.len() < before.0.len()).then_some(()))
        .await;
}

/// Makes the server respond to each of these subjects with content that the attacker stored before.
async fn reflect(attacker: &Attacker, before: &Inventory, targets: &[(String, Value)]) {
    let own = [
        (format!("$KV.barograph_dir.{}", token(NORTH)), "KV_barograph_dir"),
        (format!("barograph.m.{}.x.rtt", token(NORTH)), "BAROGRAPH"),
    ];
    for (target, content) in targets {
        for (key, stream) in &own {
            for headers in before.accounts().iter().flat_map(|account| forged(account, target)) {
                let content = content.to_string();
                if headers.get("Nats-Trace-Dest").is_some() {
                    // The server drops this request without a reply if the sender may not publish
                    // to the reply subject.
                    attacker.client.publish_with_headers(key.clone(), headers, content.into()).await.unwrap();
                } else {
                    // There is no answer after the attack has deleted the stream.
                    let stored = attacker.client.request_with_headers(key.clone(), headers, content.into());
                    let _ = stored.await;
                }
                read_onto(attacker, stream, key, target).await;
                attacker.client.flush().await.unwrap();
            }
        }
        answer_onto(attacker, &[own[0].0.clone()], target, content).await;
    }
}

/// Requests the stored message of `key` with `target` as the reply subject.
async fn read_onto(attacker: &Attacker, stream: &str, key: &str, target: &str) {
    let get = format!("$JS.API.DIRECT.GET.{stream}");
    for question in [json!({ "last_by_subj": key }), json!({ "multi_last": [key] })] {
        let (get, target) = (get.clone(), target.to_owned());
        let sent = attacker.client.publish_with_reply(get, target, question.to_string().into());
        sent.await.unwrap();
    }
}

/// Makes the server send its response to a publication, and a response about a stream, to `target`.
/// Then makes an archive respond to this subject. An archive may publish to all of them.
async fn answer_onto(attacker: &Attacker, asked_subjects: &[String], target: &str, content: &Value) {
    let info = "$JS.API.STREAM.INFO.BAROGRAPH".to_owned();
    for subject in asked_subjects.iter().chain([&info]) {
        let content = content.to_string().into();
        attacker.client.publish_with_reply(subject.clone(), target.to_owned(), content).await.unwrap();
    }
    for kind in ["watermark", "append"] {
        for answer in ["s.1", target, &format!("s.1.{target}"), "*.>", ">", "s.*", ""] {
            let content = json!({ "after_place": 0, "origin": NORTH, "answer": answer }).to_string();
            let (subject, reply) = (format!("barograph.a.{}.{kind}", token(NORTH)), target.to_owned());
            let sent =
                attacker.client.publish_with_reply_and_headers(subject, reply, asked(), content.into());
            sent.await.unwrap();
        }
    }
}

/// Headers that make a server attribute a request to `account`: the sets have one, two and three
/// copies of the header, because the server may not remove every copy. One set also has a header
/// that makes the server send traces of the message to `target`.
fn forged(account: &str, target: &str) -> Vec<HeaderMap> {
    let info = json!({ "acc": account, "svc": account, "user": "archive.example.net" }).to_string();
    let times = |count: usize| {
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            headers.append("Nats-Request-Info", info.as_str());
        }
        headers
    };
    let mut traced = times(3);
    traced.insert("Nats-Trace-Dest", target);
    vec![times(1), times(2), times(3), traced]
}

/// Reads a page of the server's monitoring.
pub(crate) fn monitoring(server: &NatsServer, path: &str) -> String {
    let mut stream = TcpStream::connect(server.monitoring_address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}
