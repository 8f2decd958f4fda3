//! The station, the archive, and the station that is joined, as processes that can be killed.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use barograph_engine::{
    Archiver, Capabilities, Config, Engine, Entry, Error, Event, Joined, JoinedConfig, Lease, Local, Nats,
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
            let local = archive(args)?;
            let _archiver = Archiver::start(&nats, Arc::clone(&local), &args.directory)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let signs = move || {
                let clock =
                    || local.clocks_ahead().first().map(|(host, _)| format!("the clock of {host} is ahead"));
                local.statistics().last_error.map(|error| error.to_string()).or_else(clock)
            };
            runtime.block_on(attend(&*nats, "archive", signs, || None))
        }
        Part::Station => station(args),
    }
}

/// A whole station with its server, as `barograph up` runs it.
fn host(args: &Args) -> anyhow::Result<()> {
    let mut config = barograph_station::Config {
        listen: args.at.parse().context("an address to listen on")?,
        state: args.directory.clone(),
        host: Some(Name::new("host")?),
        default_targets: false,
        commit: COMMIT,
        ..barograph_station::Config::default()
    };
    config.mesh.groups = vec![Name::new(GROUP)?];
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
    let local = archive(args)?;
    let joined = Arc::new(Joined::start(config, Arc::clone(&local), mesh)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let attended = Arc::clone(&joined);
    runtime.spawn(async move {
        let signs = || {
            let of_archive = local.statistics().last_error;
            let read_only = attended.read_only().map(|read_only| format!("read-only: {}", read_only.why));
            let of_mesh = || attended.statistics().last_error;
            read_only.or_else(|| of_archive.or_else(of_mesh).map(|error| error.to_string()))
        };
        attend(&*attended, STATION, signs, || attended.statistics().watermark).await
    });
    runtime.block_on(measure(&joined, args))
}

/// Writes which peers are up and which are lost, for how long the directory is read and takes no writes, what
/// `/healthz` would report, and up to where the mesh has confirmed.
async fn attend(
    mesh: &dyn Engine,
    host: &str,
    sign: impl Fn() -> Option<String>,
    watermark: impl Fn() -> Option<u64>,
) -> anyhow::Result<()> {
    let group = Name::new(GROUP)?;
    let mut lease = std::pin::pin!(register(mesh, host));
    let mut held = None;
    let (mut events, mut ticks) = (mesh.watch(&group), tokio::time::interval(LOOK_EVERY));
    let mut reported = None;
    loop {
        tokio::select! {
            registered = &mut lease, if held.is_none() => held = Some(registered?),
            event = events.next() => match event {
                Some(Ok(Event::Down(lost))) => println!("lost {lost} by {host} ."),
                Some(Ok(Event::Up(entry))) => println!("up {} by {host} .", entry.host),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => {
                    tokio::time::sleep(PAUSE).await;
                    events = mesh.watch(&group);
                }
            },
            _ = ticks.tick() => {
                if let Some(read_only) = mesh.read_only() {
                    println!("read-only {} .", read_only.since.elapsed().as_secs());
                }
                let sign = sign();
                if let Some(sign) = sign.as_ref().filter(|_| reported.is_none()) {
                    println!("sign {} .", sign.replace('\n', " "));
                }
                reported = sign;
                if let Some(watermark) = watermark() {
                    println!("confirmed {watermark} .");
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
    let config = NatsConfig {
        replicas: args.replicas,
        credentials: args.credentials.clone(),
        ..NatsConfig::new(servers, Name::new(host)?)
    };
    Ok(Arc::new(Nats::new(config)?))
}

/// Appends a batch after the other and says which were acknowledged, until the input ends; then says
/// when nothing waits for the mesh any more.
async fn measure(joined: &Joined, args: &Args) -> anyhow::Result<()> {
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
    let (began, mut was_wrong) = (Instant::now(), false);
    while !ended.load(Ordering::Relaxed) {
        let is_wrong = (CLOCK_RIGHT_FOR..CLOCK_RIGHT_FOR + Duration::from_secs(args.ahead_for_s))
            .contains(&began.elapsed());
        if is_wrong && !was_wrong {
            writeln!(std::io::stdout().lock(), "wrong clock .")?;
        }
        was_wrong |= is_wrong;
        let ahead_s = if is_wrong { args.ahead_s } else { 0 };
        let label = |seq| if args.jump { [0, HOUR_S, -HOUR_S][(seq / 100 % 3) as usize] } else { ahead_s };
        let batch = (next..next + BATCH)
            .map(|seq| record(&host, seq, label(seq)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        match joined.append(&batch).await {
            Ok(()) => {
                let waiting = joined.statistics().spooled;
                let mut out = std::io::stdout().lock();
                writeln!(out, "acknowledged {next} {BATCH} {waiting} .")?;
                out.flush()?;
                next += BATCH;
            }
            Err(error) => {
                writeln!(std::io::stdout().lock(), "refused {error} .")?;
                if let Error::Invalid(_) = error {
                    // Other records have the numbers.
                    next = joined.next_seq(&host).await.unwrap_or(next);
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    while 0 < joined.statistics().spooled {
        tokio::time::sleep(PAUSE).await;
    }
    println!("drained {:?} .", joined.statistics());
    Ok(())
}

/// The station's record of this number, labelled so many seconds ahead of the clock.
pub(super) fn record(host: &Name, seq: u64, ahead_s: i64) -> anyhow::Result<Record> {
    let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?;
    let target = Name::new(&format!("target{}", seq % 5))?;
    Ok(Record {
        origin: host.clone(),
        seq,
        series: Series { source: host.clone(), target, quantity: Quantity::RTT },
        time_unix_ns: now + ahead_s * 1_000_000_000,
        // Milliseconds: an hour and more is no round trip, and is refused.
        outcome: Outcome::Value(value(seq)),
        detail: String::new(),
    })
}

/// What the station measures under this number.
pub(super) fn value(seq: u64) -> f64 {
    seq as f64 / 1e3
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

const HOUR_S: i64 = 3600;

/// So long a clock that jumps is right after the start.
const CLOCK_RIGHT_FOR: Duration = Duration::from_secs(3);

/// How often the state is written.
const LOOK_EVERY: Duration = Duration::from_millis(100);
