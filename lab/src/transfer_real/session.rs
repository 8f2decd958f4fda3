//! A run of the study: what all its parts share, and its printing.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use barograph_sim::{Error, Link, Network, say_skipped};
use clap::ValueEnum as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::cells::{Plan, for_people};
use super::flow::{Course, Flow, Ours, now_ms};
use super::output::Output;
use super::peer::{Bench, Peer, Tools};
use super::{Args, Part, busy, cross, fairness, figures, files, line_rate, mover, path, role, uncontended};
use crate::machine;
use crate::signatures::host::Cpus;

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
    pub(crate) output: Output,
    bar: ProgressBar,
    progress: Mutex<Progress>,
}

/// How far the run is, by the estimates of its cells.
struct Progress {
    all: Plan,
    done: Plan,
    began: Instant,
}

/// Runs what was asked for and prints it, each part when it is done, and those that take long row by row.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(role) = &args.role {
        return role::run(role);
    }
    match Network::new(Link::Veth { rate_bps: None }) {
        Err(error @ Error::NotPermitted { .. }) => {
            say_skipped(&format!("lab transfer-real: {error}"));
            return Ok(());
        }
        tried => drop(tried.context("cannot make an emulated network")?),
    }
    if let Some(folder) = &args.figures {
        std::fs::create_dir_all(folder).with_context(|| format!("--figures {}", folder.display()))?;
    }
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:30} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let session = Session {
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
        output: Output::new(args.json, bar.clone()),
        bar,
        progress: Mutex::new(Progress { all: Plan::default(), done: Plan::default(), began: Instant::now() }),
    };
    let parts: Vec<Part> = Part::ALL.into_iter().filter(|part| args.parts.contains(part)).collect();
    session.say_plan(&parts, args.plan)?;
    if args.plan {
        return Ok(());
    }
    session.bar.enable_steady_tick(Duration::from_secs(1));
    let (mut planned, mut failures) = (Plan::default(), Vec::new());
    for part in parts {
        session.output.begin_part(&part.name());
        let began = Instant::now();
        // What one part cannot do is no reason to lose the others.
        if let Err(error) = part.run(&session) {
            session.output.say(&format!("\n{} ended: {error:#}\n", part.name()))?;
            failures.push(format!("{}: {error:#}", part.name()));
        }
        planned += part.plan(&session);
        session.reach(planned);
        session.output.say(&format!("\nMade in {}.\n", for_people(began.elapsed())))?;
        if let Some(folder) = &args.figures {
            figures::write(part, &session.output.rows_of(&part.name()), folder)?;
        }
    }
    session.bar.finish_and_clear();
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn run(self, session: &Session) -> anyhow::Result<()> {
        match self {
            Self::Uncontended => session.output.table(uncontended::table(session)?),
            Self::Files => files::run(session),
            Self::LineRate => session.output.table(line_rate::table(session)?),
            Self::Busy => busy::run(session),
            Self::Network => path::run(session),
            Self::Cross => cross::run(session),
            Self::Fairness => fairness::run(session),
            Self::Mover => session.output.table(mover::table(session)?),
        }
    }

    fn plan(self, session: &Session) -> Plan {
        match self {
            Self::Uncontended => uncontended::plan(session),
            Self::Files => files::plan(session),
            Self::LineRate => line_rate::plan(session),
            Self::Busy => busy::plan(session),
            Self::Network => path::plan(session),
            Self::Cross => cross::plan(session),
            Self::Fairness => fairness::plan(session),
            Self::Mover => mover::plan(session),
        }
    }
}

