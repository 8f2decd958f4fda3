//! Transfers to receivers that report false causes of losses, or that report no delays.

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::run::{Case, GapReports, Ours, SimPath, all};
use super::{START_S, Setting};
use crate::evidence::LossEvidence;
use crate::table::{Section, Table, cells, percent, shown};

const MBIT_S: u64 = 100;
const RTT_MS: u64 = 20;

/// What the receiver reports, and whether it has a counter. The first two classify nothing falsely:
/// the honest receiver, and the sender without a classifier.
const CASES: [(GapReports, LossEvidence); 6] = [
    (GapReports::Honest, LossEvidence::Counter),
    (GapReports::Honest, LossEvidence::None),
    (GapReports::Claims, LossEvidence::Counter),
    (GapReports::ForgedClaims, LossEvidence::Counter),
    (GapReports::ForgedDelays, LossEvidence::Pattern),
    (GapReports::NoDelays, LossEvidence::Pattern),
];

/// Names of the reports after the first two, and of their gains in rows.
const REPORTS: [(&str, &str); 4] = [
    ("claims", "gain"),
    ("claims, no queue", "gain_of_forged_claims"),
    ("no queue", "gain_of_forged_delays"),
    ("no delays", "gain_without_delays"),
];

/// Floor: rate with lies, as a multiple of that with the truth.
const GAIN_MAX: f64 = 1.1;

pub(crate) fn table(setting: Setting) -> anyhow::Result<Section> {
    of(&ControllerKind::ALL, setting)
}

fn of(kinds: &[ControllerKind], setting: Setting) -> anyhow::Result<Section> {
    let seconds = START_S + setting.seconds;
    let plain = SimPath::new(MBIT_S, RTT_MS, setting.seed);
    let paths = [
        ("0.1 % random loss", SimPath { loss: 1e-3, ..plain.clone() }),
        ("1 % random loss", SimPath { loss: 1e-2, ..plain.clone() }),
        ("beside a cubic flow", SimPath { has_cubic: true, ..plain }),
    ];
    let cases: Vec<Case> = paths
        .iter()
        .flat_map(|(_, path)| kinds.iter().map(move |kind| (path, *kind)))
        .flat_map(|(path, kind)| {
            CASES.map(|(report, evidence)| (path, Ours { report, evidence, ..Ours::new(kind) }))
        })
        .map(|(path, flow)| Case { path: path.clone(), flows: vec![flow], seconds })
        .collect();
    let runs = all("lies", &cases)?;
    let (mut table, mut numbers, mut gains) = (
        Table::titled(
            "path, controller | honest | no classifier | claims ÷ honest | claims, no queue ÷ honest | \
             no queue ÷ honest | no delays ÷ honest | claims ÷ no classifier | cubic beside the honest | \
             beside claims | beside claims, no queue | beside no queue | beside no delays",
        ),
        Vec::new(),
        Vec::new(),
    );
    for ((name, path), runs) in paths.iter().zip(runs.chunks(CASES.len() * kinds.len())) {
        for (kind, runs) in kinds.iter().zip(runs.chunks(CASES.len())) {
            let shares: Vec<f64> =
                runs.iter().map(|run| run.bytes_s(0, START_S, seconds) / path.bytes_s()).collect();
            let cubics: Vec<f64> =
                runs.iter().map(|run| run.cubic(START_S, seconds).0 / path.bytes_s()).collect();
            let ([honest, unclassified, altered @ ..], [honest_cubic, _, altered_cubics @ ..]) =
                (shares.as_slice(), cubics.as_slice())
            else {
                continue;
            };
            let cubic = |share: &f64| shown(path.has_cubic.then_some(*share), percent);
            let (lying, lying_cubic) = (altered[0], altered_cubics[0]);
            let case = format!("{name}, {}", kind.name());
            let mut row = cells![case, percent(*honest), percent(*unclassified)];
            row.extend(altered.iter().map(|share| format!("{:.2}", share / honest)));
            row.push(format!("{:.2}", lying / unclassified));
            row.push(cubic(honest_cubic));
            row.extend(altered_cubics.iter().map(cubic));
            table.push(row);
            let mut number = json!({
                "path": name, "controller": kind.name(), "honest_share": honest, "lying_share": lying,
                "unclassified_share": unclassified, "gain_of_none": lying / unclassified,
                "cubic_share": honest_cubic, "cubic_share_beside_liar": lying_cubic,
            });
            for ((report, key), share) in REPORTS.into_iter().zip(altered) {
                number[key] = json!(share / honest);
                gains.push((format!("{report}: {case}"), share / honest));
            }
            numbers.push(number);
        }
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms, a queue of one product. The receiver claims that its host lost what the network lost, and that it reads 10 Gbit/s \
         (claims); it also reports that no queue stood (claims, no queue); it only reports that (no queue); or it is honest, but has neither a counter nor \
         delays (no delays). % of the bottleneck, {} s after {START_S} s of start. {}",
        setting.seconds,
        worst(&gains)
    );
    Ok(Section::new("A receiver that lies", &legend, &table, numbers))
}

/// Sentence with the largest gain, and whether the floor is met.
fn worst(gains: &[(String, f64)]) -> String {
    let Some((case, gain)) = gains.iter().max_by(|(_, a), (_, b)| a.total_cmp(b)) else {
        return String::new();
    };
    let is_met = if *gain <= GAIN_MAX { "met" } else { "MISSED" };
    format!("Lying gains {gain:.2} × at most ({case}); floor: {GAIN_MAX}, {is_met}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_feedback_raises_the_rate_by_at_most_a_tenth() {
        let setting = Setting { seconds: 4, seed: 3 };
        let table = of(&[ControllerKind::Model, ControllerKind::HighSpeed], setting).unwrap();
        assert_eq!(table.rows.len(), 6);
        for row in &table.rows {
            for (_, gain) in REPORTS {
                let gain = row[gain].as_f64().unwrap();
                assert!((0.5..=1.1).contains(&gain), "{}", table.text);
            }
        }
    }

    #[test]
    fn the_largest_gain_decides_whether_the_floor_is_met() {
        let gains = [("a".to_owned(), 0.9), ("b".to_owned(), 1.25), ("c".to_owned(), 1.0)];
        assert_eq!(worst(&gains), "Lying gains 1.25 × at most (b); floor: 1.1, MISSED.");
        assert!(worst(&gains[..1]).ends_with("met."));
    }
}
