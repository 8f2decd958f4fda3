//! The links of the study, and what stands at their ends: a station, a responder and a browser.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use barograph_probe::Target;
use barograph_probe::io::{Limits, Listener};
use barograph_sim::{Chance, Host, Jitter, Link, LinkSpec, Network, Queue, delays_from_file};
use barograph_station::{Sources, Station, config, open_archive};
use tempfile::TempDir;

use super::browser::{Browser, Ready};
use super::{Args, LinkName};

/// A link, described.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    /// As part of a file's name.
    pub(crate) slug: &'static str,
    link: Link,
    is_loopback: bool,
}

impl Path {
    /// A link of the study, with these delays as jitter where it has any.
    pub(crate) fn of(name: LinkName, delays: &[Duration]) -> Self {
        let emulated = |rate_bps, rtt_ms| {
            let mean =
                delays.iter().sum::<Duration>() / u32::try_from(delays.len()).unwrap_or(u32::MAX).max(1);
            // The mean stays: what the jitter adds on average is taken off before.
            let delay = Duration::from_millis(rtt_ms / 2).saturating_sub(mean);
            let spec = |first: usize, seed| LinkSpec {
                rate_bps: Some(rate_bps),
                delay,
                jitter: Jitter::Replay([&delays[first..], &delays[..first]].concat()),
                queue: Queue::Bytes(QUEUE_BYTES.max(rate_bps / 8 * rtt_ms / 1000)),
                seed,
                ..LinkSpec::default()
            };
            // Both ways replay the same delays, but half of them apart, or a packet and its answer would meet the same.
            Link::Relay { forward: spec(0, 1), back: spec(delays.len() / 2, 2), options: Default::default() }
        };
        match name {
            LinkName::Slow => Self {
                name: "2 Mbit/s, 95 ms",
                slug: "slow",
                link: emulated(2_000_000, 95),
                is_loopback: false,
            },
            LinkName::Fast => Self {
                name: "100 Mbit/s, 20 ms",
                slug: "fast",
                link: emulated(100_000_000, 20),
                is_loopback: false,
            },
            LinkName::Loopback => {
                let link = Link::Veth { rate_bps: None };
                Self { name: "loopback", slug: "loopback", link, is_loopback: true }
            }
        }
    }

    /// The link with everything at its ends, the browser's page loaded.
    pub(crate) fn bench(&self, args: &Args) -> anyhow::Result<Bench> {
        self.bench_with(args, Limits::default())
    }

    /// The same, with a responder of these limits.
    pub(crate) fn bench_with(&self, args: &Args, limits: Limits) -> anyhow::Result<Bench> {
        let network = Network::new(self.link.clone())?;
        for host in [&network.a, &network.b] {
            // What the kernel remembers of one connection would help, or hamper, the next to the same address.
            let path = "/proc/sys/net/ipv4/tcp_no_metrics_save";
            host.run(|| std::fs::write(path, "1"))?.with_context(|| format!("cannot write {path}"))?;
        }
        let far = if self.is_loopback { &network.a } else { &network.b };
        // The near host's own address is loopback, too, but none that a browser trusts as it does 127.0.0.1: so it
        // has the coarser clock there, unless it is told otherwise.
        let ip = far.v4().to_string();
        let (page, responder) = (Page::start(far, &ip)?, responder(far, &ip, limits)?);
        let mut browser = Browser::start(&network.a)?;
        let ready = browser.open(&page.url, args, args.clock)?;
        let (name, slug) = (self.name, self.slug);
        Ok(Bench {
            name,
            slug,
            browser: Some(browser),
            ready,
            responder,
            page,
            network,
            began: Instant::now(),
        })
    }
}

/// A link at work.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    // Taken out while it measures. Dropped first: it talks to all that follows.
    browser: Option<Browser>,
    pub(crate) ready: Ready,
    responder: Listener,
    page: Page,
    pub(crate) network: Network,
    began: Instant,
}

impl Bench {
    /// What a native program measures.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&self.responder.address().to_string())?)
    }

    /// The page that a browser loads.
    pub(crate) fn url(&self) -> &str {
        &self.page.url
    }

    /// The browser with its page, which is on the near host.
    pub(crate) fn browser(&mut self) -> anyhow::Result<&mut Browser> {
        self.browser.as_mut().context("the browser is gone")
    }

    /// Seconds since the link was made: the time of the series.
    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Why what was measured is void, if it is.
    pub(crate) fn void(&self) -> Option<String> {
        self.network.report()?.void().map(|void| void.to_string())
    }
}

/// A station that serves the page and answers it.
struct Page {
    station: Option<Station>,
    url: String,
    _state: TempDir,
}

