//! Autoregression over 32 lags: recursive least squares in lattice form.

/// The least-squares lattice with a priori errors and error feedback (Haykin, "Adaptive Filter
/// Theory"). It predicts the next input from the last 32 inputs. The cost grows with the number of
/// lags, not with its square.
///
/// Stage *i* has the errors of the best forecast of the newest input from the `i` inputs before it
/// (forward), and of the best estimate of an old input from the `i` inputs after it (backward).
#[derive(Clone, Debug)]
pub(crate) struct LatticeFilter {
    /// Reflection coefficients of the forward and of the backward errors.
    forward: [f64; LAGS],
    backward: [f64; LAGS],
    /// For each stage, 1 / Σ error², fading.
    inverse_forward: [f64; LAGS],
    inverse_backward: [f64; LAGS],
    /// Backward errors of the newest input.
    errors: [f64; LAGS],
}

/// Number of lags, and of stages.
const LAGS: usize = 32;

impl LatticeFilter {
    pub(crate) fn new() -> Self {
        Self {
            forward: [0.0; LAGS],
            backward: [0.0; LAGS],
            inverse_forward: [INVERSE_MAX; LAGS],
            inverse_backward: [INVERSE_MAX; LAGS],
            errors: [0.0; LAGS],
        }
    }

    /// Learns `input` and predicts the next input. Both are in units of the step scale at their
    /// time.
    pub(crate) fn learn(&mut self, input: f64) -> f64 {
        let shares = self.learn_backward_energy();
        let (forward, backward) = self.errors_of(bounded(input, INPUT_MAX));
        for i in 0..LAGS {
            let inverse = self.inverse_forward[i];
            let energy = shares[i] * forward[i] * forward[i];
            self.inverse_forward[i] = min_of_numbers(inverse / (FORGET + energy * inverse), INVERSE_MAX);
        }
        for i in 0..LAGS {
            let step = shares[i] * self.errors[i] * self.inverse_backward[i];
            let error = bounded(forward[i + 1], ERROR_MAX);
            self.forward[i] = bounded(self.forward[i] - step * error, REFLECTION_MAX);
        }
        for i in 0..LAGS {
            let step = shares[i] * forward[i] * self.inverse_forward[i];
            let error = bounded(backward[i + 1], ERROR_MAX);
            self.backward[i] = bounded(self.backward[i] - step * error, REFLECTION_MAX);
        }
        self.errors.copy_from_slice(&backward[..LAGS]);
        -dot(&self.forward, &self.errors)
    }

    /// Adds the last backward errors to their energies. Returns the conversion factor of each
    /// stage: its error after learning, divided by its error before.
    fn learn_backward_energy(&mut self) -> [f64; LAGS] {
        let mut inverse_shares = [1.0; LAGS + 1];
        let mut relative = [0.0; LAGS];
        let stages = self.errors.iter().zip(&mut self.inverse_backward);
        for (relative, (error, inverse)) in relative.iter_mut().zip(stages) {
            *inverse *= 1.0 / FORGET;
            *relative = error * error * *inverse;
        }
        for i in 0..LAGS {
            inverse_shares[i + 1] = inverse_shares[i] + relative[i];
        }
        let shares = inverse_shares.map(|inverse| 1.0 / inverse);
        for i in 0..LAGS {
            let inverse = self.inverse_backward[i] * (inverse_shares[i] * shares[i + 1]);
            self.inverse_backward[i] = min_of_numbers(inverse, INVERSE_MAX);
        }
        core::array::from_fn(|i| shares[i])
    }

    /// Forward and backward errors of `input` in all stages, before learning.
    fn errors_of(&self, input: f64) -> ([f64; LAGS + 1], [f64; LAGS + 1]) {
        let (mut forward, mut backward) = ([input; LAGS + 1], [input; LAGS + 1]);
        for i in 0..LAGS {
            forward[i + 1] = forward[i] + self.forward[i] * self.errors[i];
        }
        for i in 0..LAGS {
            backward[i + 1] = self.errors[i] + self.backward[i] * forward[i];
        }
        (forward, backward)
    }
}

/// Limits `value` to the range from −`most` to `most`.
fn bounded(value: f64, most: f64) -> f64 {
    let value = if value < most { value } else { most };
    if -most < value { value } else { -most }
}

fn min_of_numbers(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// Dot product in four fixed lanes: fast, and equal to the bit on every target.
fn dot(a: &[f64; LAGS], b: &[f64; LAGS]) -> f64 {
    let mut lanes = [0.0; 4];
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        for lane in 0..4 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

// Constants of method 9 in `docs/spec/full.md`. Inputs and errors are in step scales.
const FORGET: f64 = 0.999;
const INPUT_MAX: f64 = 10.0;
/// Bound of the errors that change the reflection coefficients, so that an outlier changes them
/// little (Huber 1964).
const ERROR_MAX: f64 = 3.0;
/// Greatest inverse energy. The first inputs, and the first ones after a plateau, change the
/// coefficients little: a coefficient learned from a few inputs is mostly chance.
const INVERSE_MAX: f64 = 1.0 / 10.0;
/// Bound of the reflection coefficients. In theory the product of both coefficients of a stage is
/// below 1. With the bound, an error is at most 10 · 5³², so that no square of it overflows.
const REFLECTION_MAX: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniform noise between −1 and 1 from a fixed generator (Knuth's MMIX).
    fn noise() -> impl FnMut() -> f64 {
        let mut state = 7_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        }
    }

    #[test]
    fn a_long_autoregression_is_learned() {
        let (mut filter, mut noise) = (LatticeFilter::new(), noise());
        let (mut inputs, mut errors, mut noises) = (alloc::vec![0.0; 32], 0.0, 0.0);
        for now in 32..6000 {
            let surprise = noise();
            let input = 0.5 * inputs[now - 1] - 0.4 * inputs[now - 25] + surprise;
            inputs.push(input);
            let predicted = filter.learn(input);
            if now > 3000 {
                let next = 0.5 * inputs[now] - 0.4 * inputs[now - 24];
                errors += (predicted - next) * (predicted - next);
                noises += surprise * surprise;
            }
        }
        assert!(errors < 0.1 * noises, "{errors} {noises}");
    }

    #[test]
    fn all_numbers_stay_finite_and_plateaus_reach_zero() {
        let (mut filter, mut noise) = (LatticeFilter::new(), noise());
        for i in 0..200_000_u32 {
            let input = match i / 1000 % 5 {
                0 => noise(),
                1 => 0.0,
                2 => 1e300,
                3 => {
                    if i % 2 == 0 {
                        1e300
                    } else {
                        -1e300
                    }
                }
                _ => {
                    if i % 97 == 0 {
                        -1e300
                    } else {
                        1e-300 * noise()
                    }
                }
            };
            let predicted = filter.learn(input);
            assert!(predicted.is_finite(), "{i}");
            assert!(i / 1000 % 5 != 1 || i % 1000 < 40 || predicted == 0.0, "{i}: {predicted}");
        }
        assert!(filter.forward.iter().chain(&filter.backward).all(|c| c.abs() <= REFLECTION_MAX));
    }
}
