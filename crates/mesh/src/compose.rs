//! Estimates for pairs that are not measured. An estimate is composed of measured paths by way of
//! the representatives of the two hosts' sites.

mod loss;
mod robust;

use robust::RobustWeights;

/// A forecast with the interval that contains the next measurement with a probability of 90 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathEstimate {
    /// Value expected next, in the unit of the quantity.
    pub value: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
}

/// A measured path: its forecast, newest measurement and number of measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LegForecast {
    /// Forecast of the next measurement.
    pub forecast: PathEstimate,
    /// Newest measurement, in the same unit.
    pub last: f64,
    /// Number of measurements behind the forecast; for losses, the number of probes.
    pub count: u64,
}

/// A pair that is measured and can also be composed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairObservation<'a, H> {
    /// The two hosts of the pair.
    pub ends: [H; 2],
    /// The measured paths that the pair is composed of.
    pub legs: &'a [LegForecast],
    /// The measured path between the two hosts.
    pub measured: LegForecast,
}

/// The quantity to compose, with the rule for its legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComposedQuantity {
    /// Round-trip time: the sum of the legs' round-trip times.
    Rtt,
    /// Rate: near the lowest rate of the legs, as a soft minimum, (Σ rate^−2)^(−1/2). The host
    /// where the legs meet may have the slowest link, although the path itself need not pass this
    /// host. With a soft minimum, the other legs still show which candidate is better.
    Goodput,
    /// Loss: 1 − Π (1 − share) over the legs, so the values −ln (1 − share) of the legs are added.
    /// The interval holds the loss of the next probe, which has
    /// [`LOSS_DATAGRAMS`](Self::LOSS_DATAGRAMS) datagrams.
    Loss,
}

/// Error of composed estimates, learned from pairs that are measured and can also be composed:
/// hosts of different sites that were tested on demand, and for rates also two hosts of one site,
/// by way of its representative.
///
/// Round-trip times and losses learn only from paths of three legs or more, which lead across
/// sites. Within a site, a route by way of the representative crosses the representative's access
/// link twice. The sum of such a route is about twice the direct round-trip time. Such a sum gives
/// no information about paths across sites.
///
/// A composed value has two errors. A representative may be slower than the host that it
/// represents. And the path between two hosts need not pass the representative, so a sum may be too
/// long. Both errors are factors that are similar for many pairs. The mean of the logarithms of
/// these factors corrects an estimate. The scatter of the logarithms widens the interval of the
/// estimate. Mean and scatter are learned from the newest measurement of each pair, so the scatter
/// includes the noise of that measurement. One host that lies must not spoil the estimates of
/// others: all hosts have equal weight, and errors far from the others are left out.
///
/// Losses have no logarithm, because most are 0. Where the measured pairs lose less than their
/// composed values, −ln (1 − share) is corrected by the ratio of the sums. Where the measured pairs
/// lose more, the difference is added. The scatter is relative to the estimate. If the mean of all
/// estimates is larger, the scatter is relative to this mean. The scatter is learned from forecasts
/// of the mean loss, after subtraction of the variance that the small number of datagrams explains.
///
/// Each further representative can slow a rate. So paths of up to two legs and longer paths have
/// separate means. Each mean is shifted towards the mean of all pairs. A mean that is learned from
/// fewer pairs is shifted more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompositionModel {
    quantity: ComposedQuantity,
    /// Mean of ln (measured / composed): for paths of up to two legs, and for paths of more legs.
    shift: [f64; 2],
    /// Variance of ln (measured / composed), after subtraction of the variance that the errors of
    /// the legs explain. For losses, the variance is relative.
    variance: f64,
    /// For losses: `added` is added to −ln (1 − share); `least` is the smallest −ln (1 − share)
    /// that the scatter is relative to.
    added: f64,
    least: f64,
    /// Half of an interval, in standard deviations.
    width: f64,
    pairs: usize,
}

impl PathEstimate {
    /// Whether the interval is finite and above 0, and the forecast lies in the interval.
    pub fn is_positive(&self) -> bool {
        self.upper.is_finite() && 0.0 < self.lower && self.lower <= self.value && self.value <= self.upper
    }

    /// Whether a value lies in the interval.
    pub fn contains(&self, value: f64) -> bool {
        (self.lower..=self.upper).contains(&value)
    }

