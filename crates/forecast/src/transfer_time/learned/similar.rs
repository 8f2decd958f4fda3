//! Errors of past transfers, weighted by how similar the state was in which they began.

use alloc::vec::Vec;

/// Levels of the tracked quantiles.
pub(super) const LEVELS: [f64; 11] = [0.01, 0.03, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.99];
/// Position of the median.
pub(super) const MEDIAN: usize = 5;

/// State of a series when a transfer begins, all in logarithms: rates over shorter and over longer
/// times than the transfer's relative to its forecast, and the size of changes.
pub(super) type Features = [f32; 3];

/// Errors of the newest transfers of one amount that were kept.
#[derive(Clone, Debug, Default)]
pub(super) struct SimilarErrors {
    /// In ascending order of the errors.
    entries: Vec<Entry>,
    pushed: u32,
}

/// Room for numbers of the entries, so that reading quantiles allocates nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    distances: Vec<f32>,
    values: Vec<f32>,
}

impl Scratch {
    pub(super) fn heap_bytes(&self) -> usize {
        (self.distances.capacity() + self.values.capacity()) * size_of::<f32>()
    }
}

/// A transfer that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Logarithm of the real time ÷ forecast time.
    pub(super) error: f32,
    /// Number of values for which the transfer stands.
    pub(super) values: f32,
    /// Number of values that the transfer took.
    pub(super) steps: f32,
    pub(super) features: Features,
    /// Serial number, ascending in the order of arrival.
    pub(super) serial: u32,
}

impl SimilarErrors {
    pub(super) fn push(&mut self, entry: Entry) {
        if self.entries.len() == ENTRIES_MAX
            && let Some((oldest, _)) = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.serial)
        {
            self.entries.remove(oldest);
        }
        self.pushed = self.pushed.saturating_add(1);
        let at = self.entries.partition_point(|other| other.error < entry.error);
        self.entries.insert(at, Entry { serial: self.pushed, ..entry });
    }

    /// Quantiles at [`LEVELS`] of the errors of transfers that began in a similar state, and of the
    /// ends `prior`, which count as [`PRIOR_TRANSFERS`].
    pub(super) fn quantiles(
        &self,
        features: &Features,
        prior: &[f64; LEVELS.len()],
        scratch: &mut Scratch,
    ) -> [f64; LEVELS.len()] {
        let Scratch { distances, values } = scratch;
        distances.clear();
        distances.extend(self.entries.iter().map(|entry| distance(&entry.features, features)));
        values.clear();
        values.extend(self.entries.iter().map(|entry| entry.values));
        let total = lane_sum(values.len(), |at| values[at]);
        let steps = lane_sum(values.len(), |at| values[at] * self.entries[at].steps);
        let steps = if 0.0 < total { steps / total } else { 1.0 };
        let bandwidth = bandwidth(distances, values, total, SIMILAR_TRANSFERS * steps);
        for (weight, values) in distances.iter_mut().zip(values.iter()) {
            let relative = *weight / bandwidth;
            *weight = values / (1.0 + relative * relative);
        }
        let weights: &[f32] = distances;
        let prior_weight = PRIOR_TRANSFERS * f64::from(steps) / LEVELS.len() as f64;
        let total = f64::from(lane_sum(weights.len(), |at| weights[at])) + prior_weight * LEVELS.len() as f64;
        let errors = self.entries.iter().zip(weights);
        let errors = errors.map(|(entry, weight)| (f64::from(entry.error), f64::from(*weight)));
        quantiles(errors, prior, prior_weight, total)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// The distance within which the transfers stand for `needed` of the `total` values; if all of them
/// stand for fewer, the largest distance times the square of `needed` ÷ `total`, at most a million
/// times.
fn bandwidth(distances: &[f32], values: &[f32], total: f32, needed: f32) -> f32 {
    let largest = distances.iter().copied().fold(DISTANCE_MIN, f32::max);
    if total <= needed {
        let lack = (needed / total).min(1e3);
        return largest * (lack * lack);
    }
    let (mut near, mut far) = (DISTANCE_MIN, largest);
    for _ in 0..BISECTIONS {
        // Distances differ by orders of magnitude: halve the logarithms.
        let middle = libm::sqrtf(near * far);
        let within = lane_sum(values.len(), |at| if distances[at] <= middle { values[at] } else { 0.0 });
        if within < needed {
            near = middle;
        } else {
            far = middle;
        }
    }
    far
}

/// The sum of `number(0)` to `number(len - 1)`, in eight sums side by side: one sum would wait for
/// each addition. The order is always the same, and so are the bits.
fn lane_sum(len: usize, number: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    for first in (0..len - len % LANES).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += number(first + lane);
        }
    }
    let rest = (len - len % LANES..len).map(number).sum::<f32>();
    lanes.iter().sum::<f32>() + rest
}

/// Squared distance of two states.
fn distance(a: &Features, b: &Features) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Quantiles of weighted errors, in ascending order, and of the `prior`, of which each end has the
/// weight `prior_weight`; linear between the middles of the weights. `total` is the sum of weights.
fn quantiles(
    errors: impl Iterator<Item = (f64, f64)>,
    prior: &[f64; LEVELS.len()],
    prior_weight: f64,
    total: f64,
) -> [f64; LEVELS.len()] {
    let (mut errors, mut prior) = (errors.peekable(), prior.iter().copied().peekable());
    let (mut levels, mut ends) = (LEVELS.iter().zip(0..).peekable(), [0.0; LEVELS.len()]);
    let (mut below, mut before) = (0.0, None);
    loop {
        let is_prior = match (errors.peek(), prior.peek()) {
            (Some((error, _)), Some(end)) => end < error,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => break,
        };
        let next = if is_prior { prior.next().map(|end| (end, prior_weight)) } else { errors.next() };
        let Some((error, weight)) = next else { break };
        let middle = below + 0.5 * weight;
        while let Some((_, at)) = levels.next_if(|(level, _)| **level * total <= middle) {
            ends[at] = match before {
                Some((middle_before, _)) if middle <= middle_before => error,
                Some(before) => super::between(before, (middle, error), LEVELS[at] * total),
                None => error,
            };
        }
        before = Some((middle, error));
        below += weight;
    }
    for (_, at) in levels {
        ends[at] = before.map_or(0.0, |(_, error)| error);
    }
    ends
}

/// Largest number of errors that are kept: 14 KB. With 256, intervals were wider by 2 %.
const ENTRIES_MAX: usize = 512;
/// Number of independent transfers that count as similar. With fewer transfers than that in all,
/// they have nearly equal weights.
const SIMILAR_TRANSFERS: f32 = 20.0;
/// Number of transfers that the prior counts as. All of its ends have the same weight, so it is
/// wider than the distribution from which it comes: the extremes of a few transfers are nearer to
/// their median than the true quantiles are.
const PRIOR_TRANSFERS: f64 = 0.7;
/// Squared distance of states that are the same.
const DISTANCE_MIN: f32 = 1e-6;
/// Number of sums side by side.
const LANES: usize = 8;
/// A factor of a million in distance, halved so often, is known to a third of a percent.
const BISECTIONS: u32 = 12;
