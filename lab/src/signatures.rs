//! `lab signatures`: makes real loss signatures on this machine, labelled by the kernel's counters.

mod cut;
pub(crate) mod host;
mod make;
pub(crate) mod plan;
mod receiver;
pub(crate) mod sender;
mod tally;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use barograph_probe::io::CancellationToken;
use barograph_sim::report_skipped;
use indicatif::ProgressBar;

use crate::emulation::is_permitted;
use crate::jobs::{bar_like, stop_on_signal};
use crate::machine;
use crate::output::Output;
use cut::Files;
use host::Cpus;
use make::{Made, make};
use plan::{Design, Kind, RELAY_STRETCH, Setting};
use tally::{Pace, Tally, is_reached, is_wanted};

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if let Some(options) = &args.receiver {
        return receiver::run(options);
    }
    if !is_permitted("signatures")? {
        return Ok(());
    }
    let out = args.out.as_deref().context("name a folder with --out")?;
    let cpus = Cpus::find()?;
    let stop = stop_on_signal()?;
    let kinds = if args.kinds.is_empty() { Kind::all() } else { args.kinds.clone() };
    let seconds = args.seconds.unwrap_or(if args.full { 60 } else { 6 });
    if !(1e-3..=1e6).contains(&args.scale) {
        bail!("--scale must be between 0.001 and 1e6");
    }
    let setting = Setting { seed: args.seed, seconds: seconds.into(), scale: args.scale };
    let ends_at = Instant::now() + Duration::try_from_secs_f64(args.hours * 3600.0).context("--hours")?;
    let mut session = Session {
        files: Files::create(out)?,
        tally: Tally::default(),
        pace: Pace::default(),
        skipped: BTreeMap::new(),
        failures: 0,
        invalid: 0,
        bar: bar(args, &kinds, &setting),
        cpus,
        stop,
    };
    let mut number = 0;
    for round in 0.. {
        let is_over = if args.full {
            Instant::now() >= ends_at || session.is_full(&kinds)
        } else {
            round >= args.runs || session.is_idle(&kinds)
        };
        if is_over || session.is_stopped() {
            break;
        }
        for kind in &kinds {
            // Every second run of a full set aims at the lowest band, unless that has enough
            // windows.
            let low = args.full && round % 2 == 1;
            let is_needed = !args.full || is_wanted(*kind, low, &session.tally);
            if is_needed && session.can_make(*kind) && !(args.full && Instant::now() >= ends_at) {
                session.add(&Design::draw(*kind, low, number, &setting), low)?;
            }
            number += 1;
        }
        if args.full {
            session.say(round);
        }
    }
    session.close(out, args, page)
}

struct Session {
    files: Files,
    tally: Tally,
    pace: Pace,
    /// Kinds that this machine cannot make, and why.
    skipped: BTreeMap<Kind, String>,
    failures: u32,
    /// Runs that are void because of the relay or the sender.
    invalid: u32,
    bar: ProgressBar,
    cpus: Cpus,
    stop: CancellationToken,
}

impl Session {
    /// Whether this machine makes runs of this kind, and the program was not stopped.
    fn can_make(&self, kind: Kind) -> bool {
        !self.skipped.contains_key(&kind) && !self.is_stopped()
    }

    /// Whether the goals are reached by all kinds that can be made.
    fn is_full(&self, kinds: &[Kind]) -> bool {
        let made: Vec<Kind> = kinds.iter().copied().filter(|kind| !self.skipped.contains_key(kind)).collect();
        is_reached(&made, &self.tally)
    }

    /// Whether no kind can be made.
    fn is_idle(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.skipped.contains_key(kind))
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn say(&self, round: u32) {
        let line = self.pace.line(&self.tally);
        self.bar.suspend(|| eprintln!("round {}: {line}", round + 1));
    }

    fn add(&mut self, design: &Design, low: bool) -> anyhow::Result<()> {
        let (class, started) = (design.kind.class(), Instant::now());
        let before = self.tally.made(class);
        self.bar.set_message(design.kind.to_string());
        match make(design, self.cpus, &self.stop) {
            Ok(Made::Trace(trace)) => {
                self.failures = 0;
                self.files.add(design, &trace, &mut self.tally)?;
            }
            Ok(Made::Void(why)) => {
                self.invalid += 1;
                self.bar.suspend(|| eprintln!("{}: a run is void: {why}", design.kind));
            }
            Ok(Made::Stopped) => {}
            Err(error) => self.record_failure(design.kind, &error)?,
        }
        let hours = started.elapsed().as_secs_f64() / 3600.0;
        self.pace.record(design.kind, low, hours, &before, &self.tally.made(class));
        self.bar.inc(design.seconds as u64 + OVERHEAD_S);
        Ok(())
    }

