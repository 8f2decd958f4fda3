//! `lab probe`: the probes against what others measure on the same emulated paths, in the same run.

#[cfg(target_os = "linux")]
mod exchange;
#[cfg(target_os = "linux")]
mod path;
#[cfg(target_os = "linux")]
mod peer;
#[cfg(target_os = "linux")]
mod row;
#[cfg(target_os = "linux")]
mod transfer;

/// What `lab probe` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the numbers as JSON: seconds, bit/s and shares.
    #[arg(long)]
    json: bool,
    /// Fewer exchanges and transfers: about a minute instead of five.
    #[arg(long)]
    quick: bool,
}

/// Emulated paths are made of Linux's network namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { json: _, quick: _ } = args;
    eprintln!("SKIPPED: lab probe needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::run;

#[cfg(target_os = "linux")]
mod linux {
    use std::io::Write;
    use std::time::Duration;

    use anyhow::Context;
    use barograph_sim::{Error, Link, Network, say_skipped};
    use indicatif::{ProgressBar, ProgressStyle};
    use serde::Serialize;

    use super::path::Bench;
    use super::row::{Row, markdown};
    use super::{Args, exchange, transfer};

    /// Everything that was measured, and how busy the machine was meanwhile.
    #[derive(Serialize)]
    struct Findings {
        processors: usize,
        load_before: String,
        load_after: String,
        rows: Vec<Row>,
    }

    /// Measures and prints.
    pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
        match Network::new(Link::Veth { rate_bps: None }) {
            Err(error @ Error::NotPermitted { .. }) => {
                say_skipped(&format!("lab probe: {error}"));
                return Ok(());
            }
            tried => drop(tried.context("cannot make an emulated network")?),
        }
        let load_before = load();
        let rows = measure(args.quick);
        let findings = Findings {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_before,
            load_after: load(),
            rows,
        };
        let text = if args.json { serde_json::to_string(&findings)? + "\n" } else { report(&findings) };
        std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
    }

    fn measure(quick: bool) -> Vec<Row> {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let steps = exchange::STEPS + transfer::steps(quick);
        let bar = ProgressBar::new(steps).with_style(style);
        let bench = Bench::new(bar.clone(), if quick { QUICK } else { FULL });
        let mut rows = exchange::rows(&bench, quick);
        rows.extend(transfer::rows(&bench, quick));
        bar.finish_and_clear();
        rows
    }

    fn report(findings: &Findings) -> String {
        let Findings { processors, load_before, load_after, rows } = findings;
        format!(
            "# Probes on emulated paths\n\n\
             {processors} processors, load {load_before} before and {load_after} after. Numbers are medians; \
             what an overloaded emulator spoilt was repeated or is void.\n\n{}",
            markdown(rows)
        )
    }

    /// The machine's load over the last minute.
    fn load() -> String {
        let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        loads.split(' ').next().unwrap_or_default().to_owned()
    }

    /// After so long nothing is repeated any more, so that the whole ends in about a minute, or in five.
    const QUICK: Duration = Duration::from_secs(30);
    const FULL: Duration = Duration::from_secs(190);
}
