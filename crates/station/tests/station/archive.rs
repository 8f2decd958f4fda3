//! Tests with an archive that fails, recovers, receives repeated records and loses responses; and
//! with the archive after a restart.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use barograph_engine::{Engine, EngineError, Record};
use barograph_station::Station;
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine};

use crate::http::{get, get_until, post};
use crate::{quiet, start, start_over};

/// An engine in memory that fails appends on request.
#[derive(Default)]
struct Failing {
    fails: AtomicBool,
    /// Whether the engine stores the records and then reports that the result is unknown.
    forgets_to_answer: AtomicBool,
    /// Refuse all records as invalid.
    takes_none: AtomicBool,
    /// Sequence numbers from 3 up to this number count as used by a different station.
    given_up: AtomicU64,
    appends: AtomicU64,
    records: Mutex<Vec<Record>>,
}

#[async_trait::async_trait]
impl EngineHooks for Failing {
    fn route(&self, call: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        Err(match call {
            EngineCall::History | EngineCall::Latest => EngineError::Corrupt("page 7".into()),
            _ => EngineError::Unavailable("no directory".into()),
        })
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(EngineError::Unavailable("the disk is full".into()));
        }
        if self.takes_none.load(Ordering::SeqCst) {
            return Err(EngineError::Invalid("the archive is at its limit: 4 series (new: x)".into()));
        }
        let mut records = self.records.lock().unwrap();
        for record in batch {
            record.check()?;
            if 3 <= record.seq && record.seq <= self.given_up.load(Ordering::SeqCst) {
                return Err(EngineError::Invalid("read the next sequence number again".into()));
            }
            if !records.iter().any(|known| (&known.origin, known.seq) == (&record.origin, record.seq)) {
                records.push(record.clone());
            }
        }
        if self.forgets_to_answer.swap(false, Ordering::SeqCst) {
            return Err(EngineError::Unknown("the answer was lost".into()));
        }
        Ok(())
    }

    fn fixed_number(&self, call: EngineCall<'_>) -> Option<u64> {
        let given_up = self.given_up.load(Ordering::SeqCst);
        Some(if matches!(call, EngineCall::Watermark) { 0 } else { 1 + given_up })
    }
}

fn sensing(state: &std::path::Path) -> barograph_station::Config {
    barograph_station::Config { sensor_period: Duration::from_millis(100), ..quiet(state) }
}

/// A station's own measurements that its archive refuses are lost: the health is degraded.
#[test]
fn own_measurements_beyond_an_archive_limit_degrade_the_health() {
    let state = tempfile::tempdir().unwrap();
    let engine = HookedEngine::new(Failing::default());
    engine.takes_none.store(true, Ordering::SeqCst);
    let station = start_over(sensing(state.path()), Arc::clone(&engine) as _);
    let address = station.address();
    let degraded = get_until(address, "/healthz", |answer| {
        answer.status == 503 && answer.json()["reasons"].to_string().contains("broke a limit")
    });
    assert_eq!(degraded.json()["last_append_age_s"], serde_json::Value::Null, "nothing was appended");
    let one = r#"{"records": [{"quantity": "a", "value": 1}]}"#;
    assert_eq!(post(address, "/v1/measurements", one).status, 400);
    assert_eq!(crate::limits::limit(address, "fed_records")["refused"], 1);
}

