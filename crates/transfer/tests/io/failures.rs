//! Tests with ends of a flow that fail, stop, or stay silent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use barograph_transfer::ProtocolViolation;
use barograph_transfer::testkit::io::flow::{FlowError, FlowMonitor, Origin, Sink};

use super::world::{Checked, Known, World, receive};

/// A sink or an origin that fails at every byte from offset `at` on.
struct Failing<T> {
    inner: T,
    at: u64,
}

fn full() -> FlowError {
    FlowError::Socket(io::Error::other("no room"))
}

impl Sink for Failing<Checked> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        if self.at < offset + bytes.len() as u64 { Err(full()) } else { self.inner.write(offset, bytes) }
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        self.inner.sync()
    }

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate
    }
}

impl Origin for Failing<Known> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        if self.at < offset + out.len() as u64 { Err(full()) } else { self.inner.read(offset, out) }
    }

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate
    }
}

fn is_full(error: &FlowError) -> bool {
    matches!(error, FlowError::Socket(error) if error.to_string() == "no room")
}

#[test]
fn a_sink_that_fails_ends_the_flow_with_its_error() {
    for is_immediate in [false, true] {
        let sink = Checked { is_immediate, ..Checked::default() };
        let failing = Failing { inner: sink.clone(), at: 5_000_000 };
        let (outflow, inflow) =
            World { sink: Box::new(failing), ..World::new(30_000_000, &sink) }.ends(|to| to);
        let (came, _) = receive(inflow);
        let watch = Arc::new(FlowMonitor::default());
        let theirs = Arc::clone(&watch);
        let sending = std::thread::spawn(move || outflow.run(&theirs).map(|_| ()));
        let error = came.join().unwrap().unwrap_err();
        assert!(is_full(&error), "{error}");
        watch.stop.store(true, Ordering::Relaxed);
        assert!(matches!(sending.join().unwrap(), Err(FlowError::Stopped)));
        assert!(sink.got.lock().unwrap().bytes <= 5_000_000);
    }
}

#[test]
fn an_origin_that_fails_ends_the_flow_with_its_error() {
    for is_immediate in [false, true] {
        let sink = Checked::default();
        let failing = Failing { inner: Known { is_immediate }, at: 5_000_000 };
        let world = World { origin: Box::new(failing), ..World::new(30_000_000, &sink) };
        let (outflow, inflow) = world.ends(|to| to);
        let (came, theirs) = receive(inflow);
        let error = outflow.run(&FlowMonitor::default()).map(|_| ()).unwrap_err();
        assert!(is_full(&error), "{error}");
        theirs.stop.store(true, Ordering::Relaxed);
        assert!(matches!(came.join().unwrap(), Err(FlowError::Stopped)));
        // What arrived is durable, so that it need not be sent again.
        let got = sink.got.lock().unwrap();
        assert_eq!(got.durable, got.bytes);
    }
}

#[test]
fn a_flow_without_feedback_gives_up() {
    let sink = Checked::default();
    let silence_max = Duration::from_millis(300);
    // No program reads the socket to which the flow sends.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let (outflow, inflow) = World { silence_max, ..World::new(1_000_000, &sink) }.ends(|_| to);
    let at = inflow.socket.local_addr().unwrap();
    let (came, _) = receive(inflow);
    let sent = outflow.run(&FlowMonitor::default()).map(|_| ());
    assert!(
        matches!(sent, Err(FlowError::NoFeedback(time, port)) if time == silence_max && port == to.port()),
        "{sent:?}"
    );
    let came = came.join().unwrap();
    assert!(
        matches!(came, Err(FlowError::NoFeedback(time, port)) if time == silence_max && port == at.port()),
        "{came:?}"
    );
}

#[test]
fn a_flow_ends_soon_after_it_is_stopped() {
    let sink = Checked::default();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (outflow, inflow) = World::new(1_000_000, &sink).ends(|_| silent.local_addr().unwrap());
    let (came, theirs) = receive(inflow);
    let watch = Arc::new(FlowMonitor::default());
    let ours = Arc::clone(&watch);
    let sending = std::thread::spawn(move || outflow.run(&ours).map(|_| ()));
    let began = Instant::now();
    theirs.stop.store(true, Ordering::Relaxed);
    watch.stop.store(true, Ordering::Relaxed);
    assert!(matches!(sending.join().unwrap(), Err(FlowError::Stopped)));
    assert!(matches!(came.join().unwrap(), Err(FlowError::Stopped)));
    // A flow should end within 100 ms. The limit is longer because the machine may be busy.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// A sink that writes nothing until `bytes` are acknowledged at the sender. These bytes fill most
/// of the receiver's memory.
struct Stuck {
    inner: Checked,
    until: Arc<FlowMonitor>,
    bytes: u64,
    waited: Arc<std::sync::atomic::AtomicBool>,
}

impl Sink for Stuck {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        let (began, never) = (Instant::now(), (std::sync::Mutex::new(()), std::sync::Condvar::new()));
        while self.until.progress.lock().unwrap().held_bytes < self.bytes {
            assert!(began.elapsed() < Duration::from_secs(60), "the sender does not get so far");
            let _ = never.1.wait_timeout(never.0.lock().unwrap(), Duration::from_millis(5)).unwrap();
            self.waited.store(true, Ordering::Relaxed);
        }
        self.inner.write(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        self.inner.sync()
    }
}

#[test]
fn a_slow_sink_loses_no_data_and_the_flow_reads_until_memory_is_full() {
    let sink = Checked::default();
    let watch = Arc::new(FlowMonitor::default());
    let waited = Arc::default();
    let stuck = Stuck {
        inner: sink.clone(),
        until: Arc::clone(&watch),
        bytes: 50 << 20,
        waited: Arc::clone(&waited),
    };
    let bytes = 100 << 20;
    let (outflow, inflow) = World { sink: Box::new(stuck), ..World::new(bytes, &sink) }.ends(|to| to);
    let (came, _) = receive(inflow);
    outflow.run(&watch).unwrap_or_else(|error| panic!("{error}"));
    came.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert!(waited.load(Ordering::Relaxed));
    let got = sink.got.lock().unwrap();
    assert_eq!((got.bytes, got.durable), (bytes, bytes));
    // Small packets are combined into larger writes. If all bytes arrived in order, there would be
    // a hundred writes of 1 MiB.
    assert!(got.writes < 5_000, "{} writes", got.writes);
}

/// An origin that panics at once.
struct Broken;

impl Origin for Broken {
    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), FlowError> {
        panic!("an origin with a fault, as this test has it")
    }
}

