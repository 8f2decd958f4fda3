//! Which sites a mesh has by its forecasts: their names, who represents each, and when a station takes its place in one.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::Estimate;
use crate::groups::{FLOOR_S, GAP, Proposal, SITE_S, SITES_HOSTS_MAX, SLACK, UNSET, propose};

/// What a host says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Its name.
    pub host: String,
    /// Its site; `None` = it was told none.
    pub site: Option<String>,
    /// Whether it is in `global`.
    pub represents: bool,
}

/// What is known of the round trip between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundTrip {
    /// Its forecast (s).
    Known(Estimate),
    /// It was tried, and there is no forecast: at least one direction gave failures alone.
    Failed,
    /// There is no forecast yet.
    Unmeasured,
    /// Forecasts of this pair do not come to the station that looks.
    Unseen,
}

impl RoundTrip {
    fn known(self) -> Option<Estimate> {
        match self {
            Self::Known(rtt) => Some(rtt).filter(|rtt| rtt.value.is_finite()),
            Self::Failed | Self::Unmeasured | Self::Unseen => None,
        }
    }
}

impl From<Option<Estimate>> for RoundTrip {
    fn from(rtt: Option<Estimate>) -> Self {
        rtt.map_or(Self::Unmeasured, Self::Known)
    }
}

/// A site that is proposed. Hosts are positions in what was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// What it is called.
    pub name: String,
    /// Its hosts, and how far they are from each other and from others.
    pub proposal: Proposal,
    /// The host that represents it; `None` = none is proposed, because round trips within the site are not known.
    pub representative: Option<usize>,
    /// The largest round trip between two of its hosts, and that of [`Proposal::next`] in the mean, with what the forecasts leave open
    /// (s): ends are means of ends.
    pub within_s: Option<Estimate>,
    /// See `within_s`.
    pub next_s: Option<Estimate>,
    /// Other hosts so near, by the lower ends of their intervals, that they may belong here, or the site not be one.
    pub close: Vec<usize>,
}

/// Where a station stands: its site, and whether it represents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The site's name.
    pub site: String,
    /// Whether the station is in `global`.
    pub represents: bool,
}

/// The sites of `hosts`, which are in the order of their names, by forecasts of their round trips (s); at most [`SITES_HOSTS_MAX`] hosts are
/// looked at. The same hosts and forecasts give the same sites, names and representatives, wherever they are asked for.
///
/// A site is called what most of its hosts say already, of several the first by name, else as its first host; no two have
/// one name, and the one with more such hosts has it; none is called [`UNSET`]. It is represented by one of those hosts that represent it already,
/// or if there is none by one of all of them: the first by name of those whose median round trip to the others is at most twice
/// the least, so that forecasts that come and go change nothing. Hosts that all say one site already stay one until they are clearly none.
///
/// No representative is proposed on what is not known: none where a pair of the site was tried in vain ([`RoundTrip::Failed`]), and
/// no new one while a pair is [`RoundTrip::Unmeasured`]. Pairs that the looking station cannot see do not count: else no member of a mesh could
/// take its place by itself.
pub fn sites_of<R: Into<RoundTrip>>(hosts: &[Stand], rtt: impl Fn(usize, usize) -> R) -> Vec<Site> {
    let hosts = &hosts[..hosts.len().min(SITES_HOSTS_MAX)];
    let pair = |a, b| -> RoundTrip { rtt(a, b).into() };
    let rtt = |a, b| pair(a, b).known();
    let proposals = propose(hosts.len(), |a, b| rtt(a, b).map(|rtt| rtt.value), |site| is_site(hosts, site));
    let names = names(hosts, &proposals);
    let site = |(proposal, name): (Proposal, String)| Site {
        representative: representative(hosts, &proposal, &name, &pair),
        within_s: proposal.within_s.and_then(|_| widest(&proposal.hosts, &rtt)),
        next_s: proposal.next.and_then(|(next, _)| between(&proposal.hosts, next, &rtt)),
        close: close(hosts, &proposal, &rtt),
        name,
        proposal,
    };
    proposals.into_iter().zip(names).map(site).collect()
}

