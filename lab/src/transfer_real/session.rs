//! A run of the study: state that all its parts share, estimated times of its cells, and its
//! output.

use std::ops::{Add, AddAssign};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::{Link, Network};
use barograph_transfer::controller::ControllerKind;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::Args;
use super::flow::{Flow, FlowResult, Ours, measured};
use super::peer::{Peer, ProgramTestbed, Tools};
use crate::emulation::{forget_connections, invalid_reason, set_tcp};
use crate::jobs::{self, bar_like};
use crate::output::Output;
use crate::signatures::host::Cpus;
use crate::stats::median;
use crate::table::{Section, Table, Widths, shown};

pub(crate) struct Session {
    /// Measured time of a run (s).
    pub(crate) seconds: u64,
    pub(crate) is_full: bool,
    pub(crate) seed: u64,
    /// Number of cells that may run at the same time if the machine has room for them.
    pub(crate) at_once: usize,
    only: Vec<String>,
    paths: Vec<String>,
    pub(crate) cpus: Cpus,
    pub(crate) tools: Tools,
    pub(crate) disk: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) report: Report,
    bar: ProgressBar,
    progress: Mutex<Progress>,
}

/// Progress of the run, by the estimates of its cells.
struct Progress {
    all: Plan,
    done: Plan,
    began: Instant,
}

impl Session {
    pub(crate) fn new(args: &Args, page: Option<&std::path::Path>) -> anyhow::Result<Self> {
        let bar = bar_like(0, "{bar:30} {msg}");
        Ok(Self {
            seconds: args.seconds.unwrap_or(if args.full { 20 } else { 2 }),
            is_full: args.full,
            seed: args.seed,
            at_once: args.at_once,
            only: args.only.clone(),
            paths: args.paths.clone(),
            cpus: Cpus::find()?,
            tools: Tools::new()?,
            disk: args.disk.clone().unwrap_or_else(std::env::temp_dir),
            // Absolute, because processes in other folders start it.
            program: std::path::absolute(&args.program)?,
            report: Report::new(Output::new(page, args.json).beside(bar.clone())),
            bar,
            progress: Mutex::new(Progress {
                all: Plan::default(),
                done: Plan::default(),
                began: Instant::now(),
            }),
        })
    }

    pub(crate) fn begin(&self, all: Plan) {
        self.bar.set_length(all.time.as_secs());
        self.progress().all = all;
        self.bar.enable_steady_tick(Duration::from_secs(1));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        let text = {
            let progress = self.progress();
            let left = progress.left();
            let cell = (progress.done.cells + 1).min(progress.all.cells);
            format!("cell {cell} of {}, {} left: {}", progress.all.cells, for_people(left), what.into())
        };
        self.bar.set_message(text);
    }

    /// Measures a cell that was planned, and shows it as progress.
    pub(crate) fn cell<T>(&self, what: impl Into<String>, plan: Plan, measure: impl FnOnce() -> T) -> T {
        self.note(what);
        let found = measure();
        let now = self.progress().done + plan;
        self.reach(now);
        found
    }

