//! The `barograph` command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Network weather you can act on: measure, record, forecast and see.
#[derive(Parser)]
#[command(name = "barograph", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Forecast the next value of a series in a file or on a pipe.
    Forecast(barograph::forecast::Args),
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Forecast(args) => barograph::forecast::run(&args),
    }
}
