//! Simulates the links of a scenario in virtual time: how long each attempt takes.

use std::borrow::Cow;

use crate::rng::SeededRng;
use crate::scenario::{Congestion, LinkBase, ResponseTimeLaw, Scenario, Stall, StallDuration};

/// The links of a scenario. A link joins two nodes, and each of its directions is a separate path.
///
/// The random draws of an attempt depend only on the seed, the reduction, the path and the number
/// of the attempt, so all strategies see the same conditions (common random numbers).
#[derive(Debug, Clone)]
pub struct LinkSimulation<'a> {
    scenario: Cow<'a, Scenario>,
    links: Vec<LinkState>,
    paths: Vec<DirectionState>,
    /// Median of the Pareto law. The draws from this law are divided by the median. The value is 1
    /// for the other laws.
    median: f64,
}

/// One attempt to simulate.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedAttempt {
    /// Number of the path: twice the number of the link, plus 1 for the direction back.
    pub path: usize,
    /// Number of the reduction to which the attempt belongs.
    pub reduction: usize,
    /// Number of the attempt; 0 for the first.
    pub number: u32,
    /// Start of the attempt, in seconds.
    pub at: f64,
    /// Size of the message in bytes.
    pub bytes: u64,
}

/// Simulated result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedResponse {
    /// Time from the start to the acknowledgement, or until the connection breaks, in seconds.
    pub takes_s: f64,
    /// Whether the connection breaks without an acknowledgement, because the attempt was lost or
    /// reset.
    pub broken: bool,
    /// Whether the link was congested.
    pub congested: bool,
}

#[derive(Debug, Clone)]
struct LinkState {
    base: f64,
    /// Times of the state changes, alternately from good to bad and back.
    changes: Vec<f64>,
    sojourns: SeededRng,
}

#[derive(Debug, Clone, Default)]
struct DirectionState {
    /// Factor of the base for this direction.
    factor: f64,
    /// Times at which the cancelled copies still in flight will end.
    in_flight: Vec<f64>,
    /// Weight of the cancelled copies, and the time at which this weight was computed.
    fading: (f64, f64),
}

impl<'a> LinkSimulation<'a> {
    /// Creates `links` links according to `scenario`, at time 0.
    #[must_use]
    pub fn new(scenario: &'a Scenario, links: usize) -> Self {
        Self::of(Cow::Borrowed(scenario), links)
    }

