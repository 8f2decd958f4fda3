//! The links of the study, and what stands at their ends: a station, a responder and a browser.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_probe::Target;
use barograph_probe::io::Limits;
use barograph_sim::{Chance, Host, Jitter, Link, LinkSpec, Network, Queue};
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
    pub(crate) fn of(name: LinkName, jitter: &Replayed) -> Self {
        let (name, slug, link, is_loopback) = match name {
            LinkName::Slow => ("2 Mbit/s, 95 ms", "slow", emulated(2_000_000, 95, jitter), false),
            LinkName::Fast => ("100 Mbit/s, 20 ms", "fast", emulated(100_000_000, 20, jitter), false),
            LinkName::Faster => ("500 Mbit/s, 20 ms", "faster", emulated(500_000_000, 20, jitter), false),
            LinkName::Loopback => ("loopback", "loopback", Link::Veth { rate_bps: None }, true),
        };
        Self { name, slug, link, is_loopback }
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
        let ready = browser.open(&page.url, args, ClockName::Fine)?;
        let (name, slug) = (self.name, self.slug);
        let browser = Some(browser);
        Ok(Bench { name, slug, browser, ready, responder, page, network, began: Instant::now() })
    }
}

/// Both ways of this rate and half of this round-trip time, of which the mean of the jitter is a part.
fn emulated(rate_bps: u64, rtt_ms: u64, jitter: &Replayed) -> Link {
    // In microseconds, because half of 95 ms is no whole number of milliseconds.
    let delay = Duration::from_micros(rtt_ms * 1000 / 2) - jitter.mean();
    let spec = |delays, seed| LinkSpec {
        rate_bps: Some(rate_bps),
        delay,
        jitter: Jitter::Replay(delays),
        queue: Queue::Bytes(QUEUE_BYTES.max(rate_bps / 8 * rtt_ms / 1000)),
        seed,
        ..LinkSpec::default()
    };
    let (forward, back) = (spec(jitter.forward().collect(), 1), spec(jitter.back().collect(), 2));
    Link::Relay { forward, back, options: Default::default() }
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
            self.reopened(args, ClockName::Fine)?;
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
pub(crate) struct Replayed(Vec<Duration>);

impl Replayed {
    /// The square of a first-order autoregression of normal numbers: never negative, with calm and busy times, and a long
    /// tail, as queues of other people's traffic make them.
    pub(crate) fn seeded() -> Self {
        let mut chance = Chance::new(SEED, 0);
        let mut state = 0.0;
        let step = |_| {
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * chance.normal();
            Duration::from_secs_f64(SCALE_S * state * state)
        };
        Self((0..DELAYS).map(step).collect())
    }

    /// What the jitter adds on average, one way.
    pub(crate) fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1);
        self.0.iter().sum::<Duration>() / count
    }

    pub(crate) fn one_way_s(&self) -> f64 {
        deviation_s(self.0.iter().copied())
    }

    /// The standard deviation of what a packet and its answer meet together, in seconds: of the two directions' lists
    /// as they are combined while as many packets go forth as back.
    pub(crate) fn round_trip_s(&self) -> f64 {
        deviation_s(self.forward().zip(self.back()).map(|(forth, back)| forth + back))
    }

    fn forward(&self) -> impl Iterator<Item = Duration> + Clone {
        self.0.iter().copied()
    }

    /// Half of the list apart, or a packet and its answer would meet the same.
    fn back(&self) -> impl Iterator<Item = Duration> + Clone {
        let half = self.0.len() / 2;
        self.0[half..].iter().chain(&self.0[..half]).copied()
    }
}

fn deviation_s(delays: impl Iterator<Item = Duration>) -> f64 {
    deviation(&delays.map(|delay| delay.as_secs_f64()).collect::<Vec<f64>>()).unwrap_or(0.0)
}

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
        let replayed = Replayed::seeded();
        assert!(0.002 <= replayed.round_trip_s(), "the study's least jitter");
        assert!(replayed.mean() < Duration::from_millis(10), "the mean is taken off half of 20 ms");
        let ratio = replayed.round_trip_s() / replayed.one_way_s();
        assert!((1.3..1.5).contains(&ratio), "nearly independent, so √2: {ratio}");
        assert_eq!(replayed.0, Replayed::seeded().0, "the same every time");
    }

    #[test]
    fn a_link_has_the_round_trip_time_that_it_is_named_after() {
        let replayed = Replayed::seeded();
        for (name, rtt) in [(LinkName::Slow, 95), (LinkName::Fast, 20)] {
            let Link::Relay { forward, back, .. } = Path::of(name, &replayed).link else {
                panic!("emulated");
            };
            let both = forward.delay + back.delay + 2 * replayed.mean();
            assert_eq!(both, Duration::from_millis(rtt));
        }
    }
}
