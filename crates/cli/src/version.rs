//! `barograph version`: prints the version of the program.

use std::process::ExitCode;

use serde::Serialize;

use crate::exit::print_line;

/// Arguments of `barograph version`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Version {
    name: &'static str,
    version: &'static str,
    probe_protocol: &'static str,
    os: &'static str,
    arch: &'static str,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let version = Version {
        name: "barograph",
        version: env!("CARGO_PKG_VERSION"),
        probe_protocol: barograph_probe::wire::UPGRADE,
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
    };
    if args.json {
        print_line(serde_json::to_string(&version).unwrap_or_default());
    } else {
        print_line(format_args!("{} {} ({}, {})", version.name, version.version, version.os, version.arch));
    }
    ExitCode::SUCCESS
}

const EXAMPLES: &str = "Examples:
  barograph version
  barograph version --json";
