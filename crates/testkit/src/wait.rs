//! Waiting with a limit.

use std::time::{Duration, Instant};

use barograph_engine::BoxStream;
use futures_util::StreamExt as _;

/// Every wait of a test ends after this: what measures takes long to settle on a busy computer.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The time between two looks: it spares the processor that the tested program needs.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `is_so`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_some(|| if is_so() { Ok(()) } else { Err(what) });
}

/// Looks until there is an answer.
pub fn until_some<T, E: std::fmt::Display>(mut look: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(why) => assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {why}"),
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The next item of a stream that goes on.
pub async fn next<T>(stream: &mut BoxStream<T>) -> T {
    let item = tokio::time::timeout(LIMIT, stream.next()).await.expect("an item in time");
    item.expect("the stream goes on").expect("an item")
}
