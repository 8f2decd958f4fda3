//! Waits for a condition, with a limit.

use std::time::{Duration, Instant};

use barograph_engine::BoxStream;
use futures_util::StreamExt as _;

/// Time limit of each wait in a test. The limit is long, because measurements settle slowly on a
/// busy computer.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Time between two checks. During this time the processor is free for the program under test.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `is_so` returns true; after [`LIMIT`] it panics with a message that contains `what`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(|| if is_so() { Ok(()) } else { Err(what) });
}

/// Calls `look` until it returns a value; panics with the last error of `look` after [`LIMIT`].
pub fn wait_for<T, E: std::fmt::Display>(mut look: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(why) => assert!(began.elapsed() < LIMIT, "the condition was not met within {LIMIT:?}: {why}"),
        }
        std::thread::park_timeout(CHECK_INTERVAL);
    }
}

/// Returns the next item of a stream; panics if no item arrives within [`LIMIT`].
pub async fn next_item<T>(stream: &mut BoxStream<T>) -> T {
    let item = tokio::time::timeout(LIMIT, stream.next()).await.expect("an item in time");
    item.expect("the stream goes on").expect("an item")
}
