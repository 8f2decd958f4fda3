//! Timed streams against a real responder on loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use barograph_probe::io::{CancellationToken, ResponderLimits, stream};
use barograph_probe::stop::SettledRateConfig;
use barograph_probe::stream::{EarlyStopPolicy, StreamEnd, StreamPlan};
use barograph_probe::wire::{self, BulkSummary, DeclineReason, Reply, Request};

use crate::common::{LONG, Server, context, listener, listener_with, reply, reset, session, target, upgrade};

fn plan(seconds: f64) -> StreamPlan {
    StreamPlan { seconds, ..StreamPlan::full() }
}

#[test]
fn a_stream_runs_for_its_duration_and_counts_received_bytes() {
    let listener = listener();
    let streamed = stream(&target(listener.address()), &plan(0.5), &context(LONG)).unwrap();
    // A fast machine may send the responder's maximum before half a second is over.
    match streamed.ended {
        StreamEnd::Full => assert!(streamed.duration_s >= 0.5 && streamed.bytes < StreamPlan::BYTES_MAX),
        StreamEnd::Bytes => assert_eq!(streamed.bytes, StreamPlan::BYTES_MAX),
        StreamEnd::Early(_) => panic!("an early end was not allowed"),
    }
    assert!(streamed.duration_s <= streamed.elapsed_s);
    let rate = streamed.bytes as f64 * 8.0 / streamed.elapsed_s;
    assert!(rate <= streamed.whole_bit_s && streamed.whole_bit_s < rate * 1.5, "{streamed:?}");
    if cfg!(target_os = "linux") {
        let samples = streamed.samples.as_slice();
        assert!(samples.len() > 1 && samples.windows(2).all(|pair| pair[0].time_s <= pair[1].time_s));
        assert!(samples.iter().all(|sample| sample.acked_bytes <= streamed.bytes), "{samples:?}");
        let last = samples.last().unwrap();
        // At the end of writing, unsent bytes and bytes in flight are a small part of all bytes.
        assert!(streamed.bytes / 2 <= last.acked_bytes, "{last:?} of {}", streamed.bytes);
        assert!(streamed.tcp_info.is_some());
    }
}

