//! Goodput of a flow, compared with the goodput of the same datagrams without the protocol.
//!
//! `cargo bench -p barograph-transfer --features io,testkit --bench flow [-- ROUNDS [MIB]]` moves
//! memory to memory over loopback in datagrams of 1472 bytes. For sealed and for clear datagrams it
//! prints the median of some rounds, in Gbit/s of the object and as a share of the raw limit of the
//! same round:
//!
//! - *raw*: one thread seals trains with ring and sends the trains. Another thread receives and
//!   opens the trains. Both work without protocol and without copies. A counter in shared memory
//!   stops the sender before the socket's buffer is full, so that no datagram is lost.
//! - The flow with some controllers. The loops of the flow read and write memory. In rows with
//!   *threads*, separate threads read and write memory, as with files. The flow moves the same 256
//!   KiB repeatedly, as iperf3 does. In rows with *64 MiB*, the memory is larger than the caches.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock, and may fail"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barograph_transfer::testkit::controller::{ControllerConfig, ControllerKind};
use barograph_transfer::testkit::io::flow::{
    FlowError, FlowMonitor, FlowProgress, Origin, ReceiveFlow, SendFlow, Sink,
};
use barograph_transfer::testkit::io::seal::{Opener, Sealer, Suite};
use barograph_transfer::testkit::io::socket::{Inbox, Socket, SocketConfig, Train};
use barograph_transfer::testkit::wire::{self, Header};
use barograph_transfer::testkit::{LossClassification, Receiver, ReceiverConfig, Sender, SenderConfig};
use nix::time::{ClockId, clock_gettime};
use rangemap::RangeSet;

const DATAGRAM: usize = 1472;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SECRETS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(5).max(1);
    let bytes = numbers.next().unwrap_or(1024).max(1) << 20;
    // Name of the only rows to run, for a profiler; `None` runs all rows.
    let only = std::env::var("ONLY").ok();
    for suite in [Suite::fastest(), Suite::Clear] {
        println!("{suite:?}, {} MiB, {rounds} rounds", bytes >> 20);
        let mut table: Vec<(String, Vec<f64>, Vec<f64>)> = Vec::new();
        let mut note = |name: &str, gbit_s: f64, share: f64| {
            let row = match table.iter().position(|row| row.0 == name) {
                Some(row) => row,
                None => {
                    table.push((name.to_owned(), Vec::new(), Vec::new()));
                    table.len() - 1
                }
            };
            table[row].1.push(gbit_s);
            table[row].2.push(share);
        };
        for _ in 0..rounds {
            let limit = named("raw-send", move || raw(suite, bytes)).join().unwrap();
            note("raw", limit, 1.0);
            let rate_bytes_s = limit * 1e9 / 8.0 * DATAGRAM as f64 / payload(suite) as f64;
            for (name, kind, memories) in [
                ("fixed at the limit", ControllerKind::Fixed, [memory(256, true), memory(256, true)]),
                ("fixed, 64 MiB", ControllerKind::Fixed, [memory(65_536, true), memory(65_536, true)]),
                ("default", ControllerKind::DEFAULT, [memory(256, true), memory(256, true)]),
                ("default, 64 MiB", ControllerKind::DEFAULT, [memory(65_536, true), memory(65_536, true)]),
                ("default, threads", ControllerKind::DEFAULT, [memory(256, false), memory(256, false)]),
            ]
            .into_iter()
            .filter(|row| only.as_ref().is_none_or(|only| row.0 == only))
            {
                let gbit_s = ours(name, suite, bytes, kind, rate_bytes_s, memories);
                note(name, gbit_s, gbit_s / limit);
            }
        }
        for (name, mut gbit_s, mut shares) in table {
            println!("{name:>20}  {:6.2} Gbit/s  {:5.2} of raw", median(&mut gbit_s), median(&mut shares));
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Number of bytes of the object in each datagram.
fn payload(suite: Suite) -> usize {
    DATAGRAM - wire::HEADER_BYTES - wire::DATA_HEAD_BYTES - Sealer::new(suite, &SECRETS[0]).seal_bytes()
}

fn sockets() -> [Socket; 2] {
    let config = SocketConfig { buffer_bytes: 8 << 20, trains: true, ecn: true };
    let there = Socket::bind(SocketAddr::new(HERE, 0), config).unwrap();
    let mut here = Socket::bind(SocketAddr::new(HERE, 0), config).unwrap();
    here.connect(there.local_addr().unwrap()).unwrap();
    [here, there]
}

/// Gbit/s of object bytes that trains of datagrams can carry.
fn raw(suite: Suite, bytes: u64) -> f64 {
    let [mut here, mut there] = sockets();
    let packets = bytes / payload(suite) as u64;
    // The kernel charges about twice a datagram's length to the socket's buffer.
    let window = there.capabilities().receive_buffer_bytes as u64 / 4 / DATAGRAM as u64;
    let read = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&read);
    let began = Instant::now();
    let receiving = named("raw-receive", move || {
        let (mut opener, mut inbox) = (Opener::new(suite, &SECRETS[0]), Inbox::new(16));
        let (mut opened, mut heard) = (0, Instant::now());
        while opened < packets && heard.elapsed() < Duration::from_secs(2) {
            let Ok(_) = there.receive(&mut inbox) else {
                there.wait(false, Duration::from_millis(100)).unwrap();
                continue;
            };
            heard = Instant::now();
            for train in inbox.received() {
                for datagram in train.bytes.chunks_mut(train.segment) {
                    opened += u64::from(opener.open(datagram).is_some());
                }
            }
            told.store(opened, Ordering::Release);
        }
        (opened, cpu())
    });
    let before = cpu();
    let mut sealer = Sealer::new(suite, &SECRETS[0]);
    let mut train = vec![0; 44 * DATAGRAM];
    let mut number = 0;
    while number < packets {
        while number.saturating_sub(read.load(Ordering::Acquire)) + 44 > window {
            if receiving.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_micros(10));
        }
        for datagram in train.chunks_mut(DATAGRAM) {
            let header = Header { kind: wire::PacketKind::Data, transfer: 7, number };
            datagram[..wire::HEADER_BYTES].copy_from_slice(&header.encode());
            assert!(sealer.seal(number, datagram));
            number += 1;
        }
        while here.send(&[Train { bytes: &train, segment: DATAGRAM }], None).is_err() {
            here.wait(true, Duration::from_millis(100)).unwrap();
        }
    }
    let sending = cpu() - before;
    let (opened, receiving) = receiving.join().unwrap();
    let each = |cpu: Duration| cpu.as_nanos() as f64 / number as f64;
    println!("  {:>20}  {:.0} ns a packet to send, {:.0} to receive", "raw", each(sending), each(receiving));
    assert!(opened >= packets, "the raw limit is one without losses: {opened} of {packets}");
    bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9
}

