//! The strategies that are compared.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use barograph_timeout::{
    Adaptive, AdaptiveConfig, FixedTimeout, HostStatistics, INITIAL_TIMEOUT, Nws, NwsEscalating, Rfc6298,
    TimeoutEstimator,
};

use super::engine::Run;
use crate::stats::mean;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Strategy {
    Static(f64),
    StaticBest,
    /// The paper's mean + k SD.
    Nws(f64),
    /// The paper's mean + 2 SD, longer with every retry; the last try has no timeout.
    NwsEscalating,
    Rfc6298,
    Default,
    /// The default, with a copy sent at the timeout instead of a cancellation.
    DefaultHedged,
}

impl Strategy {
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

    /// Runs `program` under this strategy. [`Self::StaticBest`] tries 40 static timeouts and
    /// returns the run with the lowest mean.
    pub(crate) fn run(self, program: impl Fn(Self) -> Run) -> Run {
        if self == Self::StaticBest { best_static(HINDSIGHT_MAX_S, program) } else { program(self) }
    }

    /// Makes a timeout for each path. `owners` has the path's sending node; paths of one node share
    /// what their host learns. Numbers that the paper sets by hand, a static timeout and the
    /// generous start, are multiplied by `scale`; learned numbers need no scale.
    pub(crate) fn timeouts(self, owners: &[usize], scale: f64) -> Vec<Box<dyn TimeoutEstimator + Send>> {
        let mut hosts: BTreeMap<usize, HostStatistics> = BTreeMap::new();
        let start = INITIAL_TIMEOUT.mul_f64(scale);
        let config = AdaptiveConfig { initial_timeout: start, ..AdaptiveConfig::default() };
        let timeout = |owner: &usize| -> Box<dyn TimeoutEstimator + Send> {
            match self {
                Self::Static(seconds) => Box::new(FixedTimeout(Duration::from_secs_f64(seconds * scale))),
                Self::StaticBest => unreachable!("it runs as one of the static ones"),
                Self::Nws(k) => Box::new(Nws::new(k).with_start(start)),
                Self::NwsEscalating => Box::new(NwsEscalating(Nws::new(2.0).with_start(start))),
                Self::Rfc6298 => Box::new(Rfc6298::default()),
                Self::Default | Self::DefaultHedged => {
                    Box::new(Adaptive::new(&config, hosts.entry(*owner).or_default()))
                }
            }
        };
        owners.iter().map(timeout).collect()
    }

    /// Whether a copy is sent at the timeout instead of a cancellation.
    pub(crate) fn is_hedged(self) -> bool {
        self == Self::DefaultHedged
    }
}

impl FromStr for Strategy {
    type Err = String;

    /// Parses one of the names; `static-15` and `mean+2sd` also accept other numbers.
    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(strategy) = Self::ALL.into_iter().find(|strategy| strategy.name() == name) {
            return Ok(strategy);
        }
        let number =
            |text: &str, max: f64| text.parse().ok().filter(|number: &f64| 0.0 < *number && *number <= max);
        let fixed = name.strip_prefix("static-").and_then(|text| number(text, 1e6)).map(Self::Static);
        let inner = name.strip_prefix("mean+").and_then(|text| text.strip_suffix("sd"));
        fixed.or_else(|| inner.and_then(|text| number(text, 100.0)).map(Self::Nws)).ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(|strategy| strategy.name()).collect();
            format!("the strategies are {}", names.join(", "))
        })
    }
}

/// The run with the lowest mean under 40 static timeouts, log-spaced from 1 ms to `up_to_s`.
pub(crate) fn best_static(up_to_s: f64, program: impl Fn(Strategy) -> Run) -> Run {
    let candidate = |i: i32| LEAST_S * (up_to_s / LEAST_S).powf(f64::from(i) / 39.0);
    let run = |seconds| Run { best_s: Some(seconds), ..program(Strategy::Static(seconds)) };
    (0..40)
        .map(candidate)
        .map(run)
        .min_by(|a, b| f64::total_cmp(&mean(&a.times), &mean(&b.times)))
        .expect("there are 40")
}

/// Range of the static timeouts in hindsight, in seconds.
const LEAST_S: f64 = 0.001;
const HINDSIGHT_MAX_S: f64 = 120.0;
