//! Statistics and cost of a relay, and whether the run is valid.

use std::{fmt, time::Duration};

/// Statistics of a relay since it started.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayReport {
    /// Counts of the packets from A to B.
    pub forward: DirectionCounts,
    /// Counts of the packets from B to A.
    pub back: DirectionCounts,
    /// Time for which the relay has run.
    pub wall: Duration,
    /// CPU time of the relay's thread, without the time spent spinning.
    pub cpu: Duration,
    /// Largest share of a core that the relay used within a quarter of a second.
    pub cpu_peak: f64,
    /// Mean time for which the relay's thread waited for a core at each wake-up; `None` if the
    /// kernel does not report it. Packets that arrived during such a wait were read only after the
    /// wait.
    pub mean_wait: Option<Duration>,
    /// Bound above which a departure counts as late.
    pub late_bound: Duration,
    /// 99th percentile of the departures' lateness, with a resolution of 10 µs.
    pub late_p99: Duration,
    /// Largest lateness of a departure.
    pub late_max: Duration,
    /// Packets that the devices dropped before the relay read them.
    pub device_drops: u64,
    /// Whether the relay ran with real-time scheduling.
    pub realtime: bool,
    /// Whether the relay still runs; it ends early if a device is removed.
    pub running: bool,
}

/// Packet counts of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionCounts {
    /// Packets that came out at the other end.
    pub forwarded: u64,
    /// Bytes of the forwarded packets.
    pub forwarded_bytes: u64,
    /// Packets lost on the wire by the model.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets that departed later than [`RelayReport::late_bound`] after their scheduled time.
    pub late: u64,
    /// Packets dropped because the relay's memory for packets was full.
    pub overflow: u64,
    /// Multicast packets, which do not enter the model (hosts send them to discover neighbours and
    /// routers).
    pub ignored: u64,
    /// Number of failed reads of the device; the relay ends after one failed read.
    pub read_errors: u64,
    /// Number of failed writes to the device; each failed write loses a packet.
    pub write_errors: u64,
}

/// Reason why a run is void: the emulator, not the emulated link, was the bottleneck, or the
/// emulator failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum InvalidRun {
    /// The relay ended before the network was dropped.
    Ended,
    /// The relay used more of a core than [`RelayReport::CPU_LIMIT`].
    Busy {
        /// Largest share of a core within a quarter of a second.
        share: f64,
    },
    /// More than 1 % of the packets departed late.
    Late {
        /// 99th percentile of lateness.
        p99: Duration,
        /// Bound above which a departure counts as late.
        bound: Duration,
    },
    /// The relay's mean wait for a core was longer than the bound of lateness.
    Starved {
        /// Mean wait for a core at each wake-up.
        wait: Duration,
    },
    /// Packets were lost outside the model: dropped by a device, by a failed read or write, or for
    /// lack of memory.
    Vanished {
        /// Number of such packets.
        packets: u64,
    },
}

impl RelayReport {
    /// Share of a core above which the relay counts as the bottleneck.
    pub const CPU_LIMIT: f64 = 0.7;

    /// Mean share of a core that the relay used.
    pub fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Reason why the run must not be used; `None` if the run is valid.
    pub fn invalid_reason(&self) -> Option<InvalidRun> {
        let vanished = self.device_drops + self.forward.vanished() + self.back.vanished();
        let departed = self.forward.forwarded + self.back.forwarded;
        let late = self.forward.late + self.back.late;
        if !self.running {
            Some(InvalidRun::Ended)
        } else if vanished > 0 {
            Some(InvalidRun::Vanished { packets: vanished })
        } else if self.cpu_peak > Self::CPU_LIMIT {
            Some(InvalidRun::Busy { share: self.cpu_peak })
        } else if late * 100 > departed {
            Some(InvalidRun::Late { p99: self.late_p99, bound: self.late_bound })
        } else {
            self.mean_wait.filter(|&wait| wait > self.late_bound).map(|wait| InvalidRun::Starved { wait })
        }
    }
}

impl DirectionCounts {
    /// Packets lost outside the model.
    fn vanished(&self) -> u64 {
        self.overflow + self.read_errors + self.write_errors
    }
}

impl fmt::Display for RelayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, counts) in [("A to B", &self.forward), ("B to A", &self.back)] {
            writeln!(f, "{name}: {counts}")?;
        }
        let (share, peak) = (100.0 * self.cpu_share(), 100.0 * self.cpu_peak);
        write!(f, "relay: {share:.1} % of a core over {:.3?}, at most {peak:.1} %; ", self.wall)?;
        write!(f, "lateness p99 {:?}, max {:?}", self.late_p99, self.late_max)?;
        match self.mean_wait {
            Some(wait) => write!(f, "; mean wait for a core {wait:?}")?,
            None => write!(f, "; unknown wait for a core")?,
        }
        writeln!(f, "{}", if self.realtime { ", real-time" } else { "" })?;
        writeln!(f, "devices dropped {}", self.device_drops)?;
        match self.invalid_reason() {
            Some(reason) => write!(f, "VOID: {reason}"),
            None => write!(f, "valid"),
        }
    }
}

impl fmt::Display for DirectionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forwarded, forwarded_bytes, lost, queue_full, late, overflow, ignored, .. } = self;
        write!(f, "{forwarded} packets ({forwarded_bytes} bytes), {lost} lost, {queue_full} queue full, ")?;
        write!(f, "{late} late, {overflow} overflow, {ignored} ignored, ")?;
        write!(f, "{} read errors, {} write errors", self.read_errors, self.write_errors)
    }
}

impl fmt::Display for InvalidRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => write!(f, "the relay ended early"),
            Self::Busy { share } => write!(f, "the relay used {:.0} % of a core", 100.0 * share),
            Self::Late { p99, bound } => {
                write!(f, "1 % of the packets left at least {p99:?} late; the bound is {bound:?}")
            }
            Self::Starved { wait } => write!(f, "the relay waited {wait:?} for a core at each wake-up"),
            Self::Vanished { packets } => write!(f, "the emulator lost {packets} packets outside the model"),
        }
    }
}
