//! Names, records and entries of the tests.

use std::future::Future;
use std::time::Duration;

pub(crate) use barograph_testkit::{entry, name, next_item, record};

use crate::nats::server::LIMIT;

/// Calls `ask` repeatedly until `ask` returns a value.
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
