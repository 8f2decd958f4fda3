//! Response functions: the window that a loss rate allows, and the loss rate that a window implies.

use libm::{exp, log, pow, sqrt};

/// Equation for the window (in packets) that a TCP-like flow would have at a loss event rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFunction {
    /// HighSpeed TCP (RFC 3649 §5): 0.12 / p^0.835 for large windows, and TCP's 1.2 / √p for small
    /// windows.
    HighSpeed,
    /// TCP including its timeouts, as in TFRC (RFC 5348 §3.1).
    Tfrc,
}

impl ResponseFunction {
    /// Window in packets (more than 0) at a loss event rate (0 to 1 per packet); infinite at 0. The
    /// window never grows when the loss event rate grows.
    ///
    /// ```
    /// use barograph_transfer::testkit::controller::ResponseFunction;
    ///
    /// // RFC 3649 §5: 1795 packets at a loss in 100 000.
    /// assert_eq!(ResponseFunction::HighSpeed.window(1e-5).round(), 1795.0);
    /// ```
    pub fn window(self, rate: f64) -> f64 {
        let rate = rate.clamp(0.0, 1.0);
        match self {
            // The curves cross at 37.3 packets, which RFC 3649 §5 rounds to a `Low_Window` of 38.
            // The maximum of the two curves has no step at the crossing.
            Self::HighSpeed => highspeed(rate).max(standard(rate)),
            Self::Tfrc => 1.0 / slowness(rate),
        }
    }

    /// Loss event rate (more than 0, at most 1) that belongs to a window in packets. Inverse of
    /// [`ResponseFunction::window`].
    pub fn rate(self, window: f64) -> f64 {
        let window = if window.is_finite() { window.clamp(WINDOW_MIN, WINDOW_MAX) } else { WINDOW_MAX };
        let rate = match self {
            Self::HighSpeed => {
                let (high, low) = (pow(0.12 / window, 1.0 / 0.835), pow(1.2 / window, 2.0));
                // On both curves, the rate falls when the window grows. So the larger of the two
                // rates is the inverse of the maximum of the curves.
                high.max(low)
            }
            Self::Tfrc => tfrc_rate(window),
        };
        rate.min(1.0)
    }
}

/// Window of HighSpeed TCP (RFC 3649 §5): 38 packets at a loss rate of 10⁻³, and 83 000 packets at
/// 10⁻⁷.
fn highspeed(rate: f64) -> f64 {
    0.12 / pow(rate, 0.835)
}

/// Window of TCP without timeouts (RFC 3649 §5).
fn standard(rate: f64) -> f64 {
    1.2 / sqrt(rate)
}

/// Equation of RFC 5348 §3.1, solved for the round trips per packet: s / (R X), with b = 1 and
/// t_RTO = 4 R.
fn slowness(rate: f64) -> f64 {
    sqrt(2.0 * rate / 3.0) + 12.0 * sqrt(3.0 * rate / 8.0) * rate * (1.0 + 32.0 * rate * rate)
}

/// Inverse of TFRC's equation, computed by bisection of the logarithm. The result is more exact
/// than the 5 % that RFC 5348 §6.3.1 requires.
fn tfrc_rate(window: f64) -> f64 {
    // `exp(top)` is the rate of the equation without its second term, or 1 if that rate is higher.
    // The second term only makes the window smaller, and so reduces the rate by less than a factor
    // of e²⁰.
    let top = log((1.5 / (window * window)).min(1.0));
    let (mut from, mut to) = (top - 20.0, top);
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (from + to);
        if slowness(exp(middle)) * window < 1.0 { from = middle } else { to = middle }
    }
    exp(0.5 * (from + to))
}

/// Number of bisections. The bisections halve a range of 20 (of the logarithm) until the rate is
/// exact to a part in 10⁹.
const BISECTIONS: u32 = 34;

/// Lower and upper limit of the windows (packets) that are inverted. Below the lower limit, every
/// rate is 1 (RFC 5348's equation gives 0.0041 packets at a rate of 1). Above the upper limit, loss
/// rates are smaller than on any path (TFRC: 10⁻²³).
const WINDOW_MIN: f64 = 1e-3;
const WINDOW_MAX: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highspeed_has_the_windows_of_rfc_3649() {
        // Rounded values from RFC 3649 §5.
        for (rate, window) in
            [(1e-2, 12.0), (1e-3, 38.0), (1e-4, 263.0), (1e-5, 1795.0), (1e-6, 12_279.0), (1e-7, 83_981.0)]
        {
            let response = ResponseFunction::HighSpeed.window(rate);
            assert!((response / window - 1.0).abs() < 0.011, "{rate}: {response}");
        }
        assert_eq!(ResponseFunction::HighSpeed.window(0.0), f64::INFINITY);
    }

    #[test]
    fn tfrc_matches_a_computation_by_hand() {
        // p = 0.01: √(0.02/3) = 0.081650, 12 √(0.03/8) 0.01 (1 + 0.0032) = 0.0073719: 11.2331
        // packets.
        assert!((ResponseFunction::Tfrc.window(0.01) - 11.2331).abs() < 1e-3);
        // p = 1: 0.816497 + 12 × 0.612372 × 33 = 243.3160.
        assert!((ResponseFunction::Tfrc.window(1.0) * 243.3160 - 1.0).abs() < 1e-5);
        // RFC 5348 §6.3.1: one packet in two round trips, after a loss of the very first packet, is
        // a rate of about 20.64 %.
        assert!(
            (ResponseFunction::Tfrc.rate(0.5) - 0.2064).abs() < 1e-3,
            "{}",
            ResponseFunction::Tfrc.rate(0.5)
        );
    }

    #[test]
    fn rates_and_windows_are_inverse() {
        for response in [ResponseFunction::HighSpeed, ResponseFunction::Tfrc] {
            for window in [1.3, 3.0, 30.0, 37.0, 37.5, 38.0, 39.0, 1e3, 1e5, 1e7] {
                let back = response.window(response.rate(window));
                assert!((back / window - 1.0).abs() < 1e-6, "{response:?} {window} {back}");
            }
            for window in [0.0, -1.0, 1e-9, 1e300, f64::INFINITY, f64::NAN] {
                let rate = response.rate(window);
                assert!(0.0 < rate && rate <= 1.0, "{response:?} {window} {rate}");
            }
        }
    }
}
