//! What was measured over TCP, as Markdown and as JSON.

use anyhow::ensure;
use barograph_sim::{Report, Void};
use serde::Serialize;

use super::super::paper::{REDUCTIONS, SETS};
use super::super::row::Row;
use super::hosts;
use super::ordering::{Agreement, Standing, Statistic};
use super::simulated::Simulated;
use super::turns::{Contestant, Plan};
use crate::report::aligned;

/// Everything that was measured, and how it stands to the simulation.
#[derive(Serialize)]
pub(crate) struct Findings {
    network: String,
    nodes: usize,
    message_bytes: usize,
    tries: u32,
    seed: u64,
    /// Reductions of each strategy that count.
    reductions: usize,
    blocks: usize,
    /// Why blocks were left out, the emulator having been the bottleneck.
    void_blocks: Vec<String>,
    /// Whether the emulator was at fault over the whole run.
    void: Option<String>,
    emulator: String,
    circumstances: Circumstances,
    rows: Vec<Measured>,
    simulated: Vec<Row>,
    comparisons: Vec<Comparison>,
}

/// Under which it was measured.
#[derive(Serialize)]
pub(crate) struct Circumstances {
    /// The median time of a message that is never cut off, in seconds.
    pub(crate) median_s: f64,
    /// That median over the simulated one.
    pub(crate) scale: f64,
    pub(crate) took_s: f64,
    /// Both ways together.
    pub(crate) background_bytes: u64,
    pub(crate) load_before: String,
    pub(crate) load_after: String,
}

/// A strategy in numbers.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    row: Row,
    /// Copies that arrived beside another and were not handled again, void blocks included.
    duplicates: u64,
}

/// The strategies' order by one statistic, here and there.
#[derive(Serialize)]
struct Comparison {
    by: Statistic,
    tcp: String,
    simulated: String,
    #[serde(flatten)]
    agreement: Agreement,
}

impl Findings {
    pub(crate) fn new(
        plan: &Plan,
        contestants: &[Contestant],
        simulated: &Simulated,
        voids: &[Void],
        report: &Report,
        circumstances: Circumstances,
    ) -> anyhow::Result<Self> {
        let times: Vec<_> = contestants.iter().map(Contestant::times).collect();
        let blocks = times.first().map_or(0, Vec::len);
        let void_blocks: Vec<String> = voids.iter().map(Void::to_string).collect();
        ensure!(0 < blocks, "no block counts: {}", void_blocks.join("; "));
        let names: Vec<String> = contestants.iter().map(|of| of.strategy.name()).collect();
        let simulated_times = simulated.times();
        let compare = |by| {
            let tcp = Standing::of(by, &times, plan.seed);
            let there = Standing::of(by, &simulated_times, plan.seed);
            let agreement = Agreement::of(&tcp, &there, &names);
            Comparison { by, tcp: tcp.line(&names), simulated: there.line(&names), agreement }
        };
        let message_bytes = 4 * plan.integers;
        let measured = |of: &Contestant| Measured {
            row: Row::of(of.strategy, &of.run(message_bytes as u64)),
            duplicates: of.duplicates(),
        };
        let strategies = contestants.iter().map(|of| of.strategy);
        Ok(Self {
            network: hosts::about(),
            nodes: plan.nodes,
            message_bytes,
            tries: plan.tries,
            seed: plan.seed,
            reductions: times.first().map_or(0, |blocks| blocks.iter().map(Vec::len).sum()),
            blocks,
            void_blocks,
            void: report.void().map(|void| void.to_string()),
            emulator: emulator(report),
            circumstances,
            rows: contestants.iter().map(measured).collect(),
            simulated: strategies.zip(&simulated.runs).map(|(of, run)| Row::of(of, run)).collect(),
            comparisons: [Statistic::Mean, Statistic::P95].map(compare).into(),
        })
    }
}

/// What the relay carried and cost.
fn emulator(report: &Report) -> String {
    let (there, back) = (&report.forward, &report.back);
    format!(
        "{} packets, {} lost and {} dropped by the full queue; {:.2} of a core, at most {:.2}; the latest 1 % left \
         {:.2} ms late or later",
        there.forwarded + back.forwarded,
        there.lost + back.lost,
        there.queue_full + back.queue_full,
        report.cpu_share(),
        report.cpu_peak,
        1000.0 * report.late_p99.as_secs_f64()
    )
}

