//! The description of one direction of a link, as plain data.

use crate::Error;
use std::time::Duration;

/// One direction of a link. The default is a perfect one: no delay, no limit, no loss.
///
/// Every packet draws from the seed by its position in the direction's sequence, and each purpose (loss,
/// jitter, reordering) has a stream of its own: the same seed gives the nth packet the same loss and the
/// same jitter, whatever the other fields are and whenever the packets arrive.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Rate in bit/s at which packets are serialised, counting bytes of the IP packet; `None` is no limit.
    pub rate_bps: Option<u64>,
    /// Propagation delay of each packet after it was serialised; at most 60 s.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Loss on the wire, behind the queue: a lost packet has used its share of the rate.
    pub loss: Loss,
    /// Reordering. Without it packets leave in the order in which they came, also with jitter.
    pub reorder: Option<Reorder>,
    /// How much may wait for the rate; what comes on top is dropped (tail drop). Needs a rate.
    pub queue: Queue,
    /// The seed of everything random in this direction.
    pub seed: u64,
}

/// Variation of a link's delay, drawn once a packet.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Jitter {
    /// Every packet has the same delay.
    #[default]
    None,
    /// The delay is normal around [`LinkSpec::delay`], and never negative.
    Normal {
        /// Standard deviation.
        deviation: Duration,
    },
    /// A long-tailed (Lomax) time on top of [`LinkSpec::delay`].
    Pareto {
        /// Scale: the mean extra time is scale ÷ (shape − 1).
        scale: Duration,
        /// Shape, above 1 so that the mean exists; smaller is wilder, 3 is moderate.
        shape: f64,
    },
    /// The nth packet has the nth of these on top of [`LinkSpec::delay`]; after the last comes the first.
    Replay(Vec<Duration>),
}

/// Loss on the wire. Probabilities lie in 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, independent of the others.
    Independent(f64),
    /// Bursts by a two-state chain (Gilbert 1960, Elliott 1963), which steps once a packet, before the
    /// packet's loss is drawn, and starts in the good state.
    Bursts {
        /// Probability of going from the good state to the bad one.
        enter: f64,
        /// Probability of going back.
        leave: f64,
        /// Loss probability in the good state (1 − k).
        good_loss: f64,
        /// Loss probability in the bad state (1 − h).
        bad_loss: f64,
    },
}

/// Reordering: a chosen packet is held back, and those behind it overtake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is held back, 0..=1.
    pub probability: f64,
    /// How long it is held; at most 60 s.
    pub hold: Duration,
}

/// Limit of what waits for the rate, the packet on the wire included as far as it is still to be sent.
/// An idle link takes any packet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Queue {
    /// As much as comes (the emulator bounds its own memory, and says so in its report).
    #[default]
    Unlimited,
    /// This many bytes.
    Bytes(u64),
    /// This many bandwidth–delay products: rate × 2 × delay, as on a path with the same delay back. At
    /// least one packet of 1500 bytes.
    Bdp(f64),
}

impl LinkSpec {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::BadSpec`] names the first field that lies outside its range.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(rate) = self.rate_bps {
            within("rate_bps", rate as f64, RATE_MIN_BPS..=RATE_MAX_BPS, "1e3 to 1e12 bit/s, or none")?;
        }
        delay_within("delay", self.delay)?;
        self.jitter.check()?;
        self.loss.check()?;
        if let Some(reorder) = self.reorder {
            share("reorder.probability", reorder.probability)?;
            delay_within("reorder.hold", reorder.hold)?;
        }
        match (self.queue, self.rate_bps) {
            (Queue::Unlimited, _) => Ok(()),
            (queue, None) => Err(bad("queue", format!("{queue:?}"), "a rate beside it")),
            (Queue::Bytes(bytes), Some(_)) => {
                within("queue", bytes as f64, 1.0..=QUEUE_MAX_BYTES, "1 to 1e12 bytes")
            }
            (Queue::Bdp(bdp), Some(_)) => within("queue", bdp, 0.001..=1000.0, "0.001 to 1000 BDP"),
        }
    }

    /// The queue's limit in bytes; `None` is no limit.
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

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate_bps: None,
            delay: Duration::ZERO,
            jitter: Jitter::None,
            loss: Loss::None,
            reorder: None,
            queue: Queue::Unlimited,
            seed: 0,
        }
    }
}

impl Loss {
    /// The share of packets that is lost in the long run.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Independent(p) => p,
            // A chain that never enters the bad state stays where it starts.
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
            Self::Replay(delays) if delays.is_empty() => Err(bad("jitter", "[]".into(), "one delay or more")),
            Self::Replay(delays) => delays.iter().try_for_each(|&delay| delay_within("jitter", delay)),
        }
    }
}

fn share(field: &'static str, value: f64) -> Result<(), Error> {
    within(field, value, 0.0..=1.0, "a probability, 0 to 1")
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

/// A packet may be under way for a minute: longer than any path, short enough that a run ends.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60);

/// The slowest link that still moves a 1500-byte packet within some seconds, and a bound above any link.
const RATE_MIN_BPS: f64 = 1e3;
const RATE_MAX_BPS: f64 = 1e12;

/// Far above any buffer, far below overflow.
const QUEUE_MAX_BYTES: f64 = 1e12;

/// A queue that holds no full-size packet would drop every packet that finds the link busy.
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
    fn each_field_out_of_range_is_named() {
        let ok = LinkSpec::default();
        ok.check().unwrap();
        let hour = Duration::from_secs(3600);
        assert_eq!(field_refused(LinkSpec { rate_bps: Some(0), ..ok.clone() }), "rate_bps");
        assert_eq!(field_refused(LinkSpec { delay: hour, ..ok.clone() }), "delay");
        assert_eq!(field_refused(LinkSpec { loss: Loss::Independent(1.1), ..ok.clone() }), "loss");
        assert_eq!(field_refused(LinkSpec { loss: Loss::Independent(f64::NAN), ..ok.clone() }), "loss");
        let bursts = Loss::Bursts { enter: 0.1, leave: -0.1, good_loss: 0.0, bad_loss: 1.0 };
        assert_eq!(field_refused(LinkSpec { loss: bursts, ..ok.clone() }), "loss.leave");
        assert_eq!(field_refused(LinkSpec { jitter: Jitter::Replay(vec![]), ..ok.clone() }), "jitter");
        let wild = Jitter::Pareto { scale: Duration::from_millis(1), shape: 1.0 };
        assert_eq!(field_refused(LinkSpec { jitter: wild, ..ok.clone() }), "jitter.shape");
        assert_eq!(field_refused(LinkSpec { queue: Queue::Bytes(1), ..ok.clone() }), "queue");
        let reorder = Some(Reorder { probability: 2.0, hold: hour });
        assert_eq!(field_refused(LinkSpec { reorder, ..ok }), "reorder.probability");
    }

    #[test]
    fn a_queue_in_products_counts_the_round_trip() {
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
    fn the_mean_loss_of_bursts_weighs_the_states() {
        let bursts = Loss::Bursts { enter: 0.01, leave: 0.09, good_loss: 0.0, bad_loss: 0.5 };
        assert!((bursts.mean() - 0.05).abs() < 1e-12);
        let stuck = Loss::Bursts { enter: 0.0, leave: 0.0, good_loss: 0.2, bad_loss: 1.0 };
        assert_eq!(stuck.mean(), 0.2);
    }
}
