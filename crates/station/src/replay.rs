//! Rebuilds the batteries from the archive, so that forecasts survive a restart.

use barograph_engine::{Cursor, Engine, Error, Range, Selector};
use barograph_forecast::{Outcome, Series};

use crate::bank::{Bank, Measured, Observed};

/// Replays the newest records of every series in the order of their times; gives how many.
///
/// # Errors
/// What the archive says; the bank then holds what was replayed before.
pub(crate) async fn replay(engine: &dyn Engine, bank: &mut Bank) -> Result<usize, Error> {
    let all = all_series(engine, bank.room()).await?;
    let each = (RECORDS_MAX / usize::max(1, all.len())).clamp(RECORDS_MIN, RECORDS_OF_SERIES);
    let mut count = 0;
    for series in all {
        for (time_unix_ns, outcome) in newest_records(engine, &series, each).await? {
            let measured = Measured { series: series.clone(), time_unix_ns, outcome, detail: String::new() };
            count += usize::from(matches!(bank.observe_in_order(&measured), Observed::New(_)));
        }
    }
    bank.restart_scores();
    Ok(count)
}

async fn all_series(engine: &dyn Engine, most: usize) -> Result<Vec<Series>, Error> {
    let mut found = Vec::new();
    let mut after: Option<Cursor> = None;
    loop {
        let page = engine.latest(&Selector::default(), after, PAGE).await?;
        found.extend(page.items.into_iter().map(|record| record.series));
        after = page.next;
        if after.is_none() || most <= found.len() {
            found.truncate(most);
            return Ok(found);
        }
    }
}

/// Oldest first, without the parts that forecasting does not need: pages are freed as they are read.
async fn newest_records(
    engine: &dyn Engine,
    series: &Series,
    count: usize,
) -> Result<Vec<(i64, Outcome)>, Error> {
    let mut records = Vec::new();
    let mut range = Range::newest(usize::min(PAGE, count));
    loop {
        let page = engine.history(series, &range).await?;
        records.extend(page.items.iter().map(|record| (record.time_unix_ns, record.outcome)));
        range.after = page.next;
        range.limit = usize::min(PAGE, count.saturating_sub(records.len()));
        if range.after.is_none() || range.limit == 0 {
            records.reverse();
            return Ok(records);
        }
    }
}

/// The newest so many records of a series make its battery: more than a day of ten-second values.
const RECORDS_OF_SERIES: usize = 10_000;
/// With many series each gets its share of so many, so that a start takes seconds, not minutes…
const RECORDS_MAX: usize = 1_000_000;
/// …but never less than what fills a page.
const RECORDS_MIN: usize = 512;
/// Records read at once.
const PAGE: usize = 1000;
