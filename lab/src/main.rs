//! The papers' tables and figures, reproduced with this code: one file a question.

#[cfg(target_os = "linux")]
mod calibrated;
mod classifier;
#[cfg(target_os = "linux")]
mod earlystop;
#[cfg(target_os = "linux")]
mod emulation;
#[cfg(target_os = "linux")]
mod equivalence;
mod figure;
mod forecast;
mod gloperf;
mod http;
#[cfg(target_os = "linux")]
mod iperf;
mod jobs;
mod machine;
mod mesh_losses;
mod mesh_scale;
mod nats;
mod output;
mod plan;
#[cfg(target_os = "linux")]
mod probe;
mod process;
mod reduction;
mod series;
#[cfg(target_os = "linux")]
mod signatures;
mod stats;
mod table;
#[cfg(target_os = "linux")]
mod tool;
mod transfer;
#[cfg(target_os = "linux")]
mod transfer_real;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Experiments with Barograph's parts.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Cli {
    /// Write the tables to this page too, with the command and the machine in its head.
    #[arg(long, global = true, value_name = "FILE")]
    page: Option<PathBuf>,
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
    #[cfg(target_os = "linux")]
    Earlystop(earlystop::Args),
    /// Whether a page in a browser measures what a native program measures: JavaNws' tables and figures; needs root.
    #[cfg(target_os = "linux")]
    Equivalence(equivalence::Args),
    /// What a longer test period and a shorter test cost in error: Gloperf's figures; parts of it need root.
    Gloperf(gloperf::Args),
    /// What is lost when parts of a mesh are killed, frozen or away: processes of this machine; needs nats-server.
    MeshLosses(mesh_losses::Args),
    /// What a station costs in a mesh of many, when nothing happens: processes of this machine; needs nats-server.
    MeshScale(mesh_scale::Args),
    /// How near the probes come to what others measure on the same emulated paths; needs root.
    #[cfg(target_os = "linux")]
    Probe(probe::Args),
    /// What the order of tests is worth: forecasts of replayed series under a station's plan and under the paper's.
    Plan(plan::Args),
    /// What timeouts do to a reduction over 31 nodes: the paper's strategies, and ours.
    Reduction(reduction::Args),
    /// Makes loss signatures on this machine, with the kernel's truth of who lost what; needs root.
    #[cfg(target_os = "linux")]
    Signatures(signatures::Args),
    /// What each way to set a transfer's rate makes of a path, a busy host and other flows, in virtual time.
    Transfer(transfer::Args),
    /// What transfers make of real sockets between two hosts of this machine, beside other programs on the same links; needs root.
    #[cfg(target_os = "linux")]
    TransferReal(transfer_real::Args),
    /// Emulated networks are made of Linux's network namespaces.
    #[cfg(not(target_os = "linux"))]
    #[command(external_subcommand)]
    Elsewhere(Vec<String>),
}

fn main() -> ExitCode {
    let Cli { page, experiment } = Cli::parse();
    let page = page.as_deref();
    let done = match experiment {
        Experiment::Classifier(args) => classifier::run(&args, page),
        Experiment::Forecast(args) => forecast::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Earlystop(args) => earlystop::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Equivalence(args) => equivalence::run(&args, page),
        Experiment::Gloperf(args) => gloperf::run(&args, page),
        Experiment::MeshLosses(args) => mesh_losses::run(&args, page),
        Experiment::MeshScale(args) => mesh_scale::run(&args, page),
        Experiment::Plan(args) => plan::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Probe(args) => probe::run(&args, page),
        Experiment::Reduction(args) => reduction::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Signatures(args) => signatures::run(&args, page),
        Experiment::Transfer(args) => transfer::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::TransferReal(args) => transfer_real::run(&args, page),
        #[cfg(not(target_os = "linux"))]
        Experiment::Elsewhere(words) => {
            let verb = words.first().map_or("", String::as_str);
            barograph_sim::say_skipped(&format!("lab {verb} needs Linux's network namespaces"));
            Ok(())
        }
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