    /// Creates links as [`new`](Self::new) does, but owns the scenario.
    #[must_use]
    pub fn owned(scenario: Scenario, links: usize) -> LinkSimulation<'static> {
        LinkSimulation::of(Cow::Owned(scenario), links)
    }

    fn of(scenario: Cow<'a, Scenario>, links: usize) -> Self {
        let mut rng = SeededRng::new(scenario.seed, BASES);
        let link = |index: usize| LinkState {
            base: base(scenario.link.base_s, &mut rng),
            changes: Vec::new(),
            sojourns: SeededRng::new(scenario.seed, SOJOURNS + index as u64),
        };
        let links: Vec<LinkState> = (0..links).map(link).collect();
        let mut rng = SeededRng::new(scenario.seed, DIRECTIONS);
        let factors = |index: usize| {
            let factor = (scenario.link.direction_sigma * rng.normal()).exp();
            DirectionState {
                factor: if index.is_multiple_of(2) { 1.0 } else { factor },
                ..DirectionState::default()
            }
        };
        let paths = (0..2 * links.len()).map(factors).collect();
        let median = match scenario.link.law {
            ResponseTimeLaw::Pareto { alpha, share, .. } => 1.0 - share + share * 2_f64.powf(1.0 / alpha),
            _ => 1.0,
        };
        Self { scenario, links, paths, median }
    }

    /// Initial base of a path, in seconds.
    #[must_use]
    pub fn base_s(&self, path: usize) -> f64 {
        self.links[path / 2].base * self.paths[path].factor
    }

    /// Time to reconnect on a path, in seconds.
    #[must_use]
    pub fn reconnect_s(&self, path: usize) -> f64 {
        self.scenario.reconnect_s + self.scenario.reconnect_factor * self.base_s(path)
    }

    /// Size in bytes of the message sent on `path` in `reduction`.
    #[must_use]
    pub fn bytes(&self, path: usize, reduction: usize) -> u64 {
        let path = if self.scenario.same_size_in_reduction { 0 } else { path };
        let u = self.rng_for(SIZES, reduction, path, 0).uniform();
        if let Some(range) = self.scenario.message_bytes_range {
            return log_uniform(range.min, range.max, u).round() as u64;
        }
        let sizes = &self.scenario.message_bytes;
        sizes[((u * sizes.len() as f64) as usize).min(sizes.len() - 1)]
    }

    /// Simulates an attempt that is not cancelled. From one call to the next, the start times
    /// (`at`) on a link must not decrease.
    pub fn respond(&mut self, attempt: &SimulatedAttempt) -> SimulatedResponse {
        let congested = self.is_congested(attempt.path / 2, attempt.at);
        let mut rng = self.rng_for(ATTEMPTS, attempt.reduction, attempt.path, attempt.number);
        let mut base = self.base_s(attempt.path) * self.regime(attempt) * self.shift(attempt);
        if let (true, Some(congestion)) = (congested, &self.scenario.congestion) {
            base *= congestion.factor;
        }
        let load = self.load(attempt, congested);
        let scenario = &*self.scenario;
        let sized = 1.0 - scenario.link.size_share
            + scenario.link.size_share * attempt.bytes as f64 / REFERENCE_BYTES;
        let law = self.law(attempt, &mut rng);
        let mut takes_s = base * sized * law * load;
        if let ResponseTimeLaw::Pareto { cap_s, .. } = scenario.link.law {
            takes_s = takes_s.min(cap_s);
        }
        for stall in scenario.stalls() {
            takes_s += stall_total_s(stall, attempt.bytes, &mut rng);
        }
        // An infinite factor times zero gives NaN. No real network has such factors.
        let takes_s = if takes_s.is_nan() { FOREVER_S } else { takes_s.clamp(LEAST_S, FOREVER_S) };
        self.with_loss_and_reset(attempt, SimulatedResponse { takes_s, broken: false, congested })
    }

    /// Applies loss and reset to the response of an attempt.
    fn with_loss_and_reset(
        &self,
        attempt: &SimulatedAttempt,
        response: SimulatedResponse,
    ) -> SimulatedResponse {
        let occurs = |purpose, probability| {
            self.rng_for(purpose, attempt.reduction, attempt.path, attempt.number).bernoulli(probability)
        };
        let broken = |takes_s| SimulatedResponse { takes_s, broken: true, ..response };
        let reset = self.scenario.reset.filter(|reset| occurs(RESETS, reset.probability));
        let lost = self.scenario.loss.filter(|loss| occurs(LOSSES, loss.probability));
        match (lost, reset) {
            (Some(loss), None) => broken(loss.gives_up_s),
            (Some(loss), Some(reset)) => broken(loss.gives_up_s.min(reset.after_s)),
            (None, Some(reset)) if reset.after_s < response.takes_s => broken(reset.after_s),
            (None, _) => response,
        }
    }

    /// Records that an attempt from `began` to `ends` was cancelled, so its copy is still in
    /// flight. Do not call this function for an attempt that breaks. With
    /// [`crate::scenario::Congestion::load_fade_s`], the weight of the copy decays from the time
    /// `began`.
    pub fn cancelled(&mut self, path: usize, began: f64, ends: f64) {
        let Some(congestion) = &self.scenario.congestion else { return };
        if congestion.load_feedback == 0.0 {
            return;
        }
        let path = &mut self.paths[path];
        match congestion.load_fade_s {
            Some(fade) => path.fading = (path.weight(began, fade) + 1.0, began),
            None => path.in_flight.push(ends),
        }
    }

    /// Factor by which cancelled copies multiply the response time.
    fn load(&mut self, attempt: &SimulatedAttempt, congested: bool) -> f64 {
        let Some(congestion) = &self.scenario.congestion else { return 1.0 };
        if congestion.load_feedback == 0.0 || congestion.load_when_bad && !congested {
            return 1.0;
        }
        let path = &mut self.paths[attempt.path];
        if let Some(fade) = congestion.load_fade_s {
            return 1.0 + congestion.load_feedback * path.weight(attempt.at, fade);
        }
        path.in_flight.retain(|ends| attempt.at < *ends);
        // A path with this factor is already unusable. The limit keeps the numbers finite.
        (1.0 + congestion.load_feedback).powi(path.in_flight.len().min(1000) as i32).min(1e9)
    }

    fn law(&self, attempt: &SimulatedAttempt, rng: &mut SeededRng) -> f64 {
        let (normal, u) = (rng.normal(), rng.uniform());
        match &self.scenario.link.law {
            ResponseTimeLaw::Constant {} => 1.0,
            ResponseTimeLaw::Lognormal { sigma, slow_share, slow_factor } => {
                (sigma * normal).exp() * if u < *slow_share { *slow_factor } else { 1.0 }
            }
            ResponseTimeLaw::Pareto { alpha, share, sigma, .. } => {
                let varying = 1.0 - share + share * (1.0 - u).powf(-1.0 / alpha);
                varying * (sigma * normal).exp() / self.median
            }
            ResponseTimeLaw::Trace { values, .. } => {
                let mut offset = SeededRng::new(self.scenario.seed, TRACES + attempt.path as u64);
                let offset = (offset.uniform() * values.len() as f64) as usize;
                values[(offset + attempt.reduction + attempt.number as usize) % values.len()]
            }
        }
    }

    fn regime(&self, attempt: &SimulatedAttempt) -> f64 {
        let Some(regime) = &self.scenario.regime else { return 1.0 };
        let epoch = (attempt.at / regime.every_s) as usize;
        if epoch == 0 {
            return 1.0;
        }
        let u = self.rng_for(REGIMES, epoch, attempt.path / 2, 0).uniform();
        log_uniform(regime.factor.min, regime.factor.max, u)
    }

    fn shift(&self, attempt: &SimulatedAttempt) -> f64 {
        let touches = |shift: &&crate::scenario::BaseShift| {
            (shift.from..shift.until).contains(&attempt.reduction)
                && !(shift.every_other_link && (attempt.path / 2) % 2 == 1)
        };
        self.scenario.shifts.iter().filter(touches).map(|shift| shift.factor).product()
    }

    fn is_congested(&mut self, link: usize, at: f64) -> bool {
        let Some(congestion) = &self.scenario.congestion else { return false };
        if congestion.good_s.is_infinite() {
            return false;
        }
        self.links[link].is_bad(at, congestion)
    }

    /// Returns a generator for one purpose, reduction, path (or link) and attempt.
    fn rng_for(&self, purpose: u64, reduction: usize, path_or_link: usize, number: u32) -> SeededRng {
        let stream = [reduction as u64, path_or_link as u64, u64::from(number)]
            .iter()
            .fold(purpose, |stream, part| (stream ^ part).wrapping_mul(MIX).rotate_left(23) ^ stream);
        SeededRng::new(self.scenario.seed, stream)
    }
}

