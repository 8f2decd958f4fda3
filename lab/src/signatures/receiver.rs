//! The receiver: a process of its own, so that its CPU time can be limited separately.

use std::io::{BufWriter, IoSliceMut, Read, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Messages, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::Network;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns, RxqOvfl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, setsockopt};
use nix::sys::time::TimeSpec;

use super::cut::Arrival;
use super::host::{Cpus, pin};
use super::plan::{Design, Host, PAYLOAD_BYTES};
use super::sender::{WARM_UP, now_ns};
use crate::process::{Process, input_ends};

/// The receiver's process as the experiment sees it.
pub(crate) struct Receiver {
    process: Process,
    arrivals: Messages<anyhow::Result<Vec<Arrival>>>,
    address: SocketAddr,
}

impl Receiver {
    pub(crate) fn start(network: &Network, design: &Design, cpus: Cpus) -> anyhow::Result<Self> {
        let work_ns = if let Some(Host::Slow { work_ns }) = design.host { work_ns } else { 0 };
        let expected = (f64::from(design.pps) * design.seconds * 1.1) as u64;
        let options = [design.receive_buffer as u64, work_ns, cpus.receiver as u64, expected];
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["signatures", "--receiver"]).args(options.map(|option| option.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process is in the namespace of the thread that starts it.
        let mut process = network.b.run(|| Process::spawn(&mut command))??;
        let mut output = process.take_stdout().context("the receiver's output is piped")?;
        let ((tell_port, port), (tell, arrivals)) = (channel(), channel());
        std::thread::spawn(move || {
            let mut port = [0; 2];
            let listens = output.read_exact(&mut port).context("the receiver ended before it listened");
            // The caller may have dropped its end.
            let _ = tell_port.send(listens.map(|()| u16::from_le_bytes(port)));
            let mut bytes = Vec::new();
            let read = output.read_to_end(&mut bytes).context("cannot read the receiver's arrivals");
            let _ = tell.send(read.map(|_| parse(&bytes)));
        });
        let port = port.recv_timeout(LIMIT).context("the receiver did not start in time")??;
        Ok(Self { process, arrivals, address: SocketAddr::from((network.b.v4(), port)) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Lets the receiver read what has arrived, and returns its arrivals.
    pub(crate) fn finish(mut self) -> anyhow::Result<Vec<Arrival>> {
        drop(self.process.take_stdin());
        self.arrivals.recv_timeout(LIMIT).context("the receiver did not end in time")?
    }
}

fn parse(bytes: &[u8]) -> Vec<Arrival> {
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let parse = |record: &[u8; RECORD_BYTES]| {
        let (sequence, rest) = record.split_first_chunk::<8>()?;
        let (delay, rest) = rest.split_first_chunk::<8>()?;
        let (sojourn, drops) = rest.split_first_chunk::<4>()?;
        Some(Arrival {
            sequence: u64::from_le_bytes(*sequence),
            delay_ns: i64::from_le_bytes(*delay),
            sojourn_us: u32::from_le_bytes(*sojourn),
            drops: u32::from_le_bytes(*drops.first_chunk()?),
        })
    };
    records.iter().filter_map(parse).collect()
}

/// The receiver's process: writes its port, reads until its input ends and no more packets arrive,
/// and writes the arrivals.
pub(crate) fn run(options: &[u64]) -> anyhow::Result<()> {
    let [buffer, work_ns, cpu, expected] = options else { anyhow::bail!("a receiver has four options") };
    pin(*cpu as usize)?;
    let socket = UdpSocket::bind((barograph_sim::B_V4, 0))?;
    socket.set_read_timeout(Some(QUIET))?;
    // The kernel doubles the requested size.
    setsockopt(&socket, RcvBufForce, &(*buffer as usize / 2)).context("the receive buffer cannot be set")?;
    setsockopt(&socket, RxqOvfl, &1)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&socket.local_addr()?.port().to_le_bytes())?;
    out.flush()?;
    let is_over = input_ends();
    let arrivals = read(&socket, Duration::from_nanos(*work_ns), *expected as usize, &is_over)?;
    let mut out = BufWriter::new(out);
    for Arrival { sequence, delay_ns, sojourn_us, drops } in arrivals {
        out.write_all(&sequence.to_le_bytes())?;
        out.write_all(&delay_ns.to_le_bytes())?;
        out.write_all(&sojourn_us.to_le_bytes())?;
        out.write_all(&drops.to_le_bytes())?;
    }
    Ok(out.flush()?)
}

fn read(
    socket: &UdpSocket,
    work: Duration,
    expected: usize,
    is_over: &AtomicBool,
) -> anyhow::Result<Vec<Arrival>> {
    let mut arrivals = Vec::with_capacity(expected.min(ARRIVALS_MAX));
    let mut buffer = vec![0; BATCH * PAYLOAD_BYTES];
    let mut ends_at = None;
    loop {
        if ends_at.is_none() && is_over.load(Ordering::Relaxed) {
            ends_at = Some(Instant::now() + DRAIN_MAX);
        }
        if ends_at.is_some_and(|at| at < Instant::now()) || arrivals.len() >= ARRIVALS_MAX {
            return Ok(arrivals);
        }
        match read_batch(socket, &mut buffer, work, &mut arrivals) {
            Ok(()) | Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if ends_at.is_some() => return Ok(arrivals),
            Err(Errno::EAGAIN) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

/// Waits for a packet, and reads it with those queued behind it.
fn read_batch(
    socket: &UdpSocket,
    buffer: &mut [u8],
    work: Duration,
    arrivals: &mut Vec<Arrival>,
) -> nix::Result<()> {
    // New for each call: the kernel writes into the headers how much of them it used, and `nix`
    // does not reset that.
    let mut headers = MultiHeaders::<()>::preallocate(BATCH, Some(cmsg_space!(TimeSpec, u32)));
    let mut slices: Vec<_> =
        buffer.chunks_exact_mut(PAYLOAD_BYTES).map(|chunk| [IoSliceMut::new(chunk)]).collect();
    let messages =
        recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_WAITFORONE, None)?;
    let read_ns = now_ns();
    for message in messages {
        let (mut received_ns, mut drops) = (read_ns, 0);
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(at) => {
                    received_ns = at.tv_sec() * 1_000_000_000 + at.tv_nsec()
                }
                ControlMessageOwned::RxqOvfl(count) => drops = count,
                _ => {}
            }
        }
        let payload = message.iovs().next().unwrap_or_default();
        let Some((number, rest)) = payload.split_first_chunk::<8>() else { continue };
        let Some(sent) = rest.first_chunk::<8>() else { continue };
        let sequence = u64::from_le_bytes(*number);
        if sequence != WARM_UP {
            let delay_ns = received_ns - i64::from_le_bytes(*sent);
            let sojourn_us = u32::try_from((read_ns - received_ns) / 1000).unwrap_or(0);
            arrivals.push(Arrival { sequence, delay_ns, sojourn_us, drops });
        }
        if !work.is_zero() {
            let until = Instant::now() + work;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }
    Ok(())
}

const RECORD_BYTES: usize = 24;
const BATCH: usize = 32;

/// 2.4 GB: ten minutes at 160 000 packets a second.
const ARRIVALS_MAX: usize = 100_000_000;

/// If nothing arrives for this long after the end, nothing will: far more than a queue's delay.
const QUIET: Duration = Duration::from_millis(200);

/// Enough for a slow receiver to read a full buffer.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Time for the drain, and for transferring gigabytes.
const LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_arrivals_parse() {
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        bytes.extend((-3_i64).to_le_bytes());
        bytes.extend(11_u32.to_le_bytes());
        bytes.extend(13_u32.to_le_bytes());
        bytes.push(0);
        assert_eq!(parse(&bytes), [Arrival { sequence: 7, delay_ns: -3, sojourn_us: 11, drops: 13 }]);
    }
}
