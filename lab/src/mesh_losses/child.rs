//! The station, the archive and the joined station, as processes that can be killed.

use std::fmt;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use barograph_engine::{
    Capabilities, Engine, EngineError, Entry, Event, Joined, JoinedConfig, Lease, Local, LocalConfig, Nats,
    NatsConfig, Record, Remote, RemoteConfig,
};
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
use barograph_station::Station;
use futures_util::StreamExt as _;

use super::{Args, Part};

pub(super) fn run(part: Part, args: &Args) -> anyhow::Result<()> {
    match part {
        Part::Host | Part::Archive => archive(part, args),
        Part::Station => station(args),
    }
}

/// Runs a whole station with its server, as `barograph up` does: the station that others join, or
/// the archive beside NATS.
fn archive(part: Part, args: &Args) -> anyhow::Result<()> {
    let mut config = barograph_station::Config {
        listen: args.listen.context("a whole station listens")?,
        state: args.directory.clone(),
        host: Some(Name::new(part.as_str())?),
        default_targets: false,
        commit: COMMIT,
        ..barograph_station::Config::default()
    };
    config.mesh.groups = vec![Name::new(GROUP)?];
    if part == Part::Archive {
        config.mesh.archive = true;
        config.mesh.nats = servers(args);
        config.mesh.nats_replicas = args.replicas;
        config.mesh.nats_credentials.clone_from(&args.credentials);
    }
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
        let config = NatsConfig {
            replicas: args.replicas,
            credentials: args.credentials.clone(),
            ..NatsConfig::new(servers(args), name.clone())
        };
        Arc::new(Nats::new(config)?)
    };
    let config = JoinedConfig { confirm_every: Duration::from_secs(1), ..JoinedConfig::new(name) };
    let local =
        Arc::new(Local::open(LocalConfig { commit_interval: COMMIT, ..LocalConfig::new(&args.directory) })?);
    let joined = Arc::new(Joined::start(config, Arc::clone(&local), mesh)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let attended = Arc::clone(&joined);
    runtime.spawn(async move { attend(&attended, &local).await });
    runtime.block_on(measure(&joined))
}

/// Prints peers that are up or lost, how long the directory has been read-only, what `/healthz`
/// would report, and the mesh's watermark.
async fn attend(mesh: &Joined, archive: &Local) -> anyhow::Result<()> {
    let group = Name::new(GROUP)?;
    let mut lease = std::pin::pin!(register(mesh));
    let mut held = None;
    let (mut events, mut ticks) = (mesh.watch(&group), tokio::time::interval(POLL_INTERVAL));
    let mut is_well = true;
    loop {
        tokio::select! {
            registered = &mut lease, if held.is_none() => held = Some(registered?),
            event = events.next() => match event {
                Some(Ok(Event::Down(lost))) => println!("lost {lost} by {STATION} ."),
                Some(Ok(Event::Up(entry))) => println!("up {} by {STATION} .", entry.host),
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
                let sign = sign(mesh, archive);
                match &sign {
                    Some(sign) if is_well => println!("sign {} .", sign.replace('\n', " ")),
                    None if !is_well => println!("well ."),
                    _ => {}
                }
                is_well = sign.is_none();
                if let Some(watermark) = mesh.statistics().watermark {
                    println!("confirmed {watermark} .");
                }
            }
        }
    }
}

/// What `/healthz` of a whole station would report; `None` if nothing.
fn sign(mesh: &Joined, archive: &Local) -> Option<String> {
    let read_only = mesh.read_only().map(|read_only| format!("read-only: {}", read_only.error));
    let failed = || archive.statistics().last_error.or_else(|| mesh.statistics().last_error);
    read_only.or_else(|| failed().map(|error| error.to_string()))
}

