//! The pure model of one direction of a link: when a packet comes out, or why it does not.

use crate::{Error, Jitter, LinkSpec, Loss, chance::Chance, spec::MAX_DELAY};
use std::time::Duration;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It comes out at this time on the model's clock.
    Delivered {
        /// When its last bit arrives.
        at: Duration,
    },
    /// It is lost on the wire.
    Lost,
    /// The queue was full.
    QueueFull,
}

/// One direction of a link in virtual time. Times are durations since an epoch that the caller chooses.
#[derive(Debug, Clone)]
pub struct Model {
    spec: LinkSpec,
    queue_bytes: Option<u64>,
    /// When the last accepted packet is (or was) fully on the wire, in nanoseconds.
    wire_free_ns: u64,
    /// What the division into whole nanoseconds left over, so that a long train keeps the exact rate.
    remainder: u64,
    /// The latest delivery in order: later packets do not come out before it.
    last_out_ns: u64,
    packets: u64,
    in_bad_state: bool,
    loss_chance: Chance,
    jitter_chance: Chance,
    reorder_chance: Chance,
}

impl Model {
    /// A fresh link.
    ///
    /// # Errors
    /// [`Error::BadSpec`] when a field lies outside its range.
    pub fn new(spec: LinkSpec) -> Result<Self, Error> {
        spec.check()?;
        Ok(Self {
            queue_bytes: spec.queue_bytes(),
            wire_free_ns: 0,
            remainder: 0,
            last_out_ns: 0,
            packets: 0,
            in_bad_state: false,
            loss_chance: Chance::new(spec.seed, 1),
            jitter_chance: Chance::new(spec.seed, 2),
            reorder_chance: Chance::new(spec.seed, 3),
            spec,
        })
    }

    /// Sends one packet of `bytes` into the link at `now`; `now` never decreases from call to call.
    ///
    /// Packets that come out at the same time do so in the order in which they went in.
    pub fn carry(&mut self, now: Duration, bytes: usize) -> Fate {
        let now_ns = nanos(now);
        // Everything random is drawn for every packet, so that the nth packet's luck hangs on nothing but
        // the seed and n.
        let lost = self.draw_loss();
        let delay_ns = self.draw_delay_ns();
        let held = self.spec.reorder.filter(|reorder| self.reorder_chance.happens(reorder.probability));
        self.packets += 1;

        if !self.has_room(now_ns, bytes) {
            return Fate::QueueFull;
        }
        let sent_ns = self.serialise(now_ns, bytes);
        if lost {
            return Fate::Lost;
        }
        let in_order_ns = sent_ns.saturating_add(delay_ns).max(self.last_out_ns);
        let out_ns = match held {
            Some(reorder) => in_order_ns.saturating_add(nanos(reorder.hold)),
            None => {
                self.last_out_ns = in_order_ns;
                in_order_ns
            }
        };
        Fate::Delivered { at: Duration::from_nanos(out_ns) }
    }

    /// How many bytes wait for the wire at `now`, with what is left of the packet on it.
    pub fn backlog_bytes(&self, now: Duration) -> u64 {
        let Some(rate) = self.spec.rate_bps else { return 0 };
        let waiting_ns = u128::from(self.wire_free_ns.saturating_sub(nanos(now)));
        u64::try_from((waiting_ns * u128::from(rate)).div_ceil(8 * NS_PER_S)).unwrap_or(u64::MAX)
    }

    fn has_room(&self, now_ns: u64, bytes: usize) -> bool {
        let backlog = self.backlog_bytes(Duration::from_nanos(now_ns));
        match self.queue_bytes {
            Some(limit) => backlog == 0 || backlog.saturating_add(bytes as u64) <= limit,
            None => true,
        }
    }

    /// Puts the packet on the wire behind the others; returns when its last bit is on it.
    fn serialise(&mut self, now_ns: u64, bytes: usize) -> u64 {
        let Some(rate) = self.spec.rate_bps else { return now_ns };
        if now_ns >= self.wire_free_ns {
            self.wire_free_ns = now_ns;
            self.remainder = 0;
        }
        let bit_ns = bytes as u128 * 8 * NS_PER_S + u128::from(self.remainder);
        let takes_ns = u64::try_from(bit_ns / u128::from(rate)).unwrap_or(u64::MAX);
        self.remainder = (bit_ns % u128::from(rate)) as u64;
        self.wire_free_ns = self.wire_free_ns.saturating_add(takes_ns);
        self.wire_free_ns
    }

    fn draw_loss(&mut self) -> bool {
        match self.spec.loss {
            Loss::None => false,
            Loss::Independent(p) => self.loss_chance.happens(p),
            Loss::Bursts { enter, leave, good_loss, bad_loss } => {
                let flip = if self.in_bad_state { leave } else { enter };
                self.in_bad_state ^= self.loss_chance.happens(flip);
                self.loss_chance.happens(if self.in_bad_state { bad_loss } else { good_loss })
            }
        }
    }

    fn draw_delay_ns(&mut self) -> u64 {
        let base = nanos(self.spec.delay);
        let delay = match &self.spec.jitter {
            Jitter::None => base,
            // A cast from a float saturates: what is below zero becomes zero.
            Jitter::Normal { deviation } => {
                (base as f64 + deviation.as_nanos() as f64 * self.jitter_chance.normal()) as u64
            }
            Jitter::Pareto { scale, shape } => {
                let extra = scale.as_nanos() as f64 * self.jitter_chance.pareto(*shape);
                base.saturating_add(extra as u64)
            }
            Jitter::Replay(delays) => base + nanos(delays[(self.packets % delays.len() as u64) as usize]),
        };
        delay.min(2 * nanos(MAX_DELAY))
    }
}

/// Nanoseconds, saturating after 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const NS_PER_S: u128 = 1_000_000_000;
