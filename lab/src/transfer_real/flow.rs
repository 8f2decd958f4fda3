//! Barograph's own flows from memory to memory: an endless object, with two processes of this
//! program in two hosts as its ends.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver as Lines;
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use barograph_sim::{Host, Network};
use barograph_transfer::testkit::controller::{ControllerConfig, ControllerKind};
use barograph_transfer::testkit::io::flow::{FlowError, FlowMonitor, Origin, ReceiveFlow, SendFlow, Sink};
use barograph_transfer::testkit::io::seal::{Opener, Sealer, Suite};
use barograph_transfer::testkit::io::socket::{Socket, SocketConfig};
use barograph_transfer::testkit::wire::{DATA_HEAD_BYTES, HEADER_BYTES};
use barograph_transfer::testkit::{Receiver, ReceiverConfig, Sender, SenderConfig};
use barograph_transfer::{LossesByEvidence, SenderStats};
use rangemap::RangeSet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::evidence::LossEvidence;
use crate::process::{Process, input_ends};
use crate::signatures::host::pin;
use crate::stats::{Rank, quantile, sorted};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ours {
    #[serde(with = "by_name")]
    pub(crate) kind: ControllerKind,
    pub(crate) is_sealed: bool,
    /// What the sender uses to classify losses. The receiver's kernel always counts its drops.
    pub(crate) evidence: LossEvidence,
    /// Whether both ends hash what they read and write.
    pub(crate) is_hashed: bool,
    /// Whether both ends use more memory than caches hold.
    pub(crate) is_cold: bool,
    /// Rate of `fixed`, and first rate of `paper` (bytes a second, headers included).
    pub(crate) rate_bytes_s: Option<f64>,
    pub(crate) seed: u64,
    /// Requested receive buffer (bytes; the kernel doubles it).
    pub(crate) receive_buffer: usize,
    /// Processors to which the two processes are pinned; `None` leaves them to the scheduler.
    pub(crate) sender_cpu: Option<usize>,
    pub(crate) receiver_cpu: Option<usize>,
}

impl Ours {
    pub(crate) fn new(kind: ControllerKind) -> Self {
        Self {
            kind,
            is_sealed: true,
            evidence: LossEvidence::Counter,
            is_hashed: false,
            is_cold: false,
            rate_bytes_s: None,
            seed: 1,
            receive_buffer: SOCKET.buffer_bytes,
            sender_cpu: None,
            receiver_cpu: None,
        }
    }
}

