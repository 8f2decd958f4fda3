//! The `barograph` command: one file a verb.

mod addresses;
mod best;
mod classify;
mod client;
mod compare;
mod exit;
mod forecast;
mod invite;
mod peers;
mod plan;
mod probe;
mod problem;
mod record;
mod recv;
mod send;
mod sites;
mod target;
mod tradeoff;
mod transfer;
mod transfers;
mod up;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Network weather you can act on: measure, record, forecast and see.
#[derive(Parser)]
#[command(name = "barograph", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a station: measure, record, forecast, and show it all on one port.
    Up(up::Args),
    /// Measure a target once: a station, a web server, or anything that listens.
    Probe(probe::Args),
    /// Forecast the next value of a series in a file or on a pipe.
    Forecast(forecast::Args),
    /// Compare two series of the same thing: are they equivalent, and equally predictable?
    Compare(compare::Args),
    /// How much error a longer period or a shorter test costs: errors against both, and bytes an hour.
    Tradeoff(tradeoff::Args),
    /// Tell who lost the packets of each window: the receiving host's CPU, or the network.
    Classify(classify::Args),
    /// Feed an application's own values to a running station.
    Record(record::Args),
    /// Invite a station to join this one's mesh: prints what is to be typed there.
    Invite(invite::InviteArgs),
    /// Show which stations were invited, or withdraw an invitation.
    Members(invite::MembersArgs),
    /// Show or change what a running station measures.
    Target(target::Args),
    /// Show the stations of a running station's mesh, or follow what becomes of them.
    Peers(peers::Args),
    /// Show which stations form a site by their forecasts, and accept a station's place in one.
    Sites(sites::Args),
    /// Which host is the fastest now, for so many bytes from here: forecast times, and what they rest on.
    Best(best::Args),
    /// Show what testing all pairs of a mesh would take: how often each has its turn, and what that costs.
    Plan(plan::Args),
    /// Receive files: prints the line that another host sends them with.
    ///
    /// Whoever has the line that it prints may send into DIR, and nowhere else, until it is stopped with Ctrl-C; a line is good for
    /// one run, or, with --identity and a port of --listen, for as long as those stay. What comes is kept in a hidden directory of
    /// DIR until it is whole and verified by BLAKE3; nothing that is there is replaced unless --replace is given. An interrupted
    /// transfer goes on when it is sent again, also to another run.
    Recv(Box<recv::Args>),
    /// Send files and directories to a host that receives: fast, sealed, and on where it was when it is interrupted.
    ///
    /// The same command again goes on where it was interrupted, at either end. In a terminal it shows how far it is, how long
    /// it will still take with the interval that holds nine times of ten, and who loses packets: the receiving host's CPU or the
    /// network. At the end every file is verified by BLAKE3 before it gets its name.
    Send(Box<send::Args>),
    /// Have stations send files to each other, and show which they send.
    Transfers(transfers::Args),
    /// Print the version.
    Version(version::Args),
    /// Print the completions of a shell.
    #[command(hide = true)]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory.
    #[command(hide = true)]
    Man {
        /// Where to; it must exist.
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Up(args) => up::run(&args),
        Verb::Probe(args) => probe::run(&args),
        Verb::Forecast(args) => forecast::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Tradeoff(args) => tradeoff::run(&args),
        Verb::Classify(args) => classify::run(&args),
        Verb::Record(args) => exit::code(record::run(&args)),
        Verb::Invite(args) => exit::code(invite::invite(&args)),
        Verb::Members(args) => exit::code(invite::members(&args)),
        Verb::Target(args) => exit::code(target::run(&args)),
        Verb::Peers(args) => exit::code(peers::run(&args)),
        Verb::Sites(args) => exit::code(sites::run(&args)),
        Verb::Best(args) => exit::code(best::run(&args)),
        Verb::Plan(args) => plan::run(&args),
        Verb::Recv(args) => recv::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Transfers(args) => exit::code(transfers::run(&args)),
        Verb::Version(args) => version::run(&args),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "barograph", &mut script);
            exit::print(String::from_utf8_lossy(&script).trim_end());
            ExitCode::SUCCESS
        }
        Verb::Man { directory } => match clap_mangen::generate_to(Cli::command(), &directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => exit::failed(format!("{}: {error}", directory.display())),
        },
    }
}
