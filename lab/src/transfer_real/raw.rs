//! The limit of the machine: one thread encrypts trains and sends them with GSO, another receives
//! them with GRO and decrypts them.
//!
//! It does not use the transfer's own sockets, so that their costs do not count as the machine's
//! limit.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::Network;
use barograph_transfer::testkit::io::flow::Sink;
use barograph_transfer::testkit::io::seal::{Opener, Sealer, Suite};
use barograph_transfer::testkit::wire::{HEADER_BYTES, Header, PacketKind, SEAL_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce, UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg, setsockopt, sockopt};
use serde::{Deserialize, Serialize};

use super::flow::{HOT_BYTES, Memory, Ready, Worker, print_message};
use crate::process::input_ends;
use crate::signatures::host::{Cpus, pin};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SendPlan {
    to: SocketAddr,
    is_sealed: bool,
    /// Bytes of datagrams a second; `None` is as fast as possible.
    rate_bytes_s: Option<f64>,
    train: usize,
    milliseconds: u64,
    cpu: usize,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ReceivePlan {
    at: IpAddr,
    is_sealed: bool,
    /// Requested buffer (bytes; the kernel doubles it).
    buffer_bytes: usize,
    /// Whether received bytes are copied to where an object would be.
    is_copied: bool,
    cpu: usize,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sent {
    datagrams: u64,
    seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Came {
    datagrams: u64,
    /// Bytes carried by the datagrams, without header and authentication tag.
    bytes: u64,
    /// Seconds between the first and the last datagram.
    seconds: f64,
}

impl ReceivePlan {
    fn start(&self, network: &Network) -> anyhow::Result<(Worker, SocketAddr)> {
        let receiver = Worker::start(&network.b, "RawReceive", self)?;
        let Ready { port, .. } = receiver.read_message()?;
        Ok((receiver, SocketAddr::new(self.at, port)))
    }
}

impl Came {
    /// Bit/s of what datagrams carried, between the first and the last.
    fn bps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.seconds.max(1e-3)
    }
}

/// The highest rate without loss, and the trial without pacing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    /// Received (bit/s of what datagrams carry) with almost no loss; `None` if every rate had
    /// losses.
    pub(crate) lossless_bps: Option<f64>,
    /// Received without pacing (bit/s); `unpaced_loss` is the share that was lost.
    pub(crate) unpaced_bps: f64,
    pub(crate) unpaced_loss: f64,
}

/// Searches for the limit by bisection between a lossless rate and a lossy one.
pub(crate) fn limit(
    network: &Network,
    is_sealed: bool,
    cpus: Cpus,
    milliseconds: u64,
) -> anyhow::Result<Limit> {
    let at = |rate| trial(network, is_sealed, cpus, milliseconds, rate);
    let unpaced = at(None)?;
    let mut limit = Limit {
        unpaced_bps: unpaced.received_bps,
        unpaced_loss: unpaced.loss,
        lossless_bps: (unpaced.loss <= LOSSLESS).then_some(unpaced.received_bps),
    };
    let (mut low, mut high) = (0.0, 1.1 * unpaced.offered_bytes_s);
    // If a busy machine kept the receiver from reading anything, the loss gives no starting point.
    let mut next = unpaced.offered_bytes_s * (1.0 - unpaced.loss).max(0.05);
    for _ in 0..STEPS {
        // At most twice, because other work of the machine sometimes delays a receiver for a
        // moment, which is not the limit.
        let mut trial = at(Some(next))?;
        if trial.loss > LOSSLESS {
            trial = at(Some(next))?;
        }
        if trial.loss <= LOSSLESS {
            low = next;
            limit.lossless_bps = Some(limit.lossless_bps.unwrap_or(0.0).max(trial.received_bps));
        } else {
            high = next;
        }
        next = (low + high) / 2.0;
    }
    Ok(limit)
}

struct Trial {
    offered_bytes_s: f64,
    received_bps: f64,
    loss: f64,
}

fn trial(
    network: &Network,
    is_sealed: bool,
    cpus: Cpus,
    milliseconds: u64,
    rate_bytes_s: Option<f64>,
) -> anyhow::Result<Trial> {
    let at = IpAddr::V4(network.b.v4());
    let (buffer_bytes, cpu) = (RECEIVE_BUFFER_BYTES, cpus.receiver);
    let plan = ReceivePlan { at, is_sealed, buffer_bytes, is_copied: false, cpu };
    let (receiver, to) = plan.start(network)?;
    let send = SendPlan { to, is_sealed, rate_bytes_s, train: TRAIN, milliseconds, cpu: cpus.sender };
    let sent: Sent = Worker::start(&network.a, "RawSend", &send)?.read_message()?;
    // The receiver reads its buffer before it checks whether its input ended.
    let came: Came = receiver.finish()?;
    let share = came.datagrams as f64 / sent.datagrams.max(1) as f64;
    Ok(Trial {
        offered_bytes_s: sent.datagrams as f64 * SEGMENT_BYTES as f64 / sent.seconds,
        received_bps: came.bps(),
        loss: (1.0 - share).max(0.0),
    })
}

/// A receiver that does the minimum of a transfer's receiver; its host can be made busy before the
/// flood.
pub(crate) struct Flood {
    receiver: Worker,
    to: SocketAddr,
}

impl Flood {
    pub(crate) fn prepare(network: &Network, buffer_bytes: usize, cpu: usize) -> anyhow::Result<Self> {
        let at = IpAddr::V4(network.b.v4());
        let plan = ReceivePlan { at, is_sealed: true, buffer_bytes, is_copied: true, cpu };
        plan.start(network).map(|(receiver, to)| Self { receiver, to })
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.receiver.process_id()
    }

    /// Sends sealed trains at a rate (bytes a second, headers included), without feedback, until
    /// the time is over.
    pub(crate) fn send(
        &self,
        network: &Network,
        rate_bytes_s: f64,
        time: Duration,
        cpu: usize,
    ) -> anyhow::Result<()> {
        // As long as the transfer's own trains: longer ones do not fit in a small buffer.
        let train = ((rate_bytes_s * TRAIN_S / PACKET_BYTES) as usize).clamp(2, TRAIN);
        let rate_bytes_s = Some(rate_bytes_s * SEGMENT_BYTES as f64 / PACKET_BYTES);
        let milliseconds = time.as_millis() as u64;
        let plan = SendPlan { to: self.to, is_sealed: true, rate_bytes_s, train, milliseconds, cpu };
        Worker::start(&network.a, "RawSend", &plan)?.read_message_after::<Sent>(time).map(drop)
    }

    /// Bit/s of what the received datagrams carried, between the first and the last.
    pub(crate) fn finish(self) -> anyhow::Result<f64> {
        self.receiver.finish::<Came>().map(|came| came.bps())
    }
}

pub(crate) fn send(plan: &SendPlan) -> anyhow::Result<()> {
    pin(plan.cpu)?;
    let any = if plan.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(plan.to)?;
    setsockopt(&socket, SndBufForce, &SEND_BUFFER_BYTES)?;
    setsockopt(&socket, UdpGsoSegment, &(SEGMENT_BYTES as i32)).context("no UDP_SEGMENT here")?;
    let mut sealer = Sealer::new(suite(plan.is_sealed), &SECRET);
    let mut train = vec![7; plan.train * SEGMENT_BYTES];
    let each = plan
        .rate_bytes_s
        .map(|rate| Duration::from_secs_f64(train.len() as f64 / rate.max(RATE_BYTES_S_MIN)));
    let began = Instant::now();
    let (mut number, mut due) = (0, Duration::ZERO);
    let time = Duration::from_millis(plan.milliseconds);
    loop {
        let mut now = began.elapsed();
        if time <= now {
            break;
        }
        if let Some(each) = each {
            // What a busy machine missed is not sent in one burst.
            due = (due + each).max(now.saturating_sub(LATE_MAX));
            while now < due {
                std::hint::spin_loop();
                now = began.elapsed();
            }
        }
        for datagram in train.chunks_exact_mut(SEGMENT_BYTES) {
            let header = Header { kind: PacketKind::Data, transfer: 1, number }.encode();
            if let Some(head) = datagram.first_chunk_mut() {
                *head = header;
            }
            anyhow::ensure!(sealer.seal(number, datagram), "a datagram has no room for its seal");
            number += 1;
        }
        // The call blocks while the device has no room.
        socket.send(&train)?;
    }
    print_message(&Sent { datagrams: number, seconds: began.elapsed().as_secs_f64() })
}

pub(crate) fn receive(plan: &ReceivePlan) -> anyhow::Result<()> {
    pin(plan.cpu)?;
    let socket = UdpSocket::bind((plan.at, 0))?;
    setsockopt(&socket, RcvBufForce, &plan.buffer_bytes)?;
    setsockopt(&socket, UdpGroSegment, &true).context("no UDP_GRO here")?;
    socket.set_read_timeout(Some(QUIET))?;
    let buffer_bytes = getsockopt(&socket, sockopt::RcvBuf)? as u64;
    let mut opener = Opener::new(suite(plan.is_sealed), &SECRET);
    print_message(&Ready { port: socket.local_addr()?.port(), buffer_bytes })?;
    let is_over = input_ends();
    let mut object = plan.is_copied.then(|| Memory::new(HOT_BYTES, false));
    let mut buffer = vec![0; 65_536];
    let mut control = cmsg_space!(i32);
    let (mut came, mut first, mut last) = (Came::default(), None, Instant::now());
    loop {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let message =
            match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty()) {
                Ok(message) => message,
                Err(Errno::EAGAIN | Errno::EINTR) if is_over.load(Ordering::Relaxed) => break,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => return Err(error).context("cannot receive"),
            };
        let mut segment = message.bytes;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::UdpGroSegments(bytes) = control {
                segment = usize::try_from(bytes).unwrap_or(segment);
            }
        }
        let len = message.bytes;
        last = Instant::now();
        first.get_or_insert(last);
        for datagram in buffer.get_mut(..len).unwrap_or_default().chunks_mut(segment.max(1)) {
            if let Some((_, body)) = opener.open(datagram) {
                if let Some(object) = &mut object {
                    Sink::write(object, came.bytes, body)?;
                }
                came.datagrams += 1;
                came.bytes += body.len() as u64;
            }
        }
    }
    came.seconds = first.map_or(0.0, |first| last.duration_since(first).as_secs_f64());
    print_message(&came)
}

