//! Experiments against a real responder on loopback.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use barograph_probe::io::{
    Listener, ProbeContext, Responder, ResponderLimits, TargetKind, Upgraded, detect, exchange_on_timer,
    probe, run, run_one, train, trusting,
};
use barograph_probe::train::{TRAIN_PACKET_BYTES, TRAIN_PACKETS};
use barograph_probe::wire::{self, Datagram, DatagramKind, Reply, Request};
use barograph_probe::{Direction, Experiment, Plan, Target};

use crate::common::{
    LONG, SWITCHING, Server, context, listener, listener_with, only, read_head, read_request, reply, session,
    target, tls_server, trust, upgrade,
};

/// A stop flag that is never set, for a station that runs until its client ends.
static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn round_trips_are_measured_one_by_one() {
    let listener = listener();
    let rtt = only(run_one(&target(listener.address()), Experiment::Rtt { n: 51 }, &context(LONG))).unwrap();
    assert_eq!((rtt.n, rtt.samples.len(), rtt.raw), (51, 51, None));
    assert!(0.0 < rtt.value && rtt.value < 0.01, "{}", rtt.value);
    if cfg!(target_os = "linux") {
        let info = rtt.tcp_info.unwrap();
        assert!(info.min_rtt_s.unwrap() < 0.01, "{info:?}");
        assert!(info.congestion.is_some_and(|name| !name.is_empty()));
        assert!(info.limited_by.is_some());
    }
}

#[test]
fn timed_exchanges_are_all_answered_and_keep_their_interval() {
    let listener = listener();
    let (every, began) = (Duration::from_millis(5), Instant::now());
    let paced = exchange_on_timer(&target(listener.address()), 21, every, &context(LONG));
    let measured = paced.result.unwrap();
    assert_eq!((measured.n, paced.answered_s.len(), paced.missed, paced.loaded_there), (21, 21, 0, false));
    assert!(20 * every <= began.elapsed(), "{:?}", began.elapsed());
    assert!(0.0 < measured.value && measured.value < 0.01, "{}", measured.value);
}

/// A station that accepts a request for exchanges, with `load` in its reply, and then runs
/// `behave`.
fn asked(load: u64, behave: impl Fn(&mut TcpStream, &AtomicBool) + Send + 'static) -> Server {
    Server::start(move |mut stream, stop| {
        upgrade(&mut stream, stop);
        let mut request = [0; wire::REQUEST_BYTES];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(&Reply::Ready { nonce: load }.encode()).unwrap();
        // Use a long timeout: on a busy machine the client may be late, and `behave` must not treat
        // this delay as a closed connection.
        stream.set_read_timeout(Some(LONG)).unwrap();
        behave(&mut stream, stop);
    })
}

/// A station that pauses for `stall` at the third exchange, then answers the third and all further
/// exchanges, and then reports that it is loaded.
fn stalling(n: usize, stall: Duration) -> Server {
    asked(0, move |stream, stop| {
        for i in 0..n {
            let mut exchange = [0; wire::EXCHANGE_BYTES];
            if stream.read_exact(&mut exchange).is_err() {
                return;
            }
            let began = Instant::now();
            while i == 2 && began.elapsed() < stall && !stop.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(1));
            }
            let _ = stream.write_all(&exchange);
        }
        let mut request = [0; wire::REQUEST_BYTES];
        if stream.read_exact(&mut request).is_ok() {
            let _ = stream.write_all(&Reply::Ready { nonce: 1 }.encode());
        }
    })
}

#[test]
fn a_stall_delays_no_later_request_and_shows_in_every_exchange_during_it() {
    let (n, every, stall) = (25, Duration::from_millis(20), Duration::from_millis(400));
    let server = stalling(25, stall);
    let whole = exchange_on_timer(&server.target(), n, every, &context(LONG));
    assert!(whole.result.is_ok() && whole.loaded_there, "{whole:?}");
    // The exchange due at 40 ms is answered at 440 ms at the earliest, and so are the exchanges due
    // at 60, 80, … 380 ms. Each of these exchanges takes more than 50 ms, however busy this machine
    // is. A client that waits for answers would see one slow exchange.
    let slow = whole.answered_s.iter().filter(|latency| **latency > 0.05).count();
    assert!(slow >= 18, "{slow}: {:?}", whole.answered_s);
    drop(server);
    let server = stalling(25, LONG);
    let cut = exchange_on_timer(&server.target(), n, every, &context(Duration::from_millis(300)));
    assert_eq!(cut.result.unwrap_err().failure, Failure::TimedOut);
    assert_eq!(cut.answered_s.len() + cut.missed as usize, 25, "what was not answered is missed");
    assert!(cut.missed >= 23, "{}", cut.missed);
}

