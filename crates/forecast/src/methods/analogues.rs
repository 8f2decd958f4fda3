//! Analogues: past moments at which the last values resembled the newest values (Lorenz 1969). The
//! forecast follows what came after these moments.

/// Compares the newest values with the values that are `lag` older, for every lag.
///
/// All sums are `f32` in eight fixed lanes: fast, and equal to the bit on every target.
#[derive(Clone, Debug)]
pub(crate) struct Analogues {
    /// Values minus `anchor`: the newest value is at `start`, older values come after it. The part
    /// in use moves down by one slot for each value, so all lags are one slice.
    history: [f32; HISTORY],
    start: usize,
    anchor: f64,
    /// Number of lags for which there is a value.
    lags: usize,
    /// For each lag, the distances between newest and older values: sums of squared differences in
    /// step scales, which fade, plus a constant. Infinite for a lag without a value.
    distances: [[f32; LAGS]; 2],
}

/// What followed the similar moments, as a step from the newest value, in the series' unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AnalogueSteps {
    /// Step to the mean of the values that came next.
    pub(crate) to_values: f64,
    /// Mean of the steps that came next.
    pub(crate) of_steps: f64,
}

impl Analogues {
    pub(crate) fn new() -> Self {
        Self {
            history: [0.0; HISTORY],
            start: HISTORY,
            anchor: 0.0,
            lags: 0,
            distances: [[f32::INFINITY; LAGS]; 2],
        }
    }

    /// Learns `value`; `scale` is the step scale, in the unit of the values.
    pub(crate) fn learn(&mut self, value: f64, scale: f64) -> AnalogueSteps {
        let is_first = self.start == HISTORY;
        self.push(value, scale);
        if is_first {
            return AnalogueSteps::default();
        }
        if self.lags < LAGS {
            self.distances.iter_mut().zip(FLOORS).for_each(|(distances, floor)| distances[self.lags] = floor);
            self.lags += 1;
        }
        let inverse = (1.0 / scale).clamp(1.0 / OFFSET_MAX, OFFSET_MAX) as f32;
        self.update_distances(inverse);
        if self.lags < LAGS_MIN { AnalogueSteps::default() } else { self.weighted_steps() }
    }

    fn push(&mut self, value: f64, scale: f64) {
        if self.start == HISTORY {
            self.anchor = value;
        }
        if self.start == 0 || self.start == HISTORY {
            self.history.copy_within(..=LAGS, HISTORY - LAGS - 1);
            self.start = HISTORY - LAGS - 1;
        }
        if (value - self.anchor).abs() > ANCHOR_DISTANCE_MAX * scale {
            let moved = offset(value - self.anchor);
            self.anchor = value;
            self.history.iter_mut().for_each(|old| *old -= moved);
        }
        self.start -= 1;
        self.history[self.start] = offset(value - self.anchor);
    }

    /// Adds the newest value to the distances of all lags.
    fn update_distances(&mut self, inverse: f32) {
        let recent = &self.history[self.start..self.start + LAGS + 1];
        let (newest, older) = (recent[0], &recent[1..]);
        let [values, steps] = &mut self.distances;
        for i in 0..LAGS {
            let difference = (older[i] - newest) * inverse;
            let square = min_of_numbers(difference * difference, SQUARE_MAX);
            values[i] = FADES[0] * values[i] + (square + FLOORS[0] * (1.0 - FADES[0]));
            steps[i] = FADES[1] * steps[i] + (square + FLOORS[1] * (1.0 - FADES[1]));
        }
    }

    /// Averages what followed each lag.
    fn weighted_steps(&self) -> AnalogueSteps {
        let recent = &self.history[self.start..self.start + LAGS + 1];
        let (next, moments) = (&recent[..LAGS], &recent[1..=LAGS]);
        let [values, steps] = &self.distances;
        AnalogueSteps {
            to_values: mean_of_values(values, next, recent[0]),
            of_steps: mean_of_steps(steps, next, moments),
        }
    }
}

/// Weighted mean of the values `next`, minus the newest value.
fn mean_of_values(distances: &[f32; LAGS], next: &[f32], newest: f32) -> f64 {
    let weights = weights(distances);
    let mut steps = [0.0; LAGS];
    for i in 0..LAGS {
        steps[i] = weights[i] * (next[i] - newest);
    }
    f64::from(sum_in_lanes(&steps) / sum_in_lanes(&weights))
}

/// Weighted mean of the steps from the values `moments` to the values `next`.
fn mean_of_steps(distances: &[f32; LAGS], next: &[f32], moments: &[f32]) -> f64 {
    let weights = weights(distances);
    let mut steps = [0.0; LAGS];
    for i in 0..LAGS {
        steps[i] = weights[i] * (next[i] - moments[i]);
    }
    f64::from(sum_in_lanes(&steps) / sum_in_lanes(&weights))
}

/// Weights of lags: max(0, 1 − distance / (3 · least distance))².
fn weights(distances: &[f32; LAGS]) -> [f32; LAGS] {
    let mut least = [f32::INFINITY; LANES];
    for distances in distances.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            least[lane] = min_of_numbers(distances[lane], least[lane]);
        }
    }
    let inverse = 1.0 / (REACH * reduce(least, min_of_numbers));
    let mut weights = [0.0; LAGS];
    for (weight, distance) in weights.iter_mut().zip(distances) {
        let share = 1.0 - distance * inverse;
        let share = if share > 0.0 { share } else { 0.0 };
        *weight = share * share;
    }
    weights
}

