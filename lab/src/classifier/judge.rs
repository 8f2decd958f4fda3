//! What the classifiers say of windows of runs that they were not fitted on.

use std::collections::BTreeMap;

use anyhow::Context as _;
use barograph_loss::{
    Cause, Classifier, Diagnosis, Evidence, Labelled, PaperClassifier, Verdict, deal_runs, fit, fit_paper,
};
use barograph_sim::Chance;

use super::kinds::Kinds;

/// A classifier and the evidence that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The paper's, fitted on the kinds of contention that the paper made.
    Paper,
    /// The paper's, fitted on all kinds.
    PaperOfAll,
    /// Ours with nothing but the pattern.
    Pattern,
    /// … and the sender's burst.
    Burst,
    /// Ours with the pattern and the one-way delay before the losses.
    DelayAlone,
    /// … and the burst too.
    Delay,
    /// … and the kernel's count of drops.
    Counter,
}

impl Method {
    /// Of models that were fitted here.
    pub(crate) const ALL: [Self; 7] = [
        Self::Paper,
        Self::PaperOfAll,
        Self::Pattern,
        Self::Burst,
        Self::DelayAlone,
        Self::Delay,
        Self::Counter,
    ];

    /// Of models that are as they are, where the paper's was fitted on whatever it was fitted on.
    pub(crate) const OF_ONE: [Self; 6] =
        [Self::Paper, Self::Pattern, Self::Burst, Self::DelayAlone, Self::Delay, Self::Counter];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper's",
            Self::PaperOfAll => "paper's, fitted on all",
            Self::Pattern => "ours, pattern",
            Self::Burst => "+ burst",
            Self::DelayAlone => "pattern + delay, no burst",
            Self::Delay => "+ delay",
            Self::Counter => "+ counter",
        }
    }

    /// What is left of the evidence.
    fn evidence(self, all: &Evidence) -> Evidence {
        let none = Evidence::default();
        match self {
            Self::Paper | Self::PaperOfAll | Self::Pattern => none,
            Self::Burst => Evidence { burst: all.burst, ..none },
            Self::DelayAlone => Evidence { delay_s: all.delay_s, ..none },
            Self::Delay => Evidence { host_drops: None, ..*all },
            Self::Counter => *all,
        }
    }
}

/// Both classifiers.
pub(crate) struct Models {
    paper: PaperClassifier,
    paper_of_all: PaperClassifier,
    ours: Classifier,
}

impl Models {
    pub(crate) fn new(paper: PaperClassifier, ours: Classifier) -> Self {
        Self { paper_of_all: paper.clone(), paper, ours }
    }

    /// A model of the paper's alone; what comes with Barograph stands for ours.
    pub(crate) fn of_papers(paper: PaperClassifier) -> Self {
        Self::new(paper, Classifier::shipped())
    }

    pub(crate) fn fit(windows: &[Labelled]) -> anyhow::Result<Self> {
        let of = |kinds: Kinds| {
            let windows: Vec<Labelled> =
                windows.iter().filter(|window| kinds.has(&window.kind)).cloned().collect();
            fit_paper(&windows)
                .map(|fit| fit.classifier)
                .with_context(|| format!("fitting the paper's classifier, {}", kinds.name()))
        };
        Ok(Self {
            paper: of(Kinds::Papers)?,
            paper_of_all: of(Kinds::All)?,
            ours: fit(windows).context("fitting the default classifier")?,
        })
    }

    fn say(&self, method: Method, window: &Labelled) -> Diagnosis {
        match method {
            Method::Paper => self.paper.diagnose(&window.metrics),
            Method::PaperOfAll => self.paper_of_all.diagnose(&window.metrics),
            _ => self.ours.diagnose(&window.signature, &window.metrics, &method.evidence(&window.evidence)),
        }
    }

    /// What is said of each of these.
    pub(crate) fn judge<'a>(&self, windows: impl IntoIterator<Item = &'a Labelled>) -> Vec<Judged<'a>> {
        let judge = |window| Judged { window, said: Method::ALL.map(|method| self.say(method, window)) };
        windows.into_iter().map(judge).collect()
    }
}

/// A window, and what each method of [`Method::ALL`] says of it.
pub(crate) struct Judged<'a> {
    pub(crate) window: &'a Labelled,
    said: [Diagnosis; 7],
}

impl Judged<'_> {
    pub(crate) fn said(&self, method: Method) -> &Diagnosis {
        &self.said[method as usize]
    }

    /// Of a window with one cause.
    pub(crate) fn outcome(&self, method: Method) -> Outcome {
        Outcome::of(self.said(method).verdict, self.window.cause)
    }
}

/// How a verdict of a window with one cause compares with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Right,
    /// The other cause.
    Wrong,
    /// Both causes.
    Hybrid,
    Inconclusive,
}

impl Outcome {
    pub(crate) fn of(verdict: Verdict, cause: Cause) -> Self {
        match (verdict, cause) {
            (Verdict::Cpu, Cause::Host) | (Verdict::Network, Cause::Network) => Self::Right,
            (Verdict::Cpu | Verdict::Network, _) => Self::Wrong,
            (Verdict::Hybrid, _) => Self::Hybrid,
            (Verdict::Inconclusive, _) => Self::Inconclusive,
        }
    }
}