impl LinkState {
    fn is_bad(&mut self, at: f64, congestion: &Congestion) -> bool {
        let cycle = congestion.good_s + congestion.bad_s;
        if CYCLES_MAX * cycle < at - self.changes.last().copied().unwrap_or(0.0) {
            // After such a long gap, the state is independent of the earlier state. So draw the
            // state from the long-run shares. The remaining time in a state does not depend on the
            // time already spent in this state.
            let is_bad = self.sojourns.bernoulli(congestion.bad_s / cycle);
            self.changes = if is_bad { vec![at] } else { vec![at, at] };
        }
        while self.changes.last().is_none_or(|last| *last <= at) {
            let stay =
                if self.changes.len().is_multiple_of(2) { congestion.good_s } else { congestion.bad_s };
            let last = self.changes.last().copied().unwrap_or(0.0);
            self.changes.push(last + self.sojourns.exponential(stay));
        }
        if self.changes.len() > CHANGES_MAX {
            // Remove an even number of changes, so that the current state stays the same.
            self.changes.drain(..CHANGES_MAX / 2);
        }
        self.changes.partition_point(|change| *change <= at) % 2 == 1
    }
}

impl DirectionState {
    fn weight(&self, at: f64, fade: f64) -> f64 {
        self.fading.0 * (-(at - self.fading.1) / fade).exp()
    }
}

