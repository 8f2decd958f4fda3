//! Reads reports of iperf3, from the client and from the server. Pure.

use barograph_forecast::Failure;
use barograph_probe::TcpInfo;
use barograph_probe::io::InvalidTest;
use barograph_probe::stream::{Samples, StreamEnd, StreamResult};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{SESSION_OVERHEAD, Test};

/// Class and message of a failure that a report describes.
pub(super) type ReportError = (Failure, String);

/// The fields of a report that are used; all others are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    error: Option<String>,
    start: Start,
    intervals: Vec<Map<String, Value>>,
    end: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Start {
    connected: Vec<Value>,
    accepted_connection: Option<Value>,
    test_start: Option<TestStart>,
}

/// Parameters that the client requested from the server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TestStart {
    protocol: String,
    num_streams: u32,
    reverse: u32,
    /// Not 0 if the test ran in both directions. Some versions support such tests and do not report
    /// this field.
    bidir: u32,
}

#[derive(Debug, Deserialize)]
struct Sum {
    bytes: u64,
    seconds: f64,
    #[serde(default)]
    retransmits: i64,
}

/// Reads the client's report of `test`. The rate is the receiver's bytes divided by the receiver's
/// time.
///
/// # Errors
/// The error of iperf3, classified, or `InvalidResponse` for impossible figures.
pub(super) fn streamed(output: &[u8], test: Test) -> Result<StreamResult, ReportError> {
    let garbage = |why: String| (Failure::InvalidResponse, why);
    let report = read(output).map_err(garbage)?;
    if let Some(error) = report.error {
        return Err((failure_of(&error), error));
    }
    let sum = |name: &str| {
        let sum =
            report.end.get(name).cloned().ok_or_else(|| garbage(format!("its report has no {name}")))?;
        serde_json::from_value::<Sum>(sum)
            .map_err(|error| garbage(format!("its {name} is not valid: {error}")))
    };
    let (sent, received) = (sum("sum_sent")?, sum("sum_received")?);
    let longest_s = f64::from(test.seconds) + SESSION_OVERHEAD.as_secs_f64();
    let is_sane = |sum: &Sum| 0.0 < sum.seconds && sum.seconds <= longest_s;
    // The peer reports its time of receiving, which cannot be much shorter than the time of
    // sending.
    let is_whole = TIME_RATIO_MIN * sent.seconds <= received.seconds;
    if !(is_sane(&sent) && is_sane(&received) && is_whole) || sent.bytes < received.bytes {
        return Err(garbage(format!(
            "impossible result: {} bytes received in {} s, {} bytes sent in {} s",
            received.bytes, received.seconds, sent.bytes, sent.seconds
        )));
    }
    let whole_bit_s = received.bytes as f64 * 8.0 / received.seconds;
    let is_at_limit = AT_LIMIT * test.bit_s_max() as f64 <= whole_bit_s;
    let is_word = |name: &&str| name.len() <= 16 && name.bytes().all(|byte| byte.is_ascii_graphic());
    let congestion = report.end.get("sender_tcp_congestion").and_then(Value::as_str).filter(is_word);
    let min_rtt_us = report.end.get("streams").and_then(|of| of.pointer("/0/sender/min_rtt")?.as_f64());
    Ok(StreamResult {
        // The cost is the number of bytes sent, whatever the peer reports.
        bytes: sent.bytes,
        duration_s: sent.seconds,
        elapsed_s: received.seconds,
        whole_bit_s,
        settled_bit_s: None,
        startup_s: None,
        ended: if is_at_limit { StreamEnd::Bytes } else { StreamEnd::Full },
        proposed: None,
        tcp_info: Some(TcpInfo {
            min_rtt_s: min_rtt_us.filter(|us| us.is_finite() && *us > 0.0).map(|us| us / 1e6),
            total_retrans: u32::try_from(sent.retransmits).unwrap_or(0),
            congestion: congestion.map(String::from),
            limited_by: None,
            delivery_rate_bit_s: None,
        }),
        samples: Samples::new(),
        partials: Default::default(),
        estimate_rejected: false,
    })
}

