//! Misbehaving peers against every experiment, with real sockets.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use barograph_forecast::{Failure, Quantity};
use barograph_probe::io::{ProbeContext, TargetKind, detect, probe, run_one};
use barograph_probe::{Direction, Experiment, wire};

use crate::common::{LONG, Server, context, pour, read_request, reset, swallow, upgrade};

/// Deadline of each experiment. The deadline is short, because most of these tests wait until the
/// deadline.
const DEADLINE: Duration = Duration::from_millis(400);
/// Time after the deadline within which an experiment must end, even on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

const SESSIONS: [Experiment; 5] = [
    Experiment::Rtt { n: 5 },
    Experiment::RttNagle { n: 2 },
    Experiment::Goodput { direction: Direction::Up, bytes: 50_000_000 },
    Experiment::Goodput { direction: Direction::Down, bytes: 50_000_000 },
    Experiment::Loss { n: 3 },
];

/// Behaviour of a peer on one connection.
type Behaviour = fn(TcpStream, &AtomicBool);

/// Peers that misbehave from the first byte, with the allowed failures of a session and of a GET.
const FROM_THE_FIRST_BYTE: [(&str, Behaviour, &[Failure], &[Failure]); 6] = [
    ("resets", |stream, _| reset(stream), &[Failure::Reset], &[Failure::Reset]),
    (
        "closes",
        |mut stream, stop| drop(read_request(&mut stream, stop)),
        &[Failure::Reset],
        &[Failure::Reset],
    ),
    ("is silent", |mut stream, stop| swallow(&mut stream, stop), &[Failure::TimedOut], &[Failure::TimedOut]),
    (
        "answers garbage",
        |mut stream, stop| {
            read_request(&mut stream, stop);
            pour(&mut stream, b"\x00\xffgarbage\r\n", stop);
        },
        &[Failure::InvalidResponse],
        &[Failure::InvalidResponse],
    ),
    (
        "sends headers for ever",
        |mut stream, stop| {
            read_request(&mut stream, stop);
            pour(&mut stream, b"HTTP/1.1 200 OK\r\n", stop);
        },
        &[Failure::InvalidResponse],
        &[Failure::InvalidResponse],
    ),
    (
        "trickles",
        |mut stream, stop| {
            read_request(&mut stream, stop);
            trickle(&mut stream, b"HTTP/1.1 101 Switching Protocols\r\nX: ", stop);
        },
        &[Failure::TimedOut],
        &[Failure::TimedOut],
    ),
];

/// Peers that do the Upgrade and then misbehave, with the allowed failures.
const IN_THE_SESSION: [(&str, Behaviour, &[Failure]); 6] = [
    ("resets", |stream, _| reset(stream), &[Failure::Reset]),
    ("is silent", |mut stream, stop| swallow(&mut stream, stop), &[Failure::TimedOut]),
    ("answers garbage", |mut stream, stop| pour(&mut stream, b"garbage", stop), &[Failure::InvalidResponse]),
    (
        "trickles",
        |mut stream, stop| {
            read_request_frame(&mut stream, stop);
            trickle(&mut stream, &wire::Reply::Ready { nonce: 1 }.encode(), stop);
        },
        &[Failure::TimedOut],
    ),
    (
        "agrees and is silent",
        |mut stream, stop| {
            agree(&mut stream, stop);
            swallow(&mut stream, stop);
        },
        &[Failure::TimedOut],
    ),
    (
        "agrees and sends garbage for ever",
        |mut stream, stop| {
            agree(&mut stream, stop);
            pour(&mut stream, &[0xAA; 65536], stop);
        },
        &[Failure::InvalidResponse, Failure::TimedOut],
    ),
];

#[test]
fn every_experiment_fails_cleanly_with_a_peer_that_misbehaves_at_once() {
    for (name, behaviour, in_session, in_get) in FROM_THE_FIRST_BYTE {
        let server = Server::start(behaviour);
        for experiment in SESSIONS {
            fails(name, &server.target(), experiment, in_session);
        }
        fails(name, &server.url(), Experiment::ResponseTime, in_get);
        // `connect` needs only a handshake.
        let handshake = run_one(&server.target(), Experiment::Connect { n: 2 }, &context(LONG)).remove(0);
        assert_eq!(handshake.result.unwrap().n, 2, "connect to a peer that {name}");
    }
}

