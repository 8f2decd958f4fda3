//! The links of the study, and what stands at their ends: a station, a responder and a browser.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use barograph_probe::Target;
use barograph_probe::io::Limits;
use barograph_sim::{Chance, Host, Jitter, Link, LinkSpec, Network, Queue, delays_from_file};
use barograph_station::{Sources, Station, open_archive};
use tempfile::TempDir;

use super::programs::{Asked, Browser, Ready};
use super::{Args, ClockName, LinkName};
use crate::emulation::{Responder, forget_connections};
use crate::stats::deviation;

pub(crate) struct Path {
    pub(crate) name: &'static str,
    /// As part of a file's name.
    pub(crate) slug: &'static str,
    link: Link,
    pub(crate) is_loopback: bool,
}

impl Path {
    /// A link of the study, with these delays as jitter where it has any.
    ///
    /// # Errors
    /// When the mean of the delays is more than the link's delay, from which it is taken.
    pub(crate) fn of(name: LinkName, jitter: &Replayed) -> anyhow::Result<Self> {
        let (name, slug, link, is_loopback) = match name {
            LinkName::Slow => ("2 Mbit/s, 95 ms", "slow", emulated(2_000_000, 95, jitter)?, false),
            LinkName::Fast => ("100 Mbit/s, 20 ms", "fast", emulated(100_000_000, 20, jitter)?, false),
            LinkName::Faster => ("500 Mbit/s, 20 ms", "faster", emulated(500_000_000, 20, jitter)?, false),
            LinkName::Loopback => ("loopback", "loopback", Link::Veth { rate_bps: None }, true),
        };
        Ok(Self { name, slug, link, is_loopback })
    }

    /// The link with everything at its ends, the browser's page loaded.
    pub(crate) fn bench(&self, args: &Args) -> anyhow::Result<Bench> {
        self.bench_with(args, Limits::default())
    }

    /// The same, with a responder of these limits.
    pub(crate) fn bench_with(&self, args: &Args, limits: Limits) -> anyhow::Result<Bench> {
        let network = Network::new(self.link.clone())?;
        forget_connections(&network)?;
        let far = if self.is_loopback { &network.a } else { &network.b };
        // The near host's own address is loopback, too, but none that a browser trusts as it does 127.0.0.1: so it
        // has the coarser clock there, unless it is told otherwise.
        let ip = far.v4().to_string();
        let (page, responder) = (Page::start(far, &ip)?, Responder::start(far, limits)?);
        let mut browser = Browser::start(&network.a)?;
        let ready = browser.open(&page.url, args, args.clock)?;
        let (name, slug) = (self.name, self.slug);
        let browser = Some(browser);
        Ok(Bench { name, slug, browser, ready, responder, page, network, began: Instant::now() })
    }
}

/// Both ways of this rate and half of this round-trip time, of which the mean of the jitter is a part.
fn emulated(rate_bps: u64, rtt_ms: u64, jitter: &Replayed) -> anyhow::Result<Link> {
    // In microseconds, because half of 95 ms is no whole number of milliseconds.
    let half = Duration::from_micros(rtt_ms * 1000 / 2);
    let delay = half.checked_sub(jitter.mean()).with_context(|| {
        let (mean_ms, half_ms) = (jitter.mean().as_secs_f64() * 1e3, half.as_secs_f64() * 1e3);
        format!(
            "the jitter's mean is {mean_ms:.2} ms above its least; expected at most the {half_ms} ms one way of \
             the link of {rtt_ms} ms, from which it is taken"
        )
    })?;
    let spec = |delays, seed| LinkSpec {
        rate_bps: Some(rate_bps),
        delay,
        jitter: Jitter::Replay(delays),
        queue: Queue::Bytes(QUEUE_BYTES.max(rate_bps / 8 * rtt_ms / 1000)),
        seed,
        ..LinkSpec::default()
    };
    let (forward, back) = (spec(jitter.forward().collect(), 1), spec(jitter.back().collect(), 2));
    Ok(Link::Relay { forward, back, options: Default::default() })
}

pub(crate) struct Bench {
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    // None while it is started again. Dropped first: it talks to all that follows.
    browser: Option<Browser>,
    pub(crate) ready: Ready,
    /// What a native program measures: the same protocol without a page before it.
    responder: Responder,
    page: Page,
    pub(crate) network: Network,
    began: Instant,
}