/// Reads the server's report. Returns the bytes received if the test was one TCP stream to this
/// host; otherwise the reason and the bytes to charge. The ends agreed on `bytes_max`; at most
/// `most` bytes can have arrived.
pub(super) fn received(output: &[u8], bytes_max: u64, most: u64) -> Result<u64, InvalidTest> {
    let report = read(output).map_err(|why| InvalidTest { bytes: most, why })?;
    let (start, error) = (&report.start, report.error.as_ref().map(|error| short(error)));
    if start.accepted_connection.is_none() && start.connected.is_empty() {
        return Err(InvalidTest { bytes: 0, why: error.unwrap_or_else(|| "no client connected".into()) });
    }
    let is_both_ways = report.end.keys().any(|name| name.ends_with("_bidir_reverse"));
    let is_one = start.test_start.as_ref().is_some_and(|test| {
        (test.protocol.as_str(), test.num_streams, test.reverse, test.bidir) == ("TCP", 1, 0, 0)
    });
    let bytes = report.end.get("sum_received").and_then(|sum| sum.get("bytes")?.as_u64());
    match (bytes, &error) {
        (Some(bytes), None) if is_one && !is_both_ways => Ok(bytes),
        _ => {
            let intervals = report.intervals.iter().map(sums).fold(0, u64::saturating_add);
            // The sums at the end contain figures from the peer, which must not spend this host's
            // budget.
            let moved = sums(&report.end).min(most).max(intervals);
            let why = error.unwrap_or_else(|| "it was not one TCP stream to this host".into());
            Err(InvalidTest { bytes: moved.max(bytes_max.saturating_mul(2)), why })
        }
    }
}

fn read(output: &[u8]) -> Result<Report, String> {
    if output.is_empty() {
        return Err("it printed no report".into());
    }
    serde_json::from_slice(output)
        .map_err(|error| format!("its report is not valid JSON: {}", short(&error.to_string())))
}

/// Total number of bytes of all entries with a name that begins with `sum`.
fn sums(of: &Map<String, Value>) -> u64 {
    let sums = of.iter().filter(|(name, _)| name.starts_with("sum"));
    sums.filter_map(|(_, sum)| sum.get("bytes")?.as_u64()).fold(0, u64::saturating_add)
}

/// Class of an iperf3 error message, which ends with the system's message.
fn failure_of(error: &str) -> Failure {
    let says = |words: &[&str]| words.iter().any(|word| error.contains(word));
    if says(&["Connection refused"]) {
        Failure::Refused
    } else if says(&["No route to host", "unreachable"]) {
        Failure::Unreachable
    } else if says(&["timed out", "Operation now in progress"]) {
        Failure::TimedOut
    } else if says(&["reset by peer", "Broken pipe", "closed unexpectedly", "server has terminated"]) {
        Failure::Reset
    } else if says(&["server is busy"]) {
        Failure::Declined
    } else if says(&["Cannot assign", "Too many open files", "Cannot allocate", "Permission denied"]) {
        Failure::Local
    } else {
        Failure::InvalidResponse
    }
}

/// Text of another program, printable and of limited length.
pub(super) fn short(text: &str) -> String {
    text.escape_default().take(200).collect()
}

