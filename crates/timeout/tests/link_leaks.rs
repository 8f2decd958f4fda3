//! Thousands of sends that are given up at any point: no socket and no task is left. A test program of its
//! own, because it counts what the whole process has open.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use barograph_timeout::Static;
use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Listener, Message};
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

/// No wait here needs as much; one that does has failed.
const LONG: Duration = Duration::from_secs(60);
const CANCELS: u32 = 3000;

fn sockets() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    open.filter(|what| what.to_string_lossy().starts_with("socket:")).count()
}

/// Polls `future` up to so many times, in between letting everything else run, and then drops it.
async fn polled<F: Future>(future: F, times: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

#[tokio::test]
async fn nothing_is_left_of_sends_that_were_given_up() {
    let sockets_before = sockets();
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let listener = Listener::bind("127.0.0.1:0", ListenConfig::default()).await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let written = handled.clone();
    let handler = move |message: Message| {
        let written = written.clone();
        async move {
            yield_now().await;
            written.lock().unwrap().push((message.id, message.bytes.len()));
            Ok::<(), ()>(())
        }
    };
    let serving = tokio::spawn(async move {
        listener.serve(handler, async { _ = stopped.await }).await;
        listener.counters()
    });

    let mut luck = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
    let mut link = Link::tcp(target, LinkConfig::default(), Static(LONG));
    let (mut kept, mut given_up) = (Vec::new(), 0);
    while given_up < CANCELS {
        // Short ones are written at once; long ones are given up half-written as well.
        let message = vec![0; [10, 10_000, 1_000_000][luck.next_u32() as usize % 3]];
        match polled(link.send(&message), luck.next_u32() % 12).await {
            None => given_up += 1,
            Some(receipt) => kept.push((receipt.unwrap().id, message.len())),
        }
        if given_up % 100 == 0 {
            let receipt = timeout(LONG, link.send(&message)).await.unwrap().unwrap();
            kept.push((receipt.id, message.len()));
        }
    }
    assert!(10 < kept.len());
    drop(link);

    // The listener hears of the last closed connections in its own time.
    let all_gone = async {
        while tasks_before + 1 < Handle::current().metrics().num_alive_tasks() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, all_gone).await.expect("a task is left for each connection that leaks");
    drop(stop);
    let counters = timeout(LONG, serving).await.unwrap().unwrap();
    assert_eq!(Handle::current().metrics().num_alive_tasks(), tasks_before);
    assert_eq!(sockets(), sockets_before);

    let handled = handled.lock().unwrap();
    assert!(handled.is_sorted_by(|a, b| a.0 < b.0), "each at most once, in order");
    assert!(kept.iter().all(|message| handled.contains(message)), "and what was acknowledged was handled");
    assert_eq!((counters.protocol_errors, counters.strangers <= counters.connections), (0, true));
}
