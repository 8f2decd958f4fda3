//! Sites of a mesh, found from its forecasts: their names and representatives, and the decision of
//! a station to join one.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::PathEstimate;
use crate::groups::{FLOOR_S, GAP, SITE_S, SITES_HOSTS_MAX, SLACK, SiteProposal, UNSET, propose};

/// A host with the site and the role that it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteReport {
    /// Name of the host.
    pub host: String,
    /// Site of the host; `None` if none is configured.
    pub site: Option<String>,
    /// Whether the host is in `global`.
    pub represents: bool,
}

/// Round-trip time between two hosts, or the reason why this time is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RttState {
    /// Forecast of the round-trip time (s).
    Known(PathEstimate),
    /// The pair was measured but has no forecast: in at least one direction, all measurements
    /// failed.
    Failed,
    /// There is no forecast yet.
    Unmeasured,
    /// The station that decides receives no forecasts of this pair.
    NotVisible,
}

impl RttState {
    fn known(self) -> Option<PathEstimate> {
        match self {
            Self::Known(rtt) => Some(rtt).filter(|rtt| rtt.value.is_finite()),
            Self::Failed | Self::Unmeasured | Self::NotVisible => None,
        }
    }
}

impl From<Option<PathEstimate>> for RttState {
    fn from(rtt: Option<PathEstimate>) -> Self {
        rtt.map_or(Self::Unmeasured, Self::Known)
    }
}

/// A proposed site. Hosts are indices into the list given to [`sites_of`].
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Name of the site.
    pub name: String,
    /// Hosts of the site, with their distances from each other and from others.
    pub proposal: SiteProposal,
    /// Index of the proposed representative in the list of hosts; `None` while round-trip times
    /// within the site are unknown.
    pub representative: Option<usize>,
    /// The largest round-trip time between two hosts of the site (s), with its interval.
    pub within_s: Option<PathEstimate>,
    /// Mean round-trip time to [`SiteProposal::next`] (s). The ends of the interval are the means
    /// of the ends of the hosts' intervals.
    pub next_s: Option<PathEstimate>,
    /// Other hosts that would be near if their round-trip times were the lower ends of the
    /// intervals. These hosts may belong to this site, or be so near that this group of hosts is
    /// not a site.
    pub close: Vec<usize>,
}

/// Position of a station in the mesh: its site, and whether the station represents this site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePosition {
    /// Name of the site.
    pub site: String,
    /// Whether the station is in `global`.
    pub represents: bool,
}

/// Finds the sites of `hosts`, which are sorted by name, from forecast round-trip times (s).
///
/// Only the first [`SITES_HOSTS_MAX`] hosts count. Equal hosts and forecasts give equal sites,
/// names and representatives on every station. Hosts that already form a site remain a site until
/// round-trip times clearly violate the limits for a site.
///
/// A site has the name that most of its hosts report already (if several names are equally
/// frequent, the first in alphabetical order). If no such name is free, the site has the name of
/// its first host, with a number if this name is taken, too. If two sites want one name, the site
/// with more hosts that report the name gets the name. No site is called [`UNSET`].
///
/// The candidates for the representative are the hosts that already represent the site or, if there
/// are none, all hosts of the site. The representative is the first candidate by name with a median
/// round-trip time to the other hosts of at most twice the smallest median. A smallest median below
/// 0.2 ms counts as 0.2 ms. So small changes of forecasts do not change the representative.
///
/// A site with unknown round-trip times may have no representative. There is no representative if a
/// pair of the site is [`RttState::Failed`], and no new representative while a pair is
/// [`RttState::Unmeasured`]. Pairs that this station cannot see ([`RttState::NotVisible`]) are
/// ignored, so that a member can join a site by itself.
pub fn sites_of<R: Into<RttState>>(hosts: &[SiteReport], rtt: impl Fn(usize, usize) -> R) -> Vec<Site> {
    let hosts = &hosts[..hosts.len().min(SITES_HOSTS_MAX)];
    let pair = |a, b| -> RttState { rtt(a, b).into() };
    let rtt = |a, b| pair(a, b).known();
    let proposals = propose(hosts.len(), |a, b| rtt(a, b).map(|rtt| rtt.value), |site| is_site(hosts, site));
    let names = names(hosts, &proposals);
    let site = |(proposal, name): (SiteProposal, String)| Site {
        representative: representative(hosts, &proposal, &name, &pair),
        within_s: proposal.within_s.and_then(|_| widest(&proposal.hosts, &rtt)),
        next_s: proposal.next.and_then(|(next, _)| between(&proposal.hosts, next, &rtt)),
        close: close(hosts, &proposal, &rtt),
        name,
        proposal,
    };
    proposals.into_iter().zip(names).map(site).collect()
}

/// Position that host `own` (an index in `hosts`) should have in these sites. The result may be the
/// position that the host already has.
///
/// A host that joins a site represents it until all hosts of the site have had time to join. Then
/// one of these hosts is chosen. A host leaves `global` only while another host represents the
/// site. The result is `None` while too few round-trip times are known to propose a representative.
/// For a host that is near no other host, the result is also `None` if the host has no site, or if
/// no round-trip time to another host is known.
#[must_use]
pub fn position(own: usize, hosts: &[SiteReport], sites: &[Site]) -> Option<SitePosition> {
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
    Some(SitePosition { site: site.name.clone(), represents })
}

/// Returns the [`position`] that host `own` changes to without an operator. Two things must be
/// clear before host `own` moves to another site: which hosts belong to that site, and that `own`
/// belongs to no other site.
#[must_use]
pub fn certain_position(own: usize, hosts: &[SiteReport], sites: &[Site]) -> Option<SitePosition> {
    let position = position(own, hosts, sites)?;
    let is_close = |site: &Site| {
        if site.proposal.hosts.contains(&own) { !site.close.is_empty() } else { site.close.contains(&own) }
    };
    let stays = hosts[own].site.as_ref() == Some(&position.site);
    (stays || !sites.iter().any(is_close)).then_some(position)
}