/// Starts a thread with a name, for profilers.
fn named<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).unwrap()
}

/// CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Memory that is read or written repeatedly.
struct Memory {
    bytes: Vec<u8>,
    is_immediate: bool,
}

/// Maximum number of bytes that are read or written at once.
const BLOCK_MAX: usize = 1 << 20;

fn memory(kib: usize, is_immediate: bool) -> Memory {
    Memory { bytes: vec![7; (kib << 10) + BLOCK_MAX], is_immediate }
}

impl Memory {
    fn place(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let from = offset as usize % (self.bytes.len() - BLOCK_MAX);
        &mut self.bytes[from..from + len]
    }
}

impl Origin for Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        out.copy_from_slice(self.place(offset, out.len()));
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        self.is_immediate
    }
}

impl Sink for Memory {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        self.place(offset, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        self.is_immediate
    }
}

fn ours(
    name: &str,
    suite: Suite,
    bytes: u64,
    kind: ControllerKind,
    rate_bytes_s: f64,
    memories: [Memory; 2],
) -> f64 {
    let [origin, sink] = memories;
    let [here, there] = sockets();
    let payload_bytes = payload(suite) as u32;
    let overhead_bytes = DATAGRAM as u32 + 28 - payload_bytes;
    let config = ControllerConfig { rate_bytes_s, packet_bytes: DATAGRAM as u32 + 28, seed: 1 };
    let sender =
        SenderConfig { payload_bytes, overhead_bytes, seed: 1, classification: LossClassification::Default };
    let silence_max = Duration::from_secs(10);
    let outflow = SendFlow {
        socket: here,
        sealer: Sealer::new(suite, &SECRETS[0]),
        opener: Opener::new(suite, &SECRETS[1]),
        transfer: 7,
        sender: Sender::new(sender, bytes, &RangeSet::new(), kind.controller(config)).unwrap(),
        origin: Box::new(origin),
        silence_max,
    };
    let inflow = ReceiveFlow {
        socket: there,
        opener: Opener::new(suite, &SECRETS[0]),
        sealer: Sealer::new(suite, &SECRETS[1]),
        transfer: 7,
        receiver: Receiver::new(ReceiverConfig { feedback_bytes_max: 1200 }, bytes, RangeSet::new()).unwrap(),
        sink: Box::new(sink),
        from: HERE,
        silence_max,
    };
    let watches = [Arc::new(FlowMonitor::default()), Arc::new(FlowMonitor::default())];
    let watch = Arc::clone(&watches[1]);
    let receiving = named("receive", move || inflow.run(&watch).map(|_| ()));
    let began = Instant::now();
    let (stats, _) = outflow.run(&watches[0]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let gbit_s = bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
    receiving.join().unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
    let [out, back]: [FlowProgress; 2] = [0, 1].map(|end| *watches[end].progress.lock().unwrap());
    let each = |cpu: Duration| cpu.as_nanos() as f64 / stats.sent_packets as f64;
    println!(
        "  {name:>20}  {gbit_s:6.2} Gbit/s, {:.2} % lost ({} by the host), {:.0} ns a packet to send ({:.2} % of it the classifier's), {:.0} to receive, round trip {:?}",
        stats.lost_packets as f64 * 100.0 / stats.sent_packets as f64,
        stats.lost_host,
        each(out.cpu),
        out.cpu_classifier.as_secs_f64() * 100.0 / out.cpu.as_secs_f64().max(1e-9),
        each(back.cpu),
        out.rtt.unwrap_or_default(),
    );
    gbit_s
}
