//! Timeouts with the least expected time to a response.

use super::histogram::{BINS, BinCounts, ONE, STEP, octaves};

/// The best timeouts, each as log2 of the ratio of the timeout to the forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Optimum {
    /// Timeout of a first attempt, within the proven budget.
    pub(super) first: f64,
    /// Timeout of a first attempt, within the full budget.
    pub(super) explore: f64,
    /// Timeouts of the first and of the second retry.
    pub(super) retries: [f64; 2],
    /// Timeout that is so long that only missing responses exceed it.
    pub(super) backstop: f64,
    /// Whether `first` is expected to gain time.
    pub(super) pays: bool,
    /// Share of attempts that take longer than `first`. The next field is the share of attempts
    /// that take longer than `explore`.
    pub(super) exceed: f64,
    pub(super) exceed_explore: f64,
}

/// Properties of the retries of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    /// Time to connect again, divided by the forecast.
    pub(super) connect: f64,
    /// Probability that the time of a retry is independent of the attempt before it. Otherwise the
    /// retry is affected by the same slowness and takes as long as the attempt before it would have
    /// taken.
    pub(super) help: f64,
    /// Largest share of attempts that may be cut off.
    pub(super) exceed_max: f64,
    /// Largest share of attempts that [`Optimum::explore`] may cut off.
    pub(super) explore_max: f64,
}

impl Optimum {
    /// Timeouts before there are responses. The timeout of a first attempt is eight times a
    /// forecast that was made elsewhere.
    pub(super) const START: Self = Self {
        first: 3.0,
        explore: 3.0,
        retries: [5.0, 7.0],
        backstop: 3.0,
        pays: false,
        exceed: 0.0,
        exceed_explore: 0.0,
    };

    /// Share of attempts that take longer than `first`; 0 if `first` is neither `self.first` nor
    /// `self.explore`.
    pub(super) fn exceed_at(&self, first: f64) -> f64 {
        if first == self.first {
            self.exceed
        } else if first == self.explore {
            self.exceed_explore
        } else {
            0.0
        }
    }

    /// Computes the best timeouts for attempts that ended as in `counts`, which must not be empty.
    pub(super) fn of(counts: &[[f64; BINS]; 2], retries: Retries) -> Self {
        let curve = Curve::of(counts);
        // If retries are known to help, the square of the time also counts as a cost. A program
        // often waits for the slowest of its messages, so long times cost more than their share of
        // the mean.
        let sure = ((retries.help - SURE_FROM) / SURE_OVER).clamp(0.0, 1.0);
        let scores = curve.scores(&retries, TAIL_FIRST * sure);
        let first = curve.least(&scores, retries.exceed_max, TAIL_FIRST * sure);
        let explore = curve.least(&scores, retries.explore_max, TAIL_FIRST * sure);
        let ladder = first.or(explore).map(|bin| curve.ladder(bin, &retries, TAIL_RETRY * sure));
        let or_backstop =
            |bin: Option<usize>| bin.map_or(curve.backstop, |bin| octaves(bin).min(curve.backstop));
        Self {
            first: or_backstop(first),
            explore: or_backstop(explore),
            retries: ladder.unwrap_or([curve.backstop; 2]),
            backstop: curve.backstop,
            pays: first.is_some(),
            exceed: first.map_or(0.0, |bin| curve.survival[bin]),
            exceed_explore: explore.map_or(0.0, |bin| curve.survival[bin]),
        }
    }
}

/// Distribution of the time of an attempt in units of its forecast, with the integrals of the
/// distribution up to the lower edge of each bin.
struct Curve {
    edge: [f64; BINS + 1],
    /// S: share of attempts that take longer than the lower edge of the bin.
    survival: [f64; BINS + 1],
    /// ∫ S dt: mean time of attempts that are cut off at the lower edge of the bin.
    area: [f64; BINS + 1],
    /// ∫ 2 t S dt: mean square of the time of attempts that are cut off at the lower edge of the
    /// bin.
    area2: [f64; BINS + 1],
    /// Backstop, in octaves above the forecast.
    backstop: f64,
}

/// Mean of a time, and mean of its square.
type Moments = (f64, f64);

