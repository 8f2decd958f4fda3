//! Attacks of one client. The station still serves a well-behaved client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use barograph_probe::Direction;
use barograph_probe::wire::{DeclineReason, Request};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio_tungstenite::tungstenite::Message;

use super::client::Page;
use crate::http::get;
use crate::{Running, quiet, start};
use barograph_station::Config;

/// A station for which callers on this host count as other hosts, as behind a proxy.
fn public(state: &std::path::Path, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = quiet(state);
    config.loopback_needs_token = true;
    change(&mut config);
    start(config)
}

/// Checks that a client at another address gets every kind of measurement, and that the API
/// responds.
fn still_serves(address: SocketAddr) {
    assert_eq!(get(address, "/healthz").status, 200);
    let mut page = Page::open_from(address, HONEST).unwrap();
    page.rtt(2).unwrap();
    assert_eq!(page.up(65_536).unwrap().bytes, 65_536);
    assert_eq!(page.down(65_536).unwrap().0, 65_536);
}

/// Opens `wanted` connections at once. If the file descriptors of this process do not suffice for
/// both ends of so many connections, opens fewer.
fn connections(address: SocketAddr, wanted: usize) -> Vec<TcpStream> {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let _ = setrlimit(Resource::RLIMIT_NOFILE, limit.1, limit.1);
    // Each connection needs two descriptors, one for each end. A quarter of all descriptors is left
    // for other files, including those of other tests.
    let possible = usize::try_from(limit.1 / 8 * 3).unwrap_or(usize::MAX);
    let count = wanted.min(possible);
    if count < wanted {
        barograph_sim::report_skipped(&format!(
            "{} of {wanted} connections, for want of open files",
            wanted - count
        ));
    }
    (0..count).map(|_| crate::http::connect(address)).collect()
}

#[test]
fn an_address_with_a_thousand_connections_gets_only_its_share() {
    let state = tempfile::tempdir().unwrap();
    // One address gets a quarter of these connections.
    let station = public(state.path(), |config| config.connections_max = 8000);
    let address = station.address();
    let waiting = connections(address, 1000);
    let count = waiting.len();
    println!("{count} connections are open at once");
    still_serves(address);
    let (held, refused): (Vec<_>, Vec<_>) =
        waiting.into_iter().map(|stream| Page::through(stream, address, None)).partition(Result::is_ok);
    assert_eq!((held.len(), refused.len()), (64, count - 64), "a quarter of echo.sessions_max");
    assert!(refused.iter().all(|status| status.as_ref().err() == Some(&503)));
    still_serves(address);
    assert_eq!(get(address, "/v1/echo").status, 503, "a page learns why it was refused");
    drop(held);
    crate::http::get_until(address, "/v1/echo", |answer| answer.status == 426);
    station.stop(crate::LIMIT);
}

/// Measures like a page until `attack` returns; returns the number of measurements and of failures.
fn measured_during(address: SocketAddr, attack: impl FnOnce()) -> (usize, usize) {
    let (is_over, measured, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut page = Page::open_from(address, HONEST).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let outcomes = [
                    page.rtt(2).is_ok(),
                    page.up(65_536).is_ok_and(|done| done.bytes == 65_536),
                    page.down(65_536).is_ok_and(|(came, _)| came == 65_536),
                ];
                measured.fetch_add(outcomes.len(), Ordering::Relaxed);
                failed.fetch_add(outcomes.iter().filter(|is_ok| !**is_ok).count(), Ordering::Relaxed);
            }
        });
        let _over = Over(&is_over);
        attack();
        // Count only measurements made during the attack.
        crate::http::get(address, "/healthz");
    });
    (measured.into_inner(), failed.into_inner())
}

