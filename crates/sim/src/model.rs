//! Pure model of one direction of a link: computes when a packet comes out, or why the packet is
//! lost.

use crate::{Error, Jitter, LinkChange, LinkSpec, PacketLoss, rng::SeededRng, spec::MAX_DELAY};
use std::time::Duration;

/// Result for one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    /// The packet comes out of the link.
    Delivered {
        /// Time at which its last bit arrives, on the model's clock.
        at: Duration,
    },
    /// The packet is lost on the wire.
    Lost,
    /// The packet is dropped because the queue is full.
    QueueFull,
}

/// One direction of a link in virtual time. Times are durations since an epoch that the caller
/// chooses.
#[derive(Debug, Clone)]
pub struct LinkDirection {
    spec: LinkSpec,
    queue_bytes: Option<u64>,
    /// Time at which the last accepted packet is fully on the wire, in nanoseconds.
    wire_free_ns: u64,
    /// Remainder of the division into whole nanoseconds, so that a long train of packets keeps the
    /// exact rate.
    remainder: u64,
    /// Latest delivery time of a packet that kept its order, in nanoseconds. Later packets do not
    /// come out before this time.
    last_out_ns: u64,
    packets: u64,
    in_bad_state: bool,
    loss_rng: SeededRng,
    jitter_rng: SeededRng,
    reorder_rng: SeededRng,
}

impl LinkDirection {
    /// Creates an idle link.
    ///
    /// # Errors
    /// [`Error::BadSpec`] if a field is outside its range.
    pub fn new(spec: LinkSpec) -> Result<Self, Error> {
        spec.check()?;
        Ok(Self {
            queue_bytes: spec.queue_bytes(),
            wire_free_ns: 0,
            remainder: 0,
            last_out_ns: 0,
            packets: 0,
            in_bad_state: false,
            loss_rng: SeededRng::new(spec.seed, 1),
            jitter_rng: SeededRng::new(spec.seed, 2),
            reorder_rng: SeededRng::new(spec.seed, 3),
            spec,
        })
    }

    /// Sends one packet of `bytes` into the link at `now`. `now` must not decrease from call to
    /// call.
    ///
    /// Packets with the same delivery time come out in the order in which they went in.
    pub fn send(&mut self, now: Duration, bytes: usize) -> PacketFate {
        let now_ns = nanos(now);
        // Every packet makes all random draws, so that the draws of the nth packet depend only on
        // the seed and n.
        let lost = self.draw_loss();
        let delay_ns = self.draw_delay_ns();
        let held = self.spec.reorder.filter(|reorder| self.reorder_rng.bernoulli(reorder.probability));
        self.packets += 1;

        if !self.has_room(now_ns, bytes) {
            return PacketFate::QueueFull;
        }
        let sent_ns = self.serialise(now_ns, bytes);
        if lost {
            return PacketFate::Lost;
        }
        let in_order_ns = sent_ns.saturating_add(delay_ns).max(self.last_out_ns);
        let out_ns = match held {
            Some(reorder) => in_order_ns.saturating_add(nanos(reorder.hold)),
            None => {
                self.last_out_ns = in_order_ns;
                in_order_ns
            }
        };
        PacketFate::Delivered { at: Duration::from_nanos(out_ns) }
    }

    /// Changes rate and delay for packets that are sent from now on. Earlier packets keep their
    /// times, and the queue keeps its limit in bytes.
    ///
    /// # Errors
    /// [`Error::BadSpec`] if a value is outside its range; then nothing changes.
    pub fn change(&mut self, change: LinkChange) -> Result<(), Error> {
        change.check()?;
        (self.spec.rate_bps, self.spec.delay) = (Some(change.rate_bps), change.delay);
        // The remainder is in units of the rate.
        self.remainder = 0;
        Ok(())
    }

    /// Bytes that wait for the wire at `now`, including the unsent part of the packet on the wire.
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

