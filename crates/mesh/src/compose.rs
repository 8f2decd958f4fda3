//! What to expect of a pair never measured, from the paths between its hosts' representatives.

mod believed;
mod loss;

use believed::Believed;

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

/// A pair that is measured and can be composed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson<'a, H> {
    /// Its two hosts.
    pub ends: [H; 2],
    /// The paths that it is composed of.
    pub legs: &'a [Path],
    /// The pair itself.
    pub measured: Path,
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
/// One host that lies must not spoil the estimates for others: hosts count alike, and errors far from the others' are left out.
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
    /// What measured pairs teach. Those that make no sense, and round trips and losses of
    /// fewer than three legs, are passed over, and so are those so far from the others that they are not believed; with fewer than
    /// [`PAIRS_MIN`](Self::PAIRS_MIN), or if nearly half of what they say hangs on one host, nothing is corrected, and a wide guess takes the
    /// place of the scatter. No host counts for more than another, of however many pairs it is an end.
    pub fn learnt<'a, H: Ord + Copy>(
        composition: Composition,
        lessons: impl IntoIterator<Item = Lesson<'a, H>>,
    ) -> Self {
        let lessons = lessons.into_iter().filter(|lesson| composition.teaches(lesson.legs));
        let learnt = match composition {
            Composition::Rtt | Composition::Goodput => Self::of_factors(composition, lessons),
            Composition::Loss => loss::learnt(lessons),
        };
        learnt.unwrap_or(Self::guessed(composition))
    }

    fn of_factors<'a, H: Ord + Copy>(
        composition: Composition,
        lessons: impl Iterator<Item = Lesson<'a, H>>,
    ) -> Option<Self> {
        let (ends, all): (Vec<[H; 2]>, Vec<Factor>) = lessons
            .filter(|lesson| lesson.measured.last.is_finite() && 0.0 < lesson.measured.last)
            .filter_map(|Lesson { ends, legs, measured }| {
                let (value, variance) = composition.of(legs)?;
                Some((ends, (class(legs), (measured.last / value).ln(), variance)))
            })
            .unzip();
        let values: Vec<(usize, f64)> = all.iter().map(|(class, error, _)| (*class, *error)).collect();
        let believed = Believed::of(&ends, &values, composition)?;
        let errors = || believed.of_all(&all);
        let (n, weights) = (believed.count as f64, errors().map(|(_, weight)| weight).sum::<f64>());
        let mean = errors().map(|((_, error, _), weight)| weight * error).sum::<f64>() / weights;
        let shift = [0, 1].map(|class| {
            let of_class = || errors().filter(|((of, ..), _)| *of == class);
            let sum: f64 = of_class().map(|((_, error, _), weight)| weight * error).sum();
            (sum + POOLED * mean) / (of_class().map(|(_, weight)| weight).sum::<f64>() + POOLED)
        });
        let squares: f64 =
            errors().map(|((of, error, _), weight)| weight * (error - shift[*of]).powi(2)).sum();
        let scatter = squares / weights * n / (n - 1.0);
        // The median, for legs may be made as uncertain as somebody likes.
        let (variances, of_them): (Vec<f64>, Vec<f64>) =
            errors().map(|((.., variance), weight)| (*variance, weight)).unzip();
        let explained = believed::median(&variances, &of_them);
        // What the mean itself is uncertain by.
        let variance = (scatter - explained).max(0.0) + scatter / n;
        Some(Self {
            shift,
            variance,
            width: student_95(n - 1.0),
            pairs: believed.count,
            ..Self::guessed(composition)
        })
    }

    /// What is estimated with when nothing was learnt.
    pub fn guessed(composition: Composition) -> Self {
        Self {
            composition,
            shift: [0.0; 2],
            variance: GUESSED_DEVIATION.powi(2),
            added: 0.0,
            least: 0.0,
            width: NORMAL_95,
            pairs: 0,
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

/// Of a lesson: which shift it is for, ln (measured / composed), and the variance of that by the errors of its legs.
type Factor = (usize, f64, f64);

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
