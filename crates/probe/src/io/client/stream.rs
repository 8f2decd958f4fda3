//! The client's end of a timed stream.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connect;
use super::context::ProbeContext;
use super::transfer::done_of;
use crate::io::deadline::Deadline;
use crate::io::{kernel, payload};
use crate::stop::{Decision, EarlyStopRule};
use crate::stream::{self, Sample, Samples, StreamEnd, StreamPlan, StreamResult};
use crate::wire::Request;
use crate::{ProbeError, Target};

/// Sends a stream to a station according to `plan` and returns the result. Blocks for at most the
/// length of the stream plus the deadline of `context`.
///
/// # Errors
/// [`ProbeError`] if the target cannot be reached, is not a station or declines
/// (`Failure::Declined`: the station runs a different bulk test, or allows less than `plan`
/// requests); if the stream breaks; if the kernel does not have the requested congestion control
/// (`Failure::Local`); or if the caller cancelled the stream.
pub fn stream(
    target: &Target,
    plan: &StreamPlan,
    context: &ProbeContext,
) -> Result<StreamResult, ProbeError> {
    stream_counted(target, plan, context, &AtomicU64::new(0))
}

/// Sends a stream as [`stream()`] does. Also counts in `sent` the bytes that were passed to the
/// system, so that the cost of a broken stream is known.
pub fn stream_counted(
    target: &Target,
    plan: &StreamPlan,
    context: &ProbeContext,
    sent: &AtomicU64,
) -> Result<StreamResult, ProbeError> {
    // The deadline covers only setup and end, so the stream's length is added to it.
    let length = Duration::from_millis(plan.ms().into());
    let context = ProbeContext { deadline: context.deadline.saturating_add(length), ..context.clone() };
    let deadline = Deadline::start(context.deadline, &context.cancel);
    let mut session = connect::open_plain(target, &context, &deadline)?;
    let io = |error: io::Error| deadline.io("streaming", &error);
    if let Some(name) = &plan.congestion {
        choose(session.connection.tcp(), name).map_err(|error| {
            let name = name.escape_default();
            let message = format!(
                "the congestion control `{name}` is not available: {error}; \
                 see net.ipv4.tcp_allowed_congestion_control"
            );
            deadline.fail(Failure::Local, message)
        })?;
    }
    let request = Request::Stream { ms: plan.ms(), bytes_max: plan.bytes_max.max(1) };
    session.request(request, &deadline).map_err(|mut error| {
        if error.failure == Failure::Declined {
            let (ms, bytes) = (plan.ms(), plan.bytes_max.max(1));
            error.message += &format!(" (requested: {ms} ms and at most {bytes} bytes)");
        }
        error
    })?;
    let connection = &mut session.connection;
    connection.tcp().set_nonblocking(true).map_err(io)?;
    let sent = send(connection.tcp(), plan, &deadline, sent).map_err(io)?;
    // Read `TCP_INFO` before the close. After the close, `TCP_INFO` would include the time in which
    // the last unsent bytes are sent.
    let tcp_info = kernel::bulk_tcp_info(connection.tcp(), sent.duration_s);
    let close = || {
        connection.tcp().set_nonblocking(false)?;
        connection.tcp().shutdown(Shutdown::Write)
    };
    close().map_err(io)?;
    let done = connection.read_frame().map_err(io)?;
    let elapsed_s = sent.began.elapsed().as_secs_f64();
    let done = done_of(&done, sent.bytes, &deadline)?;
    let min_rtt_s = tcp_info.as_ref().and_then(|info| info.min_rtt_s);
    let whole_bit_s = stream::whole(done.bytes, elapsed_s, min_rtt_s)
        .ok_or_else(|| deadline.fail(Failure::Local, "the measured time is 0; send more bytes"))?;
    let settled = stream::after_startup(sent.samples.as_slice());
    Ok(StreamResult {
        bytes: done.bytes,
        duration_s: sent.duration_s,
        elapsed_s,
        whole_bit_s,
        settled_bit_s: settled.map(|(_, rate)| rate),
        startup_s: settled.map(|(startup_s, _)| startup_s),
        ended: sent.ended,
        proposed: sent.rule.proposed(),
        partials: *sent.rule.partials(),
        estimate_rejected: sent.rule.estimate_rejected(),
        tcp_info,
        samples: sent.samples,
    })
}

/// State of the stream when its last byte was written to the socket.
struct Sent {
    began: Instant,
    duration_s: f64,
    bytes: u64,
    ended: StreamEnd,
    rule: EarlyStopRule,
    samples: Samples,
}

