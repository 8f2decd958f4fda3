//! `lab probe`: compares the probes with other programs on the same emulated paths, in the same
//! run.

mod exchange;
mod path;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::emulation::is_permitted;
use crate::jobs::bar;
use crate::machine::load;
use crate::output::Output;
use crate::table::{Table, cells, number, shown};
use path::ProbeTestbed;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the numbers as JSON: seconds, bit/s and shares.
    #[arg(long)]
    json: bool,
    /// Fewer exchanges and transfers: about one minute instead of five.
    #[arg(long)]
    quick: bool,
}

#[derive(Serialize)]
struct Findings {
    processors: usize,
    load_before: String,
    load_after: String,
    rows: Vec<Row>,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if !is_permitted("probe")? {
        return Ok(());
    }
    let load_before = load();
    let bar = bar(exchange::STEPS + exchange::transfer_steps(args.quick), "{msg}");
    let testbed = ProbeTestbed::new(bar.clone(), if args.quick { QUICK } else { FULL });
    let mut rows = exchange::rows(&testbed, args.quick);
    rows.extend(exchange::transfer_rows(&testbed, args.quick));
    bar.finish_and_clear();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let findings = Findings { processors, load_before, load_after: load(), rows };
    let output = Output::new(page, args.json);
    output.json(&findings)?;
    let Findings { load_before, load_after, rows, .. } = findings;
    output.print(&format!(
        "# Probes on emulated paths\n\n\
         {processors} processors, load {load_before} before and {load_after} after. Numbers are medians; \
         attempts with an overloaded emulator were repeated or are void.\n\n{}",
        table(&rows)
    ))
}

/// After this time nothing is repeated, so that the whole run takes about one minute, or five.
const QUICK: Duration = Duration::from_secs(30);
const FULL: Duration = Duration::from_secs(190);

/// One quantity on one path, beside the value of another program or of the path.
#[derive(Serialize)]
pub(crate) struct Row {
    measure: String,
    path: String,
    unit: Unit,
    /// Our value, in the base unit (s, bit/s or a share).
    ours: Option<f64>,
    /// Name of the program, or `the path`, to compare with.
    peer: String,
    /// Its value, in the same unit.
    theirs: Option<f64>,
    ratio: Option<f64>,
    goal: Goal,
    verdict: Verdict,
    /// Number of runs and of void ones, and why there is no number.
    note: String,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "s")]
    Milliseconds,
    #[serde(rename = "bit/s")]
    Megabits,
    #[serde(rename = "1")]
    Percent,
}

/// What a value should be.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// The ratio to the peer's value differs from 1 by at most this.
    Within(f64),
    /// Our value lies between these, in the base unit.
    Between(f64, f64),
    /// The value is reported, not judged.
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// The emulator was the bottleneck in every attempt, so there is no number.
    Void,
    /// A program that is needed is not installed.
    Skipped,
    Failed,
    Told,
}

/// What is measured on which path, and its goal. A value makes it a row.
#[derive(Clone)]
pub(crate) struct Comparison {
    pub(crate) measure: String,
    pub(crate) path: String,
    pub(crate) unit: Unit,
    pub(crate) peer: &'static str,
    pub(crate) goal: Goal,
}

impl Comparison {
    pub(crate) fn new(
        measure: &str,
        path: &path::ProbePath,
        unit: Unit,
        peer: &'static str,
        goal: Goal,
    ) -> Self {
        Self { measure: measure.to_owned(), path: path.name.clone(), unit, peer, goal }
    }

    /// Row with our value and the peer's.
    pub(crate) fn row(self, ours: f64, theirs: f64, note: String) -> Row {
        let ratio = ours / theirs;
        let verdict = match self.goal {
            Goal::Within(bound) => Verdict::of((ratio - 1.0).abs() <= bound),
            Goal::Between(low, high) => Verdict::of((low..=high).contains(&ours)),
            Goal::None => Verdict::Told,
        };
        Row {
            ours: Some(ours),
            theirs: Some(theirs),
            ratio: Some(ratio),
            ..self.row_without_value(verdict, note)
        }
    }

    /// Row of something that could not be measured.
    pub(crate) fn row_without_value(self, verdict: Verdict, note: String) -> Row {
        let Self { measure, path, unit, peer, goal } = self;
        let peer = peer.to_owned();
        Row { measure, path, unit, ours: None, peer, theirs: None, ratio: None, goal, verdict, note }
    }
}

impl Verdict {
    fn of(reached: bool) -> Self {
        if reached { Self::Met } else { Self::Missed }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Void => "void",
            Self::Skipped => "skipped",
            Self::Failed => "FAILED",
            Self::Told => "–",
        }
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{:.3} ms", value * 1e3),
            Self::Megabits => format!("{:.2} Mbit/s", value / 1e6),
            Self::Percent => format!("{:.1} %", value * 1e2),
        }
    }
}

impl Goal {
    fn show(self, unit: Unit) -> String {
        match self {
            Self::Within(bound) => format!("1 ± {bound}"),
            Self::Between(low, high) => format!("{} to {}", unit.show(low), unit.show(high)),
            Self::None => "–".to_owned(),
        }
    }
}

pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table =
        Table::new(["measure", "path", "ours", "peer", "theirs", "ratio", "goal", "verdict", "note"])
            .text_columns(9);
    for row in rows {
        let value = |value: Option<f64>| shown(value, |value| row.unit.show(value));
        table.push(cells![
            row.measure,
            row.path,
            value(row.ours),
            row.peer,
            value(row.theirs),
            number(row.ratio, 4),
            row.goal.show(row.unit),
            row.verdict.as_str(),
            row.note,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(goal: Goal) -> Comparison {
        let (measure, path) = ("rtt".to_owned(), "5 ms".to_owned());
        Comparison { measure, path, unit: Unit::Milliseconds, peer: "bare", goal }
    }

    #[test]
    fn a_goal_is_met_at_its_bound_and_missed_beyond_it() {
        for (goal, ours, expected) in [
            (Goal::Within(0.25), 1.25, Verdict::Met),
            (Goal::Within(0.25), 0.75, Verdict::Met),
            (Goal::Within(0.25), 1.26, Verdict::Missed),
            (Goal::Within(0.25), 0.74, Verdict::Missed),
            (Goal::Within(0.25), f64::NAN, Verdict::Missed),
            (Goal::Between(0.5, 2.0), 0.5, Verdict::Met),
            (Goal::Between(0.5, 2.0), 2.1, Verdict::Missed),
            (Goal::None, 9.0, Verdict::Told),
        ] {
            assert_eq!(comparison(goal).row(ours, 1.0, String::new()).verdict, expected, "{ours}");
        }
    }

    #[test]
    fn a_void_row_shows_no_number() {
        let row = comparison(Goal::Within(0.01)).row_without_value(Verdict::Void, "busy".to_owned());
        let text = table(&[row]).to_string();
        let line = text.lines().nth(2).expect("a header, a rule and a row");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells[3..6], ["–", "bare", "–"]);
        assert_eq!(cells[8..10], ["void", "busy"]);
    }
}