    /// Variance of the logarithm, from the interval of a normal distribution.
    fn variance(&self) -> f64 {
        ((self.upper / self.lower).ln() / (2.0 * NORMAL_95)).powi(2)
    }
}

impl LegForecast {
    /// A path with the mean loss `mean`, after `count` probes. `interval` is the forecaster's
    /// interval for the next probe. A forecaster that has seen no loss has no error, so the result
    /// is at least the interval that follows from the number of datagrams. `None` if the shares are
    /// invalid.
    pub fn from_loss(mean: f64, interval: Option<(f64, f64)>, last: f64, count: u64) -> Option<Self> {
        let forecast = loss::forecast(mean, interval, count);
        ComposedQuantity::Loss.is_valid(&forecast).then_some(Self { forecast, last, count })
    }
}

impl CompositionModel {
    /// Learns from measured pairs.
    ///
    /// Ignores invalid pairs, round-trip times and losses of fewer than three legs, and errors so
    /// far from the others that they are not believed. If fewer than [`PAIRS_MIN`](Self::PAIRS_MIN)
    /// pairs remain, or if one host has nearly half of the weight, the result is
    /// [`prior`](Self::prior). All hosts have equal weight, whatever the number of their pairs.
    pub fn fit<'a, H: Ord + Copy>(
        quantity: ComposedQuantity,
        observations: impl IntoIterator<Item = PairObservation<'a, H>>,
    ) -> Self {
        let observations =
            observations.into_iter().filter(|observation| quantity.is_informative(observation.legs));
        let fitted = match quantity {
            ComposedQuantity::Rtt | ComposedQuantity::Goodput => Self::of_factors(quantity, observations),
            ComposedQuantity::Loss => loss::fit(observations),
        };
        fitted.unwrap_or(Self::prior(quantity))
    }

    fn of_factors<'a, H: Ord + Copy>(
        quantity: ComposedQuantity,
        observations: impl Iterator<Item = PairObservation<'a, H>>,
    ) -> Option<Self> {
        let (ends, all): (Vec<[H; 2]>, Vec<Factor>) = observations
            .filter(|observation| observation.measured.last.is_finite() && observation.measured.last > 0.0)
            .filter_map(|PairObservation { ends, legs, measured }| {
                let (value, variance) = quantity.compose(legs)?;
                Some((ends, (class(legs), (measured.last / value).ln(), variance)))
            })
            .unzip();
        let values: Vec<(usize, f64)> = all.iter().map(|(class, error, _)| (*class, *error)).collect();
        let robust = RobustWeights::of(&ends, &values, quantity)?;
        let errors = || robust.weighted(&all);
        let (n, weights) = (robust.count as f64, errors().map(|(_, weight)| weight).sum::<f64>());
        let mean = errors().map(|((_, error, _), weight)| weight * error).sum::<f64>() / weights;
        let shift = [0, 1].map(|class| {
            let of_class = || errors().filter(|((of, ..), _)| *of == class);
            let sum: f64 = of_class().map(|((_, error, _), weight)| weight * error).sum();
            (sum + POOLED * mean) / (of_class().map(|(_, weight)| weight).sum::<f64>() + POOLED)
        });
        let squares: f64 =
            errors().map(|((of, error, _), weight)| weight * (error - shift[*of]).powi(2)).sum();
        let scatter = squares / weights * n / (n - 1.0);
        // Use the median, because a host can report legs with any uncertainty.
        let (variances, of_them): (Vec<f64>, Vec<f64>) =
            errors().map(|((.., variance), weight)| (*variance, weight)).unzip();
        let explained = robust::median(&variances, &of_them);
        // `scatter / n` is the variance of the mean itself.
        let variance = (scatter - explained).max(0.0) + scatter / n;
        Some(Self {
            shift,
            variance,
            width: student_95(n - 1.0),
            pairs: robust.count,
            ..Self::prior(quantity)
        })
    }

    /// The model without any measured pair: no correction, and a wide guess of the scatter.
    pub fn prior(quantity: ComposedQuantity) -> Self {
        Self {
            quantity,
            shift: [0.0; 2],
            variance: PRIOR_DEVIATION.powi(2),
            added: 0.0,
            least: 0.0,
            width: NORMAL_95,
            pairs: 0,
        }
    }

    /// Smallest number of pairs from which a scatter is learned. With fewer pairs, the interval of
    /// Student's t is wider than the guess.
    pub const PAIRS_MIN: usize = 5;

    /// Number of pairs that the model was learned from.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Estimate for a path of these legs; `None` if there are no legs or a leg is invalid.
    pub fn estimate(&self, legs: &[LegForecast]) -> Option<PathEstimate> {
        if self.quantity == ComposedQuantity::Loss {
            return loss::estimate(self, legs);
        }
        let (value, variance) = self.quantity.compose(legs)?;
        let value = value * self.shift[class(legs)].exp();
        let factor = (self.width * (variance + self.variance).sqrt()).exp();
        let estimate = PathEstimate { value, lower: value / factor, upper: value * factor };
        estimate.is_positive().then_some(estimate)
    }
}

