//! What a mesh loses when its parts die: a station that appends without a pause, what holds the mesh together – a
//! station that was joined, one NATS server, or three – and an archive, each a process of its own, and one
//! fault a row.

mod child;
mod disk;
mod mesh;
mod relay;
mod said;
mod scenario;

use std::path::PathBuf;

use anyhow::Context as _;

use crate::mesh_parts::program;

/// How to run the experiment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What holds the mesh together [default: each in turn]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// The program `nats-server` [default: NATS_SERVER, else on the path]
    #[arg(long)]
    server: Option<PathBuf>,
    /// Only the scenarios whose name holds this.
    #[arg(long)]
    only: Option<String>,
    /// What this process is, when the experiment starts it.
    #[arg(long, hide = true)]
    child: Option<child::Part>,
    /// The state directory of that part.
    #[arg(long, hide = true, default_value = ".")]
    directory: PathBuf,
    /// The addresses of the NATS servers, the URL of the station to join, or the port of the one that is joined.
    #[arg(long, hide = true, default_value = "")]
    at: String,
    /// How many servers keep a record.
    #[arg(long, hide = true, default_value_t = 1)]
    replicas: u8,
    /// Let the labels jump by an hour either way.
    #[arg(long, hide = true)]
    jump: bool,
}

/// What holds a mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// A station that the others join, and its archive.
    Remote,
    /// One NATS server, and an archive beside it.
    Nats,
    /// Three NATS servers that each keep every record, and an archive.
    Cluster,
}

impl Engine {
    const ALL: [Self; 3] = [Self::Remote, Self::Nats, Self::Cluster];

    fn shown(self) -> &'static str {
        match self {
            Self::Remote => "a joined station",
            Self::Nats => "one NATS server",
            Self::Cluster => "three NATS servers",
        }
    }
}

/// Runs every scenario and prints a row for each.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(part) = args.child {
        return child::run(part, args);
    }
    let server = program(args.server.as_deref());
    println!(
        "| mesh | fault | acknowledged | in the archive | lost | double | longest gap (s) | most waiting \
         | peers lost | read-only (s) |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for engine in Engine::ALL.into_iter().filter(|engine| args.engine.is_none_or(|only| only == *engine)) {
        if engine != Engine::Remote && server.is_none() {
            println!(
                "SKIPPED: {}: there is no nats-server (scripts/install-test-needs gets it)",
                engine.shown()
            );
            continue;
        }
        let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
        for scenario in scenario::of(engine).filter(|scenario| wanted(scenario.name)) {
            let row = scenario.run(engine, server.as_deref());
            let row = row.with_context(|| format!("{}, `{}`", engine.shown(), scenario.name))?;
            println!("{row}");
        }
    }
    Ok(())
}
