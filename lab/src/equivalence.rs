//! `lab equivalence`: whether a page in a browser measures what a native program measures, after
//! Krintz and Wolski, "JavaNws: The Network Weather Service for the Desktop" (2000), §4 and §5. Our
//! page stands for their Java program, and Rust for their C.

mod collect;
mod link;
mod programs;
mod tables;

use std::path::{Path as FilePath, PathBuf};

use anyhow::{Context as _, bail};
use barograph_probe::io::CancellationToken;
use barograph_sim::report_skipped;
use barograph_study::compare::{Moments, Preference, SeriesComparison};
use clap::ValueEnum;
use programs::Ready;

use crate::emulation::is_permitted;
use crate::jobs::stop_on_signal;
use crate::output::Output;
use collect::{Buffers, LinkStudy, Overhead, Rates};
use link::{LinkSetup, Replayed};

pub(crate) fn run(args: &Args, page: Option<&FilePath>) -> anyhow::Result<()> {
    if let Some(missing) = programs::missing(&args.chromium) {
        report_skipped(&format!("lab equivalence: {missing}"));
        return Ok(());
    }
    if !is_permitted("equivalence")? {
        return Ok(());
    }
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let cancel = stop_on_signal()?;
    let replayed = Replayed::seeded();
    let mut results = Results { jitter: Some(Variation::of(&replayed)), ..Results::default() };
    for path in args.links.iter().map(|name| LinkSetup::of(*name, &replayed)) {
        if cancel.is_cancelled() {
            break;
        }
        if args.pairs > 0 {
            link(&path, args, &cancel, &mut results);
        }
        if args.rate_rounds > 0 && !cancel.is_cancelled() {
            match collect::of_link(&path, args, &cancel) {
                Ok(rates) => results.rates.push(rates),
                Err(error) => eprintln!("{}: {error:#}", path.name),
            }
        }
    }
    if args.links.contains(&LinkName::Fast) && args.buffer_pairs > 0 {
        results.buffers = collect::rows(&LinkSetup::of(LinkName::Fast, &replayed), args, &cancel);
    }
    results.is_cancelled = cancel.is_cancelled();
    let output = Output::new(page, args.json);
    output.json(&tables::json(&results))?;
    output.print(&tables::all(&results))?;
    if let Some(directory) = &args.out {
        match tables::write_figures(&results.links, directory) {
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

/// Measures one link. An error is stored with the link, and the next link is measured.
fn link(path: &LinkSetup, args: &Args, cancel: &CancellationToken, results: &mut Results) {
    let measured = path.testbed(args).and_then(|mut testbed| {
        let study = collect::pairs(&mut testbed, args, cancel)?;
        Ok((testbed, study))
    });
    let (mut testbed, study) = match measured {
        Ok(both) => both,
        Err(error) => {
            eprintln!("{}: {error:#}", path.name);
            results.links.push(LinkStudy::failed(path, &error));
            return;
        }
    };
    // Written at once, so that these results do not depend on what follows.
    if let Some(directory) = &args.out
        && let Err(error) = collect::write_csv(&study, directory)
    {
        eprintln!("{}: {error:#}", path.name);
    }
    let is_measured = study.stopped.is_none();
    results.links.push(study);
    results.browsers.push(testbed.ready.clone());
    if path.is_loopback && is_measured && !cancel.is_cancelled() {
        results.overhead = collect::by_clock(&mut testbed, args, cancel);
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pairs of each quantity on each link; 0 omits tables 3 to 5.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) pairs: u32,
    /// Measure only these links.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [LinkName::Slow, LinkName::Fast, LinkName::Loopback])]
    pub(crate) links: Vec<LinkName>,
    /// Pairs of each row of table 6, the control of buffers; 0 omits it.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) buffer_pairs: u32,
    /// Rounds of table 7 on each link, the page's default goodput beside a native transfer of 16
    /// MiB; 0 omits it.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rate_rounds: u32,
    /// Bytes of a transfer; the paper's are 64 KiB.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=16 << 20))]
    pub(crate) bytes: u64,
    /// Write the series as CSV, and the figures as SVG, into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Program of the Chromium browser.
    #[arg(long, value_name = "FILE", env = "CHROMIUM", default_value = "/usr/bin/chromium")]
    pub(crate) chromium: PathBuf,
    /// Print the results as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

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

/// Resolution of the page's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockName {
    /// As on a secure origin, isolated from other origins
    Fine,
    /// As on a plain http address
    Coarse,
}

#[derive(Default)]
pub(crate) struct Results {
    pub(crate) links: Vec<LinkStudy>,
    pub(crate) browsers: Vec<Ready>,
    pub(crate) buffers: Vec<Buffers>,
    pub(crate) rates: Vec<Rates>,
    pub(crate) overhead: Overhead,
    pub(crate) jitter: Option<Variation>,
    pub(crate) is_cancelled: bool,
}

/// Variation of the delays: standard deviations and the mean, in seconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Variation {
    pub(crate) one_way_s: f64,
    pub(crate) round_trip_s: f64,
    pub(crate) mean_one_way_s: f64,
    pub(crate) is_seeded: bool,
}

impl Variation {
    pub(crate) fn of(replayed: &Replayed) -> Self {
        Self {
            one_way_s: replayed.one_way_s(),
            round_trip_s: replayed.round_trip_s(),
            mean_one_way_s: replayed.mean().as_secs_f64(),
            is_seeded: true,
        }
    }
}

/// Coefficient that scatter alone would give: for independent x and y with the same mean μ and
/// variance σ², Σxy ÷ Σx² tends to μ² ÷ (μ² + σ²). It uses the moments of the series in the
/// denominator.
pub(crate) fn by_scatter(study: &SeriesComparison) -> Option<f64> {
    let side = match study.better {
        Preference::Larger => &study.a,
        Preference::Smaller => &study.b,
    };
    let Moments { mean, variance, .. } = side.moments;
    variance.map(|variance| mean * mean / (mean * mean + variance)).filter(|ratio| ratio.is_finite())
}

/// Native probes always open a connection, so the page does the same.
pub(crate) const REGIME: &str = "Every experiment uses a new connection, natively and in the browser, for every quantity; \
no value includes the time to open it.";
