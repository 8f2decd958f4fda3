//! Groups of hosts: the route between two hosts by way of their sites' representatives, and
//! proposals of sites from round-trip times.

use core::fmt;

/// A host and its groups, as in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name of the host.
    pub host: &'a str,
    /// `local:SITE`, `global` if the host represents its site, and other groups.
    pub groups: &'a [&'a str],
}

impl Member<'_> {
    fn is_in(&self, group: &str) -> bool {
        self.groups.contains(&group)
    }

    fn site(&self) -> Option<&str> {
        self.groups.iter().copied().find(|group| group.starts_with(LOCAL))
    }

    fn shares_group_with(&self, other: &Self) -> bool {
        self.groups.iter().any(|group| other.is_in(group))
    }
}

/// Hosts on the route from `from` to `to`, both included. The tests between them are composed into
/// an estimate of the path (Gloperf §3: "some end-to-end performance has to be estimated from a
/// 'path' of end-to-end measurements").
///
/// The route is direct if the two hosts share a group. Otherwise the route goes by way of the
/// representatives of the two sites. If a site has several representatives, the route passes the
/// first representative by name. `None` if one of the two hosts is not a member, or a site has no
/// representative.
pub fn route<'a>(members: &[Member<'a>], from: &str, to: &str) -> Option<Vec<&'a str>> {
    let find = |host: &str| members.iter().find(|member| member.host == host);
    let (from, to) = (find(from)?, find(to)?);
    if from.shares_group_with(to) {
        return Some(vec![from.host, to.host]);
    }
    let representative = |of: &Member<'a>| {
        if of.is_in(GLOBAL) {
            return Some(of.host);
        }
        let site = of.site()?;
        let global = members.iter().filter(|member| member.is_in(site) && member.is_in(GLOBAL));
        global.map(|member| member.host).min()
    };
    let mut path = vec![from.host, representative(from)?, representative(to)?, to.host];
    path.dedup();
    Some(path)
}

/// A proposed site: hosts, by position in the list of hosts, and the distances that are the reason
/// for the proposal.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteProposal {
    /// Positions of the hosts, in ascending order.
    pub hosts: Vec<usize>,
    /// The largest round-trip time between two of the hosts (s); `None` for a single host.
    pub within_s: Option<f64>,
    /// The nearest other host, and the mean round-trip time from the site's hosts to it (s); `None`
    /// if there is no other host with a known round-trip time.
    pub next: Option<(usize, f64)>,
    /// Pairs of hosts of the site for which no round-trip time is known.
    pub unknown: Vec<(usize, usize)>,
}

impl SiteProposal {
    /// The reason as a sentence with host names: "a, b, c are within 0.4 ms of each other; the next
    /// host, d, is 11.0 ms away". The sentence names unknown pairs: "a, b, c are within 0.4 ms of
    /// each other; not measured: b–c".
    pub fn reason<'a>(&'a self, name: impl Fn(usize) -> &'a str) -> impl fmt::Display {
        let names: Vec<&str> = self.hosts.iter().map(|host| name(*host)).collect();
        let within = match self.within_s {
            Some(within_s) => {
                let unknown = self.unknown_pairs(&name);
                format!("{} are within {:.1} ms of each other{unknown}", names.join(", "), 1e3 * within_s)
            }
            None => format!("{} has no near host", names.join(", ")),
        };
        match self.next {
            Some((host, away_s)) => {
                format!("{within}; the next host, {}, is {:.1} ms away", name(host), 1e3 * away_s)
            }
            None => within,
        }
    }
}

impl SiteProposal {
    fn unknown_pairs<'a>(&self, name: impl Fn(usize) -> &'a str) -> String {
        if self.unknown.is_empty() {
            return String::new();
        }
        let pair = |(a, b): &(usize, usize)| format!("{}–{}", name(*a), name(*b));
        let named: Vec<String> = self.unknown.iter().take(UNKNOWN_NAMED).map(pair).collect();
        let more = match self.unknown.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("; not measured: {}{more}", named.join(", "))
    }
}