fn suite(is_sealed: bool) -> Suite {
    if is_sealed { Suite::Aes128Gcm } else { Suite::Clear }
}

const SECRET: [u8; 32] = [9; 32];

/// UDP payload of an Ethernet packet of 1500 bytes over IPv4.
const SEGMENT_BYTES: usize = 1472;
const PACKET_BYTES: f64 = 1500.0;

/// The most that UDP's length allows: 65 507 bytes.
const TRAIN: usize = 44;

/// Length of a transfer's bursts (s; docs/spec/transfer.md).
const TRAIN_S: f64 = 0.25e-3;

/// As large as in any program that sets its buffer.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Time to start and end two processes.
const TRIAL_AROUND: Duration = Duration::from_millis(50);

/// If nothing arrives for this long after the end, nothing will.
const QUIET: Duration = Duration::from_millis(50);

/// Some trains at 10 Gbit/s: less than a receive buffer holds.
const LATE_MAX: Duration = Duration::from_micros(200);

/// A train in six seconds; slower rates are not tried.
const RATE_BYTES_S_MIN: f64 = 1e4;

/// A rate that loses less than one in ten thousand counts as lossless: 0.01 % is the smallest loss
/// of the paths.
const LOSSLESS: f64 = 1e-4;

/// Finds the rate to within about a fiftieth.
const STEPS: u32 = 6;
const _: () = assert!(TRAIN * SEGMENT_BYTES <= 65_507 && HEADER_BYTES + SEAL_BYTES < SEGMENT_BYTES);

/// Default time of a trial at each rate (ms).
pub(crate) fn step_ms(seconds: u64) -> u64 {
    (200 * seconds).clamp(300, 3000)
}

/// Approximate time of the search; some rates are tried twice.
pub(crate) fn time(milliseconds: u64) -> Duration {
    (Duration::from_millis(milliseconds) + QUIET + TRIAL_AROUND) * (1 + 3 * STEPS / 2)
}

/// Rate of BLAKE3 for the object's digest on one thread (bytes a second).
pub(crate) fn digest_bytes_s() -> f64 {
    let block = vec![7; 1 << 20];
    let (mut hasher, began, mut bytes) = (blake3::Hasher::new(), Instant::now(), 0);
    while began.elapsed() < Duration::from_millis(300) {
        hasher.update(&block);
        bytes += block.len() as u64;
    }
    std::hint::black_box(hasher.finalize());
    bytes as f64 / began.elapsed().as_secs_f64()
}

/// Waits until the effects of the last run are over.
pub(crate) fn rest() {
    thread::sleep(Duration::from_millis(100));
}