impl Bench {
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        self.responder.target()
    }

    pub(crate) fn station(&self) -> SocketAddr {
        self.page.address
    }

    pub(crate) fn measure_in_browser(&mut self, asked: &Asked, args: &Args) -> anyhow::Result<f64> {
        self.browser(args)?.measure(asked)
    }

    /// The page with a clock of this kind, in a browser of its own.
    pub(crate) fn reopened(
        &mut self,
        args: &Args,
        clock: ClockName,
    ) -> anyhow::Result<(&mut Browser, Ready)> {
        // The one before ends first, or the two would share a processor.
        self.browser = None;
        let mut browser = Browser::start(&self.network.a)?;
        let ready = browser.open(&self.page.url, args, clock)?;
        Ok((self.browser.insert(browser), ready))
    }

    /// The browser with its page; one that was lost is started again.
    pub(crate) fn browser(&mut self, args: &Args) -> anyhow::Result<&mut Browser> {
        if self.browser.as_ref().is_none_or(Browser::is_lost) {
            self.reopened(args, args.clock)?;
        }
        self.browser.as_mut().context("the browser is gone")
    }

    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn void(&self) -> Option<String> {
        crate::emulation::void(&self.network)
    }
}

/// A station that serves the page and answers it.
struct Page {
    station: Option<Station>,
    address: SocketAddr,
    url: String,
    _state: TempDir,
}

impl Page {
    fn start(host: &Host, ip: &str) -> anyhow::Result<Self> {
        let state = tempfile::tempdir()?;
        let flags = [
            ("listen", format!("{ip}:0")),
            ("state", state.path().display().to_string()),
            ("default_targets", "false".to_owned()),
            // The study is no stranger's page: nothing it asks for is to be declined.
            ("echo.bytes_per_hour", ENOUGH_BYTES.to_string()),
            ("echo.peer_bytes_per_hour", ENOUGH_BYTES.to_string()),
        ];
        let flags = flags.map(|(key, value)| (key.to_owned(), value)).into();
        let config = Sources { flags, ..Sources::default() }.read()?;
        let archive = Arc::new(open_archive(&config)?);
        let station = host.run(|| Station::start(config, archive))??;
        let address = station.address();
        Ok(Self { station: Some(station), address, url: format!("http://{address}/"), _state: state })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(station) = self.station.take() {
            station.stop(STOP_LIMIT);
        }
    }
}

/// The delays that both directions replay, each from another place on.
pub(crate) struct Replayed {
    delays: Vec<Duration>,
    /// Of a file, or seeded.
    pub(crate) is_seeded: bool,
}

impl Replayed {
    /// Of a file, or seeded.
    ///
    /// The seeded ones are the square of a first-order autoregression of normal numbers: never negative, with calm and
    /// busy times, and a long tail, as queues of other people's traffic make them.
    ///
    /// # Errors
    /// When the file cannot be read, or round trips would vary too little.
    pub(crate) fn new(file: Option<&FilePath>) -> anyhow::Result<Self> {
        let delays = match file {
            Some(file) => {
                let delays = delays_from_file(file)?;
                // What all have in common is no jitter.
                let least = delays.iter().min().copied().unwrap_or_default();
                delays.into_iter().map(|delay| delay - least).collect()
            }
            None => seeded(),
        };
        let replayed = Self { delays, is_seeded: file.is_none() };
        let deviation_s = replayed.round_trip_s();
        ensure!(
            JITTER_S_MIN <= deviation_s,
            "round trips under these delays deviate by {:.2} ms; expected at least {} ms",
            deviation_s * 1e3,
            JITTER_S_MIN * 1e3
        );
        Ok(replayed)
    }

    /// What the jitter adds on average, one way.
    pub(crate) fn mean(&self) -> Duration {
        let count = u32::try_from(self.delays.len()).unwrap_or(u32::MAX).max(1);
        self.delays.iter().sum::<Duration>() / count
    }

    pub(crate) fn one_way_s(&self) -> f64 {
        deviation_s(self.delays.iter().copied())
    }

    /// The standard deviation of what a packet and its answer meet together, in seconds: of the two directions' lists
    /// as they are combined while as many packets go forth as back.
    pub(crate) fn round_trip_s(&self) -> f64 {
        deviation_s(self.forward().zip(self.back()).map(|(forth, back)| forth + back))
    }

