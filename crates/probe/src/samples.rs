//! What the sender of a stream saw over time, in bounded memory.

/// What the sender knew of its stream at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the stream began.
    pub time_s: f64,
    /// Bytes of the stream that the far kernel has acknowledged.
    pub acked_bytes: u64,
    /// The kernel's smoothed round-trip time, in seconds.
    pub rtt_s: Option<f64>,
    /// The least round-trip time that the kernel saw, in seconds.
    pub min_rtt_s: Option<f64>,
    /// Segments sent again since the stream began.
    pub retrans: u32,
    /// Whether the kernel had nothing to send.
    pub app_limited: bool,
}

/// Samples in the order taken, as many as fit: when they are full, every second one goes, and from then on
/// only every second one is kept. The first and the latest are always among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    kept: Vec<Sample>,
    stride: u64,
    seen: u64,
    /// Whether the last of those kept is there only for being the latest.
    is_extra: bool,
}

impl Samples {
    /// As many as the longest stream of 10 s has at one in 5 ms, so that none of it goes; 130 KB.
    pub const KEPT_MAX: usize = 2048;

    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self { kept: Vec::new(), stride: 1, seen: 0, is_extra: false }
    }

    /// Adds one, in place of the one before if that was not due.
    pub fn push(&mut self, sample: Sample) {
        if self.is_extra {
            self.kept.pop();
        }
        if self.seen.is_multiple_of(self.stride) && self.kept.len() + 1 == Self::KEPT_MAX {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
        // What was due under the old stride may not be under the new one.
        self.is_extra = !self.seen.is_multiple_of(self.stride);
        self.kept.push(sample);
        self.seen += 1;
    }

    /// Those that were kept.
    #[must_use]
    pub fn as_slice(&self) -> &[Sample] {
        &self.kept
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self::new()
    }
}
