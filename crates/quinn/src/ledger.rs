//! Losses that wait for the receiver's report, and a controller with and without them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A congestion controller, as far as the ledger is concerned.
pub(crate) trait Chargeable: Clone {
    /// Reacts to a loss.
    fn charge(&mut self, loss: &Loss);
}

/// Packets that were declared lost together, or within one round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loss {
    /// When the first and the last of them were declared lost.
    pub(crate) detected: [Instant; 2],
    /// When the newest packets of the first and of the last declaration were sent.
    pub(crate) sent: [Instant; 2],
    pub(crate) is_persistent: bool,
    pub(crate) bytes: u64,
    pub(crate) evidence: Evidence,
}

/// What is known about the cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    /// The packets arrived while the receiver did not run.
    is_in_pause: bool,
    /// A packet that was sent after the lost ones waited in no queue, before the controller's
    /// reaction can have emptied one.
    has_no_queue: bool,
    /// Claims cover the loss.
    is_claimed: bool,
}

impl Evidence {
    /// What is known when the packets are declared lost.
    pub(crate) fn new(is_in_pause: bool) -> Self {
        Self { is_in_pause, has_no_queue: false, is_claimed: false }
    }

    /// Whether the round trips allow that the host lost the packets.
    fn is_of_host(self) -> bool {
        self.is_in_pause && self.has_no_queue
    }
}

/// Round trips without a wait in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnqueuedRoundTrips {
    /// When the newest packet with such a round trip was sent.
    pub(crate) newest_sent: Option<Instant>,
    /// How long after a loss is detected the controller's reaction has no effect on a queue.
    pub(crate) reaction: Duration,
}

/// A receiver's claim that its socket dropped packets that were sent in this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) arrived: Instant,
    pub(crate) sent: [Instant; 2],
    pub(crate) bytes: u64,
}

/// Bytes that were settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Bytes that the host lost.
    pub(crate) host: u64,
    /// Other bytes, at their deadline.
    pub(crate) network: u64,
    /// Bytes of `network` that claims covered, and that round trips show to be the network's.
    pub(crate) refused: u64,
}

/// Two copies of a controller: one was charged with every loss at once, the other only with the
/// losses that no longer wait. Both see all other events. If the host lost the packets, the copy
/// without their losses continues.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<C> {
    charged: C,
    pending: Option<Pending<C>>,
    claims: VecDeque<Claim>,
}

#[derive(Clone, Debug)]
struct Pending<C> {
    /// The controller without the losses that are pending.
    clean: C,
    losses: VecDeque<Loss>,
}

impl<C: Chargeable> Ledger<C> {
    pub(crate) fn new(controller: C) -> Self {
        Self { charged: controller, pending: None, claims: VecDeque::new() }
    }

    /// The controller that is in effect.
    pub(crate) fn controller(&self) -> &C {
        &self.charged
    }

    /// Passes an event to both copies.
    pub(crate) fn each(&mut self, mut event: impl FnMut(&mut C)) {
        event(&mut self.charged);
        if let Some(pending) = &mut self.pending {
            event(&mut pending.clean);
        }
    }

    /// Charges a loss at once, and keeps it pending. Returns the bytes of an older loss that is
    /// charged for good because too many are pending.
    pub(crate) fn add_loss(&mut self, loss: Loss) -> Settled {
        let pending = self
            .pending
            .get_or_insert_with(|| Pending { clean: self.charged.clone(), losses: VecDeque::new() });
        self.charged.charge(&loss);
        pending.add(loss)
    }

    pub(crate) fn add_claim(&mut self, claim: Claim) {
        if self.claims.len() == CLAIMS_MAX {
            self.claims.pop_front();
        }
        self.claims.push_back(claim);
    }

    /// Compares losses with claims and round trips. A loss that no claim covers within `wait`, or
    /// that round trips show to be the network's, is charged for good.
    pub(crate) fn settle(&mut self, now: Instant, wait: Duration, unqueued: UnqueuedRoundTrips) -> Settled {
        self.claims.retain(|claim| now.saturating_duration_since(claim.arrived) <= wait);
        let Some(pending) = &mut self.pending else { return Settled::default() };
        pending.losses.iter_mut().for_each(|loss| loss.compare_with_round_trips(now, unqueued));
        let host = pending.forgive(&mut self.claims);
        let mut settled = pending.charge_until(now, wait);
        settled.host = host;
        if host > 0 {
            self.charged = pending.charged();
        }
        if pending.losses.is_empty() {
            self.pending = None;
        }
        settled
    }
}

