//! Results over TCP, as Markdown and as JSON.

use std::cmp::Ordering;

use anyhow::ensure;
use barograph_sim::{RelayReport, SeededRng};
use serde::Serialize;

use super::turns::{Plan, StrategyResult};
use super::{Sets, Simulated, turns};
use crate::reduction::engine::Row;
use crate::reduction::paper::{REDUCTIONS, SETS};
use crate::stats::{Rank, Summary, interval, mean, quantile, resampled, sorted};
use crate::table::{Table, cells};

#[derive(Serialize)]
pub(crate) struct Findings {
    network: String,
    nodes: usize,
    message_bytes: usize,
    tries: u32,
    seed: u64,
    sets: usize,
    blocks: usize,
    reductions: usize,
    /// Median time (s) of a message that is never cut off, over TCP and simulated.
    median_s: [f64; 2],
    /// Factor by which numbers that are set by hand are multiplied.
    scale: f64,
    /// Quantiles of messages that are never cut off, in multiples of the median.
    tail: Vec<Tail>,
    took_s: f64,
    /// Mean rate in one network, both directions together.
    background_bps: f64,
    load_before: String,
    load_after: String,
    emulators: Vec<String>,
    /// Why blocks were left out: the emulator was their bottleneck.
    void_blocks: Vec<String>,
    /// Emulators that were too slow over the whole run.
    #[serde(rename = "void")]
    invalid_reasons: Vec<String>,
    rows: Vec<MeasuredRow>,
    simulated: Vec<Row>,
    comparisons: Vec<Comparison>,
}

/// A quantile of the times of messages that are never cut off, in medians.
#[derive(Serialize)]
struct Tail {
    share: f64,
    tcp: f64,
    simulated: f64,
}

#[derive(Serialize)]
struct MeasuredRow {
    #[serde(flatten)]
    row: Row,
    /// Copies that arrived beside another and were not handled again, including void blocks.
    duplicates: u64,
    /// Share of the retried messages of which an earlier copy arrived before the acknowledged one.
    in_vain_share: f64,
}

/// Order of the strategies by one statistic, over TCP and simulated.
#[derive(Serialize)]
struct Comparison {
    by: Statistic,
    tcp: String,
    simulated: String,
    /// Half the 90 % interval of a pair's difference (s), over TCP and simulated.
    #[serde(rename = "told_apart_s")]
    least_significant_s: [f64; 2],
    #[serde(flatten)]
    agreement: Agreement,
}

impl Findings {
    pub(crate) fn new(plan: &Plan, sets: &Sets, simulated: &Simulated) -> anyhow::Result<Self> {
        let times: Vec<_> = sets.outcomes.iter().map(StrategyResult::times).collect();
        let blocks = times.first().map_or(0, Vec::len);
        ensure!(blocks > 0, "no block counts, all are void: {}", sets.void_blocks.join("; "));
        let message_bytes = 4 * plan.integers;
        let measured = |of: &StrategyResult| {
            let run = of.run(message_bytes as u64);
            MeasuredRow {
                row: Row::of(of.strategy, &run),
                duplicates: of.duplicates,
                in_vain_share: of.needless_retries() as f64 / run.retried.max(1) as f64,
            }
        };
        let strategies = sets.outcomes.iter().map(|of| of.strategy);
        let [tcp, there] = [&sets.uncut_s, &simulated.uncut_s];
        let at = |of: &[f64], share| quantile(of, share, Rank::Nearest).unwrap_or(f64::NAN);
        let medians = [at(tcp, 0.5), at(there, 0.5)];
        let tail = |share| Tail {
            share,
            tcp: at(tcp, share) / medians[0],
            simulated: at(there, share) / medians[1],
        };
        Ok(Self {
            network: turns::about(),
            nodes: plan.nodes,
            message_bytes,
            tries: plan.tries,
            seed: plan.seed,
            sets: plan.sets,
            blocks,
            reductions: times.first().map_or(0, |blocks| blocks.iter().map(Vec::len).sum()),
            median_s: medians,
            scale: sets.scale,
            tail: TAIL.map(tail).into(),
            took_s: sets.took_s,
            background_bps: 8.0 * sets.background_bytes as f64 / sets.took_s / plan.sets as f64,
            load_before: sets.load_before.clone(),
            load_after: sets.load_after.clone(),
            emulators: sets.reports.iter().map(emulator).collect(),
            void_blocks: sets.void_blocks.clone(),
            invalid_reasons: sets
                .reports
                .iter()
                .filter_map(|report| Some(report.invalid_reason()?.to_string()))
                .collect(),
            rows: sets.outcomes.iter().map(measured).collect(),
            simulated: strategies.zip(&simulated.runs).map(|(of, run)| Row::of(of, run)).collect(),
            comparisons: comparisons(plan, sets, simulated),
        })
    }
}

