//! Members of the mesh, and the path from one host to another through representatives.

use std::collections::BTreeMap;

use barograph_forecast::Name;
use barograph_mesh::{GLOBAL, LOCAL, Member, route};

/// A station of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeshMember {
    pub(crate) groups: Vec<Name>,
    /// Whether the lease of the station has ended.
    pub(crate) is_lost: bool,
}

/// All known stations of the mesh, including this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeshMembers {
    members: BTreeMap<Name, MeshMember>,
    /// Hosts of each group, by name.
    groups: BTreeMap<Name, Vec<Name>>,
    /// For each site, its members that are in `global` and not lost: only the first
    /// [`REPRESENTATIVES_MAX`] by name.
    representatives: BTreeMap<Name, Vec<Name>>,
}

impl MeshMembers {
    pub(crate) fn new(members: BTreeMap<Name, MeshMember>) -> Self {
        let mut groups: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        let mut representatives: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        for (host, member) in &members {
            let represents_site = !member.is_lost && is_global(&member.groups);
            for group in &member.groups {
                groups.entry(group.clone()).or_default().push(host.clone());
                if represents_site && group.as_str().starts_with(LOCAL) {
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

    /// The groups of a host; empty if the host is unknown.
    pub(crate) fn groups(&self, host: &Name) -> &[Name] {
        self.members.get(host).map_or(&[], |member| &member.groups)
    }

    pub(crate) fn is_lost(&self, host: &Name) -> bool {
        self.members.get(host).is_some_and(|member| member.is_lost)
    }

    /// All hosts, ordered by name.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Name> {
        self.members.keys()
    }

    /// Hosts of a group, ordered by name.
    pub(crate) fn hosts_of(&self, group: &Name) -> impl Iterator<Item = &Name> {
        self.groups.get(group).into_iter().flatten()
    }

    /// Returns the hosts on the path from `from` to `to`, both ends included, with at least one
    /// host between them. The path goes through the representatives of the sites of `from` and `to`
    /// ([`route`]). If both hosts are in one site, the path goes through the representative of this
    /// site.
    pub(crate) fn route(&self, from: &Name, to: &Name) -> Option<Vec<Name>> {
        let (here, there) = (self.groups(from), self.groups(to));
        let others = there.iter().filter(|group| !here.contains(group));
        let sites = here.iter().chain(others).filter_map(|group| self.representatives.get(group));
        // Only these hosts can be on the path.
        let mut hosts: Vec<&Name> = [from, to].into_iter().filter(|host| self.contains(host)).collect();
        hosts.extend(sites.flatten().filter(|host| *host != from && *host != to));
        let words = |host: &Name| self.groups(host).iter().map(Name::as_str).collect();
        let groups: Vec<Vec<&str>> = hosts.iter().map(|host| words(host)).collect();
        let members: Vec<Member<'_>> =
            hosts.iter().zip(&groups).map(|(host, groups)| Member { host: host.as_str(), groups }).collect();
        let mut path = route(&members, from.as_str(), to.as_str())?;
        if path.len() == 2 {
            let is_shared = |group: &&Name| group.as_str().starts_with(LOCAL) && there.contains(group);
            let of_site = self.representatives.get(here.iter().find(is_shared)?)?;
            // If one of the two hosts represents the site, there is no other host between them.
            if [here, there].iter().any(|groups| is_global(groups)) {
                return None;
            }
            path.insert(1, of_site.first()?.as_str());
        }
        // This conversion does not fail: all texts come from names.
        path.into_iter().map(|host| Name::new(host).ok()).collect()
    }
}

fn is_global(groups: &[Name]) -> bool {
    groups.iter().any(|group| group.as_str() == GLOBAL)
}

/// Maximum number of representatives to keep for a site. The two ends of a path may be two of these
/// representatives; the third then represents the site.
const REPRESENTATIVES_MAX: usize = 3;
