//! Selection of series for a list: `source`, `target`, `quantity` and `group`, each optional.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use barograph_engine::Selector;
use barograph_forecast::{Name, SeriesId};

use super::{ApiRefusal, ApiState};
use crate::forecast::best::MeshMembers;
use crate::mesh::snapshot::RENEWED;

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
