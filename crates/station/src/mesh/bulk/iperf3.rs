//! iperf3 as the bulk test, for those who must compare (docs/spec/mesh.md §5): its two processes, and their bounds.

mod report;
mod running;

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use barograph_probe::ProbeError;
use barograph_probe::io::{Cancel, NoTest, Program};
use barograph_probe::stream::{StreamPlan, Streamed};
use barograph_probe::wire::STREAM_MS_MAX;

use self::running::Running;
pub(crate) use self::running::{usable, warn};

/// How the tool is called in settings, the directory and what is stored, and by its program.
pub(crate) const NAME: &str = "iperf3";

/// A test as iperf3 has it: whole seconds, and no faster than moves its bytes in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Test {
    seconds: u32,
    pub(super) bytes_max: u64,
    /// What it must leave room for.
    forecast_bit_s: f64,
}

impl Test {
    /// One of at most `length`; `None` = it would have to be shorter than a second.
    ///
    /// iperf3 ends by time or by bytes, not by whichever comes first. So it is ended by time, at a bit rate that it may
    /// not exceed; and it is so short that this is at least twice the forecast, as for our own streams.
    pub(super) fn new(length: Duration, bytes_max: u64, forecast_bit_s: f64) -> Option<Self> {
        let at_twice_s = bytes_max as f64 * 8.0 / (2.0 * forecast_bit_s);
        let is_known = 0.0 < forecast_bit_s && at_twice_s.is_finite();
        let seconds = length.as_secs_f64().min(at_twice_s).floor();
        let fits = is_known && 1.0 <= seconds;
        fits.then_some(Self { seconds: seconds as u32, bytes_max, forecast_bit_s })
    }

    /// The same within what a peer allows: bytes, or milliseconds where so few bytes would be none.
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

    /// What a plan of our own would ask the peer for.
    pub(super) fn milliseconds(self) -> u32 {
        let seconds = f64::from(self.seconds);
        StreamPlan { seconds, bytes_max: self.bytes_max, congestion: None, early: None }.ms()
    }

    /// Sends to iperf3 at `at`, `within` that time. `sent` is told the most that it may have cost once it has begun.
    pub(super) fn send(
        self,
        at: SocketAddr,
        within: Duration,
        cancel: &Cancel,
        sent: &AtomicU64,
    ) -> Result<Streamed, ProbeError> {
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
                ended.ok_or_else(|| fail(Failure::TimedOut, "it did not end in time, and was ended"))?;
            match report::streamed(&output, self) {
                Ok(streamed) => {
                    return Ok(Streamed { elapsed_s: began.elapsed().as_secs_f64(), ..streamed });
                }
                Err((Failure::Refused, _)) if began.elapsed() < STARTING => {
                    // The peer has started it, but it does not listen yet. What was not begun costs nothing.
                    sent.store(0, Ordering::Relaxed);
                    std::thread::park_timeout(AGAIN);
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

/// iperf3's server, for one test; ended when dropped.
pub(super) struct Server {
    program: OsString,
    seconds: u32,
    bytes_max: u64,
    /// 0 = as the system chooses.
    port: u16,
    running: Option<(Running, Instant)>,
}

impl Server {
    pub(super) fn new(length: Duration, bytes_max: u64, port: u16) -> Self {
        let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        Self { program: NAME.into(), seconds, bytes_max, port, running: None }
    }

    /// Who sends as agreed stays at half of it; who does not is ended after a second.
    fn bit_s_max(&self) -> u64 {
        (self.bytes_max.saturating_mul(16) / u64::from(self.seconds)).max(1)
    }

    fn arguments(&self, address: IpAddr, port: u16) -> Vec<String> {
        let rate = format!("{}/1", self.bit_s_max());
        let idle_s = (u64::from(self.seconds) + AROUND.as_secs()).to_string();
        let words = ["-s", "-1", "-J", "-p", &port.to_string(), "-B", &address.to_string()].map(String::from);
        // Where this station is killed, nobody else ends it.
        let bounds = ["--idle-timeout", &idle_s, "--server-bitrate-limit", &rate].map(String::from);
        [&words[..], &bounds[..]].concat()
    }
}

impl Program for Server {
    fn start(&mut self, address: IpAddr) -> io::Result<u16> {
        // What came to [::] over IPv4 has an address that only IPv6 sockets know.
        let address = address.to_canonical();
        let port = match self.port {
            // Free again at once: iperf3 does not say which port the system gave it.
            0 => TcpListener::bind((address, 0))?.local_addr()?.port(),
            port => port,
        };
        let running = Running::start(&self.program, &self.arguments(address, port))?;
        self.running = Some((running, Instant::now()));
        Ok(port)
    }

    fn received(&mut self) -> Option<Result<u64, NoTest>> {
        let output = self.running.as_mut()?.0.ended(Duration::ZERO)?;
        Some(report::received(&output, self.bytes_max, self.most()))
    }

    fn most(&self) -> u64 {
        let Some((_, began)) = &self.running else { return 0 };
        // The limit is looked at once a second.
        let elapsed_s = began.elapsed().as_secs_f64() + 1.0;
        (self.bit_s_max() as f64 / 8.0 * elapsed_s) as u64
    }
}

/// A program that runs `script` in iperf3's stead, as long as its directory is there.
#[cfg(test)]
fn fake(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join(NAME);
    // Written by another process: nobody can run what one that another test has just forked still has open.
    let mut writer = std::process::Command::new("sh");
    writer.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#, "sh"]);
    let written = writer.arg(&program).arg(script).status();
    assert!(written.is_ok_and(|status| status.success()), "a script");
    (directory, program)
}

/// Connecting twice, and its own exchange of results: as for our own streams.
const AROUND: Duration = super::AROUND;
/// A started iperf3 listens within some milliseconds; on a busy machine within this.
const STARTING: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);
/// How soon a stop is noticed.
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
