//! Who lost packets, and what keeps a transfer from being faster, in words.

use barograph_study::units::share;
use barograph_transfer::{Limit as Held, Stats};

/// Shares of all packets sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Losses {
    /// Lost by the receiving host.
    pub(crate) host: f64,
    /// Lost by the network.
    pub(crate) network: f64,
    /// Lost nobody knows where.
    pub(crate) unknown: f64,
}

impl Losses {
    /// Of what a sender counted.
    pub(crate) fn of(stats: &Stats) -> Self {
        let share = |packets: u64| packets as f64 / stats.sent_packets.max(1) as f64;
        Self {
            host: share(stats.lost_host),
            network: share(stats.lost_network),
            unknown: share(stats.lost_unknown),
        }
    }

    /// What was lost where; where nobody tells causes apart, that it was lost.
    pub(crate) fn told(self, are_told_apart: bool) -> String {
        let Self { host, network, unknown } = self;
        if !are_told_apart {
            return format!("{} lost, by whom was not asked", share(host + network + unknown));
        }
        format!(
            "{} lost by the receiver's CPU, {} in the network{}",
            share(host),
            share(network),
            nobody_knows(unknown)
        )
    }
}

fn nobody_knows(unknown: f64) -> String {
    if unknown == 0.0 { String::new() } else { format!(", {} nobody knows where", share(unknown)) }
}

/// What keeps a transfer from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Limit {
    /// The receiving host does not read in time.
    Receiver,
    /// The sending program has no time left: its own, or that of a processor which others have.
    Sender,
    /// The rate that was asked for.
    Rate,
    /// What the path takes, by the controller.
    Path,
    /// None of the others: no measurement says what, such as a disk or an interface.
    Unknown,
}

impl Limit {
    /// As programs read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Receiver => "receiver_cpu",
            Self::Sender => "sender_cpu",
            Self::Rate => "rate",
            Self::Path => "path",
            Self::Unknown => "unknown",
        }
    }

    /// As people read it.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Receiver => "receiver's CPU",
            Self::Sender => "sender's CPU",
            Self::Rate => "rate that was asked for",
            Self::Path => "network",
            Self::Unknown => "something that was not measured",
        }
    }
}

/// What is to be known of a second to say what limited it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Second {
    /// Of the packets sent in it.
    pub(crate) losses: Losses,
    /// What held the sender back at its end.
    pub(crate) by: Option<Held>,
    /// What the sender's thread computed or waited for a processor in it, of all its time.
    pub(crate) busy: f64,
    /// The same of the thread that reads and hashes the files.
    pub(crate) busy_reader: f64,
    /// How long the sender's thread waited for that one in it.
    pub(crate) lacked: f64,
    /// What was sent in it, of what the controller allowed.
    pub(crate) used: f64,
    /// Whether the controller keeps a rate that was asked for.
    pub(crate) is_fixed: bool,
}

impl Second {
    /// The first that holds, of the surest first.
    pub(crate) fn limit(&self) -> Limit {
        let Losses { host, network, .. } = self.losses;
        match () {
            // A rate that is kept whatever is lost is the user's choice, and no receiver's.
            () if self.is_fixed && USED_MIN <= self.used => Limit::Rate,
            () if self.by == Some(Held::Drain) || (HOST_MIN <= host && network <= host) => Limit::Receiver,
            () if BUSY_FULL <= self.busy => Limit::Sender,
            // Whom nobody waits for holds nobody up, however busy.
            () if BUSY_FULL <= self.busy_reader && LACKED_MIN <= self.lacked => Limit::Sender,
            () if self.by == Some(Held::Window) || USED_MIN <= self.used => Limit::Path,
            () => Limit::Unknown,
        }
    }
}

