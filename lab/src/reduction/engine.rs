//! Messages in virtual time, each under its link's timeout.

use barograph_sim::{Response, Scenario, Try, Weather};
use barograph_timeout::{Ended, Exchange, LIMIT, Timeout};
use std::time::Duration;

use super::run::Run;
use super::strategy::Strategy;

/// One send, for those who look on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) path: usize,
    pub(crate) reduction: usize,
    /// The timeout of its first attempt.
    pub(crate) timeout_s: f64,
    /// From the start of its first attempt to its acknowledgement.
    pub(crate) took_s: f64,
    pub(crate) attempts: u32,
}

/// The links of a scenario in virtual time, with a timeout for each path.
pub(crate) struct Network<'a> {
    scenario: &'a Scenario,
    weather: Weather<'a>,
    paths: Vec<Box<dyn Timeout + Send>>,
    hedged: bool,
    /// What happened so far.
    pub(crate) run: Run,
    /// Whether a send of this round used up its tries.
    abandoning: bool,
}

impl<'a> Network<'a> {
    /// `links` links in the weather of `scenario`; `paths` has a timeout for each path that will be used.
    pub(crate) fn new(scenario: &'a Scenario, links: usize, strategy: Strategy, owners: &[usize]) -> Self {
        let weather = Weather::new(scenario, links);
        let (paths, hedged) = (strategy.timeouts(owners, 1.0), strategy.is_hedged());
        Self { scenario, weather, paths, hedged, run: Run::default(), abandoning: false }
    }

    /// Begins anew with timeouts that know nothing.
    pub(crate) fn forget(&mut self, strategy: Strategy, owners: &[usize]) {
        self.paths = strategy.timeouts(owners, 1.0);
    }

    /// A reduction, or whatever is timed as a whole, took so long.
    pub(crate) fn finished(&mut self, took_s: f64) {
        self.run.times.push(took_s);
        self.run.gave_up.push(std::mem::take(&mut self.abandoning));
    }

    /// Sends the message that the scenario draws for this path; see [`Self::send`].
    pub(crate) fn send_one(
        &mut self,
        path: usize,
        round: usize,
        start: f64,
        look_on: &mut impl FnMut(Sent),
    ) -> f64 {
        self.send(path, round, start, self.weather.bytes(path, round), look_on)
    }

    /// Sends one message at `start`; when its acknowledgement comes.
    ///
    /// A send that used up its tries counts its round as abandoned; it is then sent once more and waited
    /// for, so that every round has a time and enters the means.
    pub(crate) fn send(
        &mut self,
        path: usize,
        reduction: usize,
        start: f64,
        bytes: u64,
        look_on: &mut impl FnMut(Sent),
    ) -> f64 {
        let reconnect_s = self.weather.reconnect_s(path);
        let mut exchange = Exchange::begun_at(bytes, self.scenario.tries, seconds(start));
        let (mut at, mut attempts, mut given_up, mut first_timeout) = (start, 0, false, 0.0);
        loop {
            let attempt = exchange.attempt(seconds(at));
            let timeout =
                if given_up { f64::INFINITY } else { self.paths[path].timeout(&attempt).as_secs_f64() };
            if attempts == 0 {
                first_timeout = timeout;
            }
            let try_ = Try { path, reduction, number: attempts, at, bytes };
            let response = self.weather.respond(&try_);
            attempts += 1;
            let in_time = response.takes_s <= timeout;
            if in_time && !response.broken {
                at += response.takes_s;
                if !given_up {
                    self.paths[path].record(&attempt, Ended::Answered(seconds(response.takes_s)));
                }
                break;
            }
            if !in_time && self.hedged && attempt.number == 0 && !attempt.is_last() {
                exchange.again();
                attempts += 1;
                let (took, answered) = self.hedge(&try_, response, timeout, &exchange);
                at += took;
                if answered {
                    break;
                }
            } else {
                let ended = self.ended(path, at, response, timeout);
                if !given_up {
                    self.paths[path].record(&attempt, ended);
                }
                at += response.takes_s.min(timeout);
            }
            self.paths[path].connected(seconds(reconnect_s));
            at += reconnect_s;
            given_up = !exchange.again();
            self.abandoning |= given_up;
        }
        self.run.count(bytes, attempts, at - start);
        look_on(Sent { path, reduction, timeout_s: first_timeout, took_s: at - start, attempts });
        at
    }

    /// How an attempt ended that began at `at` and was not answered in time: it was cut off, unless its
    /// connection broke before.
    fn ended(&mut self, path: usize, at: f64, response: Response, timeout: f64) -> Ended {
        if response.takes_s <= timeout {
            return Ended::Failed(seconds(response.takes_s));
        }
        if !response.broken {
            self.weather.cancelled(path, at, at + response.takes_s);
        }
        Ended::TimedOut(seconds(timeout))
    }

    /// Sends a copy at the timeout and keeps the first attempt running; how long the quicker one took, from
    /// the start of the first, and whether there was an answer: else both have broken after so long. Where
    /// the link is congested both go through the same bottleneck, each at half its rate.
    fn hedge(&mut self, first: &Try, response: Response, timeout: f64, exchange: &Exchange) -> (f64, bool) {
        let Try { path, at, .. } = *first;
        let reconnect_s = self.weather.reconnect_s(path);
        let copy_at = at + timeout + reconnect_s;
        let copy = self.weather.respond(&Try { number: 1, at: copy_at, ..*first });
        let shared = if response.congested || copy.congested { 2.0 } else { 1.0 };
        // From the moment at which the copy is decided on.
        let first_rest = shared * (response.takes_s - timeout);
        let copy_rest = shared * (reconnect_s + copy.takes_s);
        let link = &mut self.paths[path];
        link.connected(seconds(reconnect_s));
        let first_attempt =
            Exchange::begun_at(first.bytes, self.scenario.tries, seconds(at)).attempt(seconds(at));
        let copy_attempt = exchange.attempt(seconds(copy_at));
        link.record(&first_attempt, Ended::Overdue(seconds(timeout)));
        if response.broken && copy.broken {
            let took = timeout + first_rest.max(copy_rest);
            link.record(&copy_attempt, Ended::Failed(seconds(copy.takes_s)));
            link.record(&first_attempt, Ended::Failed(seconds(response.takes_s)));
            return (took, false);
        }
        // What breaks leaves the other one running.
        let copy_wins = response.broken || !copy.broken && copy_rest < first_rest;
        let took = timeout + if copy_wins { copy_rest } else { first_rest };
        let copy_ran = (took - timeout - reconnect_s).max(0.0);
        if copy_wins {
            link.record(&copy_attempt, Ended::Answered(seconds(copy_ran)));
            link.record(&first_attempt, Ended::Superseded(seconds(took)));
            if !response.broken {
                self.weather.cancelled(path, at, at + response.takes_s);
            }
        } else {
            link.record(&copy_attempt, Ended::Superseded(seconds(copy_ran)));
            link.record(&first_attempt, Ended::Answered(seconds(took)));
            if !copy.broken {
                self.weather.cancelled(path, copy_at, copy_at + copy.takes_s);
            }
        }
        (took, true)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LIMIT)
}