/// Proposes sites by forecast round-trip times. `rtt_s(a, b)` is the time between the hosts at
/// these positions (s), in one direction or both. Only the first [`SITES_HOSTS_MAX`] hosts count;
/// the computing time grows with the cube of their number.
///
/// Clusters are joined by the mean round-trip time between them, the nearest first (UPGMA; Sokal
/// and Michener, 1958). In the resulting tree, a cluster is a candidate if its last join was at a
/// distance of at most 3 ms, and if the next host is at least three times this distance away. A
/// candidate that is not inside a larger candidate is a site. A distance below 0.2 ms counts as 0.2
/// ms, so that the noise of a LAN does not make sites. Each other host is a site of its own. Equal
/// forecasts give equal sites.
pub fn propose_sites(hosts: usize, rtt_s: impl Fn(usize, usize) -> Option<f64>) -> Vec<SiteProposal> {
    propose(hosts, rtt_s, |_| false)
}

/// Proposes sites as [`propose_sites`] does, but keeps the hosts of an existing site (`is_site`)
/// together until they are clearly not a site: an existing site may be wider by the factor
/// [`SLACK`], and the next host may be nearer by this factor.
pub(crate) fn propose(
    hosts: usize,
    rtt_s: impl Fn(usize, usize) -> Option<f64>,
    is_site: impl Fn(&[usize]) -> bool,
) -> Vec<SiteProposal> {
    let distances = Distances::new(hosts.min(SITES_HOSTS_MAX), rtt_s);
    let mut sites: Vec<Vec<usize>> = Vec::new();
    for root in distances.tree() {
        root.sites(&distances, &is_site, &mut sites);
    }
    sites.iter_mut().for_each(|site| site.sort_unstable());
    sites.sort_unstable();
    sites.into_iter().map(|hosts| distances.proposal(hosts)).collect()
}

/// Symmetric round-trip times between hosts; infinite where unknown.
struct Distances {
    hosts: usize,
    seconds: Vec<f64>,
}

/// A cluster of hosts, as a node of a binary tree.
struct Cluster {
    /// Mean round-trip time between the two children, in seconds; 0 for a single host.
    height: f64,
    hosts: Vec<usize>,
    /// The two clusters that were joined; none for a single host.
    children: Vec<Cluster>,
}

impl Distances {
    fn new(hosts: usize, rtt_s: impl Fn(usize, usize) -> Option<f64>) -> Self {
        let known = |a, b| rtt_s(a, b).filter(|rtt_s| rtt_s.is_finite() && *rtt_s >= 0.0);
        let mut seconds = vec![f64::INFINITY; hosts * hosts];
        for a in 0..hosts {
            for b in 0..a {
                let both = match (known(a, b), known(b, a)) {
                    (Some(there), Some(back)) => f64::midpoint(there, back),
                    (Some(one), None) | (None, Some(one)) => one,
                    (None, None) => continue,
                };
                seconds[a * hosts + b] = both;
                seconds[b * hosts + a] = both;
            }
        }
        Self { hosts, seconds }
    }

    fn between(&self, a: usize, b: usize) -> f64 {
        self.seconds[a * self.hosts + b]
    }

    /// Mean of the known times between two clusters; infinite if no time is known.
    fn mean(&self, a: &[usize], b: &[usize]) -> f64 {
        let pairs = a.iter().flat_map(|a| b.iter().map(|b| self.between(*a, *b)));
        let (sum, n) = pairs.filter(|s| s.is_finite()).fold((0.0, 0.0), |(sum, n), s| (sum + s, n + 1.0));
        if n == 0.0 { f64::INFINITY } else { sum / n }
    }

