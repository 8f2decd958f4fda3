//! What to measure, as plain data for tests and configuration.

use barograph_forecast::Quantity;

use crate::target::Scheme;

/// One experiment, defined by its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Experiment {
    /// `n` two-byte exchanges with a station over TCP, with Nagle's algorithm off.
    Rtt {
        /// Number of exchanges; the value is their median.
        n: u32,
    },
    /// `n` two-byte exchanges, as in [`Rtt`](Self::Rtt), through the TLS connection of an `https`
    /// station.
    RttTls {
        /// Number of exchanges; the value is their median.
        n: u32,
    },
    /// `n` exchanges, each written as two one-byte writes, with Nagle's algorithm on.
    ///
    /// One more exchange is sent first and discarded: the kernel acknowledges at once on a new
    /// connection, so this exchange would not stall as later exchanges do.
    RttNagle {
        /// Number of exchanges that count; the value is their median.
        n: u32,
    },
    /// One acknowledged transfer between this host and a station.
    Goodput {
        /// Direction in which the bytes flow.
        direction: Direction,
        /// Bytes to transfer, at least 1.
        bytes: u64,
    },
    /// `n` paced datagrams to a station's UDP port. The results are loss and round-trip time.
    Loss {
        /// Number of datagrams to send.
        n: u32,
    },
    /// `n` TCP handshakes with any host, one after the other; a refused connection counts too.
    Connect {
        /// Number of handshakes; the value is their median.
        n: u32,
    },
    /// One HTTP GET to any server: the times to the first and to the last byte.
    ResponseTime,
}

impl Experiment {
    /// The quantities that the experiment measures, in the order of its results.
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

    /// Whether the experiment fills the path, so that other measurements at the same time are
    /// *loaded*.
    #[must_use]
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Goodput { .. })
    }
}

/// Direction in which the bytes of a transfer flow, as seen from the measuring host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this host to the station (`goodput`).
    Up,
    /// From the station to this host (`goodput_down`).
    Down,
}

/// The experiments to run with one target, in order.
///
/// ```
/// use barograph_probe::{Experiment, Plan};
/// let plan = Plan::station(256 * 1024);
/// assert_eq!(plan.experiments[0], Experiment::Rtt { n: Plan::RTT_EXCHANGES });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Experiments, in the order in which they run.
    pub experiments: Vec<Experiment>,
}

impl Plan {
    /// Number of exchanges in one `rtt` experiment. The median of eleven exchanges tolerates five
    /// disturbed exchanges and costs eleven round trips.
    pub const RTT_EXCHANGES: u32 = 11;
    /// Number of exchanges in one `rtt_nagle` experiment. Each exchange may stall for 40 ms or
    /// more.
    pub const NAGLE_EXCHANGES: u32 = 3;
    /// Number of datagrams in one `loss` experiment.
    pub const DATAGRAMS: u32 = 10;
    /// Number of handshakes in one `connect` experiment. A lost SYN delays its handshake by 1 s.
    /// The median of three handshakes tolerates one lost SYN.
    pub const HANDSHAKES: u32 = 3;

    /// All experiments that a station answers, with `bytes` of goodput in each direction.
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

    /// All experiments that any HTTP server answers.
    #[must_use]
    pub fn web() -> Self {
        Self { experiments: vec![Experiment::Connect { n: Self::HANDSHAKES }, Experiment::ResponseTime] }
    }

    /// The experiments that every TCP listener can answer.
    #[must_use]
    pub fn address() -> Self {
        Self { experiments: vec![Experiment::Connect { n: Self::HANDSHAKES }] }
    }

    /// Experiments for a server that is not a station: [`Plan::address`] for `host:port`,
    /// [`Plan::web`] for a URL.
    #[must_use]
    pub fn server(scheme: Scheme) -> Self {
        if scheme == Scheme::Address { Self::address() } else { Self::web() }
    }
}
