//! Samples of a stream over time at its sender, in bounded memory.

/// State of a stream at its sender at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the stream began.
    pub time_s: f64,
    /// Bytes of the stream that the receiver's kernel has acknowledged.
    pub acked_bytes: u64,
    /// The kernel's smoothed round-trip time, in seconds.
    pub rtt_s: Option<f64>,
    /// The least round-trip time that the kernel measured, in seconds.
    pub min_rtt_s: Option<f64>,
    /// Segments retransmitted since the stream began.
    pub retrans: u32,
    /// Whether the kernel had nothing to send (application-limited).
    pub app_limited: bool,
}

/// Samples in the order taken, at most [`Samples::KEPT_MAX`].
///
/// When the buffer is full, every second sample is removed, and from then on only every second new
/// sample is kept. The first and the latest sample are always kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    kept: Vec<Sample>,
    stride: u64,
    seen: u64,
    /// Whether the last kept sample is kept only because it is the latest.
    is_extra: bool,
}

impl Samples {
    /// Maximum number of samples in the buffer. A stream of 10 s with a sample every 5 ms has 2000
    /// samples, so no sample is removed. The samples take 130 KB of memory.
    pub const KEPT_MAX: usize = 2048;

    /// Creates an empty buffer with stride 1.
    #[must_use]
    pub fn new() -> Self {
        Self { kept: Vec::new(), stride: 1, seen: 0, is_extra: false }
    }

    /// Adds a sample. The new sample replaces the previous sample if the previous sample was kept
    /// only because it was the latest.
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
        // A sample that was due under the old stride may not be due under the new stride.
        self.is_extra = !self.seen.is_multiple_of(self.stride);
        self.kept.push(sample);
        self.seen += 1;
    }

    /// The kept samples, oldest first.
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