mod by_name {
    use barograph_transfer::controller::ControllerKind;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(kind: &ControllerKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.name())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<ControllerKind, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SendPlan {
    to: SocketAddr,
    ours: Ours,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ReceivePlan {
    at: IpAddr,
    from: IpAddr,
    ours: Ours,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SenderResult {
    pub(crate) sent_packets: u64,
    pub(crate) lost_packets: u64,
    pub(crate) lost_host: u64,
    pub(crate) lost_network: u64,
    pub(crate) lost_unknown: u64,
    pub(crate) settled: SettledLosses,
    /// CPU time of the loop's thread, and the classifier's part of it (s).
    pub(crate) cpu_s: f64,
    pub(crate) classifier_s: f64,
    /// Smoothed round trips: time (ms since the epoch) and value (s).
    pub(crate) rtts: Vec<(u64, f64)>,
    pub(crate) failure: Option<String>,
}

/// Lost packets by the evidence that settled their cause, as [`LossesByEvidence`] has them, and
/// those that changed sides or have no verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettledLosses {
    pub(crate) counter: u64,
    pub(crate) marks: u64,
    pub(crate) delay: u64,
    pub(crate) pattern: u64,
    pub(crate) expired: u64,
    pub(crate) taken_back: u64,
    pub(crate) pending: u64,
}

impl SettledLosses {
    fn new(stats: &SenderStats) -> Self {
        let LossesByEvidence { counter, marks, delay, pattern, expired } = stats.settled;
        let (taken_back, pending) = (stats.taken_back, stats.pending);
        Self { counter, marks, delay, pattern, expired, taken_back, pending }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReceiverResult {
    /// Time (ms since the epoch), and bytes of the object written until then.
    pub(crate) written: Vec<(u64, u64)>,
    pub(crate) failure: Option<String>,
}

pub(crate) struct Flow {
    sender: Worker,
    receiver: Worker,
    at: SocketAddr,
}

pub(crate) struct FlowResult {
    pub(crate) sender: SenderResult,
    pub(crate) receiver: ReceiverResult,
}

impl Flow {
    pub(crate) fn start(network: &Network, ours: &Ours) -> anyhow::Result<Self> {
        Self::prepare(network, ours)?.go(network)
    }

    /// Starts only the receiver, so that its host can be made busy before packets arrive.
    pub(crate) fn prepare(network: &Network, ours: &Ours) -> anyhow::Result<Waiting> {
        let (at, from) = (IpAddr::V4(network.b.v4()), IpAddr::V4(network.a.v4()));
        let plan = ReceivePlan { at, from, ours: *ours };
        let receiver = Worker::start(&network.b, "Receive", &plan)?;
        let ready: Ready = receiver.read_message()?;
        Ok(Waiting { receiver, ours: *ours, at: SocketAddr::new(at, ready.port) })
    }

    /// Drops of the receiver's socket so far, as the kernel counts: one for each entry of its
    /// queue, which is a whole train if trains arrive whole.
    pub(crate) fn socket_drops(&self, network: &Network) -> anyhow::Result<u64> {
        // The thread's own view: the process's is outside the namespace.
        let table = network.b.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))??;
        drops_of(&table, self.at.port()).context("the kernel does not list the receiver's socket")
    }

    /// Stops the flow, and returns what both ends measured.
    ///
    /// # Errors
    /// One of them ended early.
    pub(crate) fn stop(self) -> anyhow::Result<FlowResult> {
        let sender: SenderResult = self.sender.finish().context("the sender")?;
        let receiver: ReceiverResult = self.receiver.finish().context("the receiver")?;
        if let Some(failure) = sender.failure.as_ref().or(receiver.failure.as_ref()) {
            anyhow::bail!("{failure}");
        }
        Ok(FlowResult { sender, receiver })
    }
}

pub(crate) struct Waiting {
    receiver: Worker,
    ours: Ours,
    at: SocketAddr,
}

impl Waiting {
    pub(crate) fn process_id(&self) -> u32 {
        self.receiver.process_id()
    }

    pub(crate) fn go(self, network: &Network) -> anyhow::Result<Flow> {
        let sender = Worker::start(&network.a, "Send", &SendPlan { to: self.at, ours: self.ours })?;
        Ok(Flow { sender, receiver: self.receiver, at: self.at })
    }
}

impl FlowResult {
    /// Goodput (bit/s) between two times (ms since the epoch).
    pub(crate) fn bps(&self, from_ms: u64, to_ms: u64) -> f64 {
        let at = |moment_ms: u64| interpolated(&self.receiver.written, moment_ms);
        8.0 * (at(to_ms) - at(from_ms)) / (to_ms.saturating_sub(from_ms).max(1) as f64 / 1e3)
    }

    /// Median and 95th percentile of the smoothed round trips between two times (s).
    pub(crate) fn rtts_s(&self, from_ms: u64, to_ms: u64) -> Option<[f64; 2]> {
        let within = self.sender.rtts.iter().filter(|(at, _)| (from_ms..to_ms).contains(at));
        let rtts = sorted(within.map(|(_, rtt)| *rtt));
        Some([quantile(&rtts, 0.5, Rank::Above)?, quantile(&rtts, 0.95, Rank::Above)?])
    }
}

/// Drops of the socket with this local port, from a table of UDP sockets (proc_net_udp: the last
/// column).
fn drops_of(table: &str, port: u16) -> Option<u64> {
    let end = format!(":{port:04X}");
    let of_port = |line: &&str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end));
    table.lines().find(of_port)?.split_whitespace().next_back()?.parse().ok()
}

