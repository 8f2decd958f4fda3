//! Forecast of the response time from the size of a message, on a logarithmic scale.

use alloc::boxed::Box;
use barograph_forecast::{Battery, Objective};

/// Latency and cost per byte: log2 x = level + log2(latency + `per_byte` · bytes), with x in
/// seconds.
///
/// For messages of one size, the model is an exponentially weighted mean of log2 x. For several
/// sizes, the model is an extended Kalman filter (Kalman 1960) with two states: log2 of the latency
/// and log2 of the cost per byte. The derivative of log2 x by a state is that state's share of the
/// time, between 0 and 1, so the filter is stable everywhere. Both states drift together, as they
/// do when a path or a host is slow.
#[derive(Clone, Debug)]
pub(super) struct ResponseTimeModel {
    /// Common part of both states, log2.
    level: f64,
    /// Latency and cost per byte, each as log2 relative to `level`.
    offsets: [f64; 2],
    /// 2 to the power of `offsets`.
    powers: [f64; 2],
    /// Cache for the last size, because most links have messages of one size: the size, log2 of the
    /// sum of its latency and its cost, and the share of the cost in this sum.
    usual: (u64, f64, f64),
    /// Covariance of the states, in units of the variance of a response: variance of the latency,
    /// covariance of both states, variance of the cost.
    covariance: [f64; 3],
    /// Sign of the last forecast error if the error was clipped; 0 if it was not clipped.
    clipped_sign: i8,
    /// Source of the level.
    pub(super) source: ForecastSource,
    /// Battery that forecasts the level; `None` if the exponentially weighted mean forecasts the
    /// level.
    battery: Option<Box<Battery>>,
}

/// Source of the `level` of a response-time model: none yet, a forecast made elsewhere, or
/// responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForecastSource {
    None,
    Preset,
    Responses,
}

impl ResponseTimeModel {
    pub(super) fn new() -> Self {
        let mut new = Self {
            level: 0.0,
            offsets: [0.0, -REFERENCE_OCTAVES],
            powers: [0.0; 2],
            usual: (0, 0.0, 0.0),
            covariance: [0.0; 3],
            clipped_sign: 0,
            source: ForecastSource::None,
            battery: None,
        };
        new.update_cache(0);
        new
    }

    /// State without the battery, in the order of [`ResponseTimeModel::load`].
    pub(super) fn save(&self) -> [f64; 6] {
        let [latency, cost] = self.offsets;
        let [a, b, c] = self.covariance;
        // If there is a battery, only the forecast of the battery is saved. The state of the
        // battery is not saved.
        [self.base(), latency, cost, a, b, c]
    }

    /// Restores the state that [`ResponseTimeModel::save`] returned. The level counts as learned
    /// from responses.
    pub(super) fn load([level, latency, cost, a, b, c]: [f64; 6], bytes: u64) -> Self {
        let mut new = Self { level, offsets: [latency, cost], covariance: [a, b, c], ..Self::new() };
        new.source = ForecastSource::Responses;
        new.update_cache(bytes);
        new
    }

    /// Forecasts with `battery` from now on.
    pub(super) fn use_battery(&mut self, battery: Battery) {
        self.battery = Some(Box::new(battery));
        if self.source != ForecastSource::None {
            self.teach_battery(self.level);
        }
    }

    /// Sets a forecast made elsewhere, log2 of seconds. This forecast is used until there are
    /// responses.
    pub(super) fn preset(&mut self, forecast: f64) {
        if self.source != ForecastSource::Responses {
            self.level = forecast;
            self.source = ForecastSource::Preset;
        }
    }

    /// log2 of the expected response time in seconds.
    pub(super) fn forecast(&self, bytes: u64) -> f64 {
        // A forecast made elsewhere does not depend on a size.
        let sized = if self.source == ForecastSource::Preset { 0.0 } else { self.sized(bytes).0 };
        self.base() + sized
    }

    /// Learns that a message of `bytes` took 2^`y` seconds, while 2^`forecast` seconds were
    /// expected.
    pub(super) fn learn(&mut self, bytes: u64, y: f64, forecast: f64) {
        if self.source == ForecastSource::Responses {
            self.follow(bytes, y - forecast);
        } else {
            self.begin(bytes, y);
        }
        if self.battery.is_some() {
            self.teach_battery(y - self.sized(bytes).0);
        }
    }

    /// Size of the last message, in bytes.
    pub(super) fn usual_bytes(&self) -> u64 {
        self.usual.0
    }

    fn begin(&mut self, bytes: u64, y: f64) {
        let preset = (self.source == ForecastSource::Preset).then_some(self.level);
        self.update_cache(bytes);
        let (_, sized, share) = self.usual;
        self.level = preset.map_or(y, |preset| 0.5 * (preset + y)) - sized;
        // The sum of latency and cost is known now, but not the share of each part. So the errors
        // of latency and cost are negatively correlated.
        let (latency, cost) = (-share, 1.0 - share);
        self.covariance = [
            LEVEL_VARIANCE + SPLIT_VARIANCE * latency * latency,
            LEVEL_VARIANCE + SPLIT_VARIANCE * latency * cost,
            LEVEL_VARIANCE + SPLIT_VARIANCE * cost * cost,
        ];
        self.source = ForecastSource::Responses;
    }