fn comparisons(plan: &Plan, sets: &Sets, simulated: &Simulated) -> Vec<Comparison> {
    let names: Vec<String> = sets.outcomes.iter().map(|of| of.strategy.name()).collect();
    let times: Vec<_> = sets.outcomes.iter().map(StrategyResult::times).collect();
    let simulated = simulated.times();
    let compare = |by| {
        let tcp = Ranking::of(by, &times, plan.seed);
        let there = Ranking::of(by, &simulated, plan.seed);
        let agreement = Agreement::of(&tcp, &there, &names);
        let least_significant_s = [tcp.least_significant_s, there.least_significant_s];
        Comparison {
            by,
            tcp: tcp.line(&names),
            simulated: there.line(&names),
            least_significant_s,
            agreement,
        }
    };
    [Statistic::Mean, Statistic::P95].map(compare).into()
}

fn emulator(report: &RelayReport) -> String {
    let (there, back) = (&report.forward, &report.back);
    format!(
        "{} packets carried, {} lost, {} dropped by the full queue; {:.2} of a core, {:.2} at most; 99 % at most \
         {:.2} ms late",
        there.forwarded + back.forwarded,
        there.lost + back.lost,
        there.queue_full + back.queue_full,
        report.cpu_share(),
        report.cpu_peak,
        1000.0 * report.late_p99.as_secs_f64()
    )
}

pub(crate) fn markdown(findings: &Findings) -> String {
    let mut text = circumstances(findings);
    text += &tail(findings);
    text += &voids(findings);
    text += &table(findings).to_string();
    text += "\nAn abandoned message is waited for without a timeout, so its reduction enters the means. A retry was \
         needless if a copy that had been cut off arrived first: the system still sends what a closed \
         connection has in its buffer, so most copies arrive in the end, and load the path. Each message was \
         handled once.\n\n";
    text += &format!(
        "## The same order as simulated?\n\nThe simulation is P1 as `lab reduction` runs it, {SETS} sets of \
         {REDUCTIONS} reductions. ≈ stands between neighbours whose difference lies within the 90 % interval of \
         the bootstrap over blocks. Times are seconds.\n\n"
    );
    findings.comparisons.iter().for_each(|comparison| text += &compared(comparison));
    text
}

