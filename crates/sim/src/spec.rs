//! Description of one direction of a link, as plain data.

use crate::Error;
use std::time::Duration;

/// One direction of a link. The default is a perfect link: no delay, no limit, no loss.
///
/// Each packet's random draws depend on the seed and on its position in the sequence of the
/// direction, and each purpose (loss, jitter, reordering) has its own stream. So the same seed
/// gives the nth packet the same loss and the same jitter, whatever the other fields are and
/// whenever the packets arrive.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Rate in bit/s at which packets are serialised, counted in bytes of the IP packet; `None` is
    /// unlimited.
    pub rate_bps: Option<u64>,
    /// Propagation delay of each packet after its serialisation; at most 60 s.
    pub delay: Duration,
    /// Variation of the delay between packets.
    pub jitter: Jitter,
    /// Loss on the wire, after the queue: a lost packet takes time on the wire as any other packet
    /// does.
    pub loss: PacketLoss,
    /// Reordering. Without reordering, packets leave in the order of their arrival, even with
    /// jitter.
    pub reorder: Option<Reorder>,
    /// Limit of the queue before the wire; packets that exceed it are dropped (tail drop). A
    /// limited queue requires `rate_bps`.
    pub queue: Queue,
    /// Seed of all random draws in this direction.
    pub seed: u64,
}

/// Variation of a link's delay, drawn once for each packet.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Jitter {
    /// Every packet has the same delay.
    #[default]
    None,
    /// Normal distribution around [`LinkSpec::delay`]; negative values become zero.
    Normal {
        /// Standard deviation of the delay.
        deviation: Duration,
    },
    /// [`LinkSpec::delay`] plus a time with a long-tailed (Lomax) distribution.
    Pareto {
        /// Scale: the mean of the added time is scale ÷ (shape − 1).
        scale: Duration,
        /// Shape, above 1 so that the mean exists. A smaller shape has a longer tail; 3 is
        /// moderate.
        shape: f64,
    },
    /// Times added to [`LinkSpec::delay`]. The nth packet gets the nth time. After the last time,
    /// the times repeat from the first.
    Replay(Vec<Duration>),
}

/// Loss on the wire. Probabilities lie in 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum PacketLoss {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, independent of other packets.
    Independent(f64),
    /// Bursts from a two-state Markov chain (Gilbert 1960, Elliott 1963). The chain makes a step
    /// for each packet before it draws the packet's loss, and starts in the good state.
    Bursts {
        /// Probability of a step from the good state to the bad state.
        enter: f64,
        /// Probability of a step from the bad state to the good state.
        leave: f64,
        /// Loss probability in the good state (1 − k).
        good_loss: f64,
        /// Loss probability in the bad state (1 − h).
        bad_loss: f64,
    },
}

/// Reordering: a randomly chosen packet is delayed, and later packets overtake the delayed packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is delayed, 0..=1.
    pub probability: f64,
    /// Additional delay of that packet; at most 60 s.
    pub hold: Duration,
}

/// Limit of the bytes that wait for the wire, including the unsent part of the packet on the wire.
/// An idle link accepts any packet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Queue {
    /// No limit. The relay still limits its own memory, and reports the packets that it dropped for
    /// this reason.
    #[default]
    Unlimited,
    /// Limit in whole bytes, at least 1.
    Bytes(u64),
    /// Limit in bandwidth–delay products: rate × 2 × delay. On a path with the same delay in both
    /// directions, 2 × delay is the round-trip time. The limit is at least one packet of 1500
    /// bytes.
    Bdp(f64),
}

