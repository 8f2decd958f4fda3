//! The forecast: how long an answer to so many bytes takes, on a logarithmic scale.

use alloc::boxed::Box;
use barograph_forecast::{Battery, Loss};

/// A latency and a cost per byte: log2 x = level + log2(1 + 2^slope · bytes), x in seconds.
///
/// With messages of one size this is an exponentially weighted mean of log2 x. With many it is a Kalman
/// filter of two states (Kalman 1960), linearised where it stands: the second regressor, the share of the
/// time that goes into bytes, lies between 0 and 1, so it is well-behaved wherever the slope is.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// log2 of the seconds that a message of no bytes takes.
    pub(super) level: f64,
    /// log2 of the share of that time that each byte adds.
    pub(super) slope: f64,
    /// 2^slope.
    per_byte: f64,
    /// A size, and what its bytes add in octaves: most links know one size only.
    usual: (u64, f64),
    /// Covariance of the two, in units of the observation's variance: of the level, of both, of the slope.
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
    pub(super) fn new(battery: Option<Battery>) -> Self {
        Self {
            level: 0.0,
            slope: 0.0,
            per_byte: 0.0,
            usual: (0, 0.0),
            covariance: UNSURE,
            surprised: 0,
            ground: Ground::Nothing,
            battery: battery.map(Box::new),
        }
    }

    /// Where a saved level was.
    pub(super) fn at(level: f64, slope: f64, battery: Option<Battery>) -> Self {
        let per_byte = libm::exp2(slope);
        let mut new = Self { level, slope, per_byte, ground: Ground::Answers, ..Self::new(battery) };
        new.teach_battery(level);
        new
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
        let battery = self.battery.as_ref().and_then(|battery| battery.forecast(Loss::Absolute));
        battery.map_or(self.level, |forecast| forecast.value) + self.sized(bytes)
    }

    /// Learns that `bytes` took 2^`y` seconds, where 2^`forecast` were expected.
    pub(super) fn learn(&mut self, bytes: u64, y: f64, forecast: f64) {
        if self.ground != Ground::Answers {
            self.begin(bytes, y);
        } else {
            self.follow(bytes, (y - forecast).clamp(-SURPRISE_MAX, SURPRISE_MAX));
        }
        if self.battery.is_some() {
            self.teach_battery(y - self.sized(bytes));
        }
    }

    fn begin(&mut self, bytes: u64, y: f64) {
        // Half of the time is put down to the bytes until other sizes tell.
        self.slope = -libm::log2(bytes.max(1) as f64);
        self.per_byte = libm::exp2(self.slope);
        self.usual = (bytes, self.octaves_of(bytes));
        let told = (self.ground == Ground::Told).then_some(self.level);
        self.level = told.map_or(y, |told| 0.5 * (told + y)) - self.sized(bytes);
        self.covariance = [0.5, 0.0, SLOPE_VARIANCE];
        self.ground = Ground::Answers;
    }

    fn follow(&mut self, bytes: u64, surprise: f64) {
        let [mut level, mut both, mut slope] = self.covariance;
        level += LEVEL_DRIFT;
        let side = if surprise.abs() < SURPRISE_MAX { 0 } else { surprise.signum() as i8 };
        if side != 0 && side == self.surprised {
            // Twice in a row is no accident: the level has moved.
            level += LEVEL_JUMP;
        }
        self.surprised = side;
        if bytes == self.usual.0 {
            // The same size again tells the level alone.
            let gain = level / (1.0 + level);
            self.level += gain * surprise;
            self.covariance = [level - gain * level, both * (1.0 - gain), slope];
            return;
        }
        slope += SLOPE_DRIFT;
        let added = self.per_byte * bytes as f64;
        let share = added / (1.0 + added);
        let (of_level, of_slope) = (level + both * share, both + slope * share);
        let innovation = 1.0 + of_level + of_slope * share;
        let (gain_level, gain_slope) = (of_level / innovation, of_slope / innovation);
        self.level += gain_level * surprise;
        level -= gain_level * of_level;
        both -= gain_level * of_slope;
        slope -= gain_slope * of_slope;
        self.covariance = [level, both, slope.min(SLOPE_VARIANCE)];
        self.slope = (self.slope + gain_slope * surprise).clamp(-SLOPE_MAX, SLOPE_MAX);
        self.per_byte = libm::exp2(self.slope);
        self.usual = (bytes, self.octaves_of(bytes));
    }

    /// What the bytes add, in octaves.
    fn sized(&self, bytes: u64) -> f64 {
        if bytes == self.usual.0 { self.usual.1 } else { self.octaves_of(bytes) }
    }

    fn octaves_of(&self, bytes: u64) -> f64 {
        libm::log2(1.0 + self.per_byte * bytes as f64)
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

/// One answer moves the level as if it were an octave off at most: a stall is no news about the rest.
const SURPRISE_MAX: f64 = 1.0;

/// What the level may drift from answer to answer: leads to a gain of 0.1, the middle of those of NWS.
const LEVEL_DRIFT: f64 = 0.011;

/// What two cut-down surprises in a row add: leads to a gain of about 0.3.
const LEVEL_JUMP: f64 = 0.3;

/// The cost of a byte is a property of the path and hardly drifts.
const SLOPE_DRIFT: f64 = 1e-4;

/// Three octaves either way are possible before other sizes were seen.
const SLOPE_VARIANCE: f64 = 9.0;

/// Between 2^-64 and 2^64 of the latency a byte is every path there is.
pub(super) const SLOPE_MAX: f64 = 64.0;

const UNSURE: [f64; 3] = [SLOPE_VARIANCE; 3];
