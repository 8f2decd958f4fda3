//! The station and the archive, as processes that can be killed.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use barograph_engine::{
    Archiver, Config, Engine as _, Joined, JoinedConfig, Local, Nats, NatsConfig, Record,
};
use barograph_forecast::{Name, Outcome, Quantity, Series};

/// Which part of the mesh a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Appends and forwards.
    Station,
    /// Keeps what the mesh holds.
    Archive,
}

/// Works until it is killed, or until its input ends.
pub(super) fn run(part: Part, directory: &Path, url: &str, jump: bool) -> anyhow::Result<()> {
    let host = Name::new(if part == Part::Station { STATION } else { "archive" })?;
    let config = Config { commit_interval: Duration::from_millis(5), ..Config::new(directory) };
    let local = Arc::new(Local::open(config)?);
    let nats = Arc::new(Nats::new(NatsConfig::new(vec![url.to_owned()], host.clone()))?);
    match part {
        Part::Archive => {
            let _archiver = Archiver::start(&nats, local, directory)?;
            std::io::stdin().lines().for_each(drop);
            Ok(())
        }
        Part::Station => {
            let config = JoinedConfig { confirm_every: Duration::from_secs(1), ..JoinedConfig::new(host) };
            let joined = Joined::start(config, local, nats)?;
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            runtime.block_on(measure(&joined, jump))
        }
    }
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
        if joined.append(&batch).await.is_ok() {
            let mut out = std::io::stdout().lock();
            writeln!(out, "acknowledged {next} {BATCH} .")?;
            out.flush()?;
            next += BATCH;
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
        outcome: Outcome::Value(seq as f64),
        detail: String::new(),
    })
}

/// The station's name.
const STATION: &str = "north";

/// Records in an append, and the pause after it: some 400 records a second, far above a station's rate.
const BATCH: u64 = 10;
const PAUSE: Duration = Duration::from_millis(20);

const HOUR_NS: i64 = 3_600_000_000_000;