fn base(base: LinkBase, rng: &mut SeededRng) -> f64 {
    match base {
        LinkBase::LogUniform(range) => log_uniform(range.min, range.max, rng.uniform()),
        LinkBase::Uniform(range) => range.min + (range.max - range.min) * rng.uniform(),
        LinkBase::Lognormal { median, sigma } => median * (sigma * rng.normal()).exp(),
        LinkBase::Constant(base) => base,
    }
}

/// Log-uniform interpolation between `min` and `max`.
fn log_uniform(min: f64, max: f64, u: f64) -> f64 {
    min * (max / min).powf(u)
}

fn stall_total_s(stall: &Stall, bytes: u64, rng: &mut SeededRng) -> f64 {
    let (u, duration) = (rng.uniform(), stall_duration_s(stall.duration_s, rng.uniform()));
    let Some(per_bytes) = stall.per_bytes else {
        return if u < stall.probability { duration } else { 0.0 };
    };
    // The gaps between stalls of a Poisson process are exponential. `length` is the size of the
    // message as a multiple of the mean gap.
    let length = stall.probability * bytes as f64 / per_bytes as f64;
    let (mut at, mut total) = (-(1.0 - u).ln(), 0.0);
    let mut next = duration;
    for _ in 0..STALLS_MAX {
        if length <= at {
            break;
        }
        total += next;
        at += rng.exponential(1.0);
        next = stall_duration_s(stall.duration_s, rng.uniform());
    }
    total
}

fn stall_duration_s(duration: StallDuration, u: f64) -> f64 {
    match duration {
        StallDuration::Constant { value } => value,
        StallDuration::Uniform { min, max } => min + (max - min) * u,
        StallDuration::Exponential { mean, max } => (-mean * (1.0 - u).ln()).min(max),
        StallDuration::Pareto { alpha, min, max } => (min * (1.0 - u).powf(-1.0 / alpha)).min(max),
    }
}

/// Maximum gap, in cycles of good and bad state, over which all changes are computed; a longer gap
/// is skipped.
const CYCLES_MAX: f64 = 10_000.0;

/// Maximum number of stored changes of a link. The changes are stored for attempts that overlap.
/// The limit is above the number of changes within [`CYCLES_MAX`] cycles.
const CHANGES_MAX: usize = 1 << 16;

/// Maximum number of stalls in an attempt. More stalls would make no difference to the caller.
const STALLS_MAX: usize = 10_000;

/// Maximum time in seconds from an unbounded power law: 150 years, so that sums stay finite.
const FOREVER_S: f64 = 5e9;

/// Minimum time of an attempt in seconds, because the product of many factors may be zero.
const LEAST_S: f64 = 1e-9;

/// Message size of the paper, in bytes: 16 384 integers of 4 bytes.
const REFERENCE_BYTES: f64 = 65_536.0;

/// Identifiers of random streams, one for each purpose, so that draws for one purpose do not change
/// the draws for another purpose.
const BASES: u64 = 1 << 56;
const DIRECTIONS: u64 = 2 << 56;
const SOJOURNS: u64 = 3 << 56;
const SIZES: u64 = 4 << 56;
const ATTEMPTS: u64 = 5 << 56;
const REGIMES: u64 = 6 << 56;
const TRACES: u64 = 7 << 56;
const LOSSES: u64 = 8 << 56;
const RESETS: u64 = 9 << 56;

/// An odd multiplier with well-mixed bits (from the finaliser of MurmurHash3).
const MIX: u64 = 0xff51_afd7_ed55_8ccd;

#[cfg(test)]
mod tests;