/// This guard ends the measurement even if the attack panics. Otherwise the other thread would
/// never end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_honest_page_measures_during_floods() {
    let state = tempfile::tempdir().unwrap();
    let station = public(state.path(), |_| {});
    let address = station.address();
    let flood = |bytes: &[u8], code: u16| {
        for _ in 0..20 {
            let mut page = Page::open(address);
            let _ = page.socket.get_mut().write_all(bytes);
            assert_eq!(page.closed(), Some(code));
        }
    };
    let attacks: [(&str, &dyn Fn()); 3] = [
        ("giant frames", &|| flood(&endless(), 1008)),
        ("floods of pings", &|| flood(&[0x89, 0x80, 0, 0, 0, 0].repeat(20_000), 1008)),
        ("transfers in a loop", &|| {
            let mut page = Page::open(address);
            while page.down(4 << 20).is_ok() {}
        }),
    ];
    for (what, attack) in attacks {
        let (measured, failed) = measured_during(address, attack);
        println!("amid {what}: {measured} measurements, {failed} failed");
        assert!(measured >= 3 && failed * 100 <= measured, "{what}: {failed} of {measured} failed");
    }
}

#[test]
fn protocol_violations_close_the_session_with_their_code() {
    let state = tempfile::tempdir().unwrap();
    let station = public(state.path(), |_| {});
    let address = station.address();
    let masked = |first: u8, length: u8| [first, 0x80 | length, 0, 0, 0, 0];
    let mut giant_frame = vec![0x82, 0xFF];
    giant_frame.extend(u64::to_be_bytes(1 << 40));
    giant_frame.extend([0; 4]);
    let empty_fragments: Vec<u8> =
        masked(0x02, 0).into_iter().chain(masked(0x00, 0).repeat(20_000)).collect();
    let mut twice_too_long = Request::Rtt { n: 1 }.encode().to_vec();
    twice_too_long.push(0);
    let cases: [(&str, Vec<u8>, u16); 10] = [
        ("a frame of a tebibyte", giant_frame, 1009),
        ("fragments without end", endless(), 1008),
        ("fragments of nothing", empty_fragments, 1008),
        ("pings without end", masked(0x89, 0).repeat(20_000), 1008),
        ("an unmasked frame", vec![0x82, 0x01, 0x00], 1002),
        ("a reserved bit", masked(0xC2, 0).to_vec(), 1002),
        ("an undefined opcode", masked(0x83, 0).to_vec(), 1002),
        ("a continuation of nothing", masked(0x80, 0).to_vec(), 1002),
        ("a text that is not UTF-8", [masked(0x81, 1).to_vec(), vec![0xFF]].concat(), 1007),
        ("a request of nothing", masked(0x82, 0).to_vec(), 1002),
    ];
    for (what, bytes, code) in cases {
        let mut page = Page::open(address);
        // The station may close the connection before it has read all bytes.
        let _ = page.socket.get_mut().write_all(&bytes);
        assert_eq!(page.closed(), Some(code), "{what}");
        still_serves(address);
    }
    let mut page = Page::open(address);
    page.send(&twice_too_long);
    assert_eq!(barograph_probe::wire::Reply::decode(&page.take()).unwrap(), MALFORMED);
    assert_eq!(page.closed(), Some(1002));
}

#[test]
fn messages_outside_the_requested_experiment_close_the_session() {
    let state = tempfile::tempdir().unwrap();
    let station = public(state.path(), |_| {});
    let address = station.address();
    let up = |bytes| Request::Goodput { direction: Direction::Up, bytes };
    let cases: [(&str, Request, Message, u16); 4] = [
        ("three bytes as an exchange", Request::Rtt { n: 2 }, Message::binary(vec![0; 3]), 1002),
        ("report during an experiment", Request::Rtt { n: 2 }, Message::text("{}"), 1002),
        ("more bytes than asked for", up(10), Message::binary(vec![0; 11]), 1002),
        ("a message too long", up(1 << 20), Message::binary(vec![0; 65_537]), 1009),
    ];
    for (what, request, message, code) in cases {
        let mut page = Page::open(address);
        page.request(request).unwrap();
        page.socket.send(message).unwrap();
        assert_eq!(page.closed(), Some(code), "{what}");
    }
    // A message in fragments is limited, too.
    let mut page = Page::open(address);
    page.request(up(1 << 20)).unwrap();
    let _ = page.socket.get_mut().write_all(&endless());
    assert_eq!(page.closed(), Some(1009));
    // A transfer in messages of one byte uses up the limit for messages before it ends.
    let mut page = Page::open(address);
    page.request(up(1 << 20)).unwrap();
    let drip = [0x82, 0x81, 0, 0, 0, 0, 0].repeat(200_000);
    let _ = page.socket.get_mut().write_all(&drip);
    assert_eq!(page.closed(), Some(1008));
    // Requests that are always declined are limited, too.
    let mut page = Page::open(address);
    let vain = Request::Datagrams { n: 1 }.encode();
    let asked = (0..10_000).take_while(|_| page.socket.send(Message::binary(vain.to_vec())).is_ok()).count();
    assert_eq!(page.closed(), Some(1008), "after {asked}");
    still_serves(address);
}

