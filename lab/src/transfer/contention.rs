//! Transfers to a host that does not always read.

use std::time::Duration;

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::host::{Busy, Host};
use super::run::{Case, Ours, PACKET, SimPath, all};
use super::{START_S, Setting};
use crate::evidence::LossEvidence;
use crate::output::name;
use crate::table::{Section, Table, cells, factor, percent};

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

/// Controllers of quick runs: those with floors.
const QUICK_KINDS: [ControllerKind; 3] =
    [ControllerKind::HighSpeed, ControllerKind::Tfrc, ControllerKind::Paper];

/// Quick tables have only the controllers with floors, and no random loss.
pub(crate) fn table(setting: Setting, is_quick: bool) -> anyhow::Result<Section> {
    let (kinds, losses): (&[ControllerKind], &[f64]) =
        if is_quick { (&QUICK_KINDS, &[0.0]) } else { (&KINDS, &[0.0, LOSS]) };
    of(&[Busy::Quota, Busy::Generator], &BUFFERS, losses, kinds, setting)
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
        let path = busy_path(busy, buffer, loss, setting.seed, to);
        let drains =
            path.host.as_ref().map_or(0.0, |host| host.drains_bytes_s(path.bytes_s(), PACKET, from, to));
        (path, busy, buffer, drains)
    };
    all.map(path).collect()
}

/// Path to a host with this load and buffer (bytes), which stalls until `to`.
pub(super) fn busy_path(busy: Busy, buffer: u64, loss: f64, seed: u64, to: Duration) -> SimPath {
    let host = Host::new(busy, READS_MBIT_S, buffer, seed, to);
    SimPath { loss, host: Some(host), ..SimPath::new(MBIT_S, RTT_MS, seed) }
}

fn of(
    busy: &[Busy],
    buffers: &[u64],
    losses: &[f64],
    kinds: &[ControllerKind],
    setting: Setting,
) -> anyhow::Result<Section> {
    let seconds = START_S + setting.seconds;
    let paths: Vec<_> = losses.iter().flat_map(|loss| paths(busy, buffers, *loss, setting)).collect();
    let flows = |kind: ControllerKind| LossEvidence::ALL.map(|evidence| Ours { evidence, ..Ours::new(kind) });
    let cases: Vec<Case> = paths
        .iter()
        .flat_map(|(path, ..)| kinds.iter().flat_map(|kind| flows(*kind)).map(move |flow| (path, flow)))
        .map(|(path, flow)| Case { path: path.clone(), flows: vec![flow], seconds })
        .collect();
    let runs = all("contention", &cases)?;
    let (mut table, mut numbers, mut found) = (
        Table::titled(
            "host, buffer, random loss | could drain | controller | loss attribution with kernel's count | \
             loss attribution, pattern only | pattern ÷ none | % of count's | no loss attribution",
        ),
        Vec::new(),
        Vec::new(),
    );
    let evidence = LossEvidence::ALL;
    let per_path = kinds.len() * evidence.len();
    for ((path, busy, buffer, drains), runs) in paths.iter().zip(runs.chunks(per_path)) {
        for (kind, runs) in kinds.iter().zip(runs.chunks(evidence.len())) {
            let [counter, pattern, none] = runs else { continue };
            let goodputs = [counter, pattern, none].map(|run| run.bytes_s(0, START_S, seconds));
            let dropped = [counter, pattern, none].map(|run| run.dropped(0, START_S, seconds));
            let [with_count, by_pattern, without] = [0, 1, 2].map(|at: usize| {
                let (goodput, dropped) = (goodputs[at], dropped[at]);
                format!("{:.1} = {} / {}", goodput / 125_000.0, percent(goodput / drains), percent(dropped))
            });
            let goodputs = Goodputs { kind: *kind, loss: path.loss, bytes_s: goodputs };
            table.push(cells![
                format!("{}, {} kB, {} %", name(*busy), buffer / 1000, 100.0 * path.loss),
                format!("{:.0}", drains / 125_000.0),
                kind.name(),
                with_count,
                by_pattern,
                factor(goodputs.of_none(LossEvidence::Pattern)),
                percent(goodputs.of_counter()),
                without,
            ]);
            for ((evidence, goodput), dropped) in evidence.iter().zip(goodputs.bytes_s).zip(dropped) {
                numbers.push(json!({
                    "host": name(*busy), "buffer_bytes": buffer, "loss": path.loss, "controller": kind.name(),
                    "evidence": evidence.name(), "has_ear": evidence.is_classified(), "has_count": evidence.has_counter(),
                    "mbit_s": goodput / 125_000.0, "could_drain_mbit_s": drains / 125_000.0,
                    "of_drained": goodput / drains, "thrown_away": dropped,
                }));
            }
            found.push(goodputs);
        }
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms; a host that reads {READS_MBIT_S} Mbit/s while it runs, and drops what its socket buffer has no room for. \
         quota: it runs 25 of 100 ms; generator: the paper's, its times divided by 50. Goodput (Mbit/s) = % of what the host could drain / % of the \
         packets sent that the host dropped; {} s after {START_S} s of start. Could drain: its rate when the path is always full. Pattern only: the \
         receiver has no counter. % of count's: the goodput by the pattern, of that with the kernel's count.",
        setting.seconds
    );
    let section = Section::new("A busy host", &legend, &table, numbers);
    Ok(section.with(&floors(&found)))
}

