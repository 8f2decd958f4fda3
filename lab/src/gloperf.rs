//! `lab gloperf`: cost in error of a longer test period and a shorter test, after Lee, Stepanek,
//! Wolski, Kesselman and Foster, *A Network Performance Tool for Grid Environments* (SC '99), §4.

#[cfg(target_os = "linux")]
mod campaign;
#[cfg(target_os = "linux")]
mod competition;
mod figures;
#[cfg(target_os = "linux")]
mod findings;
mod long;

use std::path::{Path, PathBuf};

use clap::{ValueEnum, value_parser};

use crate::output::{Output, save};
use crate::series::files;
use long::Long;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with the RIPE Atlas traces (rtt_ms_atlas_*.csv); without it only the synthetic series
    /// is used.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Run only these parts of the study.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Campaign, Part::Competition, Part::Long])]
    parts: Vec<Part>,
    /// Measure at the paper's own speed and rates, instead of five times as fast: about an hour.
    #[arg(long)]
    full: bool,
    /// Tests of each length in the campaign.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = value_parser!(u32).range(24..=2000))]
    cycles: u32,
    /// Seed of the synthetic series, of background traffic and of the random predictor.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder to write the figures to.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Figures 1 to 9: tests over two emulated links; root
    Campaign,
    /// What a test takes from a competing flow, and adds to the queue; root
    Competition,
    /// Figures 10 and 11, and shifted subsamples: uses long series, measures nothing
    Long,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let mut text = String::from("# Cost against error (Gloperf §4)\n");
    let measures = args.parts.iter().any(|part| *part != Part::Long);
    #[cfg(target_os = "linux")]
    if measures && crate::emulation::is_permitted("gloperf")? {
        if args.parts.contains(&Part::Campaign) {
            text += &campaign_part(args)?;
        }
        if args.parts.contains(&Part::Competition) {
            let runs = if args.full { 3 * COMPETITIONS } else { COMPETITIONS };
            let report = competition::report(runs, args.seed)?;
            text += &format!("\n## A competing flow and the queue\n\n{report}");
        }
    }
    #[cfg(not(target_os = "linux"))]
    if measures {
        let Args { full: _, cycles: _, .. } = args;
        barograph_sim::report_skipped(
            "lab gloperf: campaign and competition need Linux's network namespaces",
        );
    }
    if args.parts.contains(&Part::Long) {
        text += &long_part(args)?;
    }
    Output::new(page, false).print(&text)
}

/// Figures 1 to 9: measures both links at the same time, each with its own emulator.
#[cfg(target_os = "linux")]
fn campaign_part(args: &Args) -> anyhow::Result<String> {
    let plan = campaign::Plan {
        scale: if args.full { 1.0 } else { COMPRESSION },
        cycles: args.cycles as usize,
        seed: args.seed,
    };
    let links = [campaign::BackgroundTraffic::Stationary, campaign::BackgroundTraffic::Shifting];
    let tests = (links.len() * plan.cycles * campaign::LENGTHS_S.len()) as u64;
    let bar = crate::jobs::bar(tests, "tests, {eta} left");
    let measured: Vec<anyhow::Result<campaign::Campaign>> = std::thread::scope(|scope| {
        let run = |traffic| {
            let bar = &bar;
            scope.spawn(move || campaign::Campaign::run(traffic, plan, bar))
        };
        let runs = links.map(run);
        runs.into_iter().map(|run| run.join().expect("a campaign does not panic")).collect()
    });
    bar.finish_and_clear();
    let mut all = Vec::new();
    for campaign in measured {
        all.push(findings::CampaignResult::of(campaign?));
    }
    for found in &all {
        save(&args.out, &format!("gloperf-{}.csv", found.campaign.slug), &found.campaign.csv())?;
        save(&args.out, &format!("gloperf-{}.svg", found.campaign.slug), &findings::figures(found)?)?;
    }
    Ok(format!("\n## Figures 1 to 9\n{}", findings::report(&all)))
}

/// Figures 10 and 11, and the shifted subsamples.
fn long_part(args: &Args) -> anyhow::Result<String> {
    let mut all = vec![Long::synthetic(args.seed)];
    for path in atlas(args.traces.as_deref()) {
        all.push(Long::of_file(&path, args.seed)?);
    }
    save(&args.out, "gloperf-long.svg", &figures::long(&all)?)?;
    save(&args.out, "gloperf-offsets.svg", &figures::offsets(&all)?)?;
    let said: Vec<long::Statement> = all.iter().flat_map(long::statements).collect();
    Ok(format!(
        "\n## Figures 10 and 11\n{}\n{}\n## Shifted subsamples\n\n{}",
        long::tables(&all),
        long::statements_table(&said),
        long::offsets(&all, args.seed)
    ))
}

/// The Atlas traces of a folder. If there are none, the skip is reported.
fn atlas(folder: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = folder else {
        eprintln!("SKIPPED: lab gloperf: the RIPE Atlas traces; name their folder with --traces DIR");
        return Vec::new();
    };
    files(folder, "csv", |name| name.starts_with("rtt_ms_atlas_")).unwrap_or_else(|error| {
        eprintln!("SKIPPED: lab gloperf: rtt_ms_atlas_*.csv: {error:#}");
        Vec::new()
    })
}

/// A path of 60 ms becomes one of 12 ms, which the emulator and the kernel's timers of some
/// milliseconds still manage, and a day's eight hours of tests take ten minutes.
#[cfg(target_os = "linux")]
const COMPRESSION: f64 = 5.0;

/// Number of runs with a full test, and of runs with one that may stop early: 2.5 minutes.
#[cfg(target_os = "linux")]
const COMPETITIONS: u32 = 3;
