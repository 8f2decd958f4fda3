//! Section 5 of the paper: a fixed rate without congestion control, with and without the
//! classifier.
//!
//! Dickens measured 83.5 % of the line without the classifier and 81.2 % with it (§5).

use std::time::Duration;

use barograph_sim::{Link, Network, Switch};
use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::flow::Ours;
use super::session::{AROUND, Bound, Plan, Session, gbit_s};
use super::{raw, session};
use crate::evidence::LossEvidence;
use crate::stats::{mean, mean_and_error, mean_of_some};
use crate::table::{Section, Table, cells};

fn pairs(session: &Session) -> u64 {
    if session.is_full { 30 } else { 4 }
}

pub(crate) fn plan(session: &Session) -> Plan {
    limit_plan(session) + Plan::of(3 * 2 * pairs(session), START + MEASURED + AROUND, 1)
}

fn limit_plan(session: &Session) -> Plan {
    Plan { cells: 1, time: raw::time(raw::step_ms(session.seconds)) }
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let pairs = pairs(session);
    let limit = session.cell("the limit", limit_plan(session), || {
        let network = Network::new(Link::Veth { rate_bps: None })?;
        raw::limit(&network, true, session.cpus, raw::step_ms(session.seconds))
    })?;
    let limit_bps = limit.lossless_bps.unwrap_or(limit.unpaced_bps * (1.0 - limit.unpaced_loss));
    let lines = [
        ("1 Gbit/s".to_owned(), Link::Veth { rate_bps: Some(GIGABIT) }, GIGABIT as f64),
        (
            format!("no bottleneck: the sealed limit, {}", gbit_s(limit_bps)),
            Link::Veth { rate_bps: None },
            limit_bps,
        ),
        // Without losses the classifier has nothing to classify.
        (
            format!("1 Gbit/s, {} % lost at random", 100.0 * LOSS),
            Link::Switch(Switch { rate_bps: Some(GIGABIT), queue_packets: QUEUE_PACKETS, loss: LOSS }),
            GIGABIT as f64,
        ),
    ];
    let mut table =
        Table::titled("line | pairs | without (%) | with (%) | with − without (points) | thread clock (%)");
    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    for (name, link, line_bps) in lines {
        let flow = |evidence| Ours {
            evidence,
            // A little less than the line, because its rate also counts Ethernet's headers.
            rate_bytes_s: Some(line_bps / 8.0 * OF_LINE),
            ..Ours::new(ControllerKind::Fixed)
        };
        let (mut on, mut off, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..pairs {
            // Every other pair is in reverse order, so that a machine that slows down favours
            // neither.
            let (mut with, mut without) = (None, None);
            let (on_first, off_first) =
                ([LossEvidence::Counter, LossEvidence::None], [LossEvidence::None, LossEvidence::Counter]);
            for evidence in if pair % 2 == 0 { on_first } else { off_first } {
                let (what, plan) = (
                    format!("{name}: pair {} of {pairs}", pair + 1),
                    Plan::of(1, START + MEASURED + AROUND, 1),
                );
                match session.cell(what, plan, || session.ours(&link, &flow(evidence), START, MEASURED)) {
                    Ok(run) if evidence.is_classified() => with = Some(run),
                    Ok(run) => without = Some(run),
                    Err(error) => goals.push(format!("- {name}: a pair is left out: {error:#}\n")),
                }
            }
            if let Some((with, without)) = with.zip(without) {
                on.push(with.bps / line_bps);
                off.push(without.bps / line_bps);
                let sender = &with.result.sender;
                shares.extend((sender.cpu_s > 0.0).then(|| sender.classifier_s / sender.cpu_s));
            }
        }
        let differences: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on - off).collect();
        let (difference, half) = interval(&differences);
        let share = mean_of_some(&shares);
        table.push(cells![
            name,
            on.len(),
            format!("{:.2}", 100.0 * mean(&off)),
            format!("{:.2}", 100.0 * mean(&on)),
            format!("{:+.2} ± {:.2}", 100.0 * difference, 100.0 * half),
            share.map_or_else(|| "not measured".to_owned(), |share| format!("{:.4}", 100.0 * share)),
        ]);
        goals.push(session::goal_line(
            &format!("{name}: the classifier's % of the CPU time"),
            Bound::Most(1.0),
            share.map(|share| 100.0 * share),
        ));
        rows.push(json!({
            "line": name, "line_bit_s": line_bps, "off": off, "on": on, "difference": difference, "half_width": half,
            "classifier_cpu_share": share,
        }));
    }
    let legend = format!(
        "`fixed` at {} % of the line, sealed; goodput in % of the line, headers not counted. The paper: 83.5 % without the classifier, 81.2 % with it. Pairs \
         alternate in order; each of their runs is measured for {} s after {} s; ± is 1.96 standard errors of their mean. Thread clock: the classifier's share of the CPU time of the sender's thread. Where there is \
         no bottleneck the line is the rate of the lab's raw program, which only seals and sends; ours is offered as much, and the rest is what \
         our sender lacks processor time for, with or without the classifier.",
        100.0 * OF_LINE,
        MEASURED.as_secs_f64(),
        START.as_secs_f64()
    );
    let section = Section::new("A fixed rate, with and without the classifier", &legend, &table, rows);
    session.report.section(section.with(&goals))
}

/// The mean, and 1.96 standard errors of it.
fn interval(values: &[f64]) -> (f64, f64) {
    let (mean, error) = mean_and_error(values);
    (mean, 1.96 * error)
}

const GIGABIT: u64 = 1_000_000_000;

/// The loss of the worst paths of `network`.
const LOSS: f64 = 0.01;

/// Linux's default for a device.
const QUEUE_PACKETS: u32 = 1000;

/// 1500 of 1514 bytes belong to the packet, and a queue that is never empty would only add delay.
const OF_LINE: f64 = 0.985;

/// `fixed` begins with its rate.
const START: Duration = Duration::from_millis(500);

/// Many short pairs, because other work of the machine varies more between runs than within them;
/// 30 pairs of a line take two to three minutes.
const MEASURED: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_a_confidence_interval_of_the_mean() {
        let (mean, half) = interval(&[1.0, 3.0]);
        assert_eq!(mean, 2.0);
        assert!((half - 1.96).abs() < 1e-9, "{half}");
    }
}
