//! iperf3 as the bulk test, for sites with iperf3 history (docs/spec/mesh.md §5): its client and
//! server processes, and their limits.

mod report;
mod running;

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use barograph_probe::ProbeError;
use barograph_probe::io::{CancellationToken, ExternalReceiver, InvalidTest};
use barograph_probe::stream::{StreamPlan, StreamResult};
use barograph_probe::wire::STREAM_MS_MAX;

use self::running::Running;
pub(crate) use self::running::{usable, warn};

/// Name of the tool in settings, in the directory and in records. The program has the same name.
pub(crate) const NAME: &str = "iperf3";

/// Parameters of an iperf3 test. The test runs for a whole number of seconds, and its bit rate
/// limit keeps the number of bytes within `bytes_max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Test {
    seconds: u32,
    pub(super) bytes_max: u64,
    /// Forecast of the path's rate; the bit rate limit is at least twice as high.
    forecast_bit_s: f64,
}

impl Test {
    /// Creates a test of at most `length`; `None` if the test would be shorter than a second.
    ///
    /// An iperf3 test ends after a time or after a number of bytes, but cannot have both limits. So
    /// the test ends after a time and has a bit rate limit. The test is so short that this limit is
    /// at least twice the forecast, as for Barograph's own streams.
    pub(super) fn new(length: Duration, bytes_max: u64, forecast_bit_s: f64) -> Option<Self> {
        let at_twice_s = bytes_max as f64 * 8.0 / (2.0 * forecast_bit_s);
        let is_known = forecast_bit_s > 0.0 && at_twice_s.is_finite();
        let seconds = length.as_secs_f64().min(at_twice_s).floor();
        let fits = is_known && seconds >= 1.0;
        fits.then_some(Self { seconds: seconds as u32, bytes_max, forecast_bit_s })
    }

    /// The same test within the `limit` of a peer. A `limit` of at most [`STREAM_MS_MAX`] is in
    /// milliseconds; a larger `limit` is in bytes.
    pub(super) fn lowered(self, limit: u64) -> Option<Self> {
        let length = Duration::from_secs(self.seconds.into());
        let (length, bytes_max) = if u64::from(STREAM_MS_MAX) < limit {
            (length, self.bytes_max.min(limit))
        } else {
            (length.min(Duration::from_millis(limit)), self.bytes_max)
        };
        Self::new(length, bytes_max, self.forecast_bit_s)
    }

    fn bit_s_max(self) -> u64 {
        (self.bytes_max.saturating_mul(8) / u64::from(self.seconds.max(1))).max(1)
    }

    /// Length of the test in milliseconds, as a request to the peer contains it; computed as for
    /// Barograph's own stream.
    pub(super) fn milliseconds(self) -> u32 {
        let seconds = f64::from(self.seconds);
        StreamPlan { seconds, bytes_max: self.bytes_max, congestion: None, early: None }.ms()
    }

    /// Runs the client against the iperf3 server at `at`, for at most `within`. Once the test has
    /// started, `sent` is the maximum number of bytes that the test can cost.
    pub(super) fn send(
        self,
        at: SocketAddr,
        within: Duration,
        cancel: &CancellationToken,
        sent: &AtomicU64,
    ) -> Result<StreamResult, ProbeError> {
        let began = Instant::now();
        let fail = |failure: Failure, why: &str| ProbeError {
            failure,
            after_s: began.elapsed().as_secs_f64(),
            message: format!("{NAME}: {}", report::short(why)),
            stopped: cancel.is_cancelled(),
            declined: None,
        };
        let arguments = self.client(at);
        loop {
            let mut running = Running::start(NAME.as_ref(), &arguments)
                .map_err(|error| fail(Failure::Local, &error.to_string()))?;
            sent.store(self.bytes_max, Ordering::Relaxed);
            let ended = loop {
                let left = within.saturating_sub(began.elapsed());
                if cancel.is_cancelled() || left.is_zero() {
                    break None;
                }
                if let Some(output) = running.ended(left.min(TICK)) {
                    break Some(output);
                }
            };
            let output =
                ended.ok_or_else(|| fail(Failure::TimedOut, "it did not end in time and was killed"))?;
            match report::streamed(&output, self) {
                Ok(streamed) => {
                    return Ok(StreamResult { elapsed_s: began.elapsed().as_secs_f64(), ..streamed });
                }
                Err((Failure::Refused, _)) if began.elapsed() < STARTING => {
                    // The server of the peer may be started and not listen yet, so retry. A test
                    // that did not start costs nothing.
                    sent.store(0, Ordering::Relaxed);
                    std::thread::park_timeout(RETRY_PAUSE);
                }
                Err((failure, why)) => {
                    if failure == Failure::Refused {
                        sent.store(0, Ordering::Relaxed);
                    }
                    return Err(fail(failure, &why));
                }
            }
        }
    }