    pub(crate) fn reach(&self, done: Plan) {
        self.progress().done = done;
        self.bar.set_position(done.time.as_secs());
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn wants_path(&self, name: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|part| name.contains(part.as_str()))
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// The requested controllers: all, or in short runs the most informative.
    pub(crate) fn kinds(&self) -> Vec<ControllerKind> {
        self.kinds_of(&ControllerKind::ALL, &[ControllerKind::Model, ControllerKind::HighSpeed])
    }

    /// The requested ones of `full`, or in short runs of `quick`.
    pub(crate) fn kinds_of(&self, full: &[ControllerKind], quick: &[ControllerKind]) -> Vec<ControllerKind> {
        let kinds = if self.is_full { full } else { quick };
        kinds.iter().copied().filter(|kind| self.wants(kind.name())).collect()
    }

    /// Runs a flow of ours alone on a fresh link; returns its goodput (bit/s) after `start`, over
    /// `time`, and its details.
    pub(crate) fn ours(
        &self,
        link: &Link,
        ours: &Ours,
        start: Duration,
        time: Duration,
    ) -> anyhow::Result<Run> {
        let network = Network::new(link.clone())?;
        let flow = Flow::start(&network, ours)?;
        let [from_ms, to_ms] = measured(start, time);
        let result = flow.stop()?;
        let invalid_reason = invalid_reason(&network);
        Ok(Run { bps: result.bps(from_ms, to_ms), result, invalid_reason })
    }

    /// Runs another program alone on a fresh link; returns its rate (bit/s), and why it is void if
    /// it is.
    pub(crate) fn peer(
        &self,
        link: &Link,
        rate_bps: Option<u64>,
        peer: Peer,
        seconds: u64,
    ) -> anyhow::Result<(f64, Option<String>)> {
        let network = Network::new(link.clone())?;
        prepare_tcp(&network, peer)?;
        let bps = peer.measure(&ProgramTestbed {
            network: &network,
            tools: &self.tools,
            seconds,
            rate_bps,
            job: None,
        })?;
        Ok((bps, invalid_reason(&network)))
    }
}

/// Prepares TCP in both namespaces for `peer`: without memory of earlier connections and, for a
/// program that does not choose its congestion control, with Linux's default.
///
/// # Errors
/// The namespaces' default is another algorithm, and this machine does not permit to change it.
pub(crate) fn prepare_tcp(network: &Network, peer: Peer) -> anyhow::Result<()> {
    forget_connections(network)?;
    if !peer.uses_default_congestion_control() {
        return Ok(());
    }
    for host in [&network.a, &network.b] {
        let read = |name: &str| {
            let path = format!("/proc/sys/net/ipv4/{name}");
            let text =
                host.run(|| std::fs::read_to_string(&path))?.with_context(|| format!("cannot read {path}"));
            text.map(|text| text.trim().to_owned())
        };
        // A namespace begins with the machine's default. It accepts another algorithm only from the
        // machine's list of those permitted to every user, also as root (Linux,
        // `tcp_set_default_congestion_control`).
        let default = "tcp_congestion_control";
        if read(default)? != TCP {
            set_tcp(host, default, TCP).with_context(|| {
                let allowed = read("tcp_allowed_congestion_control").unwrap_or_default();
                format!(
                    "programs with the default congestion control cannot use {TCP} here; to permit it, run \
                     sysctl -w net.ipv4.tcp_allowed_congestion_control='{allowed} {TCP}'"
                )
            })?;
        }
    }
    Ok(())
}

/// Linux's own default (net/ipv4/Kconfig, DEFAULT_TCP_CONG).
pub(crate) const TCP: &str = "cubic";

impl Progress {
    /// Remaining time by the estimates, scaled by their accuracy so far.
    fn left(&self) -> Duration {
        let left = self.all.time.saturating_sub(self.done.time);
        let done_s = self.done.time.as_secs_f64();
        // At first the estimates alone are more accurate.
        if done_s < 10.0 {
            return left;
        }
        left.mul_f64((self.began.elapsed().as_secs_f64() / done_s).clamp(0.2, 5.0))
    }
}

pub(crate) struct Run {
    pub(crate) bps: f64,
    pub(crate) result: FlowResult,
    pub(crate) invalid_reason: Option<String>,
}

/// Rates (bit/s) of the rounds of a row, and the last failure if one failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) bps: Vec<f64>,
    pub(crate) failure: Option<String>,
}

