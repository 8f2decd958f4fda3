//! The direct-execution simulation of Dickens §4.1.1: real windows of a physical transfer drive the window of a virtual one.

use barograph_loss::Gap;
use barograph_sim::Chance;
use barograph_transfer::testkit::controller::{Response, response};

use super::estimator::Estimator;
use crate::stats::range;

/// The virtual path.
pub(crate) struct Path {
    pub(crate) ceiling_bit_s: f64,
    pub(crate) round_trip_s: f64,
    pub(crate) payload_bytes: f64,
    /// Of UDP, IP and Ethernet.
    pub(crate) header_bytes: f64,
}

impl Path {
    /// The largest window (packets): what the path carries in a round trip.
    pub(crate) fn ceiling_packets(&self) -> f64 {
        self.ceiling_bit_s * self.round_trip_s / 8.0 / (self.payload_bytes + self.header_bytes)
    }

    /// The next window (packets) after one of `window`, at this rate of loss.
    pub(crate) fn response(&self, window: f64, rate: f64) -> f64 {
        // At a rate of 0 it is infinite.
        response::papers(window, rate).clamp(1.0, self.ceiling_packets())
    }

    /// The rate of loss at which the response is this window (packets).
    pub(crate) fn rate_at(&self, window: f64) -> f64 {
        Response::HighSpeed.rate(window)
    }

    /// Payload over time (bit/s), when these are the gaps of one physical window after the other that the sender takes for the
    /// network's, none where it was told otherwise. A virtual window takes one round trip.
    pub(crate) fn throughput_bit_s<'a>(
        &self,
        windows: impl IntoIterator<Item = &'a [Gap]>,
        estimator: &mut dyn Estimator,
    ) -> f64 {
        let (mut packets, mut round_trips, mut window) = (0.0, 0u32, self.ceiling_packets());
        for gaps in windows {
            packets += window;
            round_trips += 1;
            estimator.window(PACKETS, gaps);
            window = self.response(window, estimator.rate());
        }
        packets * self.payload_bytes * 8.0 / (f64::from(round_trips.max(1)) * self.round_trip_s)
    }
}

/// Packets of a physical window: "the physical transmission window was 100 MB", in packets of 1024 bytes.
pub(crate) const PACKETS: u32 = 100_000;

/// Weights, 1 in all, with which these rates have that mean, and that differ from equal ones as little as possible (exponential
/// tilting); `None` where no weights have it.
pub(crate) fn tilt(rates: &[f64], mean: f64) -> Option<Vec<f64>> {
    let (low, high) = range(rates.iter().copied());
    if !(low < mean && mean < high) {
        return None;
    }
    let weights = |slope: f64| -> Vec<f64> {
        // The largest exponent is 0, so that nothing overflows.
        let top = if 0.0 < slope { high } else { low };
        let raw: Vec<f64> = rates.iter().map(|rate| (slope * (rate - top)).exp()).collect();
        let all: f64 = raw.iter().sum();
        raw.into_iter().map(|weight| weight / all).collect()
    };
    let mean_of =
        |weights: &[f64]| -> f64 { weights.iter().zip(rates).map(|(weight, rate)| weight * rate).sum() };
    let bound = SLOPE_MAX / (high - low);
    let (mut from, mut to) = (-bound, bound);
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (from + to);
        if mean_of(&weights(middle)) < mean { from = middle } else { to = middle }
    }
    Some(weights(0.5 * (from + to)))
}

/// Beyond it all weight is on one window.
const SLOPE_MAX: f64 = 1000.0;

/// As many as halve the slopes' range to less than an `f64` tells apart.
const BISECTIONS: u32 = 70;

/// So many windows, of which so many have losses, at places drawn by lot: which of the pool each is, drawn by weight.
pub(crate) fn draw(weights: &[f64], windows: usize, lossy: usize, chance: &mut Chance) -> Vec<Option<usize>> {
    let mut left = lossy;
    (0..windows)
        .map(|place| {
            // Selection sampling (Knuth, TAOCP 2, §3.4.2, algorithm S) has exactly so many.
            if left as f64 <= (windows - place) as f64 * chance.uniform() {
                return None;
            }
            left -= 1;
            let mut rest = chance.uniform();
            let found = weights.iter().position(|weight| {
                rest -= weight;
                rest < 0.0
            });
            // Weights that add up to a hair less than 1 leave the last.
            Some(found.unwrap_or(weights.len().saturating_sub(1)))
        })
        .collect()
}