#[test]
fn an_answer_before_its_request_is_an_invalid_response() {
    let server = asked(1, |stream, stop| {
        for i in 0..25_u16 {
            let _ = stream.write_all(&i.to_be_bytes());
        }
        while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) && !stop.load(Ordering::Relaxed) {}
    });
    let paced = exchange_on_timer(&server.target(), 25, Duration::from_millis(1), &context(LONG));
    assert_eq!(paced.result.unwrap_err().failure, Failure::InvalidResponse);
    assert!(paced.loaded_there && paced.missed >= 20, "{}", paced.missed);
}

/// With two small writes, the delayed acknowledgement adds about 40 ms, a thousand loopback round
/// trips.
#[test]
fn rtt_nagle_shows_the_nagle_stall() {
    let listener = listener();
    let target = target(listener.address());
    let rtt = only(run_one(&target, Experiment::Rtt { n: 11 }, &context(LONG))).unwrap();
    let nagle = only(run_one(&target, Experiment::RttNagle { n: 3 }, &context(LONG))).unwrap();
    assert_eq!((nagle.n, nagle.samples.len()), (3, 3), "the first exchange is discarded");
    assert!(10.0 * rtt.value < nagle.value, "{} against {}", nagle.value, rtt.value);
    assert!((0.02..0.3).contains(&nagle.value), "{}", nagle.value);
}

#[test]
fn goodput_is_corrected_by_the_forecast_and_reports_the_raw_rate() {
    let listener = listener();
    let bytes = 3_000_001;
    for direction in [Direction::Up, Direction::Down] {
        let experiment = Experiment::Goodput { direction, bytes };
        let without = only(run_one(&target(listener.address()), experiment, &context(LONG))).unwrap();
        assert_eq!(without.raw.map(f64::to_bits), Some(without.value.to_bits()));

        // A forecast below the least round-trip time, and a forecast far above it, as if made while
        // the path was busy.
        for forecast_s in [1e-6, 1.0] {
            let context = ProbeContext { rtt_forecast_s: Some(forecast_s), ..context(LONG) };
            let with = only(run_one(&target(listener.address()), experiment, &context)).unwrap();
            let bits = bytes as f64 * 8.0;
            let (raw_s, corrected_s) = (bits / with.raw.unwrap(), bits / with.value);
            // Only the kernel provides the least round-trip time.
            let least_s = with.tcp_info.as_ref().and_then(|info| info.min_rtt_s).unwrap_or(0.0);
            let idle_s = forecast_s.min(least_s).min(raw_s / 2.0);
            assert!((raw_s - corrected_s - idle_s).abs() < 1e-9, "{raw_s} {corrected_s} {idle_s}");
            assert_eq!(
                (with.tcp_info.is_some(), least_s > 0.0),
                (cfg!(target_os = "linux"), cfg!(target_os = "linux"))
            );
        }
    }
}

#[test]
fn every_byte_arrives_for_any_block_size() {
    let bytes = 200_001;
    for block_bytes in [0, 1, 512, 32 * 1024, usize::MAX] {
        let listener =
            listener_with(ResponderLimits { receive_block_bytes: block_bytes, ..ResponderLimits::default() });
        // Send few bytes if each system call moves only one byte, because a longer transfer would
        // be slow and test nothing more.
        let bytes = if block_bytes < 2 { 501 } else { bytes };
        let context = ProbeContext { write_bytes: block_bytes, ..context(LONG) };
        let experiment = Experiment::Goodput { direction: Direction::Up, bytes };
        let measured = only(run_one(&target(listener.address()), experiment, &context));
        assert!(measured.is_ok_and(|measured| measured.raw.is_some()), "{block_bytes}");
    }
}

#[test]
fn a_transfer_of_one_byte_is_measured() {
    let listener = listener();
    for direction in [Direction::Up, Direction::Down] {
        let one = Experiment::Goodput { direction, bytes: 1 };
        assert!(only(run_one(&target(listener.address()), one, &context(LONG))).unwrap().value > 0.0);
    }
}

#[test]
fn progress_is_reported_up_to_the_last_byte() {
    let listener = listener();
    let seen = Arc::new(AtomicU64::new(0));
    let progress = {
        let seen = Arc::clone(&seen);
        move |progress: barograph_probe::io::ProbeProgress| {
            assert!(progress.bytes <= progress.bytes_total);
            seen.store(progress.bytes, Ordering::Relaxed);
        }
    };
    let context = ProbeContext { progress: Some(Arc::new(progress)), ..context(LONG) };
    for direction in [Direction::Up, Direction::Down] {
        let experiment = Experiment::Goodput { direction, bytes: 2_000_000 };
        only(run_one(&target(listener.address()), experiment, &context)).unwrap();
        assert_eq!(seen.swap(0, Ordering::Relaxed), 2_000_000);
    }
}

