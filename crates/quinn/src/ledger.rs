//! Losses that wait for the receiver's report, and a controller with and without them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A congestion controller, as far as the ledger is concerned.
pub(crate) trait Chargeable: Clone {
    /// Reacts to a loss.
    fn charge(&mut self, loss: &Loss);
}

/// Packets that were declared lost together, or within a short time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loss {
    /// When the first of them was declared lost.
    pub(crate) detected: Instant,
    /// When the newest packets of the first and of the last declaration were sent.
    pub(crate) sent: [Instant; 2],
    pub(crate) is_persistent: bool,
    pub(crate) bytes: u64,
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
    /// Bytes without a claim until the deadline.
    pub(crate) network: u64,
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

    /// Charges a loss at once, and keeps it pending for `wait`. Returns the bytes of an older loss
    /// that is charged for good because too many are pending.
    pub(crate) fn add_loss(&mut self, loss: Loss, wait: Duration) -> Settled {
        let pending = self
            .pending
            .get_or_insert_with(|| Pending { clean: self.charged.clone(), losses: VecDeque::new() });
        self.charged.charge(&loss);
        pending.add(loss, wait / LOSSES_MAX as u32 * 2)
    }

    pub(crate) fn add_claim(&mut self, claim: Claim) {
        if self.claims.len() == CLAIMS_MAX {
            self.claims.pop_front();
        }
        self.claims.push_back(claim);
    }

    /// Compares losses with claims. A loss that no claim covers within `wait` is the network's.
    pub(crate) fn settle(&mut self, now: Instant, wait: Duration) -> Settled {
        self.claims.retain(|claim| now.saturating_duration_since(claim.arrived) <= wait);
        let Some(pending) = &mut self.pending else { return Settled::default() };
        let host = pending.forgive(&mut self.claims);
        let network = pending.charge_until(now, wait);
        if host > 0 {
            self.charged = pending.charged();
        }
        if pending.losses.is_empty() {
            self.pending = None;
        }
        Settled { host, network }
    }
}

impl<C: Chargeable> Pending<C> {
    /// Adds a loss, or adds to the last one if that is at most `merged` old.
    fn add(&mut self, loss: Loss, merged: Duration) -> Settled {
        if let Some(last) = self.losses.back_mut()
            && loss.detected.saturating_duration_since(last.detected) <= merged
        {
            last.sent = [last.sent[0].min(loss.sent[0]), last.sent[1].max(loss.sent[1])];
            last.is_persistent |= loss.is_persistent;
            last.bytes = last.bytes.saturating_add(loss.bytes);
            return Settled::default();
        }
        let mut network = 0;
        if self.losses.len() == LOSSES_MAX
            && let Some(oldest) = self.losses.pop_front()
        {
            self.clean.charge(&oldest);
            network = oldest.bytes;
        }
        self.losses.push_back(loss);
        Settled { host: 0, network }
    }

    /// Removes the losses that claims cover. Returns their bytes.
    fn forgive(&mut self, claims: &mut VecDeque<Claim>) -> u64 {
        let mut host = 0;
        self.losses.retain(|loss| {
            let is_host = use_claims(claims, loss);
            host += if is_host { loss.bytes } else { 0 };
            !is_host
        });
        host
    }

    /// Charges the losses that are older than `wait` to the clean copy. Returns their bytes.
    fn charge_until(&mut self, now: Instant, wait: Duration) -> u64 {
        let mut network = 0;
        while let Some(loss) = self.losses.front().copied()
            && now.saturating_duration_since(loss.detected) > wait
        {
            self.clean.charge(&loss);
            self.losses.pop_front();
            network += loss.bytes;
        }
        network
    }

    /// The clean copy, charged with what is pending.
    fn charged(&self) -> C {
        let mut controller = self.clean.clone();
        self.losses.iter().for_each(|loss| controller.charge(loss));
        controller
    }
}

/// Whether claims of the loss's time cover half of its bytes. If so, these bytes of the claims are
/// used up.
///
/// The receiver estimates bytes from the length of its buffers, so an exact comparison would refuse
/// many true claims.
fn use_claims(claims: &mut VecDeque<Claim>, loss: &Loss) -> bool {
    let covers = |claim: &Claim| claim.sent[0] <= loss.sent[1] && loss.sent[0] <= claim.sent[1];
    let half = loss.bytes.div_ceil(2);
    let claimed =
        claims.iter().filter(|claim| covers(claim)).fold(0_u64, |sum, claim| sum.saturating_add(claim.bytes));
    if claimed < half {
        return false;
    }
    let mut rest = half;
    for claim in claims.iter_mut().filter(|claim| covers(claim)) {
        let used = rest.min(claim.bytes);
        claim.bytes -= used;
        rest -= used;
    }
    claims.retain(|claim| claim.bytes > 0);
    true
}

