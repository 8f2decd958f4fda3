//! Queue disciplines that drop packets before the queue is full: RED and CoDel. Pure.

use crate::Error;
use std::time::Duration;

/// Rule that drops packets before the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Discipline {
    /// Drops nothing before the queue is full.
    #[default]
    TailDrop,
    /// Random early detection, which drops arriving packets.
    Red(RedParameters),
    /// Controlled delay, which drops packets after a long wait.
    Codel(CodelParameters),
}

/// Parameters of random early detection (Floyd and Jacobson, Random Early Detection Gateways for
/// Congestion Avoidance, IEEE/ACM Transactions on Networking 1(4), 1993). RED drops arriving
/// packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedParameters {
    /// Mean queue length in packets below which RED drops no packet (min_th), above 0.
    pub min_packets: f64,
    /// Mean queue length in packets from which RED drops every packet (max_th), above
    /// `min_packets`.
    pub max_packets: f64,
    /// Drop probability as the mean approaches `max_packets` (max_p), above 0, at most 1.
    pub max_probability: f64,
    /// Weight of the newest queue length in the mean (w_q), above 0, at most 1.
    pub weight: f64,
}

/// Parameters of controlled delay (RFC 8289). CoDel drops a packet that waited too long, at the
/// time at which the packet would leave the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodelParameters {
    /// Acceptable wait in the queue, above 0.
    pub target: Duration,
    /// Time for which the wait may exceed `target` before CoDel drops, above 0.
    pub interval: Duration,
}

impl Default for CodelParameters {
    /// The values of RFC 8289 §4.2 and §4.3.
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl Discipline {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |field, value, expected| Err(Error::BadSpec { field, value, expected });
        match *self {
            Self::TailDrop => Ok(()),
            Self::Red(RedParameters { min_packets, max_packets, max_probability, weight }) => {
                let shares = [max_probability, weight];
                let is_sound = 0.0 < min_packets
                    && min_packets < max_packets
                    && max_packets.is_finite()
                    && shares.iter().all(|share| 0.0 < *share && *share <= 1.0);
                let expected = "0 < min_packets < max_packets, and probability and weight in (0, 1]";
                if is_sound { Ok(()) } else { bad("hop.red", format!("{self:?}"), expected) }
            }
            Self::Codel(CodelParameters { target, interval }) => {
                let is_sound = [target, interval].iter().all(|time| !time.is_zero() && *time <= MINUTE);
                if is_sound { Ok(()) } else { bad("hop.codel", format!("{self:?}"), "above 0, at most 60 s") }
            }
        }
    }
}

/// State of RED (Floyd and Jacobson 1993, figure 2 and §4).
#[derive(Debug, Clone)]
pub(crate) struct Red {
    parameters: RedParameters,
    /// Transmission time of a typical packet, in nanoseconds.
    packet_ns: u64,
    mean: f64,
    idle_since_ns: Option<u64>,
    /// Number of packets since the last drop, while the mean was between the thresholds; −1 if the
    /// mean was below `min_packets`.
    count: i64,
}

impl Red {
    pub(crate) fn new(parameters: RedParameters, packet_ns: u64) -> Self {
        Self { parameters, packet_ns: packet_ns.max(1), mean: 0.0, idle_since_ns: Some(0), count: -1 }
    }

    /// Whether RED drops a packet that arrives at a queue of `length` packets; `draw` is uniform in
    /// [0, 1).
    pub(crate) fn drops(&mut self, now_ns: u64, length: usize, draw: f64) -> bool {
        let RedParameters { min_packets, max_packets, max_probability, weight } = self.parameters;
        match self.idle_since_ns.take() {
            // The mean decays as if `missed` packets had arrived at an empty queue.
            Some(since) => {
                let missed = now_ns.saturating_sub(since) as f64 / self.packet_ns as f64;
                self.mean *= (1.0 - weight).powf(missed);
            }
            None => self.mean += weight * (length as f64 - self.mean),
        }
        if self.mean < min_packets {
            self.count = -1;
            return false;
        }
        if self.mean >= max_packets {
            self.count = 0;
            return true;
        }
        self.count += 1;
        let base = max_probability * (self.mean - min_packets) / (max_packets - min_packets);
        // p_a = p_b / (1 − count · p_b): the drops are spread evenly instead of drawn
        // independently.
        let left = 1.0 - self.count as f64 * base;
        let drops = left <= 0.0 || draw < base / left;
        if drops {
            self.count = 0;
        }
        drops
    }

    /// Records that the queue has become empty.
    pub(crate) fn record_idle(&mut self, now_ns: u64) {
        self.idle_since_ns = Some(now_ns);
    }
}

/// State of CoDel (RFC 8289 §5), updated once for each packet at the head of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    /// Time at which the wait has been above the target for one `interval_ns`, if the wait stays
    /// above the target; `None` while the wait is acceptable.
    first_above_ns: Option<u64>,
    drop_next_ns: u64,
    count: u32,
    last_count: u32,
    is_dropping: bool,
    /// Whether the previous call dropped a packet and entered the dropping state. The next packet
    /// then leaves.
    has_entered: bool,
}

