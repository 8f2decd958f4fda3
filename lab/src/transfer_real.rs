//! `lab transfer-real`: transfers between two network namespaces of this machine, over real
//! sockets, beside other programs on the same links.

mod busy;
mod contention;
mod cross;
mod fairness;
mod figures;
mod files;
mod flow;
mod line_rate;
mod mover;
mod path;
mod peer;
mod raw;
mod session;
mod uncontended;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::Deserialize;

use crate::emulation::is_permitted;
use crate::machine;
use crate::output::name;
use session::{Plan, Session, TCP, for_people};

/// Runs the requested parts and prints each one when it ends; long ones row by row.
pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if let Some(role) = &args.role {
        return play(role);
    }
    if !is_permitted("transfer-real")? {
        return Ok(());
    }
    if let Some(folder) = &args.figures {
        std::fs::create_dir_all(folder).with_context(|| format!("--figures {}", folder.display()))?;
    }
    let session = Session::new(args, page)?;
    let parts: Vec<Part> =
        Part::value_variants().iter().copied().filter(|part| args.parts.contains(part)).collect();
    say_plan(&session, &parts, args.plan)?;
    if args.plan {
        return Ok(());
    }
    let (mut planned, mut failures) = (Plan::default(), Vec::new());
    for part in parts {
        let name = name(part);
        session.report.begin_part(&name);
        let ((plan, run), began) = (study(part), Instant::now());
        // The other parts run even if one fails.
        if let Err(error) = run(&session) {
            session.report.say(&format!("\n{name} ended: {error:#}\n"))?;
            failures.push(format!("{name}: {error:#}"));
        }
        planned += plan(&session);
        session.reach(planned);
        session.report.say(&format!("\nMade in {}.\n", for_people(began.elapsed())))?;
        if let Some(folder) = &args.figures {
            figures::write(part, &session.report.rows_of(&name), folder)?;
        }
    }
    session.end();
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// Role of a process of the experiment, from the arguments with which a [`flow::Worker`] starts it.
#[derive(Deserialize)]
enum Role {
    RawSend(raw::SendPlan),
    RawReceive(raw::ReceivePlan),
    Send(flow::SendPlan),
    Receive(flow::ReceivePlan),
}

fn play(role: &str) -> anyhow::Result<()> {
    match serde_json::from_str(role).context("--role is only for processes of the experiment")? {
        Role::RawSend(plan) => raw::send(&plan),
        Role::RawReceive(plan) => raw::receive(&plan),
        Role::Send(plan) => flow::send(&plan),
        Role::Receive(plan) => flow::receive(&plan),
    }
}

/// Functions that plan and run a part.
type PartStudy = (fn(&Session) -> Plan, fn(&Session) -> anyhow::Result<()>);

fn study(part: Part) -> PartStudy {
    match part {
        Part::Uncontended => (uncontended::plan, uncontended::run),
        Part::Files => (files::plan, files::run),
        Part::LineRate => (line_rate::plan, line_rate::run),
        Part::Busy => (busy::plan, busy::run),
        Part::Contention => (contention::plan, contention::run),
        Part::Network => (path::plan, path::run),
        Part::Cross => (cross::plan, cross::run),
        Part::Fairness => (fairness::plan, fairness::run),
        Part::Mover => (mover::plan, mover::run),
    }
}

/// Prints on standard error what will be measured and the estimated time.
fn say_plan(session: &Session, parts: &[Part], is_all: bool) -> anyhow::Result<()> {
    let plans: Vec<(String, Plan)> =
        parts.iter().map(|part| (name(*part), study(*part).0(session))).collect();
    let all: Plan = plans.iter().map(|(_, plan)| *plan).sum();
    let part =
        |(name, plan): &(String, Plan)| format!("{name} {} ({} cells)", for_people(plan.time), plan.cells);
    let of_parts = crate::table::list(plans.iter().map(part));
    eprintln!("About {} for {} cells: {of_parts}.", for_people(all.time), all.cells);
    if is_all {
        return Ok(());
    }
    session.begin(all);
    session.report.say(&format!(
        "# Transfers over real sockets\n\n{}; {}; {}. Load of the machine at the start: {}. TCP of programs that do not choose (scp, rsync, GridFTP): {TCP}. Runs of {} s, seed {}, {} at once where there is room.\n",
        machine::kernel(),
        machine::processors(),
        machine::memory(),
        machine::load(),
        session.seconds,
        session.seed,
        session.at_once
    ))
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these parts of the study.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::value_variants().iter().copied())]
    pub(crate) parts: Vec<Part>,
    /// Measured time of each run (s). [default: 2; with --full 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: Option<u64>,
    /// Longer runs, more pairs, and all paths.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only rows of `uncontended`, `files` and `fairness`, columns of `network` and `cross`, and
    /// controllers of `contention`, with one of these texts in their names; separated by `;`.
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    pub(crate) only: Vec<String>,
    /// Only paths of `network` and `cross`, and causes of `contention`, with one of these texts in
    /// their names, such as `300 Mbit/s`, `100 ms, 0.1 %` or `quota`; separated by `;`.
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    pub(crate) paths: Vec<String>,
    /// Cells of `network`, `cross` and `fairness` that may run at the same time, if the relay can
    /// carry them; a void cell is repeated alone.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_once)]
    pub(crate) at_once: usize,
    /// Only print how long it would take.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Write figures of `network` and `uncontended` into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,
    /// Seed of losses, loads and probes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for source and target files of `files` [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// Program `barograph`, of a release build.
    #[arg(long, value_name = "FILE", default_value = "target/release/barograph")]
    pub(crate) program: PathBuf,
    /// Print a line of JSON for each row.
    #[arg(long)]
    pub(crate) json: bool,
    /// Role of a process that the experiment starts.
    #[arg(long, hide = true)]
    pub(crate) role: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Alone between two hosts, from memory to memory: the machine's limit, other programs,
    /// Barograph
    Uncontended,
    /// From disk to disk: one file, one file to a slow disk, and many small files, beside other
    /// programs that copy files
    Files,
    /// Section 5 of the paper: a fixed rate, with and without the classifier beside the transfer
    LineRate,
    /// To a host that does not always read
    Busy,
    /// The paper's Table 1 over real sockets: 65 ms, contention for the host, for the network and
    /// for both, with the receiver's counter, by the pattern, and without a classifier
    Contention,
    /// Through bottlenecks with delay and loss: every controller, and other programs
    Network,
    /// Beside on-off datagrams, and beside TCP: throughput of the flow and of the others
    Cross,
    /// Beside cubic and bbr, and among four of a kind
    Fairness,
    /// Section 8 of the paper: to a busy host with idle time on its other processor
    Mover,
}

/// More than any tested machine can carry.
fn at_once(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=16).contains(count)).ok_or_else(|| "1 to 16".to_owned())
}