#[test]
fn datagrams_are_answered_and_give_loss_and_rtt() {
    let listener = listener();
    let readings = run_one(&target(listener.address()), Experiment::Loss { n: 10 }, &context(LONG));
    let loss = readings[0].result.as_ref().unwrap();
    let rtt = readings[1].result.as_ref().unwrap();
    // On a machine without free memory, loopback may drop datagrams, but it never adds datagrams.
    assert!(loss.n == 10 && loss.value <= 0.5, "{loss:?}");
    assert_eq!(f64::from(rtt.n), (10.0 * (1.0 - loss.value)).round());
    assert!(0.0 < rtt.value && rtt.value < 0.1, "{rtt:?}");
}

#[test]
fn a_packet_train_gives_a_rate() {
    let listener = listener();
    let rate = train(&target(listener.address()), &context(LONG)).unwrap();
    // Loopback carries more than 1 Mbit/s on the slowest machine.
    assert!(rate.is_some_and(|rate| rate.is_finite() && rate > 1e6), "{rate:?}");
}

#[test]
fn no_train_is_sent_to_a_station_that_reports_a_bulk_transfer() {
    let (tcp, _udp) = tcp_and_udp();
    let address = tcp.local_addr().unwrap();
    let station = thread::spawn(move || {
        let (mut stream, _) = tcp.accept().unwrap();
        upgrade(&mut stream, &NEVER);
        let mut request = [0; wire::REQUEST_BYTES];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(Request::decode(&request), Ok(Request::Rtt { n: 1 }));
        stream.write_all(&Reply::Ready { nonce: 1 }.encode()).unwrap();
        let mut exchange = [0; wire::EXCHANGE_BYTES];
        stream.read_exact(&mut exchange).unwrap();
        stream.write_all(&exchange).unwrap();
        let mut requests = Vec::new();
        stream.read_to_end(&mut requests).unwrap();
        requests
    });
    assert_eq!(train(&target(address), &context(LONG)), Ok(None));
    let requests: Vec<u8> = station.join().unwrap();
    assert!(requests.is_empty(), "after the report: {requests:?}");
}

#[test]
fn a_train_beside_a_bulk_transfer_of_the_station_gives_no_rate() {
    let listener = listener();
    let transfer = listener.responder().count_foreign_bulk();
    assert_eq!(train(&target(listener.address()), &context(LONG)), Ok(None));
    drop(transfer);
    assert!(train(&target(listener.address()), &context(LONG)).unwrap().is_some());
}

/// A station that answers only `answered` packets of a train.
fn train_with_answers(answered: u32) -> Option<f64> {
    let (tcp, udp) = tcp_and_udp();
    let address = tcp.local_addr().unwrap();
    let nonce = 0xFEED;
    let station = thread::spawn(move || {
        let (mut stream, _) = tcp.accept().unwrap();
        upgrade(&mut stream, &NEVER);
        let expect = |stream: &mut TcpStream, expected: Request, nonce: u64| {
            let mut request = [0; wire::REQUEST_BYTES];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(Request::decode(&request), Ok(expected));
            stream.write_all(&Reply::Ready { nonce }.encode()).unwrap();
        };
        let exchange = |stream: &mut TcpStream| {
            expect(stream, Request::Rtt { n: 1 }, 0);
            let mut exchange = [0; wire::EXCHANGE_BYTES];
            stream.read_exact(&mut exchange).unwrap();
            stream.write_all(&exchange).unwrap();
        };
        exchange(&mut stream);
        expect(&mut stream, Request::Datagrams { n: TRAIN_PACKETS }, nonce);
        udp.set_read_timeout(Some(LONG)).unwrap();
        for packet in 0..TRAIN_PACKETS {
            let mut bytes = [0; 2000];
            let (read, from) = udp.recv_from(&mut bytes).unwrap();
            assert_eq!(read, TRAIN_PACKET_BYTES);
            let question = Datagram::decode(&bytes[..wire::DATAGRAM_BYTES]).unwrap();
            assert_eq!((question.nonce, question.sequence), (nonce, packet));
            if packet < answered {
                let answer = Datagram { kind: DatagramKind::Answer, ..question };
                udp.send_to(&answer.encode(), from).unwrap();
            }
        }
        exchange(&mut stream);
    });
    let rate = train(&target(address), &context(LONG)).unwrap();
    station.join().unwrap();
    rate
}

#[test]
fn a_train_without_enough_answers_gives_no_rate() {
    assert!(train_with_answers(TRAIN_PACKETS / 3).is_some());
    assert_eq!(train_with_answers(TRAIN_PACKETS / 3 - 1), None);
}