#[test]
fn every_experiment_fails_cleanly_with_a_peer_that_misbehaves_in_the_session() {
    for (name, behaviour, failures) in IN_THE_SESSION {
        let server = Server::start(move |mut stream, stop| {
            upgrade(&mut stream, stop);
            behaviour(stream, stop);
        });
        for experiment in SESSIONS {
            // Unanswered datagrams are not a failure of the session.
            if matches!(experiment, Experiment::Loss { .. }) && name.starts_with("agrees") {
                fails(name, &server.target(), experiment, &[Failure::Refused]);
            } else {
                fails(name, &server.target(), experiment, failures);
            }
        }
    }
}

#[test]
fn connect_measures_a_closed_port_and_all_other_experiments_fail() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = crate::common::target(address);
    for experiment in SESSIONS.into_iter().chain([Experiment::ResponseTime]) {
        fails("refuses", &closed, experiment, &[Failure::Refused]);
    }
    let answered =
        crate::common::only(run_one(&closed, Experiment::Connect { n: 3 }, &context(LONG))).unwrap();
    assert_eq!((answered.refused, answered.n, answered.samples.len()), (true, 3, 3));
    assert!(0.0 < answered.value && answered.value < LONG.as_secs_f64(), "{answered:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = crate::common::target(listener.local_addr().unwrap());
    let open = crate::common::only(run_one(&open, Experiment::Connect { n: 1 }, &context(LONG))).unwrap();
    assert!(!open.refused && open.tcp_info.is_some(), "{open:?}");
}

#[test]
fn a_probe_of_a_closed_port_measures_connect_only() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let measured = crate::common::only(probe(&crate::common::target(address), 1000, &context(LONG))).unwrap();
    assert!(measured.refused, "{measured:?}");
    let url = barograph_probe::Target::parse(&format!("http://{address}/")).unwrap();
    let readings = probe(&url, 1000, &context(LONG));
    let found: Vec<_> = readings
        .iter()
        .map(|reading| (reading.quantity.as_str(), reading.result.as_ref().map_err(|error| error.failure)))
        .map(|(quantity, result)| (quantity, result.map(|measured| measured.refused)))
        .collect();
    let refused = Err(Failure::Refused);
    assert_eq!(found, [("connect", Ok(true)), ("first_byte", refused), ("response_time", refused)]);
}

/// A routing error is not a response of the target, however fast it comes.
#[test]
#[cfg(target_os = "linux")]
fn a_target_without_a_route_is_unreachable_and_not_refused() {
    // Linux has no TCP route to a broadcast address, and no packet leaves the host.
    let nowhere = barograph_probe::Target::parse("255.255.255.255:80").unwrap();
    for experiment in [Experiment::Connect { n: 1 }, Experiment::ResponseTime] {
        fails("has no route", &nowhere, experiment, &[Failure::Unreachable]);
    }
    assert_eq!(detect(&nowhere, &context(LONG)).unwrap_err().failure, Failure::Unreachable);
}

/// A listener with a full queue drops every further SYN, so the connection never opens.
#[test]
fn a_handshake_that_does_not_complete_ends_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let queue = socket2::SockRef::from(&listener);
    queue.listen(0).unwrap();
    let held: Vec<_> = (0..4)
        .filter_map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok())
        .collect();
    if held.len() == 4 {
        barograph_sim::report_skipped("this system queues connections beyond the backlog");
        return;
    }
    for experiment in [Experiment::Connect { n: 1 }, Experiment::Rtt { n: 1 }, Experiment::ResponseTime] {
        fails("never opens", &crate::common::target(address), experiment, &[Failure::TimedOut]);
    }
}

#[test]
fn a_name_that_does_not_exist_is_unresolved() {
    // This name is reserved for tests (RFC 6761 §6.4). Without a reachable resolver, the query
    // takes longer than the deadline.
    let nowhere = barograph_probe::Target::parse("nowhere.invalid:80").unwrap();
    fails("has no name", &nowhere, Experiment::Connect { n: 1 }, &[Failure::Unresolved, Failure::TimedOut]);
}

