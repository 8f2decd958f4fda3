//! `lab signatures`: makes real loss signatures on this machine, labelled by the kernel's counters.

mod cut;
pub(crate) mod host;
mod make;
pub(crate) mod plan;
mod receiver;
mod schedule;
pub(crate) mod sender;
mod store;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use barograph_loss::Meter;
use barograph_probe::io::CancellationToken;
use barograph_sim::report_skipped;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::emulation::is_permitted;
use crate::jobs::{bar_like, stop_on_signal};
use crate::machine;
use crate::output::Output;
use crate::table::joined;
use cut::Trace;
use host::Cpus;
use make::{Made, make};
use plan::{Design, Kind, RELAY_STRETCH, Setting};
use schedule::{Slot, groups, round, round_of};
use store::{Record, Store};
use tally::Tally;

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if let Some(options) = &args.receiver {
        return receiver::run(options);
    }
    if !is_permitted("signatures")? {
        return Ok(());
    }
    let mut session = Session::open(args)?;
    session.make_all(args)?;
    session.close(args, page)
}

struct Session {
    store: Store,
    tally: Tally,
    kinds: Vec<Kind>,
    setting: Setting,
    is_full: bool,
    /// Kinds that this machine cannot make, and why.
    skipped: BTreeMap<Kind, String>,
    failures: u32,
    /// Runs of each kind that are void because of the relay or the sender.
    invalid: BTreeMap<Kind, u32>,
    /// Kinds with several void runs beside others.
    alone: BTreeSet<Kind>,
    /// Time of earlier runs of the set (h), and the start of this session.
    earlier_hours: f64,
    began: Instant,
    bar: ProgressBar,
    cpus: Cpus,
    stop: CancellationToken,
}

impl Session {
    /// Begins a set, or continues the one in the folder.
    fn open(args: &Args) -> anyhow::Result<Self> {
        ensure!((1e-3..=1e6).contains(&args.scale), "--scale must be between 0.001 and 1e6");
        ensure!((0.0..=HOURS_MAX).contains(&args.hours), "--hours must be between 0 and {HOURS_MAX}");
        let out = args.out.as_deref().context("name a folder with --out")?;
        let kinds = if args.kinds.is_empty() { Kind::all() } else { args.kinds.clone() };
        let seconds = args.seconds.unwrap_or(if args.full { 10 } else { 6 }).into();
        let setting = Setting { seed: args.seed, seconds, has_whole_windows: args.full, scale: args.scale };
        let store = Store::open(out, &settings(&kinds, &setting))?;
        let (mut tally, mut meter) = (Tally::default(), Meter::new());
        for number in store.numbers()? {
            tally.record(&store.read(number)?, &mut meter)?;
        }
        if tally.runs() > 0 {
            eprintln!("the set has {} runs of {:.2} hours already, and goes on", tally.runs(), tally.hours());
        }
        let bar = bar(args, &kinds, &setting);
        if args.full {
            bar.set_position((tally.hours() * 3600.0) as u64);
        }
        Ok(Self {
            store,
            earlier_hours: tally.hours(),
            tally,
            kinds,
            setting,
            is_full: args.full,
            skipped: BTreeMap::new(),
            failures: 0,
            invalid: BTreeMap::new(),
            alone: BTreeSet::new(),
            began: Instant::now(),
            bar,
            cpus: Cpus::find()?,
            stop: stop_on_signal()?,
        })
    }

    /// Makes round after round, beginning with the last one in the folder.
    fn make_all(&mut self, args: &Args) -> anyhow::Result<()> {
        let done = self.store.numbers()?;
        let first = done.last().map_or(0, |number| round_of(*number, &self.kinds));
        for number in first.. {
            let is_over = if self.is_full {
                self.tally.is_reached(&self.possible_kinds())
            } else {
                u64::from(args.runs) <= number || self.possible_kinds().is_empty()
            };
            if is_over || self.is_ended(args) {
                return Ok(());
            }
            let mut slots = round(number, &self.kinds, self.is_full);
            slots.retain(|slot| !done.contains(&slot.number) && self.is_wanted(slot));
            for group in groups(&slots, args.at_once as usize, &self.alone) {
                if self.is_ended(args) {
                    return Ok(());
                }
                self.make_group(&group)?;
            }
            if self.is_full && !slots.is_empty() {
                let progress = self.tally.progress();
                self.bar.suspend(|| eprintln!("round {}: {progress}", number + 1));
            }
        }
        Ok(())
    }

    /// Kinds that this machine can make, as far as is known.
    fn possible_kinds(&self) -> Vec<Kind> {
        self.kinds.iter().copied().filter(|kind| !self.skipped.contains_key(kind)).collect()
    }

    fn is_wanted(&self, slot: &Slot) -> bool {
        let is_useful = || self.tally.is_wanted(slot.kind, slot.is_low, &self.possible_kinds());
        !self.skipped.contains_key(&slot.kind) && (!self.is_full || is_useful())
    }

    /// Whether the program was stopped, or the time of a full set is over.
    fn is_ended(&self, args: &Args) -> bool {
        let hours = self.earlier_hours + self.began.elapsed().as_secs_f64() / 3600.0;
        self.stop.is_cancelled() || self.is_full && args.hours <= hours
    }