/// A padded question needs a grant as every question does, and its answer has no padding.
#[test]
fn a_padded_question_is_answered_without_padding() {
    let listener = listener();
    let mut owner = session(&listener);
    owner.write_all(&Request::Datagrams { n: 1 }.encode()).unwrap();
    let Reply::Ready { nonce } = reply(&mut owner) else { panic!("declined") };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(listener.address()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    for (nonce, sequence) in [(nonce ^ 1, 0), (nonce, 1)] {
        let question = Datagram { kind: DatagramKind::Question, nonce, sequence };
        let mut padded = question.encode().to_vec();
        padded.resize(TRAIN_PACKET_BYTES, 0xA5);
        socket.send(&padded).unwrap();
    }
    let mut bytes = [0; 2000];
    let read = socket.recv(&mut bytes).unwrap();
    assert_eq!(read, wire::DATAGRAM_BYTES);
    assert_eq!(Datagram::decode(&bytes[..read]).unwrap().sequence, 1, "the first one had no grant");
}

/// A station that loses some datagrams, duplicates some and sends forged ones.
#[test]
fn lost_duplicate_and_forged_datagrams_are_counted_correctly() {
    let (tcp, udp) = tcp_and_udp();
    let address = tcp.local_addr().unwrap();
    let nonce = 0xFEED;
    let station = thread::spawn(move || {
        let (mut stream, _) = tcp.accept().unwrap();
        upgrade(&mut stream, &NEVER);
        let mut request = [0; wire::REQUEST_BYTES];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(Request::decode(&request), Ok(Request::Datagrams { n: 10 }));
        stream.write_all(&Reply::Ready { nonce }.encode()).unwrap();
        udp.set_read_timeout(Some(LONG)).unwrap();
        for _ in 0..10 {
            let mut bytes = [0; 64];
            let (read, from) = udp.recv_from(&mut bytes).unwrap();
            let question = Datagram::decode(&bytes[..read]).unwrap();
            assert_eq!((read, question.nonce), (wire::DATAGRAM_BYTES, nonce));
            let answer = Datagram { kind: DatagramKind::Answer, ..question };
            let forged = Datagram { nonce: nonce + 1, ..answer };
            let ahead = Datagram { sequence: 9_999, ..answer };
            let mut answers =
                vec![question.encode().to_vec(), forged.encode().to_vec(), ahead.encode().to_vec()];
            answers.push(b"garbage".to_vec());
            answers.push(vec![0xFF; 1400]);
            if !question.sequence.is_multiple_of(5) {
                answers.extend([answer.encode().to_vec(), answer.encode().to_vec()]);
            }
            for answer in answers {
                udp.send_to(&answer, from).unwrap();
            }
        }
        // The session stays open until the client has finished counting.
        let _ = stream.read(&mut [0]);
    });
    let readings = run_one(&target(address), Experiment::Loss { n: 10 }, &context(LONG));
    station.join().unwrap();
    assert_eq!(readings[0].result.as_ref().unwrap().value, 0.2);
    assert_eq!(readings[1].result.as_ref().unwrap().n, 8);
}

/// A station that discards all datagrams. Then the station answers the next request if `alive`,
/// else the station closes the connection.
fn swallowing(alive: bool) -> Vec<barograph_probe::QuantityResult> {
    let (tcp, udp) = tcp_and_udp();
    let address = tcp.local_addr().unwrap();
    let station = thread::spawn(move || {
        let (mut stream, _) = tcp.accept().unwrap();
        upgrade(&mut stream, &NEVER);
        let mut request = [0; wire::REQUEST_BYTES];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(&Reply::Ready { nonce: 1 }.encode()).unwrap();
        stream.read_exact(&mut request).unwrap();
        assert_eq!(Request::decode(&request), Ok(Request::Rtt { n: 1 }));
        if alive {
            stream.write_all(&Reply::Ready { nonce: 0 }.encode()).unwrap();
            let mut exchange = [0; wire::EXCHANGE_BYTES];
            stream.read_exact(&mut exchange).unwrap();
            stream.write_all(&exchange).unwrap();
        }
        drop(udp);
    });
    let readings = run_one(&target(address), Experiment::Loss { n: 3 }, &context(LONG));
    station.join().unwrap();
    readings
}

#[test]
fn without_answers_the_loss_is_1_and_the_rtt_times_out() {
    let readings = swallowing(true);
    assert_eq!(readings[0].result.as_ref().unwrap().value, 1.0);
    assert_eq!(readings[1].result.as_ref().unwrap_err().failure, Failure::TimedOut);
}

#[test]
fn a_station_that_disappears_gives_a_reset_and_no_loss() {
    for reading in swallowing(false) {
        assert_eq!(reading.result.unwrap_err().failure, Failure::Reset);
    }
}

/// The return route from 127.0.0.2 prefers 127.0.0.1, and the client would drop answers from
/// 127.0.0.1.
#[test]
#[cfg(target_os = "linux")]
fn a_wildcard_listener_answers_from_the_requested_address() {
    let listening = |any: &str| Listener::start(any.parse().unwrap(), ResponderLimits::default());
    let Ok(dual) = listening("[::]:0") else {
        barograph_sim::report_skipped("this host has no IPv6");
        return;
    };
    for listener in [listening("0.0.0.0:0").unwrap(), dual] {
        let target = Target::parse(&format!("127.0.0.2:{}", listener.address().port())).unwrap();
        let readings = run_one(&target, Experiment::Loss { n: 5 }, &context(LONG));
        assert!(readings[0].result.as_ref().unwrap().value <= 0.4, "{readings:?}");
    }
}

#[test]
fn datagrams_without_a_grant_are_not_answered() {
    let listener = listener();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(listener.address()).unwrap();
    for bytes in [&b"garbage"[..], &[0; 1400], &[]] {
        socket.send(bytes).unwrap();
    }
    let stray = Datagram { kind: DatagramKind::Question, nonce: 1, sequence: 0 };
    socket.send(&stray.encode()).unwrap();
    // After the responder has answered a fifth datagram, the responder has also read the four
    // earlier datagrams.
    let readings = run_one(&target(listener.address()), Experiment::Loss { n: 1 }, &context(LONG));
    assert!(readings[1].result.is_ok());
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err());
}

