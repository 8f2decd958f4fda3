//! Pages from two archives as one.
//!
//! A place in the station's own archive is told from one in the mesh by the highest bit of the
//! cursor, which neither archive uses: SQLite counts in 63 bits.

use barograph_forecast::Series;

use super::Joined;
use crate::{Cursor, Engine as _, Error, Page, Range, Record, Selector};

/// From the station's archive when it knows the series, otherwise from the mesh.
pub(super) async fn history(joined: &Joined, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
    let is_here = match range.after {
        Some(after) => is_local(after),
        None => joined.local.known(vec![series.clone()]).await?[0],
    };
    let local = Range { after: range.after.map(plain), ..*range };
    if is_here {
        return joined.local.history(series, &local).await.map(tagged);
    }
    match joined.mesh.history(series, range).await {
        // Of what the station measures itself it knows that there is nothing yet.
        Err(_) if series.source == joined.config.host && range.after.is_none() => {
            joined.local.history(series, &local).await.map(tagged)
        }
        answer => answer,
    }
}

/// First every series that the station's archive knows, then those of the mesh that it does not.
///
/// When the mesh does not answer, a page that holds what the station knows says that there is more,
/// and the next one says why it cannot be had.
pub(super) async fn latest(
    joined: &Joined,
    selector: &Selector,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page<Record>, Error> {
    if limit == 0 {
        return joined.local.latest(selector, None, limit).await;
    }
    let mut items = Vec::new();
    if after.is_none_or(is_local) {
        let page = joined.local.latest(selector, after.map(plain), limit).await?;
        let is_own = selector.source.as_ref() == Some(&joined.config.host);
        if page.next.is_some() || is_own {
            return Ok(tagged(page));
        }
        items = page.items;
    }
    let mut place = after.filter(|&after| !is_local(after) && after != MESH_BEGINS);
    loop {
        let room = limit - items.len();
        if room == 0 {
            return Ok(Page { items, next: Some(place.unwrap_or(MESH_BEGINS)) });
        }
        match joined.mesh.latest(selector, place, room).await {
            Ok(page) => {
                let known =
                    joined.local.known(page.items.iter().map(|item| item.series.clone()).collect()).await?;
                let others = page.items.into_iter().zip(known).filter(|(_, known)| !known);
                items.extend(others.map(|(item, _)| item));
                place = page.next;
                if place.is_none() {
                    return Ok(Page { items, next: None });
                }
            }
            Err(error) if items.is_empty() => return Err(error),
            Err(_) => return Ok(Page { items, next: Some(place.unwrap_or(MESH_BEGINS)) }),
        }
    }
}

fn is_local(cursor: Cursor) -> bool {
    cursor != MESH_BEGINS && cursor.0 & LOCAL != 0
}

fn plain(cursor: Cursor) -> Cursor {
    Cursor(cursor.0 & !LOCAL)
}

fn tagged(page: Page<Record>) -> Page<Record> {
    Page { next: page.next.map(|Cursor(place)| Cursor(place | LOCAL)), ..page }
}

/// Marks a place in the station's own archive.
const LOCAL: u64 = 1 << 63;

/// The place before the mesh's first series; no place in an archive, as it would be its last.
const MESH_BEGINS: Cursor = Cursor(u64::MAX);