#[test]
fn slow_and_silent_sessions_do_not_delay_other_sessions() {
    let state = tempfile::tempdir().unwrap();
    let station = public(state.path(), |_| {});
    let address = station.address();
    let transfer = |direction| Request::Goodput { direction, bytes: 16 << 20 };
    // One address gets two transfer slots. A page that reads nothing holds one slot; a page that
    // writes nothing holds the other.
    let mut slow_reader = Page::open(address);
    slow_reader.request(transfer(Direction::Down)).unwrap();
    slow_reader.send(&[0, 0]);
    let mut slow_writer = Page::open(address);
    slow_writer.request(transfer(Direction::Up)).unwrap();
    slow_writer.send(&[0; 100]);
    let mut half_open = Page::open(address);
    half_open.request(Request::Rtt { n: 1000 }).unwrap();
    half_open.socket.get_mut().write_all(&[0x82]).unwrap();
    let third = Page::open(address).up(1);
    assert_eq!(third, Err(DeclineReason::Busy), "their address has used its slots up");
    still_serves(address);
    drop((slow_reader, slow_writer, half_open));
    station.stop(crate::LIMIT);
}

/// Starts slow transfers, as many as the station admits.
fn dripping(open: impl Fn() -> Page) -> Vec<Page> {
    let mut held = Vec::new();
    loop {
        let mut page = open();
        match page.request(Request::Goodput { direction: Direction::Up, bytes: 16 << 20 }) {
            Ok(()) => page.send(&[0]),
            Err(declined) => {
                assert_eq!(declined, DeclineReason::Busy);
                return held;
            }
        }
        held.push(page);
    }
}

#[test]
fn slow_transfers_of_two_addresses_leave_slots_for_a_third_address() {
    let state = tempfile::tempdir().unwrap();
    let station = public(state.path(), |_| {});
    let address = station.address();
    let mut held = Vec::new();
    for last in [2, 3] {
        let own = dripping(|| Page::open_from(address, [127, 0, 0, last].into()).unwrap());
        assert_eq!(own.len(), 2, "an eighth of echo.transfers_max");
        held.extend(own);
    }
    let mut honest = Page::open_from(address, [127, 0, 0, 4].into()).unwrap();
    for _ in 0..5 {
        assert_eq!(honest.up(65_536).unwrap().bytes, 65_536);
        assert_eq!(honest.down(65_536).unwrap().0, 65_536);
    }
    drop(held);
}

#[test]
fn transfers_of_other_hosts_leave_slots_for_this_host() {
    let state = tempfile::tempdir().unwrap();
    let station = start({
        let mut config = quiet(state.path());
        config.echo.transfers_max = 8;
        config
    });
    let address = station.address();
    let held: Vec<Page> = (2..9)
        .map(|last| {
            let mut page = Page::open_forwarded(address, [127, 0, last, 1].into());
            page.request(Request::Goodput { direction: Direction::Up, bytes: 16 << 20 }).unwrap();
            page.send(&[0]);
            page
        })
        .collect();
    let mut more = Page::open_forwarded(address, [127, 0, 9, 1].into());
    assert_eq!(more.up(1), Err(DeclineReason::Busy), "seven of eight are for elsewhere");
    let mut here = Page::open(address);
    for _ in 0..5 {
        assert_eq!(here.up(65_536).unwrap().bytes, 65_536);
        assert_eq!(here.down(65_536).unwrap().0, 65_536);
    }
    drop(held);
}

