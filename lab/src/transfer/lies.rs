//! Transfers to a receiver that attributes all losses of the network to its host.

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::run::{Case, Ours, SimPath, all};
use super::{START_S, Setting};
use crate::evidence::LossEvidence;
use crate::table::{Section, Table, cells, percent, shown};

const MBIT_S: u64 = 100;
const RTT_MS: u64 = 20;

/// What the receiver reports, and whether the sender classifies losses.
const CASES: [(bool, LossEvidence); 3] =
    [(false, LossEvidence::Counter), (true, LossEvidence::Counter), (false, LossEvidence::None)];

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
            CASES.map(|(lies, evidence)| (path, Ours { lies, evidence, ..Ours::new(kind) }))
        })
        .map(|(path, flow)| Case { path: path.clone(), flows: vec![flow], seconds })
        .collect();
    let runs = all("lies", &cases)?;
    let (mut table, mut numbers, mut gains) = (
        Table::titled(
            "path, controller | honest | lying | no classifier | lying ÷ honest | lying ÷ no classifier | \
             cubic beside the honest | beside the liar",
        ),
        Vec::new(),
        Vec::new(),
    );
    for ((name, path), runs) in paths.iter().zip(runs.chunks(CASES.len() * kinds.len())) {
        for (kind, runs) in kinds.iter().zip(runs.chunks(CASES.len())) {
            let [honest, lying, unclassified] = runs else { continue };
            let [honest_share, lying_share, unclassified_share] =
                [honest, lying, unclassified].map(|run| run.bytes_s(0, START_S, seconds) / path.bytes_s());
            let [honest_cubic, lying_cubic] =
                [honest, lying].map(|run| run.cubic(START_S, seconds).0 / path.bytes_s());
            let cubic = |share: f64| shown(path.has_cubic.then_some(share), percent);
            let (gain, of_none) = (lying_share / honest_share, lying_share / unclassified_share);
            let case = format!("{name}, {}", kind.name());
            table.push(cells![
                case,
                percent(honest_share),
                percent(lying_share),
                percent(unclassified_share),
                format!("{gain:.2}"),
                format!("{of_none:.2}"),
                cubic(honest_cubic),
                cubic(lying_cubic),
            ]);
            numbers.push(json!({
                "path": name, "controller": kind.name(), "honest_share": honest_share, "lying_share": lying_share,
                "unclassified_share": unclassified_share, "gain": gain, "gain_of_none": of_none,
                "cubic_share": honest_cubic, "cubic_share_beside_liar": lying_cubic,
            }));
            gains.push((case, gain));
        }
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms, a queue of one product. The receiver claims that its host lost what the network lost, and that it reads 10 Gbit/s. \
         % of the bottleneck, {} s after {START_S} s of start. {}",
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
            let gain = row["gain"].as_f64().unwrap();
            assert!((0.5..=1.1).contains(&gain), "{}", table.text);
        }
    }

    #[test]
    fn the_largest_gain_decides_whether_the_floor_is_met() {
        let gains = [("a".to_owned(), 0.9), ("b".to_owned(), 1.25), ("c".to_owned(), 1.0)];
        assert_eq!(worst(&gains), "Lying gains 1.25 × at most (b); floor: 1.1, MISSED.");
        assert!(worst(&gains[..1]).ends_with("met."));
    }
}
