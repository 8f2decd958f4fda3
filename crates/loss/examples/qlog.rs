//! Diagnoses the losses of a QUIC connection, window by window, from the qlog file of its sender.
//!
//! `cargo run -p barograph-loss --example qlog -- FILE [PACKETS]`, with 20 000 packets a window by
//! default.
//!
//! The file is a qlog of version 0.3 or later (JSON or JSON-SEQ; draft-ietf-quic-qlog-quic-events)
//! with times relative to a start time, and with the events `packet_sent` and `packet_lost`. These
//! two events give the pattern of losses: the packets in the order they were sent, and the packets
//! that were declared lost. Packets that were sent at almost the same time form a burst.
//!
//! The file has neither the drops of the receiver's kernel nor a one-way delay. The round-trip time
//! of `metrics_updated` grows with a queue, but also while the receiver's process does not run. So
//! the example prints the round-trip time and does not use it as evidence.
//! `docs/other-protocols.md` has results.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};

use barograph_loss::{Classifier, Diagnosis, Evidence, Meter, Signature, Verdict};
use serde_json::{Deserializer, Value};

/// Longest time between two consecutive packets of one burst, ms. A packet of 1500 bytes takes
/// about this time at 1 Gbit/s.
const BURST_GAP_MS: f64 = 0.01;
/// Default length of a window, in packets. This length is within the range of the shipped model.
const WINDOW: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: qlog FILE [PACKETS]")?;
    let window = arguments.next().map_or(Ok(WINDOW), |packets| packets.parse())?.max(1);
    println!(
        "connection,window,packets,lost,burst,round_trip_rise,p_cpu,lost_host,lost_network,lost_unknown,verdict"
    );
    for (id, connection) in read(BufReader::new(File::open(file)?))? {
        for (index, told) in connection.windows(window)?.into_iter().enumerate() {
            println!("{id},{},{told}", index + 1);
        }
    }
    Ok(())
}

/// Events of a connection's sender.
#[derive(Default)]
struct Connection {
    /// Number and time (ms) of each packet, in the order they were sent. Senders skip numbers, so a
    /// missing number is not a loss.
    sent: Vec<(u64, f64)>,
    /// Packets that were declared lost. The key is the packet's number. The value is the round-trip
    /// time minus the minimum round-trip time, both at the time of the declaration.
    lost: HashMap<u64, f64>,
    round_trip: f64,
    round_trip_min: f64,
}

/// Reads all connections of a file. The key of a connection is its `group_id`, or the number of its
/// trace.
fn read(file: impl BufRead) -> Result<BTreeMap<String, Connection>, Box<dyn std::error::Error>> {
    let mut connections = BTreeMap::<String, Connection>::new();
    // JSON-SEQ (RFC 7464) begins each record with this character. JSON does not contain the
    // character.
    for record in file.split(b'\x1e') {
        for value in Deserializer::from_slice(&record?).into_iter::<Value>() {
            let value = match value {
                Err(error) if error.is_eof() => break, // the last record is incomplete
                other => other?,
            };
            let traces = value["traces"].as_array().into_iter().flatten();
            let events = traces.zip(0..).flat_map(|(trace, index)| {
                trace["events"].as_array().into_iter().flatten().map(move |event| (index, event))
            });
            for (trace, event) in events.chain([(0, &value)]) {
                let id = event["group_id"].as_str().map_or_else(|| trace.to_string(), Into::into);
                connections.entry(id).or_default().record(event);
            }
        }
    }
    Ok(connections)
}

impl Connection {
    /// Records an event, such as `recovery:packet_lost` or, in later drafts, `quic:packet_lost`.
    fn record(&mut self, event: &Value) {
        let data = &event["data"];
        // aioquic reports a lost packet without a header.
        let header = if data["header"].is_object() { &data["header"] } else { data };
        let is_data = [&header["packet_type"], &header["type"]].contains(&&Value::from("1RTT"));
        let number = header["packet_number"].as_u64().filter(|_| is_data);
        match (event["name"].as_str().unwrap_or_default().rsplit(':').next(), number) {
            (Some("packet_sent"), Some(number)) => {
                self.sent.push((number, event["time"].as_f64().unwrap_or_default()));
            }
            // A lost MTU probe was too large. Its loss does not show congestion.
            (Some("packet_lost"), Some(number)) if data["is_mtu_probe_packet"] != true => {
                self.lost.insert(number, self.round_trip - self.round_trip_min);
            }
            (Some("metrics_updated" | "recovery_metrics_updated"), _) => {
                // An event contains only the values that have changed.
                self.round_trip = data["latest_rtt"].as_f64().unwrap_or(self.round_trip);
                self.round_trip_min = data["min_rtt"].as_f64().unwrap_or(self.round_trip_min);
            }
            _ => {}
        }
    }