#[test]
fn a_panic_in_the_reader_thread_ends_the_flow_at_once() {
    let sink = Checked::default();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let world = World { origin: Box::new(Broken), ..World::new(1_000_000, &sink) };
    let (outflow, _inflow) = world.ends(|_| silent.local_addr().unwrap());
    let error = outflow.run(&FlowMonitor::default()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, FlowError::ThreadPanicked), "{error}");
}

#[test]
fn feedback_too_long_for_the_return_path_is_sent_shorter() {
    use barograph_transfer::testkit::io::seal::{Sealer, Suite};
    use barograph_transfer::testkit::wire::{DataHead, Header, PacketKind};
    use barograph_transfer::testkit::{Receiver, ReceiverConfig};
    let sink = Checked::default();
    let mut to = None;
    let (_outflow, mut inflow) = World::new(1 << 20, &sink).ends(|address| *to.insert(address));
    let to = to.unwrap();
    // Allow feedback that is longer than any path accepts, and send so many gaps that feedback
    // reaches this length.
    let config = ReceiverConfig { feedback_bytes_max: 200_000 };
    inflow.receiver = Receiver::new(config, 1 << 20, rangemap::RangeSet::new()).unwrap();
    let (came, watch) = receive(inflow);
    let ours = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut sealer = Sealer::new(Suite::fastest(), &super::world::SECRETS[0]);
    let (began, mut number, mut at_last) = (Instant::now(), 0, 0);
    let mut buffer = vec![0; 1 << 16];
    // Send every other packet number, with one byte in each packet. Continue until feedback arrives
    // again although there are more gaps than fit into 65,507 bytes.
    while at_last < 100 {
        assert!(!came.is_finished() && began.elapsed() < Duration::from_secs(60), "{at_last} after {number}");
        let mut datagram =
            Header { kind: PacketKind::Data, transfer: super::world::TRANSFER, number }.encode().to_vec();
        let offset = number / 2 % (1 << 20);
        DataHead { sent_us: 0, offset, note: None }.encode(&mut datagram);
        datagram.push(super::world::byte(offset));
        datagram.extend([0; 16]);
        assert!(sealer.seal(number, &mut datagram));
        let _ = ours.send_to(&datagram, to);
        number += 2;
        let told = ours.recv(&mut buffer).is_ok();
        let has_many = watch.progress.lock().unwrap().held_bytes > 30_000;
        at_last += u32::from(told && has_many);
    }
    watch.stop.store(true, Ordering::Relaxed);
    assert!(matches!(came.join().unwrap(), Err(FlowError::Stopped)));
}

#[test]
fn a_receiver_that_acknowledges_unsent_packets_ends_the_flow() {
    use barograph_transfer::testkit::io::seal::{Sealer, Suite};
    use barograph_transfer::testkit::wire::{AckRange, Feedback, Header, PacketKind};
    let sink = Checked::default();
    let liar = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (outflow, _inflow) = World::new(2_000_000, &sink).ends(|_| liar.local_addr().unwrap());
    let run = AckRange { received: 1 << 30, missing: 0, ..AckRange::default() };
    let mut datagram =
        Header { kind: PacketKind::Feedback, transfer: super::world::TRANSFER, number: 0 }.encode().to_vec();
    Feedback { runs: vec![run], ..Feedback::default() }.encode(&mut datagram, 1200).unwrap();
    datagram.extend([0; 16]);
    assert!(Sealer::new(Suite::fastest(), &super::world::SECRETS[1]).seal(0, &mut datagram));
    liar.send_to(&datagram, outflow.socket.local_addr().unwrap()).unwrap();
    let ended = outflow.run(&FlowMonitor::default()).map(|_| ());
    assert!(matches!(ended, Err(FlowError::Violation(ProtocolViolation::NeverSent(_)))), "{ended:?}");
}
