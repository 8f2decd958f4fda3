//! Report of `barograph classify fit`: counts of the windows, and the accuracy of models fitted to
//! them.

use std::collections::{BTreeMap, BTreeSet};

use barograph_loss::{Evidence, FitError, Label, LabelledWindow, PaperClassifier, Verdict, assign_folds};

use super::Method;
use super::fit::{Learned, learn};

/// Table of the number of windows and runs of each cause.
pub(super) fn counts(windows: &[LabelledWindow]) -> String {
    let mut text = format!("{:<9} {:>8} {:>6}\n", "cause", "windows", "runs");
    for name in GROUPS {
        let of_cause = || windows.iter().filter(|window| group(window) == name);
        let runs = of_cause().map(|window| window.run.as_str()).collect::<BTreeSet<_>>().len();
        text += &format!("{name:<9} {:>8} {runs:>6}\n", of_cause().count());
    }
    text
}

/// Cross-validates: a window is classified by a model that was fitted to other runs only.
pub(super) fn validate(method: Method, windows: &[LabelledWindow]) -> Result<String, FitError> {
    let runs = windows.iter().map(|window| (window.kind.as_str(), window.run.as_str()));
    let part_of = assign_folds(runs, PARTS, |_| ());
    let levels: Vec<_> =
        EvidenceLevel::ALL.into_iter().filter(|level| level.is_used(method, windows)).collect();
    let mut tallies: BTreeMap<(EvidenceLevel, &str), Tally> = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    for part in 0..PARTS {
        let is_in = |window: &&LabelledWindow| part_of.get(window.run.as_str()) == Some(&part);
        let others: Vec<LabelledWindow> = windows.iter().filter(|window| !is_in(window)).cloned().collect();
        let Learned { classifier, left_out: lengths } = learn(method, &others)?;
        left_out.extend(lengths.iter().map(|length| length.packets));
        for window in windows.iter().filter(is_in) {
            if !PaperClassifier::LOSS_RATES.contains(&window.signature.loss_rate()) {
                continue;
            }
            for level in &levels {
                let evidence = level.evidence(&window.evidence);
                let verdict = classifier.diagnose(&window.signature, &window.metrics, &evidence).verdict;
                tallies.entry((*level, group(window))).or_default().count(window.cause, verdict);
            }
        }
    }
    let mut text = format!(
        "cross-validated over {PARTS} parts of the runs, windows with loss rates of {} to {}, in percent:\n{:<15} {:<9} {:>8} {:>7} {:>7} {:>13}\n",
        PaperClassifier::LOSS_RATES.start(),
        PaperClassifier::LOSS_RATES.end(),
        "evidence",
        "cause",
        "windows",
        "right",
        "wrong",
        "inconclusive"
    );
    for level in levels {
        for name in GROUPS {
            let Some(tally) = tallies.get(&(level, name)) else { continue };
            let percent = |count: u32| 100.0 * f64::from(count) / f64::from(tally.windows);
            text += &format!(
                "{:<15} {name:<9} {:>8} {:>7.2} {:>7.2} {:>13.2}\n",
                level.name(),
                tally.windows,
                percent(tally.right),
                percent(tally.wrong),
                percent(tally.windows - tally.right - tally.wrong)
            );
        }
    }
    for packets in left_out {
        text += &format!(
            "windows of {packets} packets: some parts had no model for them, and used that of the nearest length\n"
        );
    }
    Ok(text)
}

/// Evidence that a classifier receives. Each variant includes the evidence of all variants before
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvidenceLevel {
    Pattern,
    Burst,
    Delay,
    Marks,
    Counter,
}

impl EvidenceLevel {
    const ALL: [Self; 5] = [Self::Pattern, Self::Burst, Self::Delay, Self::Marks, Self::Counter];

    fn name(self) -> &'static str {
        match self {
            Self::Pattern => "pattern only",
            Self::Burst => "+ burst",
            Self::Delay => "+ delay",
            Self::Marks => "+ marks",
            Self::Counter => "+ counter",
        }
    }

    /// Whether this evidence can change a verdict: the method uses this kind of evidence, and at
    /// least one window has this kind of evidence.
    fn is_used(self, method: Method, windows: &[LabelledWindow]) -> bool {
        let has = |has: fn(&Evidence) -> bool| {
            method == Method::Default && windows.iter().any(|window| has(&window.evidence))
        };
        match self {
            Self::Pattern => true,
            Self::Burst => has(|evidence| evidence.burst.is_some()),
            Self::Delay => has(|evidence| evidence.delay_s.is_some()),
            Self::Marks => has(|evidence| evidence.marks.is_some()),
            Self::Counter => has(|evidence| evidence.host_drops.is_some()),
        }
    }

    fn evidence(self, all: &Evidence) -> Evidence {
        Evidence {
            burst: all.burst.filter(|_| Self::Burst <= self),
            delay_s: all.delay_s.filter(|_| Self::Delay <= self),
            marks: all.marks.filter(|_| Self::Marks <= self),
            host_drops: all.host_drops.filter(|_| Self::Counter <= self),
        }
    }
}

#[derive(Default)]
struct Tally {
    windows: u32,
    right: u32,
    wrong: u32,
}

impl Tally {
    /// Counts a verdict. Every verdict except the right one and `inconclusive` is wrong; `hybrid`
    /// is wrong if there is a single cause.
    fn count(&mut self, cause: Label, verdict: Verdict) {
        let right = match cause {
            Label::Host => Verdict::Host,
            Label::Network => Verdict::Network,
            Label::Both => Verdict::Hybrid,
        };
        self.windows += 1;
        self.right += u32::from(verdict == right);
        self.wrong += u32::from(verdict != right && verdict != Verdict::Inconclusive);
    }
}

/// Cause under which a window is counted. An outage (the path carried nothing for some time) is
/// counted separately, because its losses resemble the losses of a host.
fn group(window: &LabelledWindow) -> &'static str {
    match window.cause {
        Label::Host => "cpu",
        Label::Network if window.kind == "outage" => "outage",
        Label::Network => "network",
        Label::Both => "both",
    }
}

const GROUPS: [&str; 4] = ["cpu", "network", "outage", "both"];
/// Number of parts into which cross-validation divides the runs, five as usual. Each model is
/// fitted to four parts.
const PARTS: usize = 5;
