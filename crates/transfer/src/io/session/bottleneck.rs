//! What keeps a transfer from being faster.

use crate::Limit;
use crate::io::flow::Seen;

/// What keeps a transfer from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bottleneck {
    /// The receiving host, its processor or its disk, does not take more.
    Receiver,
    /// The network, by the controller's judgement.
    Network,
    /// The sending host does not read, or send, as fast as it may.
    Sender,
    /// The rate that was asked for.
    Rate,
}

/// What was the limit at each look.
#[derive(Debug)]
pub(super) struct Tally {
    is_fixed: bool,
    looks: u32,
    counts: [u32; 4],
    sent_before: u64,
}

const ALL: [Bottleneck; 4] =
    [Bottleneck::Receiver, Bottleneck::Network, Bottleneck::Sender, Bottleneck::Rate];

impl Tally {
    pub(super) fn new(is_fixed: bool) -> Self {
        Self { is_fixed, looks: 0, counts: [0; 4], sent_before: 0 }
    }

    /// A look, `seconds` after the one before.
    pub(super) fn look(&mut self, seen: &Seen, seconds: f64) {
        let sent = seen.stats.sent_bytes;
        let rate = sent.saturating_sub(self.sent_before) as f64 / seconds.max(1e-3);
        self.sent_before = sent;
        let found = match seen.limit {
            Some(Limit::Drain) => Bottleneck::Receiver,
            Some(Limit::Rate) if rate < SLACK * seen.rate_bytes_s => Bottleneck::Sender,
            Some(Limit::Rate) if self.is_fixed => Bottleneck::Rate,
            Some(Limit::Rate | Limit::Window) => Bottleneck::Network,
            // The end of it, or what says nothing of the path.
            _ => return,
        };
        self.looks += 1;
        if let Some(count) = ALL.iter().position(|one| *one == found).and_then(|at| self.counts.get_mut(at)) {
            *count += 1;
        }
    }

    /// What it was in more than half of all looks.
    pub(super) fn found(&self) -> Option<Bottleneck> {
        ALL.into_iter().zip(self.counts).find(|(_, count)| self.looks < count * 2).map(|(one, _)| one)
    }
}

/// Headers and seal are at most 9 % of the rate on Ethernet, and a look may be half a burst late: who sends less than this part of what is
/// allowed is not held back by it.
const SLACK: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stats;

    fn seen(limit: Limit, sent_bytes: u64) -> Seen {
        let stats = Stats { sent_bytes, ..Stats::default() };
        Seen { stats, rate_bytes_s: 1000.0, limit: Some(limit), ..Seen::default() }
    }

    #[test]
    fn it_is_what_held_most_of_the_time() {
        let mut tally = Tally::new(false);
        assert_eq!(tally.found(), None);
        tally.look(&seen(Limit::Drain, 100), 0.1);
        tally.look(&seen(Limit::Rate, 200), 0.1);
        assert_eq!(tally.found(), None, "half of the time is not most");
        tally.look(&seen(Limit::Drain, 300), 0.1);
        tally.look(&seen(Limit::Object, 300), 0.1);
        assert_eq!(tally.found(), Some(Bottleneck::Receiver));
    }

    #[test]
    fn who_sends_less_than_allowed_is_the_limit() {
        for (is_fixed, sent, found) in
            [(false, 10, Bottleneck::Sender), (false, 95, Bottleneck::Network), (true, 95, Bottleneck::Rate)]
        {
            let mut tally = Tally::new(is_fixed);
            tally.look(&seen(Limit::Rate, sent), 0.1);
            assert_eq!(tally.found(), Some(found));
        }
    }
}
