//! Background traffic through the bottleneck: both ways, on and off, from a seed.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use barograph_sim::Chance;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::hosts::{Hosts, RATE_BPS};

/// Datagrams that nobody reads; they end with their hosts.
pub(crate) struct Traffic {
    /// Kept open, so that no datagram is answered with an error.
    _sinks: Vec<UdpSocket>,
    bytes: Arc<AtomicU64>,
}

impl Traffic {
    /// Starts a sender on each side.
    pub(crate) fn start(hosts: &Hosts, seed: u64) -> anyhow::Result<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let mut sinks = Vec::new();
        for side in 0..2 {
            let ((from, source), (_, target)) = (hosts.of_side(side), hosts.of_side(side + 1));
            let sink = bound(hosts, side + 1, target)?;
            let socket = bound(hosts, side, source)?;
            socket.connect(sink.local_addr()?).context("no way for background traffic")?;
            socket.set_nonblocking(true)?;
            sinks.push(sink);
            from.spawn(send(socket, Chance::new(seed, side as u64), Arc::clone(&bytes)));
        }
        Ok(Self { _sinks: sinks, bytes })
    }

    /// Bytes that were sent so far, both ways together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A socket that is made on a thread of the host.
fn bound(hosts: &Hosts, side: usize, address: IpAddr) -> anyhow::Result<UdpSocket> {
    let (handle, _) = hosts.of_side(side);
    let made = handle.block_on(handle.spawn(async move { UdpSocket::bind((address, 0)) }));
    made.context("a socket was not made")?.context("no socket for background traffic")
}

/// Sends for ever: [`QUIET`] of the bottleneck's rate, and [`LOUD`] of it in spells.
async fn send(socket: UdpSocket, mut draws: Chance, bytes: Arc<AtomicU64>) {
    let mut ticks = interval(TICK);
    // What a busy machine missed is not made up for in one go.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut loud, mut until) = (false, Instant::now());
    let (mut due, mut last) = (0.0, Instant::now());
    let payload = [0; DATAGRAM_BYTES];
    loop {
        let now = ticks.tick().await;
        if until <= now {
            loud = !loud;
            let mean_s = if loud { LOUD_S } else { QUIET_S };
            until = now + Duration::from_secs_f64(draws.exponential(mean_s));
        }
        let share = if loud { LOUD } else { QUIET };
        let gap = now.saturating_duration_since(last).min(GAP_MAX);
        last = now;
        due += share * RATE_BPS as f64 / 8.0 * gap.as_secs_f64();
        while DATAGRAM_BYTES as f64 <= due {
            due -= DATAGRAM_BYTES as f64;
            // A full buffer drops it, as a full queue would.
            if socket.send(&payload).is_ok() {
                bytes.fetch_add(DATAGRAM_BYTES as u64, Ordering::Relaxed);
            }
        }
    }
}

/// A packet of a middling size, with headers below every MTU.
const DATAGRAM_BYTES: usize = 1000;

const TICK: Duration = Duration::from_millis(2);
const GAP_MAX: Duration = Duration::from_millis(20);

/// Shares of the bottleneck's rate: a murmur that keeps its loss moving, and spells in which others leave
/// the messages a third.
const QUIET: f64 = 0.05;
const LOUD: f64 = 0.65;

/// Mean lengths, exponential: a fifth of the time is loud, for about as long as a reduction takes.
const QUIET_S: f64 = 4.0;
const LOUD_S: f64 = 1.0;
