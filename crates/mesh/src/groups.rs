//! Groups of hosts: the path between two of them by way of their sites' representatives, and which hosts look like a site.

use core::fmt;

/// A host and its groups, as in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name.
    pub host: &'a str,
    /// `local:SITE`, `global` if it represents its site, and others.
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

/// The hosts between which tests are composed into an estimate of a path (Gloperf §3: "some end-to-end
/// performance has to be estimated from a 'path' of end-to-end measurements"), both ends included: the two alone if they share a group, else by
/// way of the representatives of their sites. Of several representatives the one whose name sorts first stands for its
/// site. None if one of the two is no member, or a site has no representative.
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

/// Hosts that look like one site, by position in what was asked, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The hosts, in the order of their positions.
    pub hosts: Vec<usize>,
    /// The largest round-trip time between two of them (s); nothing for one host.
    pub within_s: Option<f64>,
    /// The nearest other host, and its mean round-trip time from these (s); nothing if there is none.
    pub next: Option<(usize, f64)>,
    /// The pairs of its hosts whose round trip is not known.
    pub unknown: Vec<(usize, usize)>,
}

impl Proposal {
    /// The reason in words, with the hosts' names: "a, b, c are within 0.4 ms of each other; the next host, d, is 11.0 ms away".
    /// Pairs that are not known are named: "a, b, c are within 0.4 ms of each other where that is known; unknown: b–c".
    pub fn reason<'a>(&'a self, name: impl Fn(usize) -> &'a str) -> impl fmt::Display {
        let names: Vec<&str> = self.hosts.iter().map(|host| name(*host)).collect();
        let within = match self.within_s {
            Some(within_s) => {
                let unknown = self.unknown_pairs(&name);
                format!("{} are within {:.1} ms of each other{unknown}", names.join(", "), 1e3 * within_s)
            }
            None => format!("{} stands alone", names.join(", ")),
        };
        match self.next {
            Some((host, away_s)) => {
                format!("{within}; the next host, {}, is {:.1} ms away", name(host), 1e3 * away_s)
            }
            None => within,
        }
    }
}

impl Proposal {
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
        format!(" where that is known; unknown: {}{more}", named.join(", "))
    }
}

/// Which hosts form a site, by their forecast round-trip times: `rtt_s(a, b)` between hosts by position (s), in either direction or both.
/// At most [`SITES_HOSTS_MAX`] hosts are looked at; the work grows with their cube.
///
/// Hosts are joined, the nearest clusters first, by the mean round trip between them (UPGMA; Sokal and Michener, 1958). Of the tree
/// that this makes, a site is each largest cluster joined within 3 ms whose next host is at least three times as far
/// as its own last join (counted as 0.2 ms at least, so that the noise of a LAN makes no sites); what is in none stands alone. The same
/// forecasts give the same sites.
pub fn propose_sites(hosts: usize, rtt_s: impl Fn(usize, usize) -> Option<f64>) -> Vec<Proposal> {
    propose(hosts, rtt_s, |_| false)
}

/// The same, where those that are a site already (`is_site`) stay one until they are clearly none: they may be [`SLACK`] times as wide, and
/// the next host as much nearer.
pub(crate) fn propose(
    hosts: usize,
    rtt_s: impl Fn(usize, usize) -> Option<f64>,
    is_site: impl Fn(&[usize]) -> bool,
) -> Vec<Proposal> {
    let distances = Distances::new(hosts.min(SITES_HOSTS_MAX), rtt_s);
    let mut sites: Vec<Vec<usize>> = Vec::new();
    for root in distances.tree() {
        root.sites(&distances, &is_site, &mut sites);
    }
    sites.iter_mut().for_each(|site| site.sort_unstable());
    sites.sort_unstable();
    sites.into_iter().map(|hosts| distances.proposal(hosts)).collect()
}

/// Round trips between hosts, symmetric; infinite where nothing is known.
struct Distances {
    hosts: usize,
    seconds: Vec<f64>,
}

/// A cluster, and the mean round trip at which its two parts were joined.
struct Cluster {
    height: f64,
    hosts: Vec<usize>,
    parts: Vec<Cluster>,
}