    /// Diagnoses windows of `packets` packets each. The last window has the remaining packets.
    fn windows(&self, packets: usize) -> Result<Vec<WindowRow>, barograph_loss::SignatureError> {
        let (classifier, mut meter) = (Classifier::shipped(), Meter::new());
        let tell = |sent: &[(u64, f64)]| {
            let (mut signature, mut rise) = (Signature::new(), 0.0);
            for (number, _) in sent {
                match self.lost.get(number) {
                    None => signature.push_received(1)?,
                    Some(above) => {
                        signature.push_lost(1)?;
                        rise += above;
                    }
                }
            }
            let burst = burst(sent);
            let metrics = meter.measure(&signature);
            let evidence = Evidence { burst: Some(burst), ..Evidence::default() };
            let diagnosis = classifier.diagnose(&signature, &metrics, &evidence);
            let round_trip_rise = rise / f64::from(metrics.lost.max(1));
            Ok(WindowRow { packets: metrics.packets, lost: metrics.lost, burst, round_trip_rise, diagnosis })
        };
        self.sent.chunks(packets).map(tell).collect()
    }
}

/// Mean, over all packets, of the length of the packet's burst, rounded to whole packets.
fn burst(sent: &[(u64, f64)]) -> u32 {
    let bursts = sent.chunk_by(|(_, before), (_, after)| (after - before).abs() <= BURST_GAP_MS);
    let squares: usize = bursts.map(|burst| burst.len().pow(2)).sum();
    (squares as f64 / sent.len().max(1) as f64).round() as u32
}

struct WindowRow {
    packets: u32,
    lost: u32,
    burst: u32,
    /// Rise of the round-trip time above its minimum at the loss of a packet; mean of all lost
    /// packets. The unit is the file's: ms in the draft, but seconds in files of quinn 0.11.
    round_trip_rise: f64,
    diagnosis: Diagnosis,
}

impl std::fmt::Display for WindowRow {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Diagnosis { p_host, lost_host, lost_network, lost_unknown, verdict, .. } = self.diagnosis;
        let verdict = match verdict {
            Verdict::Host => "cpu",
            Verdict::Network => "network",
            Verdict::Hybrid => "hybrid",
            Verdict::Inconclusive => "inconclusive",
        };
        write!(to, "{},{},{},{:.4},", self.packets, self.lost, self.burst, self.round_trip_rise)?;
        write!(to, "{p_host:.3},{lost_host},{lost_network},{lost_unknown},{verdict}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SMALL: &str = include_str!("small.sqlog");

    fn told(text: &str, packets: usize) -> Vec<(u32, u32, u32)> {
        let connections = read(text.as_bytes()).unwrap();
        let windows = connections["c0ffee"].windows(packets).unwrap();
        windows.iter().map(|told| (told.packets, told.lost, told.burst)).collect()
    }

    #[test]
    fn sent_and_lost_packets_are_counted_in_sending_order() {
        // 12 packets of application data, sent four at once and then one by one. Three of the
        // packets were lost.
        assert_eq!(told(SMALL, 8), [(8, 2, 4), (4, 1, 1)]);
        let connection = &read(SMALL.as_bytes()).unwrap()["c0ffee"];
        let rise = connection.windows(8).unwrap()[0].round_trip_rise;
        assert!((rise - 2.5).abs() < 1e-9, "{rise} ms above the minimum, in the mean");
    }

    #[test]
    fn one_json_document_or_a_truncated_sequence_gives_the_same_windows() {
        let events: Vec<&str> = SMALL.split('\x1e').skip(2).collect();
        let whole = format!(r#"{{"qlog_version":"0.3","traces":[{{"events":[{}]}}]}}"#, events.join(","));
        assert_eq!(told(&whole, 8), told(SMALL, 8));
        let cut = format!("{SMALL}\x1e{}", r#"{"time":9,"name":"transport:pack"#);
        assert_eq!(told(&cut, 8), told(SMALL, 8));
        assert!(read("\x1e{]".as_bytes()).is_err());
    }
}