/// A grant must not be usable from another address, or after its session.
#[test]
#[cfg(target_os = "linux")]
fn a_datagram_grant_is_bound_to_its_session() {
    let listener = listener();
    let mut owner = session(&listener);
    let mut leave = || {
        owner.write_all(&Request::Datagrams { n: 10 }.encode()).unwrap();
        let Reply::Ready { nonce } = reply(&mut owner) else { panic!("declined") };
        nonce
    };
    let (replaced, nonce) = (leave(), leave());
    let socket = |address: &str| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.connect(listener.address()).unwrap();
        socket
    };
    let (own, strange) = (socket("127.0.0.1:0"), socket("127.0.0.2:0"));
    let question = |nonce, sequence| Datagram { kind: DatagramKind::Question, nonce, sequence }.encode();
    strange.send(&question(nonce, 0)).unwrap();
    own.send(&question(replaced, 1)).unwrap();
    own.send(&question(nonce, 2)).unwrap();
    own.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = [0; wire::DATAGRAM_BYTES];
    own.recv(&mut bytes).unwrap();
    assert_eq!(Datagram::decode(&bytes).unwrap().sequence, 2);
    strange.set_nonblocking(true).unwrap();
    assert!(strange.recv(&mut bytes).is_err(), "another address");

    drop(owner);
    until("the session is over", || listener.responder().sessions() == 0);
    own.send(&question(nonce, 3)).unwrap();
    // After the responder has answered a later datagram, the responder has also read the datagram
    // sent above.
    let readings = run_one(&target(listener.address()), Experiment::Loss { n: 1 }, &context(LONG));
    assert!(readings[1].result.is_ok());
    own.set_nonblocking(true).unwrap();
    assert!(own.recv(&mut bytes).is_err(), "after the session");
}

#[test]
fn all_experiments_work_over_ipv6_loopback() {
    let Ok(listener) = Listener::start((Ipv6Addr::LOCALHOST, 0).into(), ResponderLimits::default()) else {
        barograph_sim::report_skipped("this host has no ::1");
        return;
    };
    let target = Target::parse(&listener.address().to_string()).unwrap();
    assert_eq!(target.host(), "::1");
    for reading in run(&target, &Plan::station(100_000), &context(LONG)) {
        assert!(reading.result.is_ok(), "{reading:?}");
    }
}

#[test]
fn a_station_is_detected_and_probed_with_every_experiment() {
    let listener = listener();
    for target in
        [target(listener.address()), Target::parse(&format!("http://{}", listener.address())).unwrap()]
    {
        assert_eq!(detect(&target, &context(LONG)), Ok(TargetKind::Station));
        let readings = probe(&target, 100_000, &context(LONG));
        let quantities: Vec<_> = readings.iter().map(|reading| reading.quantity.as_str()).collect();
        assert_eq!(quantities, ["rtt", "rtt_nagle", "loss", "rtt_udp", "goodput", "goodput_down"]);
        assert!(readings.iter().all(|reading| reading.result.is_ok()), "{readings:?}");
    }
}

