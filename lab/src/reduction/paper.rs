//! The report on the paper's experiment, and its figures.

use super::args::Args;
use super::experiment::{Experiment, P1, P2};
use super::row::Row;
use super::{links, promises, shapes, tables, times};
use crate::output::{Output, save};

/// Runs, prints the report, and writes the figures.
pub(crate) fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let p1 = Experiment::run(args, P1, "p1")?;
    if args.json {
        return p1.runs.iter().try_for_each(|(strategy, run)| output.json(&Row::of(*strategy, run)));
    }
    let p2 = Experiment::run(args, P2, "p2")?;
    let mut report = "# The reduction of Allen, Wolski and Plank (2002)\n".to_owned();
    report += &tables::markdown(&p1);
    report += &shapes::markdown(&p1);
    report += &promises::markdown(&p1);
    report += &shapes::differences(&p1);
    report += "\n## Figures\n\n";
    for figure in [
        times::statistics(&p1)?,
        times::distribution(&p1)?,
        times::tail(&p1)?,
        links::one(&p1)?,
        links::two(&p1)?,
        links::changing(&p1)?,
    ] {
        let path = save(&args.out, figure.file, &figure.svg)?;
        report += &format!("- {}: {}\n", path.display(), figure.says);
    }
    report += "\n# The same on links that are congested now and then\n";
    report += &tables::markdown(&p2);
    report += &shapes::markdown(&p2);
    output.print(&report)
}