fn circumstances(findings: &Findings) -> String {
    let Findings { network, nodes, message_bytes, tries, seed, sets, blocks, reductions, .. } = findings;
    let Findings { median_s: [tcp, simulated], scale, took_s, load_before, load_after, .. } = findings;
    format!(
        "# The reduction over real TCP\n\n\
         {nodes} nodes in a binary tree, each a task with a TCP connection to each neighbour; levels of the tree \
         are in two network namespaces in turn, and every message of {message_bytes} bytes goes through one \
         bottleneck: {network}. Background traffic: {:.1} Mbit/s on average, both ways together, on and off. \
         {tries} tries a message, seed {seed}. The maxima were checked at every node, and every message was \
         handled once.\n\n\
         {sets} such networks run at the same time, each with new timeouts: {reductions} reductions a \
         strategy, in {blocks} blocks with a turn of every strategy. It took {took_s:.0} s; the \
         machine's load was {load_before} before and {load_after} after. The emulators: {}.\n\n\
         The median message that is never cut off takes {tcp:.3} s, {scale:.3} of the {simulated:.3} s of the \
         simulated P1. By this factor the paper's numbers are scaled: static-15 is {:.2} s, and forecasters \
         start at {:.2} s instead of 45 s. Nothing else is: rfc6298 starts at 3 s, connections have 3 s to be set \
         up, and TCP's own timers are the system's.\n\n",
        findings.background_bps / 1e6,
        findings.emulators.join(" – "),
        15.0 * scale,
        45.0 * scale,
    )
}

fn tail(findings: &Findings) -> String {
    let shares = findings.tail.iter().map(|tail| match tail.share {
        1.0 => "max".to_owned(),
        share => format!("{} %", 100.0 * share),
    });
    let mut table = Table::new(["messages never cut off, in medians"]).and(shares);
    let mut push = |name: &str, of: fn(&Tail) -> f64| {
        let values = findings.tail.iter().map(|tail| format!("{:.2}", of(tail)));
        table.push(cells![name].into_iter().chain(values));
    };
    push("TCP", |tail| tail.tcp);
    push("simulated P1", |tail| tail.simulated);
    format!("{table}\n")
}

fn voids(findings: &Findings) -> String {
    let left_out = findings.void_blocks.len();
    let mut text = match findings.void_blocks.last() {
        None => "No block was void.".to_owned(),
        Some(last) => format!("{left_out} blocks were void and are left out; the last: {last}."),
    };
    if !findings.invalid_reasons.is_empty() {
        text += &format!(" Emulators that were too slow at times: {}.", findings.invalid_reasons.join("; "));
    }
    text + "\n\n"
}

fn table(findings: &Findings) -> Table {
    let mut table = Table::titled(
        "strategy | mean s | p95 | max | SD | retried % | retries a retried | of them needless % | \
         duplicates handled once | abandoned | mean s, P1 | p95, P1 | retried %, P1 | \
         retries a retried, P1",
    );
    let share = |row: &Row| format!("{:.2}", 100.0 * row.retried_share);
    let time = |time: f64| format!("{time:.3}");
    for (MeasuredRow { row, duplicates, in_vain_share }, there) in
        findings.rows.iter().zip(&findings.simulated)
    {
        let mut cells = vec![row.strategy.clone()];
        cells.extend([row.mean_s, row.p95_s, row.max_s, row.sd_s].map(time));
        cells.extend([share(row), row.retries(2), format!("{:.0}", 100.0 * in_vain_share)]);
        cells.extend([duplicates.to_string(), row.abandoned.to_string()]);
        cells.extend([there.mean_s, there.p95_s].map(time));
        cells.extend([share(there), there.retries(2)]);
        table.push(cells);
    }
    table
}

fn compared(comparison: &Comparison) -> String {
    let Comparison { by, tcp, simulated, least_significant_s, agreement } = comparison;
    let Agreement { alike, tie_in_first, tie_in_second, contrary } = agreement;
    let pairs = alike.len() + tie_in_first.len() + tie_in_second.len() + contrary.len();
    let mut text = format!("**By {}.**\n\n- TCP: {tcp}\n- simulated: {simulated}\n\n", by.name());
    let [here, there] = least_significant_s;
    text += &format!(
        "Differences under some {here:.2} s over TCP, and {there:.2} s simulated, may be chance. {} of \
         {pairs} pairs have the same order.",
        alike.len()
    );
    for (pairs, what) in [
        (tie_in_first, "Ordered in the simulation, a tie over TCP"),
        (tie_in_second, "Ordered over TCP, a tie in the simulation"),
        (contrary, "In the opposite order to the simulation (shown as over TCP)"),
    ] {
        if !pairs.is_empty() {
            text += &format!(" {what}: {}.", pairs.join(", "));
        }
    }
    let ordered = alike.iter().filter(|pair| !pair.contains('≈')).count();
    text += &if agreement.holds() {
        let there = ordered + tie_in_first.len();
        format!(
            " No pair has the opposite order; of the {there} ordered in the simulation, {ordered} are over TCP.\n\n"
        )
    } else {
        " **The order is not the same.**\n\n".to_owned()
    };
    text
}

