//! Verdicts from the model's probabilities: known patterns, hybrid windows, whether the drops that
//! the host claims are plausible, and totals by cause.

use super::lengths::{self, RunHistogram};
use super::pattern::KnownEvidence;
use crate::evidence::VERDICT_PROBABILITY;
use crate::paper::{LOSS_RATE_MAX, LOSS_RATE_MIN, loss_rate};
use crate::{Cause, Classifier, Diagnosis, EvidenceUsed, LossPattern, LossRun, Metrics, Verdict};

/// Smallest share of the losses of a hybrid window that each of the two causes must have.
const SHARE_MIN: f64 = 0.05;

/// Smallest probability of a cause for a split. A window is split into long and short runs only if
/// the cause of each group has at least this probability. In a window with one cause, the longest
/// runs may resemble the other cause, so the probability must be high.
const SPLIT_PROBABILITY: f64 = 0.99;

/// Smallest ratio of the shortest long run to the longest short run at which a window is split. In
/// windows of a queue, neighbouring lengths differ by a factor of up to 2.5. In 5 % of the hybrid
/// windows, the lengths of the host's runs and of the network's runs differ by a factor below 3.6.
const SPLIT_RATIO: f64 = 3.0;

/// Smallest probability that the host lost the claimed runs. This limit applies if the host claims
/// only some of the losses, and the other evidence on the window names the network. The long runs
/// of a hybrid window also need this probability when delay and marks are used.
const PART_MIN: f64 = 0.5;

/// Upper limit of the probability for the host, if the pattern alone cannot name the host. At this
/// probability, the result is undecided.
const UNDECIDED_MAX: f64 = 0.5;

/// Smallest one-way delay just before the losses (s) at which the pattern alone cannot name the
/// host, because there was a queue. This limit applies to runs of any length. In the open
/// signatures this delay is at most 3.7 ms for losses of the host (at loss rates up to 0.05). The
/// delay is 4 ms or more in two of five windows with losses of a queue.
const CLEAR_DELAY_S: f64 = 4e-3;

/// Length from which runs resemble a stall, in packets. This limit is compared with the mean, over
/// all lost packets, of the length of the packet's run. If the host dropped the packets in five
/// runs or more, this mean is at least 17. If a queue dropped the packets, the mean is at most 11,
/// except for incast. The long runs of a hybrid window must also reach this length, because a queue
/// makes a few short runs beside its single drops.
const STALL_BURST: f64 = 14.0;

/// Smallest probability for the host at which a claim of runs longer than [`STALL_BURST`] is
/// believed. The probability is computed from the pattern, without delay and marks. For all true
/// claims in the open signatures, the probability is larger, by a model that was not fitted on the
/// run of the claim.
const STALL_MIN: f64 = 0.002;

/// Limits on the length of a run of losses, in packets and in bursts. Runs that exceed both limits
/// resemble an outage.
///
/// The shortest outage of the open signatures lost 256 packets, 3 ms at their rate. A limit in
/// bursts alone is too low for a sender that sends one packet at a time: twenty bursts are then 20
/// packets, and a quarter of the windows of 20 000 packets with losses of the host have a longer
/// run.
const OUTAGE_RUN: u32 = 250;
const OUTAGE_BURSTS: u32 = 20;

/// Length of a run, in packets, from which a single run may be an outage that is seen once.
///
/// A shorter run is far more likely a stall. Of the host's windows of 20 000 packets in the open
/// signatures, 12 of 460 have a single run of more than [`OUTAGE_RUN`] packets and at most this
/// length. We assume that at most one of 1000 windows with losses of the network has an outage. So
/// the odds are 26 to 1 for the host, and a verdict needs 19 to 1. Only 8 of 460 windows have a
/// longer single run, so the odds are 17 to 1 at most. Several outages in one window are rarer
/// still, but stalls recur: two or more long runs are not doubted.
const LONE_RUN: u32 = 1000;

/// Assumed burst, in packets, of a sender that does not report its burst.
const BURST_PRESUMED: u32 = 16;

