//! The `lab` program: repeats the experiments of the papers that Barograph is based on, and
//! measures Barograph beside other tools.
//!
//! It prints Markdown tables or JSON, and writes pages of results. It does not check that the code
//! is correct; tests do. `lab/README.md` lists the verbs and their results.
//!
//! - `Experiment` has a variant for each verb. The verb's module has its options and its `run`.
//! - `output::Output` writes results to standard output and to a page.
//! - `table::Table` is a Markdown table.

mod availability;
#[cfg(target_os = "linux")]
mod best;
#[cfg(target_os = "linux")]
mod calibrated;
mod classifier;
#[cfg(target_os = "linux")]
mod earlystop;
#[cfg(target_os = "linux")]
mod emulation;
#[cfg(target_os = "linux")]
mod equivalence;
mod error_window;
mod evidence;
mod figure;
mod forecast;
mod gloperf;
mod horizon;
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
mod promise;
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

/// Repeats the papers' experiments, and measures Barograph beside other tools.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Cli {
    /// Write the tables to this page, too, with the command and the machine at their head. A page
    /// with a line `<!-- scripts/lab COMMAND -->` keeps its text outside this line and the next
    /// line `<!-- end -->`.
    #[arg(long, global = true, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Score the probability that the next probe answers, on series with failures.
    Availability(availability::Args),
    /// Count how often a station's choice among five emulated hosts is right, and measure how soon
    /// it follows a rate that fell; needs root.
    #[cfg(target_os = "linux")]
    Best(best::Args),
    /// Score the classifiers of lost packets on labelled windows, and simulate their worth to a
    /// sender (Dickens §3 to §5).
    Classifier(classifier::Args),
    /// Score each preset, rule and method on the traces of a folder.
    Forecast(forecast::Args),
    /// Measure the cost and error of a timed stream that ends once its rate has settled; needs
    /// root.
    #[cfg(target_os = "linux")]
    Earlystop(earlystop::Args),
    /// Compare a page in a browser with a native program that measures the same (JavaNws §4 and
    /// §5); needs root.
    #[cfg(target_os = "linux")]
    Equivalence(equivalence::Args),
    /// Measure the cost in error of longer test periods and shorter tests (Gloperf §4); some parts
    /// need root.
    Gloperf(gloperf::Args),
    /// Score forecasts of the mean of the next values, and of a value further ahead, on the traces
    /// of a folder.
    Horizon(horizon::Args),
    /// Count the records lost when parts of a mesh are killed, frozen or cut off, as processes on
    /// this machine; needs nats-server.
    MeshLosses(mesh_losses::Args),
    /// Measure the cost of a station in an idle mesh of many, or with --tests their turns, as
    /// processes on this machine; needs nats-server.
    MeshScale(mesh_scale::Args),
    /// Compare the probes with other programs on the same emulated paths; needs root.
    #[cfg(target_os = "linux")]
    Probe(probe::Args),
    /// Compare two orders of tests on replayed series: a station's plan and the paper's list
    /// (Gloperf §3).
    Plan(plan::Args),
    /// Replay series of goodput, and count how often transfers take the promised time.
    Promise(promise::Args),
    /// Run a reduction over 31 hosts with the paper's timeout strategies and with Barograph's
    /// (Allen et al.).
    Reduction(reduction::Args),
    /// Make loss signatures on this machine, labelled by the kernel's counters; needs root.
    #[cfg(target_os = "linux")]
    Signatures(signatures::Args),
    /// Simulate congestion controllers on lossy paths, to a busy host and beside other flows, in
    /// virtual time.
    Transfer(transfer::Args),
    /// Measure transfers over real sockets between two network namespaces, beside other programs on
    /// the same links; needs root.
    #[cfg(target_os = "linux")]
    TransferReal(transfer_real::Args),
    /// Any other verb; it needs Linux's network namespaces.
    #[cfg(not(target_os = "linux"))]
    #[command(external_subcommand)]
    Elsewhere(Vec<String>),
}

fn main() -> ExitCode {
    let Cli { page, experiment } = Cli::parse();
    let page = page.as_deref();
    let done = match experiment {
        Experiment::Availability(args) => availability::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Best(args) => best::run(&args, page),
        Experiment::Classifier(args) => classifier::run(&args, page),
        Experiment::Forecast(args) => forecast::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Earlystop(args) => earlystop::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Equivalence(args) => equivalence::run(&args, page),
        Experiment::Gloperf(args) => gloperf::run(&args, page),
        Experiment::Horizon(args) => horizon::run(&args, page),
        Experiment::MeshLosses(args) => mesh_losses::run(&args, page),
        Experiment::MeshScale(args) => mesh_scale::run(&args, page),
        Experiment::Plan(args) => plan::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Probe(args) => probe::run(&args, page),
        Experiment::Promise(args) => promise::run(&args, page),
        Experiment::Reduction(args) => reduction::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::Signatures(args) => signatures::run(&args, page),
        Experiment::Transfer(args) => transfer::run(&args, page),
        #[cfg(target_os = "linux")]
        Experiment::TransferReal(args) => transfer_real::run(&args, page),
        #[cfg(not(target_os = "linux"))]
        Experiment::Elsewhere(words) => {
            let verb = words.first().map_or("", String::as_str);
            barograph_sim::report_skipped(&format!("lab {verb} needs Linux's network namespaces"));
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
