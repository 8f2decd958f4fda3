//! What is made of the model's probabilities: shapes, hybrids, claims that are not believed, and the sum.

use super::lengths::{self, Lengths};
use super::pattern::Known;
use crate::evidence::SURE;
use crate::paper::{LOSS_RATE_MIN, loss_rate};
use crate::{Cause, Classifier, Diagnosis, Found, Gap, Metrics, Shape, Verdict};

/// The least share of the losses that makes a window hybrid.
const SHARE_MIN: f64 = 0.05;

/// How sure of both parts one has to be to split a window: of a window of one cause the longest runs may look like the other.
const SPLIT_SURE: f64 = 0.99;

/// Nor where the long part is not this much longer than the other, run for run: neighbours among the runs of a queue are up to 2.5 times as long as one
/// another, and the host's and the network's of one window in twenty less than 3.6 times.
const SPLIT_RATIO: f64 = 3.0;

/// A part of a window that is the network's is the host's only if that is as likely as not: of a hybrid's long runs also with the delay and marks.
const PART_MIN: f64 = 0.5;

/// The most that is said of the host where there is no sign of it, whatever the model makes of the pattern: nobody can tell.
const UNSURE_MAX: f64 = 0.5;

/// One-way delay before the losses (s) from which a queue is held to have lost them, however long the runs: before the losses of the open signatures'
/// hosts it is 3.7 ms at the most (at loss rates up to 0.05), before those of half of their queues 4.5 ms and more.
const CLEAR_DELAY_S: f64 = 4e-3;

/// Runs of losses longer than this (packets, in the mean over losses) are like a stall: true claims of five runs and more have 17 at the least, and a queue
/// makes 11 at the most of a sender that is not incast. The long part of a hybrid window has to be so long too, for a queue also makes
/// a few short runs beside its single drops.
const STALL_BURST: f64 = 14.0;

/// A claim of such runs is not believed where the pattern gives it less than this: true ones of the open signatures get 0.013 at the least, by a model
/// that has not seen their run, and half of incast's less.
const STALL_MIN: f64 = 0.002;

/// Runs of losses longer than this many packets, and than so many bursts, are like an outage.
///
/// The shortest outage of the open signatures lost 256 packets, 3 ms at their rate. Twenty bursts alone would be 20 packets of a sender that sends
/// singly: a quarter of the host's windows of 20 000 are a longer run; at both 4 % of them are
/// left in doubt, and 8 % of those of 100 000.
const OUTAGE_RUN: u32 = 250;
const OUTAGE_BURSTS: u32 = 20;

/// A sender that has not told its burst may well send so many packets at once.
const BURST_PRESUMED: u32 = 16;

/// What share of the losses such runs have at least: an outage is not alone in losing.
const OUTAGE_SHARE: f64 = 0.95;

/// What makes a policer: so many runs at least, so many of them of one packet, spaced so much more evenly than at random (which is 1).
const POLICER_GAPS: u32 = 16;
const POLICER_ISOLATED: f64 = 0.9;
const POLICER_VARIATION: f64 = 0.5;

/// The probabilities that the host lost the long runs of a window, and the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// Runs from this length on are the long ones; 0 where all are judged alike.
    from: u32,
    /// Losses in long runs.
    pub(crate) long_lost: u32,
    pub(crate) long: f64,
    pub(crate) short: f64,
    pub(crate) shape: Option<Shape>,
}

impl Judged {
    fn alike(p_host: f64, shape: Option<Shape>) -> Self {
        Self { from: 0, long_lost: 0, long: p_host, short: p_host, shape }
    }

    pub(crate) fn p_host(&self, gap: Gap) -> f64 {
        if gap.lost >= self.from { self.long } else { self.short }
    }
}

