//! The kernel's view of a TCP connection (`TCP_INFO`).

use std::fmt;

/// Linux `TCP_INFO` of a TCP connection, at the end that sent the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpInfo {
    /// Smallest round-trip time that the kernel measured, in seconds.
    pub min_rtt_s: Option<f64>,
    /// Segments retransmitted over the life of the connection.
    pub total_retrans: u32,
    /// The congestion control algorithm, such as `cubic` or `bbr`.
    pub congestion: Option<String>,
    /// What limited the sender for the largest part of the time.
    pub limited_by: Option<SenderLimit>,
    /// The kernel's latest delivery rate in bit/s; `None` when the application limited the sample.
    pub delivery_rate_bit_s: Option<f64>,
}

/// What limited the sender of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderLimit {
    /// The receive window of the peer.
    ReceiveWindow,
    /// The send buffer of the sender.
    SendBuffer,
    /// The path: congestion window, pacing, losses.
    Network,
    /// The application had nothing to send.
    Application,
}

impl SenderLimit {
    /// The limit as a lower-case word, as stored and shown: `rwnd`, `sndbuf`, `network`,
    /// `application`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "rwnd",
            Self::SendBuffer => "sndbuf",
            Self::Network => "network",
            Self::Application => "application",
        }
    }
}

impl fmt::Display for SenderLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