    /// Joins the nearest clusters until no time between two clusters is known. The result is one
    /// tree or several trees.
    fn tree(&self) -> Vec<Cluster> {
        let alone = |host| Cluster { height: 0.0, hosts: vec![host], children: Vec::new() };
        let mut clusters: Vec<Cluster> = (0..self.hosts).map(alone).collect();
        let mut means: Vec<Vec<f64>> =
            (0..self.hosts).map(|a| (0..a).map(|b| self.between(a, b)).collect()).collect();
        loop {
            let nearest = means
                .iter()
                .enumerate()
                .flat_map(|(a, row)| row.iter().enumerate().map(move |(b, mean)| (*mean, a, b)))
                .filter(|(mean, _, _)| mean.is_finite())
                .min_by(|x, y| x.0.total_cmp(&y.0));
            // b < a, so the removal of cluster a does not change the index of cluster b.
            let Some((height, a, b)) = nearest else { return clusters };
            let later = clusters.remove(a);
            let earlier = core::mem::replace(
                &mut clusters[b],
                Cluster { height, hosts: Vec::new(), children: Vec::new() },
            );
            clusters[b].hosts = [&earlier.hosts[..], &later.hosts[..]].concat();
            clusters[b].children = vec![earlier, later];
            means.remove(a);
            means[a..].iter_mut().for_each(|row| {
                row.remove(a);
            });
            for c in (0..clusters.len()).filter(|c| *c != b) {
                means[c.max(b)][c.min(b)] = self.mean(&clusters[b].hosts, &clusters[c].hosts);
            }
        }
    }

    fn proposal(&self, hosts: Vec<usize>) -> SiteProposal {
        let pairs = hosts.iter().flat_map(|a| hosts.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
        let (known, unknown): (Vec<_>, Vec<_>) = pairs.partition(|(a, b)| self.between(*a, *b).is_finite());
        let within_s = known.into_iter().map(|(a, b)| self.between(a, b)).max_by(f64::total_cmp);
        SiteProposal { next: self.next(&hosts), hosts, within_s, unknown }
    }

    /// The nearest other host, and the mean round-trip time from `hosts` to it.
    fn next(&self, hosts: &[usize]) -> Option<(usize, f64)> {
        (0..self.hosts)
            .filter(|other| !hosts.contains(other))
            .map(|other| (other, self.mean(hosts, &[other])))
            .filter(|(_, away_s)| away_s.is_finite())
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Cluster {
    /// Finds the largest clusters that meet the conditions for a site.
    fn sites(self, distances: &Distances, is_site: &impl Fn(&[usize]) -> bool, found: &mut Vec<Vec<usize>>) {
        let slack = if is_site(&self.hosts) { SLACK } else { 1.0 };
        let is_apart = || {
            let next = distances.next(&self.hosts).map_or(f64::INFINITY, |(_, away_s)| away_s);
            GAP / slack * self.height.max(FLOOR_S) <= next
        };
        if self.children.is_empty() || (self.height <= SITE_S * slack && is_apart()) {
            found.push(self.hosts);
            return;
        }
        for child in self.children {
            child.sites(distances, is_site, found);
        }
    }
}

/// Maximum number of unknown pairs that a reason names; further pairs are only counted.
const UNKNOWN_NAMED: usize = 3;

/// Maximum number of hosts for which sites are proposed. The computation for this many hosts takes
/// some tenths of a second.
pub const SITES_HOSTS_MAX: usize = 256;

/// Prefix of the group of a site.
pub const LOCAL: &str = "local:";

/// The group of representatives (Gloperf §3).
pub const GLOBAL: &str = "global";

/// Site of hosts for which no site is configured.
pub const UNSET: &str = "default";

/// Smallest ratio between the distance of the next host and the distance of the hosts of the site
/// from each other. Noise and cabling change distances by a factor of about two.
pub(crate) const GAP: f64 = 3.0;

/// Shortest distance between hosts, s. Shorter round-trip times are within one LAN and count as
/// this distance, because delays of schedulers alone can be as long as this distance.
pub(crate) const FLOOR_S: f64 = 2e-4;

/// Factor by which an existing site may exceed the bounds `GAP` and `SITE_S`. The forecasts of one
/// path change by less from hour to hour, so a site near a bound does not appear and disappear. The
/// next host must still be twice as far away as the hosts of the site are from each other.
pub(crate) const SLACK: f64 = 1.5;

/// Largest width of a site: 3 ms are 300 km of fibre, there and back.
pub(crate) const SITE_S: f64 = 3e-3;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
