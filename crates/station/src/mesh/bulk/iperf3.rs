//! iperf3 as the bulk test, for those who must compare (docs/spec/mesh.md §5): its two processes, their bounds, and its report.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use barograph_probe::io::{Cancel, Program};
use barograph_probe::stream::{Ended, Samples, StreamPlan, Streamed};
use barograph_probe::wire::STREAM_MS_MAX;
use barograph_probe::{ProbeError, TcpInfo};
use serde::Deserialize;

/// How the tool is called in settings, the directory and what is stored.
pub(crate) const NAME: &str = "iperf3";

/// Whether it can be used here, asked once.
///
/// # Errors
/// A sentence that says what is missing.
pub(crate) fn usable() -> Result<(), &'static str> {
    static USABLE: OnceLock<Result<(), &'static str>> = OnceLock::new();
    *USABLE.get_or_init(|| {
        let mut running = Running::start(&["--help".into()]).map_err(|_| "iperf3 is not installed here")?;
        let help = running.ended(HELP).unwrap_or_default();
        // The youngest option that is used: 3.10.
        let is_new = String::from_utf8_lossy(&help).contains("--server-bitrate-limit");
        is_new.then_some(()).ok_or("the iperf3 that is installed here is older than 3.10")
    })
}

/// A test as iperf3 has it: whole seconds, and no faster than moves its bytes in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Test {
    pub(super) seconds: u32,
    pub(super) bytes_max: u64,
}

impl Test {
    /// One of at most `length`; `None` = it would have to be shorter than a second.
    ///
    /// iperf3 ends by time or by bytes, not by whichever comes first. So it is ended by time, at a bit rate that it may
    /// not exceed; and it is short enough for that to be twice the forecast, as for our own streams.
    pub(super) fn new(length: Duration, bytes_max: u64, forecast_bit_s: f64) -> Option<Self> {
        let at_twice_s = bytes_max as f64 * 8.0 / (2.0 * forecast_bit_s);
        let seconds = length.as_secs_f64().min(at_twice_s.max(1.0)).floor();
        // A NaN is less than nothing.
        (1.0 <= seconds).then_some(Self { seconds: seconds as u32, bytes_max })
    }

    /// The same within what a peer allows: bytes, or milliseconds where so few bytes would be none.
    pub(super) fn lowered(self, limit: u64) -> Option<Self> {
        if u64::from(STREAM_MS_MAX) < limit {
            return Some(Self { bytes_max: self.bytes_max.min(limit), ..self });
        }
        let seconds = self.seconds.min(u32::try_from(limit / 1000).ok()?);
        (0 < seconds).then_some(Self { seconds, ..self })
    }

    fn bit_s_max(self) -> u64 {
        (self.bytes_max.saturating_mul(8) / u64::from(self.seconds.max(1))).max(1)
    }