/// Bytes at a time, interpolated linearly between samples.
fn interpolated(samples: &[(u64, u64)], at_ms: u64) -> f64 {
    let next = samples.partition_point(|(ms, _)| *ms < at_ms);
    match (next.checked_sub(1).and_then(|before| samples.get(before)), samples.get(next)) {
        (Some(&(from, below)), Some(&(to, above))) => {
            let share = (at_ms - from) as f64 / (to - from).max(1) as f64;
            below as f64 + share * (above as f64 - below as f64)
        }
        (Some(&(_, last)), None) => last as f64,
        (None, first) => first.map_or(0.0, |&(_, bytes)| bytes as f64),
    }
}

/// Milliseconds since the epoch: both processes are on one machine.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Waits for a flow's start, then for its measured time; returns both ends of the latter (ms since
/// the epoch).
pub(crate) fn measured(start: Duration, time: Duration) -> [u64; 2] {
    [start, time].map(|time| {
        thread::sleep(time);
        now_ms()
    })
}

pub(crate) fn send(plan: &SendPlan) -> anyhow::Result<()> {
    let SendPlan { to, ours } = *plan;
    ours.sender_cpu.map_or(Ok(()), pin)?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut socket = Socket::bind(any.parse()?, SOCKET)?;
    socket.connect(to)?;
    let suite = suite(ours.is_sealed);
    let sealer = Sealer::new(suite, &DATA);
    let frame = HEADER_BYTES + DATA_HEAD_BYTES + sealer.seal_bytes();
    let payload_bytes = socket.datagram_bytes_max()?.checked_sub(frame).context("a tiny path")? as u32;
    let overhead_bytes = (frame + IP_UDP_BYTES) as u32;
    let config = ControllerConfig {
        rate_bytes_s: ours.rate_bytes_s.unwrap_or(ControllerConfig::default().rate_bytes_s),
        packet_bytes: payload_bytes + overhead_bytes,
        seed: ours.seed,
    };
    let sender = Sender::new(
        SenderConfig {
            payload_bytes,
            overhead_bytes,
            seed: ours.seed,
            classification: ours.evidence.classification(),
        },
        OBJECT_BYTES,
        &RangeSet::new(),
        ours.kind.controller(config),
    )?;
    let origin = Box::new(memory(&ours));
    let opener = Opener::new(suite, &FEEDBACK);
    let outflow = SendFlow { socket, sealer, opener, transfer: 1, sender, origin, silence_max: SILENCE_MAX };
    let watch = Arc::new(FlowMonitor::default());
    let sampler = sampler(&watch, Vec::new(), |watch| Some(watch.progress.lock().ok()?.rtt?.as_secs_f64()));
    let ended = outflow.run(&watch).map(drop);
    let seen = watch.progress.lock().map(|seen| *seen).unwrap_or_default();
    let failure = failure(ended);
    if failure.is_some() {
        // The sampler is not awaited after a failure, because the input may stay open.
        return print_message(&SenderResult { failure, ..SenderResult::default() });
    }
    print_message(&SenderResult {
        sent_packets: seen.stats.sent_packets,
        lost_packets: seen.stats.lost_packets,
        lost_host: seen.stats.lost_host,
        lost_network: seen.stats.lost_network,
        lost_unknown: seen.stats.lost_unknown,
        settled: SettledLosses::new(&seen.stats),
        cpu_s: seen.cpu.as_secs_f64(),
        classifier_s: seen.cpu_classifier.as_secs_f64(),
        rtts: sampler.join().unwrap_or_default(),
        failure,
    })
}

