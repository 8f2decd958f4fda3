//! The links of the study, and what runs at their ends: a station, a responder and a browser.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_probe::Target;
use barograph_probe::io::ResponderLimits;
use barograph_sim::{Host, Jitter, Link, LinkSpec, Network, Queue, SeededRng};
use barograph_station::{ConfigSources, Station, open_archive};
use tempfile::TempDir;

use super::programs::{Browser, Ready, SampleRequest};
use super::{Args, ClockName, LinkName};
use crate::emulation::{Responder, forget_connections};
use crate::stats::deviation;

pub(crate) struct LinkSetup {
    pub(crate) name: &'static str,
    /// Name of the link in file names.
    pub(crate) slug: &'static str,
    link: Link,
    pub(crate) is_loopback: bool,
}

impl LinkSetup {
    /// Returns a link of the study; `jitter` is used by the emulated ones.
    pub(crate) fn of(name: LinkName, jitter: &Replayed) -> Self {
        let (name, slug, link, is_loopback) = match name {
            LinkName::Slow => ("2 Mbit/s, 95 ms", "slow", emulated(2_000_000, 95, jitter), false),
            LinkName::Fast => ("100 Mbit/s, 20 ms", "fast", emulated(100_000_000, 20, jitter), false),
            LinkName::Faster => ("500 Mbit/s, 20 ms", "faster", emulated(500_000_000, 20, jitter), false),
            LinkName::Loopback => ("loopback", "loopback", Link::Veth { rate_bps: None }, true),
        };
        Self { name, slug, link, is_loopback }
    }

    /// Sets up the link and both ends, and loads the page in the browser.
    pub(crate) fn testbed(&self, args: &Args) -> anyhow::Result<LinkTestbed> {
        self.testbed_with(args, ResponderLimits::default())
    }

    /// As [`Self::testbed`], with a responder that has these limits.
    pub(crate) fn testbed_with(&self, args: &Args, limits: ResponderLimits) -> anyhow::Result<LinkTestbed> {
        let network = Network::new(self.link.clone())?;
        forget_connections(&network)?;
        let far = if self.is_loopback { &network.a } else { &network.b };
        // On loopback the page has the near host's own address. Browsers do not trust it as they
        // trust 127.0.0.1, so the page has the coarser clock unless the finer one is requested.
        let ip = far.v4().to_string();
        let (page, responder) = (Page::start(far, &ip)?, Responder::start(far, limits)?);
        let mut browser = Browser::start(&network.a)?;
        let ready = browser.open(&page.url, args, ClockName::Fine)?;
        let (name, slug) = (self.name, self.slug);
        let browser = Some(browser);
        Ok(LinkTestbed { name, slug, browser, ready, responder, page, network, began: Instant::now() })
    }
}

/// A link with this rate both ways. Half of the round-trip time is each way's delay, which includes
/// the mean of the jitter.
fn emulated(rate_bps: u64, rtt_ms: u64, jitter: &Replayed) -> Link {
    // In microseconds, because half of 95 ms is not a whole number of milliseconds.
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

pub(crate) struct LinkTestbed {
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    // `None` while the browser is restarted. It uses all fields below, so it is dropped first.
    browser: Option<Browser>,
    pub(crate) ready: Ready,
    /// Target of the native program: the same protocol without a page.
    responder: Responder,
    page: Page,
    pub(crate) network: Network,
    began: Instant,
}

impl LinkTestbed {
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        self.responder.target()
    }

    pub(crate) fn station(&self) -> SocketAddr {
        self.page.address
    }

    pub(crate) fn measure_in_browser(&mut self, request: &SampleRequest, args: &Args) -> anyhow::Result<f64> {
        self.browser(args)?.measure(request)
    }

    /// Opens the page with this kind of clock in a new browser.
    pub(crate) fn reopened(
        &mut self,
        args: &Args,
        clock: ClockName,
    ) -> anyhow::Result<(&mut Browser, Ready)> {
        // The old browser ends first; otherwise both would share a processor.
        self.browser = None;
        let mut browser = Browser::start(&self.network.a)?;
        let ready = browser.open(&self.page.url, args, clock)?;
        Ok((self.browser.insert(browser), ready))
    }

    /// The browser with its page; a lost browser is restarted.
    pub(crate) fn browser(&mut self, args: &Args) -> anyhow::Result<&mut Browser> {
        if self.browser.as_ref().is_none_or(Browser::is_lost) {
            self.reopened(args, ClockName::Fine)?;
        }
        self.browser.as_mut().context("the browser is gone")
    }

    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn invalid_reason(&self) -> Option<String> {
        crate::emulation::invalid_reason(&self.network)
    }
}

