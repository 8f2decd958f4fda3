//! Seeded traffic of others, which shares the bottleneck with the tests.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::{Chance, Network};

/// How the others' share of the bottleneck varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Around one mean (the paper's Los Nettos, figures 1 to 4).
    Stationary,
    /// Around a mean that jumps every two hours or so (the paper's vBNS, figures 5 to 9).
    Shifting,
}

impl Weather {
    /// The others' share of the bottleneck, 0 to 1, in each step; [`STEPS`] of them are a cycle of tests.
    pub(crate) fn shares(self, seed: u64, steps: usize) -> Vec<f64> {
        let (mut noise, mut shifts) = (Chance::new(seed, 11), Chance::new(seed, 12));
        let mut level = LEVEL;
        let mut until = match self {
            Self::Stationary => f64::INFINITY,
            Self::Shifting => 0.0,
        };
        let mut state = 0.0;
        let step = |step: usize| {
            if until <= step as f64 {
                level = LEVEL_MIN + (LEVEL_MAX - LEVEL_MIN) * shifts.uniform();
                until = step as f64 + shifts.exponential(SHIFT_EVERY);
            }
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * noise.normal();
            (level + NOISE * state).clamp(0.0, SHARE_MAX)
        };
        (0..steps).map(step).collect()
    }
}

/// Datagrams from the near host to the far one, until dropped.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    // Takes what arrives, and drops it when its buffer is full.
    _sink: UdpSocket,
}

impl Background {
    /// Sends `shares` of `rate_bps`, each for `step`, from now on.
    pub(crate) fn start(
        network: &Network,
        rate_bps: u64,
        step: Duration,
        shares: Vec<f64>,
    ) -> anyhow::Result<Self> {
        let sink =
            network.b.run(|| UdpSocket::bind((network.b.v4(), 0)))?.context("no socket for traffic")?;
        let to = sink.local_addr()?;
        let from =
            network.a.run(|| UdpSocket::bind((network.a.v4(), 0)))?.context("no socket for traffic")?;
        from.connect(to)?;
        from.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || send(&from, rate_bps, step, &shares, &stopped));
        Ok(Self { stop, sender: Some(sender), _sink: sink })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            // It panics at nothing, and there would be nobody to tell.
            let _ = sender.join();
        }
    }
}

fn send(socket: &UdpSocket, rate_bps: u64, step: Duration, shares: &[f64], stop: &AtomicBool) {
    let payload = [0; DATAGRAM_BYTES];
    let (began, mut last, mut due) = (Instant::now(), Instant::now(), 0.0);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        let now = Instant::now();
        let place = (now - began).as_secs_f64() / step.as_secs_f64();
        let share = shares.get(place as usize).or(shares.last()).copied().unwrap_or(0.0);
        // What a busy machine missed is not made up for in one go.
        due += share * rate_bps as f64 / 8.0 * (now - last).min(GAP_MAX).as_secs_f64();
        last = now;
        while DATAGRAM_BYTES as f64 <= due {
            due -= DATAGRAM_BYTES as f64;
            // A full buffer drops it, as a full queue would.
            let _ = socket.send(&payload);
        }
    }
}

/// The share changes every half minute of the paper's time, so that a test of ten seconds sees one or two of them.
pub(crate) const STEPS: usize = 10;

/// A third of the path is others' on the stationary link, and deviates by a tenth; what there was half a minute ago
/// tells half of what is now, and nothing five minutes later, when the next test of that length comes.
const LEVEL: f64 = 0.35;
const NOISE: f64 = 0.1;
const MEMORY: f64 = 0.5;

/// On the other link the mean jumps anywhere between nearly idle and crowded, after two hours on average.
const LEVEL_MIN: f64 = 0.05;
const LEVEL_MAX: f64 = 0.8;
const SHIFT_EVERY: f64 = 24.0 * STEPS as f64;

/// Something is left over, or a test would not end in time.
const SHARE_MAX: f64 = 0.9;

/// A packet of a middling size, with headers below every MTU.
const DATAGRAM_BYTES: usize = 1000;

const TICK: Duration = Duration::from_millis(2);
const GAP_MAX: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_the_links_has_a_mean_that_moves() {
        let hours = |weather: Weather| {
            let shares = weather.shares(1, 96 * STEPS);
            assert!(shares.iter().all(|share| (0.0..=SHARE_MAX).contains(share)));
            assert_eq!(shares, weather.shares(1, 96 * STEPS));
            let mean = |hour: &[f64]| hour.iter().sum::<f64>() / hour.len() as f64;
            let means: Vec<f64> = shares.chunks(12 * STEPS).map(mean).collect();
            let (low, high) =
                means.iter().fold((1.0_f64, 0.0_f64), |(low, high), m| (low.min(*m), high.max(*m)));
            high - low
        };
        assert!(hours(Weather::Stationary) < 0.1);
        assert!(0.2 < hours(Weather::Shifting));
    }
}
