//! The paper's bump at two seconds: whether measurements scatter most where a test ends as slow start does.
//!
//! "At two seconds, TCP is in the process of leaving slow start which causes the strata to be spread out wider,
//! producing a higher MAE" (Gloperf §4, a hypothesis). The first part of a long test is a short test, so that one
//! series of long tests tells of every length.

use barograph_probe::stream::Sample;
use barograph_study::tradeoff::{Grid, Predictor};

use super::campaign::{Campaign, LENGTHS_S};
use super::figures::BASE_S;
use crate::stats::{Rank, median, quantile, sorted};
use crate::table::{Table, cells};

/// The median rate in each twentieth of the longest tests: seconds, and bit/s, of the paper's time.
pub(crate) fn within(campaign: &Campaign) -> Vec<(f64, f64)> {
    let part_s = LENGTHS_S[LONGEST] / PARTS as f64;
    let part = |part: usize| {
        let edges = [part, part + 1].map(|edge| edge as f64 * part_s);
        let rates = campaign.of_length(LONGEST).filter_map(|(_, streamed)| {
            let [from, to] =
                edges.map(|edge_s| acked_bytes(streamed.samples.as_slice(), edge_s / campaign.plan.scale));
            // Bytes of a compressed part over its uncompressed time: the rate of the paper's time.
            Some((to? - from?) * 8.0 / part_s)
        });
        Some(((part as f64 + 0.5) * part_s, median(&rates.collect::<Vec<f64>>())?))
    };
    (0..PARTS).filter_map(part).collect()
}

/// How the goodput of the first so many seconds scatters, and how wrong the last value of it is.
pub(crate) fn table(campaign: &Campaign) -> Table {
    let mut table = Table::new([
        "first",
        "mean Mbit/s",
        "slow start ended before",
        "middle half, % of the median",
        "MAE % last",
    ]);
    for first_s in FIRST_S {
        let compressed_s = first_s / campaign.plan.scale;
        let mut slots = vec![None; campaign.plan.cycles];
        let (mut ended, mut all) = (0_usize, 0_usize);
        for (test, streamed) in campaign.of_length(LONGEST) {
            slots[test.cycle] =
                acked_bytes(streamed.samples.as_slice(), compressed_s).map(|bytes| 8.0 * bytes / first_s);
            all += 1;
            ended += usize::from(streamed.startup_s.is_some_and(|end_s| end_s <= compressed_s));
        }
        let grid = Grid { base_s: BASE_S, slots, crowded: 0 };
        let mae = Predictor::Last.errors(&grid, 1, 0, 0).map_or(f64::NAN, |errors| errors.mae);
        table.push(cells![
            format!("{first_s} s"),
            format!("{:.2}", grid.mean() / 1e6),
            format!("{:.0} %", 100.0 * ended as f64 / all.max(1) as f64),
            format!("{:.1}", middle_half(grid.values()).unwrap_or(f64::NAN)),
            format!("{:.1}", 100.0 * mae / grid.mean()),
        ]);
    }
    table
}

/// The width of the middle half of some values, in % of their median.
pub(crate) fn middle_half(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values = sorted(values);
    let at = |share: f64| quantile(&values, share, Rank::Above);
    Some(100.0 * (at(0.75)? - at(0.25)?) / at(0.5)?)
}

/// What the far end had acknowledged at a time, between the samples around it; `None` after the last.
pub(crate) fn acked_bytes(samples: &[Sample], at_s: f64) -> Option<f64> {
    let after = samples.iter().position(|sample| at_s <= sample.time_s)?;
    let Some(before) = after.checked_sub(1) else { return Some(0.0) };
    let (a, b) = (samples[before], samples[after]);
    let share = (at_s - a.time_s) / (b.time_s - a.time_s).max(f64::MIN_POSITIVE);
    Some(a.acked_bytes as f64 + share * b.acked_bytes.saturating_sub(a.acked_bytes) as f64)
}

/// Tests of 10 s.
const LONGEST: usize = LENGTHS_S.len() - 1;

/// Half a second of the paper's time each.
const PARTS: usize = 20;

/// Around the end of slow start, and the paper's own lengths; the last samples lie a little before the end.
const FIRST_S: [f64; 12] = [0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 9.8];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_samples_are_in_proportion() {
        let sample = |time_s, acked_bytes| Sample {
            time_s,
            acked_bytes,
            rtt_s: None,
            min_rtt_s: None,
            retrans: 0,
            app_limited: false,
        };
        let samples = [sample(0.1, 0), sample(0.3, 1000), sample(0.5, 3000)];
        for (at_s, expected) in
            [(0.0, Some(0.0)), (0.1, Some(0.0)), (0.2, Some(500.0)), (0.45, Some(2500.0)), (0.6, None)]
        {
            let near = |bytes: f64| (bytes * 1e6).round() / 1e6;
            assert_eq!(acked_bytes(&samples, at_s).map(near), expected, "{at_s}");
        }
        assert_eq!(acked_bytes(&[], 0.0), None);
    }
}
