//! What a mesh loses when its parts die: a station that appends without a pause, what holds the mesh together – a
//! station that was joined, one NATS server, or three – and an archive, each a process of its own, and one
//! fault a row.

mod args;
mod child;
mod clock;
mod disk;
mod mesh;
mod reflection;
mod relay;
mod row;
mod said;
mod scenario;
mod watch;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};

pub(crate) use self::args::Args;
use self::args::Engine;
use self::row::Row;
use crate::nats::program;
use crate::output::Output;

/// Runs every scenario and prints a row for each, with what is under way on the standard error.
pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if let Some(part) = args.child {
        return child::run(part, args);
    }
    let server = program(args.server.as_deref());
    let output = Output::new(args.out.as_deref().or(page), args.json);
    output.begin(TITLE)?;
    output.print(Row::HEAD)?;
    let began = Instant::now();
    let mut failed = 0;
    for engine in Engine::ALL.into_iter().filter(|engine| args.engine.is_none_or(|only| only == *engine)) {
        if engine != Engine::Remote && server.is_none() {
            eprintln!(
                "SKIPPED: {}: there is no nats-server (scripts/install-test-needs gets it)",
                engine.shown()
            );
            continue;
        }
        let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
        for scenario in scenario::of(engine).filter(|scenario| wanted(scenario.name)) {
            eprintln!("{:>5.0} s: {}, {}", began.elapsed().as_secs_f64(), engine.shown(), scenario.name);
            let row = scenario.run(engine, server.as_deref());
            let row = row.with_context(|| format!("{}, `{}`", engine.shown(), scenario.name));
            let row = match row {
                Ok(Some(row)) => row,
                Ok(None) => continue,
                // The others are run all the same.
                Err(error) => {
                    eprintln!("FAILED: {error:#}");
                    failed += 1;
                    continue;
                }
            };
            if let Some(sign) = &row.sign {
                eprintln!("        noticed by: {sign}");
            }
            output.json(&row)?;
            output.print(&row.to_string())?;
        }
    }
    ensure!(failed == 0, "{failed} rows failed");
    Ok(())
}

/// What the page begins with.
const TITLE: &str = "\
# What a mesh loses when its parts die

[The lab's README](../README.md#what-a-mesh-loses-when-its-parts-die) has what each column means.

";