/// Shares at which the tails are compared.
const TAIL: [f64; 7] = [0.1, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0];

/// Times of one strategy by block. In each block all strategies ran in the same conditions.
pub(crate) type Blocks = Vec<Vec<f64>>;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) enum Statistic {
    #[serde(rename = "mean")]
    Mean,
    #[serde(rename = "p95")]
    P95,
}

impl Statistic {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P95 => "95th percentile",
        }
    }

    fn of(self, times: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(times),
            Self::P95 => Summary::of(times).p95,
        }
    }
}

/// Comparison of the strategies with each other in one experiment.
#[derive(Debug, Clone)]
pub(crate) struct Ranking {
    values: Vec<f64>,
    /// Order of each pair: less is better; equal means that the difference may be chance.
    pairs: Vec<Vec<Ordering>>,
    /// Half the 90 % interval of a pair's difference (s), median over all pairs: smaller
    /// differences are mostly ties.
    pub(crate) least_significant_s: f64,
}

impl Ranking {
    /// A pair is a tie if 0 lies within the 90 % interval of its difference. The bootstrap
    /// resamples blocks with replacement, the same ones for all strategies.
    pub(crate) fn of(statistic: Statistic, strategies: &[Blocks], seed: u64) -> Self {
        let all: Vec<usize> = (0..strategies[0].len()).collect();
        let of_blocks = |blocks: &[usize]| -> Vec<f64> {
            let times = |of: &Blocks| blocks.iter().flat_map(|block| of[*block].clone()).collect::<Vec<_>>();
            strategies.iter().map(|of| statistic.of(&times(of))).collect()
        };
        let resamples = resampled(all.len(), RESAMPLES, &mut SeededRng::new(seed, 0), of_blocks);
        let count = strategies.len();
        let mut pairs = vec![vec![Ordering::Equal; count]; count];
        let mut widths = Vec::new();
        for one in 0..count {
            for other in (0..count).filter(|other| *other != one) {
                let differences = resamples.iter().map(|values| values[one] - values[other]).collect();
                let (low, high) = interval(differences, 0.05).unwrap_or_default();
                widths.push((high - low) / 2.0);
                pairs[one][other] = match (low, high) {
                    (_, high) if high < 0.0 => Ordering::Less,
                    (low, _) if low > 0.0 => Ordering::Greater,
                    _ => Ordering::Equal,
                };
            }
        }
        let least_significant_s = quantile(&sorted(widths), 0.5, Rank::Nearest).unwrap_or(f64::NAN);
        Self { values: of_blocks(&all), pairs, least_significant_s }
    }

    /// The strategies as text, the best first; ≈ stands between neighbours that are a tie.
    pub(crate) fn line(&self, names: &[String]) -> String {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|one, other| self.values[*one].total_cmp(&self.values[*other]));
        let mut line = String::new();
        for (rank, strategy) in order.iter().enumerate() {
            if rank > 0 {
                let tie = self.pairs[order[rank - 1]][*strategy] == Ordering::Equal;
                line += if tie { " ≈ " } else { " < " };
            }
            line += &format!("{} {:.3}", names[*strategy], self.values[*strategy]);
        }
        line
    }
}