impl Classifier {
    /// Who lost these gaps, by pattern, delay and marks; `metrics` are theirs, and there is one at least.
    pub(crate) fn judge<I: Iterator<Item = Gap>>(
        &self,
        gaps: impl Fn() -> I,
        metrics: &Metrics,
        known: Known,
    ) -> Judged {
        let shape = shape(gaps(), metrics, known);
        // A stall and an outage look the same, and either may begin over a queue. Where the delay is not known, to doubt would take a twentieth of
        // the host's windows.
        let is_outage = shape == Some(Shape::Outage) && known.delay_s.is_some();
        if is_outage || metrics.lost == metrics.packets {
            return Judged::alike(0.5, shape);
        }
        let most = if can_be_the_hosts(metrics, known) { 1.0 } else { UNSURE_MAX };
        let whole = Judged::alike(self.pattern.p_host(metrics, known).min(most), shape);
        self.split(gaps, metrics, known).unwrap_or(whole)
    }

    /// That the answer rests on the pattern of these gaps, and on what of this is known; where nothing arrived there is none, and nobody can tell.
    pub(crate) fn note(&self, found: &mut Found, metrics: &Metrics, known: Known) {
        if metrics.lost < metrics.packets {
            found.pattern = true;
            found.burst |= known.burst.is_some();
            found.delay |= known.delay_s.is_some();
            found.marks |= known.is_marked;
            found.extrapolated |= self.pattern.is_extrapolated(metrics);
        }
    }

    /// Whether packets that the host claims to have dropped may be its, beside all else that is known of them and of their window.
    ///
    /// - A claim of a part where the rest of the evidence says network: only if these runs by themselves are rather the host's.
    /// - A claim of all, in one run over no queue: always, for the pattern of one run says too little; of one packet too, which a host of the open
    ///   signatures lost.
    /// - A claim of all, in runs as long as stalls: unless the pattern is clearly against it. A host may stall over a queue, so delay and marks are not asked.
    /// - Else: unless all that is known says network.
    pub(crate) fn may_be_the_hosts(&self, claimed: (&Metrics, Known), window: (&Metrics, Known)) -> bool {
        let (runs, known) = claimed;
        if runs.lost == 0 {
            return true;
        }
        let is_networks =
            |(metrics, known): (&Metrics, Known)| self.pattern.p_host(metrics, known) <= 1.0 - SURE;
        let by_pattern = self.pattern.p_host(runs, known.without_queue());
        if runs.lost < window.0.lost {
            !is_networks(claimed) && (by_pattern >= PART_MIN || !is_networks(window))
        } else if runs.gaps == 1 && !known.has_queue() {
            true
        } else if runs.weighted_burst > STALL_BURST {
            by_pattern >= STALL_MIN
        } else {
            !is_networks(claimed)
        }
    }

    /// Long runs that are the host's among short ones that are the network's, both clearly by the pattern and with their share; the delay and marks are
    /// those of both, and so only asked whether they speak against the host.
    fn split<I: Iterator<Item = Gap>>(
        &self,
        gaps: impl Fn() -> I,
        metrics: &Metrics,
        known: Known,
    ) -> Option<Judged> {
        // Of runs as alike as these no part is long.
        if f64::from(metrics.longest_burst) < 2.0 * metrics.mean_burst || !metrics.may_be_apart(SPLIT_RATIO) {
            return None;
        }
        let lengths = Lengths::of(gaps());
        let from = lengths.break_at().filter(|(ratio, _)| *ratio >= SPLIT_RATIO)?.1;
        let long_lost = lengths.lost_from(from);
        let share = f64::from(long_lost) / f64::from(metrics.lost);
        if !(SHARE_MIN..=1.0 - SHARE_MIN).contains(&share) {
            return None;
        }
        let [short, long] = lengths::parts(gaps(), from).map(|part| part.metrics(metrics.packets));
        let p_host = |part: &Metrics| self.pattern.p_host(part, known.without_queue());
        let is_clear = long.weighted_burst > STALL_BURST
            && known.burst.is_none_or(|burst| long.longest_burst > burst)
            && p_host(&long) >= SPLIT_SURE
            && p_host(&short) <= 1.0 - SPLIT_SURE
            && self.pattern.p_host(&long, known) >= PART_MIN;
        let is_outage = known.delay_s.is_some()
            && is_like_an_outage(gaps().filter(|gap| gap.lost >= from), &long, known.burst);
        let p_long = if is_outage { 0.5 } else { p_host(&long) };
        let shape = is_outage.then_some(Shape::Outage);
        is_clear.then_some(Judged { from, long_lost, long: p_long, short: p_host(&short), shape })
    }
}