    /// Puts the packet on the wire after all earlier packets. Returns the time at which the last
    /// bit of the packet is sent.
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
            PacketLoss::None => false,
            PacketLoss::Independent(p) => self.loss_rng.bernoulli(p),
            PacketLoss::Bursts { enter, leave, good_loss, bad_loss } => {
                let flip = if self.in_bad_state { leave } else { enter };
                self.in_bad_state ^= self.loss_rng.bernoulli(flip);
                self.loss_rng.bernoulli(if self.in_bad_state { bad_loss } else { good_loss })
            }
        }
    }

    fn draw_delay_ns(&mut self) -> u64 {
        let base = nanos(self.spec.delay);
        let delay = match &self.spec.jitter {
            Jitter::None => base,
            // A cast from a float saturates: negative values become zero.
            Jitter::Normal { deviation } => {
                (base as f64 + deviation.as_nanos() as f64 * self.jitter_rng.normal()) as u64
            }
            Jitter::Pareto { scale, shape } => {
                let extra = scale.as_nanos() as f64 * self.jitter_rng.pareto(*shape);
                base.saturating_add(extra as u64)
            }
            Jitter::Replay(delays) => base + nanos(delays[(self.packets % delays.len() as u64) as usize]),
        };
        delay.min(2 * nanos(MAX_DELAY))
    }
}

