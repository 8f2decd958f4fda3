//! What the experiments beyond the paper have in common.

use barograph_sim::Scenario;

use super::args::BeyondArgs;
use super::experiment::{P1, built_in};
use super::run::Run;
use super::strategy::{Strategy, best_static};
use crate::jobs;

/// P1, where four fifths of the response time of 64 kB grow with the size, and stalls befall bytes rather
/// than messages: a message of a megabyte stalls sixteen times as often as one of 64 kB.
pub(crate) fn wide_area(args: &BeyondArgs) -> anyhow::Result<Scenario> {
    let mut scenario = built_in(P1, "p1")?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.reductions = args.rounds as usize;
    scenario.link.size_share = 0.8;
    for stall in scenario.stall.iter_mut().chain(&mut scenario.more_stalls) {
        stall.per_bytes = Some(64 * KB);
    }
    Ok(scenario)
}

/// What is said of [`wide_area`] in every report.
pub(crate) const ABOUT: &str = "The links are those of P1 (5 tries), where 0.2 of the response time of 64 kB is fixed and \
    0.8 grow with the size, and where stalls befall bytes: a megabyte stalls sixteen times as often as 64 kB.";

/// The runs of every program under every strategy, on all processors: a row for each program.
pub(crate) fn runs<P: Sync>(
    programs: &[P],
    strategies: &[Strategy],
    run: impl Fn(&P, Strategy) -> Run + Sync,
) -> Vec<Vec<Run>> {
    let work: Vec<(&P, Strategy)> = programs
        .iter()
        .flat_map(|program| strategies.iter().map(move |strategy| (program, *strategy)))
        .collect();
    let one = |(program, strategy): &(&P, Strategy)| match strategy {
        // The largest messages take longer than the two minutes of the paper's messages.
        Strategy::StaticBest => best_static(HINDSIGHT_MAX_S, |strategy| run(program, strategy)),
        strategy => run(program, *strategy),
    };
    let done = jobs::all(&work, |(_, strategy)| strategy.name(), one);
    let mut done = done.into_iter();
    programs.iter().map(|_| done.by_ref().take(strategies.len()).collect()).collect()
}

/// 65536 as 64 kB.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1024 * KB { format!("{} kB", bytes / KB) } else { format!("{} MB", bytes / KB / 1024) }
}

pub(crate) const KB: u64 = 1024;

/// An hour: more than thirty times what the largest message takes.
const HINDSIGHT_MAX_S: f64 = 3600.0;

/// Gains under this are none: three seeds cannot tell less apart.
pub(crate) const TIE: f64 = 0.015;
