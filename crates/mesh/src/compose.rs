//! What to expect of a pair never measured, from the paths between its hosts' representatives.

mod loss;

/// A forecast, and the interval in which the next measurement lies with a probability of 90 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The forecast.
    pub value: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
}

/// What is known of a path that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Of its next measurement.
    pub forecast: Estimate,
    /// Its newest measurement.
    pub last: f64,
    /// How many measurements the forecast was made from; of losses, probes.
    pub count: u64,
}

/// Which quantity legs are composed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Composition {
    /// Round-trip times: their sum.
    Rtt,
    /// Rates: about the lowest. It is a soft minimum, (Σ rate^−2)^(−1/2), for where the legs' common end is the slowest, which the path
    /// itself need not pass, the other legs still tell which host is better.
    Goodput,
    /// Shares of datagrams that do not come back: 1 − Π (1 − share), so that −ln (1 − share) add. The interval is that of the next probe of
    /// [`LOSS_DATAGRAMS`](Self::LOSS_DATAGRAMS).
    Loss,
}

/// How wrong composed estimates are, learnt from pairs that are measured *and* can be composed: hosts of different sites that were
/// tested on demand, and for rates also two hosts of a site by way of their representative.
///
/// Round trips and losses learn from paths of three legs or more only: those surely lead across sites. Within a site the way by the
/// representative counts its access link twice, so that the sum is twice the round trip, which says nothing of paths across.
///
/// A composed value leaves much out: a representative may be slower than the host it stands for; and a path between two
/// hosts need not pass it, so that a sum is too long. Both are factors, alike for many
/// pairs: their logarithms have a mean, by which an estimate is corrected, and a scatter, by which its interval is widened.
/// They are learnt from the newest measurement of each pair, whose own noise is so part of the scatter.
///
/// Losses have no logarithms, for most are 0. Their −ln (1 − share) is corrected by the ratio of sums where less is lost than composed, and by
/// what is to be added where more is; the scatter is relative to the estimate, or to the mean of all where that is more. It is learnt from
/// forecasts of the mean, without what their few datagrams explain.
///
/// Each further representative can slow a rate, so that paths of two legs and longer ones have each a mean of their own, drawn to that of all
/// as far as few pairs tell of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    composition: Composition,
    /// Mean of the logarithm of measured / composed, of paths up to two legs and of longer ones.
    shift: [f64; 2],
    /// Variance of that logarithm beside what the errors of legs explain; of losses, relative.
    variance: f64,
    /// Of losses, what is added to −ln (1 − share), and of which value at least the scatter is a share.
    added: f64,
    least: f64,
    /// Half of an interval, in standard deviations.
    width: f64,
    pairs: usize,
}

impl Estimate {
    /// Whether it is a forecast of something above 0, within its interval.
    pub fn is_positive(&self) -> bool {
        self.upper.is_finite() && 0.0 < self.lower && self.lower <= self.value && self.value <= self.upper
    }

    /// Whether a value lies in the interval.
    pub fn contains(&self, value: f64) -> bool {
        (self.lower..=self.upper).contains(&value)
    }

    /// Variance of the logarithm, as of a normal one.
    fn variance(&self) -> f64 {
        ((self.upper / self.lower).ln() / (2.0 * NORMAL_95)).powi(2)
    }
}

impl Path {
    /// A path of which this share is lost in the mean, by `count` probes; `interval` is the forecaster's own of the next probe. A forecaster
    /// that has seen no loss knows of no error, so the interval is at least that of the next probe after so many datagrams.
    /// `None` if the shares make no sense.
    pub fn of_losses(mean: f64, interval: Option<(f64, f64)>, last: f64, count: u64) -> Option<Self> {
        let forecast = loss::forecast(mean, interval, count);
        Composition::Loss.admits(&forecast).then_some(Self { forecast, last, count })
    }
}

