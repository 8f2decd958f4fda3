//! The strategies that are compared.

use barograph_sim::Scenario;
use barograph_timeout::{Adaptive, Config, Host, Nws, NwsEscalating, Rfc6298, Static, Timeout};
use std::time::Duration;

use super::engine::{Run, Sent, run};

/// A way of setting timeouts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Strategy {
    /// The same number of seconds everywhere.
    Static(f64),
    /// The static timeout that was best in hindsight, of 40.
    StaticBest,
    /// The paper's mean + k SD.
    Nws(f64),
    /// The same, longer with every retry, the last try uncut.
    NwsEscalating,
    /// TCP's timer.
    Rfc6298,
    /// Barograph's default.
    Default,
    /// The default, with a copy sent at the timeout instead of a cancellation.
    DefaultHedged,
}

impl Strategy {
    /// In the order in which they are printed.
    pub(crate) const ALL: [Self; 11] = [
        Self::Static(2.0),
        Self::Static(5.0),
        Self::Static(15.0),
        Self::Static(45.0),
        Self::StaticBest,
        Self::Nws(1.0),
        Self::Nws(2.0),
        Self::NwsEscalating,
        Self::Rfc6298,
        Self::Default,
        Self::DefaultHedged,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Static(seconds) => format!("static-{seconds}"),
            Self::StaticBest => "static-best".to_owned(),
            Self::Nws(k) => format!("mean+{k}sd"),
            Self::NwsEscalating => "seed-escalating".to_owned(),
            Self::Rfc6298 => "rfc6298".to_owned(),
            Self::Default => "default".to_owned(),
            Self::DefaultHedged => "default-hedged".to_owned(),
        }
    }

    /// Runs `scenario` under this strategy.
    pub(crate) fn run(self, scenario: &Scenario, look_on: impl FnMut(Sent)) -> Run {
        match self {
            Self::Static(seconds) => each(scenario, look_on, |_| Static(Duration::from_secs_f64(seconds))),
            Self::StaticBest => static_best(scenario).1,
            Self::Nws(k) => each(scenario, look_on, |_| Nws::new(k)),
            Self::NwsEscalating => each(scenario, look_on, |_| NwsEscalating(Nws::new(2.0))),
            Self::Rfc6298 => each(scenario, look_on, |_| Rfc6298::default()),
            Self::Default => run(scenario, &mut defaults(scenario), false, look_on),
            Self::DefaultHedged => run(scenario, &mut defaults(scenario), true, look_on),
        }
    }
}

/// The static timeout with the least mean, and its run: of 40 from 1 ms to 120 s, log-spaced.
pub(crate) fn static_best(scenario: &Scenario) -> (f64, Run) {
    let step = |i: i32| 0.001 * 120_000_f64.powf(f64::from(i) / 39.0);
    let runs = (0..40).map(step).map(|seconds| (seconds, Strategy::Static(seconds).run(scenario, |_| {})));
    runs.min_by(|(_, a), (_, b)| f64::total_cmp(&mean(&a.times), &mean(&b.times))).expect("there are 40")
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn each<T: Timeout>(scenario: &Scenario, look_on: impl FnMut(Sent), make: impl Fn(usize) -> T) -> Run {
    let mut paths: Vec<T> = (0..2 * (scenario.nodes - 1)).map(make).collect();
    run(scenario, &mut paths, false, look_on)
}

/// The default for each path; the paths that start at one node share what their host learns.
fn defaults(scenario: &Scenario) -> Vec<Adaptive> {
    let hosts: Vec<Host> = (0..scenario.nodes).map(|_| Host::default()).collect();
    let owner = |path: usize| {
        let child = path / 2 + 1;
        if path.is_multiple_of(2) { child } else { (child - 1) / 2 }
    };
    let config = Config::default();
    (0..2 * (scenario.nodes - 1)).map(|path| Adaptive::new(&config, &hosts[owner(path)])).collect()
}
