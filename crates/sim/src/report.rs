//! What a relay did, what it cost, and whether the run can be believed.

use std::{fmt, time::Duration};

/// The account of a relay since it started.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// From A to B.
    pub forward: Counts,
    /// From B to A.
    pub back: Counts,
    /// How long the relay has run.
    pub wall: Duration,
    /// CPU time of its thread, without the time it chose to spin.
    pub cpu: Duration,
    /// The largest share of a core that it used within a quarter of a second.
    pub cpu_peak: f64,
    /// Mean time that its thread was ready but waited for a core, a wake-up; `None` where the kernel does
    /// not tell. Packets that came in meanwhile were seen that much too late.
    pub mean_wait: Option<Duration>,
    /// Beyond this a departure counts as late.
    pub late_bound: Duration,
    /// The 99th percentile of how late packets departed, to 10 µs.
    pub late_p99: Duration,
    /// The latest departure.
    pub late_max: Duration,
    /// Packets that the devices dropped before the relay read them.
    pub device_drops: u64,
    /// Whether the relay ran with real-time scheduling.
    pub realtime: bool,
    /// Whether the relay is still at work; it ends early when a device goes away.
    pub running: bool,
}

/// Packets of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Packets that came out at the other end.
    pub forwarded: u64,
    /// Their bytes.
    pub forwarded_bytes: u64,
    /// Packets that the model lost on the wire.
    pub lost: u64,
    /// Packets that found the model's queue full.
    pub queue_full: u64,
    /// Packets that departed later than the bound behind their time.
    pub late: u64,
    /// Packets that the relay had no memory for.
    pub overflow: u64,
    /// Multicast packets (neighbours and routers are looked for), which do not enter the model.
    pub ignored: u64,
    /// Failed reads of the device, after which the relay ends.
    pub read_errors: u64,
    /// Failed writes to the device; the packet is gone.
    pub write_errors: u64,
}

/// Why a run is void: the emulator was the bottleneck, or failed, and not the link that it stood for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Void {
    /// The relay ended before the network was dropped.
    Ended,
    /// It used more of a core than [`Report::CPU_LIMIT`].
    Busy {
        /// The largest share within a quarter of a second.
        share: f64,
    },
    /// More than 1 % of the packets departed late.
    Late {
        /// 99th percentile of lateness.
        p99: Duration,
        /// The bound.
        bound: Duration,
    },
    /// It waited for a core longer than the bound of lateness, on average.
    Starved {
        /// Mean wait a wake-up.
        wait: Duration,
    },
    /// Packets vanished by no will of the model: dropped by a device, unread, unwritten or for want of memory.
    Vanished {
        /// How many.
        packets: u64,
    },
}

impl Report {
    /// The share of a core above which the relay is taken for the bottleneck.
    pub const CPU_LIMIT: f64 = 0.7;

    /// The mean share of a core.
    pub fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Why the run must not be used, if so.
    pub fn void(&self) -> Option<Void> {
        let vanished = self.device_drops + self.forward.vanished() + self.back.vanished();
        let departed = self.forward.forwarded + self.back.forwarded;
        let late = self.forward.late + self.back.late;
        if !self.running {
            Some(Void::Ended)
        } else if vanished > 0 {
            Some(Void::Vanished { packets: vanished })
        } else if self.cpu_peak > Self::CPU_LIMIT {
            Some(Void::Busy { share: self.cpu_peak })
        } else if late * 100 > departed {
            Some(Void::Late { p99: self.late_p99, bound: self.late_bound })
        } else {
            self.mean_wait.filter(|&wait| wait > self.late_bound).map(|wait| Void::Starved { wait })
        }
    }
}

impl Counts {
    /// Packets that are gone by no will of the model.
    fn vanished(&self) -> u64 {
        self.overflow + self.read_errors + self.write_errors
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, counts) in [("A to B", &self.forward), ("B to A", &self.back)] {
            writeln!(f, "{name}: {counts}")?;
        }
        let (share, peak) = (100.0 * self.cpu_share(), 100.0 * self.cpu_peak);
        write!(f, "relay: {share:.1} % of a core over {:.3?}, at most {peak:.1} %; ", self.wall)?;
        write!(f, "lateness p99 {:?}, max {:?}", self.late_p99, self.late_max)?;
        match self.mean_wait {
            Some(wait) => write!(f, "; waits {wait:?} for a core")?,
            None => write!(f, "; wait for a core unknown")?,
        }
        writeln!(f, "{}", if self.realtime { ", real-time" } else { "" })?;
        writeln!(f, "devices dropped {}", self.device_drops)?;
        match self.void() {
            Some(void) => write!(f, "VOID: {void}"),
            None => write!(f, "valid"),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forwarded, forwarded_bytes, lost, queue_full, late, overflow, ignored, .. } = self;
        write!(f, "{forwarded} packets ({forwarded_bytes} bytes), {lost} lost, {queue_full} queue full, ")?;
        write!(f, "{late} late, {overflow} overflow, {ignored} ignored, ")?;
        write!(f, "{} read errors, {} write errors", self.read_errors, self.write_errors)
    }
}

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => write!(f, "the relay ended early"),
            Self::Busy { share } => write!(f, "the relay used {:.0} % of a core", 100.0 * share),
            Self::Late { p99, bound } => {
                write!(f, "1 % of the packets departed {p99:?} late or more, over the bound of {bound:?}")
            }
            Self::Starved { wait } => write!(f, "the relay waited {wait:?} for a core at each wake-up"),
            Self::Vanished { packets } => write!(f, "{packets} packets vanished in the emulator"),
        }
    }
}