impl ComposedQuantity {
    /// Number of datagrams of a loss probe that a station sends to a peer. The lost share of so few
    /// datagrams has steps of a tenth.
    pub const LOSS_DATAGRAMS: u32 = 10;

    /// Whether a forecast of this quantity is valid: a loss is from 0 to 1, other quantities are
    /// above 0.
    pub fn is_valid(self, estimate: &PathEstimate) -> bool {
        match self {
            Self::Rtt | Self::Goodput => estimate.is_positive(),
            Self::Loss => {
                0.0 <= estimate.lower
                    && estimate.lower <= estimate.value
                    && estimate.value <= estimate.upper
                    && estimate.upper <= 1.0
            }
        }
    }

    /// Whether the model learns from a pair that is composed of these legs; see
    /// [`CompositionModel`].
    fn is_informative(self, legs: &[LegForecast]) -> bool {
        match self {
            Self::Rtt | Self::Loss => legs.len() >= LEGS_ACROSS,
            Self::Goodput => true,
        }
    }

    /// Composed round-trip time or rate, and the variance of its logarithm due to the errors of the
    /// legs.
    fn compose(self, legs: &[LegForecast]) -> Option<(f64, f64)> {
        if !legs.iter().all(|leg| leg.forecast.is_positive()) {
            return None;
        }
        let power = match self {
            Self::Rtt => 1.0,
            Self::Goodput => -SHARPNESS,
            Self::Loss => return None,
        };
        let parts = || legs.iter().map(|leg| leg.forecast.value.powf(power));
        let sum: f64 = parts().sum();
        let value = sum.powf(1.0 / power);
        // Errors of legs are taken as independent; d ln value = Σ (part / sum) d ln leg.
        let variance =
            parts().zip(legs).map(|(part, leg)| (part / sum).powi(2) * leg.forecast.variance()).sum();
        (value.is_finite() && value > 0.0).then_some((value, variance))
    }
}

/// Index of the shift of a pair, ln (measured / composed), and the variance of that logarithm due
/// to the errors of the legs.
type Factor = (usize, f64, f64);

/// Index of the shift for a path of these legs.
fn class(legs: &[LegForecast]) -> usize {
    usize::from(legs.len() >= LEGS_ACROSS)
}

/// The 95 % quantile of Student's t (Abramowitz and Stegun 1964, 26.7.5, to the second order).
fn student_95(degrees: f64) -> f64 {
    let z = NORMAL_95;
    z + (z.powi(3) + z) / (4.0 * degrees)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees * degrees)
}

/// The 95 % quantile of the normal distribution: 90 % of the values lie within this number of
/// standard deviations from the mean.
const NORMAL_95: f64 = 1.644_853_626_951_472_7;

/// Number of legs of the route host – representative – representative – host. A path with fewer
/// legs may be within one site.
const LEGS_ACROSS: usize = 3;

/// Exponent of the soft minimum. With a larger exponent, the result is nearer to the lowest rate.
const SHARPNESS: f64 = 2.0;

/// The mean of all pairs counts as this many pairs in the mean of each of the two classes of paths:
/// up to two legs, and more legs. The value is the smallest number of pairs from which a scatter is
/// learned.
const POOLED: f64 = CompositionModel::PAIRS_MIN as f64;

/// Standard deviation of ln (measured / composed) if there are no pairs to learn from. One standard
/// deviation is a factor of two.
const PRIOR_DEVIATION: f64 = core::f64::consts::LN_2;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
