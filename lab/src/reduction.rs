//! The reduction of Allen, Wolski and Plank (2002): what timeouts do to a distributed program.

mod engine;
mod strategy;

use anyhow::Context;
use barograph_sim::Scenario;
use clap::Args as ClapArgs;
use serde::Serialize;
use std::path::{Path, PathBuf};

use engine::Run;
use strategy::{Strategy, mean};

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Run a scenario of your own, a TOML file (see lab/scenarios).
    #[arg(long, value_name = "FILE")]
    scenario: Vec<PathBuf>,
    /// One JSON object a strategy.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    for file in &args.scenario {
        let scenario = load(file)?;
        for strategy in Strategy::ALL {
            let row = Row::of(strategy, &strategy.run(&scenario, |_| {}));
            if args.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                println!("{row:?}");
            }
        }
    }
    Ok(())
}

/// Reads and checks a scenario; its trace's path starts from its own folder.
fn load(file: &Path) -> anyhow::Result<Scenario> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let scenario: Scenario = toml::from_str(&text).with_context(|| format!("{name} is no scenario"))?;
    let read = |_: &Path| Err("TODO".to_owned());
    scenario.ready(read).map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

/// What is printed of a strategy.
#[derive(Debug, Serialize)]
struct Row {
    strategy: String,
    mean_s: f64,
    p95_s: f64,
    max_s: f64,
    sd_s: f64,
    retried_share: f64,
    retries_per_retried: f64,
    extra_bytes_share: f64,
    abandoned: u64,
}

impl Row {
    fn of(strategy: Strategy, run: &Run) -> Self {
        let mean_s = mean(&run.times);
        let mut sorted = run.times.clone();
        sorted.sort_by(f64::total_cmp);
        let variance = mean(&run.times.iter().map(|time| (time - mean_s).powi(2)).collect::<Vec<_>>());
        Self {
            strategy: strategy.name(),
            mean_s,
            p95_s: percentile(&sorted, 0.95),
            max_s: sorted[sorted.len() - 1],
            sd_s: variance.sqrt(),
            retried_share: run.retried as f64 / run.sends as f64,
            retries_per_retried: if run.retried == 0 { 0.0 } else { run.retries as f64 / run.retried as f64 },
            extra_bytes_share: run.bytes.1 as f64 / run.bytes.0 as f64,
            abandoned: run.abandoned,
        }
    }
}

/// Between the two nearest ranks, linearly.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}
