//! One flow alone on a path that loses packets at random.

use barograph_transfer::testkit::controller::{ControllerKind, ResponseFunction};
use serde_json::json;

use super::run::{Case, Ours, PACKET, RunSamples, SimPath, all};
use super::{START_S, Setting};
use crate::stats::{mean, range};
use crate::table::{Section, Table, bold, cells, percent};

/// Rates (Mbit/s) and round trips (ms).
const PATHS: [(u64, u64); 9] =
    [(100, 1), (100, 10), (100, 50), (100, 100), (300, 1), (300, 10), (300, 50), (300, 100), (1000, 1)];

const LOSSES: [f64; 4] = [0.0, 1e-4, 1e-3, 1e-2];

/// At 1 Gbit/s runs take a third of the time: more packets are sent in it than on any other path.
const LARGE_MBIT_S: u64 = 1000;

pub(crate) fn table(setting: Setting) -> anyhow::Result<Section> {
    let paths: Vec<SimPath> = PATHS
        .iter()
        .flat_map(|&(mbit_s, rtt_ms)| {
            LOSSES.map(|loss| SimPath { loss, ..SimPath::new(mbit_s, rtt_ms, setting.seed) })
        })
        .collect();
    over(&paths, setting)
}

fn over(paths: &[SimPath], setting: Setting) -> anyhow::Result<Section> {
    let cases: Vec<Case> = paths.iter().flat_map(|path| cases(path, setting.seconds)).collect();
    let runs = all("throughput", &cases)?;
    let per_path = ControllerKind::ALL.len() + 1;
    let (mut table, mut numbers) = (
        Table::new(["Mbit/s, round trip, random loss"])
            .and(ControllerKind::ALL.map(ControllerKind::name))
            .and(["cubic (RFC 9438)", "highspeed's equation"]),
        Vec::new(),
    );
    let mut shares = vec![Vec::new(); per_path];
    for ((path, runs), cases) in paths.iter().zip(runs.chunks(per_path)).zip(cases.chunks(per_path)) {
        let equation = equation(path);
        let mut row = vec![format!("{}, {} ms, {} %", path.mbit_s, path.rtt_ms, 100.0 * path.loss)];
        for (number, (run, case)) in runs.iter().zip(cases).enumerate() {
            let found = ThroughputCell::new(run, case, number);
            shares[number].push(found.share);
            row.push(format!("{} / {} / {:.1}", percent(found.share), percent(found.lost), found.queue_ms));
            numbers.push(json!({
                "mbit_s": path.mbit_s, "rtt_ms": path.rtt_ms, "loss": path.loss,
                "controller": ControllerKind::ALL.get(number).map_or("cubic", |kind| kind.name()),
                "share": found.share, "lost": found.lost, "queue_ms": found.queue_ms,
                "highspeed_equation_share": equation,
            }));
        }
        row.push(percent(equation));
        table.push(row);
    }
    let mut last = cells!["**share: mean; least**"];
    last.extend(shares.iter().map(|shares| {
        let least = range(shares.iter().copied()).0;
        bold(&format!("{}; {}", percent(mean(shares)), percent(least)))
    }));
    table.push(last);
    let legend = format!(
        "% of the bottleneck that came and was new / % of packets lost / mean wait in the queue (ms). A queue of one product, at least 32 packets; \
         {} s after {START_S} s of start, a third of that at 1 Gbit/s. `fixed` sends 95 % of the bottleneck, and the paper's begin with that.",
        setting.seconds
    );
    Ok(Section::new("Throughput of one flow alone", &legend, &table, numbers))
}

fn cases(path: &SimPath, seconds: u64) -> Vec<Case> {
    let seconds = START_S + if path.mbit_s < LARGE_MBIT_S { seconds } else { seconds.div_ceil(3) };
    let ours =
        ControllerKind::ALL.map(|kind| Case { path: path.clone(), flows: vec![Ours::new(kind)], seconds });
    let cubic = Case { path: SimPath { has_cubic: true, ..path.clone() }, flows: Vec::new(), seconds };
    ours.into_iter().chain([cubic]).collect()
}

struct ThroughputCell {
    share: f64,
    lost: f64,
    queue_ms: f64,
}

impl ThroughputCell {
    fn new(run: &RunSamples, case: &Case, number: usize) -> Self {
        let (from, to) = (START_S, case.seconds);
        let (bytes_s, lost) = if number < ControllerKind::ALL.len() {
            (run.bytes_s(0, from, to), run.lost(0, from, to))
        } else {
            run.cubic(from, to)
        };
        Self { share: bytes_s / case.path.bytes_s(), lost, queue_ms: run.queue_ms(from, to) }
    }
}

/// Share of the bottleneck that RFC 3649's response function gives at the path's loss, if each loss
/// were its own event and no packet had to wait.
fn equation(path: &SimPath) -> f64 {
    let window = ResponseFunction::HighSpeed.window(path.loss);
    (window * f64::from(PACKET) / (path.rtt_ms as f64 / 1e3) / path.bytes_s()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_keeps_its_rate_under_losses_that_slow_equations_and_cubic() {
        let path = SimPath { loss: 1e-3, ..SimPath::new(30, 100, 3) };
        let table = over(&[path], Setting { seconds: 8, seed: 3 }).unwrap();
        let share = |name: &str| {
            table.rows.iter().find(|row| row["controller"] == name).unwrap()["share"].as_f64().unwrap()
        };
        assert!(share("model") > 0.85, "{}", table.text);
        assert!(share("model") > 3.0 * share("cubic"), "{}", table.text);
        assert!((0.9..=0.97).contains(&share("fixed")), "{}", table.text);
        assert!(share("highspeed") < 0.4, "{}", table.text);
        // 38 packets in 100 ms.
        let equation = table.rows[0]["highspeed_equation_share"].as_f64().unwrap();
        assert!((equation - 0.152).abs() < 0.002, "{equation}");
    }

    #[test]
    fn the_same_seed_gives_the_same_table() {
        let rows = |seed| {
            let path = SimPath { loss: 1e-2, ..SimPath::new(10, 10, seed) };
            over(&[path], Setting { seconds: 4, seed }).unwrap().rows
        };
        assert_eq!(rows(3), rows(3));
        assert_ne!(rows(3), rows(4));
    }
}
