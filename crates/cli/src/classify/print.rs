//! Output of `barograph classify`: one row for each window.

use std::fmt::Display;
use std::io::{self, Write};

use barograph_loss::{Diagnosis, LossPattern, Metrics, Verdict};

/// Writes the header line of the CSV.
pub(super) fn header(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{},verdict,evidence", NUMBERS.join(","))
}

/// A window with its metrics and the cause of its losses.
pub(super) struct Row {
    line: u64,
    packets: u32,
    lost: u32,
    loss_rate: f64,
    na17: u32,
    complexity: f64,
    success_proportion: f64,
    p_cpu: f64,
    p_network: f64,
    lost_host: u32,
    lost_network: u32,
    lost_unknown: u32,
    verdict: &'static str,
    evidence: Vec<&'static str>,
}

impl Row {
    pub(super) fn new(line: u64, metrics: &Metrics, diagnosis: &Diagnosis) -> Self {
        let (p_cpu, p_network) = printed(diagnosis.p_host);
        Self {
            line,
            packets: metrics.packets,
            lost: metrics.lost,
            loss_rate: f64::from(metrics.lost) / f64::from(metrics.packets.max(1)),
            na17: metrics.na17,
            complexity: metrics.complexity,
            success_proportion: metrics.success_proportion,
            p_cpu,
            p_network,
            lost_host: diagnosis.lost_host,
            lost_network: diagnosis.lost_network,
            lost_unknown: diagnosis.lost_unknown,
            verdict: match diagnosis.verdict {
                Verdict::Host => "cpu",
                Verdict::Network => "network",
                Verdict::Hybrid => "hybrid",
                Verdict::Inconclusive => "inconclusive",
            },
            evidence: evidence(diagnosis).collect(),
        }
    }

    pub(super) fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        for number in self.numbers() {
            write!(out, "{number},")?;
        }
        writeln!(out, "{},{}", self.verdict, self.evidence.join(";"))
    }

    /// Writes the window as one JSON object. Numbers have the digits of the CSV; a serialiser of
    /// floats would write 0 as 0.0. No string in the object contains a character that JSON must
    /// escape.
    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"{")?;
        for (name, number) in NUMBERS.iter().zip(self.numbers()) {
            write!(out, "\"{name}\":{number},")?;
        }
        let evidence: Vec<_> = self.evidence.iter().map(|name| format!("\"{name}\"")).collect();
        writeln!(out, "\"verdict\":\"{}\",\"evidence\":[{}]}}", self.verdict, evidence.join(","))
    }

    /// The numbers in the order of [`NUMBERS`].
    fn numbers(&self) -> [&dyn Display; 12] {
        [
            &self.line,
            &self.packets,
            &self.lost,
            &self.loss_rate,
            &self.na17,
            &self.complexity,
            &self.success_proportion,
            &self.p_cpu,
            &self.p_network,
            &self.lost_host,
            &self.lost_network,
            &self.lost_unknown,
        ]
    }
}

/// Names of the evidence that was used, and of other properties of the window.
fn evidence(diagnosis: &Diagnosis) -> impl Iterator<Item = &'static str> {
    let found = diagnosis.evidence_used;
    [
        (found.pattern, "pattern"),
        (found.burst, "burst"),
        (found.delay, "delay"),
        (found.host_drops, "host_drops"),
        (found.marks, "marks"),
        (found.disbelieved, "disbelieved"),
        (found.extrapolated, "extrapolated"),
        (diagnosis.pattern == Some(LossPattern::Outage), "outage"),
        (diagnosis.pattern == Some(LossPattern::Policer), "policer"),
    ]
    .into_iter()
    .filter_map(|(is_so, name)| is_so.then_some(name))
}

/// The probabilities of CPU and network, in billionths that add up to 1. The larger probability is
/// rounded down. So rounding never raises a probability to 0.95 or more, and 1 is printed only for
/// exactly 1.
fn printed(p_cpu: f64) -> (f64, f64) {
    let is_cpu = p_cpu >= 0.5;
    let (larger, is_certain) = if is_cpu { (p_cpu, p_cpu == 1.0) } else { (1.0 - p_cpu, p_cpu == 0.0) };
    let most = if is_certain { BILLION } else { BILLION - 1.0 };
    let larger = (larger * BILLION).floor().min(most);
    let (larger, smaller) = (larger / BILLION, (BILLION - larger) / BILLION);
    if is_cpu { (larger, smaller) } else { (smaller, larger) }
}

const BILLION: f64 = 1e9;

/// Names of the numeric columns, which come first.
const NUMBERS: [&str; 12] = [
    "line",
    "packets",
    "lost",
    "loss_rate",
    "na17",
    "complexity",
    "success_proportion",
    "p_cpu",
    "p_network",
    "lost_host",
    "lost_network",
    "lost_unknown",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_probabilities_add_up_and_stay_on_their_side_of_the_threshold() {
        for p in [
            0.0,
            1e-300,
            1e-9,
            0.05,
            0.05_f64.next_up(),
            0.3,
            0.5,
            0.95_f64.next_down(),
            0.95,
            1.0 - 1e-16,
            1.0,
        ] {
            let (cpu, network) = printed(p);
            assert_eq!(cpu + network, 1.0, "{p}");
            assert_eq!((cpu >= 0.95, network >= 0.95), (p >= 0.95, 1.0 - p >= 0.95), "{p}");
            assert_eq!((cpu == 1.0, network == 1.0), (p == 1.0, p == 0.0), "{p}");
            let digits = |p: f64| p.to_string().len();
            assert!(digits(cpu) <= 11 && digits(network) <= 11, "{cpu} {network}");
        }
    }
}
