//! `lab classifier`: scores the paper's classifier and Barograph's on labelled windows, and
//! simulates what their verdicts are worth to a sender. After Dickens, *A Lightweight, High
//! Performance Communication Protocol for Grid Computing*, §3 to §5.

mod figures;
mod judge;
mod matrix;
mod tables;
mod throughput;
mod windows;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_loss::{Classifier, PaperClassifier};
use clap::ValueEnum;

use crate::output::{Output, save};
use judge::Models;
use throughput::Worth;
use windows::Report;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with labelled windows that `lab signatures` made [default: ../shared/signatures]
    #[arg(value_name = "DIR")]
    windows: Option<PathBuf>,
    /// Run only these parts of the study.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::value_variants().iter().copied())]
    parts: Vec<Part>,
    /// Score the models that come with Barograph without fitting; only for the parts tables and
    /// window.
    #[arg(long)]
    shipped: bool,
    /// Folder of a newer set of windows: score the models that come with Barograph on it without
    /// fitting, and draw figures of its queues.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["shipped", "model_default", "model_paper"])]
    fresh: Option<PathBuf>,
    /// Write all tables to classifier-bins.md in this folder, and the short ones between the marks
    /// of its classifier.md.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["shipped", "model_default", "model_paper"])]
    pages: Option<PathBuf>,
    /// Score this model of the default classifier without fitting; only for the parts tables and
    /// window.
    #[arg(long, value_name = "FILE")]
    model_default: Option<PathBuf>,
    /// Score this model of the paper's classifier without fitting; only for the parts tables and
    /// window.
    #[arg(long, value_name = "FILE")]
    model_paper: Option<PathBuf>,
    /// Seed for assigning runs to parts, for the bootstrap intervals and for the simulation.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder to write the figures to.
    #[arg(long, value_name = "DIR", default_value = "lab/figures")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Figures 4 to 6, Table 2, and whether windows are normally distributed
    Figures,
    /// Right and wrong verdicts by kind and loss rate, with each piece of evidence removed
    Tables,
    /// How accuracy depends on the length of a window
    Window,
    /// Table 1: what a classifier is worth to a sender
    Simulation,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let report = report(args)?;
    match &args.pages {
        Some(folder) => report.write(folder, COMMAND),
        None => Output::new(page, false).print(&report.all),
    }
}

const COMMAND: &str = "lab classifier DIR --fresh DIR --pages lab/results";

fn report(args: &Args) -> anyhow::Result<Report> {
    let folder = windows::folder(args.windows.as_deref())?;
    let labelled = windows::read(&folder)?;
    let mut report = Report::default();
    report.add(&format!("# What lost the packets: {} labelled windows\n", labelled.len()));
    let parts = || Part::value_variants().iter().filter(|part| args.parts.contains(part));
    if let Some((models, name)) = as_they_are(args)? {
        for part in parts() {
            match part {
                Part::Tables => report.add(&tables::as_they_are(&labelled, &models, &name, args.seed).all),
                Part::Window => report.add(&of_lengths(&folder, Some(&models), args.seed)?),
                Part::Figures | Part::Simulation => {}
            }
        }
        return Ok(report);
    }
    for part in parts() {
        match part {
            Part::Figures => {
                draw(&args.out, figures::figures(&labelled)?)?;
                report.add(&figures::table_2(&labelled, args.seed)?);
                report.add(&figures::normality(&labelled));
            }
            Part::Tables => {
                let held = tables::held_out(&labelled, args.seed)?;
                report.add(&held.all);
                report.add_short("verdicts", &held.short);
                report.add_short("evidence", &held.matrix);
                let again = tables::reproduction_table(&labelled, args.seed)?;
                report.add(&again);
                report.add_short("reproduction", &again);
            }
            Part::Window => report.add(&of_lengths(&folder, None, args.seed)?),
            Part::Simulation => {
                let Worth { papers_counts, table_1 } =
                    throughput::tables(&labelled, &windows::runs(&folder)?, args.seed)?;
                for (name, tables) in [("worth", papers_counts), ("table-1", table_1)] {
                    report.add(&tables);
                    report.add_short(name, &tables);
                }
            }
        }
    }
    if let Some(folder) = &args.fresh {
        fresh(folder, args, &mut report)?;
    }
    Ok(report)
}

fn fresh(folder: &Path, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let labelled = windows::read(&windows::folder(Some(folder))?)?;
    report.add(&format!("\n# Signatures made anew: {} labelled windows\n", labelled.len()));
    if args.parts.contains(&Part::Figures) {
        draw(&args.out, figures::of_queues(&labelled)?)?;
    }
    let models = Models::new(PaperClassifier::shipped(), Classifier::shipped());
    let scored = tables::as_they_are(&labelled, &models, SHIPPED, args.seed);
    report.add(&scored.all);
    report.add_short("fresh", &scored.short);
    report.add_short("fresh-evidence", &scored.matrix);
    if args.parts.contains(&Part::Window) {
        report.add(&of_lengths(folder, Some(&models), args.seed)?);
    }
    Ok(())
}

fn of_lengths(folder: &Path, models: Option<&Models>, seed: u64) -> anyhow::Result<String> {
    match windows::runs(folder)? {
        runs if runs.is_empty() => {
            Ok("\nThe folder has no runs.txt.gz to cut windows of other lengths from.\n".to_owned())
        }
        runs => tables::length_table(&runs, models, seed),
    }
}