impl Distances {
    fn new(hosts: usize, rtt_s: impl Fn(usize, usize) -> Option<f64>) -> Self {
        let known = |a, b| rtt_s(a, b).filter(|rtt_s| rtt_s.is_finite() && 0.0 <= *rtt_s);
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

    /// The mean of what is known between two clusters; infinite if nothing is.
    fn mean(&self, a: &[usize], b: &[usize]) -> f64 {
        let pairs = a.iter().flat_map(|a| b.iter().map(|b| self.between(*a, *b)));
        let (sum, n) = pairs.filter(|s| s.is_finite()).fold((0.0, 0.0), |(sum, n), s| (sum + s, n + 1.0));
        if n == 0.0 { f64::INFINITY } else { sum / n }
    }

    /// Joins the nearest clusters until none are near: one tree, or several where nothing is known between.
    fn tree(&self) -> Vec<Cluster> {
        let alone = |host| Cluster { height: 0.0, hosts: vec![host], parts: Vec::new() };
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
            // b < a, so that taking the later one out leaves the earlier in its place.
            let Some((height, a, b)) = nearest else { return clusters };
            let later = clusters.remove(a);
            let earlier = core::mem::replace(
                &mut clusters[b],
                Cluster { height, hosts: Vec::new(), parts: Vec::new() },
            );
            clusters[b].hosts = [&earlier.hosts[..], &later.hosts[..]].concat();
            clusters[b].parts = vec![earlier, later];
            means.remove(a);
            means[a..].iter_mut().for_each(|row| {
                row.remove(a);
            });
            for c in (0..clusters.len()).filter(|c| *c != b) {
                means[c.max(b)][c.min(b)] = self.mean(&clusters[b].hosts, &clusters[c].hosts);
            }
        }
    }

    fn proposal(&self, hosts: Vec<usize>) -> Proposal {
        let pairs = hosts.iter().flat_map(|a| hosts.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
        let (known, unknown): (Vec<_>, Vec<_>) = pairs.partition(|(a, b)| self.between(*a, *b).is_finite());
        let within_s = known.into_iter().map(|(a, b)| self.between(a, b)).max_by(f64::total_cmp);
        Proposal { next: self.next(&hosts), hosts, within_s, unknown }
    }

    /// The nearest other host, and how far it is from these in the mean.
    fn next(&self, hosts: &[usize]) -> Option<(usize, f64)> {
        (0..self.hosts)
            .filter(|other| !hosts.contains(other))
            .map(|other| (other, self.mean(hosts, &[other])))
            .filter(|(_, away_s)| away_s.is_finite())
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Cluster {
    /// The largest clusters that look like a site.
    fn sites(self, distances: &Distances, is_site: &impl Fn(&[usize]) -> bool, found: &mut Vec<Vec<usize>>) {
        let slack = if is_site(&self.hosts) { SLACK } else { 1.0 };
        let is_apart = || {
            let next = distances.next(&self.hosts).map_or(f64::INFINITY, |(_, away_s)| away_s);
            GAP / slack * self.height.max(FLOOR_S) <= next
        };
        if self.parts.is_empty() || (self.height <= SITE_S * slack && is_apart()) {
            found.push(self.hosts);
            return;
        }
        for part in self.parts {
            part.sites(distances, is_site, found);
        }
    }
}

/// Pairs that a reason names; of others it says how many there are.
const UNKNOWN_NAMED: usize = 3;

/// Most hosts that sites are looked for among: some tenths of a second of work.
pub const SITES_HOSTS_MAX: usize = 256;

/// How the group of a site begins.
pub const LOCAL: &str = "local:";

/// The group of representatives (Gloperf §3).
pub const GLOBAL: &str = "global";

/// The site of hosts that were told none.
pub const UNSET: &str = "default";

/// How much farther the next host must be than hosts of the site are from each other. Distances of one kind vary by a
/// factor of two or so by noise and by cabling.
pub(crate) const GAP: f64 = 3.0;

/// Round trips below this are of one LAN, whatever their ratio: schedulers alone make up as much.
pub(crate) const FLOOR_S: f64 = 2e-4;

/// How far a site may pass these bounds before it is none: more than forecasts of one path differ from hour to hour, so that a site at a
/// bound does not come and go; and then its next host is still twice as far.
pub(crate) const SLACK: f64 = 1.5;

/// No site is wider: 3 ms are 300 km of fibre, there and back.
pub(crate) const SITE_S: f64 = 3e-3;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
