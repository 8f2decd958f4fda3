//! `lab reduction tcp`: the experiment over real TCP, through an emulated bottleneck, beside the simulated P1.

#[cfg(target_os = "linux")]
mod draws;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod nodes;
#[cfg(target_os = "linux")]
mod ordering;
#[cfg(target_os = "linux")]
mod round;
#[cfg(target_os = "linux")]
mod simulated;
#[cfg(target_os = "linux")]
mod tables;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(target_os = "linux")]
mod timeouts;
#[cfg(target_os = "linux")]
mod traffic;
#[cfg(target_os = "linux")]
mod turns;

/// What `lab reduction tcp` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the numbers as one JSON object.
    #[arg(long)]
    json: bool,
    /// A sixth of the reductions: under two minutes instead of under ten.
    #[arg(long)]
    quick: bool,
    /// Of the emulated losses, the background traffic, the turns and the integers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Emulated paths are made of Linux's network namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { json: _, quick: _, seed: _ } = args;
    eprintln!("SKIPPED: lab reduction tcp needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::run;

#[cfg(target_os = "linux")]
mod linux {
    use std::time::{Duration, Instant};

    use anyhow::Context;
    use barograph_sim::{Error, Network, say_skipped};
    use indicatif::{ProgressBar, ProgressStyle};

    use super::super::paper::TRIES;
    use super::super::print;
    use super::super::strategy::Strategy;
    use super::hosts::{Hosts, bottleneck};
    use super::simulated::{self, Simulated, median};
    use super::tables::Findings;
    use super::traffic::Traffic;
    use super::turns::{Contestant, Plan, take_turns};
    use super::{Args, tables};

    /// Measures, simulates and prints.
    pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
        let network = match Network::new(bottleneck(args.seed)) {
            Err(error @ Error::NotPermitted { .. }) => {
                say_skipped(&format!("lab reduction tcp: {error}"));
                return Ok(());
            }
            made => made.context("cannot make an emulated network")?,
        };
        let hosts = Hosts::joined(network)?;
        let findings = measure(&hosts, args)?;
        if args.json {
            return print(&(serde_json::to_string(&findings)? + "\n"));
        }
        print(&tables::markdown(&findings))
    }

    fn measure(hosts: &Hosts, args: &Args) -> anyhow::Result<Findings> {
        let plan = if args.quick { QUICK } else { FULL };
        let plan = Plan { seed: args.seed, ..plan };
        // The simulation keeps both processors busy, so it does not run beside the measurement.
        let simulated = Simulated::run(&STRATEGIES)?;
        let load_before = load();
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let reductions = plan.pilot + plan.blocks * plan.turn * STRATEGIES.len();
        let bar = ProgressBar::new(reductions as u64).with_style(style);
        let traffic = Traffic::start(hosts, args.seed)?;
        let began = Instant::now();

        bar.set_message("how long a message takes");
        let uncut = Strategy::Static(simulated::UNCUT_S);
        let mut pilot = Contestant::new(hosts, &plan, uncut, 1.0)?;
        let reduced = pilot.reduce(hosts, &plan, plan.pilot, &bar)?;
        let took = reduced.iter().flat_map(|reduced| &reduced.sent).map(|sent| sent.took_s).collect();
        drop(pilot);
        let median_s = median(took);
        let scale = median_s / simulated.median_s;

        let contestants = STRATEGIES.map(|strategy| Contestant::new(hosts, &plan, strategy, scale));
        let mut contestants = contestants.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let voids = take_turns(hosts, &plan, &mut contestants, &bar)?;
        bar.finish_and_clear();
        let report = hosts.network().and_then(|network| network.report()).context("the relay is gone")?;
        Findings::new(
            &plan,
            &contestants,
            &simulated,
            &voids,
            &report,
            tables::Circumstances {
                median_s,
                scale,
                took_s: began.elapsed().as_secs_f64(),
                background_bytes: traffic.bytes(),
                load_before,
                load_after: load(),
            },
        )
    }

    /// The machine's load over the last minute.
    fn load() -> String {
        let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        loads.split(' ').next().unwrap_or_default().to_owned()
    }

    /// The best of the paper's static timeouts, its two dynamic ones, and those that came later.
    const STRATEGIES: [Strategy; 6] = [
        Strategy::Static(15.0),
        Strategy::Nws(1.0),
        Strategy::Nws(2.0),
        Strategy::NwsEscalating,
        Strategy::Rfc6298,
        Strategy::Default,
    ];

    const FULL: Plan = Plan {
        nodes: 31,
        // §4: 16 k integers, 64 kB.
        integers: 16_384,
        tries: TRIES,
        seed: 0,
        pilot: 20,
        blocks: 48,
        turn: 2,
        time_max: Duration::from_secs(9 * 60),
    };

    const QUICK: Plan = Plan { pilot: 8, blocks: 8, time_max: Duration::from_secs(90), ..FULL };
}
