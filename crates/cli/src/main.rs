//! The `barograph` command: measures and forecasts network weather, runs stations and moves files.
//!
//! Each verb has a module with its arguments, its work and its output. The work itself is in the
//! library crates. This crate reads the command line, calls a library crate or a running station,
//! and prints the result. This crate itself measures, forecasts, stores and sends nothing, and has
//! no API for other crates.
//!
//! Three types matter:
//! - `Cli` is the command line, with one `Args` for each verb; its doc comments are the help.
//! - `client::Client` sends requests to a running station.
//! - `exit::Failure` is an error with its exit code (`problem::Problem` for verbs that read files).
//!
//! ```text
//! barograph up                               a station, with its page on http://127.0.0.1:10132/
//! barograph probe https://example.com/       one measurement of a target
//! barograph forecast rtt.csv --unit ms       the next value of a series
//! ```

mod addresses;
mod best;
mod classify;
mod client;
mod compare;
mod exit;
mod forecast;
mod history;
mod invite;
mod peers;
mod plan;
mod probe;
mod problem;
mod record;
mod recv;
mod send;
mod series;
mod sites;
mod target;
mod tradeoff;
mod transfer;
mod transfers;
mod up;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, CommandFactory, Parser, Subcommand};

/// Network weather you can act on: measure, record, forecast and see.
#[derive(Parser)]
#[command(name = "barograph", version, help_template = help_template())]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a station: measure, record, forecast, and serve the results.
    ///
    /// Each key of the configuration file is also an environment variable and a flag:
    /// probe.period_s in the file is BAROGRAPH_PROBE_PERIOD_S and --set probe.period_s=…
    Up(up::Args),
    /// Measure a target once: a station, a web server or any open port.
    Probe(probe::Args),
    /// Forecast a series in a file, on a pipe or at a running station.
    Forecast(forecast::Args),
    /// Compare two series: are they equivalent and equally predictable?
    Compare(compare::Args),
    /// Show what longer periods or shorter tests cost in forecast error.
    Tradeoff(tradeoff::Args),
    /// Classify packet losses: the receiving host's CPU or the network.
    Classify(classify::Args),
    /// Send an application's own values to a running station.
    Record(record::Args),
    /// List the series of a running station, each with its next value.
    Series(series::Args),
    /// Print what a running station measured of one series.
    History(history::Args),
    /// Invite a station to the mesh: prints the command to run there.
    Invite(invite::InviteArgs),
    /// List invited stations, or remove a station or an invitation.
    Members(invite::MembersArgs),
    /// Show or change what a running station measures.
    Target(target::Args),
    /// List the stations of the mesh, or follow their changes.
    Peers(peers::Args),
    /// Show which stations form a site, and accept a proposed position.
    Sites(sites::Args),
    /// Rank hosts by the forecast time to send them a number of bytes.
    Best(best::Args),
    /// Calculate how often a mesh tests each pair, and what that costs.
    Plan(plan::Args),
    /// Receive files: prints the command to run on the sending host.
    ///
    /// The command contains the receiver address (brg://…). Every host that has this address may
    /// send files into DIR, and nowhere else, until Ctrl-C stops the receiver. The address is valid
    /// until the receiver stops; with --identity and a fixed port of --listen, the address stays
    /// valid after a restart.
    ///
    /// Files stay in a hidden directory of DIR until they are complete and verified by BLAKE3.
    /// Existing files are kept unless --replace is given. To resume an interrupted transfer, send
    /// the files again; after a restart of the receiver, use the receiver address that the receiver
    /// shows now.
    Recv(Box<recv::Args>),
    /// Send files and directories to a host that runs `barograph recv`.
    ///
    /// The data is encrypted. To resume an interrupted transfer, run the same command again. A
    /// terminal shows the progress, the remaining time with its 90 % interval, and the cause of
    /// lost packets: the receiving host's CPU or the network. At the end, each file is verified by
    /// BLAKE3 before it gets its name.
    Send(Box<send::Args>),
    /// Let stations send files to each other, and list their transfers.
    ///
    /// `receive` lets a station wait for files and prints its receiver address; `send` lets another
    /// station send there. The table [transfer] of a station's configuration permits both.
    Transfers(transfers::Args),
    /// Print the version of barograph.
    Version(version::Args),
    /// Print the completion script for a shell.
    #[command(hide = true, after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Shell that reads the script.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory.
    #[command(hide = true, after_help = MAN_EXAMPLES)]
    Man {
        /// Directory that exists already.
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
        Verb::Series(args) => exit::code(series::run(&args)),
        Verb::History(args) => exit::code(history::run(&args)),
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
            exit::print_line(String::from_utf8_lossy(&script).trim_end());
            ExitCode::SUCCESS
        }
        Verb::Man { directory } => match clap_mangen::generate_to(Cli::command(), &directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => exit::failed(format!("cannot write man pages to {}: {error}", directory.display())),
        },
    }
}

/// Template of the top-level help. The template lists the verbs, because clap has no headings for
/// subcommands.
fn help_template() -> String {
    let verbs = Verb::augment_subcommands(Command::new("barograph"));
    let style = *verbs.get_styles().get_header();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in HEADINGS {
        text += &format!("\n{style}{heading}:{style:#}\n");
        for name in names {
            let about = verbs.find_subcommand(name).and_then(Command::get_about);
            text += &format!("  {name:<12} {}\n", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    text + &format!("\n{style}Options:{style:#}\n{{options}}\n\n{FOOTER}")
}

/// The headings of the top-level help and the verbs under each heading, in the order of the help.
const HEADINGS: [(&str, &[&str]); 5] = [
    ("Watch", &["up", "target", "probe", "record", "series", "history"]),
    ("Forecast", &["forecast", "compare", "tradeoff"]),
    ("Mesh", &["invite", "members", "peers", "sites", "best", "plan"]),
    ("Transfer", &["recv", "send", "transfers", "classify"]),
    ("Other", &["version", "completions", "man"]),
];

const FOOTER: &str = "Run `barograph COMMAND --help` for the options and two examples of a command.";

const COMPLETIONS_EXAMPLES: &str = "Examples:
  barograph completions zsh >~/.zfunc/_barograph
  barograph completions fish >~/.config/fish/completions/barograph.fish";

const MAN_EXAMPLES: &str = "Examples:
  barograph man .
  barograph man ~/.local/share/man/man1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_each_visible_verb_once() {
        let help = Cli::command().render_help().to_string();
        for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let line = format!("  {:<12} {about}", verb.get_name());
            let listed = help.lines().filter(|shown| *shown == line).count();
            assert!(listed == 1 && !about.is_empty(), "{line:?} is listed {listed} times in\n{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn each_verb_ends_its_help_with_two_examples_that_parse() {
        for verb in Cli::command().get_subcommands() {
            let name = verb.get_name();
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = help.lines().skip_while(|line| *line != "Examples:").skip(1).collect();
            assert_eq!(examples.len(), 2, "{name}: {help}");
            for example in examples {
                let (_, arguments) = example.split_once("barograph ").expect("an example runs barograph");
                let words = arguments.split_whitespace().take_while(|word| !word.starts_with(['|', '>']));
                let words = std::iter::once("barograph").chain(words.map(|word| word.trim_matches('\'')));
                let error = Cli::try_parse_from(words).err().map(|error| error.to_string());
                assert_eq!(error, None, "{name}: {example}");
                assert!(arguments.starts_with(name), "{name}: {example}");
            }
        }
    }
}
