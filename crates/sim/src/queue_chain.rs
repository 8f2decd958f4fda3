//! Queues in series, each with its own discipline. Pure, in virtual time.

use crate::{
    Error,
    discipline::{Codel, Discipline, Red},
    rng::SeededRng,
};
use std::{collections::VecDeque, time::Duration};

/// A queue and the wire after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    /// Rate in bit/s at which packets leave, counted in bytes of the IP packet.
    pub rate_bps: u64,
    /// Maximum number of waiting packets, without the packet that is leaving. Packets above this
    /// number are dropped, whatever the discipline is.
    pub queue_packets: usize,
    /// Rule that drops packets before the queue is full.
    pub discipline: Discipline,
}

/// Hops in series: a packet that leaves one hop arrives at the next without delay.
#[derive(Debug, Clone)]
pub struct QueueChain<T> {
    hops: Vec<HopState<T>>,
    out: VecDeque<(Duration, T)>,
    dropped: u64,
}

impl<T> QueueChain<T> {
    /// Creates empty queues; disciplines with random drops use `seed`.
    ///
    /// # Errors
    /// [`Error::BadSpec`] names the first field outside its range.
    pub fn new(hops: &[Hop], seed: u64) -> Result<Self, Error> {
        let state = |(number, hop): (u64, &Hop)| {
            hop.check()?;
            Ok(HopState::new(hop.clone(), SeededRng::new(seed, FIRST_STREAM + number)))
        };
        let hops = (0..).zip(hops).map(state).collect::<Result<_, Error>>()?;
        Ok(Self { hops, out: VecDeque::new(), dropped: 0 })
    }

    /// Whether there are no hops, so that a pushed packet comes out at once.
    pub fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// Adds a packet to the first queue at `now`. `now` must not decrease from call to call.
    pub fn push(&mut self, now: Duration, bytes: usize, item: T) {
        self.advance(nanos(now));
        self.arrive(0, nanos(now), bytes, item);
    }

    /// Returns the next packet that has left the last hop by `now`, with the time at which it left.
    pub fn pop(&mut self, now: Duration) -> Option<(Duration, T)> {
        self.advance(nanos(now));
        self.out.pop_front()
    }

    /// Time of the next event, if no packet is added before that time.
    pub fn next_at(&self) -> Option<Duration> {
        let left = self.out.front().map(|(at, _)| *at);
        let leaving = self.next_departure().map(|(at_ns, _)| Duration::from_nanos(at_ns));
        left.or(leaving)
    }

    /// Returns the number of packets dropped since the last call, and resets this number to 0.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Processes all events up to `now_ns`, in order of time.
    fn advance(&mut self, now_ns: u64) {
        while let Some((at_ns, index)) = self.next_departure().filter(|(at_ns, _)| *at_ns <= now_ns) {
            let hop = &mut self.hops[index];
            let left = hop.leaving.take();
            self.dropped += hop.start_next(at_ns);
            if let Some(Leaving { bytes, item, .. }) = left {
                self.arrive(index + 1, at_ns, bytes, item);
            }
        }
    }

    fn next_departure(&self) -> Option<(u64, usize)> {
        let at = |(index, hop): (usize, &HopState<T>)| Some((hop.leaving.as_ref()?.at_ns, index));
        self.hops.iter().enumerate().filter_map(at).min()
    }

    fn arrive(&mut self, index: usize, at_ns: u64, bytes: usize, item: T) {
        match self.hops.get_mut(index) {
            Some(hop) => self.dropped += hop.arrive(at_ns, bytes, item),
            None => self.out.push_back((Duration::from_nanos(at_ns), item)),
        }
    }
}

impl Hop {
    fn check(&self) -> Result<(), Error> {
        let bad = |field, value: String, expected| Err(Error::BadSpec { field, value, expected });
        if !RATES_BPS.contains(&self.rate_bps) {
            return bad("hop.rate_bps", self.rate_bps.to_string(), "1e3 to 1e12 bit/s");
        }
        if !(1..=QUEUE_PACKETS_MAX).contains(&self.queue_packets) {
            return bad("hop.queue_packets", self.queue_packets.to_string(), "1 to 1e6 packets");
        }
        self.discipline.check()
    }
}

