//! `lab classifier`: what lost the packets, told by the paper's classifier and by ours, and what that is worth to a sender, after
//! Dickens, *A Lightweight, High Performance Communication Protocol for Grid Computing*, §3 to §5.

mod estimator;
mod figures;
mod judge;
mod length;
mod rates;
mod references;
mod simulation;
mod tables;
mod throughput;
mod windows;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_loss::{Classifier, PaperClassifier};
use clap::ValueEnum;

use judge::Models;

/// What `lab classifier` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder with labelled windows, as `lab signatures` makes it; ../shared/signatures if there is one.
    #[arg(value_name = "DIR")]
    windows: Option<PathBuf>,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Score the models that come with Barograph, as they are; only the tables.
    #[arg(long)]
    shipped: bool,
    /// Score this model of the default classifier, as it is; only the tables.
    #[arg(long, value_name = "FILE")]
    model_default: Option<PathBuf>,
    /// Score this model of the paper's classifier, as it is; only the tables.
    #[arg(long, value_name = "FILE")]
    model_paper: Option<PathBuf>,
    /// The seed of the parts that runs are in, of intervals, and of the simulation.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the figures go.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    out: PathBuf,
}

/// The parts of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Figures 4 to 6, Table 2, and whether windows are normally distributed
    Figures,
    /// Right and wrong verdicts by kind and loss rate, with each piece of evidence removed
    Tables,
    /// How accuracy depends on the length of a window
    Window,
    /// What a classifier is worth to a sender: Table 1
    Simulation,
}

impl Part {
    const ALL: [Self; 4] = [Self::Figures, Self::Tables, Self::Window, Self::Simulation];
}

/// Computes, writes and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let text = report(args)?;
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn report(args: &Args) -> anyhow::Result<String> {
    let folder = windows::folder(args.windows.as_deref())?;
    let labelled = windows::read(&folder)?;
    let mut text = format!("# What lost the packets: {} labelled windows\n", labelled.len());
    if let Some((models, name)) = as_they_are(args)? {
        return Ok(text + &tables::as_they_are(&labelled, &models, &name, args.seed));
    }
    for part in Part::ALL.iter().filter(|part| args.parts.contains(part)) {
        text += &match part {
            Part::Figures => {
                fs::create_dir_all(&args.out)
                    .with_context(|| format!("cannot make {}", args.out.display()))?;
                for (name, svg) in figures::figures(&labelled)? {
                    let path = args.out.join(name);
                    fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
                }
                figures::table_2(&labelled, args.seed)? + &figures::normality(&labelled)
            }
            Part::Tables => tables::held_out(&labelled, args.seed)?,
            Part::Window => match windows::runs(&folder)? {
                runs if runs.is_empty() => {
                    "\nNo runs.txt.gz, of which windows of other lengths could be cut.\n".to_owned()
                }
                runs => length::table(&runs, args.seed)?,
            },
            Part::Simulation => throughput::table(&labelled, args.seed)?,
        };
    }
    Ok(text)
}