#[test]
fn a_station_without_its_archive_keeps_measuring_and_is_degraded() {
    let state = tempfile::tempdir().unwrap();
    let engine = HookedEngine::new(Failing::default());
    engine.fails.store(true, Ordering::SeqCst);
    let mut config = sensing(state.path());
    config.spool_records_max = 5;
    let station = start_over(config, Arc::clone(&engine) as _);
    let address = station.address();

    let degraded = get_until(address, "/healthz", |answer| {
        let health = answer.json();
        // The count and the reasons are not read at the same time, so the count may already be
        // above 0 while the reason is still missing.
        let says_so = health["reasons"].to_string().contains("dropped");
        answer.status == 503 && says_so && health["spool_dropped"].as_u64().unwrap() > 0
    });
    let health = degraded.json();
    assert_eq!(health["status"], "degraded");
    let reasons = health["reasons"].to_string();
    for word in ["the disk is full", "history could not be replayed", "dropped"] {
        assert!(reasons.contains(word), "{reasons}");
    }
    // Measuring continues in memory: the series grows.
    get_until(address, "/v1/series?quantity=memory_free", |answer| {
        answer.json()["series"][0]["count"].as_u64().unwrap_or(0) >= 3
    });
    let refused = post(address, "/v1/measurements", r#"{"records": [{"quantity": "a", "value": 1}]}"#);
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after"), "{}", refused.head);
    assert!(get(address, "/metrics").body.contains("barograph_archive_up 0.0"));
    assert_eq!(get(address, "/v1/latest").status, 503);
    let damaged = get(address, "/healthz");
    assert!(
        damaged.body.contains("history cannot be read: the archive is damaged: page 7"),
        "{}",
        damaged.body
    );

    engine.fails.store(false, Ordering::SeqCst);
    get_until(address, "/metrics", |answer| answer.body.contains("barograph_archive_up 1.0"));
    assert_eq!(
        post(address, "/v1/measurements", r#"{"records": [{"quantity": "a", "value": 1}]}"#).status,
        201
    );
    assert_eq!(station.stop(crate::LIMIT), 0);
    let records = engine.records.lock().unwrap();
    let sequences: Vec<u64> = records.iter().map(|record| record.seq).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "no gap for what was dropped");
}

#[test]
fn an_append_with_unknown_result_is_repeated_and_stored_once() {
    let state = tempfile::tempdir().unwrap();
    let engine = HookedEngine::new(Failing::default());
    engine.forgets_to_answer.store(true, Ordering::SeqCst);
    let station = start_over(sensing(state.path()), Arc::clone(&engine) as _);
    get_until(station.address(), "/healthz", |answer| {
        engine.appends.load(Ordering::SeqCst) > 2 && answer.body.contains("last_append_age_s\":0")
    });
    assert_eq!(station.stop(crate::LIMIT), 0);
    let records = engine.records.lock().unwrap();
    let mut identities: Vec<(u64, i64)> =
        records.iter().map(|record| (record.seq, record.time_unix_ns)).collect();
    identities.dedup_by_key(|(_, time)| *time);
    assert_eq!(identities.len(), records.len(), "nothing twice");
}

#[test]
fn sequence_numbers_that_the_archive_gave_up_are_requested_again() {
    let state = tempfile::tempdir().unwrap();
    let engine = HookedEngine::new(Failing::default());
    let station = start_over(sensing(state.path()), Arc::clone(&engine) as _);
    get_until(station.address(), "/healthz", |_| engine.records.lock().unwrap().len() >= 3);
    let before = engine.records.lock().unwrap().len() as u64;
    engine.given_up.store(5000, Ordering::SeqCst);
    get_until(station.address(), "/healthz", |_| before + 5 < engine.records.lock().unwrap().len() as u64);
    assert_eq!(station.stop(crate::LIMIT), 0);
    let records = engine.records.lock().unwrap();
    let sequences: Vec<u64> = records.iter().map(|record| record.seq).collect();
    let first = sequences.iter().position(|seq| *seq > 5000).unwrap() as u64;
    let expected = (1..=first).chain(5001..5001 + sequences.len() as u64 - first);
    assert_eq!(sequences, expected.collect::<Vec<_>>(), "none is lost, and none has a number of others");
}

#[test]
fn stopping_with_a_failed_archive_ends_in_time_and_counts_lost_records() {
    let state = tempfile::tempdir().unwrap();
    let engine = HookedEngine::new(Failing::default());
    engine.fails.store(true, Ordering::SeqCst);
    let station = start_over(sensing(state.path()), Arc::clone(&engine) as _);
    get_until(station.address(), "/healthz", |answer| {
        answer.status == 503 && !answer.body.contains("\"spool_records\":0")
    });
    let began = std::time::Instant::now();
    let lost = station.stop(Duration::from_secs(1));
    assert!(lost > 0);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn history_and_forecasts_survive_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let series = "source=here&target=here&quantity=depth";
    let values: Vec<_> =
        (0..50).map(|i| serde_json::json!({ "quantity": "depth", "value": (i * 7) % 11 })).collect();
    let station = start(quiet(state.path()));
    post(station.address(), "/v1/measurements", &serde_json::json!({ "records": values }).to_string());
    let recent = get(station.address(), &format!("/v1/recent?{series}")).json();
    assert_eq!(station.stop(crate::LIMIT), 0);

    let station = start(quiet(state.path()));
    let again = get(station.address(), &format!("/v1/recent?{series}")).json();
    assert_eq!(again, recent, "points, forecasts issued for them, and the next");
}

#[test]
fn an_unusable_archive_or_port_or_token_is_named_in_the_error() {
    let state = tempfile::tempdir().unwrap();
    let config = quiet(state.path());
    let running = start(config.clone());
    let second = barograph_station::open_archive(&config).err().unwrap().to_string();
    assert!(second.contains("another"), "{second}");

    let other = tempfile::tempdir().unwrap();
    let mut taken = quiet(other.path());
    taken.listen = running.address();
    let error = Station::start(taken, HookedEngine::new(Failing::default())).err().unwrap().to_string();
    assert!(error.starts_with(&format!("cannot listen on {}", running.address())), "{error}");

    let mut no_token = quiet(other.path());
    std::fs::write(other.path().join("token"), "").unwrap();
    no_token.listen = "127.0.0.1:0".parse().unwrap();
    let error = Station::start(no_token, HookedEngine::new(Failing::default())).err().unwrap().to_string();
    assert!(error.contains("token"), "{error}");

    let file = tempfile::NamedTempFile::new().unwrap();
    let error = barograph_station::open_archive(&quiet(file.path())).err().unwrap().to_string();
    assert!(error.contains(file.path().to_str().unwrap()), "{error}");
}
