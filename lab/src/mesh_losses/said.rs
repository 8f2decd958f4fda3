//! What the station says while it works: which records were acknowledged, and how many wait.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What it has said so far, over all its lives.
#[derive(Default)]
pub(super) struct Said {
    pub(super) acknowledged: BTreeSet<u64>,
    last: Option<Instant>,
    pub(super) longest_gap: Duration,
    pub(super) most_waiting: u64,
    /// The last append that was refused.
    pub(super) refused: Option<String>,
    pub(super) drained: bool,
    /// Peers that it was told are gone, each time.
    pub(super) lost: u64,
    /// The longest that the directory could be read and took no writes, in seconds.
    pub(super) longest_read_only_s: u64,
}

impl Said {
    pub(super) fn hear(&mut self, line: &str) {
        // A line that a kill cut short lacks its mark.
        let Some(line) = line.strip_suffix(" .") else { return };
        self.drained |= line.starts_with("drained");
        self.lost += u64::from(line.starts_with("lost "));
        if let Some(seconds) = line.strip_prefix("read-only ").and_then(|seconds| seconds.parse().ok()) {
            self.longest_read_only_s = self.longest_read_only_s.max(seconds);
        }
        if let Some(why) = line.strip_prefix("refused ") {
            self.refused = Some(why.to_string());
        }
        let Some(rest) = line.strip_prefix("acknowledged ") else { return };
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
        if let (Some(first), Some(count), Some(waiting)) = (numbers.next(), numbers.next(), numbers.next()) {
            self.acknowledged.extend(first..first + count);
            self.most_waiting = self.most_waiting.max(waiting);
            let now = Instant::now();
            if let Some(last) = self.last.replace(now) {
                self.longest_gap = self.longest_gap.max(now - last);
            }
        }
    }
}