/// The report.
pub(crate) fn markdown(findings: &Findings) -> String {
    let Findings { network, nodes, message_bytes, tries, seed, reductions, blocks, .. } = findings;
    let Circumstances { median_s, scale, took_s, background_bytes, load_before, load_after } =
        &findings.circumstances;
    let mut text = format!(
        "# The reduction over real TCP\n\n\
         {nodes} nodes in a binary tree, each a task with a TCP connection to each neighbour; levels of the tree \
         are in two network namespaces in turn, and every message of {message_bytes} bytes goes through one \
         bottleneck: {network}. Background traffic: {:.1} Mbit/s on average, both ways together, on and off. \
         {tries} tries a message, seed {seed}; maxima were checked at every node, and every message was handled \
         once.\n\n\
         The median message takes {:.3} s, {scale:.3} of the {:.3} s of the simulated P1. By this factor the \
         paper's numbers are scaled: static-15 is {:.2} s, and forecasters start at {:.2} s instead of 45 s. \
         Nothing else is: rfc6298 starts at 3 s, and TCP's own timers are the system's.\n\n\
         {reductions} reductions a strategy, in {blocks} blocks in each of which every strategy has a turn; \
         forecasters learn through the whole run. It took {took_s:.0} s, the machine's load was {load_before} \
         before and {load_after} after. The emulator: {}.\n\n",
        *background_bytes as f64 * 8.0 / took_s / 1e6,
        median_s,
        median_s / scale,
        15.0 * scale,
        45.0 * scale,
        findings.emulator
    );
    text += &voids(findings);
    text += &table(findings);
    text += "\nAn abandoned message is waited for without a timeout, so its reduction enters the means.\n\n";
    text += &format!(
        "## The same order as simulated?\n\nThe simulation is P1 as `lab reduction` runs it, {SETS} sets of \
         {REDUCTIONS} reductions. ≈ stands between neighbours whose difference lies within the 90 % interval of \
         the bootstrap over blocks. Times are seconds.\n\n"
    );
    findings.comparisons.iter().for_each(|comparison| text += &compared(comparison));
    text
}

fn voids(findings: &Findings) -> String {
    let left_out = findings.void_blocks.len();
    let mut text = match findings.void_blocks.last() {
        None => "No block was void.".to_owned(),
        Some(last) => format!("{left_out} blocks were void and are left out; the last: {last}."),
    };
    if let Some(void) = &findings.void {
        text += &format!(" Over the whole run the emulator was at fault at least once: {void}.");
    }
    text + "\n\n"
}

fn table(findings: &Findings) -> String {
    let header = [
        "strategy",
        "mean s",
        "p95",
        "max",
        "SD",
        "retried %",
        "retries a retried",
        "duplicates handled once",
        "abandoned",
    ];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for Measured { row, duplicates } in &findings.rows {
        let mut cells = vec![row.strategy.clone()];
        cells.extend([row.mean_s, row.p95_s, row.max_s, row.sd_s].map(|time| format!("{time:.3}")));
        cells.push(format!("{:.2}", 100.0 * row.retried_share));
        let none = row.retried_share == 0.0;
        cells.push(if none { "–".to_owned() } else { format!("{:.2}", row.retries_per_retried) });
        cells.extend([duplicates.to_string(), row.abandoned.to_string()]);
        table.push(cells);
    }
    aligned(&table)
}

fn compared(comparison: &Comparison) -> String {
    let Comparison { by, tcp, simulated, agreement } = comparison;
    let Agreement { alike, tie_in_first, tie_in_second, contrary } = agreement;
    let pairs = alike.len() + tie_in_first.len() + tie_in_second.len() + contrary.len();
    let mut text = format!("**By {}.** TCP: {tcp}. Simulated: {simulated}.\n", by.name());
    text += &format!("{} of {pairs} pairs stand alike.", alike.len());
    for (pairs, what) in [
        (tie_in_first, "Ordered in the simulation, a tie over TCP"),
        (tie_in_second, "Ordered over TCP, a tie in the simulation"),
        (contrary, "The other way round than simulated"),
    ] {
        if !pairs.is_empty() {
            text += &format!(" {what}: {}.", pairs.join(", "));
        }
    }
    text += if agreement.holds() {
        " No pair is the other way round: the order is the same as far as both can tell.\n\n"
    } else {
        " **The order is not the same.**\n\n"
    };
    text
}
