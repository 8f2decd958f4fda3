//! Least-squares fit of sums of exponentials (Levenberg–Marquardt, after Moré 1978).

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt, TerminationReason};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

use crate::paper::ComplexityCurve;

/// Fits a exp(b x). The result includes the standard deviation of y around the curve.
pub(super) fn fit_exponential(points: &[(f64, f64)]) -> Result<ComplexityCurve, &'static str> {
    let (a, b) = log_line(points);
    fit_from(points, [DVector::from_vec(vec![a, b])])
}

/// Fits a exp(b x) + c exp(d x). The result includes the standard deviation of y around the curve.
/// The first term describes high x. The second term decreases to almost 0 within the range of the
/// points. If the points do not determine the second term, the result has the first term only.
pub(super) fn fit_exponentials(points: &[(f64, f64)]) -> Result<ComplexityCurve, &'static str> {
    let mut points = points.to_vec();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (a, b) = log_line(&points[points.len() / 2..]);
    // Initial values for the decay of the second term: it decreases by the factor e at the point
    // after 1, 2, 3 or 6 twelfths of the points. The second term is fitted to the residuals of the
    // first term (curve stripping).
    let starts = [1, 2, 3, 6].map(|part| {
        let d = -1.0 / points[points.len() * part / 12].0.max(f64::MIN_POSITIVE);
        let (mut product, mut squares) = (0.0, 0.0);
        for (x, y) in &points {
            let fading = libm::exp(d * x);
            product += fading * (y - a * libm::exp(b * x));
            squares += fading * fading;
        }
        DVector::from_vec(vec![a, b, product / squares, d])
    });
    fit_from(&points, starts).or_else(|_| fit_exponential(&points))
}

/// Returns the best fit from these starting points, or the reason why there is none.
fn fit_from(
    points: &[(f64, f64)],
    starts: impl IntoIterator<Item = DVector<f64>>,
) -> Result<ComplexityCurve, &'static str> {
    let (mut best, mut least, mut reason) = (None, f64::INFINITY, NOT_FINITE);
    for constants in starts {
        let sum = Exponentials { points, constants };
        let (found, report) = LevenbergMarquardt::new().with_tol(TOLERANCE).minimize(sum);
        // The objective is half the sum of squares.
        let half = report.objective_function;
        let free = points.len().saturating_sub(found.constants.len()).max(1);
        let constant = |index: usize| found.constants.get(index).copied().unwrap_or_default();
        let sd = (2.0 * half / free as f64).sqrt();
        let curve = ComplexityCurve { a: constant(0), b: constant(1), c: constant(2), d: constant(3), sd };
        // If the objective is flat near its minimum, for example because one exponential fits the
        // points, the steps do not converge. Any point of this flat region is equally good.
        let is_valley = matches!(
            report.termination,
            TerminationReason::LostPatience | TerminationReason::NoImprovementPossible(_)
        );
        if !is_valley && !report.termination.was_successful() {
            reason = match report.termination {
                TerminationReason::Numerical(_) => NOT_FINITE,
                _ => "the fit did not converge",
            };
        } else if !(ComplexityCurve { sd: 1.0, ..curve }).is_possible() {
            reason = "the best curve is not finite at all loss rates from 0 to 1";
        } else if half < least {
            (best, least) = (Some(curve), half);
        }
    }
    best.ok_or(reason)
}

/// Fits one exponential to the points, by least squares on the logarithms of their values. Returns
/// the factor and the exponent.
fn log_line(points: &[(f64, f64)]) -> (f64, f64) {
    let logs = || points.iter().filter(|(_, y)| *y > 0.0).map(|(x, y)| (*x, libm::log(*y)));
    let count = logs().count().max(1) as f64;
    let mean_x = logs().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs().map(|(_, y)| y).sum::<f64>() / count;
    let squares: f64 = logs().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let products: f64 = logs().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let slope = if squares > 0.0 { products / squares } else { 0.0 };
    (libm::exp(mean_y - slope * mean_x), slope)
}

/// Parameters, alternately a factor and an exponent, and the points to fit.
struct Exponentials<'a> {
    points: &'a [(f64, f64)],
    constants: DVector<f64>,
}

