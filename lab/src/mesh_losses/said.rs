//! What the station says while it works: which records were acknowledged, and how many wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::child::STATION;

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
    /// Which stations were seen to be registered, as `north by archive`.
    pub(super) up: BTreeSet<String>,
    /// Peers that it was told are gone, each time.
    pub(super) lost: u64,
    /// The highest number acknowledged, and up to where the mesh has confirmed.
    pub(super) highest: u64,
    pub(super) confirmed: u64,
    /// The fault's first moment.
    pub(super) began: Option<Instant>,
    /// The first sign of the fault after that, and what it was.
    pub(super) noticed: Option<(Duration, String)>,
    /// Signs of trouble that each part reports now.
    troubles: BTreeMap<&'static str, Vec<String>>,
    /// The most values of the station that forecasts were ever made from. A keeper that starts again begins with none.
    pub(super) learnt_most: u64,
    /// The longest that the directory could be read and took no writes, in seconds.
    pub(super) longest_read_only_s: u64,
}

impl Said {
    pub(super) fn hear(&mut self, line: &str) {
        // A line that a kill cut short lacks its mark.
        let Some(line) = line.strip_suffix(" .") else { return };
        self.drained |= line.starts_with("drained");
        if let Some(seconds) = line.strip_prefix("read-only ").and_then(|seconds| seconds.parse().ok()) {
            self.longest_read_only_s = self.longest_read_only_s.max(seconds);
        }
        if let Some(why) = line.strip_prefix("refused ") {
            self.refused = Some(why.to_string());
            self.notice(why);
        }
        if let Some(sign) = line.strip_prefix("sign ") {
            self.reports(STATION, vec![sign.to_string()]);
        }
        if line == "well" {
            self.reports(STATION, Vec::new());
        }
        if let Some(up) = line.strip_prefix("up ") {
            self.up.insert(up.to_string());
        }
        // The station's own end is no loss.
        if line.starts_with("lost ") && !self.drained {
            self.lost += 1;
            let after = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
            eprintln!("        {after:.1} s after the fault began: {line}");
            self.notice(line);
        }
        if let Some(number) = line.strip_prefix("confirmed ").and_then(|number| number.parse().ok()) {
            self.confirmed = number;
        }
        let Some(rest) = line.strip_prefix("acknowledged ") else { return };
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
        if let (Some(first), Some(count), Some(waiting)) = (numbers.next(), numbers.next(), numbers.next()) {
            self.acknowledged.extend(first..first + count);
            self.highest = self.highest.max(first + count - 1);
            self.most_waiting = self.most_waiting.max(waiting);
            let now = Instant::now();
            if let Some(last) = self.last.replace(now) {
                self.longest_gap = self.longest_gap.max(now - last);
            }
        }
    }

    /// Begins to count what a fault does: a cluster that has just been made takes no registrations for some seconds.
    pub(super) fn begin(&mut self) {
        self.began = Some(Instant::now());
        (self.longest_gap, self.most_waiting) = (Duration::ZERO, 0);
        (self.lost, self.longest_read_only_s) = (0, 0);
    }

    /// Notes all signs of trouble that a part reports now.
    pub(super) fn reports(&mut self, part: &'static str, signs: Vec<String>) {
        signs.iter().for_each(|sign| self.notice(sign));
        self.troubles.insert(part, signs);
    }

    /// A sign of trouble that a part reports now; `None` = all is well.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.troubles.values().flatten().next().map(String::as_str)
    }

    /// Notes a sign of trouble; the first after the fault began counts.
    pub(super) fn notice(&mut self, sign: &str) {
        // The station's own end is no fault.
        if let Some(began) = self.began.filter(|_| !self.drained) {
            self.noticed.get_or_insert_with(|| (began.elapsed(), sign.to_string()));
        }
    }
}
