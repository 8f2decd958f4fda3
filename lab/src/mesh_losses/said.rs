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
}

impl Said {
    pub(super) fn hear(&mut self, line: &str) {
        // A line that a kill cut short lacks its mark.
        let Some(line) = line.strip_suffix(" .") else { return };
        self.drained |= line.starts_with("drained");
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
