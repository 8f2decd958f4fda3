//! `lab gloperf`: what a longer test period and a shorter test cost in error, after Lee, Stepanek, Wolski, Kesselman
//! and Foster, *A Network Performance Tool for Grid Environments* (SC '99), §4.

mod chart;
mod figures;
mod long;
mod periodicity;
mod statements;
mod synthetic;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;

use long::Long;

/// What `lab gloperf` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder with the RIPE Atlas traces (rtt_ms_atlas_*.csv); without it only the synthetic series is used.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Long])]
    parts: Vec<Part>,
    /// The seed of the synthetic series, of background traffic and of the random predictor.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the figures go.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    out: PathBuf,
}

/// The parts of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Figures 10 and 11, and shifted subsamples: long series, nothing is measured
    Long,
}

/// Computes, writes and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let mut text = String::from("# Cost against error (Gloperf §4)\n");
    if args.parts.contains(&Part::Long) {
        text += &long_part(args)?;
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Figures 10 and 11, and the shifted subsamples.
fn long_part(args: &Args) -> anyhow::Result<String> {
    let mut all = vec![Long::synthetic(args.seed)];
    for path in atlas(args.traces.as_deref())? {
        all.push(Long::of_file(&path, args.seed)?);
    }
    save(&args.out, "gloperf-long.svg", &figures::long(&all)?)?;
    save(&args.out, "gloperf-offsets.svg", &figures::offsets(&all)?)?;
    let mut text = format!("\n## Figures 10 and 11\n{}", long::tables(&all));
    let said: Vec<statements::Statement> = all.iter().flat_map(long::statements).collect();
    let _ = write!(text, "\n{}", statements::table(&said));
    let _ = write!(text, "\n## Shifted subsamples\n\n{}", long::offsets(&all, args.seed));
    Ok(text)
}

/// The Atlas traces of a folder; none where there is no folder, which is said.
fn atlas(folder: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let Some(folder) = folder else {
        eprintln!("SKIPPED: lab gloperf: the RIPE Atlas traces; expected --traces DIR");
        return Ok(Vec::new());
    };
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    paths.retain(|path| name(path).starts_with("rtt_ms_atlas_") && name(path).ends_with(".csv"));
    paths.sort();
    if paths.is_empty() {
        eprintln!("SKIPPED: lab gloperf: no rtt_ms_atlas_*.csv in {}", folder.display());
    }
    Ok(paths)
}

fn save(folder: &Path, name: &str, content: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}