    fn client(self, at: SocketAddr) -> Vec<String> {
        let words = ["-c", &at.ip().to_string(), "-p", &at.port().to_string(), "-J", "-i", "0"];
        let bounds = ["-t", &self.seconds.to_string(), "-b", &self.bit_s_max().to_string()];
        let timeout = ["--connect-timeout", &STARTING.as_millis().to_string()];
        [&words[..], &bounds[..], &timeout[..]].concat().iter().map(ToString::to_string).collect()
    }
}

/// An iperf3 server for one test. Dropping this value kills the process of the server.
pub(super) struct Server {
    program: OsString,
    seconds: u32,
    bytes_max: u64,
    /// Port to listen on; 0 = the system chooses.
    port: u16,
    running: Option<(Running, Instant)>,
}

impl Server {
    pub(super) fn new(length: Duration, bytes_max: u64, port: u16) -> Self {
        let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        Self { program: NAME.into(), seconds, bytes_max, port, running: None }
    }

    /// Bit rate limit: twice the agreed rate. iperf3 ends a test that exceeds this limit for one
    /// second.
    fn bit_s_max(&self) -> u64 {
        (self.bytes_max.saturating_mul(16) / u64::from(self.seconds)).max(1)
    }

    fn arguments(&self, address: IpAddr, port: u16) -> Vec<String> {
        let rate = format!("{}/1", self.bit_s_max());
        let idle_s = (u64::from(self.seconds) + SESSION_OVERHEAD.as_secs()).to_string();
        let words = ["-s", "-1", "-J", "-p", &port.to_string(), "-B", &address.to_string()].map(String::from);
        // If this station is killed, only this timeout ends the server.
        let bounds = ["--idle-timeout", &idle_s, "--server-bitrate-limit", &rate].map(String::from);
        [&words[..], &bounds[..]].concat()
    }
}

impl ExternalReceiver for Server {
    fn start(&mut self, address: IpAddr) -> io::Result<u16> {
        // The local address of an IPv4 connection to [::] is an IPv4-mapped IPv6 address. Convert
        // this address to IPv4, because an IPv4 socket does not accept the mapped form.
        let address = address.to_canonical();
        let port = match self.port {
            // iperf3 does not report a port that the system chose. So find a free port here, and
            // release the port at once for iperf3.
            0 => TcpListener::bind((address, 0))?.local_addr()?.port(),
            port => port,
        };
        let running = Running::start(&self.program, &self.arguments(address, port))?;
        self.running = Some((running, Instant::now()));
        Ok(port)
    }

    fn poll_result(&mut self) -> Option<Result<u64, InvalidTest>> {
        let output = self.running.as_mut()?.0.ended(Duration::ZERO)?;
        Some(report::received(&output, self.bytes_max, self.bytes_max()))
    }

    fn bytes_max(&self) -> u64 {
        let Some((_, began)) = &self.running else { return 0 };
        // iperf3 checks the limit once a second.
        let elapsed_s = began.elapsed().as_secs_f64() + 1.0;
        (self.bit_s_max() as f64 / 8.0 * elapsed_s) as u64
    }
}

/// Creates a program that runs `script` and replaces iperf3 in tests. Dropping the returned
/// directory deletes the program.
#[cfg(test)]
fn fake(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join(NAME);
    // A separate process writes the file. If this process wrote it, a process that a parallel test
    // has just forked could still have the file open, and running the file would fail.
    let mut writer = std::process::Command::new("sh");
    writer.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#, "sh"]);
    let written = writer.arg(&program).arg(script).status();
    assert!(written.is_ok_and(|status| status.success()), "a script");
    (directory, program)
}

/// Time that a session needs in addition to the test: for two connections and iperf3's exchange of
/// results. This time is the same as for Barograph's own streams.
const SESSION_OVERHEAD: Duration = super::SESSION_OVERHEAD;
/// Maximum time from the start of iperf3 until iperf3 listens. This usually takes some
/// milliseconds, and more on a busy machine.
const STARTING: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Time between two checks whether the test was cancelled.
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