fn sum_in_lanes(numbers: &[f32; LAGS]) -> f32 {
    let mut sums = [0.0; LANES];
    for numbers in numbers.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            sums[lane] += numbers[lane];
        }
    }
    reduce(sums, |a, b| a + b)
}

fn offset(difference: f64) -> f32 {
    difference.clamp(-OFFSET_MAX, OFFSET_MAX) as f32
}

/// Combines the lanes in a fixed order.
fn reduce(lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    combine(combine(combine(a, e), combine(c, g)), combine(combine(b, f), combine(d, h)))
}

fn min_of_numbers(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// Number of lags. Memory and time grow with it. With 500 lags instead of 256, the errors on the
/// open traces are only 0.1 to 0.2 % smaller.
const LAGS: usize = 256;
const LANES: usize = 8;
/// Number of lags from which there is a forecast. With fewer, the best match is mostly chance.
const LAGS_MIN: usize = 10;
/// Values of all lags, the newest value, and free slots. All values are copied once in 127 values.
const HISTORY: usize = LAGS + 1 + 127;
// Constants of methods 15 and 16 in `docs/spec/full.md`, in this order.
const FADES: [f32; 2] = [0.25, 0.6];
const FLOORS: [f32; 2] = [0.3, 0.3];
const REACH: f32 = 3.0;
/// Bound of one squared difference, in step scales: one outlier must not hide a lag for long.
const SQUARE_MAX: f32 = 1e4;
/// If the newest value is further than this from the anchor, in step scales, the anchor moves to
/// the value. So an `f32` of a value near the newest value is exact to 1/256 of a step scale.
const ANCHOR_DISTANCE_MAX: f64 = 65_536.0;
/// Bound of offsets from the anchor in the series' unit, and of 1 / step scale. The bound keeps
/// sums of `f32` finite.
const OFFSET_MAX: f64 = 1e30;

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `values` with a step scale of 1, and returns the last steps.
    fn steps_after(values: impl IntoIterator<Item = f64>) -> AnalogueSteps {
        let mut analogues = Analogues::new();
        let mut steps = AnalogueSteps::default();
        for value in values {
            steps = analogues.learn(value, 1.0);
        }
        steps
    }

    #[test]
    fn a_periodic_series_is_continued() {
        for period in [2_u32, 7, 100, 200] {
            let value = |i: u32| f64::from(i % period * 7919 % 1009);
            for end in 2 * period + 20..2 * period + 60 {
                let steps = steps_after((0..=end).map(value));
                let next = value(end + 1) - value(end);
                assert!((steps.to_values - next).abs() < 1e-3, "{period} {end}: {steps:?}, not {next}");
                assert!((steps.of_steps - next).abs() < 1e-3, "{period} {end}: {steps:?}, not {next}");
            }
        }
    }

    #[test]
    fn steps_follow_a_slow_ramp_and_values_lag_behind_it() {
        // The steps 1, 1, 1, −3 on a ramp.
        let level = |i: u32| f64::from(i % 4) + 0.02 * f64::from(i);
        let steps = steps_after((0..200).map(level));
        let next = level(200) - level(199);
        assert!((steps.of_steps - next).abs() < 0.1, "{steps:?}");
        assert!(steps.to_values < next - 0.1, "{steps:?}");
    }

    /// The kernel equals a plain loop over the lags, apart from the rounding of sums.
    #[test]
    fn lanes_compute_what_a_plain_loop_computes() {
        let value = |i: usize| ((i * 7919 + i * i * 31) % 257) as f64 / 16.0;
        let mut analogues = Analogues::new();
        let mut distances = [0.3_f64; LAGS + 1];
        for now in 0..700 {
            let steps = analogues.learn(value(now), 2.0);
            let lags = now.min(LAGS);
            for (lag, distance) in distances.iter_mut().enumerate().take(lags + 1).skip(1) {
                let difference = (value(now) - value(now - lag)) / 2.0;
                *distance = 0.25 * *distance + (difference * difference).min(1e4) + 0.225;
            }
            let least = distances[1..=lags].iter().copied().fold(f64::INFINITY, f64::min);
            let weight = |lag: usize| (1.0 - distances[lag] / (3.0 * least)).max(0.0);
            let (mut sum, mut total) = (0.0, 0.0);
            for lag in 1..=lags {
                sum += weight(lag) * weight(lag) * (value(now + 1 - lag) - value(now));
                total += weight(lag) * weight(lag);
            }
            let expected = if lags < LAGS_MIN { 0.0 } else { sum / total };
            assert!((steps.to_values - expected).abs() < 1e-4, "{now}: {} {expected}", steps.to_values);
        }
    }

    #[test]
    fn extreme_values_and_plateaus_leave_all_numbers_finite() {
        let mut analogues = Analogues::new();
        let values = [0.0, 1e70, -1e70, 1e-300, 5.0, -0.0];
        for i in 0..3000 {
            let value = if (500..2000).contains(&i) { 20.0 } else { values[i * i % values.len()] };
            let scale = [1.0, 1e-300, 1e70, 1e-30][i % 4];
            let steps = analogues.learn(value, scale);
            assert!(steps.to_values.is_finite() && steps.of_steps.is_finite(), "{i}: {steps:?}");
        }
    }

    #[test]
    fn moving_the_anchor_keeps_the_differences() {
        let value = |i: u32| f64::from(i % 5) + if i < 300 { 0.0 } else { 1e6 };
        let steps = steps_after((0..900).map(value));
        assert!((steps.to_values - (value(900) - value(899))).abs() < 0.2, "{steps:?}");
    }
}
