//! Shares that a flow leaves to others: to a flow of RFC 9438, and to its own kind. Also what the
//! classifier changes in them.

use barograph_transfer::controller::ControllerKind;
use serde_json::{Value, json};

use super::Setting;
use super::run::{Case, Ours, RunSamples, SimPath, all};
use crate::evidence::LossEvidence;
use crate::stats::fair_from;
use crate::table::{Section, Table, cells, percent};

const MBIT_S: u64 = 100;

/// Length of these runs in runs of throughput: shares take a minute to settle at 100 ms.
const LONGER: u64 = 4;

/// Shares are taken after this part of a run: the first sixth is the start.
const SETTLED: u64 = 6;

/// Time between the starts of flows of one kind (s).
const APART_S: u64 = 2;
const FLOWS: u64 = 4;

/// Time over which Jain's index is taken (s).
const SPAN_S: u64 = 10;
const JAIN: f64 = 0.95;

pub(crate) fn table(setting: Setting) -> anyhow::Result<Section> {
    of(&ControllerKind::ALL, &[20, 100], setting)
}

fn of(kinds: &[ControllerKind], rtts_ms: &[u64], setting: Setting) -> anyhow::Result<Section> {
    let seconds = LONGER * setting.seconds;
    let places: Vec<(ControllerKind, SimPath)> = kinds
        .iter()
        .flat_map(|kind| {
            rtts_ms.iter().map(move |rtt_ms| (*kind, SimPath::new(MBIT_S, *rtt_ms, setting.seed)))
        })
        .collect();
    let cases: Vec<Case> = places
        .iter()
        .flat_map(|(kind, path)| LossEvidence::ALL.map(|evidence| (*kind, path, evidence)))
        .flat_map(|(kind, path, evidence)| {
            let ours = |start_s| Ours { start_s, evidence, ..Ours::new(kind) };
            let beside = SimPath { has_cubic: true, ..path.clone() };
            [
                Case { path: beside, flows: vec![ours(0)], seconds },
                Case {
                    path: path.clone(),
                    flows: (0..FLOWS).map(|flow| ours(APART_S * flow)).collect(),
                    seconds,
                },
            ]
        })
        .collect();
    let runs = all("fairness", &cases)?;
    let from = seconds / SETTLED;
    let (mut table, mut compared, mut numbers, mut found) = (
        Table::titled(
            "controller, round trip | ours beside cubic | cubic's | queue (ms) | four: fair from (s) | \
             Jain, 20–30 s | Jain, after the start | % of the bottleneck | queue (ms)",
        ),
        Table::titled(
            "controller, round trip | evidence | ours beside cubic | lost beside cubic | Jain, after the start | \
             lost by four",
        )
        .text_columns(2),
        Vec::new(),
        Vec::new(),
    );
    for ((kind, path), runs) in places.iter().zip(runs.chunks(2 * LossEvidence::ALL.len())) {
        let shares: Vec<Shares> =
            runs.chunks(2).filter_map(|pair| Shares::of(pair, path.bytes_s(), seconds)).collect();
        let [counter, pattern, none] = shares.as_slice() else { continue };
        let name = format!("{}, {} ms", kind.name(), path.rtt_ms);
        table.push(cells![
            name,
            format!("{:.2}", counter.ours),
            format!("{:.2}", counter.cubic),
            format!("{:.1}", counter.queue_ms),
            counter.fair_from_s.map_or_else(|| "never".to_owned(), |second| second.to_string()),
            format!("{:.3}", counter.jain_early),
            format!("{:.3}", counter.jain),
            percent(counter.all),
            format!("{:.1}", counter.queue_of_four_ms),
        ]);
        let mut row = json!({
            "controller": kind.name(), "rtt_ms": path.rtt_ms, "of_equal_share": counter.ours,
            "cubic_of_equal_share": counter.cubic, "queue_ms_beside_cubic": counter.queue_ms,
            "fair_from_s": counter.fair_from_s, "jain_20_to_30_s": counter.jain_early, "jain": counter.jain,
            "four_share": counter.all, "queue_ms_of_four": counter.queue_of_four_ms,
            "lost_beside_cubic": counter.lost, "lost_by_four": counter.lost_by_four,
        });
        for (key, shares) in [("counter_of_none", counter), ("pattern_of_none", pattern)] {
            let ratios = Ratios::of(shares, none);
            compared.push(ratios.cells(&name, key));
            row[key] = ratios.numbers();
            found.push((format!("{name}, {}", evidence_of(key)), ratios));
        }
        numbers.push(row);
    }
    let legend = format!(
        "At {MBIT_S} Mbit/s, a queue of one product. Beside one cubic flow from the same moment: what each gets of half the bottleneck from {from} to \
         {seconds} s. Four of a kind that start {APART_S} s apart: from when on Jain's index over {SPAN_S} s stays at {JAIN} or above (s after the first \
         starts; to {seconds} s), the index from 20 to 30 s and from {from} to {seconds} s, and what all four get of the bottleneck."
    );
    let below = format!(
        "With the classifier ÷ without it, where only the network loses packets: *counter*, the receiver has a drop counter, which stays at 0; *pattern*, it \
         has none. Lost: packets of all flows that the bottleneck lost. {}\n\n{compared}\n",
        worst(&found)
    );
    Ok(Section::new("Fairness", &legend, &table, numbers).with(&[below, floor(&found)]))
}