/// Smallest share of the losses of an outage that are in runs longer than both limits. Other
/// packets of the window may be lost, too.
const OUTAGE_SHARE: f64 = 0.95;

/// Pattern of a policer: the smallest number of runs, the smallest share of runs of one packet, and
/// the largest variation of the spacing between runs. Random losses have a variation of 1.
const POLICER_GAPS: u32 = 16;
const POLICER_ISOLATED: f64 = 0.9;
const POLICER_VARIATION: f64 = 0.5;

/// Probabilities that the host lost the long runs of a window, and that it lost the short runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitProbabilities {
    /// Shortest length of a long run; 0 if all runs are judged together.
    from: u32,
    /// Number of losses in long runs.
    pub(crate) long_lost: u32,
    pub(crate) long: f64,
    pub(crate) short: f64,
    pub(crate) pattern: Option<LossPattern>,
}

impl SplitProbabilities {
    fn alike(p_host: f64, pattern: Option<LossPattern>) -> Self {
        Self { from: 0, long_lost: 0, long: p_host, short: p_host, pattern }
    }

    pub(crate) fn p_host(&self, gap: LossRun) -> f64 {
        if gap.lost >= self.from { self.long } else { self.short }
    }
}

impl Classifier {
    /// Classifies gaps by pattern, delay and marks. `metrics` are the metrics of these gaps. There
    /// must be at least one gap.
    pub(crate) fn classify_gaps<I: Iterator<Item = LossRun>>(
        &self,
        gaps: impl Fn() -> I,
        metrics: &Metrics,
        known: KnownEvidence,
    ) -> SplitProbabilities {
        let pattern = known_pattern(gaps(), metrics, known);
        if metrics.lost == metrics.packets {
            return SplitProbabilities::alike(0.5, pattern);
        }
        let most = if self.may_name_host(metrics, known) { 1.0 } else { UNDECIDED_MAX };
        let whole =
            SplitProbabilities::alike(self.pattern.p_host_by_parts(metrics, known).min(most), pattern);
        self.split(gaps, metrics, known).unwrap_or(whole)
    }

    /// Records that the diagnosis uses the pattern of these gaps and the evidence. If nothing
    /// arrived, there is no pattern.
    pub(crate) fn record_evidence_used(
        &self,
        evidence_used: &mut EvidenceUsed,
        metrics: &Metrics,
        known: KnownEvidence,
    ) {
        if metrics.lost < metrics.packets {
            evidence_used.pattern = true;
            evidence_used.burst |= known.burst.is_some();
            evidence_used.delay |= known.delay_s.is_some();
            evidence_used.marks |= known.is_marked;
            evidence_used.extrapolated |= self.pattern.is_extrapolated(metrics);
        }
    }

    /// Whether the host may have dropped the packets that it claims, given all other evidence on
    /// these packets and on their window.
    ///
    /// - The host claims some of the losses, and the evidence on the window names the network: true
    ///   only if the host is at least as likely as the network to have lost the claimed runs. This
    ///   probability is computed from the claimed runs alone, without delay and marks.
    /// - The host claims all losses, they are one run, and there is no queue: true, because the
    ///   pattern of one run has too little information. The run may be a single packet: a host of
    ///   the open signatures lost a single packet.
    /// - The host claims all losses, and the runs are as long as stalls: true unless the pattern
    ///   clearly contradicts the claim. Delay and marks are not used, because a host may stall
    ///   while there is a queue.
    /// - In all other cases: true unless the evidence names the network.
    pub(crate) fn is_claim_plausible(
        &self,
        claimed: (&Metrics, KnownEvidence),
        window: (&Metrics, KnownEvidence),
    ) -> bool {
        let (runs, known) = claimed;
        if runs.lost == 0 {
            return true;
        }
        let is_networks = |(metrics, known): (&Metrics, KnownEvidence)| {
            self.pattern.p_host(metrics, known) <= 1.0 - VERDICT_PROBABILITY
        };
        let by_pattern = self.pattern.p_host(runs, known.without_queue());
        if runs.lost < window.0.lost {
            !is_networks(claimed) && (by_pattern >= PART_MIN || !is_networks(window))
        } else if runs.gaps == 1 && !known.has_queue() {
            true
        } else if runs.weighted_run > STALL_BURST {
            by_pattern >= STALL_MIN
        } else {
            !is_networks(claimed)
        }
    }