/// Converts to nanoseconds, saturating at 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used)]
    use super::*;
    use crate::{Queue, Reorder};
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn model(spec: LinkSpec) -> LinkDirection {
        LinkDirection::new(spec).unwrap()
    }

    /// Results for `count` packets of 1000 bytes that arrive every `gap`.
    fn fates(spec: LinkSpec, count: u32, gap: Duration) -> Vec<PacketFate> {
        let mut model = model(spec);
        (0..count).map(|n| model.send(gap * n, 1000)).collect()
    }

    fn delivered(fate: PacketFate) -> Duration {
        match fate {
            PacketFate::Delivered { at } => at,
            other => panic!("not delivered but {other:?}"),
        }
    }

    fn lost_share(spec: LinkSpec, count: u32) -> f64 {
        let lost = fates(spec, count, MS).iter().filter(|&&fate| fate == PacketFate::Lost).count();
        lost as f64 / f64::from(count)
    }

    #[test]
    fn a_change_applies_to_packets_sent_later() {
        let spec = LinkSpec { rate_bps: Some(8_000_000), delay: 5 * MS, ..LinkSpec::default() };
        let mut model = model(spec);
        // A packet of 1000 bytes takes 1 ms at first, then 10 ms.
        assert_eq!(delivered(model.send(Duration::ZERO, 1000)), 6 * MS);
        model.change(LinkChange { rate_bps: 800_000, delay: 7 * MS }).unwrap();
        assert_eq!(delivered(model.send(Duration::ZERO, 1000)), 18 * MS);
        // Also with a shorter delay, no packet overtakes another one.
        model.change(LinkChange { rate_bps: 8_000_000, delay: MS }).unwrap();
        assert_eq!(delivered(model.send(Duration::ZERO, 1000)), 18 * MS);
    }

    #[test]
    fn the_rate_is_exact_over_a_long_train_of_packets() {
        // 3 bytes at 7 Mbit/s take 3428.57… ns, so the remainders must be added up.
        let spec = LinkSpec { rate_bps: Some(7_000_000), delay: 5 * MS, ..LinkSpec::default() };
        let mut model = model(spec);
        let mut last = Duration::ZERO;
        for _ in 0..7_000_000 / 24 {
            last = delivered(model.send(Duration::ZERO, 3));
        }
        let exact_ns = 7_000_000_u64 / 24 * 24 * 1_000_000_000 / 7_000_000;
        assert_eq!(last, 5 * MS + Duration::from_nanos(exact_ns));
    }

    #[test]
    fn an_idle_link_does_not_accumulate_rate() {
        let spec = LinkSpec { rate_bps: Some(8_000_000), ..LinkSpec::default() };
        let mut model = model(spec);
        assert_eq!(delivered(model.send(Duration::ZERO, 1000)), MS);
        assert_eq!(delivered(model.send(10 * MS, 1000)), 11 * MS);
        assert_eq!(delivered(model.send(10 * MS, 1000)), 12 * MS);
        assert_eq!(model.backlog_bytes(10 * MS), 2000);
        assert_eq!(model.backlog_bytes(10 * MS + MS / 2), 1500);
        assert_eq!(model.backlog_bytes(12 * MS), 0);
    }

    #[test]
    fn a_full_queue_drops_new_packets_until_it_drains() {
        let queue = Queue::Bytes(3000);
        let spec = LinkSpec { rate_bps: Some(8_000_000), queue, ..LinkSpec::default() };
        let mut model = model(spec);
        let burst: Vec<PacketFate> = (0..5).map(|_| model.send(Duration::ZERO, 1000)).collect();
        assert_eq!(burst[..3].iter().map(|&f| delivered(f)).collect::<Vec<_>>(), [MS, 2 * MS, 3 * MS]);
        assert_eq!(burst[3..], [PacketFate::QueueFull, PacketFate::QueueFull]);
        // After a millisecond 1000 bytes have left, and one packet fits again.
        assert_eq!(delivered(model.send(MS, 1000)), 4 * MS);
        assert_eq!(model.send(MS, 1000), PacketFate::QueueFull);
    }

    #[test]
    fn an_idle_link_accepts_a_packet_larger_than_its_queue() {
        let spec = LinkSpec { rate_bps: Some(8_000_000), queue: Queue::Bytes(10), ..LinkSpec::default() };
        let mut model = model(spec);
        assert_eq!(delivered(model.send(Duration::ZERO, 1000)), MS);
        assert_eq!(model.send(Duration::ZERO, 1), PacketFate::QueueFull);
        assert_eq!(delivered(model.send(MS, 1000)), 2 * MS);
    }

    #[test]
    fn a_packet_lost_on_the_link_uses_the_rate() {
        let spec =
            LinkSpec { rate_bps: Some(8_000_000), loss: PacketLoss::Independent(1.0), ..LinkSpec::default() };
        let mut model = model(spec);
        assert_eq!(model.send(Duration::ZERO, 1000), PacketFate::Lost);
        assert_eq!(model.backlog_bytes(Duration::ZERO), 1000);
    }

    #[test]
    fn the_share_of_lost_packets_equals_the_loss_probability() {
        let n = 100_000;
        for p in [0.0, 0.001, 0.05, 0.5, 1.0] {
            let share =
                lost_share(LinkSpec { loss: PacketLoss::Independent(p), seed: 7, ..LinkSpec::default() }, n);
            let four_sigma = 4.0 * (p * (1.0 - p) / f64::from(n)).sqrt();
            assert!((share - p).abs() <= four_sigma, "p {p}, share {share}");
        }
    }

    #[test]
    fn loss_bursts_have_the_configured_share_and_mean_length() {
        let loss = PacketLoss::Bursts { enter: 0.01, leave: 0.25, good_loss: 0.0, bad_loss: 1.0 };
        let all = fates(LinkSpec { loss, seed: 3, ..LinkSpec::default() }, 200_000, MS);
        let lost = |fate: &&[PacketFate]| fate[0] == PacketFate::Lost;
        let runs: Vec<usize> = all
            .chunk_by(|a, b| a == b || !matches!((a, b), (PacketFate::Lost, _) | (_, PacketFate::Lost)))
            .filter(lost)
            .map(<[PacketFate]>::len)
            .collect();
        let total: usize = runs.iter().sum();
        let (share, mean_run) = (total as f64 / all.len() as f64, total as f64 / runs.len() as f64);
        // The time in the bad state has a geometric distribution with mean 1 ÷ leave.
        assert!((mean_run - 4.0).abs() < 0.3, "mean run {mean_run}");
        assert!((share - loss.mean()).abs() < 0.004, "share {share}, expected {}", loss.mean());
    }

    #[test]
    fn random_losses_depend_only_on_seed_and_packet_position() {
        let loss = PacketLoss::Independent(0.1);
        let plain = LinkSpec { loss, seed: 5, ..LinkSpec::default() };
        let lost = |spec: LinkSpec, gap| -> Vec<bool> {
            fates(spec, 2000, gap).iter().map(|&fate| fate == PacketFate::Lost).collect()
        };
        let expected = lost(plain.clone(), MS);
        assert_eq!(lost(plain.clone(), 3 * MS), expected, "other arrival times");
        let busy = LinkSpec {
            jitter: Jitter::Normal { deviation: MS },
            reorder: Some(Reorder { probability: 0.2, hold: 5 * MS }),
            rate_bps: Some(1_000_000_000),
            ..plain.clone()
        };
        assert_eq!(lost(busy, MS), expected, "other fields");
        assert_ne!(lost(LinkSpec { seed: 6, ..plain }, MS), expected, "another seed");
    }

    #[test]
    fn replayed_delays_are_used_in_order() {
        let jitter = Jitter::Replay(vec![MS, 7 * MS, 3 * MS]);
        let spec = LinkSpec { jitter, delay: 10 * MS, ..LinkSpec::default() };
        let gap = 100 * MS;
        let all = fates(spec, 5, gap);
        let delays: Vec<_> = (0..5).map(|n| delivered(all[n as usize]) - gap * n).collect();
        assert_eq!(delays, [11 * MS, 17 * MS, 13 * MS, 11 * MS, 17 * MS]);
    }

    #[test]
    fn normal_jitter_has_its_deviation_and_gives_no_negative_delay() {
        let jitter = Jitter::Normal { deviation: 2 * MS };
        let gap = Duration::from_secs(1);
        let all = fates(LinkSpec { jitter, delay: 20 * MS, seed: 1, ..LinkSpec::default() }, 20_000, gap);
        let delays: Vec<f64> =
            (0..).zip(all).map(|(n, fate)| (delivered(fate) - gap * n).as_secs_f64() * 1e3).collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let deviation = (delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
        assert!((mean - 20.0).abs() < 0.06, "mean {mean} ms");
        assert!((deviation - 2.0).abs() < 0.06, "deviation {deviation} ms");
        // With a mean delay of zero, half of the draws would be below zero.
        let jitter = Jitter::Normal { deviation: 2 * MS };
        let at_zero = fates(LinkSpec { jitter, ..LinkSpec::default() }, 1000, gap);
        let earliest = (0..).zip(at_zero).filter(|&(n, fate)| delivered(fate) == gap * n).count();
        assert!((400..600).contains(&earliest), "{earliest} of 1000 without delay");
    }

    #[test]
    fn reordered_packets_have_the_configured_share() {
        let reorder = Some(Reorder { probability: 0.1, hold: 3 * MS + MS / 2 });
        let all = fates(LinkSpec { reorder, delay: 10 * MS, seed: 2, ..LinkSpec::default() }, 20_000, MS);
        let mut arrivals: Vec<(Duration, u32)> = all.into_iter().map(delivered).zip(0..).collect();
        let held = (0..).zip(&arrivals).filter(|&(n, &(at, _))| at > MS * n + 10 * MS).count();
        assert!((1830..2170).contains(&held), "{held} of 20000 held");
        arrivals.sort();
        let order: Vec<u32> = arrivals.into_iter().map(|(_, n)| n).collect();
        let overtaken = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(overtaken > 1000, "{overtaken} inversions");
    }

    fn any_spec() -> impl Strategy<Value = LinkSpec> {
        let jitter = prop_oneof![
            Just(Jitter::None),
            (0_u64..50).prop_map(|ms| Jitter::Normal { deviation: MS * ms as u32 }),
            (0_u64..50, 1.1..5.0).prop_map(|(ms, shape)| Jitter::Pareto { scale: MS * ms as u32, shape }),
            prop::collection::vec((0_u32..80).prop_map(|ms| MS * ms), 1..9).prop_map(Jitter::Replay),
        ];
        let loss = prop_oneof![
            Just(PacketLoss::None),
            (0.0..=1.0).prop_map(PacketLoss::Independent),
            (0.0..=1.0, 0.0..=1.0).prop_map(|(enter, leave)| PacketLoss::Bursts {
                enter,
                leave,
                good_loss: 0.01,
                bad_loss: 0.9
            }),
        ];
        let rate = prop_oneof![Just(None), (1_000_u64..2_000_000_000).prop_map(Some)];
        (rate, 0_u32..100, jitter, loss, any::<u64>(), 1_u64..100_000).prop_map(
            |(rate_bps, delay, jitter, loss, seed, limit)| LinkSpec {
                rate_bps,
                delay: MS * delay,
                jitter,
                loss,
                reorder: None,
                queue: if rate_bps.is_some() { Queue::Bytes(limit) } else { Queue::Unlimited },
                seed,
            },
        )
    }

    proptest! {
        /// Without reordering, packets come out in order, no earlier than they went in and no
        /// faster than the rate. The backlog stays within the queue, and a second run gives the
        /// same results.
        #[test]
        fn a_link_keeps_order_rate_and_queue_bound_and_is_deterministic(
            spec in any_spec(),
            packets in prop::collection::vec((0_u64..20_000, 1_usize..3000), 1..200),
        ) {
            let (mut one, mut two) = (model(spec.clone()), model(spec.clone()));
            let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
            for (gap_us, bytes) in packets {
                now += Duration::from_micros(gap_us);
                let fate = one.send(now, bytes);
                prop_assert_eq!(fate, two.send(now, bytes));
                if let Some(limit) = spec.queue_bytes() {
                    prop_assert!(one.backlog_bytes(now) <= limit.max(bytes as u64).max(3000));
                }
                if let PacketFate::Delivered { at } = fate {
                    prop_assert!(at >= last, "{at:?} after {last:?}");
                    let sending = spec.rate_bps.map_or(0.0, |rate| bytes as f64 * 8.0 / rate as f64);
                    prop_assert!((at - now).as_secs_f64() >= sending - 2e-9);
                    last = at;
                }
            }
        }
    }
}