impl LinkSpec {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::BadSpec`] names the first field that lies outside its range.
    pub fn check(&self) -> Result<(), Error> {
        self.rate_bps.map_or(Ok(()), check_rate)?;
        delay_within("delay", self.delay)?;
        self.jitter.check()?;
        self.loss.check()?;
        if let Some(reorder) = self.reorder {
            share("reorder.probability", reorder.probability)?;
            delay_within("reorder.hold", reorder.hold)?;
        }
        match (self.queue, self.rate_bps) {
            (Queue::Unlimited, _) => Ok(()),
            (queue, None) => Err(bad("queue", format!("{queue:?}"), "a rate (set `rate_bps` too)")),
            (Queue::Bytes(bytes), Some(_)) => {
                within("queue", bytes as f64, 1.0..=QUEUE_MAX_BYTES, "1 to 1e12 bytes")
            }
            (Queue::Bdp(bdp), Some(_)) => within("queue", bdp, 0.001..=1000.0, "0.001 to 1000 BDP"),
        }
    }

    /// Limit of the queue in bytes; `None` is no limit.
    pub fn queue_bytes(&self) -> Option<u64> {
        match (self.queue, self.rate_bps) {
            (Queue::Bytes(bytes), _) => Some(bytes),
            (Queue::Bdp(bdp), Some(rate)) => {
                let product = rate as f64 / 8.0 * 2.0 * self.delay.as_secs_f64();
                Some(((bdp * product) as u64).max(ONE_PACKET_BYTES))
            }
            (Queue::Bdp(_), None) | (Queue::Unlimited, _) => None,
        }
    }
}

/// New values of one direction of a running link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkChange {
    /// Rate in bit/s, as [`LinkSpec::rate_bps`].
    pub rate_bps: u64,
    /// Delay after the serialisation, as [`LinkSpec::delay`].
    pub delay: Duration,
}

impl LinkChange {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_rate(self.rate_bps)?;
        delay_within("delay", self.delay)
    }
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate_bps: None,
            delay: Duration::ZERO,
            jitter: Jitter::None,
            loss: PacketLoss::None,
            reorder: None,
            queue: Queue::Unlimited,
            seed: 0,
        }
    }
}

impl PacketLoss {
    /// Long-run share of lost packets.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Independent(p) => p,
            // A chain that never enters the bad state stays in the good state.
            Self::Bursts { enter: 0.0, good_loss, .. } => good_loss,
            Self::Bursts { enter, leave, good_loss, bad_loss } => {
                let bad_share = enter / (enter + leave);
                bad_share * bad_loss + (1.0 - bad_share) * good_loss
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        match *self {
            Self::None => Ok(()),
            Self::Independent(p) => share("loss", p),
            Self::Bursts { enter, leave, good_loss, bad_loss } => {
                share("loss.enter", enter)?;
                share("loss.leave", leave)?;
                share("loss.good_loss", good_loss)?;
                share("loss.bad_loss", bad_loss)
            }
        }
    }
}

impl Jitter {
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::None => Ok(()),
            Self::Normal { deviation } => delay_within("jitter.deviation", *deviation),
            Self::Pareto { scale, shape } => {
                delay_within("jitter.scale", *scale)?;
                within("jitter.shape", *shape, 1.01..=100.0, "1.01 to 100")
            }
            Self::Replay(delays) if delays.is_empty() => {
                Err(bad("jitter", "[]".into(), "at least one delay"))
            }
            Self::Replay(delays) => delays.iter().try_for_each(|&delay| delay_within("jitter", delay)),
        }
    }
}

fn share(field: &'static str, value: f64) -> Result<(), Error> {
    within(field, value, 0.0..=1.0, "a probability, 0 to 1")
}

fn check_rate(rate_bps: u64) -> Result<(), Error> {
    within("rate_bps", rate_bps as f64, RATE_MIN_BPS..=RATE_MAX_BPS, "1e3 to 1e12 bit/s, or none")
}

fn delay_within(field: &'static str, value: Duration) -> Result<(), Error> {
    if value <= MAX_DELAY { Ok(()) } else { Err(bad(field, format!("{value:?}"), "0 to 60 s")) }
}

fn within(
    field: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), Error> {
    // A range never contains NaN.
    if range.contains(&value) { Ok(()) } else { Err(bad(field, value.to_string(), expected)) }
}

fn bad(field: &'static str, value: String, expected: &'static str) -> Error {
    Error::BadSpec { field, value, expected }
}

/// Maximum delay of a packet: longer than the delay of any path, and short enough that a run ends.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60);

/// Range of a rate in bit/s. At the minimum rate, a 1500-byte packet takes 12 s; the maximum is
/// above the rate of any link.
const RATE_MIN_BPS: f64 = 1e3;
const RATE_MAX_BPS: f64 = 1e12;

/// Maximum limit of a queue in bytes: far above the size of any buffer, and far below an overflow.
const QUEUE_MAX_BYTES: f64 = 1e12;

/// Minimum limit, in bytes, of a queue that is given in bandwidth–delay products: one full-size
/// packet. A smaller queue would drop every full-size packet on a busy link.
const ONE_PACKET_BYTES: u64 = 1500;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used)]
    use super::*;

    fn field_refused(spec: LinkSpec) -> &'static str {
        match spec.check() {
            Err(Error::BadSpec { field, .. }) => field,
            other => panic!("expected a refusal, got {other:?} for {spec:?}"),
        }
    }

    #[test]
    fn errors_name_each_field_out_of_range() {
        let ok = LinkSpec::default();
        ok.check().unwrap();
        let hour = Duration::from_secs(3600);
        assert_eq!(field_refused(LinkSpec { rate_bps: Some(0), ..ok.clone() }), "rate_bps");
        assert_eq!(field_refused(LinkSpec { delay: hour, ..ok.clone() }), "delay");
        assert_eq!(field_refused(LinkSpec { loss: PacketLoss::Independent(1.1), ..ok.clone() }), "loss");
        assert_eq!(field_refused(LinkSpec { loss: PacketLoss::Independent(f64::NAN), ..ok.clone() }), "loss");
        let bursts = PacketLoss::Bursts { enter: 0.1, leave: -0.1, good_loss: 0.0, bad_loss: 1.0 };
        assert_eq!(field_refused(LinkSpec { loss: bursts, ..ok.clone() }), "loss.leave");
        assert_eq!(field_refused(LinkSpec { jitter: Jitter::Replay(vec![]), ..ok.clone() }), "jitter");
        let wild = Jitter::Pareto { scale: Duration::from_millis(1), shape: 1.0 };
        assert_eq!(field_refused(LinkSpec { jitter: wild, ..ok.clone() }), "jitter.shape");
        assert_eq!(field_refused(LinkSpec { queue: Queue::Bytes(1), ..ok.clone() }), "queue");
        let reorder = Some(Reorder { probability: 2.0, hold: hour });
        assert_eq!(field_refused(LinkSpec { reorder, ..ok }), "reorder.probability");
    }

    #[test]
    fn a_queue_in_bandwidth_delay_products_uses_the_round_trip() {
        let spec = LinkSpec {
            rate_bps: Some(10_000_000),
            delay: Duration::from_millis(10),
            queue: Queue::Bdp(2.0),
            ..LinkSpec::default()
        };
        assert_eq!(spec.queue_bytes(), Some(50_000));
        assert_eq!(LinkSpec { delay: Duration::ZERO, ..spec }.queue_bytes(), Some(1500));
    }

    #[test]
    fn the_mean_loss_of_bursts_is_weighted_by_the_time_in_each_state() {
        let bursts = PacketLoss::Bursts { enter: 0.01, leave: 0.09, good_loss: 0.0, bad_loss: 0.5 };
        assert!((bursts.mean() - 0.05).abs() < 1e-12);
        let stuck = PacketLoss::Bursts { enter: 0.0, leave: 0.0, good_loss: 0.2, bad_loss: 1.0 };
        assert_eq!(stuck.mean(), 0.2);
    }
}
