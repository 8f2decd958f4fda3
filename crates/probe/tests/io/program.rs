//! Result of a transfer that another program receives.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use barograph_probe::io::{
    BulkOutcome, BulkPermit, BulkRequest, Consent, ExternalReceiver, InvalidTest, Responder, ResponderLimits,
    Upgraded,
};
use barograph_probe::wire::{BulkSummary, DONE_BYTES, DeclineReason, Reply, Request};

use crate::common::{LONG, reply};

/// Events, in the order in which they happened.
#[derive(Debug, PartialEq)]
enum Event {
    ProgramEnded,
    TransferEnded { bytes: u64, failed: Option<String> },
}

#[derive(Clone)]
struct FakeProgram {
    /// Port of the program; `None` if it cannot be started.
    port: Option<u16>,
    /// Result of the program; `None` if it runs until it is stopped.
    result: Option<Result<u64, InvalidTest>>,
    sender: Sender<Event>,
}

struct RunningFake(FakeProgram);

impl ExternalReceiver for RunningFake {
    fn start(&mut self, _: IpAddr) -> io::Result<u16> {
        self.0.port.ok_or_else(|| io::Error::other("no such program"))
    }

    fn poll_result(&mut self) -> Option<Result<u64, InvalidTest>> {
        self.0.result.clone()
    }

    fn bytes_max(&self) -> u64 {
        77
    }
}

impl Drop for RunningFake {
    fn drop(&mut self) {
        let _ = self.0.sender.send(Event::ProgramEnded);
    }
}

struct AlwaysConsents(Mutex<FakeProgram>);

/// A consent that ends each session that `peer` signed before `peer` was removed.
struct Withdraws(Mutex<Option<Instant>>);

impl Consent for Withdraws {
    fn still_serves(&self, caller: &str, signed_at: Instant) -> bool {
        assert_eq!(caller, "peer");
        self.0.lock().unwrap().is_none_or(|removed_at| removed_at < signed_at)
    }

    fn agree(&self, _: &BulkRequest<'_>) -> Result<BulkPermit, DeclineReason> {
        Err(DeclineReason::NotServed)
    }
}

#[test]
fn withdrawing_a_caller_ends_its_session() {
    let consent = Arc::new(Withdraws(Mutex::new(None)));
    let responder =
        Responder::start_with(ResponderLimits::default(), None, Some(Arc::clone(&consent) as _), |serve| {
            serve(&|| ())
        });
    let responder = responder.unwrap();
    let open = |signed_at: Instant| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let (stream, from) = listener.accept().unwrap();
        let slot = responder.admit(from.ip()).unwrap().signed_by("peer", signed_at).unwrap();
        thread::spawn(move || slot.serve(Upgraded::Plain(stream), Vec::new()));
        client
    };
    let begin = Instant::now();
    let exchange = |client: &mut TcpStream| {
        client.write_all(&[1, 2]).and_then(|()| client.read_exact(&mut [0; 2])).map_err(|error| error.kind())
    };
    let [mut at_rest, mut busy] = [open(begin), open(begin)];
    busy.write_all(&Request::Rtt { n: 1000 }.encode()).unwrap();
    assert_eq!(reply(&mut busy), Reply::Ready { nonce: 0 });
    assert_eq!(exchange(&mut busy), Ok(()));
    let removed_at = Instant::now();
    *consent.0.lock().unwrap() = Some(removed_at);
    at_rest.write_all(&Request::Rtt { n: 1 }.encode()).unwrap();
    assert_eq!(reply(&mut at_rest), Reply::Declined(DeclineReason::NotServed));
    let made = (0..1000).take_while(|_| exchange(&mut busy).is_ok()).count();
    assert!(made < 32, "{made} exchanges after it was withdrawn");
    // A client gains nothing if it delays the start of its session, because the time of the
    // signature counts.
    let mut late = open(begin);
    late.write_all(&Request::Rtt { n: 1 }.encode()).unwrap();
    assert_eq!(reply(&mut late), Reply::Declined(DeclineReason::NotServed));
    let mut next_holder = open(removed_at + Duration::from_nanos(1));
    next_holder.write_all(&Request::Rtt { n: 1 }.encode()).unwrap();
    assert_eq!(reply(&mut next_holder), Reply::Ready { nonce: 0 });
}

