//! Tests that a change of a path brings forward: reads the series that show changes, sends packet
//! trains and runs the tests (docs/spec/mesh.md §5).

use std::collections::BTreeMap;
use std::time::Duration;

use barograph_forecast::{Interval, Name, Outcome, Quantity, SeriesId};
use barograph_mesh::{EarlyTest, EarlyTestCounts, EarlyTests, WatchedQuantity};
use barograph_probe::Target;

use super::{Bulk, TestAttempt};
use crate::forecast::series::SeriesState;
use crate::forecast::series_reader::for_each_state;

/// Early tests of a station, and what was seen last of each series that can bring a test forward.
pub(super) struct EarlyPlan {
    tests: EarlyTests,
    seen: BTreeMap<SeriesId, SeenValue>,
}

/// The newest value of a series, and the forecast made from it.
#[derive(Clone, Copy, Debug)]
struct SeenValue {
    /// Time label of the newest point.
    time_unix_ns: i64,
    /// 90 % interval issued for the next value.
    issued: Option<(f64, f64)>,
}

impl EarlyPlan {
    /// The early tests of a station; `None` if the configuration permits none.
    pub(super) fn new(bulk: &Bulk) -> Option<Self> {
        bulk.early_tests.then(|| Self {
            tests: EarlyTests::new(bulk.host.as_str(), bulk.plan.budget, bulk.plan.seed, bulk.now()),
            seen: BTreeMap::new(),
        })
    }

    pub(super) fn counts(&self) -> EarlyTestCounts {
        self.tests.counts()
    }

    /// Looks for changes; sends at most one train and runs at most one test. Blocks for as long as
    /// they take. Call this function about once a second.
    pub(super) fn step(&mut self, bulk: &Bulk, peers: &BTreeMap<Name, Target>) {
        let trains = bulk.peers_with_trains();
        self.tests.set_peers(bulk.now(), peers.keys().map(|peer| (peer.as_str(), trains.contains(peer))));
        self.observe(bulk, peers);
        // A train beside a transfer of this host would show what the transfer leaves.
        if !bulk.slot.is_taken() {
            self.send_train(bulk, peers);
        }
        self.run_test(bulk, peers);
    }

    /// Passes on the newest value of each series if it is new, with the interval that was issued
    /// after the value seen before.
    fn observe(&mut self, bulk: &Bulk, peers: &BTreeMap<Name, Target>) {
        self.seen.retain(|series, _| peers.contains_key(&series.target));
        let series_of_peer = |peer: &Name| WATCHED.map(|(quantity, _)| bulk.series_of(peer, quantity));
        let series: Vec<SeriesId> = peers.keys().flat_map(series_of_peer).collect();
        let (tests, seen, now) = (&mut self.tests, &mut self.seen, bulk.now());
        for_each_state(&bulk.series_table, &series, |series, state| {
            if let (Some(what), Some((value, issued))) =
                (watched(&series.quantity), new_value(seen, series, state))
            {
                tests.observe(now, series.target.as_str(), what, value, issued);
            }
        });
    }

    fn send_train(&mut self, bulk: &Bulk, peers: &BTreeMap<Name, Target>) {
        let Some(peer) = self.tests.next_train(bulk.now()) else { return };
        if let Some((name, target)) = known(peers, &peer) {
            let rate_bit_s = bulk.train(name, target);
            self.tests.record_train(bulk.now(), &peer, rate_bit_s);
        }
    }

    fn run_test(&mut self, bulk: &Bulk, peers: &BTreeMap<Name, Target>) {
        let forecast = |peer: &str| bulk.path(&Name::new(peer).ok()?).forecast_bit_s;
        let Some(test) = self.tests.next_test(bulk.now(), forecast) else { return };
        let Some((peer, target)) = known(peers, &test.peer) else { return };
        let parameters =
            bulk.path(peer).brought_forward(bulk.rtt_s(peer), bulk.early_stop, &bulk.plan.budget);
        let attempt = bulk.test(peer, target, &parameters, false);
        self.record(bulk.now(), &test, attempt);
    }

    fn record(&mut self, now: Duration, test: &EarlyTest, attempt: TestAttempt) {
        match attempt {
            TestAttempt::Ran { row, cost } => {
                tracing::info!(
                    "a change of {} brought the bulk test to {} forward",
                    test.reason.as_str(),
                    test.peer
                );
                self.tests.record_test(now, test, cost, row.goodput_bit_s.is_some());
            }
            TestAttempt::Refused { retry_after, .. } | TestAttempt::Deferred { retry_after, .. } => {
                self.tests.record_refusal(now, &test.peer, retry_after);
            }
            TestAttempt::Stopped => {}
        }
    }
}

fn known<'a>(peers: &'a BTreeMap<Name, Target>, peer: &str) -> Option<(&'a Name, &'a Target)> {
    peers.get_key_value(&Name::new(peer).ok()?)
}

/// The newest value of a series, if it is new, and the interval that was issued for it. A value
/// that was there at the first call is not new.
fn new_value(
    seen: &mut BTreeMap<SeriesId, SeenValue>,
    series: &SeriesId,
    state: &SeriesState,
) -> Option<(f64, Option<(f64, f64)>)> {
    let time_unix_ns = state.last().time_unix_ns;
    if seen.get(series).is_some_and(|seen| seen.time_unix_ns == time_unix_ns) {
        return None;
    }
    let newest = SeenValue { time_unix_ns, issued: state.interval(Interval::DEFAULT_LEVEL) };
    let before = seen.insert(series.clone(), newest)?;
    match state.last().outcome {
        Outcome::Value(value) => Some((value, before.issued)),
        Outcome::Failed { .. } => None,
    }
}

fn watched(quantity: &Quantity) -> Option<WatchedQuantity> {
    WATCHED.into_iter().find(|(known, _)| known == quantity).map(|(_, kind)| kind)
}

/// Quantities that can bring a test forward.
const WATCHED: [(Quantity, WatchedQuantity); 3] = [
    (Quantity::RTT, WatchedQuantity::Rtt),
    (Quantity::LOSS, WatchedQuantity::Loss),
    (Quantity::GOODPUT, WatchedQuantity::Goodput),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::forecast::series::{Measurement, SeriesTable};

    #[test]
    fn each_new_value_comes_once_with_the_interval_issued_for_it() {
        let series = SeriesId {
            source: Name::new("a").unwrap(),
            target: Name::new("b").unwrap(),
            quantity: Quantity::RTT,
        };
        let mut series_table = SeriesTable::new(1);
        let mut seen = BTreeMap::new();
        let mut issued = Vec::new();
        for second in 0..200 {
            let value = 0.02 + 0.001 * f64::from(second % 7);
            let before = series_table.get(&series).and_then(|state| state.interval(Interval::DEFAULT_LEVEL));
            series_table.observe(&Measurement {
                series: series.clone(),
                time_unix_ns: i64::from(second) * 10_000_000_000,
                outcome: Outcome::Value(value),
                detail: String::new(),
            });
            let state = series_table.get(&series).unwrap();
            let found = new_value(&mut seen, &series, state);
            assert_eq!(found, (second > 0).then_some((value, before)), "value {second}");
            assert_eq!(new_value(&mut seen, &series, state), None, "it is not new any more");
            issued.extend(before);
        }
        assert!(issued.len() > 100, "the interval is known after some values");
    }
}
