//! Thousands of sends that are cancelled at any point leave no socket and no task. This test is a
//! separate program, because it counts the open sockets of the whole process.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use barograph_timeout::FixedTimeout;
use barograph_timeout::link::wire::Welcome;
use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Listener, Message, SendError};
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

/// Every wait here is much shorter; a longer wait is a failure.
const LONG: Duration = Duration::from_secs(60);
const CANCELS: u32 = 3000;
const MUTE_MESSAGES: u64 = 100;

fn sockets() -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    open.filter(|what| what.to_string_lossy().starts_with("socket:")).count()
}

/// Polls `future` up to `times` times, lets other tasks run in between, and then drops it.
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
    let mut link = Link::tcp(target, LinkConfig::default(), FixedTimeout(LONG));
    let (mut kept, mut given_up) = (Vec::new(), 0);
    while given_up < CANCELS {
        // Short messages are written at once; long messages are also cancelled while they are
        // written.
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
    assert!(kept.len() > 10);
    drop(link);

    // The listener detects the last closed connections a little later than the sender closes them.
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
    assert_eq!(counters.protocol_errors, 0);
}

/// Each attempt of each message times out and drops its connection.
async fn nothing_is_left_of_tries_that_timed_out() {
    let sockets_before = sockets();
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = mute.local_addr().unwrap().to_string();
    // The server sends a welcome on each connection, and then keeps the connection open until the
    // peer closes it.
    let serving = tokio::spawn(async move {
        let mut held = JoinSet::new();
        loop {
            let (mut stream, _) = mute.accept().await.unwrap();
            held.spawn(async move {
                let _ = stream.write_all(&Welcome::Ready { message_bytes_max: 1000 }.encode()).await;
                let mut received = [0; 1000];
                while let Ok(1..) = stream.read(&mut received).await {}
            });
            while held.try_join_next().is_some() {}
        }
    });
    let mut link = Link::tcp(target, LinkConfig::default(), FixedTimeout(Duration::from_millis(1)));
    let mut most = 0;
    for _ in 0..MUTE_MESSAGES {
        let error = timeout(LONG, link.send(b"hello?")).await.unwrap().unwrap_err();
        assert!(matches!(error, SendError::Unacknowledged { attempts: 5, timeouts: 5, .. }), "{error:?}");
        assert!(!link.is_connected());
        most = most.max(sockets());
    }
    let counters = link.counters();
    assert_eq!((counters.retries, counters.connections), (4 * MUTE_MESSAGES, 5 * MUTE_MESSAGES));
    // The link still exists and holds no socket. A few sockets of the peer may still be open.
    assert!(most < sockets_before + 50, "{most} sockets at a time, {sockets_before} before");
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let all_gone = async {
        while tasks_before < Handle::current().metrics().num_alive_tasks() || sockets_before < sockets() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, all_gone).await.expect("a socket is left for each try that leaks");
    drop(link);
}

/// Runs both tests one after the other, because each counts the sockets of the whole process.
#[tokio::test]
async fn cancelled_sends_and_timed_out_attempts_leave_no_sockets() {
    nothing_is_left_of_sends_that_were_given_up().await;
    nothing_is_left_of_tries_that_timed_out().await;
}
