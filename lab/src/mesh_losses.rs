//! What a mesh loses when its parts die: a station that appends without a pause, a NATS server and an
//! archive, each a process of its own, and one fault a row.

mod child;
mod parts;
mod scenario;

use std::path::PathBuf;

use anyhow::Context as _;

/// How to run the experiment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program `nats-server`.
    #[arg(long, default_value = "nats-server")]
    server: PathBuf,
    /// Only the scenario whose name holds this.
    #[arg(long)]
    only: Option<String>,
    /// What this process is, when the experiment starts it.
    #[arg(long, hide = true)]
    child: Option<child::Part>,
    /// The state directory of that part.
    #[arg(long, hide = true, default_value = ".")]
    directory: PathBuf,
    /// The address of the NATS server.
    #[arg(long, hide = true, default_value = "")]
    url: String,
    /// Let the labels jump by an hour either way.
    #[arg(long, hide = true)]
    jump: bool,
}

/// Runs every scenario and prints a row for each.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(part) = args.child {
        return child::run(part, &args.directory, &args.url, args.jump);
    }
    println!("| fault | acknowledged | in the archive | lost | double | longest gap (s) |");
    println!("|---|---:|---:|---:|---:|---:|");
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
    for &(name, scenario) in scenario::ALL.iter().filter(|(name, _)| wanted(name)) {
        let row =
            scenario::run(name, scenario, &args.server).with_context(|| format!("scenario `{name}`"))?;
        println!("{row}");
    }
    Ok(())
}