impl Curve {
    /// Estimator of Kaplan and Meier (1958) from answered and censored counts. Attempts censored
    /// within a bin count as at risk for half of this bin.
    fn of([answered, censored]: &[[f64; BINS]; 2]) -> Self {
        let mut curve = Self {
            edge: [FIRST_EDGE; BINS + 1],
            survival: [1.0; BINS + 1],
            area: [FIRST_EDGE; BINS + 1],
            area2: [FIRST_EDGE * FIRST_EDGE; BINS + 1],
            backstop: BACKSTOP_MAX,
        };
        let mut at_risk: f64 = answered.iter().chain(censored).sum();
        let mut rare = None;
        for bin in 0..BINS {
            let (low, high) = (curve.edge[bin], curve.edge[bin] * STEP);
            let risk = at_risk - 0.5 * censored[bin];
            let before = curve.survival[bin];
            let after =
                if risk > NEGLIGIBLE { before * (1.0 - answered[bin] / risk).max(0.0) } else { before };
            let mean = 0.5 * (before + after);
            curve.edge[bin + 1] = high;
            curve.survival[bin + 1] = after;
            curve.area[bin + 1] = curve.area[bin] + mean * (high - low);
            curve.area2[bin + 1] = curve.area2[bin] + mean * (high * high - low * low);
            at_risk -= answered[bin] + censored[bin];
            if rare.is_none() && after < RARE {
                rare = Some(bin + 1);
            }
        }
        // The backstop is twice the time that one attempt in a thousand exceeds, but between
        // `BACKSTOP_MIN` and `BACKSTOP_MAX`.
        let rare = rare.map_or(BACKSTOP_MAX, |bin| octaves(bin) + 1.0);
        curve.backstop = rare.clamp(BACKSTOP_MIN, BACKSTOP_MAX);
        curve
    }

    /// Time of an attempt that is never cut off.
    fn whole(&self) -> Moments {
        (self.area[BINS], self.area2[BINS])
    }

    /// Time of an attempt that takes longer than the lower edge of `bin`, measured from the start
    /// of the attempt.
    fn slow(&self, bin: usize) -> Moments {
        let (mean, mean2) = self.whole();
        let (survival, edge) = (self.survival[bin].max(NEGLIGIBLE), self.edge[bin]);
        (edge + (mean - self.area[bin]) / survival, edge * edge + (mean2 - self.area2[bin]) / survival)
    }

    /// Time of attempts that are cut off at the lower edge of `bin` and repeated until a response
    /// arrives, if the attempts are independent: E = (∫ S dt + c·S) ÷ F, and its second moment.
    fn renewed(&self, bin: usize, connect: f64) -> Moments {
        let survival = self.survival[bin];
        let spent = self.edge[bin] + connect;
        let mean = (self.area[bin] + survival * connect) / (1.0 - survival);
        let mean2 =
            (self.answered2(bin) + survival * (spent * spent + 2.0 * spent * mean)) / (1.0 - survival);
        (mean, mean2)
    }

    /// Part of the mean square that comes from responses before `bin`.
    fn answered2(&self, bin: usize) -> f64 {
        self.area2[bin] - self.survival[bin] * self.edge[bin] * self.edge[bin]
    }

    /// Cost of a timeout at the lower edge of each bin; infinite if this timeout is not useful.
    fn scores(&self, retries: &Retries, tail: f64) -> [f64; BINS] {
        let mut scores = [f64::INFINITY; BINS];
        for (bin, score) in scores.iter_mut().enumerate().skip(ONE + 1) {
            let survival = self.survival[bin];
            if survival < NEGLIGIBLE {
                break;
            }
            if survival > CUTS_MOST {
                continue;
            }
            let (fresh, same) = (self.renewed(bin, retries.connect), self.slow(bin));
            let mixed = mix(retries.help, fresh, same);
            let spent = self.edge[bin] + retries.connect;
            let mean = self.area[bin] + survival * (retries.connect + mixed.0);
            let mean2 = self.answered2(bin) + survival * (spent * spent + 2.0 * spent * mixed.0 + mixed.1);
            *score = mean + tail * mean2;
        }
        scores
    }

    /// Returns the bin with the least cost, among the bins at which a timeout cuts off at most the
    /// share `exceed_max`. `None` if no such bin costs less than no timeout. The cost of a bin is
    /// averaged with the costs of its neighbours; each neighbour has a quarter of the weight. The
    /// average is used because the exact minimum is uncertain, and a timeout that is too short
    /// costs much more than a timeout that is too long.
    fn least(&self, scores: &[f64; BINS], exceed_max: f64, tail: f64) -> Option<usize> {
        let (mean, mean2) = self.whole();
        let mut least = (mean + tail * mean2, None);
        for bin in ONE + 1..BINS {
            if !scores[bin].is_finite() || self.survival[bin] > exceed_max {
                continue;
            }
            let (mut sum, mut weight) = (2.0 * scores[bin], 2.0);
            for neighbour in [bin - 1, (bin + 1).min(BINS - 1)] {
                if scores[neighbour].is_finite() {
                    sum += 0.5 * scores[neighbour];
                    weight += 0.5;
                }
            }
            if sum / weight < least.0 {
                least = (sum / weight, Some(bin));
            }
        }
        least.1
    }