    fn follow(&mut self, bytes: u64, innovation: f64) {
        if bytes != self.usual.0 {
            self.update_cache(bytes);
        }
        let share = self.usual.2;
        let of = |[a, b, c]: [f64; 3]| (a * (1.0 - share) + b * share, b * (1.0 - share) + c * share);
        let variance = |(latency, cost): (f64, f64)| latency * (1.0 - share) + cost * share;
        let [a, b, c] = self.covariance;
        // The limit of an innovation grows with the uncertainty of the forecast.
        let expected = 1.0 + variance(of(self.covariance));
        let most = SURPRISE_MAX * libm::sqrt(expected);
        let side = if innovation.abs() < most { 0 } else { innovation.signum() as i8 };
        let innovation = innovation.clamp(-most, most);
        // If two consecutive innovations were clipped on the same side although the forecast was
        // certain, the level has changed.
        let jumped = side != 0 && side == self.clipped_sign && expected < SURE;
        self.clipped_sign = side;
        let drift = LEVEL_DRIFT + if jumped { LEVEL_JUMP } else { 0.0 };
        let [a, b, c] = [a + drift + SPLIT_DRIFT, b + drift, c + drift + SPLIT_DRIFT];
        let (of_latency, of_cost) = of([a, b, c]);
        let innovation_variance = 1.0 + variance((of_latency, of_cost));
        let (gain_latency, gain_cost) = (of_latency / innovation_variance, of_cost / innovation_variance);
        self.covariance = [
            (a - gain_latency * of_latency).min(VARIANCE_MAX),
            b - gain_latency * of_cost,
            (c - gain_cost * of_cost).min(VARIANCE_MAX),
        ];
        let both = ((1.0 - share) * gain_latency + share * gain_cost) * innovation;
        self.level += both;
        let split = [gain_latency * innovation - both, gain_cost * innovation - both];
        // Messages of one size change only the level.
        if split[0].abs().max(split[1].abs()) > SPLIT_LEAST {
            for (offset, split) in self.offsets.iter_mut().zip(split) {
                *offset = (*offset + split).clamp(-OFFSET_MAX, OFFSET_MAX);
            }
            self.update_cache(bytes);
        }
    }

    /// Computes the values that depend on the offsets and the size.
    fn update_cache(&mut self, bytes: u64) {
        self.powers = self.offsets.map(libm::exp2);
        let (sized, share) = self.size(bytes);
        self.usual = (bytes, sized, share);
    }

    /// Returns the octaves that the size adds to the level, and the share of the cost of its bytes
    /// in the time.
    fn sized(&self, bytes: u64) -> (f64, f64) {
        if bytes == self.usual.0 { (self.usual.1, self.usual.2) } else { self.size(bytes) }
    }

    fn size(&self, bytes: u64) -> (f64, f64) {
        let [latency, cost] = [self.powers[0], self.powers[1] * bytes as f64];
        (libm::log2(latency + cost), cost / (latency + cost))
    }

    fn base(&self) -> f64 {
        let battery = self.battery.as_ref().and_then(|battery| battery.forecast(Objective::Absolute));
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

/// Limit of an innovation, in octaves. One response moves the level as if the response differed
/// from the forecast by at most one octave. The limit is larger if the forecast is uncertain (a
/// robust filter clips its innovations, Huber 1964). A single stall is little evidence about other
/// messages.
const SURPRISE_MAX: f64 = 1.0;

/// A forecast counts as certain if the variance of its innovation is below this number. The unit is
/// the variance of a response. The variance of an innovation is the sum of 1 for the response and
/// the variance of the forecast. So the variance of a certain forecast is below 0.5.
const SURE: f64 = 1.5;

/// Variance by which the level drifts from response to response. This variance leads to a gain of
/// 0.1, the middle of the gains of NWS.
const LEVEL_DRIFT: f64 = 0.011;

/// Variance added to the level after two consecutive innovations that were clipped on the same
/// side. This variance leads to a gain of about 0.3.
const LEVEL_JUMP: f64 = 0.3;

/// Variance of the level after one response.
const LEVEL_VARIANCE: f64 = 0.5;

/// Assumption before messages of other sizes were seen: 64 kB (the paper's message) take as much
/// time as the latency. The standard deviation of this ratio is three octaves.
const REFERENCE_OCTAVES: f64 = 16.0;
const SPLIT_VARIANCE: f64 = 9.0;

/// Variance by which the ratio of latency and cost drifts from response to response. The ratio is a
/// property of the path and hardly drifts.
const SPLIT_DRIFT: f64 = 1e-4;

/// Smallest change of the offsets that matters, in octaves.
const SPLIT_LEAST: f64 = 1e-4;

/// Upper limit of a variance. Without the limit, the variance of a state that is not observed would
/// grow for ever.
const VARIANCE_MAX: f64 = 2.0 * SPLIT_VARIANCE;

/// Limit of each offset from the level, in octaves. No real latency or cost per byte comes near
/// this limit.
pub(super) const OFFSET_MAX: f64 = 64.0;