/// What these gaps look like.
pub(crate) fn shape(gaps: impl Iterator<Item = Gap>, metrics: &Metrics, known: Known) -> Option<Shape> {
    let is_policed = known.delay_s.is_some()
        && !known.has_queue()
        && metrics.gaps >= POLICER_GAPS
        && metrics.isolated >= POLICER_ISOLATED
        && metrics.spacing_variation <= POLICER_VARIATION;
    if is_policed {
        Some(Shape::Policer)
    } else {
        is_like_an_outage(gaps, metrics, known.burst).then_some(Shape::Outage)
    }
}

/// Whether a path that carried nothing for a while may have lost these.
pub(crate) fn is_like_an_outage(
    gaps: impl Iterator<Item = Gap>,
    metrics: &Metrics,
    burst: Option<u32>,
) -> bool {
    let run = OUTAGE_RUN.max(burst.unwrap_or(BURST_PRESUMED).saturating_mul(OUTAGE_BURSTS));
    if metrics.longest_burst <= run {
        return false;
    }
    let lost: u32 = gaps.map(|gap| gap.lost).filter(|lost| *lost > run).sum();
    f64::from(lost) >= OUTAGE_SHARE * f64::from(metrics.lost)
}

/// Whether the host can be named by this pattern, or part of one, without its count.
///
/// Not where it lost no more at once than the sender sends at once, which any full buffer may drop whole, unless no queue stood; not where a queue
/// stood too long before; and by the pattern alone not below the range of loss rates that anything is known of.
fn can_be_the_hosts(metrics: &Metrics, known: Known) -> bool {
    let may_be_full = known.delay_s.is_none() || known.has_queue();
    let is_burst = may_be_full && known.burst.is_some_and(|burst| metrics.longest_burst <= burst);
    let is_delayed = known.delay_s.is_some_and(|delay| delay >= CLEAR_DELAY_S);
    let is_rare = known.delay_s.is_none() && loss_rate(metrics) < LOSS_RATE_MIN;
    !(is_burst || is_delayed || is_rare)
}

/// Who lost packets that the host lost with this probability.
pub(crate) fn cause(p_host: f64) -> Cause {
    match p_host {
        SURE.. => Cause::Host,
        p_host if p_host <= 1.0 - SURE => Cause::Network,
        _ => Cause::Unknown,
    }
}

/// Adds up losses by who lost them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    host: u32,
    network: u32,
    unknown: u32,
    expected: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, lost: u32, p_host: f64) {
        self.expected += f64::from(lost) * p_host;
        match cause(p_host) {
            Cause::Host => self.host += lost,
            Cause::Network => self.network += lost,
            Cause::Unknown => self.unknown += lost,
        }
    }

    pub(crate) fn diagnosis(self, shape: Option<Shape>, found: Found) -> Diagnosis {
        let lost = self.host + self.network + self.unknown;
        let p_cpu = if lost == 0 { 0.5 } else { self.expected / f64::from(lost) };
        // As a quotient, or rounding would make 7 of 140 less than 5 %.
        let has_share = |part: u32| part > 0 && f64::from(part) / f64::from(lost) >= SHARE_MIN;
        let verdict = match cause(p_cpu) {
            Cause::Host => Verdict::Cpu,
            Cause::Network => Verdict::Network,
            Cause::Unknown if has_share(self.host) && has_share(self.network) => Verdict::Hybrid,
            Cause::Unknown => Verdict::Inconclusive,
        };
        Diagnosis {
            p_cpu,
            lost_host: self.host,
            lost_network: self.network,
            lost_unknown: self.unknown,
            verdict,
            shape,
            found,
        }
    }
}
