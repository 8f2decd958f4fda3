//! Who is in the mesh, and the way from one host to another by representatives.

use std::collections::BTreeMap;

use barograph_forecast::Name;
use barograph_mesh::{GLOBAL, LOCAL, Member, route};

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
    /// The hosts of each group, by name.
    groups: BTreeMap<Name, Vec<Name>>,
    /// Of each site the members of `global` that are there, the first by name: more than these are never asked for.
    representatives: BTreeMap<Name, Vec<Name>>,
}

impl Places {
    pub(crate) fn new(members: BTreeMap<Name, Place>) -> Self {
        let mut groups: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        let mut representatives: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        for (host, place) in &members {
            let stands = !place.is_lost && is_global(&place.groups);
            for group in &place.groups {
                groups.entry(group.clone()).or_default().push(host.clone());
                if stands && group.as_str().starts_with(LOCAL) {
                    let of_site = representatives.entry(group.clone()).or_default();
                    if of_site.len() < REPRESENTATIVES_MAX {
                        of_site.push(host.clone());
                    }
                }
            }
        }
        Self { members, groups, representatives }
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
        self.groups.get(group).into_iter().flatten()
    }

    /// The hosts on the way from one to the other, both ends included, with at least one between: by way of their
    /// sites' representatives ([`route`]), or of that of the site which both are in.
    pub(crate) fn via(&self, from: &Name, to: &Name) -> Option<Vec<Name>> {
        let (here, there) = (self.groups(from), self.groups(to));
        let others = there.iter().filter(|group| !here.contains(group));
        let sites = here.iter().chain(others).filter_map(|group| self.representatives.get(group));
        // Nobody else can be on the way.
        let mut hosts: Vec<&Name> = [from, to].into_iter().filter(|host| self.contains(host)).collect();
        hosts.extend(sites.flatten().filter(|host| *host != from && *host != to));
        let words = |host: &Name| self.groups(host).iter().map(Name::as_str).collect();
        let groups: Vec<Vec<&str>> = hosts.iter().map(|host| words(host)).collect();
        let members: Vec<Member<'_>> =
            hosts.iter().zip(&groups).map(|(host, groups)| Member { host: host.as_str(), groups }).collect();
        let mut way = route(&members, from.as_str(), to.as_str())?;
        if way.len() == 2 {
            let is_shared = |group: &&Name| group.as_str().starts_with(LOCAL) && there.contains(group);
            let of_site = self.representatives.get(here.iter().find(is_shared)?)?;
            // One of the two may stand for the site itself; then nobody else does.
            if [here, there].iter().any(|groups| is_global(groups)) {
                return None;
            }
            way.insert(1, of_site.first()?.as_str());
        }
        // All of them came from names.
        way.into_iter().map(|host| Name::new(host).ok()).collect()
    }
}

fn is_global(groups: &[Name]) -> bool {
    groups.iter().any(|group| group.as_str() == GLOBAL)
}

/// Of a site's representatives: one stands for it, and either end may be another.
const REPRESENTATIVES_MAX: usize = 3;