impl Exponentials<'_> {
    fn terms(&self) -> impl Iterator<Item = (f64, f64)> {
        self.constants.as_slice().chunks_exact(2).map(|pair| (pair[0], pair[1]))
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Exponentials<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, constants: &DVector<f64>) {
        self.constants.copy_from(constants);
    }

    fn params(&self) -> DVector<f64> {
        self.constants.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        let residual = |(x, y): &(f64, f64)| self.terms().map(|(a, b)| a * libm::exp(b * x)).sum::<f64>() - y;
        Some(DVector::from_iterator(self.points.len(), self.points.iter().map(residual)))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let columns = self.terms().flat_map(|(a, b)| {
            let by_factor = self.points.iter().map(move |(x, _)| libm::exp(b * x));
            let by_exponent = self.points.iter().map(move |(x, _)| a * x * libm::exp(b * x));
            by_factor.chain(by_exponent).collect::<Vec<_>>()
        });
        Some(DMatrix::from_iterator(self.points.len(), self.constants.len(), columns))
    }
}

const NOT_FINITE: &str = "the fit met numbers that are not finite";

/// Relative tolerance of the fit. Constants are stored with six digits, so an error of a thousandth
/// of the last digit does not matter.
const TOLERANCE: f64 = 1e-9;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use levenberg_marquardt::differentiate_numerically;

    use super::*;

    /// Points of a curve at the paper's loss rates, with deviations that add up to 0.
    fn points(a: f64, b: f64, c: f64, d: f64, scatter: f64) -> Vec<(f64, f64)> {
        let curve = ComplexityCurve { a, b, c, d, sd: 1.0 };
        (0..400)
            .map(|step| {
                let x = 0.0005 * libm::pow(100.0, f64::from(step / 2) / 199.0);
                (x, curve.at(x).mean + if step % 2 == 0 { scatter } else { -scatter })
            })
            .collect()
    }

    #[test]
    fn fits_recover_the_constants_of_the_curves() {
        let close =
            |one: f64, other: f64| assert!((one - other).abs() <= 1e-3 * other.abs(), "{one} for {other}");
        // Constants similar to the constants of real losses in windows of 10 000 to 100 000
        // packets. One curve decreases, and one curve bends at low loss rates.
        for (a, b, c, d) in [
            (0.469, 5.48, -0.262, -304.0),
            (0.603, 1.59, -0.557, -461.0),
            (0.5, -3.0, 0.2, -80.0),
            (0.4, 0.5, -0.3, -1500.0),
        ] {
            let found = fit_exponentials(&points(a, b, c, d, 0.0)).unwrap();
            for (one, other) in [(found.a, a), (found.b, b), (found.c, c), (found.d, d)] {
                close(one, other);
            }
        }
        let found = fit_exponential(&points(0.305, -0.19, 0.0, 0.0, 0.014)).unwrap();
        close(found.a, 0.305);
        assert!((found.sd - 0.014).abs() < 0.0002 && (found.b + 0.19).abs() < 0.02, "{found:?}");
        let found = fit_exponentials(&points(0.469, 5.48, -0.262, -304.0, 0.05)).unwrap();
        let truth = ComplexityCurve { a: 0.469, b: 5.48, c: -0.262, d: -304.0, sd: 0.05 };
        for rate in [0.0005, 0.001, 0.003, 0.01, 0.05] {
            assert!((found.at(rate).mean - truth.at(rate).mean).abs() < 0.005, "{found:?} at {rate}");
        }
    }

    #[test]
    fn the_jacobian_equals_the_numerical_derivative_of_the_residuals() {
        let points = [(0.0005, 0.3), (0.002, 0.4), (0.01, 0.4), (0.05, 0.6)];
        let mut sum =
            Exponentials { points: &points, constants: DVector::from_vec(vec![0.5, 4.0, -0.3, -200.0]) };
        let numerical = differentiate_numerically(&mut sum).unwrap();
        let ours = sum.jacobian().unwrap();
        assert!((numerical - ours).abs().max() < 1e-5);
    }

    #[test]
    fn points_without_a_curve_give_an_error_or_a_flat_curve() {
        for value in [0.0, 0.3, f64::NAN, f64::INFINITY, 1e300] {
            let flat: Vec<_> = (0..20).map(|_| (0.01, value)).collect();
            for found in [fit_exponential(&flat), fit_exponentials(&flat)] {
                assert!(
                    found.is_err() || found.is_ok_and(|curve| (curve.at(0.01).mean - value).abs() < 1e-6),
                    "{value}"
                );
            }
        }
    }
}
