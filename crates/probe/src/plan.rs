//! What to measure, as plain data that tests can read and configuration can name.

use barograph_forecast::Quantity;

use crate::target::Scheme;

/// One experiment, by what it does on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Experiment {
    /// `n` two-byte exchanges with a station over TCP without Nagle's algorithm.
    Rtt {
        /// Exchanges; the value is their median.
        n: u32,
    },
    /// The same exchanges through the TLS connection of an `https` station.
    RttTls {
        /// Exchanges; the value is their median.
        n: u32,
    },
    /// `n` exchanges written as two one-byte writes with Nagle's algorithm on.
    ///
    /// One more exchange is made first and discarded: a fresh connection acknowledges at once and
    /// does not show the stall.
    RttNagle {
        /// Exchanges that count; the value is their median.
        n: u32,
    },
    /// One acknowledged long transfer between this host and a station.
    Goodput {
        /// Which way the bytes go.
        direction: Direction,
        /// Bytes to transfer, at least 1.
        bytes: u64,
    },
    /// `n` paced datagrams to a station's UDP port: their loss and their round-trip time.
    Loss {
        /// Datagrams.
        n: u32,
    },
    /// `n` TCP handshakes with any host, one after the other; a refusal counts as one.
    Connect {
        /// Handshakes; the value is their median.
        n: u32,
    },
    /// One HTTP GET of any server: time to the first and to the last byte.
    ResponseTime,
}

impl Experiment {
    /// The quantities that this experiment gives, in the order of its readings.
    #[must_use]
    pub fn quantities(self) -> &'static [Quantity] {
        match self {
            Self::Rtt { .. } => &[Quantity::RTT],
            Self::RttTls { .. } => &[Quantity::RTT_TLS],
            Self::RttNagle { .. } => &[Quantity::RTT_NAGLE],
            Self::Goodput { direction: Direction::Up, .. } => &[Quantity::GOODPUT],
            Self::Goodput { direction: Direction::Down, .. } => &[Quantity::GOODPUT_DOWN],
            Self::Loss { .. } => &[Quantity::LOSS, Quantity::RTT_UDP],
            Self::Connect { .. } => &[Quantity::CONNECT],
            Self::ResponseTime => &[Quantity::FIRST_BYTE, Quantity::RESPONSE_TIME],
        }
    }

    /// Whether it fills the path, so that what else is measured meanwhile is *loaded*.
    #[must_use]
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Goodput { .. })
    }
}

/// Which way the bytes of a transfer go, seen from the host that measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this host to the station (`goodput`).
    Up,
    /// From the station to this host (`goodput_down`).
    Down,
}

/// The experiments to make with one target, in order.
///
/// ```
/// use barograph_probe::{Experiment, Plan};
/// let plan = Plan::station(256 * 1024);
/// assert_eq!(plan.experiments[0], Experiment::Rtt { n: Plan::RTT_EXCHANGES });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, first to last.
    pub experiments: Vec<Experiment>,
}

impl Plan {
    /// Exchanges of one `rtt`: a median of eleven shrugs off five disturbed ones and costs
    /// eleven round trips.
    pub const RTT_EXCHANGES: u32 = 11;
    /// Exchanges of one `rtt_nagle`: each may stall for 40 ms and more.
    pub const NAGLE_EXCHANGES: u32 = 3;
    /// Datagrams of one `loss`.
    pub const DATAGRAMS: u32 = 10;
    /// Handshakes of one `connect`: the median of three survives one lost SYN (1 s).
    pub const HANDSHAKES: u32 = 3;

    /// Everything a station answers, with goodput both ways of `bytes` each.
    #[must_use]
    pub fn station(bytes: u64) -> Self {
        Self {
            experiments: vec![
                Experiment::Rtt { n: Self::RTT_EXCHANGES },
                Experiment::RttNagle { n: Self::NAGLE_EXCHANGES },
                Experiment::Loss { n: Self::DATAGRAMS },
                Experiment::Goodput { direction: Direction::Up, bytes },
                Experiment::Goodput { direction: Direction::Down, bytes },
            ],
        }
    }

    /// What any HTTP server answers.
    #[must_use]
    pub fn web() -> Self {
        Self { experiments: vec![Experiment::Connect { n: Self::HANDSHAKES }, Experiment::ResponseTime] }
    }

    /// What any TCP listener answers.
    #[must_use]
    pub fn address() -> Self {
        Self { experiments: vec![Experiment::Connect { n: Self::HANDSHAKES }] }
    }

    /// What a server that is no station answers: [`Plan::address`] of `host:port`, [`Plan::web`] of a URL.
    #[must_use]
    pub fn server(scheme: Scheme) -> Self {
        if scheme == Scheme::Address { Self::address() } else { Self::web() }
    }
}
