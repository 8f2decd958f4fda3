//! Two ends of a flow over loopback, and a relay between the two ends.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_sim::SeededRng;
use barograph_transfer::testkit::controller::{self, ControllerConfig};
use barograph_transfer::testkit::io::flow::{FlowError, FlowMonitor, Origin, ReceiveFlow, SendFlow, Sink};
use barograph_transfer::testkit::io::seal::{Opener, Sealer, Suite};
use barograph_transfer::testkit::io::socket::{Socket, SocketConfig};
use barograph_transfer::testkit::{LossClassification, Receiver, ReceiverConfig, Sender, SenderConfig};
use rangemap::RangeSet;

pub(crate) const TRANSFER: u32 = 7;
pub(crate) const SECRETS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
pub(crate) const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The byte of the test object at an offset.
pub(crate) fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// An origin that reads the test object.
pub(crate) struct Known {
    pub(crate) is_immediate: bool,
}

impl Origin for Known {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        out.iter_mut().zip(offset..).for_each(|(out, at)| *out = byte(at));
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        self.is_immediate
    }
}

/// Ranges that a sink received, and how many bytes are durable.
#[derive(Default)]
pub(crate) struct Got {
    pub(crate) ranges: RangeSet<u64>,
    pub(crate) bytes: u64,
    pub(crate) durable: u64,
    pub(crate) writes: u64,
}

/// A sink that checks the bytes that it receives.
#[derive(Clone, Default)]
pub(crate) struct Checked {
    pub(crate) got: Arc<Mutex<Got>>,
    pub(crate) is_immediate: bool,
}

impl Sink for Checked {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        let wrong = bytes.iter().zip(offset..).position(|(got, at)| *got != byte(at));
        assert_eq!(wrong, None, "of {} bytes from {offset} on", bytes.len());
        let mut got = self.got.lock().unwrap();
        got.ranges.insert(offset..offset + bytes.len() as u64);
        got.bytes += bytes.len() as u64;
        got.writes += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        let mut got = self.got.lock().unwrap();
        got.durable = got.bytes;
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        self.is_immediate
    }
}

/// The components and the options of a flow.
pub(crate) struct World {
    pub(crate) suite: Suite,
    pub(crate) address: IpAddr,
    pub(crate) bytes: u64,
    pub(crate) held: RangeSet<u64>,
    pub(crate) kind: controller::ControllerKind,
    pub(crate) silence_max: Duration,
    pub(crate) origin: Box<dyn Origin>,
    pub(crate) sink: Box<dyn Sink>,
}

impl World {
    pub(crate) fn new(bytes: u64, sink: &Checked) -> Self {
        Self {
            suite: Suite::fastest(),
            address: V4,
            bytes,
            held: RangeSet::new(),
            kind: controller::ControllerKind::DEFAULT,
            silence_max: Duration::from_secs(20),
            origin: Box::new(Known { is_immediate: false }),
            sink: Box::new(sink.clone()),
        }
    }

    /// Creates both ends. The sender sends to the address that `via` returns; the argument of `via`
    /// is the receiver's address.
    pub(crate) fn ends(self, via: impl FnOnce(SocketAddr) -> SocketAddr) -> (SendFlow, ReceiveFlow) {
        let config = SocketConfig { buffer_bytes: 4 << 20, trains: true, ecn: true };
        // The crate of tests for the portable sockets also includes this file.
        let bind = match env!("CARGO_CRATE_NAME") {
            "portable" => Socket::bind_portable,
            _ => Socket::bind,
        };
        let there = bind(SocketAddr::new(self.address, 0), config).unwrap();
        let mut here = bind(SocketAddr::new(self.address, 0), config).unwrap();
        here.connect(via(there.local_addr().unwrap())).unwrap();
        let sealer = Sealer::new(self.suite, &SECRETS[0]);
        let payload_bytes = 1400 - 28 - sealer.seal_bytes() as u32;
        let config = SenderConfig {
            payload_bytes,
            overhead_bytes: 1428 - payload_bytes,
            seed: 1,
            classification: LossClassification::Default,
        };
        let controller = self.kind.controller(ControllerConfig::default());
        let outflow = SendFlow {
            socket: here,
            sealer,
            opener: Opener::new(self.suite, &SECRETS[1]),
            transfer: TRANSFER,
            sender: Sender::new(config, self.bytes, &self.held, controller).unwrap(),
            origin: self.origin,
            silence_max: self.silence_max,
        };
        let receiver = ReceiverConfig { feedback_bytes_max: 1200 };
        let inflow = ReceiveFlow {
            socket: there,
            opener: Opener::new(self.suite, &SECRETS[0]),
            sealer: Sealer::new(self.suite, &SECRETS[1]),
            transfer: TRANSFER,
            receiver: Receiver::new(receiver, self.bytes, self.held).unwrap(),
            sink: self.sink,
            from: self.address,
            silence_max: self.silence_max,
        };
        (outflow, inflow)
    }
}

