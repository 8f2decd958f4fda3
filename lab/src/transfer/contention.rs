//! Transfers to a host that does not always read.

use std::time::Duration;

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::host::{Busy, Host};
use super::run::{Case, Ours, PACKET, SimPath, all};
use super::{START_S, Setting};
use crate::output::name;
use crate::table::{Section, Table, cells, percent};

pub(super) const MBIT_S: u64 = 300;
pub(super) const RTT_MS: u64 = 20;

/// Rate at which the host reads while it runs: twice the rate of arrivals.
const READS_MBIT_S: u64 = 600;

/// Socket buffers (bytes): what a privileged program requests, and Linux's default.
pub(super) const BUFFERS: [u64; 2] = [4_000_000, 212_000];

/// Random loss of the network in the runs with both causes.
const LOSS: f64 = 1e-3;

/// `fixed` does not use the attribution, because its rate is given. The paper's other mode behaves
/// like `paper` and is left out.
const KINDS: [ControllerKind; 6] = [
    ControllerKind::Model,
    ControllerKind::HighSpeed,
    ControllerKind::Tfrc,
    ControllerKind::Scalable,
    ControllerKind::Fixed,
    ControllerKind::Paper,
];

/// Attribution of the losses of a flow to the host or the network.
#[derive(Clone, Copy)]
struct Attribution {
    /// Whether losses are classified by cause.
    classify_losses: bool,
    /// Whether the classifier has the kernel's drop counter.
    has_kernel_counter: bool,
}

/// The attributions that the study compares.
const ATTRIBUTIONS: [Attribution; 3] = [
    Attribution { classify_losses: true, has_kernel_counter: true },
    Attribution { classify_losses: true, has_kernel_counter: false },
    Attribution { classify_losses: false, has_kernel_counter: false },
];

pub(crate) fn table(setting: Setting) -> anyhow::Result<Section> {
    of(&[Busy::Quota, Busy::Generator], &BUFFERS, &KINDS, setting)
}

/// Paths to hosts with these loads and buffers, each with its load, its buffer, and the rate that
/// the host could drain (bytes a second).
pub(super) fn paths(
    busy: &[Busy],
    buffers: &[u64],
    loss: f64,
    setting: Setting,
) -> Vec<(SimPath, Busy, u64, f64)> {
    let [from, to] = [START_S, START_S + setting.seconds].map(Duration::from_secs);
    let all = busy.iter().flat_map(|busy| buffers.iter().map(|buffer| (*busy, *buffer)));
    let path = |(busy, buffer)| {
        let host = Host::new(busy, READS_MBIT_S, buffer, setting.seed, to);
        let path = SimPath { loss, host: Some(host.clone()), ..SimPath::new(MBIT_S, RTT_MS, setting.seed) };
        let drains = host.drains_bytes_s(path.bytes_s(), PACKET, from, to);
        (path, busy, buffer, drains)
    };
    all.map(path).collect()
}

fn of(busy: &[Busy], buffers: &[u64], kinds: &[ControllerKind], setting: Setting) -> anyhow::Result<Section> {
    let seconds = START_S + setting.seconds;
    let of_loss = |loss| paths(busy, buffers, loss, setting);
    let paths: Vec<_> = [0.0, LOSS].into_iter().flat_map(of_loss).collect();
    let flows = |kind: ControllerKind| {
        ATTRIBUTIONS.map(|Attribution { classify_losses, has_kernel_counter }| Ours {
            classify_losses,
            has_kernel_counter,
            ..Ours::new(kind)
        })
    };
    let cases: Vec<Case> = paths
        .iter()
        .flat_map(|(path, ..)| kinds.iter().flat_map(|kind| flows(*kind)).map(move |flow| (path, flow)))
        .map(|(path, flow)| Case { path: path.clone(), flows: vec![flow], seconds })
        .collect();
    let runs = all("contention", &cases)?;
    let (mut table, mut numbers) = (
        Table::titled(
            "host, buffer, random loss | could drain | controller | loss attribution with kernel's count | \
             loss attribution, pattern only | no loss attribution",
        ),
        Vec::new(),
    );
    let per_path = kinds.len() * ATTRIBUTIONS.len();
    for ((path, busy, buffer, drains), runs) in paths.iter().zip(runs.chunks(per_path)) {
        for (kind, runs) in kinds.iter().zip(runs.chunks(ATTRIBUTIONS.len())) {
            let mut row = cells![
                format!("{}, {} kB, {} %", name(*busy), buffer / 1000, 100.0 * path.loss),
                format!("{:.0}", drains / 125_000.0),
                kind.name(),
            ];
            for (run, attribution) in runs.iter().zip(ATTRIBUTIONS) {
                let Attribution { classify_losses, has_kernel_counter } = attribution;
                let goodput = run.bytes_s(0, START_S, seconds);
                let dropped = run.dropped(0, START_S, seconds);
                row.push(format!(
                    "{:.1} = {} / {}",
                    goodput / 125_000.0,
                    percent(goodput / drains),
                    percent(dropped)
                ));
                numbers.push(json!({
                    "host": name(*busy), "buffer_bytes": buffer, "loss": path.loss, "controller": kind.name(),
                    "has_ear": classify_losses, "has_count": has_kernel_counter, "mbit_s": goodput / 125_000.0,
                    "could_drain_mbit_s": drains / 125_000.0, "of_drained": goodput / drains, "thrown_away": dropped,
                }));
            }
            table.push(row);
        }
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms; a host that reads {READS_MBIT_S} Mbit/s while it runs, and drops what its socket buffer has no room for. \
         quota: it runs 25 of 100 ms; generator: the paper's, its times divided by 50. Goodput (Mbit/s) = % of what the host could drain / % of the \
         packets sent that the host dropped; {} s after {START_S} s of start. Could drain: its rate when the path is always full.",
        setting.seconds
    );
    Ok(Section::new("A busy host", &legend, &table, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_attribution_prevents_the_collapse_of_equation_based_rates() {
        let kinds = [ControllerKind::HighSpeed, ControllerKind::Paper];
        let table = of(&[Busy::Generator], &BUFFERS[1..], &kinds, Setting { seconds: 4, seed: 3 }).unwrap();
        let drained = |controller: &str, loss: f64, attribution: Attribution| {
            let row = table.rows.iter().find(|row| {
                row["controller"] == controller
                    && row["loss"] == loss
                    && row["has_ear"] == attribution.classify_losses
                    && row["has_count"] == attribution.has_kernel_counter
            });
            row.unwrap()["of_drained"].as_f64().unwrap()
        };
        assert!(drained("highspeed", 0.0, ATTRIBUTIONS[0]) > 0.75, "{}", table.text);
        assert!(
            drained("highspeed", 0.0, ATTRIBUTIONS[0]) > 1.2 * drained("highspeed", 0.0, ATTRIBUTIONS[2]),
            "{}",
            table.text
        );
        assert!(
            drained("paper", 0.0, ATTRIBUTIONS[0]) > 5.0 * drained("paper", 0.0, ATTRIBUTIONS[2]),
            "{}",
            table.text
        );
        // The network's losses still count as congestion.
        assert!(
            drained("highspeed", LOSS, ATTRIBUTIONS[0]) < drained("highspeed", 0.0, ATTRIBUTIONS[0]),
            "{}",
            table.text
        );
    }
}