impl<C: Chargeable> Pending<C> {
    /// Adds a loss, or adds to the last one if a controller reacts to both once (the packets were
    /// sent before the last loss was detected) and both are in a pause, or none is.
    fn add(&mut self, loss: Loss) -> Settled {
        if let Some(last) = self.losses.back_mut()
            && loss.sent[1] <= last.detected[0]
            && loss.evidence.is_in_pause == last.evidence.is_in_pause
        {
            last.add(&loss);
            return Settled::default();
        }
        let mut settled = Settled::default();
        if self.losses.len() == LOSSES_MAX
            && let Some(oldest) = self.losses.pop_front()
        {
            self.clean.charge(&oldest);
            settled.add_network(&oldest);
        }
        self.losses.push_back(loss);
        settled
    }

    /// Removes the losses that claims cover and round trips allow. Returns their bytes.
    fn forgive(&mut self, claims: &mut VecDeque<Claim>) -> u64 {
        let mut host = 0;
        self.losses.retain_mut(|loss| {
            if !loss.evidence.is_of_host() {
                loss.evidence.is_claimed = loss.evidence.is_claimed || are_enough(claims, loss);
                return true;
            }
            let is_host = use_claims(claims, loss);
            host += if is_host { loss.bytes } else { 0 };
            !is_host
        });
        host
    }

    /// Charges the losses that are older than `wait` to the clean copy.
    fn charge_until(&mut self, now: Instant, wait: Duration) -> Settled {
        let mut settled = Settled::default();
        while let Some(loss) = self.losses.front().copied()
            && now.saturating_duration_since(loss.detected[0]) > wait
        {
            self.clean.charge(&loss);
            self.losses.pop_front();
            settled.add_network(&loss);
        }
        settled
    }

    /// The clean copy, charged with what is pending.
    fn charged(&self) -> C {
        let mut controller = self.clean.clone();
        self.losses.iter().for_each(|loss| controller.charge(loss));
        controller
    }
}

impl Settled {
    fn add_network(&mut self, loss: &Loss) {
        self.network += loss.bytes;
        self.refused += if loss.evidence.is_claimed { loss.bytes } else { 0 };
    }
}

impl Loss {
    /// Adds a later loss of the same round trip.
    fn add(&mut self, later: &Self) {
        self.detected[1] = self.detected[1].max(later.detected[1]);
        self.sent = [self.sent[0].min(later.sent[0]), self.sent[1].max(later.sent[1])];
        self.is_persistent |= later.is_persistent;
        self.bytes = self.bytes.saturating_add(later.bytes);
        // The later packets need their own evidence.
        self.evidence = later.evidence;
    }

    fn compare_with_round_trips(&mut self, now: Instant, unqueued: UnqueuedRoundTrips) {
        let is_in_time = now.saturating_duration_since(self.detected[1]) <= unqueued.reaction;
        if is_in_time && unqueued.newest_sent.is_some_and(|sent| sent > self.sent[1]) {
            self.evidence.has_no_queue = true;
        }
    }

    fn is_in_time_of(&self, claim: &Claim) -> bool {
        claim.sent[0] <= self.sent[1] && self.sent[0] <= claim.sent[1]
    }

    /// Number of bytes that claims must cover. The receiver estimates bytes from the length of its
    /// buffers, so an exact comparison would refuse many true claims.
    fn half(&self) -> u64 {
        self.bytes.div_ceil(2)
    }
}

/// Whether claims of the loss's time cover half of its bytes.
fn are_enough(claims: &VecDeque<Claim>, loss: &Loss) -> bool {
    let claimed = claims.iter().filter(|claim| loss.is_in_time_of(claim));
    claimed.fold(0_u64, |sum, claim| sum.saturating_add(claim.bytes)) >= loss.half()
}

/// Whether claims of the loss's time cover half of its bytes. If so, these bytes of the claims are
/// used up.
fn use_claims(claims: &mut VecDeque<Claim>, loss: &Loss) -> bool {
    if !are_enough(claims, loss) {
        return false;
    }
    let mut rest = loss.half();
    for claim in claims.iter_mut().filter(|claim| loss.is_in_time_of(claim)) {
        let used = rest.min(claim.bytes);
        claim.bytes -= used;
        rest -= used;
    }
    claims.retain(|claim| claim.bytes > 0);
    true
}

