//! Whether the unequal errors of shifted subsamples come from a daily line (Gloperf §4, an open question there).

use std::f64::consts::TAU;

use barograph_sim::Chance;
use barograph_study::tradeoff::{Grid, Predictor};

use crate::stats::{Rank, mean_of_some, population_deviation, quantile, sorted};

/// The share of the variance that a sine of a period explains, 0 to 1; blanks are left out.
///
/// The least-squares periodogram (Lomb 1976), which bears gaps; the mean is taken out before.
pub(crate) fn power(grid: &Grid, period_slots: f64) -> f64 {
    let mean = grid.mean();
    let (mut cc, mut ss, mut cs, mut yc, mut ys, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (place, value) in
        grid.slots.iter().enumerate().filter_map(|(place, slot)| slot.map(|v| (place, v - mean)))
    {
        let (sin, cos) = (TAU * place as f64 / period_slots).sin_cos();
        cc += cos * cos;
        ss += sin * sin;
        cs += cos * sin;
        yc += value * cos;
        ys += value * sin;
        yy += value * value;
    }
    let determinant = cc * ss - cs * cs;
    if determinant <= 0.0 || yy <= 0.0 {
        return 0.0;
    }
    ((yc * yc * ss - 2.0 * yc * ys * cs + ys * ys * cc) / determinant / yy).clamp(0.0, 1.0)
}

/// The periodogram at periods from an hour to a quarter of the series, in equal steps of the logarithm: periods in
/// slots and shares of the variance.
pub(crate) fn periodogram(grid: &Grid) -> Vec<(f64, f64)> {
    let (shortest, longest) = (3600.0 / grid.base_s, grid.slots.len() as f64 / 4.0);
    let at = |i: usize| shortest * (longest / shortest).powf(i as f64 / (LINES - 1) as f64);
    (0..LINES).map(at).map(|period| (period, power(grid, period))).collect()
}

/// The standard deviation over the offsets of the exponential predictor's MAE, as a share of its mean.
pub(crate) fn spread(grid: &Grid, every: usize) -> Option<f64> {
    let errors = (0..every).filter_map(|offset| Predictor::Exponential.errors(grid, every, offset, 0));
    let maes: Vec<f64> = errors.map(|errors| errors.mae).collect();
    let mean = mean_of_some(&maes)?;
    (0.0 < mean).then(|| population_deviation(&maes) / mean)
}

/// What a series is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// Its values in any order: no memory and no line.
    Shuffled,
    /// Each of its days begun at another hour: the memory within days stays, the hour of the day means nothing.
    Turned,
}

impl Null {
    /// A series made from `grid`, blanks moving with their days or staying where they are.
    fn draw(self, grid: &Grid, slots_a_day: usize, chance: &mut Chance) -> Grid {
        let mut slots = grid.slots.clone();
        match self {
            Self::Shuffled => {
                let places: Vec<usize> = (0..slots.len()).filter(|place| slots[*place].is_some()).collect();
                for last in (1..places.len()).rev() {
                    slots.swap(places[last], places[chance.below(last + 1)]);
                }
            }
            Self::Turned => {
                slots.chunks_mut(slots_a_day).for_each(|day| day.rotate_left(chance.below(day.len())))
            }
        }
        Grid { slots, ..grid.clone() }
    }

    /// The spread in the middle and at the 95th percentile of such series, and the share of them that has at least
    /// the spread of `grid` itself (with the series itself among them, so never 0).
    pub(crate) fn test(self, grid: &Grid, every: usize, slots_a_day: usize, seed: u64) -> Option<Tested> {
        let observed = spread(grid, every)?;
        let mut chance = Chance::new(seed, 77);
        let draw = |_| spread(&self.draw(grid, slots_a_day, &mut chance), every);
        let drawn = sorted((0..DRAWS).filter_map(draw));
        let at_least = drawn.iter().filter(|spread| observed <= **spread).count();
        let at = |share: f64| quantile(&drawn, share, Rank::Above);
        let chance = (at_least + 1) as f64 / (drawn.len() + 1) as f64;
        Some(Tested { observed, median: at(0.5)?, high: at(0.95)?, chance })
    }
}

/// A spread beside those of series without the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tested {
    /// Of the series itself.
    pub(crate) observed: f64,
    /// The median of the others.
    pub(crate) median: f64,
    /// Their 95th percentile.
    pub(crate) high: f64,
    /// The share of the others that is at least as large.
    pub(crate) chance: f64,
}

/// Enough that a chance of 1 % can be told from one of 5 %.
const DRAWS: usize = 200;

/// As many as a figure can show.
const LINES: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(value: impl Fn(usize) -> f64) -> Grid {
        let slots = (0..2880).map(|i| (i % 7 != 0).then(|| value(i))).collect();
        Grid { base_s: 300.0, slots, crowded: 0 }
    }

    #[test]
    fn a_line_has_its_power_at_its_period() {
        let daily = grid(|i| 10.0 + 3.0 * (TAU * i as f64 / 288.0 + 1.0).cos());
        // The mean of a line with gaps is not quite its middle.
        assert!((power(&daily, 288.0) - 1.0).abs() < 1e-4);
        assert!(power(&daily, 144.0) < 0.01);
        let strongest = periodogram(&daily).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!((strongest.0 / 288.0 - 1.0).abs() < 0.05, "{strongest:?}");
        assert_eq!(power(&grid(|_| 4.0), 288.0), 0.0);
    }

    #[test]
    fn errors_that_depend_on_the_hour_are_found_and_chance_is_not() {
        let mut chance = Chance::new(1, 0);
        let noise: Vec<f64> = (0..2880).map(|_| chance.normal()).collect();
        let quiet = grid(|i| 100.0 + noise[i]);
        let tested = Null::Turned.test(&quiet, 288, 288, 1).unwrap();
        assert!(0.01 < tested.chance, "{tested:?}");
        // Ten times the noise in the afternoon.
        let loud = grid(|i| 100.0 + noise[i] * if 144 <= i % 288 { 10.0 } else { 1.0 });
        let tested = Null::Turned.test(&loud, 288, 288, 1).unwrap();
        assert!(tested.chance < 0.01 && tested.high < tested.observed, "{tested:?}");
    }
}