fn draw(out: &Path, figures: Vec<figures::Figure>) -> anyhow::Result<()> {
    figures.iter().try_for_each(|(name, svg)| save(out, name, svg).map(drop))
}

const SHIPPED: &str = "the shipped models";

/// Models given by the options, which are not fitted here, with their name; `None` without such an
/// option.
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
        names.push(SHIPPED.to_owned());
    }
    Ok((!names.is_empty()).then(|| (Models::new(paper, ours), names.join(" and "))))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use barograph_loss::{Label, LabelledWindow};

    use super::*;

    /// Writes windows into a folder in the format of `lab signatures`.
    fn folder(windows: &[LabelledWindow], packets: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut text, mut runs) = (
            String::from(
                "# label\trun\twindow\tkind\tbatch\tpps\trcvbuf\tlost\tloss_rate\tNa17\tC1\tsp\towd_before_loss_us\tsojourn_before_loss_us\tcpu_fraction\trle(ok,lost,ok,lost,...)\n",
            ),
            String::new(),
        );
        for (number, window) in windows.iter().enumerate() {
            let (evidence, metrics) = (&window.evidence, &window.metrics);
            let (label, host) = if window.cause == Label::Host { ("cpu", 1) } else { ("net", 0) };
            let gaps: Vec<(u32, u32)> =
                window.signature.loss_runs().map(|gap| (gap.received, gap.lost)).collect();
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
            parts: Part::value_variants().to_vec(),
            shipped: false,
            fresh: None,
            pages: None,
            model_default: None,
            model_paper: None,
            seed: 1,
            out: folder.path().join("figures"),
        }
    }

    #[test]
    fn the_report_has_the_tables_and_figures_of_all_parts() {
        let folder = folder(&judge::tests::made(100_000, 6, 7, 2), 100_000);
        let text = report(&args(&folder)).unwrap().all;
        for title in [
            "## Table 2",
            "0.052",
            "Shapiro",
            "fitted on one half",
            "five-fold",
            "## Length of the window",
            TITLE_LAST,
            "Floor:",
            "## Table 1, with labels measured in each transfer",
        ] {
            assert!(text.contains(title), "no {title} in {text}");
        }
        for figure in ["loss-figure-4.svg", "loss-figure-5.svg", "loss-figure-6.svg"] {
            assert!(fs::read_to_string(folder.path().join("figures").join(figure)).unwrap().contains("<svg"));
        }
        // The seed decides the intervals, the assignment of runs to parts and the simulation.
        let simulated = Args { parts: vec![Part::Simulation], ..args(&folder) };
        let last = text.find(TITLE_LAST).unwrap();
        assert!(report(&simulated).unwrap().all.ends_with(&text[last..]));
    }

    const TITLE_LAST: &str = "## What a classifier is worth";

    #[test]
    fn shipped_models_are_reported_without_fitting() {
        let folder = folder(&judge::tests::made(20_000, 1, 1, 2), 20_000);
        let text = report(&Args { shipped: true, ..args(&folder) }).unwrap().all;
        assert!(
            text.contains("the shipped models, not fitted here")
                && text.contains("## Length of the window")
                && !text.contains("five-fold"),
            "{text}"
        );
        let missing = Args { model_paper: Some("no such file".into()), ..args(&folder) };
        assert!(report(&missing).unwrap_err().to_string().contains("no such file"));
    }

    #[test]
    fn pages_have_the_tables_of_the_open_and_the_fresh_set() {
        let (open, anew) = (
            folder(&judge::tests::made(20_000, 6, 7, 2), 20_000),
            folder(&judge::tests::made(20_000, 2, 3, 9), 20_000),
        );
        let pages = tempfile::tempdir().unwrap();
        let marks = ["verdicts", "evidence", "reproduction", "fresh", "fresh-evidence"];
        let summary: String =
            marks.map(|mark| format!("<!-- classifier: {mark} -->\nold\n<!-- end -->\n")).concat();
        fs::write(pages.path().join("classifier.md"), summary).unwrap();
        let args = Args {
            fresh: Some(anew.path().to_owned()),
            pages: Some(pages.path().to_owned()),
            parts: vec![Part::Tables],
            ..args(&open)
        };
        run(&args, None).unwrap();
        let [summary, page] = ["classifier.md", "classifier-bins.md"]
            .map(|name| fs::read_to_string(pages.path().join(name)).unwrap());
        assert!(!summary.contains("\nold\n") && summary.contains("30 random assignments"), "{summary}");
        assert!(summary.contains("12 windows of 4 runs"), "{summary}");
        let (_, anew) = page.split_once("# Signatures made anew: 12 labelled windows").unwrap();
        for row in ["– floor", "– goal", "called hybrid at most", "lowered by"] {
            assert!(anew.contains(row) && summary.contains(row), "no {row} in {anew}");
        }
        // The earlier experiment had other windows than the newer set, so only the first tables
        // show it.
        assert!(page.contains("– an earlier") && !anew.contains("– an earlier"), "{anew}");
    }

    #[test]
    fn a_missing_folder_gives_an_error_with_the_command_that_creates_one() {
        let folder = tempfile::tempdir().unwrap();
        let away = Args { windows: Some(folder.path().join("away")), ..args(&folder) };
        assert!(report(&away).unwrap_err().to_string().contains("lab signatures --out DIR"));
    }
}
