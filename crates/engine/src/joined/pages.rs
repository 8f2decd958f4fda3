//! Merges pages of two archives.
//!
//! The highest bit of a cursor marks a position in the station's own archive. Neither archive uses
//! that bit: SQLite counts in 63 bits.

use barograph_forecast::SeriesId;

use super::Joined;
use crate::{Cursor, Engine as _, EngineError, Page, Range, Record, Selector};

/// Reads a page of the history of a series. If the station's archive has the newest records of the
/// series, the page is from that archive; otherwise the page is from the mesh. If the mesh has no
/// record of the series, the page is from the station's archive.
pub(super) async fn history(
    joined: &Joined,
    series: &SeriesId,
    range: &Range,
) -> Result<Page<Record>, EngineError> {
    let is_here = match range.after {
        Some(after) => is_local(after),
        None => is_first_here(joined, vec![series.clone()]).await?[0],
    };
    let local = Range { after: range.after.map(plain), ..*range };
    if is_here {
        return joined.local.history(series, &local).await.map(tagged);
    }
    match joined.mesh.history(series, range).await {
        // The station's archive is authoritative for the station's own measurements, even if it has
        // no record of the series yet.
        Err(_) if series.source == joined.config.host && range.after.is_none() => {
            joined.local.history(series, &local).await.map(tagged)
        }
        // This station may have archived an earlier mesh; the source of the series may be a member
        // of that mesh only.
        Ok(page) if page.items.is_empty() && page.next.is_none() && range.after.is_none() => {
            joined.local.history(series, &local).await.map(tagged)
        }
        answer => answer,
    }
}

/// Returns the newest record of each selected series. The series that are read from the station's
/// archive come first, and the series that are read from the mesh follow.
///
/// If the mesh does not respond, a page with the station's records has a cursor, and the next page
/// reports the error.
pub(super) async fn latest(
    joined: &Joined,
    selector: &Selector,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page<Record>, EngineError> {
    if limit == 0 {
        return joined.local.latest(selector, None, limit).await;
    }
    let mut items = Vec::new();
    let mut local = after;
    while local.is_none_or(is_local) {
        let room = limit - items.len();
        let page = joined.local.latest(selector, local.map(plain), room).await?;
        let is_cut = is_cut(&page, room);
        items.extend(sifted(joined, page.items, true).await?);
        let is_own = selector.source.as_ref() == Some(&joined.config.host);
        if is_own || is_cut || (page.next.is_some() && items.len() == limit) {
            return Ok(tagged(Page { items, next: page.next }));
        }
        local = page.next.map(|Cursor(position)| Cursor(position | LOCAL)).or(Some(MESH_BEGINS));
    }
    // A page of the mesh may have up to [`Range::BYTES_MAX`] bytes, so add no records of the mesh
    // to a page that is already half full.
    if Range::BYTES_MAX / 2 < items.iter().map(Record::page_bytes).sum() {
        return Ok(Page { items, next: Some(MESH_BEGINS) });
    }
    let mut cursor = after.filter(|&after| !is_local(after) && after != MESH_BEGINS);
    loop {
        let room = limit - items.len();
        if room == 0 {
            return Ok(Page { items, next: Some(cursor.unwrap_or(MESH_BEGINS)) });
        }
        match joined.mesh.latest(selector, cursor, room).await {
            Ok(page) => {
                let is_cut = is_cut(&page, room);
                items.extend(sifted(joined, page.items, false).await?);
                cursor = page.next;
                if is_cut {
                    return Ok(Page { items, next: cursor });
                }
                if cursor.is_some() {
                    continue;
                }
                let Selector { source, target, quantity } = selector;
                if items.is_empty() && source.is_some() && target.is_some() && quantity.is_some() {
                    // The mesh has no record of this one series.
                    return joined.local.latest(selector, None, limit).await;
                }
                return Ok(Page { items, next: None });
            }
            Err(error) if items.is_empty() => return Err(error),
            Err(_) => return Ok(Page { items, next: Some(cursor.unwrap_or(MESH_BEGINS)) }),
        }
    }
}

/// Returns whether a page with room for more records ended at [`Range::BYTES_MAX`].
fn is_cut(page: &Page<Record>, room: usize) -> bool {
    page.next.is_some() && page.items.len() < room
}

/// Keeps only the records of series that are read from the station's archive, or only the records
/// of all other series.
async fn sifted(joined: &Joined, items: Vec<Record>, is_here: bool) -> Result<Vec<Record>, EngineError> {
    let first = is_first_here(joined, items.iter().map(|item| item.series.clone()).collect()).await?;
    Ok(items.into_iter().zip(first).filter(|&(_, first)| first == is_here).map(|(item, _)| item).collect())
}

/// Returns for each series whether the station's archive has the newest records of the series.
///
/// This is true for three kinds of series: the station's own measurements, measurements of other
/// hosts that were appended at this station (such measurements are not forwarded), and all series
/// if the station is the mesh's archive. A station that was the mesh's archive earlier, and is not
/// now, has no newer records of other stations.
async fn is_first_here(joined: &Joined, all: Vec<SeriesId>) -> Result<Vec<bool>, EngineError> {
    let own: Vec<bool> =
        all.iter().map(|series| joined.config.is_archive || series.source == joined.config.host).collect();
    let held = joined.local.series_presence(all).await?;
    Ok(held.into_iter().zip(own).map(|(held, own)| held.is_known && (own || held.is_handed_in)).collect())
}

fn is_local(cursor: Cursor) -> bool {
    cursor != MESH_BEGINS && cursor.0 & LOCAL != 0
}

fn plain(cursor: Cursor) -> Cursor {
    Cursor(cursor.0 & !LOCAL)
}

fn tagged(page: Page<Record>) -> Page<Record> {
    Page { next: page.next.map(|Cursor(position)| Cursor(position | LOCAL)), ..page }
}

/// Bit of a cursor that marks a position in the station's own archive.
const LOCAL: u64 = 1 << 63;

/// Position before the mesh's first series. No archive uses this cursor, because it is the largest
/// possible cursor.
const MESH_BEGINS: Cursor = Cursor(u64::MAX);