/// How runs are parted into those that models are fitted on and those that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Fitted on one half of the runs, reported on the other.
    Half,
    /// In five parts, each judged by models that were fitted on the other four.
    Five,
}

impl Split {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Half => "fitted on one half of the runs, reported on the other",
            Self::Five => "five-fold by run",
        }
    }

    /// Judges the windows that are reported.
    pub(crate) fn judge(self, windows: &[Labelled], seed: u64) -> anyhow::Result<Vec<Judged<'_>>> {
        let (parts, reported) = match self {
            Self::Half => (2, 1..2),
            Self::Five => (5, 0..5),
        };
        let part_of = parts_of(windows, parts, seed);
        let mut judged = Vec::new();
        for part in reported {
            let is_reported = |window: &&Labelled| part_of[window.run.as_str()] == part;
            let fitted: Vec<Labelled> =
                windows.iter().filter(|window| !is_reported(window)).cloned().collect();
            judged.extend(Models::fit(&fitted)?.judge(windows.iter().filter(is_reported)));
        }
        Ok(judged)
    }
}

/// Which part each run is in; those of one kind are dealt in an order drawn by lot.
pub(crate) fn parts_of(windows: &[Labelled], parts: usize, seed: u64) -> BTreeMap<&str, usize> {
    let mut chance = Chance::new(seed, PARTS_STREAM);
    let runs = windows.iter().map(|window| (window.kind.as_str(), window.run.as_str()));
    deal_runs(runs, parts, |of_kind| {
        *of_kind = (1..=of_kind.len()).rev().map(|left| of_kind.swap_remove(chance.below(left))).collect();
    })
}

/// Of the seed; the bootstrap and the simulation have others.
const PARTS_STREAM: u64 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use barograph_loss::{Meter, Signature};

    use super::*;

    /// So many windows of each of so many runs: single losses of the network, and long gaps of the host.
    pub(crate) fn made(packets: u32, runs: u32, windows: u32, seed: u64) -> Vec<Labelled> {
        let (mut chance, mut meter, mut made) = (Chance::new(seed, 0), Meter::new(), Vec::new());
        for (run, window) in (0..2 * runs).flat_map(|run| (0..windows).map(move |window| (run, window))) {
            let is_host = run % 2 == 0;
            // From 0.001 to 0.03 of the packets.
            let lost = (f64::from(packets) * 0.001 * 30f64.powf(chance.uniform())) as u32 + 1;
            let gaps = if is_host { lost.div_ceil(100) } else { lost };
            let longest = packets / gaps - lost.div_ceil(gaps);
            let between = |chance: &mut Chance| (chance.uniform() * f64::from(longest)) as u32;
            let lengths: Vec<u32> =
                (0..gaps).flat_map(|_| [1 + between(&mut chance), (lost / gaps).max(1)]).collect();
            let signature = Signature::from_runs(packets, lengths).unwrap();
            let lost = signature.lost();
            made.push(Labelled {
                metrics: meter.measure(&signature),
                evidence: Evidence {
                    burst: Some(1 + window % 4),
                    delay_s: Some(if is_host { 1e-6 } else { 2e-3 }),
                    host_drops: Some(if is_host { lost } else { 0 }),
                    marks: None,
                },
                signature,
                cause: if is_host { Cause::Host } else { Cause::Network },
                kind: if is_host { "gen" } else { "random" }.to_owned(),
                run: format!("r{run}"),
            });
        }
        made
    }

    #[test]
    fn no_run_is_in_two_parts_and_each_part_has_each_kind() {
        let windows = made(20_000, 6, 12, 1);
        let parts = parts_of(&windows, 5, 7);
        assert_eq!(parts.len(), 12);
        assert_eq!(parts, parts_of(&windows, 5, 7));
        assert_ne!(parts, parts_of(&windows, 5, 8));
        for kind in ["gen", "random"] {
            let mut of: Vec<usize> = windows
                .iter()
                .filter(|window| window.kind == kind)
                .map(|window| parts[window.run.as_str()])
                .collect();
            of.sort_unstable();
            of.dedup();
            assert_eq!(of, [0, 1, 2, 3, 4]);
        }
        assert_eq!(Split::Five.judge(&windows, 7).unwrap().len(), windows.len());
        let half = Split::Half.judge(&windows, 7).unwrap();
        assert_eq!(half.len(), windows.len() / 2);
        let reported: Vec<&str> = half.iter().map(|judged| judged.window.run.as_str()).collect();
        let halves = parts_of(&windows, 2, 7);
        assert!(reported.iter().all(|run| halves[run] == 1));
    }

    #[test]
    fn evidence_that_is_taken_away_is_gone() {
        let all = Evidence { burst: Some(4), delay_s: Some(0.1), host_drops: Some(3), marks: Some(2) };
        let left = Method::ALL.map(|method| method.evidence(&all));
        assert_eq!(left[..3], [Evidence::default(); 3]);
        assert_eq!(left[3], Evidence { burst: Some(4), ..Evidence::default() });
        assert_eq!(left[4], Evidence { delay_s: Some(0.1), ..Evidence::default() });
        assert_eq!((left[5], left[6]), (Evidence { host_drops: None, ..all }, all));
        for (at, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, at, "what is said is looked up by the method's number");
        }
    }
}
