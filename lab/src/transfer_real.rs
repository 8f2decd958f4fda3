//! `lab transfer-real`: transfers between two hosts of this machine, over real sockets, beside what others do on the same links.

mod args;
mod beside;
mod busy;
mod cells;
mod cross;
mod fairness;
mod figures;
mod files;
mod flow;
mod goal;
mod job;
mod line_rate;
mod memory;
mod mover;
mod path;
mod peer;
mod raw;
mod report;
mod session;
mod uncontended;
mod worker;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

pub(crate) use args::Args;
use args::Part;
use cells::{Plan, for_people};
use session::{Session, TCP};

use crate::emulation::is_permitted;
use crate::machine;

/// Runs what was asked for and prints it, each part when it is done, and those that take long row by row.
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
    let parts: Vec<Part> = Part::ALL.into_iter().filter(|part| args.parts.contains(part)).collect();
    say_plan(&session, &parts, args.plan)?;
    if args.plan {
        return Ok(());
    }
    let (mut planned, mut failures) = (Plan::default(), Vec::new());
    for part in parts {
        session.report.begin_part(&part.name());
        let ((plan, run), began) = (study(part), Instant::now());
        // What one part cannot do is no reason to lose the others.
        if let Err(error) = run(&session) {
            session.report.say(&format!("\n{} ended: {error:#}\n", part.name()))?;
            failures.push(format!("{}: {error:#}", part.name()));
        }
        planned += plan(&session);
        session.reach(planned);
        session.report.say(&format!("\nMade in {}.\n", for_people(began.elapsed())))?;
        if let Some(folder) = &args.figures {
            figures::write(part, &session.report.rows_of(&part.name()), folder)?;
        }
    }
    session.end();
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// What a process of the experiment is, by what its [`worker::Worker`] was started as.
#[derive(Deserialize)]
enum Role {
    RawSend(raw::SendPlan),
    RawReceive(raw::ReceivePlan),
    Send(flow::SendPlan),
    Receive(flow::ReceivePlan),
}

fn play(role: &str) -> anyhow::Result<()> {
    match serde_json::from_str(role).context("--role is for the experiment alone")? {
        Role::RawSend(plan) => raw::send(&plan),
        Role::RawReceive(plan) => raw::receive(&plan),
        Role::Send(plan) => flow::send(&plan),
        Role::Receive(plan) => flow::receive(&plan),
    }
}

/// How much a part has to do, and what does it.
type Study = (fn(&Session) -> Plan, fn(&Session) -> anyhow::Result<()>);

fn study(part: Part) -> Study {
    match part {
        Part::Uncontended => (uncontended::plan, uncontended::run),
        Part::Files => (files::plan, files::run),
        Part::LineRate => (line_rate::plan, line_rate::run),
        Part::Busy => (busy::plan, busy::run),
        Part::Network => (path::plan, path::run),
        Part::Cross => (cross::plan, cross::run),
        Part::Fairness => (fairness::plan, fairness::run),
        Part::Mover => (mover::plan, mover::run),
    }
}

/// Says what will be measured, and about how long that takes, on the standard error.
fn say_plan(session: &Session, parts: &[Part], is_all: bool) -> anyhow::Result<()> {
    let plans: Vec<(String, Plan)> =
        parts.iter().map(|part| (part.name(), study(*part).0(session))).collect();
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
