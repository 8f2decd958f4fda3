//! Pages of `/v1/series` (docs/spec/api.md, Records and pages).

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use barograph_engine::Range;
use barograph_forecast::{Name, Quantity, SeriesId};

use super::guard::RemoteEnd;
use super::heavy::{self, ReadSource, Rows, run_blocking};
use super::query::{SeriesSelection, page_limit};
use super::{ApiRefusal, ApiState, JSON_HEADERS, json};
use crate::forecast::series::{SeriesTable, in_order};
use crate::forecast::series_reader::for_each_state;

/// A page of the selected series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeriesPage {
    limit: usize,
    /// The last series of the page before; `None` = the first page.
    after: Option<SeriesId>,
}

impl SeriesPage {
    /// Parses the parameters `limit` and `after`. Returns `None` if neither is given: the response
    /// then has all series.
    pub(super) fn parse(limit: Option<usize>, after: Option<&str>) -> Result<Option<Self>, ApiRefusal> {
        if limit.is_none() && after.is_none() {
            return Ok(None);
        }
        let limit = page_limit(limit)?;
        let unknown = || ApiRefusal::bad("`after`: expected the `next` of a page");
        let after = after.map(|text| parsed_cursor(text).ok_or_else(unknown)).transpose()?;
        Ok(Some(Self { limit, after }))
    }

    /// Responds with the page of the selected series.
    pub(super) async fn respond(
        self,
        shared: &Arc<ApiState>,
        remote: &RemoteEnd,
        selection: SeriesSelection,
    ) -> Result<Response, ApiRefusal> {
        let series_table = Arc::clone(&shared.series_table);
        let make = run_blocking(move || self.text(&series_table, &selection.series(&series_table)));
        let text = heavy::text(shared, remote, ReadSource::SeriesTable, None, make).await?;
        Ok((JSON_HEADERS, text).into_response())
    }

    /// The text of the response; `names` are all selected series, in the order of lists.
    fn text(&self, series_table: &Mutex<SeriesTable>, names: &[SeriesId]) -> Bytes {
        let is_before =
            |name: &SeriesId| self.after.as_ref().is_some_and(|after| in_order(name, after).is_le());
        let names = &names[names.partition_point(is_before)..];
        let page = &names[..self.limit.min(names.len())];
        let mut rows = Rows::new("series");
        let mut cut = None;
        for_each_state(series_table, page, |series, state| {
            // As a page of `history` does: then a client with some room reads every page, whatever
            // details the records have.
            if rows.bytes() < Range::BYTES_MAX {
                json::push_series(&mut rows, series, state);
            } else if cut.is_none() {
                cut = Some(series.clone());
            }
        });
        let end = cut.and_then(|cut| page.iter().position(|name| *name == cut)).unwrap_or(page.len());
        let last = if end < names.len() { names[..end].last() } else { None };
        rows.finish_page(last.map(cursor).as_deref())
    }
}

/// Text that names a series as the end of a page. No part of a series' name has spaces.
fn cursor(series: &SeriesId) -> String {
    format!("{} {} {}", series.quantity, series.target, series.source)
}

fn parsed_cursor(text: &str) -> Option<SeriesId> {
    let mut parts = text.split(' ');
    let quantity = Quantity::new(parts.next()?).ok()?;
    let [target, source] = [parts.next()?, parts.next()?].map(Name::new);
    let series = SeriesId { source: source.ok()?, target: target.ok()?, quantity };
    parts.next().is_none().then_some(series)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::Outcome;

    use super::*;
    use crate::forecast::series::Measurement;
    use crate::sync::lock;

    fn series(target: &str) -> SeriesId {
        SeriesId {
            source: Name::new("here").unwrap(),
            target: Name::new(target).unwrap(),
            quantity: Quantity::RTT,
        }
    }

    /// Targets in the pages of a table of three series, with details of this many bytes.
    fn pages(limit: usize, detail_bytes: usize) -> Vec<Vec<String>> {
        let series_table = Mutex::new(SeriesTable::new(10));
        let names = ["a", "b", "c"].map(series);
        for series in &names {
            let detail = format!(r#"{{"note":"{}"}}"#, "x".repeat(detail_bytes));
            let (series, outcome) = (series.clone(), Outcome::Value(1.0));
            lock(&series_table).observe(&Measurement { series, time_unix_ns: 1, outcome, detail });
        }
        let (mut pages, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = SeriesPage::parse(Some(limit), after.as_deref()).unwrap().unwrap();
            let text = page.text(&series_table, &names);
            let list: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let target = |row: &serde_json::Value| row["target"].as_str().unwrap().to_owned();
            pages.push(list["series"].as_array().unwrap().iter().map(target).collect());
            match list["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => return pages,
            }
        }
    }

    #[test]
    fn a_page_ends_at_its_limit_and_before_it_is_too_large_to_read() {
        assert_eq!(pages(2, 1), [vec!["a", "b"], vec!["c"]]);
        assert_eq!(pages(3, 1), [vec!["a", "b", "c"]], "no further page");
        assert_eq!(pages(10, 3 << 20), [vec!["a", "b"], vec!["c"]], "more than 4 MiB");
        assert_eq!(pages(10, Range::BYTES_MAX), [vec!["a"], vec!["b"], vec!["c"]], "one row at least");
    }

    #[test]
    fn a_cursor_names_a_series_that_need_not_exist_any_more() {
        for target in ["a", "https://example.org/a?b=c", "ö"] {
            assert_eq!(parsed_cursor(&cursor(&series(target))), Some(series(target)));
        }
        let page = SeriesPage { limit: 1, after: Some(series("b")) };
        let text = page.text(&Mutex::new(SeriesTable::new(1)), &["a", "c", "d"].map(series));
        assert_eq!(text, r#"{"series":[],"next":"rtt c here"}"#, "neither `b` nor the state of `c` exists");
        for text in ["", "rtt", "rtt a", "rtt a b c", "RTT a b", "rtt  b"] {
            let error = SeriesPage::parse(None, Some(text)).unwrap_err().error;
            assert!(error.starts_with("`after`"), "{text}: {error}");
        }
        for limit in [0, Range::LIMIT_MAX + 1] {
            assert!(SeriesPage::parse(Some(limit), None).unwrap_err().error.starts_with("`limit`"));
        }
        assert_eq!(SeriesPage::parse(None, None).unwrap(), None);
    }
}
