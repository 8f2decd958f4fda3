//! What others had: the paper, an earlier experiment of ours, and what is to be reached.

use barograph_loss::Cause;

use super::judge::Method;
use super::kinds::Kinds;
use super::rates::{Rates, percent};

/// A row of Dickens Table 1: a transfer of four hours with losses of the host alone.
pub(crate) struct Transfer {
    pub(crate) loss_rate: f64,
    /// Windows with losses, of [`Transfer::WINDOWS`].
    pub(crate) lossy: usize,
    /// … of them with a loss rate under 0.00008.
    pub(crate) below_range: usize,
    /// … and those within it that were inconclusive or taken for the network's: 0.86 and 0.22 % of 924, 0.2 % of 1425, 0.7 % of 1044.
    pub(crate) missed: usize,
    /// Throughput with the classifier (Mb/s).
    pub(crate) with_mbit_s: f64,
    /// Without it.
    pub(crate) without_mbit_s: f64,
}

impl Transfer {
    /// "1.6 terabytes" in windows of 100 MB (§4.1).
    pub(crate) const WINDOWS: usize = 16_000;
}

/// Dickens Table 1. (Its text has 0.00055 for the third rate.)
#[rustfmt::skip]
pub(crate) const TRANSFERS: [Transfer; 3] = [
    Transfer { loss_rate: 0.000_35, lossy: 1110, below_range: 186, missed: 10, with_mbit_s: 8883.0, without_mbit_s: 74.0 },
    Transfer { loss_rate: 0.000_45, lossy: 1429, below_range: 4, missed: 3, with_mbit_s: 9490.0, without_mbit_s: 35.0 },
    Transfer { loss_rate: 0.000_56, lossy: 1051, below_range: 7, missed: 7, with_mbit_s: 9397.0, without_mbit_s: 41.5 },
];

/// Dickens Table 2, and the third to fifth columns of his Table 1: cause, metric, right, wrong, inconclusive (%).
pub(crate) const TABLE_2: [(Cause, &str, [&str; 3]); 5] = [
    (Cause::Network, "complexity", ["99.94", "0.052", "0.001"]),
    (Cause::Network, "success proportion", ["98.2", "0.18", "1.5"]),
    (Cause::Host, "both, long-term loss 0.00035", ["98.9", "0.22", "0.86"]),
    (Cause::Host, "both, long-term loss 0.00045", ["99.8", "0", "0.2"]),
    (Cause::Host, "both, long-term loss 0.00056", ["99.3", "0", "0.7"]),
];

/// What an earlier experiment of ours had on windows of 20 000 packets: twice as many runs of the same kinds, five-fold by run,
/// with programs that are not kept. Right / wrong / inconclusive (%).
pub(crate) struct Earlier {
    pub(crate) kinds: Kinds,
    pub(crate) cause: Cause,
    /// The paper's classifier by tail areas, fitted on the same kinds.
    paper: [f64; 3],
    /// Kernel densities over mean burst, success proportion and words.
    pattern: &'static str,
    /// Boosted trees over the pattern and the delay.
    delay: &'static str,
}

impl Earlier {
    /// Beside the method of ours that had the same to go by.
    pub(crate) fn cell(&self, method: Method) -> String {
        match method {
            Method::Paper if self.kinds == Kinds::Papers => return self.papers(),
            Method::PaperOfAll if self.kinds == Kinds::All => return self.papers(),
            Method::Paper | Method::PaperOfAll | Method::Burst | Method::DelayAlone => "–",
            Method::Pattern => self.pattern,
            Method::Delay => self.delay,
            Method::Counter => "100 / 0 / 0",
        }
        .to_owned()
    }

    /// What the paper's classifier had.
    pub(crate) fn papers(&self) -> String {
        let [right, wrong, inconclusive] = self.paper;
        format!("{right} / {wrong} / {inconclusive}")
    }

    /// Whether a share that is right is that of the paper's classifier within 3 points, and what is wrong at most 3 points more: the floor of a reproduction.
    pub(crate) fn is_near(&self, right: f64, wrong: f64) -> String {
        let off = (100.0 * right - self.paper[0]).abs().max(100.0 * wrong - self.paper[1]) - 3.0;
        if off <= 0.0 { "met".to_owned() } else { format!("missed by {off:.1}") }
    }
}

/// See [`Earlier`].
#[rustfmt::skip]
pub(crate) const EARLIER: [Earlier; 4] = [
    Earlier { kinds: Kinds::Papers, cause: Cause::Host, paper: [76.3, 0.6, 23.1], pattern: "97.7 / 0 / 2.3", delay: "98.3 / 0.6 / 1.2" },
    Earlier { kinds: Kinds::Papers, cause: Cause::Network, paper: [83.3, 3.8, 12.9], pattern: "97.8 / 0.2 / 2.0", delay: "98.9 / 0.2 / 0.9" },
    Earlier { kinds: Kinds::All, cause: Cause::Host, paper: [24.7, 4.7, 70.6], pattern: "84.4 / 0 / 15.6", delay: "96.2 / 0 / 3.8" },
    Earlier { kinds: Kinds::All, cause: Cause::Network, paper: [72.0, 0.5, 27.6], pattern: "93.1 / 0.3 / 6.6", delay: "97.9 / 0 / 2.1" },
];