/// Share of the bit rate limit. A rate above this share is determined by the limit, not by the
/// path.
const AT_LIMIT: f64 = 0.95;
/// Minimum ratio of the receiver's time to the sender's. The two times begin and end at most a
/// round trip and a queueing delay apart, and a test takes at least a second.
const TIME_RATIO_MIN: f64 = 0.9;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEST: Test = Test { seconds: 2, bytes_max: 100_000_000, forecast_bit_s: 20e6 };

    fn report(sent: &str, received: &str) -> Result<StreamResult, ReportError> {
        let text = format!(
            r#"{{"start": {{}}, "end": {{"streams": [{{"sender": {{"min_rtt": 137}}}}],
            "sum_sent": {sent}, "sum_received": {received}, "sender_tcp_congestion": "cubic"}}}}"#
        );
        streamed(text.as_bytes(), TEST)
    }

    #[test]
    fn a_plausible_report_is_parsed_and_an_absurd_report_is_refused() {
        let sent = r#"{"bytes": 5000000, "seconds": 2.0, "retransmits": 3}"#;
        let streamed = report(sent, r#"{"bytes": 4900000, "seconds": 2.1}"#).unwrap();
        assert!((streamed.rate_bit_s() - 4.9e6 * 8.0 / 2.1).abs() < 1e-6);
        assert_eq!(
            (streamed.ended, streamed.bytes),
            (StreamEnd::Full, 5_000_000),
            "what was sent is charged"
        );
        let info = streamed.tcp_info.unwrap();
        assert_eq!((info.min_rtt_s, info.total_retrans), (Some(137e-6), 3));
        assert_eq!(info.congestion.as_deref(), Some("cubic"));
        let little = report(sent, r#"{"bytes": 1, "seconds": 2.1}"#).unwrap();
        assert_eq!(little.bytes, 5_000_000, "whatever the peer says came");
        for received in [
            r#"{"bytes": 4900000, "seconds": 0}"#,
            r#"{"bytes": 4900000, "seconds": -1}"#,
            r#"{"bytes": 4900000, "seconds": 1e9}"#,
            r#"{"bytes": 4900000, "seconds": 1e-6}"#,
            r#"{"bytes": 4900000, "seconds": 1.7}"#,
            r#"{"bytes": 9900000, "seconds": 2}"#,
            r#"{"bytes": -1, "seconds": 2}"#,
            r#"{"bytes": 1e99, "seconds": 2}"#,
            "null",
            "[]",
        ] {
            assert_eq!(report(sent, received).unwrap_err().0, Failure::InvalidResponse, "{received}");
        }
        for text in ["", "iperf3: error", "{", r#"{"error": "busy"}"#, "{}", "[[[[", r#"{"end": 7}"#] {
            assert!(super::streamed(text.as_bytes(), TEST).is_err(), "{text}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(super::streamed(deep.as_bytes(), TEST).is_err());
    }

    #[test]
    fn a_rate_at_the_limit_is_reported_as_byte_limited() {
        let most = r#"{"bytes": 99000000, "seconds": 2.0}"#;
        assert_eq!(report(most, most).unwrap().ended, StreamEnd::Bytes);
    }

    #[test]
    fn each_iperf3_error_maps_to_its_failure() {
        for (error, failure) in [
            ("unable to connect to server: Connection refused", Failure::Refused),
            ("unable to connect to server: No route to host", Failure::Unreachable),
            ("unable to connect to server: Connection timed out", Failure::TimedOut),
            ("control socket has closed unexpectedly", Failure::Reset),
            ("unable to receive control message: Connection reset by peer", Failure::Reset),
            ("the server is busy running a test. try again later", Failure::Declined),
            ("some day it says this", Failure::InvalidResponse),
        ] {
            let text =
                serde_json::json!({ "start": {}, "intervals": [], "end": {}, "error": error }).to_string();
            assert_eq!(super::streamed(text.as_bytes(), TEST), Err((failure, error.to_string())), "{error}");
        }
    }

    /// Builds a server's report from test parameters (`marks`), sums and further fields, and reads
    /// this report.
    fn served(marks: &str, end: &str, rest: &str) -> Result<u64, InvalidTest> {
        let text = format!(
            r#"{{"start": {{"connected": [{{}}], "accepted_connection": {{"host": "192.0.2.1"}},
            "test_start": {{{marks}}}}},
            "intervals": [{{"sum": {{"bytes": 40}}}}, {{"sum": {{"bytes": 2}}, "sum_bidir_reverse": {{"bytes": 1000}}}}],
            "end": {{{end}}} {rest}}}"#
        );
        received(text.as_bytes(), 100, 5000)
    }

    #[test]
    fn a_server_is_charged_received_bytes_and_more_for_an_unagreed_test() {
        const PLAIN: &str = r#""protocol": "TCP", "num_streams": 1, "reverse": 0"#;
        const SUMS: &str = r#""sum_sent": {"bytes": 0}, "sum_received": {"bytes": 77}"#;
        assert_eq!(served(PLAIN, SUMS, ""), Ok(77));
        let huge = r#""sum_sent": {"bytes": 18446744073709551615}, "sum_received": {"bytes": 9}"#;
        let both = r#""sum_received": {"bytes": 7}, "sum_sent_bidir_reverse": {"bytes": 2000}"#;
        for (marks, end, rest, bytes) in [
            (r#""protocol": "TCP", "num_streams": 1, "reverse": 1"#, huge, "", 5000),
            (r#""protocol": "UDP", "num_streams": 1, "reverse": 0"#, r#""sum": {"bytes": 3000}"#, "", 3000),
            (r#""protocol": "TCP", "num_streams": 128, "reverse": 0"#, SUMS, "", 1042),
            (r#""protocol": "TCP", "num_streams": 1, "reverse": 0, "bidir": 1"#, SUMS, "", 1042),
            (PLAIN, both, "", 2007),
            (PLAIN, "", "", 1042),
            (PLAIN, SUMS, r#", "error": "it broke""#, 1042),
            ("", SUMS, "", 1042),
        ] {
            let InvalidTest { bytes: charged, why } = served(marks, end, rest).unwrap_err();
            assert!(charged == bytes && !why.is_empty(), "{marks} {end} {rest}: {charged} {why}");
        }
        for text in ["", "{", "7", r#"{"start": 1}"#, r#"{"intervals": [1]}"#, r#"{"end": []}"#] {
            assert_eq!(received(text.as_bytes(), 100, 5000).unwrap_err().bytes, 5000, "{text}");
        }
    }

    #[test]
    fn without_a_client_nothing_is_charged_and_the_reason_is_kept() {
        let error = "unable to start listener for connections: Address already in use";
        let taken =
            format!(r#"{{"start": {{"connected": []}}, "intervals": [], "end": {{}}, "error": "{error}"}}"#);
        assert_eq!(received(taken.as_bytes(), 100, 5000), Err(InvalidTest { bytes: 0, why: error.into() }));
        let long = format!(r#"{{"error": "{}"}}"#, "\\u001b".repeat(9999));
        assert!(received(long.as_bytes(), 100, 5000).unwrap_err().why.len() <= 200);
    }
}
