//! What a mesh loses when its parts die: a station that appends without a pause, what holds the mesh together – a
//! station that was joined, one NATS server, or three – and an archive, each a process of its own, and one
//! fault a row.

mod child;
mod clock;
mod disk;
mod mesh;
mod reflection;
mod relay;
mod row;
mod said;
mod scenario;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use self::row::Row;
use crate::nats::program;

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
    /// Print each row as a line of JSON.
    #[arg(long)]
    json: bool,
    /// Write the table to this file, too.
    #[arg(long)]
    out: Option<PathBuf>,
    /// What this process is, when the experiment starts it.
    #[arg(long, hide = true)]
    child: Option<child::Part>,
    /// The state directory of that part.
    #[arg(long, hide = true, default_value = ".")]
    directory: PathBuf,
    /// The addresses of the NATS servers, or the URL of the station to join.
    #[arg(long, hide = true, default_value = "")]
    at: String,
    /// Where a whole station listens.
    #[arg(long, hide = true)]
    listen: Option<SocketAddr>,
    /// The file with the credentials for the NATS servers.
    #[arg(long, hide = true)]
    credentials: Option<PathBuf>,
    /// How many servers keep a record.
    #[arg(long, hide = true, default_value_t = 1)]
    replicas: u8,
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

/// Runs every scenario and prints a row for each, with what is under way on the standard error.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(part) = args.child {
        return child::run(part, args);
    }
    let server = program(args.server.as_deref());
    if !args.json {
        println!("{}", Row::HEAD);
    }
    let began = Instant::now();
    let mut failed = 0;
    let mut table = Row::HEAD.to_string();
    for engine in Engine::ALL.into_iter().filter(|engine| args.engine.is_none_or(|only| only == *engine)) {
        if engine != Engine::Remote && server.is_none() {
            eprintln!(
                "SKIPPED: {}: there is no nats-server (scripts/install-test-needs gets it)",
                engine.shown()
            );
            continue;
        }
        let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
        for scenario in scenario::of(engine).filter(|scenario| wanted(scenario.name)) {
            eprintln!("{:>5.0} s: {}, {}", began.elapsed().as_secs_f64(), engine.shown(), scenario.name);
            let row = scenario.run(engine, server.as_deref());
            let row = row.with_context(|| format!("{}, `{}`", engine.shown(), scenario.name));
            let row = match row {
                Ok(Some(row)) => row,
                Ok(None) => continue,
                // The others are run all the same.
                Err(error) => {
                    eprintln!("FAILED: {error:#}");
                    failed += 1;
                    continue;
                }
            };
            if let Some(sign) = &row.sign {
                eprintln!("        noticed by: {sign}");
            }
            if args.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                println!("{row}");
            }
            table += &format!("\n{row}");
            if let Some(out) = &args.out {
                std::fs::write(out, page(&table))
                    .with_context(|| format!("{} cannot be written", out.display()))?;
            }
        }
    }
    ensure!(failed == 0, "{failed} rows failed");
    Ok(())
}

/// The file of results.
fn page(table: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "# What a mesh loses when its parts die\n\nWritten by `scripts/lab mesh-losses --out \
         lab/results/mesh-losses.md`: version {version}, a {build} build, {processors} processors.\n[The lab's \
         README](../README.md#what-a-mesh-loses-when-its-parts-die) has what each column means.\n\n{table}\n"
    )
}