impl Rounds {
    pub(crate) fn add(&mut self, measured: anyhow::Result<f64>) {
        match measured {
            Ok(bps) => self.bps.push(bps),
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }

    pub(crate) fn median(&self) -> Option<f64> {
        median(&self.bps)
    }

    /// The median as text; if some rounds failed, also how many of `rounds` did not.
    pub(crate) fn told(&self, rounds: usize) -> String {
        match (self.median(), self.failure.as_deref()) {
            (Some(rate), None) => gbit_s(rate),
            (Some(rate), Some(why)) => {
                format!("{} ({} of {rounds} rounds: {why})", gbit_s(rate), self.bps.len())
            }
            (None, why) => format!("did not run: {}", why.unwrap_or_default()),
        }
    }
}

pub(crate) fn gbit_s(bps: f64) -> String {
    if bps < 1e9 { format!("{:.0} Mbit/s", bps / 1e6) } else { format!("{:.2} Gbit/s", bps / 1e9) }
}

/// A ratio of two rates; a dash if there is none.
pub(crate) fn ratio(bps: f64, to: Option<f64>) -> String {
    shown(to.filter(|to| *to > 0.0), |to| format!("{:.2}", bps / to))
}

/// Output of all parts, and all numbers that were printed.
pub(crate) struct Report {
    output: Output,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    part: String,
    rows: Vec<(String, Value)>,
    /// A table before its first row, and the width of its first cells.
    coming: Option<(Table, usize)>,
    widths: Widths,
}

impl Report {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, state: Mutex::default() }
    }

    pub(crate) fn begin_part(&self, name: &str) {
        name.clone_into(&mut self.state().part);
    }

    pub(crate) fn say(&self, text: &str) -> anyhow::Result<()> {
        self.output.print(text)
    }

    /// Prints the head of a table. Its rows follow, with these first cells.
    pub(crate) fn begin(
        &self,
        title: &str,
        legend: &str,
        table: Table,
        first_cells: impl Iterator<Item = String>,
    ) -> anyhow::Result<()> {
        let width = first_cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        self.state().coming = Some((table, width));
        self.say(&format!("\n## {title}\n\n{legend}\n\n"))
    }

    /// Prints a row and stores its numbers. The first row sets the widths of the columns.
    pub(crate) fn row(&self, cells: &[String], numbers: Vec<Value>) -> anyhow::Result<()> {
        let text = {
            let mut state = self.state();
            let head = state.coming.take().map(|(table, first_width)| table.head(cells, first_width));
            let head = head.map(|(widths, head)| {
                state.widths = widths;
                head
            });
            head.unwrap_or_default() + &state.widths.line(cells)
        };
        self.say(&text)?;
        self.numbers(numbers)
    }

    pub(crate) fn end(&self, lines: &[String]) -> anyhow::Result<()> {
        self.say(&format!("\n{}", lines.concat()))
    }

    pub(crate) fn section(&self, section: Section) -> anyhow::Result<()> {
        self.say(&section.text)?;
        self.numbers(section.rows)
    }

    pub(crate) fn rows_of(&self, part: &str) -> Vec<Value> {
        let state = self.state();
        state.rows.iter().filter(|(of, _)| of == part).map(|(_, row)| row.clone()).collect()
    }

    fn numbers(&self, numbers: Vec<Value>) -> anyhow::Result<()> {
        let part = self.state().part.clone();
        for row in numbers {
            self.output.json(&json!({ "part": part, "row": row }))?;
            self.state().rows.push((part.clone(), row));
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) cells: u64,
    pub(crate) time: Duration,
}

impl Plan {
    /// `cells` cells that take `each`, with `at_once` at the same time.
    pub(crate) fn of(cells: u64, each: Duration, at_once: usize) -> Self {
        Self { cells, time: each * u32::try_from(cells).unwrap_or(u32::MAX) / at_once.max(1) as u32 }
    }
}

impl Add for Plan {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cells: self.cells + other.cells, time: self.time + other.time }
    }
}

impl AddAssign for Plan {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Plan {
    fn sum<I: Iterator<Item = Self>>(plans: I) -> Self {
        plans.fold(Self::default(), Add::add)
    }
}

/// Number of jobs that run at the same time, reduced if that voids them.
pub(crate) struct Lanes(usize);

impl Lanes {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(at_once.max(1))
    }

    /// Runs all jobs and returns their results in order. A job that is void because of concurrent
    /// ones is repeated alone. If more than a third is void, later jobs run alone.
    pub(crate) fn run<J: Sync, T: Send>(
        &mut self,
        jobs: &[J],
        run: impl Fn(&J) -> T + Sync,
        is_invalid: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        if self.0 == 1 {
            return jobs.iter().map(run).collect();
        }
        let found = jobs::at_once(jobs, self.0, &run);
        let invalid = found.iter().filter(|came| is_invalid(came)).count();
        if jobs.len() < 3 * invalid {
            self.0 = 1;
        }
        let again = |(came, job): (T, &J)| if is_invalid(&came) { run(job) } else { came };
        found.into_iter().zip(jobs).map(again).collect()
    }
}

