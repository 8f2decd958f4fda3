//! Reads the states of many series, without keeping other threads from the series table.

use std::sync::Mutex;
use std::time::Duration;

use barograph_forecast::SeriesId;

use super::series::{SeriesState, SeriesTable};
use crate::sync::lock;

/// Calls `each` for the states of `series` that still exist. Locks the series table for only
/// [`STATES_PER_LOCK`] states at a time.
pub(crate) fn for_each_state(
    series_table: &Mutex<SeriesTable>,
    series: &[SeriesId],
    mut each: impl FnMut(&SeriesId, &SeriesState),
) {
    for_each(series_table, series, STATES_PER_LOCK, |_, series, state| each(series, state));
}

/// As [`for_each_state`], for an `each` that takes some hundred microseconds. `each` may read
/// further series of the table.
pub(crate) fn for_few_states(
    series_table: &Mutex<SeriesTable>,
    series: &[SeriesId],
    each: impl FnMut(&SeriesTable, &SeriesId, &SeriesState),
) {
    for_each(series_table, series, FEW_STATES_PER_LOCK, each);
}

fn for_each(
    series_table: &Mutex<SeriesTable>,
    series: &[SeriesId],
    per_lock: usize,
    mut each: impl FnMut(&SeriesTable, &SeriesId, &SeriesState),
) {
    for (at, some) in series.chunks(per_lock).enumerate() {
        if at > 0 {
            // The lock is not fair: without a pause, waiting threads would not get the lock.
            std::thread::sleep(PAUSE);
        }
        let series_table = lock(series_table);
        for series in some {
            if let Some(state) = series_table.get(series) {
                each(&series_table, series, state);
            }
        }
    }
}

/// Number of states to read under one lock of the series table; each takes some microseconds.
const STATES_PER_LOCK: usize = 64;

/// Number of states to read under one lock of the series table, if each takes long; together they
/// take about a millisecond.
const FEW_STATES_PER_LOCK: usize = 4;

/// Pause between two locks of the series table; several times the time to wake a thread.
const PAUSE: Duration = Duration::from_micros(100);
