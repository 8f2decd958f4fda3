//! A run of the study: what all its parts share, and its printing.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::{Link, Network};
use barograph_transfer::controller::Kind;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::Args;
use super::cells::{Plan, for_people};
use super::flow::{Course, Flow, Ours, measured};
use super::peer::Peer;
use super::peer::bench::{Bench, Tools};
use super::report::Report;
use crate::emulation::{forget_connections, set_tcp, void};
use crate::output::Output;
use crate::signatures::host::Cpus;
use crate::stats::median;
use crate::table::shown;

/// What all parts share.
pub(crate) struct Session {
    /// For how long a run is measured (s).
    pub(crate) seconds: u64,
    pub(crate) is_full: bool,
    pub(crate) seed: u64,
    /// How many cells may run beside each other where the machine has room for that.
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

/// How far the run is, by the estimates of its cells.
struct Progress {
    all: Plan,
    done: Plan,
    began: Instant,
}

impl Session {
    pub(crate) fn new(args: &Args, page: Option<&std::path::Path>) -> anyhow::Result<Self> {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:30} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
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
            // As processes in other folders are to find it.
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

    /// Begins with so much to do.
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

    /// Says what is under way.
    pub(crate) fn note(&self, what: impl Into<String>) {
        let text = {
            let progress = self.progress();
            let left = progress.left();
            let cell = (progress.done.cells + 1).min(progress.all.cells);
            format!("cell {cell} of {}, {} left: {}", progress.all.cells, for_people(left), what.into())
        };
        self.bar.set_message(text);
    }

    /// Counts what is done.
    pub(crate) fn done(&self, plan: Plan) {
        let now = self.progress().done + plan;
        self.reach(now);
    }

    pub(crate) fn reach(&self, done: Plan) {
        self.progress().done = done;
        self.bar.set_position(done.time.as_secs());
    }

    /// For how long a run is measured.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Whether a path of this name is asked for.
    pub(crate) fn wants_path(&self, name: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|part| name.contains(part.as_str()))
    }

    /// Whether what has this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// The controllers that are asked for: all, or in short runs those that tell most.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.kinds_of(&Kind::ALL, &[Kind::Model, Kind::HighSpeed])
    }

    /// Those that are asked for, of some in full and in short runs.
    pub(crate) fn kinds_of(&self, full: &[Kind], quick: &[Kind]) -> Vec<Kind> {
        let kinds = if self.is_full { full } else { quick };
        kinds.iter().copied().filter(|kind| self.wants(kind.name())).collect()
    }

    /// A flow of ours alone on a fresh link: its goodput (bit/s) after `start`, over `time`, and all that is known of it.
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
        let course = flow.stop()?;
        let void = void(&network);
        Ok(Run { bps: course.bps(from_ms, to_ms), course, void })
    }

    /// A peer alone on a fresh link, for this time: its rate (bit/s), and why it is void if it is.
    pub(crate) fn peer(
        &self,
        link: &Link,
        rate_bps: Option<u64>,
        peer: Peer,
        seconds: u64,
    ) -> anyhow::Result<(f64, Option<String>)> {
        let network = Network::new(link.clone())?;
        prepare_tcp(&network, peer)?;
        let bps =
            peer.measure(&Bench { network: &network, tools: &self.tools, seconds, rate_bps, job: None })?;
        Ok((bps, void(&network)))
    }
}

/// Prepares TCP in both namespaces for `peer`: no memory of earlier connections and, for a program that does not choose
/// its congestion control, the one that Linux ships.
///
/// # Errors
/// The namespaces' default is another algorithm, and this machine does not allow to change it.
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
        // A namespace begins with the machine's default, and takes another one only from the machine's list of those allowed
        // to every user, also as root (Linux, `tcp_set_default_congestion_control`).
        let default = "tcp_congestion_control";
        if read(default)? != TCP {
            set_tcp(host, default, TCP).with_context(|| {
                let allowed = read("tcp_allowed_congestion_control").unwrap_or_default();
                format!(
                    "TCP of programs that do not choose cannot be {TCP} here; to allow it: \
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
    /// What is left by the estimates, and by how well they held so far.
    fn left(&self) -> Duration {
        let left = self.all.time.saturating_sub(self.done.time);
        let done_s = self.done.time.as_secs_f64();
        // At first the estimates alone are better.
        if done_s < 10.0 {
            return left;
        }
        left.mul_f64((self.began.elapsed().as_secs_f64() / done_s).clamp(0.2, 5.0))
    }
}

/// A run of one flow of ours.
pub(crate) struct Run {
    pub(crate) bps: f64,
    pub(crate) course: Course,
    /// Why the emulator is to blame for it, if it is.
    pub(crate) void: Option<String>,
}

/// What the rounds of a row found (bit/s), and why the last of those that failed did, if one did.
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

    /// Their median, and of how many of `rounds` where some failed.
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

/// A rate for people.
pub(crate) fn gbit_s(bps: f64) -> String {
    if bps < 1e9 { format!("{:.0} Mbit/s", bps / 1e6) } else { format!("{:.2} Gbit/s", bps / 1e9) }
}

/// A ratio of two rates; a dash where there is none.
pub(crate) fn ratio(bps: f64, to: Option<f64>) -> String {
    shown(to.filter(|to| 0.0 < *to), |to| format!("{:.2}", bps / to))
}