pub(crate) fn for_people(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// Time of a run beyond its measured time: two namespaces, two processes, their end (0.3 s here),
/// and a reserve for a busy machine.
pub(crate) const AROUND: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    Least(f64),
    Most(f64),
    Within(f64, f64),
}

/// A line with a goal, the value that was found, and whether it meets the goal.
pub(crate) fn goal_line(what: &str, bound: Bound, found: Option<f64>) -> String {
    let text = bound_name(bound);
    let found = match found.filter(|found| found.is_finite()) {
        Some(found) => format!("{found:.3}, {}", if is_within(found, bound) { "met" } else { "MISSED" }),
        None => "not measured".to_owned(),
    };
    format!("- {what}, {text}: {found}\n")
}

/// As [`goal_line`], for an event that was measured never to occur.
pub(crate) fn goal_never(what: &str, bound: Bound) -> String {
    format!("- {what}, {}: never, MISSED\n", bound_name(bound))
}

fn bound_name(bound: Bound) -> String {
    match bound {
        Bound::Least(least) => format!("at least {least}"),
        Bound::Most(most) => format!("at most {most}"),
        Bound::Within(least, most) => format!("{least} to {most}"),
    }
}

fn is_within(found: f64, bound: Bound) -> bool {
    match bound {
        Bound::Least(least) => least <= found,
        Bound::Most(most) => found <= most,
        Bound::Within(least, most) => (least..=most).contains(&found),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn numbers_are_kept_by_part() {
        let report = Report::new(Output::new(None, false));
        for (part, number) in [("network", 1), ("busy", 2), ("network", 3)] {
            report.begin_part(part);
            report.numbers(vec![json!(number)]).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(report.rows_of("network"), [json!(1), json!(3)]);
        assert!(report.rows_of("files").is_empty());
    }

    #[test]
    fn void_jobs_run_again_alone() {
        let runs = AtomicUsize::new(0);
        let jobs: Vec<usize> = (0..20).collect();
        // The odd jobs are void the first time that they run.
        let seen: Mutex<Vec<usize>> = Mutex::default();
        let mut lanes = Lanes::new(3);
        let found = lanes.run(
            &jobs,
            |job| {
                runs.fetch_add(1, Ordering::Relaxed);
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let is_first = !seen.contains(job);
                seen.push(*job);
                (*job, is_first && job % 2 == 1)
            },
            |(_, is_invalid)| *is_invalid,
        );
        assert_eq!(found, jobs.iter().map(|job| (*job, false)).collect::<Vec<_>>());
        assert_eq!(runs.load(Ordering::Relaxed), 30);
        assert_eq!(lanes.0, 1, "half of them were invalid");
    }

    #[test]
    fn void_jobs_are_not_repeated_if_there_is_one_lane() {
        let runs = AtomicUsize::new(0);
        let found =
            Lanes::new(1).run(&[1, 2, 3], |job| (runs.fetch_add(1, Ordering::Relaxed), *job).1, |_| true);
        assert_eq!(found, [1, 2, 3]);
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn plans_add_up_cells_and_time() {
        let plan = Plan::of(6, Duration::from_secs(10), 2) + Plan::of(1, Duration::from_secs(5), 1);
        assert_eq!(plan, Plan { cells: 7, time: Duration::from_secs(35) });
        assert_eq!(for_people(plan.time), "35 s");
        assert_eq!(for_people(Duration::from_secs(600)), "10 min");
    }

    #[test]
    fn a_goal_line_states_whether_the_goal_is_met() {
        assert_eq!(goal_line("a", Bound::Least(0.8), Some(0.9)), "- a, at least 0.8: 0.900, met\n");
        assert_eq!(goal_line("a", Bound::Most(0.8), Some(0.9)), "- a, at most 0.8: 0.900, MISSED\n");
        assert_eq!(goal_line("a", Bound::Within(0.5, 2.0), Some(2.1)), "- a, 0.5 to 2: 2.100, MISSED\n");
        assert_eq!(goal_never("a", Bound::Most(30.0)), "- a, at most 30: never, MISSED\n");
        assert_eq!(goal_line("a", Bound::Least(0.8), None), "- a, at least 0.8: not measured\n");
        assert_eq!(goal_line("a", Bound::Least(0.8), Some(f64::NAN)), "- a, at least 0.8: not measured\n");
    }
}
