//! The weather of a scenario's links in virtual time: how long each attempt takes.

use std::borrow::Cow;

use crate::chance::Chance;
use crate::scenario::{Base, Congestion, Duration, Law, Scenario, Stall};

/// The links of a scenario. A link joins two nodes; each of its directions is a path of its own.
///
/// The luck of an attempt hangs on the seed, the reduction, the path and the attempt's number alone, so
/// that all strategies meet the same weather (common random numbers).
#[derive(Debug, Clone)]
pub struct Weather<'a> {
    scenario: Cow<'a, Scenario>,
    links: Vec<Link>,
    paths: Vec<Path>,
    /// The median of the law before it is divided by it.
    median: f64,
}

/// One attempt, before it is made.
#[derive(Debug, Clone, Copy)]
pub struct Try {
    /// The path it takes: twice the link, plus 1 for the way back.
    pub path: usize,
    /// The reduction that it belongs to.
    pub reduction: usize,
    /// 0 for the first attempt.
    pub number: u32,
    /// When it starts, in seconds.
    pub at: f64,
    /// The size of the message.
    pub bytes: u64,
}

/// What the network does to an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Response {
    /// From its start to its acknowledgement, or to where its connection breaks, in seconds.
    pub takes_s: f64,
    /// Whether no acknowledgement comes, and the connection breaks instead: it was lost, or reset.
    pub broken: bool,
    /// Whether the link was congested.
    pub congested: bool,
}

#[derive(Debug, Clone)]
struct Link {
    base: f64,
    /// When the state changes, from good to bad and back.
    changes: Vec<f64>,
    sojourns: Chance,
}

#[derive(Debug, Clone, Default)]
struct Path {
    /// The base's factor of this direction.
    factor: f64,
    /// When the cancelled copies end that are still in flight.
    in_flight: Vec<f64>,
    /// The weight of cancelled copies, and when it was worked out.
    fading: (f64, f64),
}

impl<'a> Weather<'a> {
    /// The weather on `links` links under `scenario`, at time 0.
    #[must_use]
    pub fn new(scenario: &'a Scenario, links: usize) -> Self {
        Self::of(Cow::Borrowed(scenario), links)
    }