    /// Sends to iperf3 at `at`. `sent` is told the most that it may have cost once it has begun.
    pub(super) fn send(
        self,
        at: SocketAddr,
        cancel: &Cancel,
        sent: &AtomicU64,
    ) -> Result<Streamed, ProbeError> {
        let began = Instant::now();
        let fail = |failure: Failure, why: &str| ProbeError {
            failure,
            after_s: began.elapsed().as_secs_f64(),
            message: format!(
                "iperf3: {}",
                why.escape_default().to_string().chars().take(200).collect::<String>()
            ),
            stopped: cancel.is_cancelled(),
            declined: None,
        };
        let arguments = self.client(at);
        let limit = Duration::from_secs(self.seconds.into()) + AROUND;
        loop {
            let mut running =
                Running::start(&arguments).map_err(|error| fail(Failure::Local, &error.to_string()))?;
            sent.store(self.bytes_max, Ordering::Relaxed);
            let ended = loop {
                let left = limit.saturating_sub(began.elapsed());
                if cancel.is_cancelled() || left.is_zero() {
                    break None;
                }
                if let Some(output) = running.ended(left.min(TICK)) {
                    break Some(output);
                }
            };
            let output =
                ended.ok_or_else(|| fail(Failure::TimedOut, "it did not end in time, and was ended"))?;
            match Report::read(&output).and_then(|report| report.streamed(self)) {
                Ok(streamed) => {
                    return Ok(Streamed { elapsed_s: began.elapsed().as_secs_f64(), ..streamed });
                }
                // The peer has started it, but it does not listen yet.
                Err(why) if why.contains("Connection refused") && began.elapsed() < STARTING => {
                    std::thread::park_timeout(AGAIN);
                }
                Err(why) => return Err(fail(Failure::Garbage, &why)),
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
    test: Test,
    /// 0 = as the system chooses.
    port: u16,
    running: Option<Running>,
}

impl Server {
    pub(super) fn new(length: Duration, bytes_max: u64, port: u16) -> Self {
        let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        Self { test: Test { seconds, bytes_max }, port, running: None }
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
        // Who sends as agreed stays at half of it; who does not is ended after a second.
        let rate = format!("{}/1", self.test.bit_s_max().saturating_mul(2));
        let idle_s = (u64::from(self.test.seconds) + AROUND.as_secs()).to_string();
        let words = ["-s", "-1", "-J", "-p", &port.to_string(), "-B", &address.to_string()].map(String::from);
        // Where this station is killed, nobody else ends it.
        let bounds = ["--idle-timeout", &idle_s, "--server-bitrate-limit", &rate].map(String::from);
        self.running = Some(Running::start(&[&words[..], &bounds[..]].concat())?);
        Ok(port)
    }

    fn received(&mut self) -> Option<u64> {
        let output = self.running.as_mut()?.ended(Duration::ZERO)?;
        let sum = Report::read(&output).ok().and_then(|report| report.end.sum_received);
        // One that does not say what came is taken for the most that was agreed.
        Some(sum.map_or(self.test.bytes_max, |sum| sum.bytes))
    }
}

/// A process that ends when dropped, and what it prints.
struct Running {
    child: Child,
    output: Receiver<Vec<u8>>,
}

impl Running {
    /// Without a shell: no word is more than a word.
    fn start(arguments: &[String]) -> io::Result<Self> {
        let mut command = Command::new(NAME);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (sender, output) = channel();
        let stdout = child.stdout.take();
        let running = Self { child, output };
        let read = move || {
            let mut text = Vec::new();
            // What is longer is no report; the process is ended then.
            let _ = stdout.map(|stdout| stdout.take(REPORT_BYTES_MAX).read_to_end(&mut text));
            let _ = sender.send(text);
        };
        std::thread::Builder::new().name(NAME.into()).spawn(read)?;
        Ok(running)
    }

    /// What it printed, once it has ended; `None` = it has not `within` that time.
    fn ended(&mut self, within: Duration) -> Option<Vec<u8>> {
        match self.output.recv_timeout(within) {
            Ok(text) => Some(text),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Vec::new()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part of a report that is used; all else in it is passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    error: Option<String>,
    end: End,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct End {
    streams: Vec<Stream>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sender_tcp_congestion: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stream {
    sender: Sender,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sender {
    /// In microseconds.
    min_rtt: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    bytes: u64,
    seconds: f64,
    #[serde(default)]
    retransmits: i64,
}

impl Report {
    fn read(output: &[u8]) -> Result<Self, String> {
        if output.is_empty() {
            return Err("it printed no report".into());
        }
        let report: Self =
            serde_json::from_slice(output).map_err(|error| format!("its report is none: {error}"))?;
        match report.error {
            Some(error) => Err(error),
            None => Ok(report),
        }
    }

    /// The receiver's bytes over the receiver's time.
    fn streamed(self, test: Test) -> Result<Streamed, String> {
        let End { streams, sum_sent, sum_received, sender_tcp_congestion } = self.end;
        let (sent, received) = sum_sent.zip(sum_received).ok_or("its report has no sums")?;
        let longest_s = f64::from(test.seconds) + AROUND.as_secs_f64();
        let is_sane = |sum: &Sum| 0.0 < sum.seconds && sum.seconds <= longest_s;
        if !(is_sane(&sent) && is_sane(&received)) || sent.bytes < received.bytes {
            return Err(format!(
                "{} of {} bytes in {} s is no result",
                received.bytes, sent.bytes, received.seconds
            ));
        }
        let whole_bit_s = received.bytes as f64 * 8.0 / received.seconds;
        let is_at_limit = AT_LIMIT * test.bit_s_max() as f64 <= whole_bit_s;
        let is_word = |name: &String| name.len() <= 16 && name.bytes().all(|byte| byte.is_ascii_graphic());
        let min_rtt_us = streams.first().and_then(|stream| stream.sender.min_rtt);
        Ok(Streamed {
            bytes: received.bytes,
            duration_s: sent.seconds,
            elapsed_s: received.seconds,
            whole_bit_s,
            settled_bit_s: None,
            startup_s: None,
            ended: if is_at_limit { Ended::Bytes } else { Ended::Full },
            proposed: None,
            tcp_info: Some(TcpInfo {
                min_rtt_s: min_rtt_us.filter(|us| us.is_finite() && 0.0 < *us).map(|us| us / 1e6),
                total_retrans: u32::try_from(sent.retransmits).unwrap_or(0),
                congestion: sender_tcp_congestion.filter(is_word),
                limited_by: None,
                delivery_rate_bit_s: None,
            }),
            samples: Samples::new(),
            partials: Default::default(),
            surprised: false,
        })
    }
}

/// What a test as whole seconds needs of a plan of our own; for asking the peer.
pub(super) fn milliseconds(test: Test) -> u32 {
    let seconds = f64::from(test.seconds);
    StreamPlan { seconds, bytes_max: test.bytes_max, congestion: None, early: None }.ms()
}

/// Connecting twice, and its own exchange of results: as for our own streams.
const AROUND: Duration = super::AROUND;
/// A started iperf3 listens within some milliseconds; on a busy machine within this.
const STARTING: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);
/// How soon a stop is noticed.
const TICK: Duration = Duration::from_millis(100);
const HELP: Duration = Duration::from_secs(2);
/// A report of 30 s with its intervals has 40 kB.
const REPORT_BYTES_MAX: u64 = 1 << 20;
/// A rate so near to the one it was held to is the limit's, not the path's.
const AT_LIMIT: f64 = 0.95;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEST: Test = Test { seconds: 2, bytes_max: 100_000_000 };

    fn report(sent: &str, received: &str) -> Result<Streamed, String> {
        let text = format!(
            r#"{{"start": {{}}, "end": {{"streams": [{{"sender": {{"min_rtt": 137}}}}],
            "sum_sent": {sent}, "sum_received": {received}, "sender_tcp_congestion": "cubic"}}}}"#
        );
        Report::read(text.as_bytes())?.streamed(TEST)
    }

    #[test]
    fn a_report_is_read_and_absurd_ones_are_refused() {
        let sent = r#"{"bytes": 5000000, "seconds": 2.0, "retransmits": 3}"#;
        let streamed = report(sent, r#"{"bytes": 4900000, "seconds": 2.1}"#).unwrap();
        assert!((streamed.rate_bit_s() - 4.9e6 * 8.0 / 2.1).abs() < 1e-6);
        assert_eq!((streamed.ended, streamed.bytes), (Ended::Full, 4_900_000));
        let info = streamed.tcp_info.unwrap();
        assert_eq!((info.min_rtt_s, info.total_retrans), (Some(137e-6), 3));
        for received in [
            r#"{"bytes": 4900000, "seconds": 0}"#,
            r#"{"bytes": 4900000, "seconds": -1}"#,
            r#"{"bytes": 4900000, "seconds": 1e9}"#,
            r#"{"bytes": 9900000, "seconds": 2}"#,
            r#"{"bytes": -1, "seconds": 2}"#,
            r#"{"bytes": 1e99, "seconds": 2}"#,
            "null",
            "[]",
        ] {
            assert!(report(sent, received).is_err(), "{received}");
        }
        for text in ["", "iperf3: error", "{", r#"{"error": "busy"}"#, "{}", "[[[[", r#"{"end": 7}"#] {
            let result = Report::read(text.as_bytes()).and_then(|report| report.streamed(TEST));
            assert!(result.is_err(), "{text}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(Report::read(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_rate_at_the_limit_is_said_to_be() {
        let most = r#"{"bytes": 99000000, "seconds": 2.0}"#;
        assert_eq!(report(most, most).unwrap().ended, Ended::Bytes);
    }

    #[test]
    fn a_test_has_whole_seconds_and_room_for_twice_the_forecast() {
        let five = Duration::from_secs(5);
        let of = |length, bytes, rate| Test::new(length, bytes, rate).map(|test| test.seconds);
        assert_eq!(of(five, 125_000_000, 100e6), Some(5));
        assert_eq!(of(five, 625_000_000, 1e9), Some(2));
        assert_eq!(of(five, 1_000_000, 1e12), Some(1));
        assert_eq!(of(Duration::from_millis(2900), 125_000_000, 100e6), Some(2));
        assert_eq!(of(Duration::from_millis(900), 125_000_000, 100e6), None);
        assert_eq!(TEST.bit_s_max(), 400_000_000);
        assert_eq!(TEST.lowered(5_000_000), Some(Test { bytes_max: 5_000_000, ..TEST }));
        assert_eq!((TEST.lowered(1500), TEST.lowered(900)), (Some(Test { seconds: 1, ..TEST }), None));
        assert_eq!(milliseconds(TEST), 2000);
    }
}
