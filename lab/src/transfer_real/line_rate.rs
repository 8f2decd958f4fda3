//! Section 5 of the paper: congestion control off, with and without the classifier beside the transfer.
//!
//! Dickens measured 83.5 % of the line without the classifier and 81.2 % with it (§5).

use barograph_sim::{Link, Network};
use barograph_transfer::controller::Kind;
use serde_json::json;

use super::flow::Ours;
use super::goal::{self, Bound};
use super::raw;
use super::session::{Session, gbit_s};
use crate::transfer::Table;

pub(crate) fn table(session: &Session) -> anyhow::Result<Table> {
    let pairs = if session.is_full { 30 } else { 4 };
    session.note("the limit");
    let network = Network::new(Link::Veth { rate_bps: None })?;
    let limit = raw::limit(&network, true, session.cpus, raw::step_ms(session.seconds))?;
    drop(network);
    let limit_bps = limit.lossless_bps.unwrap_or(limit.unpaced_bps * (1.0 - limit.unpaced_loss));
    let lines = [
        ("1 Gbit/s".to_owned(), Link::Veth { rate_bps: Some(GIGABIT) }, GIGABIT as f64),
        (
            format!("no bottleneck: the sealed limit, {}", gbit_s(limit_bps)),
            Link::Veth { rate_bps: None },
            limit_bps,
        ),
    ];
    let (mut cells, mut rows, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    for (name, link, line_bps) in lines {
        let flow = |has_ear| Ours {
            has_ear,
            // A little less than the line, whose rate counts Ethernet's headers too.
            rate_bytes_s: Some(line_bps / 8.0 * OF_LINE),
            ..Ours::new(Kind::Fixed)
        };
        let (mut on, mut off, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..pairs {
            session.note(format!("{name}: pair {} of {pairs}", pair + 1));
            // Each other pair the other way round, so that a machine that slows down favours neither.
            for has_ear in if pair % 2 == 0 { [true, false] } else { [false, true] } {
                let run = session.ours(&link, &flow(has_ear), START_S)?;
                if has_ear {
                    on.push(run.bps / line_bps);
                    let said = &run.course.sender;
                    shares.extend((0.0 < said.cpu_s).then(|| said.classifier_s / said.cpu_s));
                } else {
                    off.push(run.bps / line_bps);
                }
            }
        }
        let differences: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on - off).collect();
        let (mean, half) = interval(&differences);
        let share = (!shares.is_empty()).then(|| mean_of(&shares));
        cells.push(vec![
            name.clone(),
            pairs.to_string(),
            format!("{:.2}", 100.0 * mean_of(&off)),
            format!("{:.2}", 100.0 * mean_of(&on)),
            format!("{:+.2} ± {:.2}", 100.0 * mean, 100.0 * half),
            share.map_or_else(|| "not told".to_owned(), |share| format!("{:.4}", 100.0 * share)),
        ]);
        goals.push(goal::line(
            &format!("{name}: the classifier's % of the CPU time"),
            Bound::Most(1.0),
            share.map(|share| 100.0 * share),
        ));
        rows.push(json!({
            "line": name, "line_bit_s": line_bps, "off": off, "on": on, "difference": mean, "half_width": half,
            "classifier_cpu_share": share,
        }));
    }
    let legend = format!(
        "`fixed` at {} % of the line, sealed; goodput in % of the line. The paper: 83.5 % without the classifier, 81.2 % with it. Pairs \
         alternate in order; ± is 1.96 standard errors of their mean. Thread clock: the classifier's share of the CPU time of the sender's thread.",
        100.0 * OF_LINE
    );
    let header = ["line", "pairs", "without (%)", "with (%)", "with − without (points)", "thread clock (%)"];
    Ok(Table::new("A fixed rate, with and without the classifier", &legend, &header, cells, rows)
        .with(&goals))
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean, and 1.96 standard errors of it.
fn interval(values: &[f64]) -> (f64, f64) {
    let variance = barograph::compare::Moments::of(values.iter().copied()).variance.unwrap_or(f64::NAN);
    (mean_of(values), 1.96 * (variance / values.len() as f64).sqrt())
}

/// The paper's.
const GIGABIT: u64 = 1_000_000_000;

/// 1500 of 1514 bytes are a packet's, and a queue that is never empty would only add delay.
const OF_LINE: f64 = 0.985;

/// `fixed` begins with its rate.
const START_S: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_one_of_the_mean() {
        let (mean, half) = interval(&[1.0, 3.0]);
        assert_eq!(mean, 2.0);
        assert!((half - 1.96).abs() < 1e-9, "{half}");
    }
}
