//! Which strategies are better than which, and whether two experiments agree on it.

use barograph_sim::Chance;
use serde::Serialize;
use std::cmp::Ordering;

use crate::stats::{Rank, Summary, interval, mean, quantile, resampled, sorted};

/// Times of one strategy, block by block. In each block all strategies met the same weather.
pub(crate) type Blocks = Vec<Vec<f64>>;

/// What strategies are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) enum Statistic {
    #[serde(rename = "mean")]
    Mean,
    #[serde(rename = "p95")]
    P95,
}

impl Statistic {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P95 => "95th percentile",
        }
    }

    fn of(self, times: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(times),
            Self::P95 => Summary::of(times).p95,
        }
    }
}

/// How strategies stand to each other in one experiment.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// Of each strategy.
    values: Vec<f64>,
    /// Of each pair: less is better, and equal is a difference that chance may have made.
    pairs: Vec<Vec<Ordering>>,
    /// Half the 90 % interval of a pair's difference in seconds, the median of all pairs: what differs by
    /// less is mostly a tie.
    pub(crate) told_apart_s: f64,
}

impl Standing {
    /// Differences of pairs are ties when 0 lies within the 90 % interval of the bootstrap over blocks: each
    /// resample draws blocks with replacement, the same ones for all strategies.
    pub(crate) fn of(statistic: Statistic, strategies: &[Blocks], seed: u64) -> Self {
        let all: Vec<usize> = (0..strategies[0].len()).collect();
        let of_blocks = |blocks: &[usize]| -> Vec<f64> {
            let times = |of: &Blocks| blocks.iter().flat_map(|block| of[*block].clone()).collect::<Vec<_>>();
            strategies.iter().map(|of| statistic.of(&times(of))).collect()
        };
        let resamples = resampled(all.len(), RESAMPLES, &mut Chance::new(seed, 0), of_blocks);
        let count = strategies.len();
        let mut pairs = vec![vec![Ordering::Equal; count]; count];
        let mut widths = Vec::new();
        for one in 0..count {
            for other in (0..count).filter(|other| *other != one) {
                let differences = resamples.iter().map(|values| values[one] - values[other]).collect();
                let (low, high) = interval(differences, 0.05).unwrap_or_default();
                widths.push((high - low) / 2.0);
                pairs[one][other] = match (low, high) {
                    (_, high) if high < 0.0 => Ordering::Less,
                    (low, _) if 0.0 < low => Ordering::Greater,
                    _ => Ordering::Equal,
                };
            }
        }
        let told_apart_s = quantile(&sorted(widths), 0.5, Rank::Nearest).unwrap_or(f64::NAN);
        Self { values: of_blocks(&all), pairs, told_apart_s }
    }

    /// As text, the best first; ≈ stands between neighbours that are a tie.
    pub(crate) fn line(&self, names: &[String]) -> String {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|one, other| self.values[*one].total_cmp(&self.values[*other]));
        let mut line = String::new();
        for (place, strategy) in order.iter().enumerate() {
            if 0 < place {
                let tie = self.pairs[order[place - 1]][*strategy] == Ordering::Equal;
                line += if tie { " ≈ " } else { " < " };
            }
            line += &format!("{} {:.3}", names[*strategy], self.values[*strategy]);
        }
        line
    }
}

/// How two experiments agree, pair by pair.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Agreement {
    /// Pairs ordered alike, or ties in both.
    pub(crate) alike: Vec<String>,
    /// Pairs that are a tie in the first experiment alone.
    pub(crate) tie_in_first: Vec<String>,
    /// Pairs that are a tie in the second experiment alone.
    pub(crate) tie_in_second: Vec<String>,
    /// Pairs that are ordered the other way round.
    pub(crate) contrary: Vec<String>,
}

impl Agreement {
    pub(crate) fn of(first: &Standing, second: &Standing, names: &[String]) -> Self {
        let mut agreement = Self::default();
        for one in 0..names.len() {
            for other in one + 1..names.len() {
                let (here, there) = (first.pairs[one][other], second.pairs[one][other]);
                let sign = |order| match order {
                    Ordering::Less => "<",
                    Ordering::Equal => "≈",
                    Ordering::Greater => ">",
                };
                // Ties in the first are named as the second has them.
                let shown = if here == Ordering::Equal { there } else { here };
                let pair = format!("{} {} {}", names[one], sign(shown), names[other]);
                let list = match (here, there) {
                    _ if here == there => &mut agreement.alike,
                    (Ordering::Equal, _) => &mut agreement.tie_in_first,
                    (_, Ordering::Equal) => &mut agreement.tie_in_second,
                    _ => &mut agreement.contrary,
                };
                list.push(pair);
            }
        }
        agreement
    }

    /// Nothing is the other way round.
    pub(crate) fn holds(&self) -> bool {
        self.contrary.is_empty()
    }
}

/// Enough that the ends of the interval move by a hundredth of it from seed to seed.
const RESAMPLES: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    /// `b` is a tenth above `a` in every block, though blocks differ much more; `c` is as `a` but for noise.
    fn standing(b: f64, seed: u64) -> Standing {
        let mut draws = Chance::new(seed, 9);
        let a: Blocks = (0..40).map(|_| vec![1.0 + 5.0 * draws.uniform(), 2.0]).collect();
        let times = |factor: f64| a.iter().map(|of| of.iter().map(|time| time * factor).collect()).collect();
        let c = a.iter().map(|of| of.iter().map(|time| time + draws.uniform() - 0.5).collect()).collect();
        Standing::of(Statistic::Mean, &[a.clone(), times(b), c], 1)
    }

    #[test]
    fn pairs_are_judged_within_blocks() {
        let standing = standing(1.1, 5);
        assert_eq!(standing.pairs[0][1], Ordering::Less);
        assert_eq!(standing.pairs[1][0], Ordering::Greater);
        assert_eq!(standing.pairs[0][2], Ordering::Equal);
        assert_eq!(standing.pairs[0][0], Ordering::Equal);
        // a and b differ by 0.28 on average, and by blocks.
        assert!((0.01..0.28).contains(&standing.told_apart_s), "{}", standing.told_apart_s);
        let line = standing.line(&names());
        assert!(line.contains(" ≈ ") && line.contains(" < b "), "{line}");
    }

    #[test]
    fn what_is_the_other_way_round_is_said() {
        let (one, other) = (standing(1.1, 5), standing(0.9, 6));
        let contrary = Agreement::of(&one, &other, &names());
        assert!(contrary.contrary.contains(&"a < b".to_owned()) && !contrary.holds(), "{contrary:?}");
        let same = Agreement::of(&one, &standing(1.2, 7), &names());
        assert!(same.holds() && same.alike.contains(&"a < b".to_owned()), "{same:?}");
        let tie = Agreement::of(&one, &standing(1.0, 8), &names());
        assert!(tie.holds() && tie.tie_in_second.contains(&"a < b".to_owned()), "{tie:?}");
    }

    #[test]
    fn equal_strategies_are_a_tie() {
        let blocks: Blocks = vec![vec![1.0, 2.0]; 5];
        let standing = Standing::of(Statistic::P95, &[blocks.clone(), blocks], 1);
        assert_eq!(standing.pairs[0][1], Ordering::Equal);
    }
}