/// Where `own`, a position in `hosts`, stands by these sites; `None` = nothing speaks for a change of what it was told.
///
/// Who comes into a site represents it until all of it had time to come: only then is somebody chosen, and nobody leaves `global` while no
/// other represents the site. A host of no site that stands alone stays where it is, and so does one of which nothing is known, or too little
/// to propose a representative.
#[must_use]
pub fn position(own: usize, hosts: &[Stand], sites: &[Site]) -> Option<Position> {
    let site = sites.iter().find(|site| site.proposal.hosts.contains(&own))?;
    let is_alone = site.proposal.hosts.len() == 1;
    if is_alone && (site.proposal.next.is_none() || hosts[own].site.is_none()) {
        return None;
    }
    let is_there = hosts[own].site.as_ref() == Some(&site.name);
    let representative = site.representative?;
    let chosen = &hosts[representative];
    let is_represented = is_there && chosen.represents && chosen.site.as_ref() == Some(&site.name);
    let represents = if is_there && !hosts[own].represents {
        representative == own
    } else {
        representative == own || !is_represented
    };
    Some(Position { site: site.name.clone(), represents })
}

/// Where `own` goes by itself: its [`position`], but to no other site while it is too close to call who is of the site that the
/// forecasts put it in, or whether it is of another.
#[must_use]
pub fn clear_position(own: usize, hosts: &[Stand], sites: &[Site]) -> Option<Position> {
    let position = position(own, hosts, sites)?;
    let is_close = |site: &Site| {
        if site.proposal.hosts.contains(&own) { !site.close.is_empty() } else { site.close.contains(&own) }
    };
    let stays = hosts[own].site.as_ref() == Some(&position.site);
    (stays || !sites.iter().any(is_close)).then_some(position)
}

/// Waits until the same change was asked for long enough.
#[derive(Clone, Debug)]
pub struct Patience<T = Position> {
    hold: Duration,
    asked: Option<(T, Duration)>,
}

impl<T: Clone + PartialEq> Patience<T> {
    /// A change is due when it was asked for at every look for `hold`.
    #[must_use]
    pub fn new(hold: Duration) -> Self {
        Self { hold, asked: None }
    }

    /// A look at `now`: which change is `asked`, if any. Gives what is to be done now, once.
    pub fn look(&mut self, asked: Option<T>, now: Duration) -> Option<T> {
        let since = match (&self.asked, &asked) {
            (Some((known, since)), Some(asked)) if known == asked => *since,
            _ => now,
        };
        let is_due = self.hold <= now.saturating_sub(since);
        self.asked = asked.map(|asked| (asked, since));
        if is_due { self.asked.take().map(|(asked, _)| asked) } else { None }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.asked = None;
    }

    /// What is waited for, and how long still at `now`.
    #[must_use]
    pub fn pending(&self, now: Duration) -> Option<(&T, Duration)> {
        let (asked, since) = self.asked.as_ref()?;
        Some((asked, (*since + self.hold).saturating_sub(now)))
    }
}

/// A name for each proposal.
fn names(hosts: &[Stand], proposals: &[Proposal]) -> Vec<String> {
    // How many say so, the most first.
    let said = |proposal: &Proposal| {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for site in proposal.hosts.iter().filter_map(|host| hosts[*host].site.as_deref()) {
            *votes.entry(site).or_default() += 1;
        }
        let mut votes: Vec<(&str, usize)> = votes.into_iter().collect();
        votes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        votes
    };
    let mut order: Vec<(usize, Vec<(&str, usize)>)> = proposals.iter().map(said).enumerate().collect();
    order.sort_by_key(|(at, votes)| (std::cmp::Reverse(votes.first().map_or(0, |vote| vote.1)), *at));
    let mut taken = BTreeSet::new();
    let mut names = vec![String::new(); proposals.len()];
    for (at, votes) in order {
        let first = hosts[proposals[at].hosts[0]].host.as_str();
        let numbered = (2..).map(|n| format!("{first}-{n}"));
        let mut all = votes.into_iter().map(|vote| vote.0).chain([first]).map(String::from).chain(numbered);
        // There are more numbers than sites.
        let name = all.find(|name| name != UNSET && !taken.contains(name)).unwrap_or_default();
        taken.insert(name.clone());
        names[at] = name;
    }
    names
}

