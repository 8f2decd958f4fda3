//! The forecast: how long an answer to so many bytes takes, on a logarithmic scale.

use alloc::boxed::Box;
use barograph_forecast::{Battery, Loss};

/// A latency and a cost per byte: log2 x = level + log2(latency + `per_byte` · bytes), x in seconds.
///
/// With messages of one size this is an exponentially weighted mean of log2 x. With many it is an extended
/// Kalman filter (Kalman 1960) of two states, log2 of the latency and log2 of the cost per byte. How much
/// each has to do with an answer is its share of the time, between 0 and 1, so the filter is well-behaved
/// wherever it stands. Both drift together, as they do when a path or a host is slow.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// What both states have in common, log2.
    level: f64,
    /// The states without it, log2: of the latency, and of the cost per byte.
    parts: [f64; 2],
    /// 2 to the power of them.
    powers: [f64; 2],
    /// A size, log2 of its latency and bytes together, and the bytes' share: most links know one size only.
    usual: (u64, f64, f64),
    /// Covariance of the states in units of an answer's variance: of the latency, of both, of the cost.
    covariance: [f64; 3],
    /// Which way the last surprise went that had to be cut down, if the last one had.
    surprised: i8,
    /// What the level is worth: nothing, a forecast from elsewhere, answers.
    pub(super) ground: Ground,
    /// Forecasts the level instead of the mean above.
    battery: Option<Box<Battery>>,
}

/// What a level rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    Nothing,
    Told,
    Answers,
}

impl Level {
    pub(super) fn new() -> Self {
        let mut new = Self {
            level: 0.0,
            parts: [0.0, -REFERENCE_OCTAVES],
            powers: [0.0; 2],
            usual: (0, 0.0, 0.0),
            covariance: [0.0; 3],
            surprised: 0,
            ground: Ground::Nothing,
            battery: None,
        };
        new.place(0);
        new
    }

    /// All that a level is but its battery, in the order of [`Level::load`].
    pub(super) fn save(&self) -> [f64; 6] {
        let [latency, cost] = self.parts;
        let [a, b, c] = self.covariance;
        // Of a battery its forecast is saved, not its memory.
        [self.base(), latency, cost, a, b, c]
    }

    /// What [`Level::save`] saved, of a level with answers.
    pub(super) fn load([level, latency, cost, a, b, c]: [f64; 6], bytes: u64) -> Self {
        let mut new = Self { level, parts: [latency, cost], covariance: [a, b, c], ..Self::new() };
        new.ground = Ground::Answers;
        new.place(bytes);
        new
    }

    /// Forecasts with `battery` from now on.
    pub(super) fn use_battery(&mut self, battery: Battery) {
        self.battery = Some(Box::new(battery));
        if self.ground != Ground::Nothing {
            self.teach_battery(self.level);
        }
    }

    /// Somebody else's forecast, log2 of seconds, until there are answers.
    pub(super) fn tell(&mut self, forecast: f64) {
        if self.ground != Ground::Answers {
            self.level = forecast;
            self.ground = Ground::Told;
        }
    }

    /// log2 of the expected seconds.
    pub(super) fn forecast(&self, bytes: u64) -> f64 {
        // What was told was told of no size.
        let sized = if self.ground == Ground::Told { 0.0 } else { self.sized(bytes).0 };
        self.base() + sized
    }

    /// Learns that `bytes` took 2^`y` seconds, where 2^`forecast` were expected.
    pub(super) fn learn(&mut self, bytes: u64, y: f64, forecast: f64) {
        if self.ground == Ground::Answers {
            self.follow(bytes, y - forecast);
        } else {
            self.begin(bytes, y);
        }
        if self.battery.is_some() {
            self.teach_battery(y - self.sized(bytes).0);
        }
    }

    /// The size of the last answer.
    pub(super) fn usual_bytes(&self) -> u64 {
        self.usual.0
    }

    fn begin(&mut self, bytes: u64, y: f64) {
        let told = (self.ground == Ground::Told).then_some(self.level);
        self.place(bytes);
        let (_, sized, share) = self.usual;
        self.level = told.map_or(y, |told| 0.5 * (told + y)) - sized;
        // The sum is known from here on; how it splits is not, and what the one gains the other loses.
        let (latency, cost) = (-share, 1.0 - share);
        self.covariance = [
            LEVEL_VARIANCE + SPLIT_VARIANCE * latency * latency,
            LEVEL_VARIANCE + SPLIT_VARIANCE * latency * cost,
            LEVEL_VARIANCE + SPLIT_VARIANCE * cost * cost,
        ];
        self.ground = Ground::Answers;
    }