/// The line under the progress: the limit, and who lost what.
pub(crate) fn line(limit: Limit, losses: Losses, are_told_apart: bool) -> String {
    let Losses { host, network, unknown } = losses;
    if !are_told_apart {
        return format!("{} is the limit: {}", limit.told(), losses.told(false));
    }
    let (first, second) = match limit {
        Limit::Receiver => {
            (format!("{} lost there", share(host)), format!("{} in the network", share(network)))
        }
        Limit::Path => {
            (format!("{} lost there", share(network)), format!("{} by the receiver's CPU", share(host)))
        }
        Limit::Sender | Limit::Rate | Limit::Unknown => (
            format!("{} lost by the receiver's CPU", share(host)),
            format!("{} in the network", share(network)),
        ),
    };
    format!("{} is the limit: {first}, {second}{}", limit.told(), nobody_knows(unknown))
}

/// Losses by a host below this, one packet of 2000, are what any system has now and then.
const HOST_MIN: f64 = 0.000_5;

/// Who sends less of what is allowed is held by something else; controllers themselves vary by a quarter, and by half at the start.
const USED_MIN: f64 = 0.5;

/// A thread that computes, or waits for a processor, for this share of its time has none to send faster: what is left goes to its neighbours.
const BUSY_FULL: f64 = 0.9;

/// Who waits less for what is read loses next to nothing by it: even reading in good time leaves a gap now and then.
const LACKED_MIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_by_cause() {
        let stats = Stats {
            sent_packets: 10_000,
            lost_host: 310,
            lost_network: 0,
            lost_unknown: 0,
            ..Stats::default()
        };
        let losses = Losses::of(&stats);
        assert_eq!(
            line(Limit::Receiver, losses, true),
            "receiver's CPU is the limit: 3.1 % lost there, 0.00 % in the network"
        );
        assert_eq!(
            line(Limit::Path, Losses { network: 0.0052, unknown: 0.001, ..Losses::default() }, true),
            "network is the limit: 0.52 % lost there, 0.00 % by the receiver's CPU, 0.10 % nobody knows where"
        );
        assert_eq!(
            line(Limit::Sender, Losses::default(), true),
            "sender's CPU is the limit: 0.00 % lost by the receiver's CPU, 0.00 % in the network"
        );
        assert_eq!(
            line(Limit::Path, losses, false),
            "network is the limit: 3.1 % lost, by whom was not asked"
        );
        assert_eq!(Losses::of(&Stats::default()), Losses::default());
    }

    #[test]
    fn what_was_not_measured_is_not_named_as_the_limit() {
        let idle = Second { used: 0.3, ..Second::default() }.limit();
        assert_eq!(idle.name(), "unknown");
        let told = line(idle, Losses::default(), true);
        assert!(!told.contains("disk") && !told.contains("interface"), "{told}");
    }

    #[test]
    fn the_limit_is_what_is_surest() {
        let losses = Losses { network: 0.01, host: 0.001, unknown: 0.0 };
        let path = Second { losses, used: 0.9, ..Second::default() };
        assert_eq!(path.limit(), Limit::Path);
        assert_eq!(Second { busy: 0.95, ..path }.limit(), Limit::Sender);
        assert_eq!(Second { busy: 0.5, busy_reader: 0.95, lacked: 0.3, ..path }.limit(), Limit::Sender);
        assert_eq!(Second { busy: 0.5, busy_reader: 0.95, ..path }.limit(), Limit::Path);
        assert_eq!(Second { busy: 0.5, busy_reader: 0.5, ..path }.limit(), Limit::Path);
        let by = |by| Second { by: Some(by), ..path };
        assert_eq!(Second { busy: 0.95, ..by(Held::Drain) }.limit(), Limit::Receiver);
        assert_eq!(Second { is_fixed: true, ..by(Held::Drain) }.limit(), Limit::Rate);
        assert_eq!(Second { busy_reader: 0.95, ..by(Held::Window) }.limit(), Limit::Path);
        assert_eq!(Second { used: 0.3, ..by(Held::Window) }.limit(), Limit::Path);
        assert_eq!(Second { used: 0.3, ..by(Held::Rate) }.limit(), Limit::Unknown);
        let host = Losses { host: 0.02, network: 0.02, unknown: 0.0 };
        assert_eq!(Second { losses: host, ..path }.limit(), Limit::Receiver);
        let few = Losses { host: 0.000_4, ..Losses::default() };
        assert_eq!(Second { losses: few, ..path }.limit(), Limit::Path);
    }
}