impl Model {
    /// What measured pairs teach: each its legs, and itself. Those that make no sense, and round trips and losses of
    /// fewer than three legs, are passed over; with fewer than [`PAIRS_MIN`](Self::PAIRS_MIN) nothing is corrected, and a wide guess takes the
    /// place of the scatter.
    pub fn learnt<'a>(composition: Composition, pairs: impl IntoIterator<Item = (&'a [Path], Path)>) -> Self {
        let pairs = pairs.into_iter().filter(|(legs, _)| composition.teaches(legs));
        if composition == Composition::Loss {
            return loss::learnt(pairs);
        }
        let errors: Vec<(usize, f64, f64)> = pairs
            .filter(|(_, measured)| measured.last.is_finite() && 0.0 < measured.last)
            .filter_map(|(legs, measured)| {
                let (value, variance) = composition.of(legs)?;
                Some((class(legs), (measured.last / value).ln(), variance))
            })
            .collect();
        if errors.len() < Self::PAIRS_MIN {
            return Self::guessed(composition, errors.len());
        }
        let n = errors.len() as f64;
        let mean = errors.iter().map(|(_, error, _)| error).sum::<f64>() / n;
        let shift = [0, 1].map(|class| {
            let of_class = || errors.iter().filter(|(of, ..)| *of == class).map(|(_, error, _)| error);
            (of_class().sum::<f64>() + POOLED * mean) / (of_class().count() as f64 + POOLED)
        });
        let scatter =
            errors.iter().map(|(of, error, _)| (error - shift[*of]).powi(2)).sum::<f64>() / (n - 1.0);
        let explained = errors.iter().map(|(.., variance)| variance).sum::<f64>() / n;
        // What the mean itself is uncertain by.
        let variance = (scatter - explained).max(0.0) + scatter / n;
        Self { shift, variance, width: student_95(n - 1.0), ..Self::guessed(composition, errors.len()) }
    }

    fn guessed(composition: Composition, pairs: usize) -> Self {
        Self {
            composition,
            shift: [0.0; 2],
            variance: GUESSED_DEVIATION.powi(2),
            added: 0.0,
            least: 0.0,
            width: NORMAL_95,
            pairs,
        }
    }

    /// Fewest pairs that a scatter is learnt from: below, the interval of Student's t is wider than the guess.
    pub const PAIRS_MIN: usize = 5;

    /// How many pairs it was learnt from.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// The estimate for a path of these legs; none without legs, or if one makes no sense.
    pub fn estimate(&self, legs: &[Path]) -> Option<Estimate> {
        if self.composition == Composition::Loss {
            return loss::estimate(self, legs);
        }
        let (value, variance) = self.composition.of(legs)?;
        let value = value * self.shift[class(legs)].exp();
        let factor = (self.width * (variance + self.variance).sqrt()).exp();
        let estimate = Estimate { value, lower: value / factor, upper: value * factor };
        estimate.is_positive().then_some(estimate)
    }
}

impl Composition {
    /// Datagrams of a probe of loss: what a station sends to each peer in its turn. Shares of so few are steps of a tenth.
    pub const LOSS_DATAGRAMS: u32 = 10;

    /// Whether a forecast of this quantity makes sense: a loss may be 0, and is at most 1; others are above 0.
    pub fn admits(self, estimate: &Estimate) -> bool {
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

    /// Whether a path of these legs says something of paths across sites; see [`Model`].
    fn teaches(self, legs: &[Path]) -> bool {
        match self {
            Self::Rtt | Self::Loss => LEGS_ACROSS <= legs.len(),
            Self::Goodput => true,
        }
    }

    /// The composed round trip or rate, and the variance of its logarithm by the errors of its legs.
    fn of(self, legs: &[Path]) -> Option<(f64, f64)> {
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
        (value.is_finite() && 0.0 < value).then_some((value, variance))
    }
}

/// Which of a model's shifts is for a path of these legs.
fn class(legs: &[Path]) -> usize {
    usize::from(LEGS_ACROSS <= legs.len())
}

/// The 95 % quantile of Student's t (Abramowitz and Stegun 1964, 26.7.5, to the second order).
fn student_95(degrees: f64) -> f64 {
    let z = NORMAL_95;
    z + (z.powi(3) + z) / (4.0 * degrees)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees * degrees)
}

/// The 95 % quantile of the normal distribution: 90 % lie within as much of the mean.
const NORMAL_95: f64 = 1.644_853_626_951_472_7;

/// Host, representative, representative, host: fewer may stay within a site.
const LEGS_ACROSS: usize = 3;

/// The exponent of the soft minimum; the larger, the nearer to the lowest.
const SHARPNESS: f64 = 2.0;

/// So many pairs of a path's own length weigh as much as the mean of all: as few as a scatter is learnt from.
const POOLED: f64 = Model::PAIRS_MIN as f64;

/// Without pairs to learn from: a standard deviation of a factor of two, either way.
const GUESSED_DEVIATION: f64 = core::f64::consts::LN_2;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