/// A station that serves the page and answers its requests.
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
            // High limits, so that the station declines no request of the study.
            ("echo.bytes_per_hour", ENOUGH_BYTES.to_string()),
            ("echo.peer_bytes_per_hour", ENOUGH_BYTES.to_string()),
        ];
        let flags = flags.map(|(key, value)| (key.to_owned(), value)).into();
        let config = ConfigSources { flags, ..ConfigSources::default() }.read()?;
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

/// Delays that both directions replay, from different starting positions.
pub(crate) struct Replayed(Vec<Duration>);

impl Replayed {
    /// The square of a first-order autoregression of normal numbers: never negative, with calm and
    /// busy times and a long tail, as queues with other traffic have.
    pub(crate) fn seeded() -> Self {
        let mut rng = SeededRng::new(SEED, 0);
        let mut state = 0.0;
        let step = |_| {
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * rng.normal();
            Duration::from_secs_f64(SCALE_S * state * state)
        };
        Self((0..DELAYS).map(step).collect())
    }

    /// Mean delay that the jitter adds one way.
    pub(crate) fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1);
        self.0.iter().sum::<Duration>() / count
    }

    pub(crate) fn one_way_s(&self) -> f64 {
        deviation_s(self.0.iter().copied())
    }

    /// Standard deviation (s) of the sum of a packet's jitter and its answer's. The delays of both
    /// directions are paired as they are while both carry equally many packets.
    pub(crate) fn round_trip_s(&self) -> f64 {
        deviation_s(self.forward().zip(self.back()).map(|(forth, back)| forth + back))
    }

    fn forward(&self) -> impl Iterator<Item = Duration> + Clone {
        self.0.iter().copied()
    }

    /// Starts half the list later; otherwise a packet and its answer would have the same delay.
    fn back(&self) -> impl Iterator<Item = Duration> + Clone {
        let half = self.0.len() / 2;
        self.0[half..].iter().chain(&self.0[..half]).copied()
    }
}

fn deviation_s(delays: impl Iterator<Item = Duration>) -> f64 {
    deviation(&delays.map(|delay| delay.as_secs_f64()).collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// Scale of the jitter. The square of a standard normal number has mean 1 and standard deviation
/// √2, so the jitter has 1.6 ms one way and 2.2 ms for a round trip. It is little above the minimum
/// of 2 ms, because scatter alone reduces the coefficient below 1 (tables.rs).
const SCALE_S: f64 = 0.0011;

/// Consecutive packets have nearly the same delay. The delays are squares, so k packets apart they
/// have the correlation 0.98^(2k): 0.13 after 50 packets, 0.02 after 100. The correlation is gone
/// after one or two connections.
const MEMORY: f64 = 0.98;

/// Enough for 1000 pairs without repetition: two transfers of 64 KiB and four connections for
/// exchanges send fewer than 300 packets one way. A larger study repeats the delays, with other
/// packets.
const DELAYS: usize = 400_009;

/// Any seed would do.
const SEED: u64 = 4;

/// Holds the largest transfer that the paper names, so that the queue drops nothing: losses would
/// differ from pair to pair, but the study compares the programs.
const QUEUE_BYTES: u64 = 256 * 1024;

/// Far more than a study transfers in an hour. The station limits the bytes of pages.
const ENOUGH_BYTES: u64 = 1 << 40;

/// The station measures nothing itself and has almost nothing to store when it stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_jitter_is_large_enough_and_its_mean_fits_into_the_delay() {
        let replayed = Replayed::seeded();
        assert!(replayed.round_trip_s() >= 0.002, "the study's least jitter");
        assert!(replayed.mean() < Duration::from_millis(10), "the mean is taken off half of 20 ms");
        let ratio = replayed.round_trip_s() / replayed.one_way_s();
        assert!((1.3..1.5).contains(&ratio), "nearly independent, so √2: {ratio}");
        assert_eq!(replayed.0, Replayed::seeded().0, "the same every time");
    }

    #[test]
    fn a_link_has_the_round_trip_time_of_its_name() {
        let replayed = Replayed::seeded();
        for (name, rtt) in [(LinkName::Slow, 95), (LinkName::Fast, 20)] {
            let Link::Relay { forward, back, .. } = LinkSetup::of(name, &replayed).link else {
                panic!("emulated");
            };
            let both = forward.delay + back.delay + 2 * replayed.mean();
            assert_eq!(both, Duration::from_millis(rtt));
        }
    }
}