    /// Whether the pattern can name the host, without the host's drop counter.
    ///
    /// The pattern cannot name the host in four cases. First, no run is longer than the sender's
    /// burst, and there was a queue, or the delay is not known: any full buffer may drop a burst or
    /// its end. If the delay is not known, runs shorter than a burst that are the host's by their
    /// pattern alone stay the host's, so that a known burst makes no window inconclusive. Second,
    /// the delay is [`CLEAR_DELAY_S`] or more. Third, the delay is not known, and the loss rate is
    /// below [`LOSS_RATE_MIN`]. Fourth, the losses are one long run, which may be an outage.
    fn may_name_host(&self, metrics: &Metrics, known: KnownEvidence) -> bool {
        let is_hosts_by_pattern = || {
            let pattern = KnownEvidence { is_marked: known.is_marked, ..KnownEvidence::default() };
            self.pattern.p_host_by_parts(metrics, pattern) >= VERDICT_PROBABILITY
        };
        let may_be_full = |burst| {
            let may_be_shorter = known.delay_s.is_none() && metrics.longest_run < burst;
            !(may_be_shorter && is_hosts_by_pattern())
        };
        let may_have_queue = known.delay_s.is_none() || known.has_queue();
        let is_burst = may_have_queue
            && known.burst.is_some_and(|burst| metrics.longest_run <= burst && may_be_full(burst));
        let is_delayed = known.delay_s.is_some_and(|delay| delay >= CLEAR_DELAY_S);
        let is_rare = known.delay_s.is_none() && loss_rate(metrics) < LOSS_RATE_MIN;
        !(is_burst || is_delayed || is_rare || may_be_lone_outage(metrics, known.burst))
    }

    /// Splits a window into long runs of the host and short runs of the network. Returns `None` if
    /// the pattern does not clearly show both causes, or if one cause has too small a share of the
    /// losses. Delay and marks were measured over both kinds of runs, so delay and marks are used
    /// only as evidence against the host.
    fn split<I: Iterator<Item = LossRun>>(
        &self,
        gaps: impl Fn() -> I,
        metrics: &Metrics,
        known: KnownEvidence,
    ) -> Option<SplitProbabilities> {
        // If the lengths of the runs are similar, there are no long runs to separate.
        if f64::from(metrics.longest_run) < 2.0 * metrics.mean_run || !metrics.may_be_apart(SPLIT_RATIO) {
            return None;
        }
        let lengths = RunHistogram::of(gaps());
        let from = lengths.widest_break().filter(|(ratio, _)| *ratio >= SPLIT_RATIO)?.1;
        let long_lost = lengths.lost_from(from);
        let share = f64::from(long_lost) / f64::from(metrics.lost);
        if !(SHARE_MIN..=1.0 - SHARE_MIN).contains(&share) {
            return None;
        }
        let [short, long] = lengths::split_sums(gaps(), from).map(|part| part.metrics(metrics.packets));
        // Both the model with the burst and the model without it must agree, so that a known burst
        // never makes a window hybrid.
        let p_host = |part: &Metrics, known| self.pattern.p_host(part, known);
        let by_burst = known.without_queue();
        let is_clearly = |long: &Metrics, short: &Metrics, known| {
            p_host(long, known) >= SPLIT_PROBABILITY && p_host(short, known) <= 1.0 - SPLIT_PROBABILITY
        };
        let is_clear = long.weighted_run > STALL_BURST
            && known.burst.is_none_or(|burst| long.longest_run > burst)
            && [by_burst, KnownEvidence::default()].into_iter().all(|known| is_clearly(&long, &short, known))
            && p_host(&long, known) >= PART_MIN;
        let is_outage = may_be_lone_outage(&long, known.burst);
        let p_long = if is_outage { UNDECIDED_MAX } else { p_host(&long, by_burst) };
        let pattern = is_outage.then_some(LossPattern::Outage);
        is_clear.then_some(SplitProbabilities {
            from,
            long_lost,
            long: p_long,
            short: p_host(&short, by_burst),
            pattern,
        })
    }
}