/// Goodputs (bytes a second) of a controller at one host, in the order of [`LossEvidence::ALL`].
#[derive(Clone, Copy, Debug)]
struct Goodputs {
    kind: ControllerKind,
    loss: f64,
    bytes_s: [f64; 3],
}

impl Goodputs {
    /// As a multiple of the goodput without a classifier.
    fn of_none(&self, evidence: LossEvidence) -> f64 {
        let [counter, pattern, none] = self.bytes_s;
        match evidence {
            LossEvidence::Counter => counter / none,
            LossEvidence::Pattern => pattern / none,
            LossEvidence::None => 1.0,
        }
    }

    /// Goodput by the pattern as a share of that with the counter.
    fn of_counter(&self) -> f64 {
        let [counter, pattern, _] = self.bytes_s;
        pattern / counter
    }
}

/// Lines with the floors of the classifier without a counter, where only the host loses packets.
fn floors(found: &[Goodputs]) -> Vec<String> {
    let of = |kind: ControllerKind| -> Vec<&Goodputs> {
        found.iter().filter(|goodputs| goodputs.kind == kind && goodputs.loss == 0.0).collect()
    };
    let mut lines = Vec::new();
    let paper = of(ControllerKind::Paper);
    if !paper.is_empty() {
        let reach = |(gain, share): (f64, f64)| {
            let is_reached =
                |of: &&&Goodputs| gain <= of.of_none(LossEvidence::Pattern) && share <= of.of_counter();
            paper.iter().filter(is_reached).count()
        };
        let (floor, goal) = (reach(PAPER_FLOOR), reach(PAPER_GOAL));
        let counters = paper.iter().filter(|of| PAPER_FLOOR.0 <= of.of_none(LossEvidence::Counter)).count();
        lines.push(format!(
            "- `paper`, pattern only, at least {} × none and {} % of the count's: {floor} of {} hosts, floor {PAPER_HOSTS}, {}; \
             goal {} × and {} % on all: {goal}. With the kernel's count it gains {} × on {counters}.\n",
            PAPER_FLOOR.0,
            100.0 * PAPER_FLOOR.1,
            paper.len(),
            met(PAPER_HOSTS <= floor),
            PAPER_GOAL.0,
            100.0 * PAPER_GOAL.1,
            PAPER_FLOOR.0,
        ));
    }
    for kind in [ControllerKind::HighSpeed, ControllerKind::Tfrc] {
        let kind_rows = of(kind);
        let harmed: Vec<_> =
            kind_rows.iter().filter(|of| EQUATION_FLOOR <= of.of_none(LossEvidence::Counter)).collect();
        if kind_rows.is_empty() {
            continue;
        }
        let saved = harmed.iter().filter(|of| EQUATION_FLOOR <= of.of_none(LossEvidence::Pattern)).count();
        lines.push(format!(
            "- `{kind}`, pattern only, at least {EQUATION_FLOOR} × none where the kernel's count gains that: {saved} of {} hosts, {}.\n",
            harmed.len(),
            met(saved == harmed.len()),
        ));
    }
    lines
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

/// Floor and goal of `paper` by the pattern alone: its gain over no classifier, and its share of
/// the goodput with the counter.
const PAPER_FLOOR: (f64, f64) = (25.0, 0.5);
const PAPER_GOAL: (f64, f64) = (100.0, 0.8);
/// Number of the four hosts on which `paper` must reach its floor.
const PAPER_HOSTS: usize = 3;
/// Floor of the equations: gain over no classifier.
const EQUATION_FLOOR: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_attribution_prevents_the_collapse_of_equation_based_rates() {
        let kinds = [ControllerKind::HighSpeed, ControllerKind::Paper];
        let setting = Setting { seconds: 4, seed: 3 };
        let table = of(&[Busy::Generator], &BUFFERS[1..], &[0.0, LOSS], &kinds, setting).unwrap();
        let drained = |controller: &str, loss: f64, evidence: LossEvidence| {
            let row = table.rows.iter().find(|row| {
                row["controller"] == controller && row["loss"] == loss && row["evidence"] == evidence.name()
            });
            row.unwrap()["of_drained"].as_f64().unwrap()
        };
        assert!(drained("highspeed", 0.0, LossEvidence::Counter) > 0.75, "{}", table.text);
        assert!(
            drained("highspeed", 0.0, LossEvidence::Counter)
                > 1.2 * drained("highspeed", 0.0, LossEvidence::None),
            "{}",
            table.text
        );
        assert!(
            drained("paper", 0.0, LossEvidence::Counter) > 5.0 * drained("paper", 0.0, LossEvidence::None),
            "{}",
            table.text
        );
        // The network's losses still count as congestion.
        assert!(
            drained("highspeed", LOSS, LossEvidence::Counter)
                < drained("highspeed", 0.0, LossEvidence::Counter),
            "{}",
            table.text
        );
        // Each row names its evidence twice: for readers, and as earlier versions did.
        for row in &table.rows {
            let named = (row["has_ear"].as_bool(), row["has_count"].as_bool());
            let evidence = match named {
                (Some(true), Some(true)) => "counter",
                (Some(true), Some(false)) => "pattern",
                (Some(false), Some(false)) => "none",
                _ => panic!("{row}"),
            };
            assert_eq!(row["evidence"], evidence, "{row}");
        }
    }

    #[test]
    fn floors_count_hosts_where_only_the_host_loses() {
        let of = |kind, loss, bytes_s| Goodputs { kind, loss, bytes_s };
        let found = [
            of(ControllerKind::Paper, 0.0, [200.0, 190.0, 1.0]),
            of(ControllerKind::Paper, 0.0, [30.0, 29.0, 1.0]),
            of(ControllerKind::Paper, 0.0, [30.0, 20.0, 1.0]),
            of(ControllerKind::Paper, 1e-3, [200.0, 190.0, 1.0]),
            of(ControllerKind::HighSpeed, 0.0, [12.0, 2.0, 1.0]),
            of(ControllerKind::HighSpeed, 0.0, [2.0, 2.0, 1.0]),
        ];
        let lines = floors(&found);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("2 of 3 hosts, floor 3, MISSED") && lines[0].contains("on all: 1."),
            "{lines:?}"
        );
        assert!(lines[0].contains("gains 25 × on 3."), "{lines:?}");
        assert!(lines[1].contains("0 of 1 hosts, MISSED"), "{lines:?}");
        assert!(floors(&[]).is_empty());
    }
}