/// Registers the station, and retries until the directory accepts it.
async fn register(mesh: &Joined) -> anyhow::Result<Box<dyn Lease>> {
    let entry = Entry {
        host: Name::new(STATION)?,
        addresses: vec![listen(9)],
        version: env!("CARGO_PKG_VERSION").into(),
        groups: vec![Name::new(GROUP)?],
        // Only a station with a responder is a peer. Nothing listens at this address, so probes of
        // it fail.
        capabilities: Capabilities { responder: true, ..Capabilities::default() },
        key: None,
    };
    loop {
        match mesh.register(&entry, LEASE).await {
            Ok(lease) => return Ok(lease),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn servers(args: &Args) -> Vec<String> {
    args.at.split(',').map(ToString::to_string).collect()
}

/// Appends batches one after another and prints which were acknowledged, until the input ends. Then
/// prints when the mesh has confirmed all of them. A line of input sets the clock.
async fn measure(joined: &Joined) -> anyhow::Result<()> {
    let host = Name::new(STATION)?;
    let mut next = loop {
        if let Ok(next) = joined.next_seq(&host).await {
            break next;
        }
        tokio::time::sleep(PAUSE).await;
    };
    let input = Arc::new((AtomicBool::new(false), Mutex::new(Clock::RIGHT)));
    let reader = Arc::clone(&input);
    std::thread::spawn(move || {
        for clock in
            std::io::stdin().lock().lines().map_while(Result::ok).filter_map(|line| line.parse().ok())
        {
            *reader.1.lock().unwrap_or_else(PoisonError::into_inner) = clock;
        }
        reader.0.store(true, Ordering::Relaxed);
    });
    let (ended, clock) = &*input;
    while !ended.load(Ordering::Relaxed) {
        let clock = *clock.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = (next..next + BATCH)
            .map(|seq| record(&host, seq, clock.ahead_s(seq)))
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
                if let EngineError::Invalid(_) = error {
                    // Other records have these sequence numbers.
                    next = joined.next_seq(&host).await.unwrap_or(next);
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    while joined.statistics().spooled > 0 {
        tokio::time::sleep(PAUSE).await;
    }
    println!("drained {:?} .", joined.statistics());
    Ok(())
}

/// The station's record with this number; its time label is `ahead_s` seconds ahead of the clock.
pub(super) fn record(host: &Name, seq: u64, ahead_s: i64) -> anyhow::Result<Record> {
    let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?;
    let target = Name::new(&format!("target{}", seq % 5))?;
    Ok(Record {
        origin: host.clone(),
        seq,
        series: SeriesId { source: host.clone(), target, quantity: Quantity::RTT },
        time_unix_ns: now + ahead_s * 1_000_000_000,
        // Steps of a millisecond, because a round-trip time of an hour or more is refused.
        outcome: Outcome::Value(value(seq)),
        detail: String::new(),
    })
}

/// Value that the station measures under this number (s).
pub(super) fn value(seq: u64) -> f64 {
    seq as f64 / 1e3
}

pub(super) fn listen(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub(super) const STATION: &str = "north";

/// Group of the station and the archive, and their lease: a station's default.
const GROUP: &str = "lab";
const LEASE: Duration = Duration::from_secs(10);

/// Environment variable with the token of the invitation.
pub(super) const TOKEN: &str = "BAROGRAPH_JOIN_TOKEN";

/// Commit interval; so short that a kill often interrupts a commit.
const COMMIT: Duration = Duration::from_millis(5);

/// Records in an append, and the pause after it: some 400 records a second, far above a station's
/// rate.
const BATCH: u64 = 10;
const PAUSE: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Ahead(i64),
    /// An hour ahead, an hour behind, and right, for 100 records each.
    Jumps,
}

impl Clock {
    pub(super) const RIGHT: Self = Self::Ahead(0);

    /// Seconds by which the record with this number is labelled ahead of the clock.
    pub(super) fn ahead_s(self, seq: u64) -> i64 {
        match self {
            Self::Ahead(seconds) => seconds,
            Self::Jumps => [0, HOUR_S, -HOUR_S][(seq / 100 % 3) as usize],
        }
    }
}

/// A line of the station's input.
impl fmt::Display for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(seconds) => write!(out, "{seconds}"),
            Self::Jumps => out.write_str(JUMPS),
        }
    }
}

impl FromStr for Clock {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        if line == JUMPS { Ok(Self::Jumps) } else { line.parse().map(Self::Ahead) }
    }
}

const JUMPS: &str = "jumps";
const HOUR_S: i64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_settings_parse_from_their_text() {
        for clock in [Clock::RIGHT, Clock::Ahead(-3600), Clock::Jumps] {
            assert_eq!(clock.to_string().parse(), Ok(clock));
        }
    }
}