/// What is to be reached on windows of 20 000 packets: right at least, and wrong or called hybrid at most (%).
pub(crate) struct Floor {
    pub(crate) kinds: Kinds,
    pub(crate) cause: Cause,
    /// Whether the sender's burst is known or not.
    pattern: Option<(f64, f64)>,
    /// … and the same with the delay.
    delay: Option<(f64, f64)>,
    counter: Option<(f64, f64)>,
}

impl Floor {
    /// That of a method, and whether it was reached. A window of one cause that is called hybrid is wrong.
    pub(crate) fn cell(&self, method: Method, found: Option<&Rates>) -> String {
        let bounds = match method {
            Method::Paper | Method::PaperOfAll => None,
            Method::Pattern | Method::Burst => self.pattern,
            Method::DelayAlone | Method::Delay => self.delay,
            Method::Counter => self.counter,
        };
        let Some((right, wrong)) = bounds else { return "–".to_owned() };
        let is_met = found.is_some_and(|found| {
            right <= 100.0 * found.right.value && 100.0 * (found.wrong.value + found.hybrid) <= wrong
        });
        let met = if is_met { "met" } else { "missed" };
        if 0.0 < right {
            format!("≥ {right}, ≤ {wrong}: {met}")
        } else {
            format!("≤ {wrong} wrong: {met}")
        }
    }
}

/// What has to be reached. Of an outage only that it is not called the CPU's where the kernel counts.
#[rustfmt::skip]
pub(crate) const FLOORS: [Floor; 5] = [
    Floor { kinds: Kinds::Papers, cause: Cause::Host, pattern: Some((97.0, 0.8)), delay: None, counter: None },
    Floor { kinds: Kinds::Papers, cause: Cause::Network, pattern: Some((97.0, 0.8)), delay: None, counter: None },
    Floor { kinds: Kinds::All, cause: Cause::Host, pattern: Some((83.0, 0.8)), delay: Some((95.0, 0.5)), counter: Some((100.0, 0.0)) },
    Floor { kinds: Kinds::All, cause: Cause::Network, pattern: Some((92.0, 0.8)), delay: Some((97.0, 0.5)), counter: Some((100.0, 0.0)) },
    Floor { kinds: Kinds::Outage, cause: Cause::Network, pattern: None, delay: None, counter: Some((0.0, 0.0)) },
];

/// What should be.
#[rustfmt::skip]
pub(crate) const GOALS: [Floor; 4] = [
    Floor { kinds: Kinds::Papers, cause: Cause::Host, pattern: Some((98.5, 0.2)), delay: None, counter: None },
    Floor { kinds: Kinds::Papers, cause: Cause::Network, pattern: Some((98.5, 0.2)), delay: None, counter: None },
    Floor { kinds: Kinds::All, cause: Cause::Host, pattern: Some((90.0, 0.3)), delay: Some((98.0, 0.2)), counter: Some((100.0, 0.0)) },
    Floor { kinds: Kinds::All, cause: Cause::Network, pattern: Some((95.0, 0.3)), delay: Some((98.0, 0.2)), counter: Some((100.0, 0.0)) },
];

/// How much of what both causes lost may be given to the wrong one where the kernel counts (%): floor and goal.
pub(crate) const SPLIT_WITHIN: f64 = 1.0;

/// Three numbers as the tables have them.
pub(crate) fn three(rates: Option<&Rates>) -> [String; 3] {
    rates.map_or(["–"; 3].map(str::to_owned), |rates| {
        [rates.right.value, rates.wrong.value, rates.inconclusive + rates.hybrid].map(percent)
    })
}

#[cfg(test)]
mod tests {
    use super::super::rates::Share;
    use super::*;

    #[test]
    fn a_floor_takes_a_hybrid_of_one_cause_for_wrong() {
        let share = |value| Share { value, interval: None };
        let rates =
            |wrong, hybrid| Rates { right: share(0.98), wrong: share(wrong), hybrid, inconclusive: 0.0 };
        let [floor, goal] = [&FLOORS[0], &GOALS[0]];
        let cell = |floor: &Floor, wrong, hybrid| floor.cell(Method::Burst, Some(&rates(wrong, hybrid)));
        assert_eq!(cell(floor, 0.005, 0.0), "≥ 97, ≤ 0.8: met");
        assert_eq!(cell(floor, 0.005, 0.01), "≥ 97, ≤ 0.8: missed");
        assert_eq!(cell(goal, 0.0, 0.0), "≥ 98.5, ≤ 0.2: missed");
        // What has no floor, and an outage's, which may be put in doubt.
        assert_eq!(floor.cell(Method::Counter, Some(&rates(0.0, 0.0))), "–");
        assert_eq!(FLOORS[4].cell(Method::Counter, Some(&rates(0.0, 0.0))), "≤ 0 wrong: met");
        assert_eq!(FLOORS[4].cell(Method::Counter, Some(&rates(0.1, 0.0))), "≤ 0 wrong: missed");
    }
}