/// The host of a proposed site that represents it, if what is known of its pairs allows one.
fn representative(
    hosts: &[Stand],
    proposal: &Proposal,
    name: &str,
    pair: &impl Fn(usize, usize) -> RoundTrip,
) -> Option<usize> {
    let site = &proposal.hosts[..];
    let of_pair = |(a, b): &(usize, usize)| [pair(*a, *b), pair(*b, *a)];
    let is_there = |state: RoundTrip| proposal.unknown.iter().flat_map(of_pair).any(|found| found == state);
    let stands = |host: &usize| hosts[*host].represents && hosts[*host].site.as_deref() == Some(name);
    let standing: Vec<usize> = site.iter().copied().filter(stands).collect();
    if is_there(RoundTrip::Failed) || (standing.is_empty() && is_there(RoundTrip::Unmeasured)) {
        return None;
    }
    let candidates = if standing.is_empty() { site } else { &standing };
    let rtt = &|a, b| pair(a, b).known();
    let median = |host: usize| {
        let others = site.iter().filter(|other| **other != host);
        let mut known: Vec<f64> =
            others.filter_map(|other| either(host, *other, rtt)).map(|rtt| rtt.value).collect();
        known.sort_by(f64::total_cmp);
        known.get(known.len() / 2).copied().unwrap_or(f64::INFINITY)
    };
    let medians: Vec<(usize, f64)> = candidates.iter().map(|host| (*host, median(*host))).collect();
    let least = medians.iter().map(|one| one.1).fold(f64::INFINITY, f64::min);
    let is_near = |one: &&(usize, f64)| one.1 <= FAR * least.max(FLOOR_S);
    Some(medians.iter().find(is_near).map_or(site[0], |one| one.0))
}

/// What is known of a pair, in whichever direction.
fn either(a: usize, b: usize, rtt: &impl Fn(usize, usize) -> Option<Estimate>) -> Option<Estimate> {
    rtt(a, b).or_else(|| rtt(b, a)).filter(|rtt| rtt.value.is_finite())
}

fn widest(site: &[usize], rtt: &impl Fn(usize, usize) -> Option<Estimate>) -> Option<Estimate> {
    let pairs = site.iter().flat_map(|a| site.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
    pairs.filter_map(|(a, b)| either(a, b, rtt)).max_by(|a, b| a.value.total_cmp(&b.value))
}

/// The mean from the hosts of a site to another, with the means of the ends.
fn between(
    site: &[usize],
    other: usize,
    rtt: &impl Fn(usize, usize) -> Option<Estimate>,
) -> Option<Estimate> {
    let known: Vec<Estimate> = site.iter().filter_map(|host| either(*host, other, rtt)).collect();
    let mean = |of: fn(&Estimate) -> f64| known.iter().map(of).sum::<f64>() / known.len() as f64;
    (!known.is_empty()).then(|| Estimate {
        value: mean(|rtt| rtt.value),
        lower: mean(|rtt| rtt.lower),
        upper: mean(|rtt| rtt.upper),
    })
}

fn close(
    hosts: &[Stand],
    proposal: &Proposal,
    rtt: &impl Fn(usize, usize) -> Option<Estimate>,
) -> Vec<usize> {
    let is_alone = proposal.hosts.len() == 1;
    let gap = if is_site(hosts, &proposal.hosts) { GAP / SLACK } else { GAP };
    let upper = widest(&proposal.hosts, rtt).map_or(0.0, |rtt| rtt.upper);
    let limit = if is_alone { SITE_S } else { gap * upper.max(FLOOR_S) };
    let is_close = |other: &usize| {
        between(&proposal.hosts, *other, rtt)
            .is_some_and(|rtt| rtt.lower < limit && (!is_alone || SITE_S < rtt.value))
    };
    (0..hosts.len()).filter(|other| !proposal.hosts.contains(other)).filter(is_close).collect()
}

/// Whether they all say the same site.
fn is_site(hosts: &[Stand], site: &[usize]) -> bool {
    let mut said = site.iter().map(|host| hosts[*host].site.as_deref());
    said.next().flatten().is_some_and(|first| said.all(|site| site == Some(first)))
}

/// A representative's median round trip may be so many times the least.
const FAR: f64 = 2.0;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
