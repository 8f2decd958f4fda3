//! The paper's experiment on links whose tail is fitted to its Table 1: 10 sets of 100 reductions, the
//! forecasters fresh in each set.

use anyhow::Context;
use barograph_sim::Scenario;
use std::fs;
use std::path::Path;

use super::engine::Run;
use super::row::Row;
use super::strategy::Strategy;
use super::{Args, figures, json_lines, load, print, promises, shapes, strategies, tables, tree};
use crate::jobs;

/// What came out.
pub(crate) struct Experiment {
    pub(crate) scenario: Scenario,
    pub(crate) runs: Vec<(Strategy, Run)>,
}

impl Experiment {
    /// The run of a strategy, if it was asked for.
    pub(crate) fn of(&self, strategy: Strategy) -> Option<&Run> {
        self.runs.iter().find(|(other, _)| *other == strategy).map(|(_, run)| run)
    }
}

/// Runs, prints the report, and writes the figures.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let p1 = experiment(args, P1, "p1")?;
    if args.json {
        let rows: Vec<Row> = p1.runs.iter().map(|(strategy, run)| Row::of(*strategy, run)).collect();
        return print(&json_lines(&rows)?);
    }
    let p2 = experiment(args, P2, "p2")?;
    let mut report = "# The reduction of Allen, Wolski and Plank (2002)\n".to_owned();
    report += &tables::markdown(&p1);
    report += &shapes::markdown(&p1);
    report += &promises::markdown(&p1);
    report += &shapes::differences(&p1);
    report += &write(&args.out, &figures::all(&p1)?)?;
    report += "\n# The same on links that are congested now and then\n";
    report += &tables::markdown(&p2);
    report += &shapes::markdown(&p2);
    print(&report)
}

/// Runs a scenario as the paper ran its experiment.
fn experiment(args: &Args, text: &str, stem: &str) -> anyhow::Result<Experiment> {
    let mut scenario = built_in(text, stem)?;
    scenario.reductions = REDUCTIONS;
    scenario.tries = args.tries.unwrap_or(TRIES);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let strategies = strategies(args);
    let work = |strategy: &Strategy| strategy.run(|strategy| tree::run(&scenario, SETS, strategy, |_| {}));
    let runs = jobs::all(&strategies, |strategy| format!("{stem} {}", strategy.name()), work);
    Ok(Experiment { runs: strategies.into_iter().zip(runs).collect(), scenario })
}

/// A scenario that the program carries along.
pub(crate) fn built_in(text: &str, stem: &str) -> anyhow::Result<Scenario> {
    load::parse(text, stem, Path::new("")).map_err(|error| anyhow::anyhow!("{stem}: {error}"))
}

/// Writes the figures and says where and what they show.
fn write(folder: &Path, figures: &[figures::Figure]) -> anyhow::Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut text = "\n## Figures\n\n".to_owned();
    for figure in figures {
        let path = folder.join(figure.file);
        fs::write(&path, &figure.svg).with_context(|| format!("cannot write {}", path.display()))?;
        text += &format!("- {}: {}\n", path.display(), figure.says);
    }
    Ok(text)
}

/// The paper's links, as far as its tables tell.
pub(crate) const P1: &str = include_str!("../../scenarios/p1.toml");

/// Links that also show its second mode, as far as they can.
const P2: &str = include_str!("../../scenarios/p2.toml");

/// §5: "10 sets of 100 reductions each".
pub(crate) const SETS: usize = 10;
pub(crate) const REDUCTIONS: usize = 100;

/// §5: "Nodes attempted to resend data 5 times", after the first send.
pub(crate) const TRIES: u32 = 6;

/// A column of the paper's Table 1, in seconds.
pub(crate) struct Column {
    pub(crate) strategy: Strategy,
    pub(crate) mean: f64,
    pub(crate) max: f64,
    pub(crate) min: f64,
    pub(crate) p95: f64,
    pub(crate) variance: f64,
    pub(crate) sd: f64,
}

/// The paper's Table 1. Its "Dynamic" is mean + 2 SD.
pub(crate) const TABLE_1: [Column; 3] = [
    Column {
        strategy: Strategy::Static(45.0),
        mean: 8.317,
        max: 51.796,
        min: 4.447,
        p95: 13.942,
        variance: 7.888,
        sd: 2.809,
    },
    Column {
        strategy: Strategy::Static(15.0),
        mean: 8.056,
        max: 51.187,
        min: 5.129,
        p95: 12.642,
        variance: 5.261,
        sd: 2.297,
    },
    Column {
        strategy: Strategy::Nws(2.0),
        mean: 7.495,
        max: 29.230,
        min: 5.303,
        p95: 10.794,
        variance: 2.722,
        sd: 1.650,
    },
];

/// The paper's Table 2: percent of the sends retried, and how often on average.
pub(crate) const TABLE_2: [(Strategy, f64, f64); 6] = [
    (Strategy::Static(45.0), 0.050, 1.000),
    (Strategy::Static(15.0), 0.312, 1.380),
    (Strategy::Static(5.0), 2.513, 1.542),
    (Strategy::Static(2.0), 45.538, 2.638),
    (Strategy::Nws(2.0), 9.056, 1.176),
    (Strategy::Nws(1.0), 20.851, 1.241),
];