/// Known pattern that these gaps resemble.
pub(crate) fn known_pattern(
    gaps: impl Iterator<Item = LossRun>,
    metrics: &Metrics,
    known: KnownEvidence,
) -> Option<LossPattern> {
    let is_policed = known.delay_s.is_some()
        && !known.has_queue()
        && metrics.gaps >= POLICER_GAPS
        && metrics.isolated >= POLICER_ISOLATED
        && metrics.spacing_variation <= POLICER_VARIATION;
    if is_policed {
        Some(LossPattern::Policer)
    } else {
        is_like_an_outage(gaps, metrics, known.burst).then_some(LossPattern::Outage)
    }
}

/// Whether these losses resemble outages, in which the path delivers no packets for a while.
pub(crate) fn is_like_an_outage(
    gaps: impl Iterator<Item = LossRun>,
    metrics: &Metrics,
    burst: Option<u32>,
) -> bool {
    let run = OUTAGE_RUN.max(outage_bursts(burst));
    if metrics.longest_run <= run {
        return false;
    }
    let lost: u32 = gaps.map(|gap| gap.lost).filter(|lost| *lost > run).sum();
    f64::from(lost) >= OUTAGE_SHARE * f64::from(metrics.lost)
}

/// Whether nearly all of these losses are one run that is as likely an outage as a stall.
///
/// The loss rate must be above the rates for which accuracy was measured: a host's run of 1700
/// packets is common in a window of 100 000.
fn may_be_lone_outage(metrics: &Metrics, burst: Option<u32>) -> bool {
    metrics.longest_run > LONE_RUN.max(outage_bursts(burst))
        && f64::from(metrics.longest_run) >= OUTAGE_SHARE * f64::from(metrics.lost)
        && loss_rate(metrics) > LOSS_RATE_MAX
}

/// Length of [`OUTAGE_BURSTS`] bursts, in packets.
fn outage_bursts(burst: Option<u32>) -> u32 {
    burst.unwrap_or(BURST_PRESUMED).saturating_mul(OUTAGE_BURSTS)
}

/// Cause of losses, by the probability that the host caused them.
pub(crate) fn cause(p_host: f64) -> Cause {
    match p_host {
        VERDICT_PROBABILITY.. => Cause::Host,
        p_host if p_host <= 1.0 - VERDICT_PROBABILITY => Cause::Network,
        _ => Cause::Unknown,
    }
}

/// Totals of losses by cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossTotals {
    host: u32,
    network: u32,
    unknown: u32,
    expected: f64,
}

impl LossTotals {
    pub(crate) fn add(&mut self, lost: u32, p_host: f64) {
        self.expected += f64::from(lost) * p_host;
        match cause(p_host) {
            Cause::Host => self.host += lost,
            Cause::Network => self.network += lost,
            Cause::Unknown => self.unknown += lost,
        }
    }

    pub(crate) fn diagnosis(self, pattern: Option<LossPattern>, evidence_used: EvidenceUsed) -> Diagnosis {
        let lost = self.host + self.network + self.unknown;
        let p_host = if lost == 0 { 0.5 } else { self.expected / f64::from(lost) };
        // Compare the quotient, not the product: with a product, rounding would make 7 of 140 less
        // than 5 %.
        let has_share = |part: u32| part > 0 && f64::from(part) / f64::from(lost) >= SHARE_MIN;
        let verdict = match cause(p_host) {
            Cause::Host => Verdict::Host,
            Cause::Network => Verdict::Network,
            Cause::Unknown if has_share(self.host) && has_share(self.network) => Verdict::Hybrid,
            Cause::Unknown => Verdict::Inconclusive,
        };
        Diagnosis {
            p_host,
            lost_host: self.host,
            lost_network: self.network,
            lost_unknown: self.unknown,
            verdict,
            pattern,
            evidence_used,
        }
    }
}