/// What a controller with one kind of evidence leaves to others.
#[derive(Clone, Debug)]
struct Shares {
    /// Rate beside cubic, and that of cubic, of half the bottleneck.
    ours: f64,
    cubic: f64,
    /// Mean wait in the queue beside cubic (ms), and share of the packets that were lost there.
    queue_ms: f64,
    lost: f64,
    /// Second from which four of a kind are fair; `None` if they never are.
    fair_from_s: Option<u64>,
    /// Jain's index of four from 20 to 30 s, and after the start.
    jain_early: f64,
    jain: f64,
    /// Rate of all four, of the bottleneck.
    all: f64,
    queue_of_four_ms: f64,
    lost_by_four: f64,
}

impl Shares {
    /// Reads a run beside cubic and a run of four, of `seconds` each; `None` if one is missing.
    fn of(runs: &[RunSamples], path_bytes_s: f64, seconds: u64) -> Option<Self> {
        let [beside, four] = runs else { return None };
        let (from, half) = (seconds / SETTLED, path_bytes_s / 2.0);
        let last_start = APART_S * (FLOWS - 1);
        let is_fair = |second| four.jain(second, second + SPAN_S) >= JAIN;
        let all: f64 = (0..FLOWS as usize).map(|flow| four.bytes_s(flow, from, seconds)).sum();
        Some(Self {
            ours: beside.bytes_s(0, from, seconds) / half,
            cubic: beside.cubic(from, seconds).0 / half,
            queue_ms: beside.queue_ms(from, seconds),
            lost: beside.bottleneck_loss(from, seconds),
            fair_from_s: fair_from(last_start, seconds - SPAN_S, is_fair),
            jain_early: four.jain(20.min(seconds - SPAN_S), 30.min(seconds)),
            jain: four.jain(from, seconds),
            all: all / path_bytes_s,
            queue_of_four_ms: four.queue_ms(from, seconds),
            lost_by_four: four.bottleneck_loss(from, seconds),
        })
    }
}

/// Shares with a classifier, each divided by that without one.
#[derive(Clone, Copy, Debug)]
struct Ratios {
    share: f64,
    lost: f64,
    jain: f64,
    lost_by_four: f64,
}

impl Ratios {
    fn of(with: &Shares, without: &Shares) -> Self {
        Self {
            share: ratio(with.ours, without.ours),
            lost: ratio(with.lost, without.lost),
            jain: ratio(with.jain, without.jain),
            lost_by_four: ratio(with.lost_by_four, without.lost_by_four),
        }
    }

    fn cells(&self, name: &str, key: &str) -> Vec<String> {
        let values = [self.share, self.lost, self.jain, self.lost_by_four];
        cells![name, evidence_of(key)].into_iter().chain(values.map(|ratio| format!("{ratio:.3}"))).collect()
    }

    fn numbers(&self) -> Value {
        json!({
            "of_equal_share": self.share, "lost_beside_cubic": self.lost, "jain": self.jain,
            "lost_by_four": self.lost_by_four,
        })
    }

    /// The share or the index that differs most from 1, and the larger of the losses.
    fn worst(&self) -> (f64, f64) {
        let off = |ratio: f64| (ratio - 1.0).abs();
        let share = if off(self.share) < off(self.jain) { self.jain } else { self.share };
        (share, self.lost.max(self.lost_by_four))
    }
}

