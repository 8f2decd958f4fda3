//! Transfers to a receiver that attributes all losses of the network to its host.

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::run::{Case, Lie, Ours, SimPath, all};
use super::{START_S, Setting};
use crate::evidence::LossEvidence;
use crate::table::{Section, Table, cells, percent, shown};

const MBIT_S: u64 = 100;
const RTT_MS: u64 = 20;

/// What the receiver reports, and whether the sender classifies losses.
const CASES: [(Option<Lie>, LossEvidence); 4] = [
    (None, LossEvidence::Counter),
    (Some(Lie::Hides), LossEvidence::Counter),
    (Some(Lie::Forges), LossEvidence::Counter),
    (None, LossEvidence::None),
];

/// Number of runs of each case, with seeds that follow each other. Beside a cubic flow, the share
/// in a single run varies by tens of percent also with the truth.
const RUNS: u64 = 5;

/// Floor: rate with lies, as a multiple of that with the truth.
const GAIN_MAX: f64 = 1.1;

pub(crate) fn table(setting: Setting) -> anyhow::Result<Section> {
    of(&ControllerKind::ALL, RUNS, setting)
}

/// Name and path of each comparison.
fn paths(seed: u64) -> [(&'static str, SimPath); 3] {
    let plain = SimPath::new(MBIT_S, RTT_MS, seed);
    [
        ("0.1 % random loss", SimPath { loss: 1e-3, ..plain.clone() }),
        ("1 % random loss", SimPath { loss: 1e-2, ..plain.clone() }),
        ("beside a cubic flow", SimPath { has_cubic: true, ..plain }),
    ]
}

fn of(kinds: &[ControllerKind], runs: u64, setting: Setting) -> anyhow::Result<Section> {
    let seconds = START_S + setting.seconds;
    let mut rows: Vec<Row> = Vec::new();
    for run in 0..runs {
        let paths = paths(setting.seed + run);
        let cells: Vec<_> = paths
            .iter()
            .flat_map(|(name, path)| kinds.iter().map(move |kind| (*name, path, *kind)))
            .collect();
        let flow = |kind, (lie, evidence)| Ours { lie, evidence, ..Ours::new(kind) };
        let cases = cells.iter().flat_map(|(_, path, kind)| {
            CASES.map(|case| Case { path: (*path).clone(), flows: vec![flow(*kind, case)], seconds })
        });
        let results = all("lies", &cases.collect::<Vec<_>>())?;
        for (at, ((path, sim, kind), results)) in cells.iter().zip(results.chunks(CASES.len())).enumerate() {
            if run == 0 {
                rows.push(Row {
                    path,
                    kind: *kind,
                    has_cubic: sim.has_cubic,
                    shares: [0.0; 4],
                    cubic: [0.0; 4],
                });
            }
            let Some(row) = rows.get_mut(at) else { continue };
            for ((share, cubic), result) in row.shares.iter_mut().zip(&mut row.cubic).zip(results) {
                let of_path = sim.bytes_s() * runs as f64;
                *share += result.bytes_s(0, START_S, seconds) / of_path;
                *cubic += result.cubic(START_S, seconds).0 / of_path;
            }
        }
    }
    Ok(section(&rows, runs, setting))
}

/// Shares of the bottleneck in the cases, mean of all runs: ours, and a cubic flow's beside it.
struct Row {
    path: &'static str,
    kind: ControllerKind,
    has_cubic: bool,
    shares: [f64; 4],
    cubic: [f64; 4],
}

fn section(rows: &[Row], runs: u64, setting: Setting) -> Section {
    let (mut table, mut numbers, mut gains) = (
        Table::titled(
            "path, controller | honest | hides the delay | forges it | no classifier | hiding ÷ honest | forging ÷ honest | \
             cubic beside the honest | beside the forger",
        ),
        Vec::new(),
        Vec::new(),
    );
    for Row { path, kind, has_cubic, shares, cubic } in rows {
        let [honest, hiding, forging, unclassified] = *shares;
        let [honest_cubic, hiding_cubic, forging_cubic, _] = *cubic;
        let (gain, forging_gain) = (hiding / honest, forging / honest);
        let case = format!("{path}, {}", kind.name());
        let beside = |share: f64| shown(has_cubic.then_some(share), percent);
        table.push(cells![
            case,
            percent(honest),
            percent(hiding),
            percent(forging),
            percent(unclassified),
            format!("{gain:.2}"),
            format!("{forging_gain:.2}"),
            beside(honest_cubic),
            beside(forging_cubic),
        ]);
        numbers.push(json!({
            "path": path, "controller": kind.name(), "runs": runs, "honest_share": honest, "lying_share": hiding,
            "forging_share": forging, "unclassified_share": unclassified, "gain": gain, "forging_gain": forging_gain,
            "gain_of_none": hiding / unclassified, "cubic_share": honest_cubic, "cubic_share_beside_liar": hiding_cubic,
            "cubic_share_beside_forger": forging_cubic,
        }));
        gains.push((case, gain.max(forging_gain)));
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms, a queue of one product. The receiver claims that its host lost what the network lost, and that it reads 10 Gbit/s; \
         it hides the delay before each gap, or reports a delay of 0. % of the bottleneck, mean of {runs} seeds, {} s each after {START_S} s of start. {}",
        setting.seconds,
        worst(&gains)
    );
    Section::new("A receiver that lies", &legend, &table, numbers)
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
        let table = of(&[ControllerKind::Model, ControllerKind::HighSpeed], 1, setting).unwrap();
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