/// Which places have the `count` lossy windows with the lowest rates: where the paper's classifier failed, most of all.
pub(crate) fn lowest(drawn: &[Option<usize>], rates: &[f64], count: usize) -> Vec<bool> {
    let mut places: Vec<(f64, usize)> = drawn
        .iter()
        .enumerate()
        .filter_map(|(place, window)| window.map(|window| (rates[window], place)))
        .collect();
    places.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let mut chosen = vec![false; drawn.len()];
    for (_, place) in places.into_iter().take(count) {
        chosen[place] = true;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::estimator::Cumulative;
    use super::*;

    const PATH: Path =
        Path { ceiling_bit_s: 10e9, round_trip_s: 0.065, payload_bytes: 1024.0, header_bytes: 42.0 };

    #[test]
    fn the_response_is_of_the_window_before_and_within_what_the_path_carries() {
        let response = PATH.response(1e4, 1e-5);
        assert!((response / 1795.0 - 1.0).abs() < 0.005, "{response}");
        assert!((PATH.rate_at(response) / 1e-5 - 1.0).abs() < 1e-9);
        assert!((PATH.response(30.0, 0.01) - 12.0).abs() < 1e-9);
        assert_eq!((PATH.response(100.0, 0.0), PATH.response(1.0, 4.0)), (PATH.ceiling_packets(), 1.0));
    }

    #[test]
    fn throughput_is_as_computed_by_hand() {
        // One loss of a million: 1e-5 after the first window, half of it after the second.
        let path = Path { ceiling_bit_s: 8e6, round_trip_s: 1.0, payload_bytes: 900.0, header_bytes: 100.0 };
        assert_eq!(path.ceiling_packets(), 1000.0);
        let lossy: &[Gap] = &[Gap { received: 5, lost: 100 }];
        let free: &[Gap] = &[];
        let reached = path.throughput_bit_s([lossy, free, free], &mut Cumulative::default());
        let windows = 1000.0 + 0.12 / 1e-3f64.powf(0.835) + 0.12 / 5e-4f64.powf(0.835);
        assert!((reached / (windows * 7200.0 / 3.0) - 1.0).abs() < 1e-12);
        let none = path.throughput_bit_s([free; 4], &mut Cumulative::default());
        assert_eq!(none, 1000.0 * 900.0 * 8.0);
        assert_eq!(path.throughput_bit_s([], &mut Cumulative::default()), 0.0);
    }

    #[test]
    fn tilted_weights_have_the_mean_asked_for() {
        let rates = [0.001, 0.002, 0.004, 0.03];
        for mean in [0.0011, 0.005, 0.009, 0.029] {
            let weights = tilt(&rates, mean).unwrap();
            let has: f64 = weights.iter().zip(rates).map(|(weight, rate)| weight * rate).sum();
            assert!((has - mean).abs() < 1e-9, "{has} {mean}");
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        let equal = tilt(&rates, rates.iter().sum::<f64>() / 4.0).unwrap();
        assert!(equal.iter().all(|weight| (weight - 0.25).abs() < 1e-6), "{equal:?}");
        assert!(tilt(&rates, 0.03).is_none() && tilt(&rates, 0.0).is_none() && tilt(&[], 0.1).is_none());
    }

    #[test]
    fn as_many_windows_are_lossy_as_asked_for_and_each_by_its_weight() {
        let drawn = draw(&[0.75, 0.25, 0.0], 16_000, 1000, &mut Chance::new(3, 0));
        assert_eq!(drawn, draw(&[0.75, 0.25, 0.0], 16_000, 1000, &mut Chance::new(3, 0)));
        let count = |which| drawn.iter().filter(|window| **window == which).count();
        assert_eq!((count(None), count(Some(2))), (15_000, 0));
        assert!((200..300).contains(&count(Some(1))), "{}", count(Some(1)));
        let first_half = drawn[..8000].iter().flatten().count();
        assert!((430..570).contains(&first_half), "{first_half}");
    }

    #[test]
    fn the_lowest_rates_are_chosen() {
        let drawn = [Some(1), None, Some(0), Some(1), Some(2)];
        assert_eq!(lowest(&drawn, &[0.2, 0.1, 0.3], 3), [true, false, true, true, false]);
        assert_eq!(lowest(&drawn, &[0.2, 0.1, 0.3], 9).iter().filter(|chosen| **chosen).count(), 4);
    }
}