#[test]
fn requests_beyond_the_limits_are_declined_with_the_limit() {
    let limits = ResponderLimits {
        transfer_bytes_max: 1000,
        session_bytes_max: 1500,
        count_max: 10,
        ..ResponderLimits::default()
    };
    let listener = listener_with(limits);
    for (experiment, limit) in [
        (Experiment::Goodput { direction: Direction::Up, bytes: 1001 }, "1000"),
        (Experiment::Goodput { direction: Direction::Down, bytes: u64::MAX }, "1000"),
        (Experiment::Rtt { n: 11 }, "at most 10"),
        (Experiment::Loss { n: 11 }, "at most 10"),
    ] {
        for reading in run_one(&target(listener.address()), experiment, &context(LONG)) {
            let error = reading.result.unwrap_err();
            assert_eq!(error.failure, Failure::Declined);
            assert!(error.message.contains(limit), "{error}");
        }
    }
    // The bytes of one session are summed.
    let mut stream = session(&listener);
    let up = Request::Goodput { direction: Direction::Up, bytes: 1000 };
    stream.write_all(&up.encode()).unwrap();
    assert_eq!(reply(&mut stream), Reply::Ready { nonce: 0 });
    stream.write_all(&[0; 1000]).unwrap();
    stream.read_exact(&mut [0; wire::DONE_BYTES]).unwrap();
    stream.write_all(&up.encode()).unwrap();
    assert_eq!(reply(&mut stream), Reply::Declined(wire::DeclineReason::Spent));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the session ends");
    assert_eq!(listener.responder().declined_count(), 5);
}

#[test]
fn the_responder_runs_one_transfer_at_a_time() {
    let listener = listener();
    let mut first = session(&listener);
    first.write_all(&Request::Goodput { direction: Direction::Up, bytes: 1000 }.encode()).unwrap();
    assert_eq!(reply(&mut first), Reply::Ready { nonce: 0 });
    assert!(listener.responder().bulk_running());
    assert_eq!(listener.responder().bulk_begun(), 1);

    let second = Experiment::Goodput { direction: Direction::Down, bytes: 1000 };
    let error = only(run_one(&target(listener.address()), second, &context(LONG))).unwrap_err();
    assert_eq!(error.failure, Failure::Declined);
    assert!(error.message.contains("another bulk test"), "{error}");
    // Small experiments run beside the transfer.
    only(run_one(&target(listener.address()), Experiment::Rtt { n: 3 }, &context(LONG))).unwrap();

    drop(first);
    until("the transfer is given up", || !listener.responder().bulk_running());
    only(run_one(&target(listener.address()), second, &context(LONG))).unwrap();
}

#[test]
fn a_transfer_that_is_too_slow_loses_its_slot() {
    let limits = ResponderLimits {
        transfer_grace: Duration::from_millis(200),
        transfer_bit_s_min: 100_000_000_000,
        idle: LONG,
        ..ResponderLimits::default()
    };
    for direction in [Direction::Up, Direction::Down] {
        let listener = listener_with(limits.clone());
        let mut slow = session(&listener);
        slow.write_all(&Request::Goodput { direction, bytes: 1 << 30 }.encode()).unwrap();
        assert_eq!(reply(&mut slow), Reply::Ready { nonce: 0 });
        slow.write_all(&[0; wire::EXCHANGE_BYTES]).unwrap();
        let began = Instant::now();
        let mut ended = false;
        while !ended {
            assert!(began.elapsed() < LONG / 2, "it still has its place");
            ended = match direction {
                Direction::Up => slow.write_all(&[0]).is_err(),
                // Read up to 1024 bytes at once. The bytes in the buffers must be read too, and
                // reading them one by one would take too long on a busy machine.
                Direction::Down => !matches!(slow.read(&mut [0; 1024]), Ok(1..)),
            };
        }
        until("the place is free", || !listener.responder().bulk_running());
        assert_eq!(listener.responder().bulk_begun(), 1, "what is over has begun all the same");
    }
}

#[test]
fn one_peer_cannot_take_all_session_slots() {
    let limits = ResponderLimits { sessions_per_peer_max: 2, ..ResponderLimits::default() };
    let responder = Responder::start(limits, None).unwrap();
    let one = "192.0.2.1".parse().unwrap();
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    let slots = [responder.admit(one).unwrap(), responder.admit(mapped).unwrap()];
    assert_eq!(responder.admit(one).unwrap_err(), wire::DeclineReason::Full);
    assert!(responder.admit("192.0.2.2".parse().unwrap()).is_ok());
    drop(slots);
    assert!(responder.admit(one).is_ok());
    assert_eq!(responder.sessions(), 0);
}

#[test]
fn one_network_cannot_take_all_session_slots() {
    let limits = ResponderLimits { sessions_per_peer_max: 2, ..ResponderLimits::default() };
    let responder = Responder::start(limits, None).unwrap();
    let admit = |ip: &str| responder.admit(ip.parse().unwrap());
    let _slots = [admit("2001:db8::1").unwrap(), admit("2001:db8::2").unwrap()];
    assert_eq!(admit("2001:db8::3").unwrap_err(), wire::DeclineReason::Full);
    assert!(admit("2001:db8:0:1::1").is_ok());
}