impl Page {
    fn start(host: &Host, ip: &str) -> anyhow::Result<Self> {
        let state = tempfile::tempdir()?;
        let mut flags = vec![
            ("listen".to_owned(), format!("{ip}:0")),
            ("state".to_owned(), state.path().display().to_string()),
            ("default_targets".to_owned(), "false".to_owned()),
        ];
        // The study is no stranger's page: nothing it asks for is to be declined.
        let generous = GENEROUS.iter().filter(|(key, _)| config::KEYS.contains(key));
        flags.extend(generous.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let config = Sources { flags, ..Sources::default() }.read()?;
        let archive = Arc::new(open_archive(&config)?);
        let station = host.run(|| Station::start(config, archive))??;
        let url = format!("http://{}/", station.address());
        Ok(Self { station: Some(station), url, _state: state })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(station) = self.station.take() {
            station.stop(STOP_LIMIT);
        }
    }
}

/// What a native program measures: the same protocol without a page before it.
fn responder(host: &Host, ip: &str, limits: Limits) -> anyhow::Result<Listener> {
    let address = format!("{ip}:0").parse()?;
    Ok(host.run(|| Listener::start(address, limits))??)
}

/// The delays of one direction: of a file, or seeded.
///
/// The seeded ones are the square of a first-order autoregression of normal numbers: never negative, with calm and
/// busy times, and a long tail, as queues of other people's traffic make them.
pub(crate) fn jitter(file: Option<&FilePath>) -> anyhow::Result<Vec<Duration>> {
    let delays = match file {
        Some(file) => {
            let delays = delays_from_file(file)?;
            // What all have in common is no jitter.
            let least = delays.iter().min().copied().unwrap_or_default();
            delays.into_iter().map(|delay| delay - least).collect()
        }
        None => seeded(),
    };
    // A round trip meets two of them, which are independent: their variances add.
    let deviation_s = deviation_s(&delays) * std::f64::consts::SQRT_2;
    ensure!(
        JITTER_S_MIN <= deviation_s,
        "round trips under these delays deviate by {:.2} ms; expected at least {} ms",
        deviation_s * 1e3,
        JITTER_S_MIN * 1e3
    );
    Ok(delays)
}

fn seeded() -> Vec<Duration> {
    let mut chance = Chance::new(SEED, 0);
    let mut state = 0.0;
    let step = |_| {
        state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * chance.normal();
        Duration::from_secs_f64(SCALE_S * state * state)
    };
    (0..DELAYS).map(step).collect()
}

fn deviation_s(delays: &[Duration]) -> f64 {
    let delays_s = delays.iter().map(Duration::as_secs_f64);
    barograph::compare::Moments::of(delays_s).variance.unwrap_or(0.0).sqrt()
}

/// The study's least jitter: the standard deviation of a round trip.
const JITTER_S_MIN: f64 = 0.002;

/// The square of a standard normal number has mean 1 and deviation √2: 1.6 ms here, and 2.2 ms of a round trip. Not much
/// more than the least, because scatter alone draws the coefficient below 1 (tables.rs).
const SCALE_S: f64 = 0.0011;

/// Two packets that follow each other meet nearly the same; after some fifty all is forgotten.
const MEMORY: f64 = 0.98;

/// Enough that no two of a thousand transfers meet the same, and any seed would do.
const DELAYS: usize = 100_003;
const SEED: u64 = 4;

/// Room for the largest transfer of the study that the paper names, so that the queue loses nothing: losses would
/// differ from pair to pair, and it is the programs that are compared.
const QUEUE_BYTES: u64 = 256 * 1024;

/// Settings of a station that otherwise protect it from strangers.
const GENEROUS: [(&str, &str); 2] =
    [("echo.bytes_per_hour", "1099511627776"), ("echo.peer_bytes_per_hour", "1099511627776")];

/// It measures nothing itself; what it has to store is next to nothing.
const STOP_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn seeded_jitter_is_enough_and_spares_room_for_its_mean() {
        let delays = jitter(None).unwrap();
        let mean = delays.iter().sum::<Duration>() / u32::try_from(delays.len()).unwrap();
        assert!(mean < Duration::from_millis(10), "the mean is taken off half of 20 ms: {mean:?}");
        assert_eq!(delays, jitter(None).unwrap(), "the same every time");
    }

    #[test]
    fn jitter_of_a_file_is_what_exceeds_its_least() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "time_s,value\n0,0.030\n1,0.040\n").unwrap();
        assert_eq!(jitter(Some(file.path())).unwrap(), [Duration::ZERO, Duration::from_millis(10)]);
        std::fs::write(file.path(), "0.030\n0.031\n").unwrap();
        assert!(jitter(Some(file.path())).unwrap_err().to_string().contains("at least 2 ms"));
    }
}
