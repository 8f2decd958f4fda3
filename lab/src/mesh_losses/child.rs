//! The station, the archive, and the station that is joined, as processes that can be killed.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use barograph_engine::{
    Archiver, Capabilities, Config, Engine, Entry, Event, Joined, JoinedConfig, Lease, Local, Nats,
    NatsConfig, Record, Remote, RemoteConfig,
};
use barograph_forecast::{Name, Outcome, Quantity, Series};
use barograph_station::Station;
use futures_util::StreamExt as _;

use super::Args;

/// Which part of the mesh a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Appends and forwards.
    Station,
    /// Keeps what the mesh holds, beside NATS.
    Archive,
    /// Is joined, and keeps what the mesh holds.
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

/// Works until it is killed, or until its input ends.
pub(super) fn run(part: Part, args: &Args) -> anyhow::Result<()> {
    match part {
        Part::Host => host(args),
        Part::Archive => {
            let nats = nats(args, "archive")?;
            let _archiver = Archiver::start(&nats, archive(args)?, &args.directory)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let _lease = runtime.block_on(register(&*nats, "archive"))?;
            std::io::stdin().lines().for_each(drop);
            Ok(())
        }
        Part::Station => station(args),
    }
}

/// A whole station with its server, as `barograph up` runs it.
fn host(args: &Args) -> anyhow::Result<()> {
    let config = barograph_station::Config {
        listen: args.at.parse().context("an address to listen on")?,
        state: args.directory.clone(),
        host: Some(Name::new("host")?),
        default_targets: false,
        commit: COMMIT,
        ..barograph_station::Config::default()
    };
    let _station = Station::up(config)?;
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

fn station(args: &Args) -> anyhow::Result<()> {
    let name = Name::new(STATION)?;
    let mesh: Arc<dyn Engine> = if args.at.starts_with("http") {
        let token = std::env::var(TOKEN).context("joining needs an invitation")?;
        Arc::new(Remote::new(RemoteConfig {
            token: Some(token),
            ..RemoteConfig::new(&args.at, name.clone())
        })?)
    } else {
        nats(args, STATION)?
    };
    let config = JoinedConfig { confirm_every: Duration::from_secs(1), ..JoinedConfig::new(name) };
    let joined = Arc::new(Joined::start(config, archive(args)?, mesh)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.spawn(attend(Arc::clone(&joined)));
    runtime.block_on(measure(&joined, args.jump))
}

/// Says which peers are lost, and for how long the directory is read and takes no writes.
async fn attend(mesh: Arc<Joined>) -> anyhow::Result<()> {
    let _lease = register(&*mesh, STATION).await?;
    let group = Name::new(GROUP)?;
    let (mut events, mut seconds) = (mesh.watch(&group), tokio::time::interval(Duration::from_secs(1)));
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Down(host))) => println!("lost {host} ."),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => {
                    tokio::time::sleep(PAUSE).await;
                    events = mesh.watch(&group);
                }
            },
            _ = seconds.tick() => {
                if let Some(read_only) = mesh.read_only() {
                    println!("read-only {} .", read_only.since.elapsed().as_secs());
                }
            }
        }
    }
}

/// Registers, as soon as the directory takes it.
async fn register(mesh: &dyn Engine, host: &str) -> anyhow::Result<Box<dyn Lease>> {
    let entry = Entry {
        host: Name::new(host)?,
        addresses: vec![listen(9)],
        version: env!("CARGO_PKG_VERSION").into(),
        groups: vec![Name::new(GROUP)?],
        capabilities: Capabilities::default(),
        key: None,
    };
    loop {
        match mesh.register(&entry, LEASE).await {
            Ok(lease) => return Ok(lease),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn archive(args: &Args) -> anyhow::Result<Arc<Local>> {
    let config = Config { commit_interval: COMMIT, ..Config::new(&args.directory) };
    Ok(Arc::new(Local::open(config)?))
}

fn nats(args: &Args, host: &str) -> anyhow::Result<Arc<Nats>> {
    let servers: Vec<String> = args.at.split(',').map(ToString::to_string).collect();
    let config = NatsConfig { replicas: args.replicas, ..NatsConfig::new(servers, Name::new(host)?) };
    Ok(Arc::new(Nats::new(config)?))
}

/// Appends a batch after the other and says which were acknowledged, until the input ends; then says
/// when nothing waits for the mesh any more.
async fn measure(joined: &Joined, jump: bool) -> anyhow::Result<()> {
    let host = Name::new(STATION)?;
    let mut next = loop {
        if let Ok(next) = joined.next_seq(&host).await {
            break next;
        }
        tokio::time::sleep(PAUSE).await;
    };
    let ended = Arc::new(AtomicBool::new(false));
    let reader = Arc::clone(&ended);
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().for_each(drop);
        reader.store(true, Ordering::Relaxed);
    });
    while !ended.load(Ordering::Relaxed) {
        let batch =
            (next..next + BATCH).map(|seq| record(&host, seq, jump)).collect::<anyhow::Result<Vec<_>>>()?;
        match joined.append(&batch).await {
            Ok(()) => {
                let waiting = joined.statistics().spooled;
                let mut out = std::io::stdout().lock();
                writeln!(out, "acknowledged {next} {BATCH} {waiting} .")?;
                out.flush()?;
                next += BATCH;
            }
            Err(error) => writeln!(std::io::stdout().lock(), "refused {error} .")?,
        }
        tokio::time::sleep(PAUSE).await;
    }
    while 0 < joined.statistics().spooled {
        tokio::time::sleep(PAUSE).await;
    }
    println!("drained {:?} .", joined.statistics());
    Ok(())
}

fn record(host: &Name, seq: u64, jump: bool) -> anyhow::Result<Record> {
    let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?;
    let target = Name::new(&format!("target{}", seq % 5))?;
    let jump_ns = if jump { [0, HOUR_NS, -HOUR_NS][(seq / 100 % 3) as usize] } else { 0 };
    Ok(Record {
        origin: host.clone(),
        seq,
        series: Series { source: host.clone(), target, quantity: Quantity::RTT },
        time_unix_ns: now + jump_ns,
        // Milliseconds: an hour and more is no round trip, and is refused.
        outcome: Outcome::Value(seq as f64 / 1e3),
        detail: String::new(),
    })
}

/// What the process that is joined listens on.
pub(super) fn listen(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The station's name.
pub(super) const STATION: &str = "north";

/// The group of the station and the archive, and their lease: a station's default.
const GROUP: &str = "lab";
const LEASE: Duration = Duration::from_secs(10);

/// The variable with the token of its invitation.
pub(super) const TOKEN: &str = "BAROGRAPH_JOIN_TOKEN";

/// Commits follow one another so quickly that a kill meets one half made.
const COMMIT: Duration = Duration::from_millis(5);

/// Records in an append, and the pause after it: some 400 records a second, far above a station's rate.
const BATCH: u64 = 10;
const PAUSE: Duration = Duration::from_millis(20);

const HOUR_NS: i64 = 3_600_000_000_000;
