//! How to run the experiment, and its child processes.

use std::net::SocketAddr;
use std::path::PathBuf;

/// How to run the experiment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What holds the mesh together [default: each in turn]
    #[arg(long, value_enum)]
    pub(super) engine: Option<Engine>,
    /// The program `nats-server` [default: NATS_SERVER, else on the path]
    #[arg(long)]
    pub(super) server: Option<PathBuf>,
    /// Only the scenarios whose name holds this.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Print each row as a line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Write the table to this file, too.
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// What this process is, when the experiment starts it.
    #[arg(long, hide = true)]
    pub(super) child: Option<Part>,
    /// The state directory of that part.
    #[arg(long, hide = true, default_value = ".")]
    pub(super) directory: PathBuf,
    /// The addresses of the NATS servers, or the URL of the station to join.
    #[arg(long, hide = true, default_value = "")]
    pub(super) at: String,
    /// Where a whole station listens.
    #[arg(long, hide = true)]
    pub(super) listen: Option<SocketAddr>,
    /// The file with the credentials for the NATS servers.
    #[arg(long, hide = true)]
    pub(super) credentials: Option<PathBuf>,
    /// How many servers keep a record.
    #[arg(long, hide = true, default_value_t = 1)]
    pub(super) replicas: u8,
}

/// What holds a mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// A station that the others join, and its archive.
    Remote,
    /// One NATS server, and an archive beside it.
    Nats,
    /// Three NATS servers that each keep every record, and an archive.
    Cluster,
}

impl Engine {
    pub(super) const ALL: [Self; 3] = [Self::Remote, Self::Nats, Self::Cluster];

    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Remote => "a joined station",
            Self::Nats => "one NATS server",
            Self::Cluster => "three NATS servers",
        }
    }
}

/// Which part of the mesh a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Appends and forwards.
    Station,
    /// A whole station that keeps what the mesh holds, beside NATS.
    Archive,
    /// A whole station that is joined, and keeps what the mesh holds.
    Host,
}

impl Part {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Station => "station",
            Self::Archive => "archive",
            Self::Host => "host",
        }
    }
}
