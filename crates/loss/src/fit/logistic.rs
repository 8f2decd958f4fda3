//! Multinomial logistic regression with a ridge penalty, by Newton's method.

use nalgebra::{SMatrix, SVector};

use crate::classifier::pattern::{CauseModel, EvidenceKinds, FEATURES, FeatureWeight, LogOdds};

/// Causes of losses that the model distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Host,
    Queue,
    Link,
}

/// One training example. The weights of all examples add up to 1.
#[derive(Clone, Debug)]
pub(super) struct Example {
    pub(super) features: [f64; FEATURES.len()],
    pub(super) class: Class,
    pub(super) weight: f64,
}

/// Ridge penalty on the standardised weights, chosen by the log-loss of runs that were left out of
/// the fit.
const RIDGE: f64 = 4e-4;

/// Maximum number of steps; Newton's method needs about ten.
const STEPS_MAX: usize = 60;

/// Smallest improvement of the mean log-loss that changes a reported probability.
const IMPROVEMENT_MIN: f64 = 1e-10;

/// Number of weights: for a queue and for a link, one weight for the constant and one for each
/// feature.
const SIZE: usize = 2 * (FEATURES.len() + 1);

type Vector = SVector<f64, SIZE>;
type Matrix = SMatrix<f64, SIZE, SIZE>;

/// Fits the weights with the greatest likelihood of these examples, minus the ridge penalty.
/// Features that need evidence other than `kinds` get no weight.
pub(super) fn fit_odds(examples: &[Example], kinds: EvidenceKinds) -> CauseModel {
    let scales = scales(examples, kinds);
    let standardised: Vec<_> = examples.iter().map(|example| standardise(example, &scales)).collect();
    let mut weights = Vector::zeros();
    let mut objective = cost(examples, &standardised, &weights);
    for _ in 0..STEPS_MAX {
        let Some(step) = newton_step(examples, &standardised, &weights) else { break };
        // Halve the step until it reduces the cost: far from the optimum, the steps of Newton's
        // method are too long.
        let next = (0..30).find_map(|halvings| {
            let part = 0.5f64.powi(halvings);
            let moved = weights - step * part;
            let moved_cost = cost(examples, &standardised, &moved);
            (moved_cost < objective).then_some((moved, moved_cost))
        });
        let Some((moved, moved_cost)) = next else { break };
        let is_done = objective - moved_cost < IMPROVEMENT_MIN;
        (weights, objective) = (moved, moved_cost);
        if is_done {
            break;
        }
    }
    unscaled(&weights, &scales)
}

/// Distribution of a feature over the examples; zeros if the feature does not vary or is not known.
#[derive(Clone, Copy, Default)]
struct Scale {
    low: f64,
    high: f64,
    mean: f64,
    /// 1 divided by the standard deviation; 0 = the feature is not used.
    factor: f64,
}

fn scales(examples: &[Example], kinds: EvidenceKinds) -> [Scale; FEATURES.len()] {
    std::array::from_fn(|feature| {
        if !kinds.has_feature(feature) {
            return Scale::default();
        }
        let values = || examples.iter().map(|example| (example.features[feature], example.weight));
        let mean: f64 = values().map(|(value, weight)| value * weight).sum();
        let variance: f64 = values().map(|(value, weight)| (value - mean).powi(2) * weight).sum();
        Scale {
            low: values().map(|(value, _)| value).fold(f64::INFINITY, f64::min),
            high: values().map(|(value, _)| value).fold(f64::NEG_INFINITY, f64::max),
            mean,
            factor: if variance > 1e-12 { variance.sqrt().recip() } else { 0.0 },
        }
    })
}

fn standardise(example: &Example, scales: &[Scale]) -> [f64; SIZE / 2] {
    std::array::from_fn(|at| match at.checked_sub(1) {
        None => 1.0,
        Some(feature) => (example.features[feature] - scales[feature].mean) * scales[feature].factor,
    })
}

fn unscaled(weights: &Vector, scales: &[Scale]) -> CauseModel {
    let mut odds =
        CauseModel { base: LogOdds { queue: weights[0], link: weights[SIZE / 2] }, ..CauseModel::default() };
    for (feature, scale) in scales.iter().enumerate() {
        let queue = weights[1 + feature] * scale.factor;
        let link = weights[SIZE / 2 + 1 + feature] * scale.factor;
        odds.base.queue -= queue * scale.mean;
        odds.base.link -= link * scale.mean;
        let [low, high, queue, link] = [scale.low, scale.high, queue, link].map(round);
        odds.terms[feature] = FeatureWeight { low, high, queue, link };
    }
    odds.base = LogOdds { queue: round(odds.base.queue), link: round(odds.base.link) };
    odds
}

