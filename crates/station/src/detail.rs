//! Details of stored values as JSON: the form of `detail` in the API and of `tcp_info` in
//! `barograph probe --json`.

use barograph_probe::stream::StreamEnd;
use barograph_probe::{MeasuredValue, StreamResult, TcpInfo};
use serde::{Deserialize, Serialize};

/// Statistics of a TCP connection, from the kernel's `TCP_INFO`.
#[derive(Serialize)]
pub struct TcpInfoJson<'a> {
    min_rtt_s: Option<f64>,
    total_retrans: u32,
    congestion: Option<&'a str>,
    limited_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_rate_bit_s: Option<f64>,
}

impl<'a> From<&'a TcpInfo> for TcpInfoJson<'a> {
    fn from(info: &'a TcpInfo) -> Self {
        Self {
            min_rtt_s: info.min_rtt_s,
            total_retrans: info.total_retrans,
            congestion: info.congestion.as_deref(),
            limited_by: info.limited_by.map(barograph_probe::SenderLimit::as_str),
            delivery_rate_bit_s: info.delivery_rate_bit_s,
        }
    }
}

#[derive(Serialize)]
struct Detail<'a> {
    n: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<f64>,
    /// Bytes of a transfer of a fixed size.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_info: Option<TcpInfoJson<'a>>,
    /// Whether the port refused the connection; the value is then the time of the refusal. Absent
    /// if false.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<bool>,
}

/// The part of a stored detail that marks its value as the time of a refusal.
#[derive(Deserialize)]
struct Mark {
    #[serde(default)]
    refused: bool,
}

/// Whether `detail`, as [`of`] writes it, marks the time of a refusal.
pub(crate) fn is_refused(detail: &str) -> bool {
    // Search for the word first: a detail without it has no mark, and is not parsed.
    detail.contains("\"refused\"") && serde_json::from_str(detail).is_ok_and(|Mark { refused }| refused)
}

/// The parts of the detail of a goodput that show whether the goodput includes slow start.
#[derive(Deserialize)]
struct Size {
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(default)]
    startup_s: Option<f64>,
    /// Tool that ran the test, and leaves out the start itself.
    #[serde(default)]
    with: Option<String>,
}

/// Size (bytes) of the test that measured a goodput, if the goodput includes slow start: a transfer
/// of a fixed size, or a stream that ended during its start-up.
pub(crate) fn slow_start_bytes(detail: &str) -> Option<u64> {
    // As in `is_refused`: most details are not parsed.
    let size = Some(detail).filter(|detail| detail.contains("\"bytes\""))?;
    let Size { bytes, startup_s: None, with: None } = serde_json::from_str(size).ok()? else { return None };
    bytes.filter(|bytes| *bytes > 0)
}

#[derive(Serialize)]
struct TransferDetail {
    bytes: u64,
    duration_s: f64,
    lost_host: u64,
    lost_network: u64,
}

/// Detail of a transfer's rate: bytes, duration, and packets that the receiving host and the
/// network lost.
pub(crate) fn of_transfer(bytes: u64, duration_s: f64, lost_host: u64, lost_network: u64) -> String {
    serde_json::to_string(&TransferDetail { bytes, duration_s, lost_host, lost_network }).unwrap_or_default()
}

#[derive(Serialize)]
struct MessageDetail<'a> {
    message: &'a str,
}

/// Detail of a measured value: number of samples, their extremes, the uncorrected rate, TCP
/// statistics, and whether it is a refusal.
pub(crate) fn of(measured: &MeasuredValue) -> String {
    let several = measured.samples.len() > 1;
    let extreme =
        |pick: fn(f64, f64) -> f64| measured.samples.iter().copied().reduce(pick).filter(|_| several);
    let detail = Detail {
        n: measured.n,
        raw: measured.raw,
        bytes: measured.bytes,
        min: extreme(f64::min),
        max: extreme(f64::max),
        tcp_info: measured.tcp_info.as_ref().map(TcpInfoJson::from),
        refused: measured.refused.then_some(true),
    };
    serde_json::to_string(&detail).unwrap_or_default()
}

#[derive(Serialize)]
struct TestDetail<'a> {
    n: u32,
    /// Rate of all bytes, slow start included, in bit/s.
    raw: f64,
    /// Planned length of the test, in seconds.
    test_s: f64,
    duration_s: f64,
    bytes: u64,
    startup_s: Option<f64>,
    /// How the test ended. After `early` the value is an estimate of a full test's rate.
    ended: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_bit_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_s: Option<f64>,
    /// Expected error of an early estimate: one standard deviation, as a share of the estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    deviation: Option<f64>,
    audit: bool,
    /// Tool that ran the test; absent for Barograph's own stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<&'a str>,
    tcp_info: Option<TcpInfoJson<'a>>,
}

#[derive(Serialize)]
struct FailedTest<'a> {
    test_s: f64,
    message: &'a str,
}

/// Detail of a test between stations. The planned length of the test is `test_s` seconds.
pub(crate) fn of_test(streamed: &StreamResult, test_s: f64, audit: bool, with: Option<&str>) -> String {
    let followed = match streamed.ended {
        StreamEnd::Early(reason) => Some(reason),
        StreamEnd::Full | StreamEnd::Bytes => None,
    };
    let settled = followed.or(streamed.proposed);
    let detail = TestDetail {
        n: 1,
        raw: streamed.whole_bit_s,
        test_s,
        duration_s: streamed.duration_s,
        bytes: streamed.bytes,
        startup_s: streamed.startup_s,
        ended: streamed.ended.as_str(),
        settled_bit_s: settled.map(|reason| reason.settled_bit_s),
        settled_s: settled.map(|reason| reason.time_s),
        deviation: followed.map(|reason| reason.deviation),
        audit,
        with,
        tcp_info: streamed.tcp_info.as_ref().map(TcpInfoJson::from),
    };
    serde_json::to_string(&detail).unwrap_or_default()
}

/// Detail of a failed test between stations: the planned length `test_s` in seconds, and the
/// message.
pub(crate) fn failed_test(text: &str, test_s: f64) -> String {
    let message: String = text.chars().take(MESSAGE_CHARACTERS_MAX).collect();
    serde_json::to_string(&FailedTest { test_s, message: &message }).unwrap_or_default()
}

/// Detail of a failure: its message, cut so that the archive accepts the detail.
pub(crate) fn message(text: &str) -> String {
    let message: String = text.chars().take(MESSAGE_CHARACTERS_MAX).collect();
    serde_json::to_string(&MessageDetail { message: &message }).unwrap_or_default()
}

/// Maximum number of characters of a message. Even if every character is escaped as six bytes, the
/// message is smaller than the archive's limit of 4 KiB.
const MESSAGE_CHARACTERS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goodput_includes_slow_start_if_its_detail_has_only_a_size() {
        for (detail, expected) in [
            (r#"{"bytes":1048576}"#, Some(1_048_576)),
            (r#"{"bytes":1048576,"startup_s":0.4}"#, None),
            (r#"{"bytes":1048576,"with":"iperf3"}"#, None),
            (r#"{"bytes":0}"#, None),
            (r#"{"n":1}"#, None),
            (r#""bytes""#, None),
            ("", None),
        ] {
            assert_eq!(slow_start_bytes(detail), expected, "{detail}");
        }
    }
}
