//! Result of a transfer that another program receives.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use barograph_probe::io::{Agreement, Consent, Limits, NoTest, Program, Responder, Settled, Upgraded, Wish};
use barograph_probe::wire::{DONE_BYTES, Declined, Done, Reply, Request};

use crate::common::{LONG, reply};

/// Events, in the order in which they happened.
#[derive(Debug, PartialEq)]
enum Said {
    Ended,
    Settled { bytes: u64, failed: Option<String> },
}

#[derive(Clone)]
struct Plays {
    /// Port of the program; `None` if it cannot be started.
    port: Option<u16>,
    /// Result of the program; `None` if it runs until it is stopped.
    received: Option<Result<u64, NoTest>>,
    said: Sender<Said>,
}

struct Playing(Plays);

impl Program for Playing {
    fn start(&mut self, _: IpAddr) -> io::Result<u16> {
        self.0.port.ok_or_else(|| io::Error::other("no such program"))
    }

    fn received(&mut self) -> Option<Result<u64, NoTest>> {
        self.0.received.clone()
    }

    fn most(&self) -> u64 {
        77
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.0.said.send(Said::Ended);
    }
}

struct Agrees(Mutex<Plays>);

/// A consent that lets the sessions of `peer` continue until the flag is set, as if `peer` were
/// then removed from the mesh.
struct Withdraws(AtomicBool);

impl Consent for Withdraws {
    fn still_serves(&self, caller: &str, _since: Instant) -> bool {
        assert_eq!(caller, "peer");
        !self.0.load(Ordering::Relaxed)
    }

    fn agree(&self, _: &Wish<'_>) -> Result<Agreement, Declined> {
        Err(Declined::NotServed)
    }
}

#[test]
fn the_session_of_a_caller_that_is_withdrawn_ends() {
    let consent = Arc::new(Withdraws(AtomicBool::new(false)));
    let responder =
        Responder::start_with(Limits::default(), None, Some(Arc::clone(&consent) as _), |serve| {
            serve(&|| ())
        });
    let responder = responder.unwrap();
    let open = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let (stream, from) = listener.accept().unwrap();
        let slot = responder.admit(from.ip()).unwrap().signed_by("peer").unwrap();
        thread::spawn(move || slot.serve(Upgraded::Plain(stream), Vec::new()));
        client
    };
    let exchange = |client: &mut TcpStream| {
        client.write_all(&[1, 2]).and_then(|()| client.read_exact(&mut [0; 2])).map_err(|error| error.kind())
    };
    let [mut at_rest, mut busy] = [open(), open()];
    busy.write_all(&Request::Rtt { n: 1000 }.encode()).unwrap();
    assert_eq!(reply(&mut busy), Reply::Ready { nonce: 0 });
    assert_eq!(exchange(&mut busy), Ok(()));
    consent.0.store(true, Ordering::Relaxed);
    at_rest.write_all(&Request::Rtt { n: 1 }.encode()).unwrap();
    assert_eq!(reply(&mut at_rest), Reply::Declined(Declined::NotServed));
    let made = (0..1000).take_while(|_| exchange(&mut busy).is_ok()).count();
    assert!(made < 32, "{made} exchanges after it was withdrawn");
}

impl Consent for Agrees {
    fn agree(&self, _: &Wish<'_>) -> Result<Agreement, Declined> {
        let plays = self.0.lock().unwrap().clone();
        let said = plays.said.clone();
        let settle = move |Settled { bytes, failed, .. }| {
            let _ = said.send(Said::Settled { bytes, failed });
        };
        Ok(Agreement::new(LONG, settle).by(Playing(plays)))
    }
}

/// Opens a session that requests an iperf3 test, which a [`Playing`] program receives. Returns the
/// client's connection, the events of the program, and the responder.
fn asked(port: Option<u16>, received: Option<Result<u64, NoTest>>) -> (TcpStream, Receiver<Said>, Responder) {
    let (said, heard) = channel();
    let consent: Arc<dyn Consent> = Arc::new(Agrees(Mutex::new(Plays { port, received, said })));
    let responder =
        Responder::start_with(Limits::default(), None, Some(consent), |serve| serve(&|| ())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    let (stream, from) = listener.accept().unwrap();
    let slot = responder.admit(from.ip()).unwrap();
    thread::spawn(move || slot.serve(Upgraded::Plain(stream), Vec::new()));
    client.write_all(&Request::Iperf3 { ms: 1000, bytes_max: 9 }.encode()).unwrap();
    (client, heard, responder)
}

fn heard(heard: &Receiver<Said>) -> [Said; 2] {
    [heard.recv_timeout(LONG).unwrap(), heard.recv_timeout(LONG).unwrap()]
}

#[test]
fn a_program_ends_with_the_session_and_what_it_may_have_moved_is_charged() {
    let (mut client, said, responder) = asked(Some(5201), None);
    assert_eq!(reply(&mut client), Reply::Ready { nonce: 5201 });
    assert!(responder.bulk_running());
    drop(client);
    let [first, Said::Settled { bytes: 77, failed: Some(why) }] = heard(&said) else { panic!() };
    assert!(first == Said::Ended && why.contains("ended before"), "{why}");
}

#[test]
fn a_program_ends_with_the_station() {
    let (mut client, said, responder) = asked(Some(5201), None);
    assert_eq!(reply(&mut client), Reply::Ready { nonce: 5201 });
    drop(responder);
    assert_eq!(heard(&said)[0], Said::Ended);
}

#[test]
fn what_a_program_says_at_its_end_is_what_is_settled() {
    let broken = NoTest { bytes: 18, why: "it was something else".into() };
    for (received, bytes, failed) in [(Ok(5), 5, None), (Err(broken.clone()), 18, Some(broken.why.clone()))] {
        let (mut client, said, _responder) = asked(Some(5201), Some(received));
        assert_eq!(reply(&mut client), Reply::Ready { nonce: 5201 });
        let mut done = [0; DONE_BYTES];
        client.read_exact(&mut done).unwrap();
        assert_eq!(Done::decode(&done).unwrap().bytes, bytes);
        assert_eq!(heard(&said), [Said::Ended, Said::Settled { bytes, failed }]);
    }
}

#[test]
fn one_that_cannot_be_started_costs_nothing_and_says_so() {
    let (mut client, said, _responder) = asked(None, None);
    assert_eq!(reply(&mut client), Reply::Declined(Declined::NotServed));
    let [Said::Ended, Said::Settled { bytes: 0, failed: Some(why) }] = heard(&said) else { panic!() };
    assert!(why.contains("no such program"), "{why}");
}
