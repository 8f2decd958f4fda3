//! Evidence beside the pattern of losses, and the diagnosis.

use crate::Metrics;

/// Evidence on a window beside its pattern. `None` means that the value is not known. An unknown
/// value is evidence for neither cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Number of packets that the sender sends at once, at least 1.
    pub burst: Option<u32>,
    /// One-way delay just before the losses, minus the path's minimum, s. The value is the mean
    /// over the losses. A value below 0 counts as 0.
    pub delay_s: Option<f64>,
    /// Number of packets that the receiving socket dropped in the window, counted by the receiver's
    /// kernel.
    pub host_drops: Option<u32>,
    /// Number of packets that arrived with a congestion mark (CE, RFC 3168) in the window.
    pub marks: Option<u32>,
}

impl Evidence {
    /// Limits the evidence to what is possible: no more drops than packets lost, no more marks than
    /// packets received. Also returns whether the evidence exceeded one of these limits.
    pub(crate) fn possible(&self, metrics: &Metrics) -> (Self, bool) {
        let received = metrics.packets.saturating_sub(metrics.lost);
        let possible = Self {
            host_drops: self.host_drops.map(|drops| drops.min(metrics.lost)),
            marks: self.marks.map(|marks| marks.min(received)),
            ..*self
        };
        (possible, possible.host_drops != self.host_drops || possible.marks != self.marks)
    }
}

/// Evidence on one gap, in addition to the gap's length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GapEvidence {
    /// Increase of the socket's drop counter over the gap. With GRO, the counter counts buffers,
    /// not packets. So the classifier uses only whether the increase is 0.
    pub host_drops: Option<u32>,
    /// One-way delay of the packet before the gap, minus the path's minimum, s.
    pub delay_s: Option<f64>,
    /// Whether the packet before or after the gap had a congestion mark.
    pub is_marked: Option<bool>,
}

/// Cause of packet losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The receiving host, which did not read the packets in time.
    Host,
    /// The network between both hosts.
    Network,
    /// The evidence does not name a cause.
    Unknown,
}

/// Verdict on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The host's CPU, with a probability of at least 0.95.
    Host,
    /// The network, with a probability of at least 0.95.
    Network,
    /// Both causes, each with at least 5 % of the losses.
    Hybrid,
    /// The evidence is not sufficient for any of the other verdicts.
    Inconclusive,
}

/// Known pattern that a window resembles, beside its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossPattern {
    /// Outage: the path delivered no packets for a while.
    Outage,
    /// Policer: regular losses without a queue.
    Policer,
}

/// Evidence that a diagnosis is based on, and doubts about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceUsed {
    /// The pattern of losses was used.
    pub pattern: bool,
    /// The number of packets sent at once was used.
    pub burst: bool,
    /// The one-way delay before the losses was used.
    pub delay: bool,
    /// The kernel's drop counter was used.
    pub host_drops: bool,
    /// Congestion marks were used.
    pub marks: bool,
    /// Some evidence was not believed: a claim of drops that all other evidence contradicts, more
    /// drops than lost packets, or more marks than received packets.
    pub disbelieved: bool,
    /// The pattern is outside the range of the model: a loss rate below 0.00008 or above 0.05, or a
    /// window shorter or longer than those fitted. The accuracy outside the range was not measured.
    pub extrapolated: bool,
}

/// Diagnosis of a window: its verdict, its probability and its evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Mean, over all lost packets, of the probability that the host's CPU caused the loss, 0 to 1.
    /// The probability of the network is 1 minus this value.
    pub p_host: f64,
    /// Number of packets lost by the host.
    pub lost_host: u32,
    /// Number of packets lost by the network.
    pub lost_network: u32,
    /// Number of packets lost for an unknown cause. `lost_host`, `lost_network` and `lost_unknown`
    /// add up to the losses of the window.
    pub lost_unknown: u32,
    /// Verdict on the whole window.
    pub verdict: Verdict,
    /// Known pattern that the window resembles, if any.
    pub pattern: Option<LossPattern>,
    /// Evidence that the diagnosis is based on.
    pub evidence_used: EvidenceUsed,
}

impl Diagnosis {
    /// Diagnosis without any evidence.
    pub(crate) fn inconclusive(lost: u32) -> Self {
        Self {
            p_host: 0.5,
            lost_host: 0,
            lost_network: 0,
            lost_unknown: lost,
            verdict: Verdict::Inconclusive,
            pattern: None,
            evidence_used: EvidenceUsed::default(),
        }
    }
}

/// Smallest probability at which a cause is named (Dickens §2.2).
pub(crate) const VERDICT_PROBABILITY: f64 = 0.95;
