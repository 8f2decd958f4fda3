//! Causes of lost packets, and the limit of a transfer's rate, as text.

use barograph_study::units::{format_count, format_share};
use barograph_transfer::{LossesByEvidence, SendLimit, SenderStats};

/// Lost packets by cause, as shares of all packets sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Losses {
    /// Packets lost by the receiving host, as a share of all packets sent.
    pub(crate) host: f64,
    /// Packets lost by the network, as a share of all packets sent.
    pub(crate) network: f64,
    /// Packets lost by an unknown cause, as a share of all packets sent.
    pub(crate) unknown: f64,
}

impl Losses {
    /// Shares from the counts of a sender.
    pub(crate) fn of(stats: &SenderStats) -> Self {
        let share = |packets: u64| packets as f64 / stats.sent_packets.max(1) as f64;
        Self {
            host: share(stats.lost_host),
            network: share(stats.lost_network),
            unknown: share(stats.lost_unknown),
        }
    }

    /// Text with the losses by cause, or their sum if the causes are not classified.
    pub(crate) fn text(self, are_classified: bool) -> String {
        let Self { host, network, unknown } = self;
        if !are_classified {
            return format!("{} lost, causes not classified", format_share(host + network + unknown));
        }
        format!(
            "{} lost by the receiver's CPU, {} in the network{}",
            format_share(host),
            format_share(network),
            unknown_part(unknown)
        )
    }
}

/// Text with the number of lost packets by the evidence that settled their cause; `None` without
/// losses. Kinds of evidence that settled nothing are left out.
pub(crate) fn evidence_text(stats: &SenderStats) -> Option<String> {
    let LossesByEvidence { counter, marks, delay, pattern, expired } = stats.settled;
    let counts = [
        (counter, "by the receiver's counter"),
        (marks, "by congestion marks"),
        (delay, "by delay and pattern"),
        (pattern, "by pattern"),
        (expired, "without a verdict in time"),
        (stats.pending, "still without a verdict"),
    ];
    let mut parts: Vec<String> = counts
        .into_iter()
        .filter(|(packets, _)| *packets > 0)
        .map(|(packets, by)| format!("{packets} {by}"))
        .collect();
    if stats.taken_back > 0 {
        let packets = format_count(stats.taken_back, "loss", "losses");
        parts.push(format!("{packets} of the network found to be the receiver's later"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn unknown_part(unknown: f64) -> String {
    if unknown == 0.0 { String::new() } else { format!(", {} by an unknown cause", format_share(unknown)) }
}

/// What keeps a transfer from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Bottleneck {
    /// The receiving host does not read packets in time.
    Receiver,
    /// The sending program has no CPU time left: it is busy, or other programs use the processor.
    Sender,
    /// The fixed rate that the user chose.
    Rate,
    /// What the path carries, by the controller's estimate.
    Path,
    /// None of the other limits applies: the limit is something that is not measured, such as a
    /// disk or a network interface.
    Unknown,
}

impl Bottleneck {
    /// Name in JSON output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Receiver => "receiver_cpu",
            Self::Sender => "sender_cpu",
            Self::Rate => "rate",
            Self::Path => "path",
            Self::Unknown => "unknown",
        }
    }

    /// Name in text output.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Receiver => "receiver's CPU",
            Self::Sender => "sender's CPU",
            Self::Rate => "requested rate",
            Self::Path => "network",
            Self::Unknown => "something that was not measured",
        }
    }
}

/// Measurements of one second of a transfer. These measurements determine what limited the transfer
/// in that second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitSample {
    /// Losses as shares of the packets sent.
    pub(crate) losses: Losses,
    /// Limit that the sender reported at the end of the second.
    pub(crate) sender_limit: Option<SendLimit>,
    /// Share of the time in which the sender's thread computed or waited for a processor.
    pub(crate) busy: f64,
    /// Share of the time in which the thread that reads and hashes the files computed or waited for
    /// a processor.
    pub(crate) reader_busy: f64,
    /// Share of the time in which the sender's thread waited for the reading thread.
    pub(crate) reader_wait: f64,
    /// Bytes sent, as a share of the bytes that the controller allowed.
    pub(crate) rate_use: f64,
    /// Whether the controller keeps a fixed rate.
    pub(crate) is_fixed_rate: bool,
}

impl LimitSample {
    /// The first limit that applies; the most certain limits are checked first.
    pub(crate) fn limit(&self) -> Bottleneck {
        let Losses { host, network, .. } = self.losses;
        match () {
            // A fixed rate is the user's choice, whatever the receiver loses.
            () if self.is_fixed_rate && self.rate_use >= RATE_USE_MIN => Bottleneck::Rate,
            () if self.sender_limit == Some(SendLimit::Drain) || (host >= HOST_MIN && network <= host) => {
                Bottleneck::Receiver
            }
            () if self.busy >= BUSY_FULL => Bottleneck::Sender,
            // A busy reading thread is the limit only if the sender waits for this thread.
            () if self.reader_busy >= BUSY_FULL && self.reader_wait >= READER_WAIT_MIN => Bottleneck::Sender,
            () if self.sender_limit == Some(SendLimit::Window) || self.rate_use >= RATE_USE_MIN => {
                Bottleneck::Path
            }
            () => Bottleneck::Unknown,
        }
    }
}

