//! A run of the study: what all its parts share, and its printing.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use barograph_sim::{Error, Link, Network, say_skipped};
use clap::ValueEnum as _;
use indicatif::ProgressBar;
use serde_json::json;

use super::flow::{Course, Flow, Ours, now_ms};
use super::peer::{Bench, Peer, Tools};
use super::{Args, Part, busy, fairness, files, line_rate, path, role, uncontended};
use crate::equivalence::hosts;
use crate::signatures::host::Cpus;
use crate::transfer::Table;

/// What all parts share.
pub(crate) struct Session {
    /// For how long a run is measured (s).
    pub(crate) seconds: u64,
    pub(crate) is_full: bool,
    pub(crate) seed: u64,
    only: Vec<String>,
    pub(crate) cpus: Cpus,
    pub(crate) tools: Tools,
    pub(crate) disk: PathBuf,
    pub(crate) program: PathBuf,
    bar: ProgressBar,
}

/// Runs what was asked for and prints it, each part when it is done.
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
    let session = Session {
        seconds: args.seconds.unwrap_or(if args.full { 20 } else { 2 }),
        is_full: args.full,
        seed: args.seed,
        only: args.only.clone(),
        cpus: Cpus::find()?,
        tools: Tools::new()?,
        disk: args.disk.clone().unwrap_or_else(std::env::temp_dir),
        // As processes in other folders are to find it.
        program: std::path::absolute(&args.program)?,
        bar: ProgressBar::new_spinner(),
    };
    session.bar.enable_steady_tick(Duration::from_secs(1));
    let mut out = std::io::stdout();
    if !args.json {
        let text = format!(
            "# Transfers over real sockets\n\n{}; {}; {}. Load of the machine at the start: {}. Runs of {} s, seed {}.\n",
            hosts::kernel(),
            hosts::processors(),
            hosts::memory(),
            hosts::load(),
            session.seconds,
            session.seed
        );
        out.write_all(text.as_bytes())?;
    }
    for part in Part::ALL.iter().filter(|part| args.parts.contains(part)) {
        let table = part.table(&session)?;
        let mut text = String::new();
        if args.json {
            let name = part.to_possible_value().map(|value| value.get_name().to_owned());
            for row in table.rows {
                text += &format!("{}\n", json!({ "part": name, "row": row }));
            }
        } else {
            text = table.text;
        }
        session.bar.suspend(|| out.write_all(text.as_bytes())).context("cannot write to standard output")?;
    }
    session.bar.finish_and_clear();
    Ok(())
}

impl Part {
    fn table(self, session: &Session) -> anyhow::Result<Table> {
        match self {
            Self::Uncontended => uncontended::table(session),
            Self::Files => files::table(session),
            Self::LineRate => line_rate::table(session),
            Self::Busy => busy::table(session),
            Self::Network => path::table(session),
            Self::Fairness => fairness::table(session),
        }
    }
}

impl Session {
    /// Says what is under way.
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Whether what has this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// A flow of ours alone on a fresh link: its goodput (bit/s) after `start_s`, and all that is known of it.
    pub(crate) fn ours(&self, link: &Link, ours: &Ours, start_s: u64) -> anyhow::Result<Run> {
        let network = Network::new(link.clone())?;
        let flow = Flow::start(&network, ours)?;
        std::thread::sleep(Duration::from_secs(start_s));
        let from_ms = now_ms();
        std::thread::sleep(Duration::from_secs(self.seconds));
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
        for host in [&network.a, &network.b] {
            // What the kernel remembers of one connection would help, or hamper, the next to the same address.
            let path = "/proc/sys/net/ipv4/tcp_no_metrics_save";
            host.run(|| std::fs::write(path, "1"))?.with_context(|| format!("cannot write {path}"))?;
        }
        let bps = peer.measure(&Bench { network: &network, tools: &self.tools, seconds, rate_bps })?;
        Ok((bps, network.report().and_then(|report| report.void()).map(|void| void.to_string())))
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

/// A rate for people.
pub(crate) fn gbit_s(bps: f64) -> String {
    if bps < 1e9 { format!("{:.0} Mbit/s", bps / 1e6) } else { format!("{:.2} Gbit/s", bps / 1e9) }
}

/// A ratio of two rates; a dash where there is none.
pub(crate) fn ratio(bps: f64, to: Option<f64>) -> String {
    to.filter(|to| 0.0 < *to).map_or_else(|| "–".to_owned(), |to| format!("{:.2}", bps / to))
}