#[test]
fn repeated_probes_are_declined_after_the_byte_budget() {
    let state = tempfile::tempdir().unwrap();
    // An eighth of this budget may be used at once: 32 MiB.
    let station = public(state.path(), |config| config.echo.peer_bytes_per_hour = 256 << 20);
    let address = station.address();
    let mut page = Page::open(address);
    let mut moved = 0_u64;
    let declined = loop {
        match page.down(4 << 20) {
            Ok((came, _)) => moved += came as u64,
            Err(declined) => break declined,
        }
        assert!(moved <= 64 << 20, "it goes on");
    };
    assert_eq!(declined, DeclineReason::Spent);
    // A part of the permitted burst is already used, because the session was opened.
    assert!(28 << 20 <= moved, "the burst is granted: {moved}");
    assert_eq!(
        Page::open(address).up(4 << 20),
        Err(DeclineReason::Spent),
        "another session is no other address"
    );
    still_serves(address);
    let metrics = get(address, "/metrics").body;
    assert!(metrics.contains("barograph_echo_declined_total{reason=\"spent\"} 2.0"), "{metrics}");
    let requests = crate::limits::limit(address, "echo_requests");
    assert_eq!(requests["refused"], 2, "{requests}");
    let setting = requests["setting"].as_str().unwrap_or_default();
    assert!(setting.contains("echo.peer_bytes_per_hour"), "{requests}");
}

#[test]
fn repeated_session_openings_are_refused_after_the_byte_budget() {
    let state = tempfile::tempdir().unwrap();
    // An eighth of this budget may be used at once: enough for sixteen sessions.
    let station = public(state.path(), |config| config.echo.peer_bytes_per_hour = 8 << 20);
    let address = station.address();
    // The station does not charge a request without a handshake.
    for _ in 0..20 {
        assert_eq!(get(address, "/v1/echo").status, 426);
    }
    let opened = (0..40).map_while(|_| Page::try_open(address, None).ok()).count();
    assert!((16..20).contains(&opened), "{opened}");
    let refused = get(address, "/v1/echo");
    assert_eq!(refused.status, 503);
    assert!(refused.error().contains("peer_bytes_per_hour"), "{}", refused.error());
    assert!(Page::open_from(address, HONEST).is_ok(), "another address has its own");
}

#[test]
fn a_local_page_has_no_byte_budget_but_keeps_the_size_limits() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.echo.peer_bytes_per_hour = 1 << 20;
    let station = start(config);
    let mut page = Page::open(station.address());
    for _ in 0..4 {
        assert_eq!(page.up(131_072).unwrap().bytes, 131_072);
    }
    assert_eq!(page.up(131_073), Err(DeclineReason::TooLarge { limit: 131_072 }));
}

#[test]
fn a_connection_closed_during_a_transfer_releases_its_slot() {
    let state = tempfile::tempdir().unwrap();
    let station = public(state.path(), |config| config.echo.transfers_max = 1);
    let address = station.address();
    for _ in 0..5 {
        let mut page = Page::open(address);
        page.request(Request::Goodput { direction: Direction::Up, bytes: 1 << 20 }).unwrap();
        page.send(&[0; 1000]);
    }
    let mut page = Page::open(address);
    assert_eq!(page.up(65_536).unwrap().bytes, 65_536);
    let mut rest = [0; 1];
    page.socket.close(None).unwrap();
    while page.socket.read().is_ok() {}
    assert_eq!(page.socket.get_mut().read(&mut rest).unwrap_or(0), 0, "a close is answered by closing");
    station.stop(crate::LIMIT);
}

/// The first fragment of an endless message, and continuations of 32 KiB each.
fn endless() -> Vec<u8> {
    let fragment = |first| [&[first, 0xFE, 0x80, 0x00, 0, 0, 0, 0][..], &[0; 0x8000]].concat();
    [fragment(0x02), fragment(0x00).repeat(4)].concat()
}

const MALFORMED: barograph_probe::wire::Reply =
    barograph_probe::wire::Reply::Declined(DeclineReason::Malformed);
/// Address of the honest caller, different from the attacker's: every address in 127.0.0.0/8
/// belongs to this host (RFC 1122 §3.2.1.3).
const HONEST: std::net::Ipv4Addr = std::net::Ipv4Addr::new(127, 0, 0, 9);
