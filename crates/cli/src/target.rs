//! `barograph target add|rm|list`: shows and changes the targets of a running station.

use std::process::ExitCode;

use barograph_api::{NewTarget, TargetList};
use barograph_probe::percent;
use barograph_station::target::{Provenance, Target};
use clap::Subcommand;

use crate::client::{Answer, Client, StationArgs, printable};
use crate::exit::{self, Failure, print_line};

/// Arguments of `barograph target`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Measure a target from now on, also after a restart.
    Add {
        /// Target to measure: host:port, http://… or https://…
        target: String,
        /// Quantity to measure [default: the usual quantities of this kind of target]; may be
        /// repeated
        #[arg(long, value_name = "Q")]
        quantity: Vec<String>,
        /// Seconds from one measurement to the next [default: the station's period]
        #[arg(long, value_name = "S")]
        period: Option<f64>,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Stop measuring an added target; its history stays.
    #[command(alias = "remove")]
    Rm {
        /// Target as `barograph target list` shows it.
        target: String,
        #[command(flatten)]
        station: StationArgs,
    },
    /// List all targets, and where they come from.
    #[command(alias = "ls")]
    List {
        /// Print the station's answer as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        station: StationArgs,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Action::Add { target, quantity, period, .. } = &args.action {
        check(target, quantity, *period).map_err(Failure::Input)?;
    }
    let (Action::Add { station, .. } | Action::Rm { station, .. } | Action::List { station, .. }) =
        &args.action;
    let client = Client::new(station)?;
    let answer = match &args.action {
        Action::Add { target, quantity, period, .. } => {
            let (target, quantities) = (target.clone(), quantity.clone());
            client.post("/v1/targets", &NewTarget { target, quantities, period_s: *period })
        }
        Action::Rm { target, .. } => {
            client.delete(&format!("/v1/targets?target={}", percent::encode(target)))
        }
        Action::List { .. } => client.get("/v1/targets"),
    }?;
    show(&args.action, &answer);
    Ok(ExitCode::SUCCESS)
}

/// Checks the arguments without a request to the station, so that mistakes are reported even if the
/// station does not run.
fn check(target: &str, quantities: &[String], period_s: Option<f64>) -> Result<(), String> {
    if let Some(seconds) = period_s
        && !(seconds.is_finite() && seconds > 0.0)
    {
        return Err(format!("--period: expected seconds above 0, found {seconds}"));
    }
    Target::parse(target, quantities, None, Provenance::Added)
        .map(|_| ())
        .map_err(|error| printable(&error.to_string()))
}

fn show(action: &Action, answer: &Answer) {
    match action {
        Action::Add { target, .. } => print_line(format_args!("measuring {target}")),
        Action::Rm { target, .. } => print_line(format_args!("no longer measuring {target}")),
        Action::List { json: true, .. } => print_line(answer),
        Action::List { .. } => print_line(table(&answer.read())),
    };
}

fn table(answer: &TargetList) -> String {
    let mut rows = vec![["TARGET", "FROM", "PERIOD", "QUANTITIES"].map(String::from)];
    for target in &answer.targets {
        let quantities: Vec<String> = target.quantities.iter().map(|word| printable(word)).collect();
        let quantities = if quantities.is_empty() { "(the usual ones)".into() } else { quantities.join(" ") };
        let period = format!("{} s", target.period_s);
        rows.push([printable(&target.target), printable(&target.from), period, quantities]);
    }
    let width = rows.iter().map(|row| row[2].chars().count()).max().unwrap_or(0);
    for row in &mut rows {
        row[2] = format!("{:>width$}", row[2]);
    }
    exit::table(&rows)
}

const EXAMPLES: &str = "Examples:
  barograph target add https://example.com/ --period 30
  barograph target list";
