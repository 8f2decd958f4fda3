//! Holds packets while the receiver's host is expected to stall (Dickens §8): with a predictor, and
//! with full knowledge of the stalls.

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::contention::{BUFFERS, MBIT_S, RTT_MS, paths};
use super::host::{Busy, Hold};
use super::run::{Case, Ours, SimPath, all};
use super::{START_S, Setting};
use crate::evidence::LossEvidence;
use crate::output::name;
use crate::table::{Section, Table, cells, percent};

/// `fixed` without loss attribution sends at 95 % of the path whatever is lost, so it shows only
/// the effect of holding.
const KINDS: [(ControllerKind, LossEvidence); 3] = [
    (ControllerKind::Fixed, LossEvidence::None),
    (ControllerKind::Model, LossEvidence::Counter),
    (ControllerKind::HighSpeed, LossEvidence::Counter),
];

pub(crate) fn table(setting: Setting) -> anyhow::Result<Section> {
    let seconds = START_S + setting.seconds;
    let (mut cases, mut names) = (Vec::new(), Vec::new());
    for (plain, busy, buffer, drains) in paths(&[Busy::Quota, Busy::Generator], &BUFFERS, 0.0, setting) {
        for (kind, evidence) in KINDS {
            names.push((busy, buffer, kind, drains));
            cases.extend(Hold::ALL.map(|hold| Case {
                path: SimPath { hold, ..plain.clone() },
                flows: vec![Ours { evidence, ..Ours::new(kind) }],
                seconds,
            }));
        }
    }
    let runs = all("stalls", &cases)?;
    let (mut table, mut numbers) = (
        Table::new(["host, buffer", "could drain", "controller", "never held", "predicted", "known"]),
        Vec::new(),
    );
    for ((busy, buffer, kind, drains), runs) in names.iter().zip(runs.chunks(Hold::ALL.len())) {
        let mut row = cells![
            format!("{}, {} kB", name(*busy), buffer / 1000),
            format!("{:.0}", drains / 125_000.0),
            kind.name(),
        ];
        for (run, hold) in runs.iter().zip(Hold::ALL) {
            let goodput = run.bytes_s(0, START_S, seconds);
            let dropped = run.dropped(0, START_S, seconds);
            row.push(format!("{:.1} / {}", goodput / 125_000.0, percent(dropped)));
            numbers.push(json!({
                "host": name(*busy), "buffer_bytes": buffer, "controller": kind.name(), "hold": name(hold),
                "mbit_s": goodput / 125_000.0, "could_drain_mbit_s": drains / 125_000.0, "thrown_away": dropped,
            }));
        }
        table.push(row);
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms, hosts as in `contention`. Packets are held never, while a stall is predicted, or during all stalls, which \
         are then known. Goodput (Mbit/s) / % of the packets sent that the host dropped; {} s after {START_S} s of start.",
        setting.seconds
    );
    Ok(Section::new("Holding packets while the host stalls", &legend, &table, numbers))
}
