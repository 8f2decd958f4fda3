//! The strategies on a network that is quicker than the paper's.

use std::time::Duration;

use anyhow::bail;
use barograph_timeout::{Attempt, Decision, Ended, LIMIT, Reason, Timeout};

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

/// A timeout for each path; see [`Strategy::timeouts`].
pub(crate) fn timeouts(
    strategy: Strategy,
    owners: &[usize],
    scale: f64,
    tries: u32,
) -> anyhow::Result<Vec<Patient>> {
    if matches!(strategy, Strategy::StaticBest | Strategy::DefaultHedged) {
        bail!("{} cannot be run over TCP: a link has one attempt at a time", strategy.name());
    }
    let patient = |inner| Patient { inner, tries };
    Ok(strategy.timeouts(owners, scale).into_iter().map(patient).collect())
}

/// A message that gets no connection so many times in a row has no network to go over.
const CONNECTING_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_timeout::{Exchange, START};

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
