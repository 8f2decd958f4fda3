//! `barograph target add|rm|list`: what a running station measures.

use std::process::ExitCode;

use barograph_probe::percent;
use barograph_station::target::{Provenance, Target};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{Client, StationArgs, printable};
use crate::exit::{bad_input, print};

/// Arguments of `barograph target`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Measure a target from now on, also after a restart.
    Add {
        /// host:port, http://… or https://…
        target: String,
        /// What to measure [default: what the target answers]; may be repeated
        #[arg(long, value_name = "Q")]
        quantity: Vec<String>,
        /// How often, in seconds [default: the station's]
        #[arg(long, value_name = "S")]
        period: Option<f64>,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Stop measuring an added target; its history stays.
    #[command(alias = "remove")]
    Rm {
        /// As `list` shows it.
        target: String,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Show all targets and where they come from.
    #[command(alias = "ls")]
    List {
        /// Print the station's answer as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        station: StationArgs,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let (station, method, path, body) = match &args.action {
        Action::Add { target, quantity, period, station } => {
            if let Err(message) = check(target, quantity, *period) {
                return bad_input(message);
            }
            let mut body = json!({ "target": target, "quantities": quantity });
            if let Some(period) = period {
                body["period_s"] = json!(period);
            }
            (station, "POST", "/v1/targets".to_string(), Some(body.to_string()))
        }
        Action::Rm { target, station } => {
            (station, "DELETE", format!("/v1/targets?target={}", percent::encode(target)), None)
        }
        Action::List { station, .. } => (station, "GET", "/v1/targets".to_string(), None),
    };
    let client = match Client::new(station) {
        Ok(client) => client,
        Err(message) => return bad_input(message),
    };
    match client.ask(method, &path, body.as_deref()) {
        Ok(answer) => {
            show(&args.action, &answer);
            ExitCode::SUCCESS
        }
        Err(trouble) => trouble.exit(),
    }
}

/// What can be known without the station, so that a mistake is one whether it runs or not.
fn check(target: &str, quantities: &[String], period_s: Option<f64>) -> Result<(), String> {
    if let Some(seconds) = period_s
        && !(seconds.is_finite() && 0.0 < seconds)
    {
        return Err(format!("--period: expected seconds, more than 0, found {seconds}"));
    }
    Target::parse(target, quantities, None, Provenance::Added)
        .map(|_| ())
        .map_err(|error| printable(&error.to_string()))
}

fn show(action: &Action, answer: &str) {
    match action {
        Action::Add { target, .. } => print(format_args!("measuring {target}")),
        Action::Rm { target, .. } => print(format_args!("no longer measuring {target}")),
        Action::List { json: true, .. } => print(answer),
        Action::List { .. } => print(table(answer)),
    };
}

fn table(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let text = |value: &Value| printable(value.as_str().unwrap_or("?"));
    let mut rows = vec![["TARGET".to_string(), "FROM".into(), "PERIOD".into(), "QUANTITIES".into()]];
    for target in answer["targets"].as_array().into_iter().flatten() {
        let quantities: Vec<String> =
            target["quantities"].as_array().into_iter().flatten().map(text).collect();
        let quantities =
            if quantities.is_empty() { "(what it answers)".into() } else { quantities.join(" ") };
        let period = target["period_s"].as_f64().map_or("?".into(), |seconds| format!("{seconds} s"));
        rows.push([text(&target["target"]), text(&target["from"]), period, quantities]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 4]| {
        format!("{:3$}  {:4$}  {:>5$}  ", row[0], row[1], row[2], widths[0], widths[1], widths[2]) + &row[3]
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