pub(crate) fn receive(plan: &ReceivePlan) -> anyhow::Result<()> {
    let ReceivePlan { at, from, ours } = *plan;
    ours.receiver_cpu.map_or(Ok(()), pin)?;
    let config = SocketConfig { buffer_bytes: ours.receive_buffer, ..SOCKET };
    let socket = Socket::bind(SocketAddr::new(at, 0), config)?;
    let buffer_bytes = socket.capabilities().receive_buffer_bytes as u64;
    // Before the port is printed, so that the sender meets a receiver that reads.
    let sink = memory(&ours);
    let count = sink.count();
    print_message(&Ready { port: socket.local_addr()?.port(), buffer_bytes })?;
    let suite = suite(ours.is_sealed);
    let inflow = ReceiveFlow {
        socket,
        opener: Opener::new(suite, &DATA),
        sealer: Sealer::new(suite, &FEEDBACK),
        transfer: 1,
        receiver: Receiver::new(
            ReceiverConfig { feedback_bytes_max: FEEDBACK_BYTES_MAX },
            OBJECT_BYTES,
            RangeSet::new(),
        )?,
        sink: Box::new(sink),
        from,
        silence_max: SILENCE_MAX,
    };
    let watch = Arc::new(FlowMonitor::default());
    let sampler = sampler(&watch, vec![(now_ms(), 0)], move |_| Some(count.load(Ordering::Relaxed)));
    // On this thread, because the control groups limit its CPU time.
    let failure = failure(inflow.run(&watch).map(drop));
    let written = if failure.is_some() { Vec::new() } else { sampler.join().unwrap_or_default() };
    print_message(&ReceiverResult { written, failure })
}

/// Samples at intervals until the input ends, and then stops the flow; returns the samples with
/// their times.
fn sampler<T: Send + 'static>(
    watch: &Arc<FlowMonitor>,
    mut seen: Vec<(u64, T)>,
    sample: impl Fn(&FlowMonitor) -> Option<T> + Send + 'static,
) -> JoinHandle<Vec<(u64, T)>> {
    let (watch, is_over) = (Arc::clone(watch), input_ends());
    thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(SAMPLE_EACH);
            seen.extend(sample(&watch).map(|found| (now_ms(), found)));
        }
        watch.stop.store(true, Ordering::Relaxed);
        seen
    })
}

fn failure(ended: Result<(), FlowError>) -> Option<String> {
    match ended {
        Ok(()) | Err(FlowError::Stopped) => None,
        Err(error) => Some(error.to_string()),
    }
}

fn memory(ours: &Ours) -> Memory {
    Memory::new(if ours.is_cold { COLD_BYTES } else { HOT_BYTES }, ours.is_hashed)
}

fn suite(is_sealed: bool) -> Suite {
    if is_sealed { Suite::fastest() } else { Suite::Clear }
}

/// Keys of this experiment only.
const DATA: [u8; 32] = [1; 32];
const FEEDBACK: [u8; 32] = [2; 32];

/// More than is sent in a day at 100 Gbit/s.
const OBJECT_BYTES: u64 = 1 << 51;
const SOCKET: SocketConfig = SocketConfig { buffer_bytes: 8 << 20, trains: true, ecn: true };
/// Headers of IPv4 (without options) and UDP.
const IP_UDP_BYTES: usize = 28;
/// Fits a datagram of 1280 bytes, the minimum of IPv6.
const FEEDBACK_BYTES_MAX: usize = 1200;

/// A receiver under a quota may be silent for long, but not for this long.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const SAMPLE_EACH: Duration = Duration::from_millis(100);

/// A block of memory that represents the whole object: it is read or written repeatedly.
pub(crate) struct Memory {
    block: Vec<u8>,
    bytes: Arc<AtomicU64>,
    hasher: Option<blake3::Hasher>,
}

impl Memory {
    pub(crate) fn new(block_bytes: usize, is_hashed: bool) -> Self {
        Self {
            block: vec![7; block_bytes.max(1)],
            bytes: Arc::default(),
            hasher: is_hashed.then(blake3::Hasher::new),
        }
    }

    pub(crate) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Calls `each` for each piece of the block in a range, with the piece's position in the range.
    fn pieces(
        block: usize,
        offset: u64,
        len: usize,
        mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < len {
            let from = ((offset + done as u64) % block as u64) as usize;
            let part = (len - done).min(block - from);
            each(from..from + part, done..done + part);
            done += part;
        }
    }
}