impl Codel {
    pub(crate) fn new(parameters: CodelParameters) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            target_ns: nanos(parameters.target),
            interval_ns: nanos(parameters.interval),
            first_above_ns: None,
            drop_next_ns: 0,
            count: 0,
            last_count: 0,
            is_dropping: false,
            has_entered: false,
        }
    }

    /// Whether CoDel drops the packet at the head of the queue. This packet has waited for
    /// `wait_ns`, and `behind_bytes` of other packets wait behind this packet. After a drop, the
    /// caller calls `drops` for the next packet.
    pub(crate) fn drops(&mut self, now_ns: u64, wait_ns: u64, behind_bytes: usize) -> bool {
        let is_late = self.is_late(now_ns, wait_ns, behind_bytes);
        if self.has_entered {
            // The packet after the drop that began the dropping state is not dropped.
            self.has_entered = false;
            return false;
        }
        if self.is_dropping {
            self.is_dropping = is_late;
            if !is_late || now_ns < self.drop_next_ns {
                return false;
            }
            self.count += 1;
            self.drop_next_ns = self.control(self.drop_next_ns);
            return true;
        }
        if !is_late {
            return false;
        }
        // If CoDel was in the dropping state recently, start with the drop rate that controlled the
        // queue then.
        let delta = self.count - self.last_count;
        let was_of_late = now_ns.saturating_sub(self.drop_next_ns) < 16 * self.interval_ns;
        self.count = if delta > 1 && was_of_late { delta } else { 1 };
        self.drop_next_ns = self.control(now_ns);
        (self.last_count, self.is_dropping, self.has_entered) = (self.count, true, true);
        true
    }

    /// Records that the queue is empty, so that no packet waits.
    pub(crate) fn record_empty(&mut self) {
        (self.first_above_ns, self.is_dropping, self.has_entered) = (None, false, false);
    }

    /// Whether the wait has been above the target for at least one `interval_ns` (`dodequeue` in
    /// RFC 8289 §5).
    fn is_late(&mut self, now_ns: u64, wait_ns: u64, behind_bytes: usize) -> bool {
        if wait_ns < self.target_ns || behind_bytes <= MAX_PACKET_BYTES {
            self.first_above_ns = None;
            return false;
        }
        let since = *self.first_above_ns.get_or_insert(now_ns.saturating_add(self.interval_ns));
        since <= now_ns
    }

    /// `control_law`: the time to the next drop shrinks with the square root of the number of
    /// drops.
    fn control(&self, from_ns: u64) -> u64 {
        from_ns.saturating_add((self.interval_ns as f64 / f64::from(self.count).sqrt()) as u64)
    }
}

/// Maximum value of each of the two times of CoDel, the same as for the delays of a link
/// (`spec.rs`).
const MINUTE: Duration = Duration::from_secs(60);

/// Number of waiting bytes up to which CoDel drops nothing: the MTU of Ethernet. One packet in the
/// queue is enough to keep the wire busy.
const MAX_PACKET_BYTES: usize = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn red_spaces_its_drops_evenly() {
        let parameters =
            RedParameters { min_packets: 5.0, max_packets: 15.0, max_probability: 0.02, weight: 1.0 };
        let mut red = Red::new(parameters, 1000);
        assert!(!red.drops(0, 0, 0.0), "an idle queue drops nothing");
        assert!(!red.drops(1, 4, 0.0), "nor does one below the threshold");
        assert!(red.drops(2, 15, 0.99), "at the other threshold all are dropped");
        // p_b = 0.01: with the least favourable draws the 99th packet is dropped, because the
        // intervals in the paper are 1 to 1/p_b packets.
        let until = (1..).find(|_| red.drops(3, 10, 0.999_999));
        assert_eq!(until, Some(99));
        assert!(red.drops(4, 10, 0.009), "with the best draw the next one");
    }

    #[test]
    fn codel_drop_intervals_follow_the_square_root_law() {
        let mut codel = Codel::new(CodelParameters::default());
        let ms = 1_000_000;
        // One packet leaves in each millisecond, after a wait of 20 ms.
        let drops: Vec<u64> = (0..600).filter(|at| codel.drops(at * ms, 20 * ms, 20_000)).collect();
        // The first drop comes one interval after the wait exceeds the target. The times from each
        // drop to the next are 100/√1, 100/√2, 100/√3 … ms (§5.3, §5.5).
        assert_eq!(drops, [100, 200, 271, 329, 379, 424, 464, 502, 538, 571]);
        assert!(!codel.drops(600 * ms, 4 * ms, 20_000), "the wait is fine again");
        assert!(!codel.drops(700 * ms, 20 * ms, 1500), "and one packet behind is no queue");
    }
}