    fn follow(&mut self, bytes: u64, surprise: f64) {
        if bytes != self.usual.0 {
            self.place(bytes);
        }
        let share = self.usual.2;
        let of = |[a, b, c]: [f64; 3]| (a * (1.0 - share) + b * share, b * (1.0 - share) + c * share);
        let variance = |(latency, cost): (f64, f64)| latency * (1.0 - share) + cost * share;
        let [a, b, c] = self.covariance;
        // A surprise counts as it compares with what was to be expected.
        let expected = 1.0 + variance(of(self.covariance));
        let most = SURPRISE_MAX * libm::sqrt(expected);
        let side = if surprise.abs() < most { 0 } else { surprise.signum() as i8 };
        let surprise = surprise.clamp(-most, most);
        // Cut down twice in a row the same way, where the forecast was sure, is no accident: the level moved.
        let jumped = side != 0 && side == self.surprised && expected < SURE;
        self.surprised = side;
        let drift = LEVEL_DRIFT + if jumped { LEVEL_JUMP } else { 0.0 };
        let [a, b, c] = [a + drift + SPLIT_DRIFT, b + drift, c + drift + SPLIT_DRIFT];
        let (of_latency, of_cost) = of([a, b, c]);
        let innovation = 1.0 + variance((of_latency, of_cost));
        let (gain_latency, gain_cost) = (of_latency / innovation, of_cost / innovation);
        self.covariance = [
            (a - gain_latency * of_latency).min(VARIANCE_MAX),
            b - gain_latency * of_cost,
            (c - gain_cost * of_cost).min(VARIANCE_MAX),
        ];
        let both = ((1.0 - share) * gain_latency + share * gain_cost) * surprise;
        self.level += both;
        let split = [gain_latency * surprise - both, gain_cost * surprise - both];
        // One size, again and again, moves the level alone.
        if SPLIT_LEAST < split[0].abs().max(split[1].abs()) {
            for (part, split) in self.parts.iter_mut().zip(split) {
                *part = (*part + split).clamp(-PART_MAX, PART_MAX);
            }
            self.place(bytes);
        }
    }

    /// Works out what depends on the parts and the size.
    fn place(&mut self, bytes: u64) {
        self.powers = self.parts.map(libm::exp2);
        let (sized, share) = self.size(bytes);
        self.usual = (bytes, sized, share);
    }

    /// What the size adds to the level in octaves, and the bytes' share of the time.
    fn sized(&self, bytes: u64) -> (f64, f64) {
        if bytes == self.usual.0 { (self.usual.1, self.usual.2) } else { self.size(bytes) }
    }

    fn size(&self, bytes: u64) -> (f64, f64) {
        let [latency, cost] = [self.powers[0], self.powers[1] * bytes as f64];
        (libm::log2(latency + cost), cost / (latency + cost))
    }

    fn base(&self) -> f64 {
        let battery = self.battery.as_ref().and_then(|battery| battery.forecast(Loss::Absolute));
        battery.map_or(self.level, |forecast| forecast.value)
    }

    fn teach_battery(&mut self, level: f64) {
        if let Some(battery) = &mut self.battery {
            battery.update(level).expect("the logarithm of a positive finite number is within 1100");
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.battery.as_ref().map_or(0, |battery| battery.size_bytes())
    }
}

/// One answer moves the level as if it were an octave off at most, or as much more as the forecast was unsure
/// (a robust filter clips its innovations, Huber 1964): a stall is no news about the rest.
const SURPRISE_MAX: f64 = 1.0;

/// The variance of a surprise, in units of an answer's (1), below which a forecast is sure of itself: half of
/// it again is its own.
const SURE: f64 = 1.5;

/// What the level may drift from answer to answer: leads to a gain of 0.1, the middle of those of NWS.
const LEVEL_DRIFT: f64 = 0.011;

/// What two cut-down surprises in a row add: leads to a gain of about 0.3.
const LEVEL_JUMP: f64 = 0.3;

/// After one answer the level is known as well as half another would tell.
const LEVEL_VARIANCE: f64 = 0.5;

/// Before other sizes were seen, 64 kB (the paper's message) take as long as the latency, or by three octaves
/// more or less.
const REFERENCE_OCTAVES: f64 = 16.0;
const SPLIT_VARIANCE: f64 = 9.0;

/// How latency and cost compare is a property of the path and hardly drifts.
const SPLIT_DRIFT: f64 = 1e-4;

/// A change of the parts too small to see: 0.01 % of an octave.
const SPLIT_LEAST: f64 = 1e-4;

/// What cannot be observed is not worth knowing worse than this.
const VARIANCE_MAX: f64 = 2.0 * SPLIT_VARIANCE;

/// Octaves within which a part stays of the other: a byte costs 2^-64 to 2^64 of any latency there is.
pub(super) const PART_MAX: f64 = 64.0;
