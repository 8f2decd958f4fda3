//! Nonces in the requests of a station. A test answers as the archive.

use std::sync::atomic::Ordering;

use barograph_engine::{Engine, EngineError};
use serde_json::{Value, json};

use crate::nats::archive_writes::FakeArchive;
use crate::nats::deployed::NORTH;
use crate::nats::values::record;

/// An archive requires a newer nonce, and answers too late. The station sends its next request with
/// this nonce.
#[tokio::test]
async fn a_nonce_is_kept_when_a_request_has_no_answer() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let (sender, mut nonces) = tokio::sync::mpsc::unbounded_channel();
    fake.answer(move |_, request| {
        sender.send(request["nonce"].clone()).unwrap();
        match request["nonce"] {
            Value::Null => {
                json!({ "archive": 7, "nonce": "n1", "error": { "kind": "stale", "text": "x" } })
            }
            _ => Value::Null,
        }
    })
    .await;
    for _ in 0..2 {
        let unknown = fake.north.append(&[record(NORTH, "x", 1)]).await;
        assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    }
    let nonces = [nonces.recv().await, nonces.recv().await, nonces.recv().await];
    assert_eq!(nonces, [Some(Value::Null), Some(json!("n1")), Some(json!("n1"))]);
}

/// An archive that was restarted accepts no nonce that it issued before.
#[tokio::test]
async fn a_station_writes_at_once_to_an_archive_that_was_restarted() {
    let Some(fake) = FakeArchive::new("$JS.API.STREAM.>").await else { return };
    let mut stored = 0_usize;
    let requests = fake
        .answer(move |_, request| {
            let nonce = if stored == 0 { "n1" } else { "n2" };
            if request["nonce"] != nonce {
                return json!({ "archive": 7, "nonce": nonce, "error": { "kind": "stale", "text": "x" } });
            }
            stored += 1;
            json!({ "archive": 7, "nonce": nonce, "number": stored })
        })
        .await;
    for seq in 1..=2 {
        fake.north.append(&[record(NORTH, "x", seq)]).await.unwrap();
    }
    assert_eq!(requests.load(Ordering::Relaxed), 4, "each record is refused once");
}
