//! Who is in the mesh, and the way from one host to another by representatives.

use std::collections::BTreeMap;

use barograph_forecast::Name;
use barograph_mesh::{Member, route};

/// A station of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) groups: Vec<Name>,
    /// Its lease is over.
    pub(crate) is_lost: bool,
}

/// All stations of the mesh that this one knows of, itself among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    members: BTreeMap<Name, Place>,
    /// Members of `global` that are there.
    representatives: Vec<Name>,
}

impl Places {
    pub(crate) fn new(members: BTreeMap<Name, Place>) -> Self {
        let stands =
            |place: &Place| !place.is_lost && place.groups.iter().any(|group| group.as_str() == GLOBAL);
        let representatives =
            members.iter().filter(|(_, place)| stands(place)).map(|(host, _)| host.clone()).collect();
        Self { members, representatives }
    }

    pub(crate) fn contains(&self, host: &Name) -> bool {
        self.members.contains_key(host)
    }

    /// What a host says of its groups; none of one that is not there.
    pub(crate) fn groups(&self, host: &Name) -> &[Name] {
        self.members.get(host).map_or(&[], |place| &place.groups)
    }

    pub(crate) fn is_lost(&self, host: &Name) -> bool {
        self.members.get(host).is_some_and(|place| place.is_lost)
    }

    /// The hosts, by name.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Name> {
        self.members.keys()
    }

    /// The hosts of a group, by name.
    pub(crate) fn hosts_of(&self, group: &Name) -> impl Iterator<Item = &Name> {
        self.members.iter().filter(|(_, place)| place.groups.contains(group)).map(|(host, _)| host)
    }

    /// The hosts on the way from one to the other, both ends included, with at least one between: by way of their
    /// sites' representatives ([`route`]), or of that of the site which both are in.
    pub(crate) fn via(&self, from: &Name, to: &Name) -> Option<Vec<Name>> {
        let groups = |host: &Name| -> Vec<&str> {
            let place = self.members.get(host);
            place.into_iter().flat_map(|place| &place.groups).map(Name::as_str).collect()
        };
        let (from_groups, to_groups) = (groups(from), groups(to));
        // Nobody else can be on the way.
        let between: Vec<(&str, Vec<&str>)> =
            self.representatives.iter().map(|host| (host.as_str(), groups(host))).collect();
        let ends = [(from, &from_groups), (to, &to_groups)]
            .into_iter()
            .filter(|(host, _)| self.contains(host))
            .map(|(host, groups)| Member { host: host.as_str(), groups });
        let members: Vec<Member<'_>> =
            ends.chain(between.iter().map(|(host, groups)| Member { host, groups })).collect();
        let mut way = route(&members, from.as_str(), to.as_str())?;
        if way.len() == 2 {
            let site =
                from_groups.iter().find(|group| group.starts_with(LOCAL) && to_groups.contains(group))?;
            let stands = |(host, groups): &&(&str, Vec<&str>)| {
                groups.contains(site) && *host != from.as_str() && *host != to.as_str()
            };
            // One of the two may stand for the site itself; then nobody else does.
            if self.representatives.contains(from) || self.representatives.contains(to) {
                return None;
            }
            way.insert(1, between.iter().find(stands)?.0);
        }
        // All of them came from names.
        way.into_iter().map(|host| Name::new(host).ok()).collect()
    }
}

/// The group of representatives, and the beginning of a site's.
const GLOBAL: &str = "global";
const LOCAL: &str = "local:";