/// Maximum number of pending losses. Losses within a thirty-second of the wait are one, so the
/// limit is reached only if the wait became shorter.
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
        Loss { detected: at, sent: [at - 20 * MS; 2], is_persistent: false, bytes }
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
        ledger.add_loss(loss(now, 3000), WAIT);
        assert_eq!(ledger.controller(), &Halving(800));
        ledger.each(|controller| controller.0 += 100);
        ledger.add_claim(claim(now + MS, 2900));
        assert_eq!(ledger.settle(now + MS, WAIT), Settled { host: 3000, network: 0 });
        assert_eq!(ledger.controller(), &Halving(1700), "with what was acknowledged since");
        assert!(ledger.pending.is_none());
    }

    #[test]
    fn a_claim_may_come_before_the_loss_is_detected() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_claim(claim(now, 3000));
        ledger.add_loss(loss(now + MS, 3000), WAIT);
        assert_eq!(ledger.settle(now + MS, WAIT).host, 3000);
        assert_eq!(ledger.controller(), &Halving(1600));
    }

    #[test]
    fn a_loss_without_a_claim_stays_charged() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000), WAIT);
        assert_eq!(ledger.settle(now + WAIT, WAIT), Settled::default());
        assert_eq!(ledger.settle(now + WAIT + MS, WAIT), Settled { host: 0, network: 3000 });
        ledger.add_claim(claim(now + WAIT + MS, 9000));
        assert_eq!(ledger.settle(now + WAIT + MS, WAIT), Settled::default());
        assert_eq!(ledger.controller(), &Halving(800));
    }

    #[test]
    fn the_networks_loss_between_two_of_the_host_is_charged_once() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000), WAIT);
        // Sent after the time of the claim.
        ledger.add_loss(loss(now + 40 * MS, 1200), WAIT);
        ledger.add_loss(loss(now + 80 * MS, 3000), WAIT);
        assert_eq!(ledger.controller(), &Halving(200));
        ledger.add_claim(Claim { arrived: now, sent: [now - 30 * MS, now - 10 * MS], bytes: 3000 });
        ledger.add_claim(Claim { arrived: now, sent: [now + 55 * MS, now + 65 * MS], bytes: 3000 });
        assert_eq!(ledger.settle(now + 81 * MS, WAIT).host, 6000);
        assert_eq!(ledger.controller(), &Halving(800));
        assert_eq!(ledger.settle(now + 81 * MS + WAIT, WAIT).network, 1200);
        assert_eq!(ledger.controller(), &Halving(800));
    }

    #[test]
    fn a_claim_of_less_than_half_is_not_enough() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3001), WAIT);
        ledger.add_claim(claim(now, 1500));
        assert_eq!(ledger.settle(now, WAIT).host, 0);
        ledger.add_claim(claim(now, 1));
        assert_eq!(ledger.settle(now, WAIT).host, 3001);
    }

    #[test]
    fn a_claim_of_another_time_is_not_used() {
        let now = start();
        let mut ledger = Ledger::new(Halving(1600));
        ledger.add_loss(loss(now, 3000), WAIT);
        ledger.add_claim(Claim { arrived: now, sent: [now - 300 * MS, now - 21 * MS], bytes: 9000 });
        assert_eq!(ledger.settle(now, WAIT).host, 0);
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
                    ledger.add_loss(loss(now, bytes), WAIT);
                } else {
                    alone.0 += bytes;
                    ledger.each(|controller| controller.0 += bytes);
                }
                ledger.settle(now, WAIT);
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
                    ledger.add_loss(loss(now, bytes), WAIT)
                } else {
                    claimed += bytes;
                    ledger.add_claim(claim(now, bytes));
                    Settled::default()
                };
                let settled = ledger.settle(now, WAIT);
                host += settled.host;
                network += settled.network + over.network;
                prop_assert!(ledger.claims.len() <= CLAIMS_MAX);
                prop_assert!(ledger.pending.as_ref().is_none_or(|pending| pending.losses.len() <= LOSSES_MAX));
            }
            network += ledger.settle(now + WAIT + MS, WAIT).network;
            prop_assert_eq!(host + network, lost);
            prop_assert!(host <= 2 * claimed);
        }
    }
}
