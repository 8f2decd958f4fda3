//! `lab equivalence`: whether a page in a browser measures what a native program measures, after Krintz and Wolski,
//! "JavaNws: The Network Weather Service for the Desktop" (1999), §4 and §5: their Java is our page, their C is Rust.

#[cfg(target_os = "linux")]
mod browser;
#[cfg(target_os = "linux")]
mod buffers;
#[cfg(target_os = "linux")]
mod collect;
#[cfg(target_os = "linux")]
mod figures;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod native;
#[cfg(target_os = "linux")]
mod overhead;
#[cfg(target_os = "linux")]
mod rates;
#[cfg(target_os = "linux")]
mod tables;
#[cfg(target_os = "linux")]
mod websocket;

use std::path::PathBuf;

use clap::ValueEnum;

/// What `lab equivalence` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pairs of each quantity on each link; 0 leaves tables 3 to 5 out.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pairs: u32,
    /// Only these links.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [LinkName::Slow, LinkName::Fast, LinkName::Loopback])]
    links: Vec<LinkName>,
    /// Pairs of each row of table 6, the control of buffers; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 200)]
    buffer_pairs: u32,
    /// Rounds of table 7 on each link, the page's default goodput beside a native transfer of 16 MiB; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rate_rounds: u32,
    /// Bytes of a transfer; the paper's are 64 KiB.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=16 << 20))]
    bytes: u64,
    /// Write the series as CSV, and the figures as SVG, into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Delays in seconds to replay as jitter, instead of seeded ones; their mean is taken off the links' delay.
    #[arg(long, value_name = "FILE")]
    jitter: Option<PathBuf>,
    /// Which clock the page has: the finer one needs a station that isolates its page.
    #[arg(long, value_enum, default_value_t = ClockName::Fine)]
    clock: ClockName,
    /// The browser.
    #[arg(long, value_name = "FILE", env = "CHROMIUM", default_value = "/usr/bin/chromium")]
    chromium: PathBuf,
    /// Print JSON: one object.
    #[arg(long)]
    json: bool,
}

/// The links of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkName {
    /// 2 Mbit/s, 95 ms: the paper's wide-area paths
    Slow,
    /// 100 Mbit/s, 20 ms
    Fast,
    /// 500 Mbit/s, 20 ms
    Faster,
    /// The host itself, without jitter
    Loopback,
}

/// How fine the page's clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockName {
    /// As on a secure origin: isolated from other origins
    Fine,
    /// As on a plain http address
    Coarse,
}

/// Emulated links are made of Linux's network namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args {
        pairs: _,
        links: _,
        buffer_pairs: _,
        rate_rounds: _,
        bytes: _,
        out: _,
        jitter: _,
        clock: _,
        chromium: _,
        json: _,
    } = args;
    eprintln!("SKIPPED: lab equivalence needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::run;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::Write;
    use std::thread;

    use anyhow::{Context, bail};
    use barograph_probe::io::Cancel;
    use barograph_sim::{Error, Link, Network, say_skipped};
    use barograph_station::{Signal, signals};

    use super::collect::{self, LinkStudy};
    use super::link::{Path, Replayed};
    use super::tables::{Results, Variation};
    use super::{Args, LinkName, browser, buffers, figures, overhead, rates, tables};

    /// Measures, writes and prints.
    pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
        if let Some(missing) = browser::missing(&args.chromium) {
            say_skipped(&format!("lab equivalence: {missing}"));
            return Ok(());
        }
        match Network::new(Link::Veth { rate_bps: None }) {
            Err(error @ Error::NotPermitted { .. }) => {
                say_skipped(&format!("lab equivalence: {error}"));
                return Ok(());
            }
            tried => drop(tried.context("cannot make an emulated network")?),
        }
        if let Some(directory) = &args.out {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let cancel = stop_on_signal()?;
        let replayed = Replayed::new(args.jitter.as_deref())?;
        let paths: anyhow::Result<Vec<Path>> =
            args.links.iter().map(|name| Path::of(*name, &replayed)).collect();
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
        print(args, &results)?;
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

    fn print(args: &Args, results: &Results) -> anyhow::Result<()> {
        let mut text = if args.json { tables::json(results)? } else { tables::all(results) };
        if let Some(directory) = &args.out {
            let drawn = figures::write(&results.links, directory);
            match drawn {
                Ok(told) if !args.json => text += &told,
                Ok(_) => {}
                Err(error) => eprintln!("{error:#}"),
            }
        }
        std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
    }

    /// The first signal ends the measuring, and what there is is printed; the second ends all.
    fn stop_on_signal() -> anyhow::Result<Cancel> {
        let signals = signals::listen().context("signals cannot be handled")?;
        let cancel = Cancel::default();
        let stop = cancel.clone();
        thread::spawn(move || {
            while let Ok(signal) = signals.recv() {
                if signal == Signal::Stop && stop.is_cancelled() {
                    std::process::exit(1);
                }
                stop.cancel();
            }
        });
        Ok(cancel)
    }
}