impl Session {
    /// Says what will be measured, and about how long that takes; on the standard error where rows of JSON are to come.
    fn say_plan(&self, parts: &[Part], is_all: bool) -> anyhow::Result<()> {
        let plans: Vec<(String, Plan)> = parts.iter().map(|part| (part.name(), part.plan(self))).collect();
        let all: Plan = plans.iter().map(|(_, plan)| *plan).sum();
        let part = |(name, plan): &(String, Plan)| {
            format!("{name} {} ({} cells)", for_people(plan.time), plan.cells)
        };
        let estimate = format!(
            "About {} for {} cells: {}.\n",
            for_people(all.time),
            all.cells,
            plans.iter().map(part).collect::<Vec<_>>().join(", ")
        );
        eprint!("{estimate}");
        if is_all {
            return Ok(());
        }
        self.bar.set_length(all.time.as_secs());
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).all = all;
        self.output.say(&format!(
            "# Transfers over real sockets\n\n{}; {}; {}. Load of the machine at the start: {}. TCP of programs that do not choose (scp, rsync, GridFTP): {}. Runs of {} s, seed {}, {} at once where there is room.\n",
            machine::kernel(),
            machine::processors(),
            machine::memory(),
            machine::load(),
            TCP,
            self.seconds,
            self.seed,
            self.at_once
        ))
    }

    /// Says what is under way.
    pub(crate) fn note(&self, what: impl Into<String>) {
        let text = {
            let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let left = progress.left();
            let cell = (progress.done.cells + 1).min(progress.all.cells);
            format!("cell {cell} of {}, {} left: {}", progress.all.cells, for_people(left), what.into())
        };
        self.bar.set_message(text);
    }

    /// Counts what is done.
    pub(crate) fn done(&self, plan: Plan) {
        let now = self.progress.lock().unwrap_or_else(PoisonError::into_inner).done + plan;
        self.reach(now);
    }

    fn reach(&self, done: Plan) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).done = done;
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
        std::thread::sleep(start);
        let from_ms = now_ms();
        std::thread::sleep(time);
        let to_ms = now_ms();
        let course = flow.stop()?;
        let void = network.report().and_then(|report| report.void()).map(|void| void.to_string());
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
        Ok((bps, network.report().and_then(|report| report.void()).map(|void| void.to_string())))
    }
}

/// Prepares TCP in both namespaces for `peer`: no memory of earlier connections and, for a program that does not choose
/// its congestion control, the one that Linux ships.
///
/// # Errors
/// The namespaces' default is another algorithm, and this machine does not allow to change it.
pub(crate) fn prepare_tcp(network: &Network, peer: Peer) -> anyhow::Result<()> {
    for host in [&network.a, &network.b] {
        host.run(|| {
            // What the kernel remembers of one connection would help, or hamper, the next to the same address.
            write_setting("tcp_no_metrics_save", "1")?;
            if peer.uses_default_congestion_control() { default_to_shipped() } else { Ok(()) }
        })??;
    }
    Ok(())
}

/// Makes [`TCP`] the default of the calling thread's namespace. A namespace begins with the machine's default, and takes
/// another one only from the machine's list of those allowed to every user, also as root (Linux,
/// `tcp_set_default_congestion_control`).
fn default_to_shipped() -> anyhow::Result<()> {
    let default = "tcp_congestion_control";
    if read_setting(default)? == TCP {
        return Ok(());
    }
    write_setting(default, TCP).with_context(|| {
        let allowed = read_setting("tcp_allowed_congestion_control").unwrap_or_default();
        format!(
            "TCP of programs that do not choose cannot be {TCP} here; to allow it: \
             sysctl -w net.ipv4.tcp_allowed_congestion_control='{allowed} {TCP}'"
        )
    })
}

fn read_setting(name: &str) -> anyhow::Result<String> {
    let path = format!("{SETTINGS}/{name}");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

fn write_setting(name: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("{SETTINGS}/{name}");
    std::fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))
}

const SETTINGS: &str = "/proc/sys/net/ipv4";

/// Linux's own default (net/ipv4/Kconfig, DEFAULT_TCP_CONG).
const TCP: &str = "cubic";

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

/// The middle one.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    barograph_probe::reduce::median(values)
}

/// The median of some rounds, and of how many and why the others failed, where some did.
pub(crate) fn rate(bps: &[f64], rounds: usize, failure: Option<&str>) -> String {
    match (median(bps), failure) {
        (Some(rate), None) => gbit_s(rate),
        (Some(rate), Some(why)) => format!("{} ({} of {rounds} rounds: {why})", gbit_s(rate), bps.len()),
        (None, why) => format!("did not run: {}", why.unwrap_or_default()),
    }
}

/// A rate for people.
pub(crate) fn gbit_s(bps: f64) -> String {
    if bps < 1e9 { format!("{:.0} Mbit/s", bps / 1e6) } else { format!("{:.2} Gbit/s", bps / 1e9) }
}

/// A ratio of two rates; a dash where there is none.
pub(crate) fn ratio(bps: f64, to: Option<f64>) -> String {
    to.filter(|to| 0.0 < *to).map_or_else(|| "–".to_owned(), |to| format!("{:.2}", bps / to))
}
