//! The papers' tables and figures, reproduced with this code: one file a question.

mod classifier;
mod earlystop;
mod equivalence;
mod figure;
mod forecast;
mod gloperf;
mod http;
mod jobs;
mod machine;
mod mesh_losses;
mod mesh_scale;
mod nats;
mod plan;
mod probe;
mod process;
mod reduction;
mod signatures;
mod transfer;
mod transfer_real;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Experiments with Barograph's parts.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Cli {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// How well the classifiers tell what lost packets, and what that is worth to a sender: the loss paper's figures and tables.
    Classifier(classifier::Args),
    /// How well each preset, rule and method forecasts the traces of a folder.
    Forecast(forecast::Args),
    /// What a timed stream costs, and how wrong it is, when it ends once its rate has settled; needs root.
    Earlystop(earlystop::Args),
    /// Whether a page in a browser measures what a native program measures: JavaNws' tables and figures; needs root.
    Equivalence(equivalence::Args),
    /// What a longer test period and a shorter test cost in error: Gloperf's figures; parts of it need root.
    Gloperf(gloperf::Args),
    /// What is lost when parts of a mesh are killed, frozen or away: processes of this machine; needs nats-server.
    MeshLosses(mesh_losses::Args),
    /// What a station costs in a mesh of many, when nothing happens: processes of this machine; needs nats-server.
    MeshScale(mesh_scale::Args),
    /// How near the probes come to what others measure on the same emulated paths; needs root.
    Probe(probe::Args),
    /// What the order of tests is worth: forecasts of replayed series under a station's plan and under the paper's.
    Plan(plan::Args),
    /// What timeouts do to a reduction over 31 nodes: the paper's strategies, and ours.
    Reduction(reduction::Args),
    /// Makes loss signatures on this machine, with the kernel's truth of who lost what; needs root.
    Signatures(signatures::Args),
    /// What each way to set a transfer's rate makes of a path, a busy host and other flows, in virtual time.
    Transfer(transfer::Args),
    /// What transfers make of real sockets between two hosts of this machine, beside other programs on the same links; needs root.
    TransferReal(transfer_real::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().experiment {
        Experiment::Classifier(args) => classifier::run(&args),
        Experiment::Forecast(args) => forecast::run(&args),
        Experiment::Earlystop(args) => earlystop::run(&args),
        Experiment::Equivalence(args) => equivalence::run(&args),
        Experiment::Gloperf(args) => gloperf::run(&args),
        Experiment::MeshLosses(args) => mesh_losses::run(&args),
        Experiment::MeshScale(args) => mesh_scale::run(&args),
        Experiment::Plan(args) => plan::run(&args),
        Experiment::Probe(args) => probe::run(&args),
        Experiment::Reduction(args) => reduction::run(&args),
        Experiment::Signatures(args) => signatures::run(&args),
        Experiment::Transfer(args) => transfer::run(&args),
        Experiment::TransferReal(args) => transfer_real::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // All causes on one line.
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