    /// Skips a kind that failed. Several failures in a row end the program: the machine is not
    /// suitable.
    fn record_failure(&mut self, kind: Kind, error: &anyhow::Error) -> anyhow::Result<()> {
        self.skipped.insert(kind, format!("{error:#}"));
        self.failures += 1;
        self.bar.suspend(|| report_skipped(&format!("{kind}: {error:#}")));
        if self.failures >= FAILURES_MAX {
            bail!("{} runs in a row failed, the last: {error:#}", self.failures);
        }
        Ok(())
    }

    fn close(self, out: &Path, args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
        let was_stopped = self.is_stopped();
        self.bar.finish_and_clear();
        self.files.finish()?;
        let scaled = if args.scale == 1.0 {
            "The generator’s times are the paper’s".to_owned()
        } else {
            format!("The generator’s times are the paper’s divided by {}", args.scale)
        };
        let stopped = if was_stopped { "; it was stopped, the last run is left out" } else { "" };
        let mut text = format!(
            "# Loss signatures of this machine\n\n{}, {}. Seed {}. {scaled}{stopped}.\n\n{}",
            machine::kernel(),
            machine::processors(),
            args.seed,
            self.tally.table()
        );
        if args.full {
            text += &self.pace.table(&self.tally);
        }
        if self.invalid > 0 {
            text +=
                &format!("\n{} runs are void: the relay or the sender was the bottleneck.\n", self.invalid);
        }
        for (kind, why) in &self.skipped {
            text += &format!("\nSKIPPED: {kind}: {why}\n");
        }
        fs::write(out.join("INDEX.md"), &text).context("cannot write the table")?;
        Output::new(page, false).print(&text)
    }
}

/// A progress bar in seconds, so that its estimate is one of time.
fn bar(args: &Args, kinds: &[Kind], setting: &Setting) -> ProgressBar {
    let seconds = |kind: &Kind| setting.seconds * if kind.is_relayed() { RELAY_STRETCH } else { 1.0 };
    let round: u64 = kinds.iter().map(|kind| seconds(kind) as u64 + OVERHEAD_S).sum();
    let all = if args.full { (args.hours * 3600.0) as u64 } else { round * u64::from(args.runs) };
    let bar = bar_like(all, "{bar:40} {percent} % of at most {len} s, {eta} left: {msg}");
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Time to make and remove the hosts, and to send packets to warm up (s).
const OVERHEAD_S: u64 = 1;
const FAILURES_MAX: u32 = 5;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to write the files to; those of an earlier set are replaced.
    #[arg(long, required_unless_present = "receiver")]
    pub(crate) out: Option<PathBuf>,
    /// Make only these kinds, of: random, poisson, cbr, onoff, tcp, self, incast, outage, red,
    /// codel, series, gen, preempt, quota, slow; and any of the network's with hyb- before it.
    #[arg(long, value_delimiter = ',')]
    pub(crate) kinds: Vec<Kind>,
    /// Number of runs of each kind.
    #[arg(long, default_value_t = 2)]
    pub(crate) runs: u32,
    /// Seconds of each run; those through the relay, which carries fewer packets, are three times
    /// as long. [default: 6; with --full 60]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: Option<u32>,
    /// Seed that all runs are drawn from.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Divisor of the times of the paper's process generator; 1 gives the paper's times.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) scale: f64,
    /// Continue until there are 5000 windows of 20 000 packets for each cause, and 1200 of 100 000
    /// at losses of 0.00008 to 0.0005.
    #[arg(long, conflicts_with = "runs")]
    pub(crate) full: bool,
    /// End --full after this many hours: twice the time that two processors need.
    #[arg(long, default_value_t = 24.0)]
    pub(crate) hours: f64,
    /// Settings of the receiver's process; the experiment sets them.
    #[arg(long, hide = true, num_args = 4, value_names = ["BUFFER", "WORK_NS", "CPU", "EXPECTED"])]
    pub(crate) receiver: Option<Vec<u64>>,
}

/// Window lengths (packets) that are cut.
pub(crate) const LENGTHS: [u32; 3] = [10_000, WINDOW, LARGE];

/// Window lengths (packets) that goals refer to.
pub(crate) const WINDOW: u32 = 20_000;
pub(crate) const LARGE: u32 = 100_000;