/// Text under the progress: the limit, and the losses by cause.
pub(crate) fn line(limit: Bottleneck, losses: Losses, are_classified: bool) -> String {
    let Losses { host, network, unknown } = losses;
    if !are_classified {
        return format!("{} is the limit: {}", limit.text(), losses.text(false));
    }
    let (first, second) = match limit {
        Bottleneck::Receiver => (
            format!("{} lost there", format_share(host)),
            format!("{} in the network", format_share(network)),
        ),
        Bottleneck::Path => (
            format!("{} lost there", format_share(network)),
            format!("{} by the receiver's CPU", format_share(host)),
        ),
        Bottleneck::Sender | Bottleneck::Rate | Bottleneck::Unknown => (
            format!("{} lost by the receiver's CPU", format_share(host)),
            format!("{} in the network", format_share(network)),
        ),
    };
    format!("{} is the limit: {first}, {second}{}", limit.text(), unknown_part(unknown))
}

/// Smallest share of packets lost by the receiving host at which the receiving host counts as the
/// limit: one packet in 2000. Smaller losses occur on any system now and then.
const HOST_MIN: f64 = 0.000_5;

/// Smallest share of the allowed rate that a sender must use for the rate to count as its limit.
/// This share is low, because controllers vary their own rate by a quarter, and by half at the
/// start.
const RATE_USE_MIN: f64 = 0.5;

/// Smallest share of the time, spent on computing or waiting for a processor, at which a thread
/// counts as busy. Such a thread cannot work faster: in the rest of the time it waits for other
/// threads.
const BUSY_FULL: f64 = 0.9;

/// Smallest share of the time, spent by the sender's thread waiting for the reading thread, at
/// which a busy reading thread counts as the limit. A smaller share costs almost nothing, and
/// occurs even if the thread reads in time.
const READER_WAIT_MIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_by_cause() {
        let stats = SenderStats {
            sent_packets: 10_000,
            lost_host: 310,
            lost_network: 0,
            lost_unknown: 0,
            ..SenderStats::default()
        };
        let losses = Losses::of(&stats);
        assert_eq!(
            line(Bottleneck::Receiver, losses, true),
            "receiver's CPU is the limit: 3.1 % lost there, 0.00 % in the network"
        );
        assert_eq!(
            line(Bottleneck::Path, Losses { network: 0.0052, unknown: 0.001, ..Losses::default() }, true),
            "network is the limit: 0.52 % lost there, 0.00 % by the receiver's CPU, 0.10 % by an unknown cause"
        );
        assert_eq!(
            line(Bottleneck::Sender, Losses::default(), true),
            "sender's CPU is the limit: 0.00 % lost by the receiver's CPU, 0.00 % in the network"
        );
        assert_eq!(
            line(Bottleneck::Path, losses, false),
            "network is the limit: 3.1 % lost, causes not classified"
        );
        assert_eq!(Losses::of(&SenderStats::default()), Losses::default());
    }

    #[test]
    fn the_evidence_of_losses_is_counted() {
        assert_eq!(evidence_text(&SenderStats::default()), None);
        let settled = LossesByEvidence { counter: 310, marks: 0, delay: 20, pattern: 7, expired: 2 };
        let stats = SenderStats { settled, taken_back: 1, pending: 3, ..SenderStats::default() };
        assert_eq!(
            evidence_text(&stats).as_deref(),
            Some(
                "310 by the receiver's counter, 20 by delay and pattern, 7 by pattern, \
                 2 without a verdict in time, 3 still without a verdict, \
                 1 loss of the network found to be the receiver's later"
            )
        );
    }

    #[test]
    fn an_unmeasured_component_is_not_named_as_the_limit() {
        let idle = LimitSample { rate_use: 0.3, ..LimitSample::default() }.limit();
        assert_eq!(idle.name(), "unknown");
        let told = line(idle, Losses::default(), true);
        assert!(!told.contains("disk") && !told.contains("interface"), "{told}");
    }

    #[test]
    fn the_most_certain_bottleneck_is_the_limit() {
        let losses = Losses { network: 0.01, host: 0.001, unknown: 0.0 };
        let path = LimitSample { losses, rate_use: 0.9, ..LimitSample::default() };
        assert_eq!(path.limit(), Bottleneck::Path);
        assert_eq!(LimitSample { busy: 0.95, ..path }.limit(), Bottleneck::Sender);
        assert_eq!(
            LimitSample { busy: 0.5, reader_busy: 0.95, reader_wait: 0.3, ..path }.limit(),
            Bottleneck::Sender
        );
        assert_eq!(LimitSample { busy: 0.5, reader_busy: 0.95, ..path }.limit(), Bottleneck::Path);
        assert_eq!(LimitSample { busy: 0.5, reader_busy: 0.5, ..path }.limit(), Bottleneck::Path);
        let by = |by| LimitSample { sender_limit: Some(by), ..path };
        assert_eq!(LimitSample { busy: 0.95, ..by(SendLimit::Drain) }.limit(), Bottleneck::Receiver);
        assert_eq!(LimitSample { is_fixed_rate: true, ..by(SendLimit::Drain) }.limit(), Bottleneck::Rate);
        assert_eq!(LimitSample { reader_busy: 0.95, ..by(SendLimit::Window) }.limit(), Bottleneck::Path);
        assert_eq!(LimitSample { rate_use: 0.3, ..by(SendLimit::Window) }.limit(), Bottleneck::Path);
        assert_eq!(LimitSample { rate_use: 0.3, ..by(SendLimit::Rate) }.limit(), Bottleneck::Unknown);
        let host = Losses { host: 0.02, network: 0.02, unknown: 0.0 };
        assert_eq!(LimitSample { losses: host, ..path }.limit(), Bottleneck::Receiver);
        let few = Losses { host: 0.000_4, ..Losses::default() };
        assert_eq!(LimitSample { losses: few, ..path }.limit(), Bottleneck::Path);
    }
}