#[derive(Debug, Clone)]
struct HopState<T> {
    hop: Hop,
    discipline: ActiveDiscipline,
    waiting: VecDeque<Waiting<T>>,
    waiting_bytes: usize,
    leaving: Option<Leaving<T>>,
}

#[derive(Debug, Clone)]
enum ActiveDiscipline {
    TailDrop,
    Red(Red, SeededRng),
    Codel(Codel),
}

#[derive(Debug, Clone)]
struct Waiting<T> {
    since_ns: u64,
    bytes: usize,
    item: T,
}

/// The packet on the wire, and the time at which its last bit is sent.
#[derive(Debug, Clone)]
struct Leaving<T> {
    at_ns: u64,
    bytes: usize,
    item: T,
}

impl<T> HopState<T> {
    fn new(hop: Hop, rng: SeededRng) -> Self {
        let discipline = match hop.discipline {
            Discipline::TailDrop => ActiveDiscipline::TailDrop,
            Discipline::Red(parameters) => {
                let packet_ns = u64::try_from(wire_ns(TYPICAL_BYTES, hop.rate_bps)).unwrap_or(u64::MAX);
                ActiveDiscipline::Red(Red::new(parameters, packet_ns), rng)
            }
            Discipline::Codel(parameters) => ActiveDiscipline::Codel(Codel::new(parameters)),
        };
        Self { hop, discipline, waiting: VecDeque::new(), waiting_bytes: 0, leaving: None }
    }

    /// Adds a packet and returns how many packets were dropped: 1 if the queue rejected the new
    /// packet, else 0.
    fn arrive(&mut self, at_ns: u64, bytes: usize, item: T) -> u64 {
        let length = self.waiting.len() + usize::from(self.leaving.is_some());
        let refused = match &mut self.discipline {
            ActiveDiscipline::Red(red, rng) => red.drops(at_ns, length, rng.uniform()),
            ActiveDiscipline::TailDrop | ActiveDiscipline::Codel(_) => false,
        };
        if refused || self.waiting.len() >= self.hop.queue_packets {
            return 1;
        }
        self.waiting.push_back(Waiting { since_ns: at_ns, bytes, item });
        self.waiting_bytes += bytes;
        if self.leaving.is_none() { self.start_next(at_ns) } else { 0 }
    }

    /// Puts the next packet on the free wire and returns how many packets were dropped before this
    /// packet.
    fn start_next(&mut self, at_ns: u64) -> u64 {
        let mut dropped = 0;
        while let Some(Waiting { since_ns, bytes, item }) = self.waiting.pop_front() {
            self.waiting_bytes -= bytes;
            let drops = match &mut self.discipline {
                ActiveDiscipline::Codel(codel) => codel.drops(at_ns, at_ns - since_ns, self.waiting_bytes),
                ActiveDiscipline::TailDrop | ActiveDiscipline::Red(..) => false,
            };
            if drops {
                dropped += 1;
                continue;
            }
            let takes_ns = u64::try_from(wire_ns(bytes, self.hop.rate_bps)).unwrap_or(u64::MAX);
            self.leaving = Some(Leaving { at_ns: at_ns.saturating_add(takes_ns), bytes, item });
            return dropped;
        }
        match &mut self.discipline {
            ActiveDiscipline::Red(red, _) => red.record_idle(at_ns),
            ActiveDiscipline::Codel(codel) => codel.record_empty(),
            ActiveDiscipline::TailDrop => {}
        }
        dropped
    }
}