impl Consent for AlwaysConsents {
    fn agree(&self, _: &BulkRequest<'_>) -> Result<BulkPermit, DeclineReason> {
        let program = self.0.lock().unwrap().clone();
        let sender = program.sender.clone();
        let on_end = move |BulkOutcome { bytes, failed, .. }| {
            let _ = sender.send(Event::TransferEnded { bytes, failed });
        };
        Ok(BulkPermit::new(LONG, on_end).with_receiver(RunningFake(program)))
    }
}

/// Opens a session that requests an iperf3 test, which a [`RunningFake`] program receives. Returns
/// the client's connection, the events of the program, and the responder.
fn request_test(
    port: Option<u16>,
    result: Option<Result<u64, InvalidTest>>,
) -> (TcpStream, Receiver<Event>, Responder) {
    let (sender, events) = channel();
    let consent: Arc<dyn Consent> =
        Arc::new(AlwaysConsents(Mutex::new(FakeProgram { port, result, sender })));
    let responder =
        Responder::start_with(ResponderLimits::default(), None, Some(consent), |serve| serve(&|| ()))
            .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    let (stream, from) = listener.accept().unwrap();
    let slot = responder.admit(from.ip()).unwrap();
    thread::spawn(move || slot.serve(Upgraded::Plain(stream), Vec::new()));
    client.write_all(&Request::Iperf3 { ms: 1000, bytes_max: 9 }.encode()).unwrap();
    (client, events, responder)
}

fn next_events(events: &Receiver<Event>) -> [Event; 2] {
    [events.recv_timeout(LONG).unwrap(), events.recv_timeout(LONG).unwrap()]
}

#[test]
fn a_program_ends_with_its_session_and_the_bytes_it_moved_are_charged() {
    let (mut client, events, responder) = request_test(Some(5201), None);
    assert_eq!(reply(&mut client), Reply::Ready { nonce: 5201 });
    assert!(responder.bulk_running());
    drop(client);
    let [first, Event::TransferEnded { bytes: 77, failed: Some(why) }] = next_events(&events) else {
        panic!()
    };
    assert!(first == Event::ProgramEnded && why.contains("before its end"), "{why}");
}

#[test]
fn a_program_ends_with_the_station() {
    let (mut client, events, responder) = request_test(Some(5201), None);
    assert_eq!(reply(&mut client), Reply::Ready { nonce: 5201 });
    drop(responder);
    assert_eq!(next_events(&events)[0], Event::ProgramEnded);
}

#[test]
fn the_bytes_that_a_program_reports_at_its_end_are_charged() {
    let broken = InvalidTest { bytes: 18, why: "it was something else".into() };
    for (result, bytes, failed) in [(Ok(5), 5, None), (Err(broken.clone()), 18, Some(broken.why.clone()))] {
        let (mut client, events, _responder) = request_test(Some(5201), Some(result));
        assert_eq!(reply(&mut client), Reply::Ready { nonce: 5201 });
        let mut done = [0; DONE_BYTES];
        client.read_exact(&mut done).unwrap();
        assert_eq!(BulkSummary::decode(&done).unwrap().bytes, bytes);
        assert_eq!(next_events(&events), [Event::ProgramEnded, Event::TransferEnded { bytes, failed }]);
    }
}

#[test]
fn a_program_that_cannot_start_costs_nothing_and_is_declined() {
    let (mut client, events, _responder) = request_test(None, None);
    assert_eq!(reply(&mut client), Reply::Declined(DeclineReason::NotServed));
    let [Event::ProgramEnded, Event::TransferEnded { bytes: 0, failed: Some(why) }] = next_events(&events)
    else {
        panic!()
    };
    assert!(why.contains("no such program"), "{why}");
}