/// Maximum number of pending losses, each of one round trip. Reports come within a few.
const LOSSES_MAX: usize = 64;

/// Maximum number of claims that are kept. A receiver reports at most every 2 ms, so 256 claims are
/// half a second, which is more than the wait on most paths.
const CLAIMS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::epoch;

    const MS: Duration = Duration::from_millis(1);
    const WAIT: Duration = Duration::from_millis(250);

    /// A window in bytes that a loss halves.
    #[derive(Clone, Debug, PartialEq)]
    struct Halving(u64);

    impl Chargeable for Halving {
        fn charge(&mut self, _: &Loss) {
            self.0 /= 2;
        }
    }

    fn loss(at: Instant, bytes: u64) -> Loss {
        Loss {
            detected: [at; 2],
            sent: [at - 20 * MS; 2],
            is_persistent: false,
            bytes,
            evidence: Evidence::new(true),
        }
    }

    /// Settles while no packet waits in a queue.
    fn settle(ledger: &mut Ledger<Halving>, now: Instant) -> Settled {
        ledger.settle(now, WAIT, UnqueuedRoundTrips { newest_sent: Some(now), reaction: WAIT })
    }

    fn claim(at: Instant, bytes: u64) -> Claim {
        Claim { arrived: at, sent: [at - 100 * MS, at - 19 * MS], bytes }
    }

    /// An epoch with time before it.
    fn start() -> Instant {
        epoch() + 1000 * MS
    }

    #[test]
    fn a_loss_reduces_the_window_at_once_and_a_claim_restores_it() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000));
        assert_eq!(ledger.controller(), &Halving(800));
        ledger.each(|controller| controller.0 += 100);
        ledger.add_claim(claim(now + MS, 2900));
        assert_eq!(settle(&mut ledger, now + MS), Settled { host: 3000, ..Settled::default() });
        assert_eq!(ledger.controller(), &Halving(1700), "with what was acknowledged since");
        assert!(ledger.pending.is_none());
    }

    #[test]
    fn a_claim_may_come_before_the_loss_is_detected() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_claim(claim(now, 3000));
        ledger.add_loss(loss(now + MS, 3000));
        assert_eq!(settle(&mut ledger, now + MS).host, 3000);
        assert_eq!(ledger.controller(), &Halving(1600));
    }

    #[test]
    fn a_loss_without_a_claim_stays_charged() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000));
        assert_eq!(settle(&mut ledger, now + WAIT), Settled::default());
        assert_eq!(settle(&mut ledger, now + WAIT + MS), Settled { network: 3000, ..Settled::default() });
        ledger.add_claim(claim(now + WAIT + MS, 9000));
        assert_eq!(settle(&mut ledger, now + WAIT + MS), Settled::default());
        assert_eq!(ledger.controller(), &Halving(800));
    }

    #[test]
    fn the_networks_loss_between_two_of_the_host_is_charged_once() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000));
        // Sent after the time of the claim.
        ledger.add_loss(loss(now + 40 * MS, 1200));
        ledger.add_loss(loss(now + 80 * MS, 3000));
        assert_eq!(ledger.controller(), &Halving(200));
        ledger.add_claim(Claim { arrived: now, sent: [now - 30 * MS, now - 10 * MS], bytes: 3000 });
        ledger.add_claim(Claim { arrived: now, sent: [now + 55 * MS, now + 65 * MS], bytes: 3000 });
        assert_eq!(settle(&mut ledger, now + 81 * MS).host, 6000);
        assert_eq!(ledger.controller(), &Halving(800));
        assert_eq!(settle(&mut ledger, now + 81 * MS + WAIT).network, 1200);
        assert_eq!(ledger.controller(), &Halving(800));
    }

    #[test]
    fn a_claim_of_less_than_half_is_not_enough() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3001));
        ledger.add_claim(claim(now, 1500));
        assert_eq!(settle(&mut ledger, now).host, 0);
        ledger.add_claim(claim(now, 1));
        assert_eq!(settle(&mut ledger, now).host, 3001);
    }

    #[test]
    fn a_claim_of_another_time_is_not_used() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000));
        ledger.add_claim(Claim { arrived: now, sent: [now - 300 * MS, now - 21 * MS], bytes: 9000 });
        assert_eq!(settle(&mut ledger, now).host, 0);
    }

    #[test]
    fn a_claim_is_refused_if_the_receiver_ran_or_packets_after_the_loss_waited_in_a_queue() {
        let now = start();
        let settle = |newest_sent: Instant, after: Duration, is_in_pause: bool| {
            let mut ledger = Ledger::new(Halving(1600));
            ledger.add_loss(Loss { evidence: Evidence::new(is_in_pause), ..loss(now, 3000) });
            ledger.add_claim(Claim { arrived: now + after, ..claim(now, 9000) });
            let unqueued = UnqueuedRoundTrips { newest_sent: Some(newest_sent), reaction: 20 * MS };
            let first = ledger.settle(now + after, WAIT, unqueued);
            let last = ledger.settle(now + WAIT + MS, WAIT, unqueued);
            (first.host, last.refused)
        };
        assert_eq!(settle(now - 20 * MS, MS, true), (0, 3000), "it was sent before");
        assert_eq!(settle(now - 19 * MS, MS, true), (3000, 0));
        assert_eq!(settle(now - 19 * MS, 21 * MS, true), (0, 3000), "the reaction has emptied the queue");
        assert_eq!(settle(now - 19 * MS, MS, false), (0, 3000), "the receiver ran");
    }

    #[test]
    fn a_later_loss_of_a_round_trip_needs_its_own_evidence() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        let unqueued = |newest_sent| UnqueuedRoundTrips { newest_sent: Some(newest_sent), reaction: 20 * MS };
        ledger.add_loss(loss(now, 3000));
        assert_eq!(ledger.settle(now, WAIT, unqueued(now - 15 * MS)), Settled::default());
        ledger.add_loss(loss(now + 10 * MS, 1000));
        ledger.add_claim(claim(now, 9000));
        assert_eq!(ledger.settle(now + 10 * MS, WAIT, unqueued(now - 15 * MS)).host, 0);
        assert_eq!(ledger.settle(now + 11 * MS, WAIT, unqueued(now - 9 * MS)).host, 4000);
    }

    proptest! {
        /// Other traffic sees no difference as long as no drops are reported.
        #[test]
        fn without_claims_the_controller_does_what_it_does_alone(
            events in prop::collection::vec((any::<bool>(), 0..20_u32, 1..100_000_u64), 0..300),
        ) {
            let mut now = start();
            let mut alone = Halving(1 << 40);
            let mut ledger = Ledger::new(alone.clone());
            for (is_loss, after_ms, bytes) in events {
                now += after_ms * MS;
                if is_loss {
                    alone.charge(&loss(now, bytes));
                    ledger.add_loss(loss(now, bytes));
                } else {
                    alone.0 += bytes;
                    ledger.each(|controller| controller.0 += bytes);
                }
                settle(&mut ledger, now);
                prop_assert_eq!(ledger.controller(), &alone);
            }
        }

        /// Whatever is claimed, the host's bytes are bounded by what was claimed and what was lost,
        /// every lost byte is settled once, and the lists are bounded.
        #[test]
        fn claims_settle_at_most_twice_what_they_claim(
            events in prop::collection::vec((any::<bool>(), 0..20_u32, 1..100_000_u64), 0..300),
        ) {
            let mut now = start();
            let mut ledger = Ledger::new(Halving(u64::MAX));
            let (mut lost, mut claimed) = (0, 0);
            let (mut host, mut network) = (0, 0);
            for (is_loss, after_ms, bytes) in events {
                now += after_ms * MS;
                let over = if is_loss {
                    lost += bytes;
                    ledger.add_loss(loss(now, bytes))
                } else {
                    claimed += bytes;
                    ledger.add_claim(claim(now, bytes));
                    Settled::default()
                };
                let settled = settle(&mut ledger, now);
                host += settled.host;
                network += settled.network + over.network;
                prop_assert!(ledger.claims.len() <= CLAIMS_MAX);
                prop_assert!(ledger.pending.as_ref().is_none_or(|pending| pending.losses.len() <= LOSSES_MAX));
            }
            network += settle(&mut ledger, now + WAIT + MS).network;
            prop_assert_eq!(host + network, lost);
            prop_assert!(host <= 2 * claimed);
        }
    }
}
