//! Transfers to a receiver that attributes all losses of the network to its host.

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::run::{Case, Ours, SimPath, all};
use super::{START_S, Setting};
use crate::table::{Section, Table, cells, percent, shown};

const MBIT_S: u64 = 100;
const RTT_MS: u64 = 20;

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
        .flat_map(|(path, kind)| [false, true].map(|lies| (path, Ours { lies, ..Ours::new(kind) })))
        .map(|(path, flow)| Case { path: path.clone(), flows: vec![flow], seconds })
        .collect();
    let runs = all("lies", &cases)?;
    let (mut table, mut numbers) = (
        Table::titled(
            "path, controller | honest | lying | lying ÷ honest | cubic beside the honest | \
             beside the liar",
        ),
        Vec::new(),
    );
    for ((name, path), runs) in paths.iter().zip(runs.chunks(2 * kinds.len())) {
        for (kind, runs) in kinds.iter().zip(runs.chunks(2)) {
            let [honest, lying] = runs else { continue };
            let [honest_share, lying_share] =
                [honest, lying].map(|run| run.bytes_s(0, START_S, seconds) / path.bytes_s());
            let [honest_cubic, lying_cubic] =
                [honest, lying].map(|run| run.cubic(START_S, seconds).0 / path.bytes_s());
            let cubic = |share: f64| shown(path.has_cubic.then_some(share), percent);
            table.push(cells![
                format!("{name}, {}", kind.name()),
                percent(honest_share),
                percent(lying_share),
                format!("{:.2}", lying_share / honest_share),
                cubic(honest_cubic),
                cubic(lying_cubic),
            ]);
            numbers.push(json!({
                "path": name, "controller": kind.name(), "honest_share": honest_share, "lying_share": lying_share,
                "gain": lying_share / honest_share, "cubic_share": honest_cubic, "cubic_share_beside_liar": lying_cubic,
            }));
        }
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms, a queue of one product. The receiver claims that its host lost what the network lost, and that it reads 10 Gbit/s. \
         % of the bottleneck, {} s after {START_S} s of start.",
        setting.seconds
    );
    Ok(Section::new("A receiver that lies", &legend, &table, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_feedback_raises_the_rate_by_at_most_a_tenth() {
        let table =
            of(&[ControllerKind::Model, ControllerKind::HighSpeed], Setting { seconds: 4, seed: 3 }).unwrap();
        for row in &table.rows {
            let gain = row["gain"].as_f64().unwrap();
            assert!((0.5..=1.1).contains(&gain), "{}", table.text);
        }
    }
}