    fn make_group(&mut self, slots: &[Slot]) -> anyhow::Result<()> {
        let draw = |slot: &Slot| Design::draw(slot.kind, slot.is_low, slot.number, &self.setting);
        let designs: Vec<Design> = slots.iter().map(draw).collect();
        self.bar.set_message(joined(slots.iter().map(|slot| slot.kind), " and "));
        let started = Instant::now();
        let made = make(&designs, self.cpus, &self.stop);
        let took = started.elapsed();
        let hours = took.as_secs_f64() / 3600.0 / slots.len() as f64;
        for ((slot, design), made) in slots.iter().zip(&designs).zip(made) {
            match made {
                Ok(Made::Trace(trace)) => self.record_run(slot, design, trace, hours)?,
                Ok(Made::Void(why)) => self.record_void(slot.kind, slots.len() > 1, &why),
                Ok(Made::Stopped) => {}
                Err(error) => self.record_failure(slot.kind, &error)?,
            }
        }
        let planned: u64 = designs.iter().map(|design| design.seconds as u64 + OVERHEAD_S).sum();
        self.bar.inc(if self.is_full { took.as_secs() } else { planned });
        Ok(())
    }

    fn record_run(&mut self, slot: &Slot, design: &Design, trace: Trace, hours: f64) -> anyhow::Result<()> {
        self.failures = 0;
        let Slot { number, kind, is_low } = *slot;
        let record = Record { number, kind, is_low, hours, config: design.config(), trace };
        self.store.add(&record)?;
        self.tally.record(&record, &mut Meter::new())
    }

    /// Reports a void run. After the second beside another, the kind is made alone; after several,
    /// it is skipped.
    fn record_void(&mut self, kind: Kind, is_beside: bool, why: &str) {
        let count = self.invalid.entry(kind).or_default();
        *count += 1;
        let is_alone = is_beside && VOIDS_BESIDE_MAX <= *count;
        if is_alone {
            self.alone.insert(kind);
        }
        if VOIDS_MAX <= *count {
            self.skipped.insert(kind, format!("{count} runs are void, the last: {why}"));
        }
        let then = if is_alone { "; it is made alone from now on" } else { "" };
        self.bar.suspend(|| eprintln!("{kind}: a run is void: {why}{then}"));
    }

    /// Skips a kind that failed. Several failures in a row end the program: the machine is not
    /// suitable.
    fn record_failure(&mut self, kind: Kind, error: &anyhow::Error) -> anyhow::Result<()> {
        self.skipped.insert(kind, format!("{error:#}"));
        self.failures += 1;
        self.bar.suspend(|| report_skipped(&format!("{kind}: {error:#}")));
        ensure!(self.failures < FAILURES_MAX, "{} runs in a row failed, the last: {error:#}", self.failures);
        Ok(())
    }

    fn close(self, args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
        let was_stopped = self.stop.is_cancelled();
        self.bar.finish_and_clear();
        self.store.write_tables()?;
        let scaled = if args.scale == 1.0 {
            "The generator’s times are the paper’s".to_owned()
        } else {
            format!("The generator’s times are the paper’s divided by {}", args.scale)
        };
        let stopped = if was_stopped { "; it was stopped before its end" } else { "" };
        let mut text = format!(
            "# Loss signatures of this machine\n\n{}, {}. Seed {}. {scaled}{stopped}.\n\n",
            machine::kernel(),
            machine::processors(),
            args.seed,
        );
        if self.is_full {
            text += &(self.tally.goals() + "\n");
        }
        text += &self.tally.table();
        if self.is_full {
            text += &self.tally.rates();
        }
        let invalid: u32 = self.invalid.values().sum();
        if invalid > 0 {
            text += &format!("\n{invalid} runs are void: the relay or the sender was the bottleneck.\n");
        }
        for (kind, why) in &self.skipped {
            text += &format!("\nSKIPPED: {kind}: {why}\n");
        }
        self.store.write_index(&text)?;
        Output::new(page, false).print(&text)
    }
}

/// What all runs of a set have in common: only runs of the same settings are one set.
fn settings(kinds: &[Kind], setting: &Setting) -> Value {
    let Setting { seed, seconds, has_whole_windows, scale } = *setting;
    json!({
        "kinds": kinds.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "seed": seed,
        "seconds": seconds,
        "full": has_whole_windows,
        "scale": scale,
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": machine::kernel(),
        "processors": machine::processors(),
    })
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

/// The machine can be busy once; a kind that is void again needs more of it than others leave.
const VOIDS_BESIDE_MAX: u32 = 2;

/// Four more runs alone. A machine that makes none of them does not make the next either.
const VOIDS_MAX: u32 = 6;

/// Thirty days; no set needs more.
const HOURS_MAX: f64 = 720.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the set. If it has runs of the same settings, the set goes on: a set that was
    /// interrupted, or that now gets more runs or hours.
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
    /// as long. With --full about so many, for whole windows of 100 000 packets. [default: 6; with
    /// --full 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: Option<u32>,
    /// Seed that all runs are drawn from.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Divisor of the times of the paper's process generator; 1 gives the paper's times.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) scale: f64,
    /// Continue until there are 1000 windows of 20 000 packets for each cause, and 200 of 100 000,
    /// of them 40 at losses of 0.00008 to 0.0005.
    #[arg(long, conflicts_with = "runs")]
    pub(crate) full: bool,
    /// End --full after this many hours, those of earlier sessions included.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) hours: f64,
    /// Number of runs of the network's kinds at the same time; the host's are made alone.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub(crate) at_once: u32,
    /// Settings of the receiver's process; the experiment sets them.
    #[arg(long, hide = true, num_args = 4, value_names = ["BUFFER", "WORK_NS", "CPU", "EXPECTED"])]
    pub(crate) receiver: Option<Vec<u64>>,
}

/// Window lengths (packets) that are cut.
pub(crate) const LENGTHS: [u32; 3] = [10_000, WINDOW, LARGE];

/// Window lengths (packets) that goals refer to.
pub(crate) const WINDOW: u32 = 20_000;
pub(crate) const LARGE: u32 = 100_000;