impl Origin for Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        let block = &self.block;
        Self::pieces(block.len(), offset, out.len(), |from, to| {
            if let (Some(from), Some(to)) = (block.get(from), out.get_mut(to)) {
                to.copy_from_slice(from);
            }
        });
        if let Some(hasher) = &mut self.hasher {
            hasher.update(out);
        }
        Ok(())
    }

    /// Memory is immediate, but a hash is work for a thread of its own.
    fn is_immediate(&self) -> bool {
        self.hasher.is_none()
    }
}

impl Sink for Memory {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        let block = &mut self.block;
        Self::pieces(block.len(), offset, bytes.len(), |to, from| {
            if let (Some(to), Some(from)) = (block.get_mut(to), bytes.get(from)) {
                to.copy_from_slice(from);
            }
        });
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        Ok(())
    }

    /// Memory is immediate, but a hash is work for a thread of its own.
    fn is_immediate(&self) -> bool {
        self.hasher.is_none()
    }
}

/// The size that iperf3 sends repeatedly: it stays in a processor's cache, as does the train of the
/// raw limit, so that all move the same memory.
pub(crate) const HOT_BYTES: usize = 128 << 10;
/// More than caches hold: each byte comes from memory and goes to memory.
pub(crate) const COLD_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) port: u16,
    /// Size of the buffer as the kernel counts it (bytes).
    pub(crate) buffer_bytes: u64,
}

pub(crate) fn print_message(what: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// A process of a flow as the experiment sees it. It prints a line of JSON when it is ready, and
/// one when its input ends.
pub(crate) struct Worker {
    process: Process,
    lines: Lines<String>,
}

impl Worker {
    pub(crate) fn start(host: &Host, role: &str, plan: &impl Serialize) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["transfer-real", "--role", &json!({ role: plan }).to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process is in the namespace of the thread that starts it.
        let mut process = host.run(|| Process::spawn(&mut command))??;
        Ok(Self { lines: process.lines()?, process })
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn read_message<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        self.read_message_after(Duration::ZERO)
    }

    /// Reads the next line, of a process that first works for this time.
    pub(crate) fn read_message_after<T: DeserializeOwned>(&self, work: Duration) -> anyhow::Result<T> {
        let line = self
            .lines
            .recv_timeout(LIMIT + work)
            .context("a process of the experiment ended, or did not respond in time")?;
        serde_json::from_str(&line).context("a process of the experiment printed something unexpected")
    }

    pub(crate) fn finish<T: DeserializeOwned>(mut self) -> anyhow::Result<T> {
        drop(self.process.take_stdin());
        self.read_message()
    }
}

/// Far more than a process needs to start or to end.
const LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_counters_of_a_socket_are_found_by_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue ref pointer drops\n  \
                 1: 020000C0:1F90 00000000:0000 07 00000000:00000000 2 00000000 0\n  \
                 2: 020000C0:08AE 00000000:0000 07 00000000:00000000 2 00000000 417\n";
        assert_eq!(drops_of(table, 0x08ae), Some(417));
        assert_eq!(drops_of(table, 0x08af), None);
    }

    #[test]
    fn bytes_between_samples_are_interpolated_linearly() {
        let samples = [(1000, 0), (1100, 100), (1300, 500)];
        let at = |ms| interpolated(&samples, ms);
        assert_eq!([at(900), at(1050), at(1100), at(1200), at(2000)], [0.0, 50.0, 100.0, 300.0, 500.0]);
        assert_eq!(interpolated(&[], 5), 0.0);
    }

    #[test]
    fn the_object_in_memory_repeats_one_block() {
        let mut memory = Memory::new(HOT_BYTES, false);
        Sink::write(&mut memory, HOT_BYTES as u64 - 2, &[1, 2, 3, 4])
            .unwrap_or_else(|error| panic!("{error}"));
        let mut out = [0; 4];
        memory.read(3 * HOT_BYTES as u64 - 2, &mut out).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(out, [1, 2, 3, 4]);
        assert_eq!(memory.count().load(Ordering::Relaxed), 4);
    }
}