pub(crate) type Came = JoinHandle<Result<(), FlowError>>;

/// Starts the receiving end in a thread.
pub(crate) fn receive(inflow: ReceiveFlow) -> (Came, Arc<FlowMonitor>) {
    let watch = Arc::new(FlowMonitor::default());
    let theirs = Arc::clone(&watch);
    (std::thread::spawn(move || inflow.run(&theirs).map(|_| ())), watch)
}

/// Share of the datagrams that a relay damages, for each kind of damage.
#[derive(Clone, Copy, Default)]
pub(crate) struct Harm {
    pub(crate) lost: f64,
    pub(crate) held_back: f64,
    pub(crate) doubled: f64,
    pub(crate) flipped: f64,
    pub(crate) cut: f64,
    /// Maximum size of a datagram, in bytes: longer datagrams are dropped without an error. 0 means
    /// no limit.
    pub(crate) longest: usize,
}

/// A relay between two ends, which damages datagrams in both directions.
pub(crate) struct DatagramRelay {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl DatagramRelay {
    pub(crate) fn new(to: SocketAddr, harm: Harm, seed: u64) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (address, stop) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || relay(&socket, to, harm, seed, &stopped));
        Self { address, stop, thread: Some(thread) }
    }

    /// Stops the relay. Returns the number of datagrams that were changed or doubled.
    pub(crate) fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for DatagramRelay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn relay(socket: &UdpSocket, to: SocketAddr, harm: Harm, seed: u64, stop: &AtomicBool) -> u64 {
    let (mut rng, mut buffer, mut back, mut harmed) = (SeededRng::new(seed, 0), [0; 2048], None, 0);
    let mut kept: Vec<(usize, Vec<u8>, SocketAddr)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let came = socket.recv_from(&mut buffer).ok();
        // A datagram that was held back is sent after some other datagrams, or when no other
        // datagram arrives.
        for (left, bytes, to) in &mut kept {
            *left = if came.is_none() { 0 } else { left.saturating_sub(1) };
            if *left == 0 {
                let _ = socket.send_to(bytes, *to);
            }
        }
        kept.retain(|(left, ..)| *left > 0);
        let Some((length, from)) = came else { continue };
        let onward = if from == to {
            let Some(back) = back else { continue };
            back
        } else {
            back = Some(from);
            to
        };
        let mut bytes = buffer[..length].to_vec();
        if rng.bernoulli(harm.lost) || (0 < harm.longest && harm.longest < length) {
            continue;
        }
        if rng.bernoulli(harm.flipped) {
            harmed += 1;
            bytes[rng.index_below(length)] ^= 1 << rng.index_below(8);
        }
        if rng.bernoulli(harm.cut) {
            harmed += 1;
            bytes.truncate(rng.index_below(length));
        }
        if rng.bernoulli(harm.doubled) {
            harmed += 1;
            kept.push((1 + rng.index_below(50), bytes.clone(), onward));
        }
        if rng.bernoulli(harm.held_back) {
            kept.push((1 + rng.index_below(20), bytes, onward));
        } else {
            let _ = socket.send_to(&bytes, onward);
        }
    }
    harmed
}
