//! Shares that a flow leaves to others: to a flow of RFC 9438, and to its own kind.

use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::Setting;
use super::run::{Case, Ours, SimPath, all};
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
    let cases: Vec<Case> = kinds
        .iter()
        .flat_map(|kind| rtts_ms.iter().map(move |rtt_ms| (*kind, *rtt_ms)))
        .flat_map(|(kind, rtt_ms)| {
            let path = SimPath::new(MBIT_S, rtt_ms, setting.seed);
            let beside = SimPath { has_cubic: true, ..path.clone() };
            let four = (0..FLOWS).map(|flow| Ours { start_s: APART_S * flow, ..Ours::new(kind) });
            [
                Case { path: beside, flows: vec![Ours::new(kind)], seconds },
                Case { path, flows: four.collect(), seconds },
            ]
        })
        .collect();
    let runs = all("fairness", &cases)?;
    let from = seconds / SETTLED;
    let (mut table, mut numbers) = (
        Table::titled(
            "controller, round trip | ours beside cubic | cubic's | queue (ms) | four: fair from (s) | \
             Jain, 20–30 s | Jain, after the start | % of the bottleneck | queue (ms)",
        ),
        Vec::new(),
    );
    for (case, run) in cases.chunks(2).zip(runs.chunks(2)) {
        let ([case, _], [beside, four]) = (case, run) else { continue };
        let half = case.path.bytes_s() / 2.0;
        let (ours, cubic) = (beside.bytes_s(0, from, seconds) / half, beside.cubic(from, seconds).0 / half);
        let last_start = APART_S * (FLOWS - 1);
        let is_fair = |second| four.jain(second, second + SPAN_S) >= JAIN;
        let (stays, jain) = (fair_from(last_start, seconds - SPAN_S, is_fair), four.jain(from, seconds));
        let early = four.jain(20.min(seconds - SPAN_S), 30.min(seconds));
        let all: f64 = (0..FLOWS as usize).map(|flow| four.bytes_s(flow, from, seconds)).sum();
        let kind = case.flows[0].kind.name();
        table.push(cells![
            format!("{kind}, {} ms", case.path.rtt_ms),
            format!("{ours:.2}"),
            format!("{cubic:.2}"),
            format!("{:.1}", beside.queue_ms(from, seconds)),
            stays.map_or_else(|| "never".to_owned(), |second| second.to_string()),
            format!("{early:.3}"),
            format!("{jain:.3}"),
            percent(all / case.path.bytes_s()),
            format!("{:.1}", four.queue_ms(from, seconds)),
        ]);
        numbers.push(json!({
            "controller": kind, "rtt_ms": case.path.rtt_ms, "of_equal_share": ours, "cubic_of_equal_share": cubic,
            "queue_ms_beside_cubic": beside.queue_ms(from, seconds), "fair_from_s": stays, "jain_20_to_30_s": early,
            "jain": jain, "four_share": all / case.path.bytes_s(), "queue_ms_of_four": four.queue_ms(from, seconds),
        }));
    }
    let legend = format!(
        "At {MBIT_S} Mbit/s, a queue of one product. Beside one cubic flow from the same moment: what each gets of half the bottleneck from {from} to \
         {seconds} s. Four of a kind that start {APART_S} s apart: from when on Jain's index over {SPAN_S} s stays at {JAIN} or above (s after the first \
         starts; to {seconds} s), the index from 20 to 30 s and from {from} to {seconds} s, and what all four get of the bottleneck."
    );
    Ok(Section::new("Fairness", &legend, &table, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_shares_the_path_with_cubic_and_a_fixed_rate_does_not() {
        let table =
            of(&[ControllerKind::Model, ControllerKind::Fixed], &[20], Setting { seconds: 4, seed: 3 })
                .unwrap();
        let share = |row: usize, name: &str| table.rows[row][name].as_f64().unwrap();
        assert!((0.5..2.0).contains(&share(0, "of_equal_share")), "{}", table.text);
        assert!(share(0, "cubic_of_equal_share") > 0.3, "{}", table.text);
        assert!(share(0, "four_share") > 0.9, "{}", table.text);
        assert!(share(1, "cubic_of_equal_share") < 0.3, "{}", table.text);
    }
}