#[test]
fn one_station_name_cannot_take_all_session_slots() {
    let responder = Responder::start(ResponderLimits::default(), None).unwrap();
    let mut hosts = 1..;
    let mut signed = |name: &str| {
        let slot = responder.admit([192, 0, 2, hosts.next().unwrap()].into()).unwrap();
        slot.signed_by(name, Instant::now())
    };
    let mut slots: Vec<_> = (0..8).map(|_| signed("b").unwrap()).collect();
    assert_eq!(signed("b").unwrap_err(), wire::DeclineReason::Full);
    assert!(signed("c").is_ok());
    assert_eq!(responder.sessions(), 8, "what is refused keeps no place");
    slots.pop();
    assert!(signed("b").is_ok());
}

#[test]
fn exchanges_slower_than_the_minimum_rate_end_the_session() {
    let limits = ResponderLimits {
        transfer_grace: Duration::from_millis(200),
        exchange: Duration::from_millis(1),
        idle: LONG,
        ..ResponderLimits::default()
    };
    for request in [Request::Rtt { n: 10_000 }, Request::RttNagle { n: 10_000 }] {
        let listener = listener_with(limits.clone());
        let mut slow = session(&listener);
        slow.write_all(&request.encode()).unwrap();
        assert_eq!(reply(&mut slow), Reply::Ready { nonce: 0 });
        let began = Instant::now();
        while slow.write_all(&[0; wire::EXCHANGE_BYTES]).is_ok() && slow.read_exact(&mut [0; 2]).is_ok() {
            assert!(began.elapsed() < LONG / 2, "it still has its place");
            thread::park_timeout(Duration::from_millis(20));
        }
        until("the place is free", || listener.responder().sessions() == 0);
    }
}

#[test]
fn a_client_that_is_silent_or_sends_garbage_is_disconnected() {
    let limits = ResponderLimits { idle: Duration::from_millis(200), ..ResponderLimits::default() };
    let listener = listener_with(limits);
    let mut silent = session(&listener);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "put out");
    let mut garbage = session(&listener);
    garbage.write_all(&[0xEE; wire::REQUEST_BYTES]).unwrap();
    assert_eq!(reply(&mut garbage), Reply::Declined(wire::DeclineReason::Malformed));
    until("all places are given back", || listener.responder().sessions() == 0);
}