    fn forward(&self) -> impl Iterator<Item = Duration> + Clone {
        self.delays.iter().copied()
    }

    /// Half of the list apart, or a packet and its answer would meet the same.
    fn back(&self) -> impl Iterator<Item = Duration> + Clone {
        let half = self.delays.len() / 2;
        self.delays[half..].iter().chain(&self.delays[..half]).copied()
    }
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

fn deviation_s(delays: impl Iterator<Item = Duration>) -> f64 {
    deviation(&delays.map(|delay| delay.as_secs_f64()).collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// The study's least jitter: the standard deviation of a round trip.
const JITTER_S_MIN: f64 = 0.002;

/// The square of a standard normal number has mean 1 and deviation √2: 1.6 ms here, and 2.2 ms of a round trip. Not much
/// more than the least, because scatter alone draws the coefficient below 1 (tables.rs).
const SCALE_S: f64 = 0.0011;

/// Two packets that follow each other meet nearly the same. The delays, being squares, k packets apart have the
/// correlation 0.98^(2k): 0.13 after fifty packets, 0.02 after a hundred, so that it takes a connection or two to forget.
const MEMORY: f64 = 0.98;

/// Enough for a thousand pairs without repetition: a pair of transfers of 64 KiB and four connections for exchanges are
/// less than 300 packets one way. More pairs or bytes come round to the same delays,
/// but with other packets.
const DELAYS: usize = 400_009;

/// Any would do.
const SEED: u64 = 4;

/// Room for the largest transfer of the study that the paper names, so that the queue loses nothing: losses would
/// differ from pair to pair, and it is the programs that are compared.
const QUEUE_BYTES: u64 = 256 * 1024;

/// Far beyond what a study transfers in an hour; a station would count what it gives to strangers.
const ENOUGH_BYTES: u64 = 1 << 40;

/// It measures nothing itself; what it has to store is next to nothing.
const STOP_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_jitter_is_enough_and_spares_room_for_its_mean() {
        let replayed = Replayed::new(None).unwrap();
        assert!(replayed.mean() < Duration::from_millis(10), "the mean is taken off half of 20 ms");
        let ratio = replayed.round_trip_s() / replayed.one_way_s();
        assert!((1.3..1.5).contains(&ratio), "nearly independent, so √2: {ratio}");
        assert_eq!(replayed.delays, Replayed::new(None).unwrap().delays, "the same every time");
    }

    #[test]
    fn a_link_has_the_round_trip_time_that_it_is_named_after() {
        let replayed = Replayed::new(None).unwrap();
        for (name, rtt) in [(LinkName::Slow, 95), (LinkName::Fast, 20)] {
            let Link::Relay { forward, back, .. } = Path::of(name, &replayed).unwrap().link else {
                panic!("emulated");
            };
            let both = forward.delay + back.delay + 2 * replayed.mean();
            assert_eq!(both, Duration::from_millis(rtt));
        }
    }

    #[test]
    fn jitter_of_a_file_is_what_exceeds_its_least() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let replayed = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Replayed::new(Some(file.path()))
        };
        let ms = Duration::from_millis;
        let of_four = replayed("time_s,value\n0,0.030\n1,0.040\n2,0.030\n3,0.030\n").unwrap();
        assert_eq!(of_four.delays, [ms(0), ms(10), ms(0), ms(0)]);
        let refusal = |text: &str| replayed(text).err().unwrap().to_string();
        assert!(refusal("0.030\n0.031\n").contains("at least 2 ms"));
        // One way they differ by 10 ms, but every round trip meets both.
        assert!(refusal("0.030\n0.040\n").contains("deviate by 0.00 ms"));
    }

    #[test]
    fn jitter_that_a_link_cannot_absorb_is_refused() {
        let delays = [0, 30, 30, 30].map(Duration::from_millis).into();
        let replayed = Replayed { delays, is_seeded: false };
        assert!(Path::of(LinkName::Slow, &replayed).is_ok());
        let error = Path::of(LinkName::Fast, &replayed).err().unwrap().to_string();
        assert!(error.contains("22.50 ms") && error.contains("at most the 10 ms"), "{error}");
    }
}