/// Delays a change until it has been requested for long enough without interruption.
#[derive(Clone, Debug)]
pub struct Debounce<T = SitePosition> {
    hold: Duration,
    asked: Option<(T, Duration)>,
}

impl<T: Clone + PartialEq> Debounce<T> {
    /// Creates a filter that releases a change after every call of [`observe`](Self::observe) has
    /// requested the change for the time `hold`.
    #[must_use]
    pub fn new(hold: Duration) -> Self {
        Self { hold, asked: None }
    }

    /// Records which change is requested at `now`, if any. When the change is due, returns the
    /// change once.
    pub fn observe(&mut self, asked: Option<T>, now: Duration) -> Option<T> {
        let since = match (&self.asked, &asked) {
            (Some((known, since)), Some(asked)) if known == asked => *since,
            _ => now,
        };
        let is_due = self.hold <= now.saturating_sub(since);
        self.asked = asked.map(|asked| (asked, since));
        if is_due { self.asked.take().map(|(asked, _)| asked) } else { None }
    }

    /// Drops the pending change.
    pub fn reset(&mut self) {
        self.asked = None;
    }

    /// The pending change, and the time after `now` until it is due.
    #[must_use]
    pub fn pending(&self, now: Duration) -> Option<(&T, Duration)> {
        let (asked, since) = self.asked.as_ref()?;
        Some((asked, (*since + self.hold).saturating_sub(now)))
    }
}

/// A name for each proposal.
fn names(hosts: &[SiteReport], proposals: &[SiteProposal]) -> Vec<String> {
    // Sites reported by the hosts of a proposal, the most frequent first.
    let said = |proposal: &SiteProposal| {
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
        // The search always finds a name, because there are more numbers than sites.
        let name = all.find(|name| name != UNSET && !taken.contains(name)).unwrap_or_default();
        taken.insert(name.clone());
        names[at] = name;
    }
    names
}

/// Representative of a proposed site; `None` if too few round-trip times within the site are known.
fn representative(
    hosts: &[SiteReport],
    proposal: &SiteProposal,
    name: &str,
    pair: &impl Fn(usize, usize) -> RttState,
) -> Option<usize> {
    let site = &proposal.hosts[..];
    let of_pair = |(a, b): &(usize, usize)| [pair(*a, *b), pair(*b, *a)];
    let is_there = |state: RttState| proposal.unknown.iter().flat_map(of_pair).any(|found| found == state);
    let stands = |host: &usize| hosts[*host].represents && hosts[*host].site.as_deref() == Some(name);
    let standing: Vec<usize> = site.iter().copied().filter(stands).collect();
    if is_there(RttState::Failed) || (standing.is_empty() && is_there(RttState::Unmeasured)) {
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

/// Forecast of a pair, in whichever direction it is known.
fn either(a: usize, b: usize, rtt: &impl Fn(usize, usize) -> Option<PathEstimate>) -> Option<PathEstimate> {
    rtt(a, b).or_else(|| rtt(b, a)).filter(|rtt| rtt.value.is_finite())
}

fn widest(site: &[usize], rtt: &impl Fn(usize, usize) -> Option<PathEstimate>) -> Option<PathEstimate> {
    let pairs = site.iter().flat_map(|a| site.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
    pairs.filter_map(|(a, b)| either(a, b, rtt)).max_by(|a, b| a.value.total_cmp(&b.value))
}

/// Mean round-trip time from the hosts of a site to another host. The ends of its interval are
/// means, too.
fn between(
    site: &[usize],
    other: usize,
    rtt: &impl Fn(usize, usize) -> Option<PathEstimate>,
) -> Option<PathEstimate> {
    let known: Vec<PathEstimate> = site.iter().filter_map(|host| either(*host, other, rtt)).collect();
    let mean = |of: fn(&PathEstimate) -> f64| known.iter().map(of).sum::<f64>() / known.len() as f64;
    (!known.is_empty()).then(|| PathEstimate {
        value: mean(|rtt| rtt.value),
        lower: mean(|rtt| rtt.lower),
        upper: mean(|rtt| rtt.upper),
    })
}

fn close(
    hosts: &[SiteReport],
    proposal: &SiteProposal,
    rtt: &impl Fn(usize, usize) -> Option<PathEstimate>,
) -> Vec<usize> {
    let is_alone = proposal.hosts.len() == 1;
    let gap = if is_site(hosts, &proposal.hosts) { GAP / SLACK } else { GAP };
    let upper = widest(&proposal.hosts, rtt).map_or(0.0, |rtt| rtt.upper);
    let limit = if is_alone { SITE_S } else { gap * upper.max(FLOOR_S) };
    let is_close = |other: &usize| {
        between(&proposal.hosts, *other, rtt)
            .is_some_and(|rtt| rtt.lower < limit && (!is_alone || rtt.value > SITE_S))
    };
    (0..hosts.len()).filter(|other| !proposal.hosts.contains(other)).filter(is_close).collect()
}

/// Whether all hosts report the same site.
fn is_site(hosts: &[SiteReport], site: &[usize]) -> bool {
    let mut said = site.iter().map(|host| hosts[*host].site.as_deref());
    said.next().flatten().is_some_and(|first| said.all(|site| site == Some(first)))
}

/// Largest median round-trip time of a representative, as a multiple of the smallest median of the
/// candidates.
const FAR: f64 = 2.0;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