/// The models that are not to be fitted here, if any were named, and what to call them.
fn as_they_are(args: &Args) -> anyhow::Result<Option<(Models, String)>> {
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let (mut paper, mut ours) = (PaperClassifier::shipped(), Classifier::shipped());
    let mut names = Vec::new();
    if let Some(path) = &args.model_default {
        ours = Classifier::read(&read(path)?).with_context(|| path.display().to_string())?;
        names.push(path.display().to_string());
    }
    if let Some(path) = &args.model_paper {
        paper = PaperClassifier::read(&read(path)?).with_context(|| path.display().to_string())?;
        names.push(path.display().to_string());
    }
    if args.shipped || names.len() == 1 {
        names.push("the shipped models".to_owned());
    }
    Ok((!names.is_empty()).then(|| (Models::new(paper, ours), names.join(" and "))))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::fmt::Write as _;

    use barograph_loss::{Cause, Labelled};

    use super::*;

    /// A folder as `lab signatures` makes it.
    fn folder(windows: &[Labelled], packets: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut text, mut runs) = (
            String::from(
                "# label\trun\twindow\tkind\tbatch\tpps\trcvbuf\tlost\tloss_rate\tNa17\tC1\tsp\towd_before_loss_us\tsojourn_before_loss_us\tcpu_fraction\trle(ok,lost,ok,lost,...)\n",
            ),
            String::new(),
        );
        for (number, window) in windows.iter().enumerate() {
            let (evidence, metrics) = (&window.evidence, &window.metrics);
            let (label, host) = if window.cause == Cause::Host { ("cpu", 1) } else { ("net", 0) };
            let gaps: Vec<(u32, u32)> = window.signature.gaps().map(|gap| (gap.received, gap.lost)).collect();
            let lengths: Vec<String> =
                gaps.iter().map(|(received, lost)| format!("{received},{lost}")).collect();
            writeln!(
                text,
                "{label}\t{}\t{number}\t{}\t{}\t1\t1\t{}\t0\t0\t0\t0\t{}\t0\t{host}\t{}",
                window.run,
                window.kind,
                evidence.burst.unwrap(),
                metrics.lost,
                1e6 * evidence.delay_s.unwrap(),
                lengths.join(",")
            )
            .unwrap();
            let gaps: Vec<String> =
                gaps.iter().map(|(received, lost)| format!("{received}:{lost}:{}", host * lost)).collect();
            writeln!(
                runs,
                "{}\t{label}\t{}\t{packets}\t{}\t1\t{{\"batch\":1}}\t{}",
                window.run,
                window.kind,
                metrics.lost,
                gaps.join(" ")
            )
            .unwrap();
        }
        windows::tests::compress(&folder.path().join(format!("w{packets}_all.txt.gz")), &text);
        windows::tests::compress(&folder.path().join("runs.txt.gz"), &runs);
        folder
    }

    fn args(folder: &tempfile::TempDir) -> Args {
        Args {
            windows: Some(folder.path().to_owned()),
            parts: Part::ALL.to_vec(),
            shipped: false,
            model_default: None,
            model_paper: None,
            seed: 1,
            out: folder.path().join("figures"),
        }
    }

    #[test]
    fn all_parts_have_their_tables_and_figures() {
        let folder = folder(&judge::tests::made(100_000, 6, 7, 2), 100_000);
        let text = report(&args(&folder)).unwrap();
        for title in [
            "## Table 2",
            "0.052",
            "Shapiro",
            "fitted on one half",
            "five-fold",
            "## Length of the window",
            TITLE_LAST,
            "Floor:",
        ] {
            assert!(text.contains(title), "no {title} in {text}");
        }
        for figure in ["loss-figure-4.svg", "loss-figure-5.svg", "loss-figure-6.svg"] {
            assert!(fs::read_to_string(folder.path().join("figures").join(figure)).unwrap().contains("<svg"));
        }
        // The intervals, the parts of the runs and the simulation are of the seed.
        let simulated = Args { parts: vec![Part::Simulation], ..args(&folder) };
        let last = text.find(TITLE_LAST).unwrap();
        assert!(report(&simulated).unwrap().ends_with(&text[last..]));
    }

    const TITLE_LAST: &str = "## What a classifier is worth";

    #[test]
    fn models_as_they_are_are_not_fitted() {
        let folder = folder(&judge::tests::made(20_000, 1, 1, 2), 20_000);
        let text = report(&Args { shipped: true, ..args(&folder) }).unwrap();
        assert!(
            text.contains("the shipped models, not fitted here") && !text.contains("five-fold"),
            "{text}"
        );
        let missing = Args { model_paper: Some("no such file".into()), ..args(&folder) };
        assert!(report(&missing).unwrap_err().to_string().contains("no such file"));
    }

    #[test]
    fn a_folder_that_is_not_there_tells_how_to_make_one() {
        let folder = tempfile::tempdir().unwrap();
        let away = Args { windows: Some(folder.path().join("away")), ..args(&folder) };
        assert!(report(&away).unwrap_err().to_string().contains("lab signatures --out DIR"));
    }
}
