//! What makes packets be lost.

use std::fmt;
use std::str::FromStr;

use super::cut::Label;

/// A cause in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Net {
    Random,
    Poisson,
    Cbr,
    Onoff,
    Tcp,
    SelfInduced,
    Incast,
    Outage,
    Red,
    Codel,
    Series,
}

/// A cause at the receiving host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cpu {
    Gen,
    Preempt,
    Quota,
    Slow,
}

/// One of the network's, one of the host's, or of the network's with the paper's generator at the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Net(Net),
    Cpu(Cpu),
    Hyb(Net),
}

const NET: [(Net, &str); 11] = [
    (Net::Random, "random"),
    (Net::Poisson, "poisson"),
    (Net::Cbr, "cbr"),
    (Net::Onoff, "onoff"),
    (Net::Tcp, "tcp"),
    (Net::SelfInduced, "self"),
    (Net::Incast, "incast"),
    (Net::Outage, "outage"),
    (Net::Red, "red"),
    (Net::Codel, "codel"),
    (Net::Series, "series"),
];

const CPU: [(Cpu, &str); 4] =
    [(Cpu::Gen, "gen"), (Cpu::Preempt, "preempt"), (Cpu::Quota, "quota"), (Cpu::Slow, "slow")];

/// What hybrids are made of unless asked for others: the paper's kinds, and one whose runs of losses are long themselves.
const HYBRIDS: [Net; 5] = [Net::Random, Net::Poisson, Net::Onoff, Net::Tcp, Net::Incast];

impl Kind {
    /// All that are made unless asked for others.
    pub(crate) fn all() -> Vec<Self> {
        let net = NET.iter().map(|(net, _)| Self::Net(*net));
        let cpu = CPU.iter().map(|(cpu, _)| Self::Cpu(*cpu));
        net.chain(cpu).chain(HYBRIDS.map(Self::Hyb)).collect()
    }

    pub(crate) fn net(self) -> Option<Net> {
        match self {
            Self::Net(net) | Self::Hyb(net) => Some(net),
            Self::Cpu(_) => None,
        }
    }

    pub(crate) fn cpu(self) -> Option<Cpu> {
        match self {
            Self::Net(_) => None,
            Self::Cpu(cpu) => Some(cpu),
            Self::Hyb(_) => Some(Cpu::Gen),
        }
    }

    /// What its windows are by design.
    pub(crate) fn class(self) -> Label {
        match self {
            Self::Net(_) => Label::Net,
            Self::Cpu(_) => Label::Cpu,
            Self::Hyb(_) => Label::Hyb,
        }
    }

    /// Whether its packets go through the relay, which carries fewer of them.
    pub(crate) fn is_relayed(self) -> bool {
        matches!(self.net(), Some(Net::Red | Net::Codel | Net::Series))
    }

    /// Whether it can lose as little as 8 to 50 of 100 000 packets, window for window. A quota loses hundreds in each of many periods, or nothing.
    pub(crate) fn can_be_low(self) -> bool {
        !matches!(self, Self::Hyb(_) | Self::Net(Net::Outage) | Self::Cpu(Cpu::Quota))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_of = |net| NET.iter().find(|(other, _)| *other == net).map_or("", |(_, name)| name);
        match self {
            Self::Net(net) => f.write_str(name_of(*net)),
            Self::Hyb(net) => write!(f, "hyb-{}", name_of(*net)),
            Self::Cpu(cpu) => {
                f.write_str(CPU.iter().find(|(other, _)| other == cpu).map_or("", |(_, name)| name))
            }
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let net = |name: &str| NET.iter().find(|(_, other)| *other == name).map(|(net, _)| *net);
        let cpu = || CPU.iter().find(|(_, other)| *other == name).map(|(cpu, _)| Self::Cpu(*cpu));
        let hybrid = || name.strip_prefix("hyb-").and_then(net).map(Self::Hyb);
        net(name).map(Self::Net).or_else(cpu).or_else(hybrid).ok_or_else(|| {
            let names: Vec<String> = Self::all().iter().map(ToString::to_string).collect();
            format!("no kind; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in Kind::all() {
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
        }
        assert_eq!("hyb-cbr".parse::<Kind>().unwrap(), Kind::Hyb(Net::Cbr));
        assert!("hyb-gen".parse::<Kind>().unwrap_err().contains("preempt"));
    }
}