/// `with` ÷ `without`; 1 if both are 0, and ∞ if only `without` is.
fn ratio(with: f64, without: f64) -> f64 {
    if with == without { 1.0 } else { with / without }
}

fn evidence_of(key: &str) -> &str {
    key.trim_end_matches("_of_none")
}

/// Sentence with the worst ratios.
fn worst(found: &[(String, Ratios)]) -> String {
    let off = |ratio: f64| (ratio - 1.0).abs();
    let share = found.iter().max_by(|(_, a), (_, b)| off(a.worst().0).total_cmp(&off(b.worst().0)));
    let loss = found.iter().max_by(|(_, a), (_, b)| a.worst().1.total_cmp(&b.worst().1));
    let (Some((share_name, share)), Some((loss_name, loss))) = (share, loss) else { return String::new() };
    format!(
        "The worst: {:.3} of a share or an index ({share_name}), {:.3} of the losses ({loss_name}).",
        share.worst().0,
        loss.worst().1
    )
}

/// Line with the floor: how many controllers and round trips are within it.
fn floor(found: &[(String, Ratios)]) -> String {
    let is_within = |ratios: &Ratios| {
        let (share, loss) = ratios.worst();
        (share - 1.0).abs() <= SHARE_CHANGE_MAX && loss <= LOSS_RATIO_MAX
    };
    let out: Vec<&str> =
        found.iter().filter(|(_, ratios)| !is_within(ratios)).map(|(name, _)| name.as_str()).collect();
    let which = if out.is_empty() { "met".to_owned() } else { format!("MISSED by {}", out.join("; ")) };
    format!(
        "\n- With ÷ without, floor: share and index within {} %, losses at most {LOSS_RATIO_MAX}: {} of {} rows, {which}.\n",
        100.0 * SHARE_CHANGE_MAX,
        found.len() - out.len(),
        found.len(),
    )
}

/// Floor: change of a share or of Jain's index by the classifier.
const SHARE_CHANGE_MAX: f64 = 0.05;
/// Floor: losses at the bottleneck with the classifier, as a multiple of those without it.
const LOSS_RATIO_MAX: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_shares_the_path_with_cubic_and_a_fixed_rate_does_not() {
        let setting = Setting { seconds: 4, seed: 3 };
        let table = of(&[ControllerKind::Model, ControllerKind::Fixed], &[20], setting).unwrap();
        let share = |row: usize, name: &str| table.rows[row][name].as_f64().unwrap();
        assert!((0.5..2.0).contains(&share(0, "of_equal_share")), "{}", table.text);
        assert!(share(0, "cubic_of_equal_share") > 0.3, "{}", table.text);
        assert!(share(0, "four_share") > 0.9, "{}", table.text);
        assert!(share(1, "cubic_of_equal_share") < 0.3, "{}", table.text);
        // A fixed rate does not depend on causes.
        for key in ["counter_of_none", "pattern_of_none"] {
            let ratio = table.rows[1][key]["of_equal_share"].as_f64().unwrap();
            assert!((0.98..1.02).contains(&ratio), "{key}: {ratio}");
        }
        assert!(table.rows[1]["lost_beside_cubic"].as_f64().unwrap() > 0.0, "{}", table.text);
    }

    #[test]
    fn a_floor_names_the_rows_that_miss_it() {
        let ratios = |share, lost, jain, lost_by_four| Ratios { share, lost, jain, lost_by_four };
        let found = [
            ("a".to_owned(), ratios(1.04, 1.0, 1.0, 0.5)),
            ("b".to_owned(), ratios(0.99, 1.2, 1.0, 1.0)),
            ("c".to_owned(), ratios(1.0, 1.0, 0.9, 1.1)),
        ];
        assert!(floor(&found).contains("1 of 3 rows, MISSED by b; c."), "{}", floor(&found));
        assert!(floor(&found[..1]).contains("1 of 1 rows, met."), "{}", floor(&found));
        let worst = worst(&found);
        assert!(worst.contains("0.900 of a share or an index (c), 1.200 of the losses (b)"), "{worst}");
        assert_eq!([ratio(0.0, 0.0), ratio(0.5, 1.0)], [1.0, 0.5]);
        assert!(ratio(0.1, 0.0).is_infinite());
    }
}
