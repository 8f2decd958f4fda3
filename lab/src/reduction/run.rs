//! What a strategy makes of a scenario.

/// The reductions and messages of one strategy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    /// The time of each reduction in seconds.
    pub(crate) times: Vec<f64>,
    /// Whether a send of it used up its tries.
    pub(crate) gave_up: Vec<bool>,
    /// Messages sent.
    pub(crate) sends: u64,
    /// Messages sent more than once.
    pub(crate) retried: u64,
    /// Copies beyond the first.
    pub(crate) retries: u64,
    /// Bytes of messages, and of copies beyond the first.
    pub(crate) bytes: (u64, u64),
    /// Which static timeout this was the run of, where the best was looked for.
    pub(crate) best_s: Option<f64>,
    /// The longest send in seconds.
    pub(crate) longest_s: f64,
    /// Over real links: messages of which an earlier copy had arrived.
    pub(crate) duplicates: u64,
}

impl Run {
    /// Counts a message.
    pub(crate) fn count(&mut self, bytes: u64, attempts: u32, took_s: f64) {
        self.longest_s = self.longest_s.max(took_s);
        let extra = u64::from(attempts.saturating_sub(1));
        self.sends += 1;
        self.retried += u64::from(0 < extra);
        self.retries += extra;
        self.bytes.0 += bytes;
        self.bytes.1 += extra * bytes;
    }

    /// Reductions in which a send used up its tries.
    pub(crate) fn abandoned(&self) -> usize {
        self.gave_up.iter().filter(|gave_up| **gave_up).count()
    }

    /// The best static timeout as a table has it behind a number; empty where none was looked for.
    pub(crate) fn best(&self) -> String {
        self.best_s.map_or(String::new(), |best| format!(" ({best:.2} s)"))
    }
}