#[test]
fn a_stream_ends_at_its_byte_limit() {
    let listener = listener();
    for bytes_max in [1, 1_000_003] {
        let plan = StreamPlan { bytes_max, ..plan(20.0) };
        let streamed = stream(&target(listener.address()), &plan, &context(LONG)).unwrap();
        assert_eq!((streamed.ended, streamed.bytes), (StreamEnd::Bytes, bytes_max));
        assert!(streamed.whole_bit_s.is_finite() && streamed.whole_bit_s > 0.0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_named_congestion_control_is_used_and_an_unknown_name_is_an_error() {
    let listener = listener();
    let with = |name: &str| StreamPlan { congestion: Some(name.to_string()), bytes_max: 1000, ..plan(1.0) };
    // Every Linux kernel has `reno` and allows it to all users.
    let streamed = stream(&target(listener.address()), &with("reno"), &context(LONG)).unwrap();
    assert_eq!(streamed.tcp_info.unwrap().congestion.as_deref(), Some("reno"));
    let error = stream(&target(listener.address()), &with("no\nsuch"), &context(LONG)).unwrap_err();
    assert_eq!(error.failure, Failure::Local);
    assert!(error.message.contains(r"`no\nsuch`"), "{error}");
}

/// Any rate above zero settles under this rule, so that the test does not depend on the machine's
/// load.
#[cfg(target_os = "linux")]
#[test]
fn a_settled_stream_ends_early_and_reports_it() {
    let listener = listener();
    let any = EarlyStopPolicy {
        config: SettledRateConfig { rounds: 2, variation_max: 1e9 },
        ..EarlyStopPolicy::default()
    };
    let plan = StreamPlan { early: Some(any), bytes_max: u64::MAX >> 1, ..plan(15.0) };
    // The byte limit is far beyond what fits into the time, so only the rule can end the stream.
    let listener_limits = ResponderLimits {
        transfer_bytes_max: u64::MAX,
        session_bytes_max: u64::MAX,
        ..ResponderLimits::default()
    };
    drop(listener);
    let listener = listener_with(listener_limits);
    let streamed = stream(&target(listener.address()), &plan, &context(LONG)).unwrap();
    let StreamEnd::Early(estimate) = streamed.ended else { panic!("{:?}", streamed.ended) };
    assert_eq!(streamed.proposed, Some(estimate));
    assert!(streamed.duration_s < 15.0);
    assert_eq!(streamed.rate_bit_s().to_bits(), estimate.rate_bit_s.to_bits());
}

#[test]
fn streams_beyond_the_limits_are_declined_with_the_limit() {
    let short = ResponderLimits {
        stream: Duration::from_millis(900),
        transfer_bytes_max: 1000,
        ..ResponderLimits::default()
    };
    let listener = listener_with(short);
    for (plan, limit) in [(plan(0.5), "1000"), (StreamPlan { bytes_max: 1000, ..plan(1.0) }, "900")] {
        let error = stream(&target(listener.address()), &plan, &context(LONG)).unwrap_err();
        assert_eq!(error.failure, Failure::Declined, "{error}");
        assert!(error.message.contains(limit), "{error}");
    }
}

/// Streams and transfers share the single slot.
#[test]
fn the_responder_runs_one_stream_at_a_time() {
    let listener = listener();
    let mut first = session(&listener);
    request_transfer(&mut first, Request::Stream { ms: 10_000, bytes_max: 10 });
    let error = stream(&target(listener.address()), &plan(0.1), &context(LONG)).unwrap_err();
    assert_eq!(error.failure, Failure::Declined);
    assert!(error.message.contains("another bulk test"), "{error}");
    first.write_all(b"12345").unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    let mut done = [0; wire::DONE_BYTES];
    first.read_exact(&mut done).unwrap();
    assert_eq!(BulkSummary::decode(&done).unwrap().bytes, 5);
    let bytes_max = 1000;
    stream(&target(listener.address()), &StreamPlan { bytes_max, ..plan(0.1) }, &context(LONG)).unwrap();
}

/// A client that exceeds its request loses its connection, and the slot is free again.
#[test]
fn a_client_that_exceeds_its_stream_request_is_disconnected() {
    let grace = Duration::from_millis(300);
    let listener = listener_with(ResponderLimits { transfer_grace: grace, ..ResponderLimits::default() });
    let mut greedy = session(&listener);
    request_transfer(&mut greedy, Request::Stream { ms: 10_000, bytes_max: 10 });
    greedy.write_all(&[0; 11]).unwrap();
    assert!(is_closed(&mut greedy), "more than it asked for");

    let mut endless = session(&listener);
    request_transfer(&mut endless, Request::Stream { ms: 1, bytes_max: 1 << 30 });
    let began = Instant::now();
    let mut written = Ok(1);
    while written.is_ok() && began.elapsed() < LONG {
        thread::sleep(Duration::from_millis(10));
        written = endless.write(&[0]);
    }
    assert!(began.elapsed() < LONG, "it was let go on");
    assert!(grace <= began.elapsed(), "it was ended before its grace was over");
}

#[test]
fn errors_name_a_responder_without_streams_or_with_false_counts() {
    let answer = |reply: [u8; wire::REPLY_BYTES], done: Option<BulkSummary>| {
        Server::start(move |mut stream, stop| {
            upgrade(&mut stream, stop);
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut request = [0; wire::REQUEST_BYTES];
            if stream.read_exact(&mut request).is_err() {
                return;
            }
            stream.write_all(&reply).unwrap();
            let Some(done) = &done else { return };
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            let _ = stream.write_all(&done.encode());
        })
    };
    let plan = StreamPlan { bytes_max: 1000, ..plan(0.2) };
    let older = answer(Reply::Declined(DeclineReason::Malformed).encode(), None);
    let error = stream(&older.target(), &plan, &context(LONG)).unwrap_err();
    assert_eq!(error.failure, Failure::Declined, "{error}");
    let ready = Reply::Ready { nonce: 0 }.encode();
    let liar = answer(ready, Some(BulkSummary { bytes: 1001, tcp_info: None }));
    let error = stream(&liar.target(), &plan, &context(LONG)).unwrap_err();
    assert_eq!(error.failure, Failure::InvalidResponse, "{error}");
    assert!(error.message.contains("1001 of 1000"), "{error}");
    let resetting = Server::start(|stream, _| reset(stream));
    let error = stream(&resetting.target(), &plan, &context(LONG)).unwrap_err();
    assert_eq!(error.failure, Failure::Reset, "{error}");
}

/// If the peer reads nothing, the length of the stream passes first, and then the deadline.
#[test]
fn a_stream_to_a_peer_that_reads_nothing_ends_at_the_deadline() {
    let stuck = Server::start(|mut stream, stop| {
        upgrade(&mut stream, stop);
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read_exact(&mut [0; wire::REQUEST_BYTES]).unwrap();
        stream.write_all(&Reply::Ready { nonce: 0 }.encode()).unwrap();
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let deadline = Duration::from_millis(300);
    let began = Instant::now();
    let error = stream(&stuck.target(), &plan(0.2), &context(deadline)).unwrap_err();
    assert_eq!(error.failure, Failure::TimedOut, "{error}");
    assert!(Duration::from_millis(400) < began.elapsed() && began.elapsed() < LONG, "{error}");
}

#[test]
fn cancellation_ends_a_running_stream() {
    let listener = listener();
    let cancel = CancellationToken::default();
    let context = barograph_probe::io::ProbeContext { cancel: cancel.clone(), ..context(LONG) };
    let target = target(listener.address());
    let running = thread::spawn(move || {
        let limitless = StreamPlan { bytes_max: 1 << 30, ..plan(29.0) };
        stream(&target, &limitless, &context)
    });
    let began = Instant::now();
    while !listener.responder().bulk_running() && !running.is_finished() && began.elapsed() < LONG {
        thread::yield_now();
    }
    cancel.cancel();
    match running.join().unwrap() {
        Err(error) => assert!(error.stopped, "{error}"),
        // Loopback may carry a gigabyte before this thread runs.
        Ok(streamed) => assert_eq!(streamed.ended, StreamEnd::Bytes),
    }
}

/// Requests a transfer that the responder accepts.
fn request_transfer(stream: &mut TcpStream, request: Request) {
    stream.write_all(&request.encode()).unwrap();
    assert_eq!(reply(stream), Reply::Ready { nonce: 0 });
}

fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