    /// Timeouts of the two retries that follow a first attempt, in octaves above the forecast. The
    /// timeout of the first attempt is the lower edge of `bin`. Each timeout takes the earlier
    /// attempts of the message into account: after a slow retry, it is more likely that the
    /// slowness lasts.
    fn ladder(&self, bin: usize, retries: &Retries, tail: f64) -> [f64; 2] {
        let fresh = self.renewed(bin, retries.connect);
        let (mut from, mut help) = (bin, retries.help);
        core::array::from_fn(|_| {
            let known = self.survival[from].max(NEGLIGIBLE);
            let mut least = (f64::INFINITY, from);
            for to in from..BINS {
                if self.survival[to] < NEGLIGIBLE {
                    break;
                }
                let spent = self.edge[to] + retries.connect;
                let if_fresh =
                    cut((self.area[to], self.answered2(to)), self.survival[to], spent, retries, fresh);
                // If the retry is affected by the same slowness, its response does not arrive
                // before `from`. The time of the retry then has the distribution of the times after
                // `from`.
                let same = self.survival[to] / known;
                let area = self.edge[from] + (self.area[to] - self.area[from]) / known;
                let area2 = self.edge[from] * self.edge[from] + (self.area2[to] - self.area2[from]) / known;
                let answered2 = area2 - same * self.edge[to] * self.edge[to];
                let if_same = cut((area, answered2), same, spent, retries, self.slow(to));
                let (mean, mean2) = mix(help, if_fresh, if_same);
                if mean + tail * mean2 < least.0 {
                    least = (mean + tail * mean2, to);
                }
            }
            let to = least.1;
            let (fresh_share, same_share) =
                (help * self.survival[to], (1.0 - help) * self.survival[to] / known);
            help = fresh_share / (fresh_share + same_share).max(NEGLIGIBLE);
            from = to;
            octaves(to)
        })
    }
}

/// Moments of an attempt. Up to its timeout, the attempt has the moments `before`. The attempt
/// reaches its timeout with probability `exceed`. Then the time `spent` has passed, including the
/// new connection, and the message needs a further time with the moments `after`.
fn cut(before: Moments, exceed: f64, spent: f64, retries: &Retries, after: Moments) -> Moments {
    let mean = before.0 + exceed * (retries.connect + after.0);
    let mean2 = before.1 + exceed * (spent * spent + 2.0 * spent * after.0 + after.1);
    (mean, mean2)
}

fn mix(share: f64, a: Moments, b: Moments) -> Moments {
    (share * a.0 + (1.0 - share) * b.0, share * a.1 + (1.0 - share) * b.1)
}

/// Sum of three weighted counts: of a link, of the link's host, and of the prior. The counts of the
/// host include the counts of the link.
pub(super) fn weighed(
    own: (f64, &BinCounts),
    host: &BinCounts,
    host_weight: f64,
    prior: &[f32; BINS],
) -> [[f64; BINS]; 2] {
    let (scale, counts) = own;
    let sum = |own: f32, host: f32| f64::from(own) * scale + f64::from(host) * host_weight;
    [
        core::array::from_fn(|i| {
            sum(counts.answered[i], host.answered[i]) + PRIOR_WEIGHT * f64::from(prior[i])
        }),
        core::array::from_fn(|i| sum(counts.censored[i], host.censored[i])),
    ]
}

/// Lower edge of the first bin, two octaves below the forecast.
const FIRST_EDGE: f64 = 0.25;

/// A share or a count that is practically 0.
const NEGLIGIBLE: f64 = 1e-9;

/// Share of attempts for which the response counts as missing: one in a thousand.
const RARE: f64 = 1e-3;

/// Smallest backstop, in octaves above the forecast: 8 times the forecast.
const BACKSTOP_MIN: f64 = 3.0;
/// Largest backstop, in octaves above the forecast: 64 times the forecast.
const BACKSTOP_MAX: f64 = 6.0;

/// Largest share that a timeout may cut off.
const CUTS_MOST: f64 = 0.6;

/// Weight of the prior, in responses.
const PRIOR_WEIGHT: f64 = 4.0;

/// The square of the time counts if the probability that a retry helps is above `SURE_FROM`. The
/// square has full weight if the probability exceeds `SURE_FROM` by `SURE_OVER` or more.
const SURE_FROM: f64 = 0.75;
const SURE_OVER: f64 = 0.15;

/// Weight w of t² in t + w·t², the cost of a response time t in units of the forecast. The weight
/// is at most 0.3 for the timeout of the first attempt, and at most 1 for the timeouts of retries.
const TAIL_FIRST: f64 = 0.3;
const TAIL_RETRY: f64 = 1.0;