/// Agreement of two experiments, pair by pair.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Agreement {
    /// Pairs with the same order, or ties in both.
    pub(crate) alike: Vec<String>,
    /// Pairs that are a tie only in the first experiment.
    pub(crate) tie_in_first: Vec<String>,
    /// Pairs that are a tie only in the second experiment.
    pub(crate) tie_in_second: Vec<String>,
    /// Pairs with opposite orders.
    pub(crate) contrary: Vec<String>,
}

impl Agreement {
    pub(crate) fn of(first: &Ranking, second: &Ranking, names: &[String]) -> Self {
        let mut agreement = Self::default();
        for one in 0..names.len() {
            for other in one + 1..names.len() {
                let (here, there) = (first.pairs[one][other], second.pairs[one][other]);
                let sign = |order| match order {
                    Ordering::Less => "<",
                    Ordering::Equal => "≈",
                    Ordering::Greater => ">",
                };
                // Pairs that are a tie in the first are shown with the second's order.
                let shown = if here == Ordering::Equal { there } else { here };
                let pair = format!("{} {} {}", names[one], sign(shown), names[other]);
                let list = match (here, there) {
                    _ if here == there => &mut agreement.alike,
                    (Ordering::Equal, _) => &mut agreement.tie_in_first,
                    (_, Ordering::Equal) => &mut agreement.tie_in_second,
                    _ => &mut agreement.contrary,
                };
                list.push(pair);
            }
        }
        agreement
    }

    pub(crate) fn holds(&self) -> bool {
        self.contrary.is_empty()
    }
}

/// Enough that the ends of the interval vary by a hundredth of it between seeds.
const RESAMPLES: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    /// `b` is a tenth above `a` in every block, though blocks differ much more; `c` is `a` with
    /// noise.
    fn ranking(b: f64, seed: u64) -> Ranking {
        let mut draws = SeededRng::new(seed, 9);
        let a: Blocks = (0..40).map(|_| vec![1.0 + 5.0 * draws.uniform(), 2.0]).collect();
        let times = |factor: f64| a.iter().map(|of| of.iter().map(|time| time * factor).collect()).collect();
        let c = a.iter().map(|of| of.iter().map(|time| time + draws.uniform() - 0.5).collect()).collect();
        Ranking::of(Statistic::Mean, &[a.clone(), times(b), c], 1)
    }

    #[test]
    fn pairs_of_strategies_are_compared_within_blocks() {
        let ranking = ranking(1.1, 5);
        assert_eq!(ranking.pairs[0][1], Ordering::Less);
        assert_eq!(ranking.pairs[1][0], Ordering::Greater);
        assert_eq!(ranking.pairs[0][2], Ordering::Equal);
        assert_eq!(ranking.pairs[0][0], Ordering::Equal);
        // a and b differ by 0.28 on average, and the difference varies between blocks.
        assert!((0.01..0.28).contains(&ranking.least_significant_s), "{}", ranking.least_significant_s);
        let line = ranking.line(&names());
        assert!(line.contains(" ≈ ") && line.contains(" < b "), "{line}");
    }

    #[test]
    fn contrary_rankings_are_reported() {
        let (one, other) = (ranking(1.1, 5), ranking(0.9, 6));
        let contrary = Agreement::of(&one, &other, &names());
        assert!(contrary.contrary.contains(&"a < b".to_owned()) && !contrary.holds(), "{contrary:?}");
        let same = Agreement::of(&one, &ranking(1.2, 7), &names());
        assert!(same.holds() && same.alike.contains(&"a < b".to_owned()), "{same:?}");
        let tie = Agreement::of(&one, &ranking(1.0, 8), &names());
        assert!(tie.holds() && tie.tie_in_second.contains(&"a < b".to_owned()), "{tie:?}");
    }

    #[test]
    fn equal_strategies_are_a_tie() {
        let blocks: Blocks = vec![vec![1.0, 2.0]; 5];
        let ranking = Ranking::of(Statistic::P95, &[blocks.clone(), blocks], 1);
        assert_eq!(ranking.pairs[0][1], Ordering::Equal);
    }
}