/// Rounds to six decimals, which are readable and do not change a reported probability.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Probabilities of a queue and of a link.
fn probabilities(features: &[f64], weights: &Vector) -> [f64; 2] {
    let dot =
        |weights: &[f64]| -> f64 { weights.iter().zip(features).map(|(weight, value)| weight * value).sum() };
    let (queue, link) = (dot(&weights.as_slice()[..SIZE / 2]), dot(&weights.as_slice()[SIZE / 2..]));
    let largest = queue.max(link).max(0.0);
    let (queue, link, host) = ((queue - largest).exp(), (link - largest).exp(), (-largest).exp());
    [queue / (queue + link + host), link / (queue + link + host)]
}

/// Mean log-loss plus ridge penalty.
fn cost(examples: &[Example], standardised: &[[f64; SIZE / 2]], weights: &Vector) -> f64 {
    let losses = examples.iter().zip(standardised).map(|(example, features)| {
        let [queue, link] = probabilities(features, weights);
        let likelihood = match example.class {
            Class::Host => 1.0 - queue - link,
            Class::Queue => queue,
            Class::Link => link,
        };
        -example.weight * likelihood.max(f64::MIN_POSITIVE).ln()
    });
    let ridge: f64 = (0..SIZE / 2)
        .map(|at| (weights[at], weights[SIZE / 2 + at]))
        .map(|(queue, link)| queue * queue + link * link - queue * link)
        .sum();
    losses.sum::<f64>() + RIDGE / 3.0 * ridge
}

/// Inverse Hessian times gradient. Because of the ridge penalty, the inverse exists if all examples
/// are finite.
fn newton_step(examples: &[Example], standardised: &[[f64; SIZE / 2]], weights: &Vector) -> Option<Vector> {
    let mut gradient = Vector::zeros();
    let mut hessian = Matrix::zeros();
    let half = SIZE / 2;
    for (example, features) in examples.iter().zip(standardised) {
        let p = probabilities(features, weights);
        let is = [Class::Queue, Class::Link].map(|class| f64::from(u8::from(example.class == class)));
        for a in 0..2 {
            for row in 0..half {
                let by_row = example.weight * features[row];
                gradient[a * half + row] += by_row * (p[a] - is[a]);
                for b in 0..=a {
                    let curve = by_row * p[a] * (f64::from(u8::from(a == b)) - p[b]);
                    for column in 0..half {
                        hessian[(a * half + row, b * half + column)] += curve * features[column];
                    }
                }
            }
        }
    }
    // The ridge penalises the three classes' weights around their mean, so that no class is
    // favoured.
    for at in 0..half {
        let (queue, link) = (weights[at], weights[half + at]);
        gradient[at] += RIDGE / 3.0 * (2.0 * queue - link);
        gradient[half + at] += RIDGE / 3.0 * (2.0 * link - queue);
        hessian[(at, at)] += RIDGE / 3.0 * 2.0;
        hessian[(half + at, half + at)] += RIDGE / 3.0 * 2.0;
        hessian[(half + at, at)] -= RIDGE / 3.0;
    }
    // `cholesky` reads the lower triangle only.
    Some(hessian.cholesky()?.solve(&gradient))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_fitted_optimum_has_gradient_0_and_separates_the_classes() {
        let examples: Vec<_> = (0..90)
            .map(|index| {
                let class = [Class::Host, Class::Queue, Class::Link][index % 3];
                let mut features = [0.0; FEATURES.len()];
                // The classes overlap, and differ in two features.
                features[0] = (index % 7) as f64 + if class == Class::Host { 4.0 } else { 0.0 };
                features[12] = (index % 5) as f64 + if class == Class::Queue { 3.0 } else { 0.0 };
                Example { features, class, weight: 1.0 / 90.0 }
            })
            .collect();
        let kinds = EvidenceKinds { has_burst: false, has_delay: true };
        let odds = fit_odds(&examples, kinds);
        assert!(odds.terms[0].queue < 0.0 && odds.terms[0].link < 0.0 && odds.terms[12].queue > 0.0);
        assert_eq!(odds.terms[10], FeatureWeight::default());
        let scales = scales(&examples, kinds);
        let standardised: Vec<_> = examples.iter().map(|example| standardise(example, &scales)).collect();
        let mut weights = Vector::zeros();
        for _ in 0..STEPS_MAX {
            weights -= newton_step(&examples, &standardised, &weights).unwrap();
        }
        let best = cost(&examples, &standardised, &weights);
        let near = |at: usize, by: f64| {
            let mut moved = weights;
            moved[at] += by;
            cost(&examples, &standardised, &moved)
        };
        assert!((0..SIZE).all(|at| near(at, 1e-3) > best && near(at, -1e-3) > best));
    }
}
