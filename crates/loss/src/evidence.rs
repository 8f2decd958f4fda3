//! What else is known of a window or of a gap, and what is made of it.

use crate::Metrics;

/// What is known of a window beside its pattern. What is not known is `None`: that is no evidence either way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Packets that the sender sends at once, at least 1.
    pub burst: Option<u32>,
    /// One-way delay just before the losses, above the path's minimum (s), in the mean over the losses; less than 0 counts as 0.
    pub delay_s: Option<f64>,
    /// Packets that the receiving socket dropped in the window, by the kernel's own count.
    pub host_drops: Option<u32>,
    /// Packets that arrived marked by the network as congested (RFC 3168) in the window.
    pub marks: Option<u32>,
}

impl Evidence {
    /// What can be of it: no more drops than packets lost, no more marks than packets received; and whether it was more.
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

/// What is known of one gap beside its length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GapEvidence {
    /// By how much the socket's drop counter rose over the gap: with GRO it counts buffers and not packets, so more than 0 is what counts.
    pub host_drops: Option<u32>,
    /// One-way delay of the packet before the gap, above the path's minimum (s).
    pub delay_s: Option<f64>,
    /// Whether the packet before or after the gap was marked as congested.
    pub is_marked: Option<bool>,
}

/// Who lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The receiving host, which did not read them in time.
    Host,
    /// The network.
    Network,
    /// Nobody can tell.
    Unknown,
}

/// What is said of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The host's CPU, with a probability of at least 0.95.
    Cpu,
    /// The network, with a probability of at least 0.95.
    Network,
    /// Both, each with at least 5 % of the losses.
    Hybrid,
    /// There is too little to tell.
    Inconclusive,
}

/// What a window looks like beside its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A path that carried nothing for a while.
    Outage,
    /// A policer: regular losses without a queue.
    Policer,
}

/// Which evidence an answer rests on, and what was found wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The pattern of losses.
    pub pattern: bool,
    /// How many packets the sender sends at once.
    pub burst: bool,
    /// The one-way delay before them.
    pub delay: bool,
    /// The kernel's count of drops.
    pub host_drops: bool,
    /// Congestion marks.
    pub marks: bool,
    /// Evidence that was not believed: a claim of drops that all else contradicts, more drops than packets were lost, or more marks than were received.
    pub disbelieved: bool,
    /// The pattern was judged at a loss rate below 0.00008 or above 0.05, or of a window that is longer or shorter than those the model was fitted on: nobody
    /// has measured how right that is.
    pub extrapolated: bool,
}

/// Who lost the packets of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The probability that a lost packet was lost by the host's CPU, 0 to 1; that of the network is the rest.
    pub p_cpu: f64,
    /// Packets lost by the host.
    pub lost_host: u32,
    /// Packets lost by the network.
    pub lost_network: u32,
    /// Packets lost nobody knows where; the three add up to the window's losses.
    pub lost_unknown: u32,
    /// What is said of the window as a whole.
    pub verdict: Verdict,
    /// What it looks like, if like something.
    pub shape: Option<Shape>,
    /// What it rests on.
    pub found: Found,
}

impl Diagnosis {
    /// Nothing can be told.
    pub(crate) fn inconclusive(lost: u32) -> Self {
        Self {
            p_cpu: 0.5,
            lost_host: 0,
            lost_network: 0,
            lost_unknown: lost,
            verdict: Verdict::Inconclusive,
            shape: None,
            found: Found::default(),
        }
    }
}

/// From which probability on a cause is named (Dickens §2.2).
pub(crate) const SURE: f64 = 0.95;