#[test]
fn a_stop_ends_open_sessions_at_once() {
    let listener = listener();
    let mut open = session(&listener);
    let began = Instant::now();
    drop(listener);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(matches!(open.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn cancellation_ends_a_running_experiment() {
    // The peer accepts the connection, answers nothing, and reports when the request has arrived.
    let (asked, was_asked) = mpsc::channel();
    let server = Server::start(move |mut stream, stop| {
        read_request(&mut stream, stop);
        let _ = asked.send(());
        crate::common::swallow(&mut stream, stop);
    });
    let context = context(LONG);
    let (cancel, target) = (context.cancel.clone(), server.target());
    let experiment = thread::spawn(move || only(run_one(&target, Experiment::Rtt { n: 3 }, &context)));
    was_asked.recv_timeout(LONG).unwrap();
    let began = Instant::now();
    cancel.cancel();
    let error = experiment.join().unwrap().unwrap_err();
    assert!(error.stopped && error.failure == Failure::Local, "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn the_tls_upgrade_authorises_and_a_plain_connection_measures() {
    let station = TlsStation::start("secret");
    let target = Target::parse(&format!("https://{}", station.address)).unwrap();
    let context = ProbeContext { token: Some("secret".into()), tls: Some(trust()), ..context(LONG) };
    assert_eq!(detect(&target, &context), Ok(TargetKind::Station));

    let plan = Plan {
        experiments: vec![
            Experiment::Rtt { n: 5 },
            Experiment::RttTls { n: 5 },
            Experiment::Goodput { direction: Direction::Down, bytes: 100_000 },
        ],
    };
    let readings = run(&target, &plan, &context);
    assert!(readings.iter().all(|reading| reading.result.is_ok()), "{readings:?}");
    assert_eq!(readings[1].quantity.as_str(), "rtt_tls");

    let wrong = ProbeContext { token: Some("guess".into()), ..context.clone() };
    let error = detect(&target, &wrong).unwrap_err();
    assert_eq!(error.failure, Failure::Declined);
    assert!(error.message.contains("token"), "{error}");

    let quantities: Vec<_> = probe(&target, 1000, &context).iter().map(|r| r.quantity.to_string()).collect();
    assert_eq!(quantities[..3], ["rtt", "rtt_tls", "rtt_nagle"]);

    // A certificate that no trusted authority has signed.
    let distrustful =
        ProbeContext { tls: Some(Arc::new(trusting(rustls::RootCertStore::empty()).unwrap())), ..context };
    let error = only(run_one(&target, Experiment::Rtt { n: 5 }, &distrustful)).unwrap_err();
    assert_eq!(error.failure, Failure::TlsFailed, "{error:?}");
    assert_eq!(detect(&target, &distrustful), Ok(TargetKind::Server), "it can still be connected to");
}

/// Starts a server that answers every request with `answer`, and returns the requests in a channel.
fn refusing(answer: &'static str) -> (Server, mpsc::Receiver<String>) {
    let (sender, requests) = mpsc::channel();
    let server = Server::start(move |mut stream, stop| {
        let request = read_request(&mut stream, stop);
        if request.is_empty() {
            return;
        }
        let _ = sender.send(String::from_utf8(request).unwrap());
        let _ = stream.write_all(answer.as_bytes());
    });
    (server, requests)
}

#[test]
fn the_token_is_sent_only_to_a_station_that_requires_it() {
    let holder = ProbeContext { token: Some("secret".into()), ..context(LONG) };
    for plain in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 503 Full\r\nUpgrade: barograph-probe/1\r\nContent-Length: 0\r\n\r\n",
        "no HTTP at all\r\n\r\n",
    ] {
        let (server, requests) = refusing(plain);
        let _ = detect(&server.url(), &holder);
        let _ = run_one(&server.target(), Experiment::Rtt { n: 1 }, &holder);
        drop(server);
        let requests: Vec<String> = requests.iter().collect();
        assert_eq!(requests.len(), 2, "{plain}: {requests:?}");
        assert!(requests.iter().all(|request| !request.contains("secret")), "{plain}: {requests:?}");
    }
    let (server, requests) =
        refusing("HTTP/1.1 401 No\r\nUpgrade: barograph-probe/1\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(detect(&server.url(), &holder).unwrap_err().failure, Failure::Declined);
    drop(server);
    let requests: Vec<String> = requests.iter().collect();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(!requests[0].contains("Authorization"), "{requests:?}");
    assert!(requests[1].contains("\r\nAuthorization: Bearer secret\r\n"), "{requests:?}");
}

#[test]
fn rtt_tls_needs_an_https_target() {
    let listener = listener();
    let error =
        only(run_one(&target(listener.address()), Experiment::RttTls { n: 1 }, &context(LONG))).unwrap_err();
    assert_eq!(error.failure, Failure::Local);
}

fn tcp_and_udp() -> (TcpListener, UdpSocket) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (tcp, udp);
        }
    }
}

/// Waits at most [`LONG`] until `holds` returns true. The function polls, because the other thread
/// reports no event.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "in vain: {what}");
        thread::yield_now();
    }
}

/// The HTTP server of a station, as probes see it: HTTP and TLS on one port, with a token.
struct TlsStation {
    address: std::net::SocketAddr,
    _server: Server,
}

impl TlsStation {
    fn start(secret: &'static str) -> Self {
        let responder = Responder::start(ResponderLimits::default(), None).unwrap();
        let config = tls_server();
        let server = Server::start(move |mut stream, stop| {
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut first = [0];
            // TLS begins with a handshake record (RFC 8446 §5.1).
            if stream.peek(&mut first).unwrap_or(0) == 1 && first[0] == 22 {
                let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut tls = rustls::StreamOwned::new(tls, stream);
                let Some(head) = read_head(&mut tls) else { return };
                if !head.contains(&format!("Authorization: Bearer {secret}\r\n")) {
                    let refusal = "HTTP/1.1 401 Unauthorized\r\nUpgrade: barograph-probe/1\r\nContent-Length: 0\r\n\r\n";
                    tls.write_all(refusal.as_bytes()).unwrap();
                    return;
                }
                let token = responder.issue_token().unwrap();
                let answer = SWITCHING
                    .replace("Upgrade\r\n", &format!("Upgrade\r\nBarograph-Probe-Token: {token}\r\n"));
                tls.write_all(answer.as_bytes()).unwrap();
                let slot = responder.admit("127.0.0.1".parse().unwrap()).unwrap();
                let rustls::StreamOwned { conn, sock } = tls;
                slot.serve(Upgraded::Tls(Box::new(conn), sock), Vec::new()).unwrap();
            } else {
                let head = String::from_utf8(read_request(&mut stream, stop)).unwrap();
                let token =
                    head.split("Authorization: Probe ").nth(1).and_then(|rest| rest.split("\r\n").next());
                if token.is_some_and(|token| responder.redeem_token(token)) {
                    assert!(!responder.redeem_token(token.unwrap()), "a token opens one connection");
                    stream.write_all(SWITCHING.as_bytes()).unwrap();
                    let slot = responder.admit("127.0.0.1".parse().unwrap()).unwrap();
                    slot.serve(Upgraded::Plain(stream), Vec::new()).unwrap();
                }
            }
        });
        Self { address: server.address, _server: server }
    }
}