    /// The same, for those who outlive where the scenario came from.
    #[must_use]
    pub fn owned(scenario: Scenario, links: usize) -> Weather<'static> {
        Weather::of(Cow::Owned(scenario), links)
    }

    fn of(scenario: Cow<'a, Scenario>, links: usize) -> Self {
        let mut chance = Chance::new(scenario.seed, BASES);
        let link = |index: usize| Link {
            base: base(scenario.link.base_s, &mut chance),
            changes: Vec::new(),
            sojourns: Chance::new(scenario.seed, SOJOURNS + index as u64),
        };
        let links: Vec<Link> = (0..links).map(link).collect();
        let mut chance = Chance::new(scenario.seed, DIRECTIONS);
        let factors = |index: usize| {
            let factor = (scenario.link.direction_sigma * chance.normal()).exp();
            Path { factor: if index.is_multiple_of(2) { 1.0 } else { factor }, ..Path::default() }
        };
        let paths = (0..2 * links.len()).map(factors).collect();
        let median = match scenario.link.law {
            Law::Pareto { alpha, share, .. } => 1.0 - share + share * 2_f64.powf(1.0 / alpha),
            _ => 1.0,
        };
        Self { scenario, links, paths, median }
    }

    /// The base of a path at the start, in seconds.
    #[must_use]
    pub fn base_s(&self, path: usize) -> f64 {
        self.links[path / 2].base * self.paths[path].factor
    }

    /// How long it takes to connect anew.
    #[must_use]
    pub fn reconnect_s(&self, path: usize) -> f64 {
        self.scenario.reconnect_s + self.scenario.reconnect_factor * self.base_s(path)
    }

    /// The size of the message that is sent on `path` in `reduction`.
    #[must_use]
    pub fn bytes(&self, path: usize, reduction: usize) -> u64 {
        let path = if self.scenario.same_size_in_reduction { 0 } else { path };
        let u = self.luck(SIZES, reduction, path, 0).uniform();
        if let Some(range) = self.scenario.message_bytes_range {
            return between(range.min, range.max, u).round() as u64;
        }
        let sizes = &self.scenario.message_bytes;
        sizes[((u * sizes.len() as f64) as usize).min(sizes.len() - 1)]
    }

    /// How long an attempt takes, if nobody cuts it off. Time never goes back on one link.
    pub fn respond(&mut self, attempt: &Try) -> Response {
        let congested = self.is_congested(attempt.path / 2, attempt.at);
        let mut luck = self.luck(ATTEMPTS, attempt.reduction, attempt.path, attempt.number);
        let mut base = self.base_s(attempt.path) * self.regime(attempt) * self.shift(attempt);
        if let (true, Some(congestion)) = (congested, &self.scenario.congestion) {
            base *= congestion.factor;
        }
        let load = self.load(attempt, congested);
        let scenario = &*self.scenario;
        let sized = 1.0 - scenario.link.size_share
            + scenario.link.size_share * attempt.bytes as f64 / REFERENCE_BYTES;
        let law = self.law(attempt, &mut luck);
        let mut takes_s = base * sized * law * load;
        if let Law::Pareto { cap_s, .. } = scenario.link.law {
            takes_s = takes_s.min(cap_s);
        }
        for stall in scenario.stalls() {
            takes_s += stalled(stall, attempt.bytes, &mut luck);
        }
        // Not a number is what endless times nothing makes: factors that no real network has.
        let takes_s = if takes_s.is_nan() { FOREVER_S } else { takes_s.clamp(LEAST_S, FOREVER_S) };
        self.spoilt(attempt, Response { takes_s, broken: false, congested })
    }

    /// The response to an attempt that may be lost, or whose connection may be reset before it comes.
    fn spoilt(&self, attempt: &Try, response: Response) -> Response {
        let happens = |purpose, probability| {
            self.luck(purpose, attempt.reduction, attempt.path, attempt.number).happens(probability)
        };
        let broken = |takes_s| Response { takes_s, broken: true, ..response };
        let reset = self.scenario.reset.filter(|reset| happens(RESETS, reset.probability));
        let lost = self.scenario.loss.filter(|loss| happens(LOSSES, loss.probability));
        match (lost, reset) {
            (Some(loss), None) => broken(loss.gives_up_s),
            (Some(loss), Some(reset)) => broken(loss.gives_up_s.min(reset.after_s)),
            (None, Some(reset)) if reset.after_s < response.takes_s => broken(reset.after_s),
            (None, _) => response,
        }
    }

    /// An attempt that began at `began` and would have ended at `ends` was cancelled: its copy is still in
    /// flight – unless it was to break, then it is not to be reported. With [`crate::scenario::Congestion::load_fade_s`] its weight fades from its beginning on.
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

    /// What the cancelled copies multiply the response time by.
    fn load(&mut self, attempt: &Try, congested: bool) -> f64 {
        let Some(congestion) = &self.scenario.congestion else { return 1.0 };
        if congestion.load_feedback == 0.0 || congestion.load_when_bad && !congested {
            return 1.0;
        }
        let path = &mut self.paths[attempt.path];
        if let Some(fade) = congestion.load_fade_s {
            return 1.0 + congestion.load_feedback * path.weight(attempt.at, fade);
        }
        path.in_flight.retain(|ends| attempt.at < *ends);
        // A collapse beyond this is one already, and the numbers stay finite.
        (1.0 + congestion.load_feedback).powi(path.in_flight.len().min(1000) as i32).min(1e9)
    }

    fn law(&self, attempt: &Try, luck: &mut Chance) -> f64 {
        let (normal, u) = (luck.normal(), luck.uniform());
        match &self.scenario.link.law {
            Law::Constant {} => 1.0,
            Law::Lognormal { sigma, slow_share, slow_factor } => {
                (sigma * normal).exp() * if u < *slow_share { *slow_factor } else { 1.0 }
            }
            Law::Pareto { alpha, share, sigma, .. } => {
                let varying = 1.0 - share + share * (1.0 - u).powf(-1.0 / alpha);
                varying * (sigma * normal).exp() / self.median
            }
            Law::Trace { values, .. } => {
                let mut offset = Chance::new(self.scenario.seed, TRACES + attempt.path as u64);
                let offset = (offset.uniform() * values.len() as f64) as usize;
                values[(offset + attempt.reduction + attempt.number as usize) % values.len()]
            }
        }
    }

    fn regime(&self, attempt: &Try) -> f64 {
        let Some(regime) = &self.scenario.regime else { return 1.0 };
        let epoch = (attempt.at / regime.every_s) as usize;
        if epoch == 0 {
            return 1.0;
        }
        let u = self.luck(REGIMES, epoch, attempt.path / 2, 0).uniform();
        between(regime.factor.min, regime.factor.max, u)
    }

    fn shift(&self, attempt: &Try) -> f64 {
        let touches = |shift: &&crate::scenario::Shift| {
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

    /// A source of its own for each purpose, reduction, place and attempt.
    fn luck(&self, purpose: u64, reduction: usize, place: usize, number: u32) -> Chance {
        let stream = [reduction as u64, place as u64, u64::from(number)]
            .iter()
            .fold(purpose, |stream, part| (stream ^ part).wrapping_mul(MIX).rotate_left(23) ^ stream);
        Chance::new(self.scenario.seed, stream)
    }
}

impl Link {
    /// Whether it is in the bad state at `at`.
    fn is_bad(&mut self, at: f64, congestion: &Congestion) -> bool {
        let cycle = congestion.good_s + congestion.bad_s;
        if CYCLES_MAX * cycle < at - self.changes.last().copied().unwrap_or(0.0) {
            // What was so long ago tells nothing of the state now, which has no memory either.
            let is_bad = self.sojourns.happens(congestion.bad_s / cycle);
            self.changes = if is_bad { vec![at] } else { vec![at, at] };
        }
        while self.changes.last().is_none_or(|last| *last <= at) {
            let stay =
                if self.changes.len().is_multiple_of(2) { congestion.good_s } else { congestion.bad_s };
            let last = self.changes.last().copied().unwrap_or(0.0);
            self.changes.push(last + self.sojourns.exponential(stay));
        }
        if CHANGES_MAX < self.changes.len() {
            // An even number, so that the state stays what it is.
            self.changes.drain(..CHANGES_MAX / 2);
        }
        self.changes.partition_point(|change| *change <= at) % 2 == 1
    }
}

impl Path {
    fn weight(&self, at: f64, fade: f64) -> f64 {
        self.fading.0 * (-(at - self.fading.1) / fade).exp()
    }
}

fn base(base: Base, chance: &mut Chance) -> f64 {
    match base {
        Base::Uniform(range) => between(range.min, range.max, chance.uniform()),
        Base::Flat { uniform } => uniform.min + (uniform.max - uniform.min) * chance.uniform(),
        Base::Lognormal { median, sigma } => median * (sigma * chance.normal()).exp(),
        Base::Constant(base) => base,
    }
}

/// Log-uniform.
fn between(min: f64, max: f64, u: f64) -> f64 {
    min * (max / min).powf(u)
}

/// For how long an attempt stalls in all.
fn stalled(stall: &Stall, bytes: u64, luck: &mut Chance) -> f64 {
    let (u, duration) = (luck.uniform(), draw(stall.duration_s, luck.uniform()));
    let Some(per_bytes) = stall.per_bytes else {
        return if u < stall.probability { duration } else { 0.0 };
    };
    // The gaps between the stalls of a Poisson process are exponential; in units of the mean gap, the
    // message is so long.
    let length = stall.probability * bytes as f64 / per_bytes as f64;
    let (mut at, mut total) = (-(1.0 - u).ln(), 0.0);
    let mut next = duration;
    for _ in 0..STALLS_MAX {
        if length <= at {
            break;
        }
        total += next;
        at += luck.exponential(1.0);
        next = draw(stall.duration_s, luck.uniform());
    }
    total
}

fn draw(duration: Duration, u: f64) -> f64 {
    match duration {
        Duration::Constant { value } => value,
        Duration::Uniform { min, max } => min + (max - min) * u,
        Duration::Exponential { mean, max } => (-mean * (1.0 - u).ln()).min(max),
        Duration::Pareto { alpha, min, max } => (min * (1.0 - u).powf(-1.0 / alpha)).min(max),
    }
}

/// States are worked out one after the other over so many changes to and fro, and skipped over more.
const CYCLES_MAX: f64 = 10_000.0;

/// So many changes of a link are remembered, for attempts that overlap; more than [`CYCLES_MAX`] brings.
const CHANGES_MAX: usize = 1 << 16;

/// More stalls than this in one attempt make no difference to anyone who waits for it.
const STALLS_MAX: usize = 10_000;

/// What a power law without end may reach; a century and a half, and sums of it stay finite.
const FOREVER_S: f64 = 5e9;

/// Many factors together may come to nothing, which no attempt takes: a nanosecond.
const LEAST_S: f64 = 1e-9;

/// The size of the paper's messages: 16 k integers.
const REFERENCE_BYTES: f64 = 65_536.0;

/// Purposes, each with random numbers of its own.
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
