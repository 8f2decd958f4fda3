//! Queries of requests: their parameters, and the series that they select by `source`, `target`,
//! `quantity` and `group`, each optional.

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::http::{StatusCode, Uri};
use barograph_engine::{Range, Selector};
use barograph_forecast::{Interval, Name, Quantity, SeriesId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ApiRefusal, ApiState};
use crate::forecast::best::MeshMembers;
use crate::forecast::series::{SeriesTable, in_order};
use crate::mesh::snapshot::RENEWED;
use crate::sync::lock;

/// Number of rows in a page without `limit`: at most a megabyte.
pub(super) const LIMIT_DEFAULT: usize = 1000;

/// Number of rows in a page, from the parameter `limit`.
pub(super) fn page_limit(limit: Option<usize>) -> Result<usize, ApiRefusal> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if (1..=Range::LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(ApiRefusal::bad(format!("`limit`: expected 1 to {}, found {limit}", Range::LIMIT_MAX)))
}

/// Query of a request without parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// Parses the query of `uri`. If a parameter is unknown or invalid, returns a refusal with status
/// 400 that names the parameter.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiRefusal> {
    axum::extract::Query::<T>::try_from_uri(uri).map(|query| query.0).map_err(|rejection| {
        let text = rejection.body_text();
        // Drop the first part, which only names the failing library step.
        let why = text.split_once(": ").map_or(&*text, |(_, why)| why);
        ApiRefusal::bad(format!("the query: {why}"))
    })
}

/// Parses the query of `uri` as [`query`] does. If one of the parameters `lists` is repeated, its
/// values are joined with commas: `key=a&key=b` is `key=a,b`.
pub(super) fn query_with_lists<T: DeserializeOwned>(uri: &Uri, lists: &[&str]) -> Result<T, ApiRefusal> {
    // The lists come first, so that their search does not depend on the number of parameters.
    let (mut parameters, mut listed): (Vec<(&str, String)>, usize) = (Vec::new(), 0);
    for parameter in uri.query().unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let is_list = lists.contains(&key);
        match parameters[..listed].iter_mut().find(|(known, _)| is_list && *known == key) {
            Some((_, values)) => *values += &format!(",{value}"),
            None if is_list => {
                parameters.insert(listed, (key, value.into()));
                listed += 1;
            }
            None => parameters.push((key, value.into())),
        }
    }
    let parameters: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let joined = Uri::try_from(format!("/?{}", parameters.join("&")));
    query(&joined.map_err(|error| ApiRefusal::bad(format!("the query: {error}")))?)
}

/// Makes a selector of `source`, `target` and `quantity`, each optional.
pub(super) fn selector(
    source: Option<&str>,
    target: Option<&str>,
    quantity: Option<&str>,
) -> Result<Selector, ApiRefusal> {
    let name = |key: &str, text: Option<&str>| {
        text.map(Name::new).transpose().map_err(|error| ApiRefusal::bad(format!("`{key}`: {error}")))
    };
    let quantity = quantity
        .map(Quantity::new)
        .transpose()
        .map_err(|error| ApiRefusal::bad(format!("`quantity`: {error}")))?;
    Ok(Selector { source: name("source", source)?, target: name("target", target)?, quantity })
}

/// Returns the level of the intervals in a list of forecasts: the requested level, or the default
/// level.
pub(super) fn forecast_level(level: Option<f64>) -> Result<f64, ApiRefusal> {
    let level = level.unwrap_or(Interval::DEFAULT_LEVEL);
    if !(0.01..=0.999).contains(&level) {
        return Err(ApiRefusal::bad(format!("`level`: expected 0.01 to 0.999, found {level}")));
    }
    Ok(level)
}

/// Checks the size of a transfer (bytes).
pub(super) fn transfer_bytes(bytes: u64) -> Result<u64, ApiRefusal> {
    if !(1..=BYTES_MAX).contains(&bytes) {
        return Err(ApiRefusal::bad(format!("`bytes`: expected 1 to {BYTES_MAX}, found {bytes}")));
    }
    Ok(bytes)
}

/// Maximum number of bytes of a transfer: a petabyte takes 93 days at 1 Gbit/s, and an `f64` stores
/// it exactly.
const BYTES_MAX: u64 = 1_000_000_000_000_000;

/// Filter for series: a selector, and optionally the hosts of a group. The source or the target
/// must be one of these hosts.
pub(super) struct SeriesSelection {
    pub(super) selector: Selector,
    hosts: Option<BTreeSet<Name>>,
}

impl SeriesSelection {
    /// Makes a selection with the current hosts of `group` in the directory.
    pub(super) async fn new(
        shared: &ApiState,
        selector: Selector,
        group: Option<&str>,
    ) -> Result<Self, ApiRefusal> {
        let Some(text) = group else { return Ok(Self { selector, hosts: None }) };
        let group = Name::new(text).map_err(|error| ApiRefusal::bad(format!("`group`: {error}")))?;
        let of = |members: &MeshMembers| members.hosts_of(&group).cloned().collect::<BTreeSet<_>>();
        let members = shared.snapshot.members(RENEWED).await;
        let mut hosts = of(&members);
        if hosts.is_empty()
            && let Some(newer) = shared.snapshot.members_newer_than(&members).await
        {
            hosts = of(&newer);
        }
        if hosts.is_empty() {
            let error = format!("`group`: no station of a group {group} is known here");
            return Err(ApiRefusal::new(StatusCode::NOT_FOUND, error));
        }
        Ok(Self { selector, hosts: Some(hosts) })
    }

    /// The series of the table that are selected, in the order of lists.
    pub(super) fn series(&self, series_table: &Mutex<SeriesTable>) -> Vec<SeriesId> {
        let mut names = lock(series_table).names(&self.selector);
        names.retain(|series| self.has_end(series));
        names.sort_unstable_by(in_order);
        names
    }

    /// Whether the selection contains every series.
    pub(super) fn is_all(&self) -> bool {
        self.hosts.is_none() && self.selector == Selector::default()
    }

    /// Whether the source or the target is in the group. Does not check the selector.
    pub(super) fn has_end(&self, series: &SeriesId) -> bool {
        let is_in = |host| self.hosts.as_ref().is_none_or(|hosts| hosts.contains(host));
        is_in(&series.source) || is_in(&series.target)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        a: Option<String>,
        b: Option<f64>,
    }

    #[test]
    fn values_of_a_repeated_list_are_joined_and_other_parameters_must_not_repeat() {
        let read = |uri: &'static str| query_with_lists::<Asked>(&Uri::from_static(uri), &["a"]);
        let asked = |a: Option<&str>, b| Asked { a: a.map(Into::into), b };
        assert_eq!(read("/x").unwrap(), asked(None, None));
        assert_eq!(read("/x?a=1&b=2&a=3,4&a=%2C").unwrap(), asked(Some("1,3,4,,"), Some(2.0)));
        assert!(read("/x?b=1&b=2").unwrap_err().error.contains('b'));
        assert!(read("/x?c=1").unwrap_err().error.contains('c'));
    }
}