fn send(tcp: &TcpStream, plan: &StreamPlan, deadline: &Deadline, counter: &AtomicU64) -> io::Result<Sent> {
    let block = payload::block();
    let length_s = f64::from(plan.ms()) / 1000.0;
    let bytes_max = plan.bytes_max.max(1);
    let mut rule = EarlyStopRule::new(plan.early);
    let mut sampler = StreamSampler::begin(tcp);
    let mut bytes = 0;
    let mut is_full = false;
    let ended = loop {
        deadline.left()?;
        let now_s = sampler.now_s();
        if sampler.due_s <= now_s
            && let Some(sample) = sampler.sample(tcp)
            && let Decision::Stop(estimate) = rule.push(&sample)
        {
            break StreamEnd::Early(estimate);
        }
        if length_s <= now_s {
            break StreamEnd::Full;
        }
        if bytes == bytes_max {
            break StreamEnd::Bytes;
        }
        // Continue only when the kernel reports space, as a blocking writer does. The kernel
        // reports space when a third of a full buffer is free. If the buffer limits the rate, a
        // program that writes after every small release of space would send a fifth more than a
        // blocking writer.
        if is_full {
            is_full = !can_write(tcp, sampler.due_s.min(length_s) - now_s);
            continue;
        }
        match (&mut &*tcp).write(payload::next(&block, bytes_max - bytes)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes += written as u64;
                counter.fetch_add(written as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_full = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    // The rate after start-up is measured up to the end of writing, so take a last sample now.
    let _ = sampler.sample(tcp);
    Ok(Sent {
        began: sampler.began,
        duration_s: sampler.now_s(),
        bytes,
        ended,
        rule,
        samples: sampler.samples,
    })
}

/// Takes samples at fixed intervals.
struct StreamSampler {
    began: Instant,
    before: Option<kernel::Counters>,
    due_s: f64,
    samples: Samples,
}

impl StreamSampler {
    fn begin(tcp: &TcpStream) -> Self {
        let before = kernel::counters(tcp);
        keep_unsent_short(tcp, 0.0);
        Self { began: Instant::now(), before, due_s: 0.0, samples: Samples::new() }
    }

    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn sample(&mut self, tcp: &TcpStream) -> Option<Sample> {
        let time_s = self.now_s();
        self.due_s = time_s + SAMPLE_S;
        let (before, now) = (self.before?, kernel::counters(tcp)?);
        let sample = Sample {
            time_s,
            acked_bytes: now.acked_bytes.saturating_sub(before.acked_bytes),
            rtt_s: now.rtt_s,
            min_rtt_s: now.min_rtt_s,
            retrans: now.total_retrans.saturating_sub(before.total_retrans),
            app_limited: now.app_limited,
        };
        self.samples.push(sample);
        keep_unsent_short(tcp, self.byte_s(&sample));
        Some(sample)
    }

    /// Rate in bytes per second: the larger of the rate since the beginning and the rate over the
    /// latest round trip. In slow start, the rate over the latest round trip is several times
    /// larger.
    fn byte_s(&self, now: &Sample) -> f64 {
        let samples = self.samples.as_slice();
        let from_s = now.time_s - now.rtt_s.unwrap_or(0.0).max(UNSENT_S);
        let before = samples[..samples.partition_point(|sample| sample.time_s <= from_s)].last();
        let latest = before.map_or(0.0, |before| {
            now.acked_bytes.saturating_sub(before.acked_bytes) as f64 / (now.time_s - before.time_s)
        });
        latest.max(now.acked_bytes as f64 / now.time_s.max(SAMPLE_S))
    }
}

/// Waits at most `seconds` until the socket is writable; returns whether the socket is writable.
fn can_write(tcp: &TcpStream, seconds: f64) -> bool {
    // Wait at least 1 ms, so that the loop does not spin. The conversion with `as` saturates.
    let ms = (seconds * 1000.0).ceil().clamp(1.0, 100.0) as u16;
    // An error of `poll` counts as writable: the next write reports it.
    poll(&mut [PollFd::new(tcp.as_fd(), PollFlags::POLLOUT)], PollTimeout::from(ms)) != Ok(0)
}

/// Limits the unsent bytes in this host's send buffer (`TCP_NOTSENT_LOWAT`, Linux 3.12). After the
/// end of the stream, all unsent bytes still have to be sent. Without the limit, most bytes of a
/// stream that was stopped early would still be unsent. Bytes in flight, and so the size of the
/// buffers, are not limited.
#[cfg(target_os = "linux")]
fn keep_unsent_short(tcp: &TcpStream, byte_s: f64) {
    // The conversion with `as` saturates at 0.86 Tbit/s.
    let bytes = (byte_s * UNSENT_S).max(UNSENT_BYTES_MIN) as u32;
    // Ignore errors: without this limit, the system needs longer to send the unsent bytes at the
    // end, but the results are correct.
    let _ = socket2::SockRef::from(tcp).set_tcp_notsent_lowat(bytes);
}

#[cfg(not(target_os = "linux"))]
fn keep_unsent_short(_tcp: &TcpStream, _byte_s: f64) {}

#[cfg(target_os = "linux")]
fn choose(tcp: &TcpStream, name: &str) -> io::Result<()> {
    socket2::SockRef::from(tcp).set_tcp_congestion(name.as_bytes())
}

#[cfg(not(target_os = "linux"))]
fn choose(_tcp: &TcpStream, _name: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Interval between samples, in seconds: four samples in the shortest round. The system call for
/// each sample takes far less time than the writes.
const SAMPLE_S: f64 = 0.005;
/// Maximum unsent data in the send buffer, as the time in seconds in which the data is sent at the
/// current rate. The kernel requests more data when half of the data is left, so on a busy machine
/// the thread may pause for 20 ms before the kernel has no data to send. Without data the stream is
/// slower, and BBR ignores the application-limited samples and stays in start-up.
const UNSENT_S: f64 = 0.04;
/// Minimum value of the limit of unsent bytes, in bytes: the size of one write.
const UNSENT_BYTES_MIN: f64 = payload::BLOCK_BYTES as f64;