fn wire_ns(bytes: usize, rate_bps: u64) -> u128 {
    bytes as u128 * 8_000_000_000 / u128::from(rate_bps)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Packet size in bytes with which RED computes its idle time. The paper does not specify the size.
const TYPICAL_BYTES: usize = 1000;

/// Range of the rate of a hop in bit/s, the same as for a link (`spec.rs`).
const RATES_BPS: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;

/// Maximum queue length in packets. With packets of 1000 bytes, such a queue contains a gigabyte.
const QUEUE_PACKETS_MAX: usize = 1_000_000;

/// First random stream of the hops; the model of a link uses smaller numbers.
const FIRST_STREAM: u64 = 16;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used)]
    use super::*;
    use crate::discipline::{CodelParameters, RedParameters};

    const MS: Duration = Duration::from_millis(1);

    fn hop(discipline: Discipline, queue_packets: usize) -> Hop {
        // At this rate, a packet of 1000 bytes takes a millisecond.
        Hop { rate_bps: 8_000_000, queue_packets, discipline }
    }

    /// Sends `count` packets of 1000 bytes at intervals of `gap`, and returns the time at which
    /// each packet came out.
    fn send(queues: &mut QueueChain<u32>, count: u32, gap: Duration) -> Vec<(Duration, u32)> {
        (0..count).for_each(|n| queues.push(gap * n, 1000, n));
        std::iter::from_fn(|| queues.pop(Duration::from_secs(3600))).collect()
    }

    #[test]
    fn drop_tail_drops_excess_packets_and_delays_of_hops_add_up() {
        let mut queues =
            QueueChain::new(&[hop(Discipline::TailDrop, 2), hop(Discipline::TailDrop, 9)], 1).unwrap();
        let out = send(&mut queues, 5, Duration::ZERO);
        // One packet leaves, two packets wait, and two packets are dropped. Each packet takes a
        // millisecond on each wire.
        assert_eq!(out, [(MS * 2, 0), (MS * 3, 1), (MS * 4, 2)]);
        assert_eq!((queues.take_dropped(), queues.take_dropped(), queues.next_at()), (2, 0, None));
    }

    #[test]
    fn the_slower_of_two_hops_drops_packets() {
        let slow = Hop { rate_bps: 4_000_000, ..hop(Discipline::TailDrop, 3) };
        let mut queues = QueueChain::new(&[hop(Discipline::TailDrop, 3), slow], 1).unwrap();
        let out = send(&mut queues, 1000, MS);
        let dropped = queues.take_dropped();
        assert_eq!(out.len() as u64 + dropped, 1000);
        assert!((490..500).contains(&dropped), "{dropped}");
        assert!(out.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }

    #[test]
    fn red_drops_early_and_not_in_long_runs() {
        let parameters =
            RedParameters { min_packets: 5.0, max_packets: 15.0, max_probability: 0.1, weight: 0.02 };
        let mut queues = QueueChain::new(&[hop(Discipline::Red(parameters), 1000)], 7).unwrap();
        // The load is 5 % above the rate of the wire for a long time.
        let out = send(&mut queues, 40_000, MS * 100 / 105);
        let dropped = queues.take_dropped() as f64 / 40_000.0;
        assert!((0.04..0.06).contains(&dropped), "{dropped}");
        let numbers: Vec<u32> = out.into_iter().map(|(_, n)| n).collect();
        let longest = numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).max().unwrap();
        assert!(longest <= 3, "{longest} in a row");
    }

    #[test]
    fn codel_keeps_the_delay_near_its_target() {
        let parameters = CodelParameters::default();
        let mut queues = QueueChain::new(&[hop(Discipline::Codel(parameters), 1000)], 7).unwrap();
        let gap = MS * 100 / 105;
        let out = send(&mut queues, 100_000, gap);
        assert!(queues.take_dropped() > 3_000);
        let delays: Vec<f64> = out.iter().map(|(at, n)| (*at - gap * *n).as_secs_f64()).collect();
        let late = &delays[delays.len() / 2..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        // Without CoDel, a full queue would add a second of delay.
        assert!((0.002..0.05).contains(&mean), "{mean} s");
    }

    #[test]
    fn invalid_hops_are_rejected_with_the_field() {
        let refused = |hop: Hop| QueueChain::<()>::new(&[hop], 0).unwrap_err().to_string();
        assert!(refused(Hop { rate_bps: 0, ..hop(Discipline::TailDrop, 1) }).contains("rate_bps"));
        assert!(refused(hop(Discipline::TailDrop, 0)).contains("queue_packets"));
        let parameters =
            RedParameters { min_packets: 5.0, max_packets: 5.0, max_probability: 0.1, weight: 0.02 };
        assert!(refused(hop(Discipline::Red(parameters), 9)).contains("red"));
        let parameters = CodelParameters { target: Duration::ZERO, ..CodelParameters::default() };
        assert!(refused(hop(Discipline::Codel(parameters), 9)).contains("codel"));
    }
}
