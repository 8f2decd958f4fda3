//! `lab equivalence`: whether a page in a browser measures what a native program measures, after Krintz and Wolski,
//! "JavaNws: The Network Weather Service for the Desktop" (1999), §4 and §5: their Java is our page, their C is Rust.

mod args;
mod asked;
mod browser;
mod buffers;
mod collect;
mod figures;
mod json;
mod link;
mod native;
mod overhead;
mod rates;
mod results;
mod tables;
mod websocket;

use std::path::Path as FilePath;

use anyhow::{Context as _, bail};
use barograph_probe::io::Cancel;
use barograph_sim::say_skipped;

pub(crate) use args::Args;
use args::LinkName;
use collect::LinkStudy;
use link::{Path, Replayed};
use results::{Results, Variation};

use crate::emulation::is_permitted;
use crate::jobs::stop_on_signal;
use crate::output::Output;

/// Measures, writes and prints.
pub(crate) fn run(args: &Args, page: Option<&FilePath>) -> anyhow::Result<()> {
    if let Some(missing) = browser::missing(&args.chromium) {
        say_skipped(&format!("lab equivalence: {missing}"));
        return Ok(());
    }
    if !is_permitted("equivalence")? {
        return Ok(());
    }
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let cancel = stop_on_signal()?;
    let replayed = Replayed::new(args.jitter.as_deref())?;
    let paths: anyhow::Result<Vec<Path>> = args.links.iter().map(|name| Path::of(*name, &replayed)).collect();
    let mut results = Results { jitter: Some(Variation::of(&replayed)), ..Results::default() };
    for path in paths? {
        if cancel.is_cancelled() {
            break;
        }
        if 0 < args.pairs {
            link(&path, args, &cancel, &mut results);
        }
        if 0 < args.rate_rounds && !cancel.is_cancelled() {
            match rates::of_link(&path, args, &cancel) {
                Ok(rates) => results.rates.push(rates),
                Err(error) => eprintln!("{}: {error:#}", path.name),
            }
        }
    }
    if args.links.contains(&LinkName::Fast) && 0 < args.buffer_pairs {
        results.buffers = buffers::rows(&Path::of(LinkName::Fast, &replayed)?, args, &cancel);
    }
    results.is_cancelled = cancel.is_cancelled();
    let output = Output::new(page, args.json);
    output.json(&json::json(&results))?;
    output.print(&tables::all(&results))?;
    if let Some(directory) = &args.out {
        match figures::write(&results.links, directory) {
            Ok(told) => output.print(&told)?,
            Err(error) => eprintln!("{error:#}"),
        }
    }
    match results.links.iter().find(|link| !link.has_pairs()) {
        Some(link) if !results.is_cancelled => {
            bail!("{}: {}", link.name, link.stopped.as_deref().unwrap_or("nothing was measured"))
        }
        _ => Ok(()),
    }
}

/// Measures one link; whatever goes wrong is told of it, and the next one has its turn.
fn link(path: &Path, args: &Args, cancel: &Cancel, results: &mut Results) {
    let measured = path.bench(args).and_then(|mut bench| {
        let study = collect::pairs(&mut bench, args, cancel)?;
        Ok((bench, study))
    });
    let (mut bench, study) = match measured {
        Ok(both) => both,
        Err(error) => {
            eprintln!("{}: {error:#}", path.name);
            results.links.push(LinkStudy::failed(path, &error));
            return;
        }
    };
    // At once: what was measured is not to depend on what comes after.
    if let Some(directory) = &args.out
        && let Err(error) = collect::write_csv(&study, directory)
    {
        eprintln!("{}: {error:#}", path.name);
    }
    let is_measured = study.stopped.is_none();
    results.links.push(study);
    results.browsers.push(bench.ready.clone());
    if path.is_loopback && is_measured && !cancel.is_cancelled() {
        results.overhead = overhead::by_clock(&mut bench, args, cancel);
    }
}