#[test]
fn a_body_without_end_is_cut_by_the_byte_limit_or_the_deadline() {
    let server = Server::start(|mut stream, stop| {
        read_request(&mut stream, stop);
        pour(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n", stop);
    });
    let small = ProbeContext { body_bytes_max: 1_000_000, ..context(LONG) };
    let readings = run_one(&server.url(), Experiment::ResponseTime, &small);
    assert!(readings[0].result.is_ok(), "the first byte did come");
    let error = readings[1].result.as_ref().unwrap_err();
    assert_eq!(error.failure, Failure::Local);
    assert!(error.message.contains("1000000 bytes"), "{error}");

    let endless = ProbeContext { body_bytes_max: u64::MAX, ..context(DEADLINE) };
    let readings = run_one(&server.url(), Experiment::ResponseTime, &endless);
    assert_eq!(readings[1].result.as_ref().unwrap_err().failure, Failure::TimedOut);
}

#[test]
fn acknowledging_more_bytes_than_sent_is_an_invalid_response() {
    let server = Server::start(|mut stream, stop| {
        upgrade(&mut stream, stop);
        agree(&mut stream, stop);
        let lie = wire::BulkSummary { bytes: 3, tcp_info: None };
        pour(&mut stream, &lie.encode(), stop);
    });
    let up = Experiment::Goodput { direction: Direction::Up, bytes: 1000 };
    fails("lies", &server.target(), up, &[Failure::InvalidResponse]);
}

#[test]
fn a_listener_that_is_not_a_station_is_detected_as_a_server() {
    for (name, behaviour, ..) in FROM_THE_FIRST_BYTE {
        let server = Server::start(behaviour);
        assert_eq!(detect(&server.target(), &context(LONG)), Ok(TargetKind::Server), "a peer that {name}");
    }
}

/// Runs the experiment and checks that each of its results is an allowed failure, and that the
/// experiment ends in time.
fn fails(name: &str, target: &barograph_probe::Target, experiment: Experiment, failures: &[Failure]) {
    let began = Instant::now();
    let readings = run_one(target, experiment, &context(DEADLINE));
    let took = began.elapsed();
    assert_eq!(readings.len(), experiment.quantities().len());
    assert!(took < DEADLINE + SLACK, "{experiment:?} with a peer that {name} took {took:?}");
    for reading in readings {
        match reading.result {
            // A peer that sends an endless head does send a first byte, so this quantity may have a
            // value.
            Ok(_) if reading.quantity == Quantity::FIRST_BYTE => {}
            Ok(measured) => panic!("{experiment:?} with a peer that {name} gave {measured:?}"),
            Err(error) => {
                assert!(
                    failures.contains(&error.failure),
                    "{experiment:?} with a peer that {name}: {error:?}"
                );
                assert!(0.0 < error.after_s && error.after_s <= took.as_secs_f64(), "{error:?}");
                let limit_s = DEADLINE.as_secs_f64();
                assert!(
                    error.failure != Failure::TimedOut || error.after_s + 0.01 >= limit_s,
                    "{name}: {error:?}"
                );
            }
        }
    }
}

/// Reads the request of a session and accepts it.
fn agree(stream: &mut TcpStream, stop: &AtomicBool) {
    use std::io::Write;
    read_request_frame(stream, stop);
    let _ = stream.write_all(&wire::Reply::Ready { nonce: 1 }.encode());
}

fn read_request_frame(stream: &mut TcpStream, stop: &AtomicBool) {
    use std::io::Read;
    let mut request = [0; wire::REQUEST_BYTES];
    let mut read = 0;
    while read < request.len() && !stop.load(Ordering::Relaxed) {
        match stream.read(&mut request[read..]) {
            Ok(0) => return,
            Ok(more) => read += more,
            Err(_) => {}
        }
    }
}

/// Writes byte by byte without end, each byte soon enough that no single wait is long.
fn trickle(stream: &mut TcpStream, bytes: &[u8], stop: &AtomicBool) {
    use std::io::{ErrorKind, Read, Write};
    let endless = bytes[..bytes.len() - 1].iter().chain(std::iter::repeat(&bytes[bytes.len() - 1]));
    // The read's timeout separates the bytes; the last byte of a frame is never sent.
    for byte in endless.take(if bytes[0] == b'H' { usize::MAX } else { bytes.len() - 1 }) {
        if stop.load(Ordering::Relaxed) || stream.write_all(&[*byte]).is_err() {
            return;
        }
        match stream.read(&mut [0; 512]) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
    swallow(stream, stop);
}
