//! The strategies on a network that is quicker than the paper's.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use barograph_timeout::{
    Adaptive, Attempt, Config, Decision, Ended, Host, LIMIT, Nws, NwsEscalating, Reason, Rfc6298, START,
    Static, Timeout,
};

use super::super::strategy::Strategy;

/// An estimator for one direction of a link, whose last try is not the end.
///
/// A message whose tries are used up makes its reduction an abandoned one; it is then waited for without a
/// timeout, and of that the estimator is not told. It stays the same message to the link, under the same
/// identifier, so that copies of before and after are handled once together.
pub(crate) struct Patient {
    inner: Box<dyn Timeout + Send>,
    tries: u32,
}

impl Patient {
    /// Tries of a link for so many of the estimator's: some more, of which only those are used up that get
    /// no connection.
    pub(crate) fn link_tries(tries: u32) -> u32 {
        tries + CONNECTING_MAX
    }

    fn within(&self, attempt: &Attempt) -> Option<Attempt> {
        (attempt.number < self.tries).then_some(Attempt { tries: self.tries, ..*attempt })
    }
}

impl Timeout for Patient {
    fn decide(&self, attempt: &Attempt) -> Decision {
        match self.within(attempt) {
            Some(attempt) => self.inner.decide(&attempt),
            None => Decision {
                timeout: LIMIT,
                forecast: None,
                error: None,
                expected_timeouts: f64::NAN,
                help: f64::NAN,
                reason: Reason::LastTry,
            },
        }
    }

    fn record(&mut self, attempt: &Attempt, ended: Ended) {
        if let Some(attempt) = self.within(attempt) {
            self.inner.record(&attempt, ended);
        }
    }

    fn connected(&mut self, took: Duration) {
        self.inner.connected(took);
    }
}

/// A timeout for each path, of which `owners` names the sending node. Numbers that the paper sets by hand –
/// a static timeout, the generous start – are `scale` times as long; what is learned needs no scale.
pub(crate) fn timeouts(
    strategy: Strategy,
    owners: &[usize],
    scale: f64,
    tries: u32,
) -> anyhow::Result<Vec<Patient>> {
    let start = START.mul_f64(scale);
    let mut hosts: BTreeMap<usize, Host> = BTreeMap::new();
    let mut paths = Vec::new();
    for owner in owners {
        let inner: Box<dyn Timeout + Send> = match strategy {
            Strategy::Static(seconds) => Box::new(Static(Duration::from_secs_f64(seconds * scale))),
            Strategy::Nws(k) => Box::new(Nws::new(k).with_start(start)),
            Strategy::NwsEscalating => Box::new(NwsEscalating(Nws::new(2.0).with_start(start))),
            Strategy::Rfc6298 => Box::new(Rfc6298::default()),
            Strategy::Default => {
                let config = Config { start, ..Config::default() };
                Box::new(Adaptive::new(&config, hosts.entry(*owner).or_default()))
            }
            Strategy::StaticBest | Strategy::DefaultHedged => {
                bail!("{} cannot be run over TCP: a link has one attempt at a time", strategy.name())
            }
        };
        paths.push(Patient { inner, tries });
    }
    Ok(paths)
}

/// A message that gets no connection so many times in a row has no network to go over.
const CONNECTING_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_timeout::Exchange;

    #[test]
    fn the_estimator_sees_its_own_tries_and_nothing_after() {
        let mut paths = timeouts(Strategy::NwsEscalating, &[1], 0.1, 2).expect("a strategy for links");
        let mut exchange = Exchange::new(65_536, Patient::link_tries(2));
        let first = exchange.attempt(Duration::ZERO);
        assert_eq!(paths[0].timeout(&first), START.mul_f64(0.1));
        assert!(exchange.again());
        let last = exchange.attempt(Duration::from_secs(1));
        assert!(!last.is_last(), "not to the link");
        assert_eq!(paths[0].decide(&last).reason, Reason::LastTry, "but to the estimator");
        assert!(exchange.again());
        let uncut = exchange.attempt(Duration::from_secs(2));
        let before = paths[0].decide(&first);
        for _ in 0..5 {
            paths[0].record(&uncut, Ended::Answered(Duration::from_secs(9)));
        }
        assert_eq!((paths[0].timeout(&uncut), paths[0].decide(&first).timeout), (LIMIT, before.timeout));
    }

    #[test]
    fn what_a_link_cannot_do_is_refused() {
        for strategy in [Strategy::StaticBest, Strategy::DefaultHedged] {
            assert!(
                timeouts(strategy, &[0], 1.0, 5).is_err_and(|e| e.to_string().contains(&strategy.name()))
            );
        }
    }
}
