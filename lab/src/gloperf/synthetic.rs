//! A bandwidth series of the length of the paper's long trace, made from a seed: SYNTHETIC, no measurement.

use std::f64::consts::TAU;

use barograph_sim::Chance;
use barograph_study::tradeoff::Grid;

/// A series of 28.8 days at 300 s in Mbit/s: level shifts × daily cycle × slow and fast noise × dips, with outages.
///
/// The paper's trace "contained 69751 high-frequency tests over a 28.8 day period", subsampled to "7163 tests at a
/// test period of 300 seconds over the same 28.8 days" (§4). 28.8 days have [`SLOTS`] periods of 300 s, so 1131 of
/// them have no test; here seeded outages leave exactly as many blank. `daily` multiplies the daily cycle's depth.
pub(crate) fn series(seed: u64, daily: f64) -> Grid {
    // A stream for each ingredient, so that one can be changed without the others.
    let [mut shifts, mut slow, mut fast, mut dips, mut outages] =
        [1, 2, 3, 4, 5].map(|stream| Chance::new(seed, stream));
    let (mut level, mut shift_at) = (LEVEL_MBPS, shifts.exponential(SHIFT_EVERY));
    let (mut state, mut dip, mut dip_left) = (0.0, 1.0, 0_u32);
    let mut values = Vec::with_capacity(SLOTS);
    for slot in 0..SLOTS {
        if shift_at <= slot as f64 {
            level = LEVEL_MBPS * (SHIFT_SIZE * shifts.normal()).exp();
            shift_at += shifts.exponential(SHIFT_EVERY);
        }
        let hour = TAU * (slot as f64 / SLOTS_A_DAY as f64 - BUSIEST_DAY);
        let cycle = 1.0 - daily * DAILY_DEPTH * (1.0 + hour.cos()) / 2.0;
        state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * slow.normal();
        let noise = (SLOW_NOISE * state + FAST_NOISE * fast.normal()).exp();
        if dip_left == 0 {
            dip = 1.0;
            if dips.happens(DIP_CHANCE) {
                dip_left = 1 + dips.exponential(DIP_SLOTS) as u32;
                dip = 1.0 / (1.0 + dips.pareto(DIP_SHAPE));
            }
        }
        dip_left = dip_left.saturating_sub(1);
        values.push(Some(level * cycle.max(0.0) * noise * dip));
    }
    let mut blank = 0;
    while blank < SLOTS - TESTS {
        let (from, length) = (outages.below(SLOTS), 1 + outages.exponential(OUTAGE_SLOTS) as usize);
        // The ends stay, so that the series is as long as the paper's.
        for slot in values.iter_mut().take(SLOTS - 1).skip(from.max(1)).take(length) {
            if blank < SLOTS - TESTS && slot.take().is_some() {
                blank += 1;
            }
        }
    }
    Grid { base_s: 300.0, slots: values, crowded: 0 }
}

/// 28.8 days of periods of 300 s, and the paper's tests in them.
pub(crate) const SLOTS: usize = 8294;
pub(crate) const TESTS: usize = 7163;

/// Periods of 300 s.
pub(crate) const SLOTS_A_DAY: usize = 288;

/// Errors are shares of the mean, so that any level would do; this one is near what a path of 1999 carried.
const LEVEL_MBPS: f64 = 5.0;

/// Three days between shifts: routes that change do so after days rather than hours (Paxson, "End-to-End Routing
/// Behavior in the Internet", 1997, found two thirds of paths with a route that persisted for days or weeks). A path
/// that replaces another differs by a fifth or so: enough to be a shift, too little to be another kind of link.
const SHIFT_EVERY: f64 = 3.0 * SLOTS_A_DAY as f64;
const SHIFT_SIZE: f64 = 0.2;

/// A quarter less in the busiest hour, in the afternoon, than in the quietest: a shared link of working people.
const DAILY_DEPTH: f64 = 0.25;
const BUSIEST_DAY: f64 = 15.0 / 24.0;

/// Queues and flows of others come and go within the hour (0.92 per 300 s is e⁻¹ after an hour); the share that one
/// test catches of them is as large again.
const MEMORY: f64 = 0.92;
const SLOW_NOISE: f64 = 0.1;
const FAST_NOISE: f64 = 0.1;

/// One period in fifty begins a dip of some ten minutes. Its depth has the tail of a Lomax number of shape 2: half of
/// the dips cost over 29 %, one in a hundred over 90 %.
const DIP_CHANCE: f64 = 0.02;
const DIP_SLOTS: f64 = 2.0;
const DIP_SHAPE: f64 = 2.0;

/// A host that is down is down for hours.
const OUTAGE_SLOTS: f64 = 36.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_as_long_and_as_full_as_the_papers() {
        let grid = series(1, 1.0);
        assert_eq!((grid.slots.len(), grid.values().count(), grid.blanks()), (SLOTS, TESTS, SLOTS - TESTS));
        assert!(grid.values().all(|value| value.is_finite() && 0.0 < value));
        assert_eq!(grid, series(1, 1.0), "the same seed gives the same series");
        assert_ne!(grid, series(2, 1.0));
        // The daily cycle alone differs, outages and everything else stay.
        let flat = series(1, 0.0);
        let ratios: Vec<f64> =
            grid.values().zip(flat.values()).map(|(with, without)| with / without).collect();
        assert!(ratios.iter().all(|ratio| (1.0 - DAILY_DEPTH - 1e-12..=1.0 + 1e-12).contains(ratio)));
    }
}
