//! Names, records and entries of the tests.

use std::future::Future;
use std::time::Duration;

use barograph_engine::{BoxStream, Capabilities, Entry, Record};
use barograph_forecast::{Name, Outcome, Quantity, Series};
use futures_util::StreamExt as _;

use crate::server::LIMIT;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn record(origin: &str, target: &str, seq: u64) -> Record {
    let series = Series { source: name(origin), target: name(target), quantity: Quantity::RTT };
    let time_unix_ns = 1_767_225_600_000_000_000 + seq.cast_signed() * 1_000_000;
    let outcome = Outcome::Value(seq as f64);
    Record { origin: name(origin), seq, series, time_unix_ns, outcome, detail: String::new() }
}

pub(crate) fn entry(host: &str) -> Entry {
    Entry {
        host: name(host),
        addresses: vec![std::net::SocketAddr::from(([127, 0, 0, 1], 9))],
        version: "1".into(),
        groups: vec![name("local")],
        capabilities: Capabilities::default(),
        key: None,
    }
}

pub(crate) async fn next<T>(stream: &mut BoxStream<T>) -> T {
    let item = tokio::time::timeout(LIMIT, stream.next()).await.expect("an item in time");
    item.expect("the stream goes on").expect("an item")
}

/// Asks again until the answer is there.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let until = tokio::time::Instant::now() + LIMIT;
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < until, "{what} within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
