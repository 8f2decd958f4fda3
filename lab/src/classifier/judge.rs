//! Verdicts of the classifiers on windows of runs that they were not fitted on.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use barograph_loss::{
    Classifier, Diagnosis, Evidence, Label, LabelledWindow, PAPER_KINDS, PaperClassifier, Verdict,
    assign_folds, fit, fit_paper,
};
use barograph_sim::SeededRng;

use crate::stats::{interval, resampled};
use crate::table::dash;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The paper's classifier, fitted on the kinds of contention that the paper made.
    Paper,
    /// The paper's classifier, fitted on all kinds.
    PaperOfAll,
    /// Our classifier with the pattern of losses only.
    Pattern,
    /// Our classifier with the pattern and the sender's burst.
    Burst,
    /// Our classifier with the pattern and the one-way delay before the losses.
    DelayAlone,
    /// Our classifier with the pattern, the burst and the delay.
    Delay,
    /// Our classifier with all of these and the kernel's drop counter.
    Counter,
}

impl Method {
    /// Methods compared when the models are fitted here.
    pub(crate) const ALL: [Self; 7] = [
        Self::Paper,
        Self::PaperOfAll,
        Self::Pattern,
        Self::Burst,
        Self::DelayAlone,
        Self::Delay,
        Self::Counter,
    ];

    /// Methods compared for given models: there is only one model of the paper's classifier.
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

pub(crate) struct Models {
    paper: PaperClassifier,
    paper_of_all: PaperClassifier,
    ours: Classifier,
}

impl Models {
    pub(crate) fn new(paper: PaperClassifier, ours: Classifier) -> Self {
        Self { paper_of_all: paper.clone(), paper, ours }
    }

    /// Wraps a model of the paper's classifier. The default classifier is the one that comes with
    /// Barograph.
    pub(crate) fn of_papers(paper: PaperClassifier) -> Self {
        Self::new(paper, Classifier::shipped())
    }

    pub(crate) fn fit(windows: &[LabelledWindow]) -> anyhow::Result<Self> {
        let of = |kinds: Kinds| {
            let windows: Vec<LabelledWindow> =
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

    fn diagnose(&self, method: Method, window: &LabelledWindow) -> Diagnosis {
        match method {
            Method::Paper => self.paper.diagnose(&window.metrics),
            Method::PaperOfAll => self.paper_of_all.diagnose(&window.metrics),
            _ => self.ours.diagnose(&window.signature, &window.metrics, &method.evidence(&window.evidence)),
        }
    }

    pub(crate) fn classify<'a>(
        &self,
        windows: impl IntoIterator<Item = &'a LabelledWindow>,
    ) -> Vec<Judged<'a>> {
        let judge =
            |window| Judged { window, diagnoses: Method::ALL.map(|method| self.diagnose(method, window)) };
        windows.into_iter().map(judge).collect()
    }
}

/// A window with the diagnosis of each method, indexed by [`Method::ALL`].
pub(crate) struct Judged<'a> {
    pub(crate) window: &'a LabelledWindow,
    diagnoses: [Diagnosis; 7],
}

impl Judged<'_> {
    pub(crate) fn diagnosis(&self, method: Method) -> &Diagnosis {
        &self.diagnoses[method as usize]
    }

    /// Compares a method's verdict with the cause of the window, which must have one cause.
    pub(crate) fn outcome(&self, method: Method) -> VerdictOutcome {
        VerdictOutcome::of(self.diagnosis(method).verdict, self.window.cause)
    }
}

/// Result of comparing a verdict with the cause of a window that has one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerdictOutcome {
    Right,
    Wrong,
    Hybrid,
    Inconclusive,
}

impl VerdictOutcome {
    pub(crate) fn of(verdict: Verdict, cause: Label) -> Self {
        match (verdict, cause) {
            (Verdict::Host, Label::Host) | (Verdict::Network, Label::Network) => Self::Right,
            (Verdict::Host | Verdict::Network, _) => Self::Wrong,
            (Verdict::Hybrid, _) => Self::Hybrid,
            (Verdict::Inconclusive, _) => Self::Inconclusive,
        }
    }
}

/// How runs are divided into those that models are fitted on and those that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Models are fitted on one half of the runs and reported on the other.
    Half,
    /// Five parts; each is judged by models that were fitted on the other four.
    Five,
}

impl Split {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Half => "fitted on one half of the runs, reported on the other",
            Self::Five => "five-fold by run",
        }
    }

    pub(crate) fn classify(self, windows: &[LabelledWindow], seed: u64) -> anyhow::Result<Vec<Judged<'_>>> {
        let (parts, reported) = match self {
            Self::Half => (2, 1..2),
            Self::Five => (5, 0..5),
        };
        let part_of = parts_of(windows, parts, seed);
        let mut judged = Vec::new();
        for part in reported {
            let is_reported = |window: &&LabelledWindow| part_of[window.run.as_str()] == part;
            let fitted: Vec<LabelledWindow> =
                windows.iter().filter(|window| !is_reported(window)).cloned().collect();
            judged.extend(Models::fit(&fitted)?.classify(windows.iter().filter(is_reported)));
        }
        Ok(judged)
    }
}

/// Assigns each run to a part. The runs of one kind are distributed over the parts in random order.
pub(crate) fn parts_of(windows: &[LabelledWindow], parts: usize, seed: u64) -> BTreeMap<&str, usize> {
    let mut rng = SeededRng::new(seed, PARTS_STREAM);
    let runs = windows.iter().map(|window| (window.kind.as_str(), window.run.as_str()));
    assign_folds(runs, parts, |of_kind| {
        *of_kind = (1..=of_kind.len()).rev().map(|left| of_kind.swap_remove(rng.index_below(left))).collect();
    })
}

/// Random stream of the seed for this; the bootstrap and the simulation have their own.
const PARTS_STREAM: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Kinds of the paper's experiments: streams, on–off, TCP and random loss in the network;
    /// processes and a quota on the receiver.
    Papers,
    /// All kinds but outages: no pattern distinguishes an outage from a stall of the host.
    All,
    Outage,
}

impl Kinds {
    pub(crate) fn has(self, kind: &str) -> bool {
        match self {
            Self::Papers => PAPER_KINDS.contains(&kind),
            Self::All => !Self::Outage.has(kind),
            Self::Outage => kind == "outage",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Papers => "paper's kinds",
            Self::All => "all kinds but outage",
            Self::Outage => "outage",
        }
    }
}

/// Bounds of the loss-rate bands. The lowest is the smallest rate that the paper's classifier
/// classifies (§3.3), the highest the largest that it was trained on. Between them are the rate at
/// which it changes its metric and those at which our windows change.
pub(crate) const BANDS: [f64; 5] = [8e-5, 5e-4, 2e-3, 1e-2, 5e-2];

/// Whether the classifiers are made for the loss rate of this window.
pub(crate) fn is_in_range(window: &LabelledWindow) -> bool {
    (BANDS[0]..=BANDS[4]).contains(&window.signature.loss_rate())
}

/// Index of the band of the window's loss rate; the highest band includes its upper bound.
pub(crate) fn band_of(window: &LabelledWindow) -> usize {
    let rate = window.signature.loss_rate();
    BANDS[1..4].iter().filter(|bound| **bound <= rate).count()
}

/// Window length (packets) of the floors and of the earlier experiment.
pub(crate) const FLOORS_AT: u32 = 20_000;

/// Lengths of these windows (packets), ascending.
pub(crate) fn lengths(windows: &[LabelledWindow]) -> BTreeSet<u32> {
    windows.iter().map(|window| window.signature.packets()).collect()
}

pub(crate) fn cause_name(cause: Label) -> &'static str {
    match cause {
        Label::Host => "CPU",
        Label::Network => "network",
        Label::Both => "both",
    }
}

/// A share with its 95 % confidence interval, which is `None` with fewer than two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
}

pub(crate) struct Rates {
    pub(crate) right: Share,
    pub(crate) wrong: Share,
    pub(crate) hybrid: f64,
    pub(crate) inconclusive: f64,
}

/// How often a method is right on these windows; `None` if there are none.
pub(crate) fn rates(judged: &[&Judged<'_>], method: Method, seed: u64) -> Option<Rates> {
    let share =
        |outcome| ratio(judged, seed, |judged| (f64::from(u8::from(judged.outcome(method) == outcome)), 1.0));
    let right = share(VerdictOutcome::Right)?;
    Some(Rates {
        right,
        wrong: share(VerdictOutcome::Wrong)?,
        hybrid: share(VerdictOutcome::Hybrid)?.value,
        inconclusive: share(VerdictOutcome::Inconclusive)?.value,
    })
}

/// Of the lost packets of these windows, the share that a method attributes to the wrong cause, and
/// the share that it attributes to neither.
pub(crate) fn misattributed(judged: &[&Judged<'_>], method: Method, seed: u64) -> Option<(Share, Share)> {
    let wrong = |judged: &Judged<'_>| {
        let (diagnosis, lost) = (judged.diagnosis(method), f64::from(judged.window.metrics.lost));
        let host = match judged.window.cause {
            Label::Host => lost,
            Label::Network => 0.0,
            Label::Both => f64::from(judged.window.evidence.host_drops.unwrap_or_default()),
        };
        let too_much = |attributed: u32, truth: f64| (f64::from(attributed) - truth).max(0.0);
        (too_much(diagnosis.lost_host, host) + too_much(diagnosis.lost_network, lost - host), lost)
    };
    let unknown = |judged: &Judged<'_>| {
        (f64::from(judged.diagnosis(method).lost_unknown), f64::from(judged.window.metrics.lost))
    };
    Some((ratio(judged, seed, wrong)?, ratio(judged, seed, unknown)?))
}

pub(crate) fn those<'a, 'w: 'a>(
    judged: impl IntoIterator<Item = &'a Judged<'w>>,
    is: impl Fn(&LabelledWindow) -> bool,
) -> Vec<&'a Judged<'w>> {
    judged.into_iter().filter(|judged| is(judged.window)).collect()
}

pub(crate) fn runs(judged: &[&Judged<'_>]) -> usize {
    let mut runs: Vec<&str> = judged.iter().map(|judged| judged.window.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.len()
}

/// Sum of the first values of `of` divided by the sum of the second, over all windows.
fn ratio(judged: &[&Judged<'_>], seed: u64, of: impl Fn(&Judged<'_>) -> (f64, f64)) -> Option<Share> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for judged in judged {
        let (part, whole) = of(judged);
        let sum = sums.entry(&judged.window.run).or_default();
        *sum = (sum.0 + part, sum.1 + whole);
    }
    share(&sums.into_values().collect::<Vec<_>>(), seed)
}

/// A ratio of sums over runs, with its percentile interval (Efron and Tibshirani, *An Introduction
/// to the Bootstrap*, §13.3).
fn share(runs: &[(f64, f64)], seed: u64) -> Option<Share> {
    let ratio = |runs: &mut dyn Iterator<Item = &(f64, f64)>| {
        let (part, whole) = runs.fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        part / whole
    };
    let value = ratio(&mut runs.iter());
    if !value.is_finite() {
        return None;
    }
    let mut rng = SeededRng::new(seed, BOOTSTRAP_STREAM);
    let drawn = |drawn: &[usize]| ratio(&mut drawn.iter().map(|run| &runs[*run]));
    let interval = (runs.len() >= 2)
        .then(|| interval(resampled(runs.len(), RESAMPLES, &mut rng, drawn), 0.025))
        .flatten();
    Some(Share { value, interval })
}

pub(crate) fn cell(rates: Option<&Rates>) -> String {
    let Some(rates) = rates else { return dash() };
    let hybrid = if rates.hybrid > 0.0 { format!(" + {}", percent(rates.hybrid)) } else { String::new() };
    format!(
        "{} / {} / {}{hybrid}",
        percent_in(rates.right),
        percent(rates.wrong.value),
        percent(rates.inconclusive)
    )
}

pub(crate) fn percent_in(share: Share) -> String {
    let interval =
        share.interval.map_or(String::new(), |(low, high)| format!(" [{}, {}]", percent(low), percent(high)));
    format!("{}{interval}", percent(share.value))
}

pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent == 0.0 || percent == 100.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

/// "at least 1000" for percentile intervals (Efron and Tibshirani, §19.3).
const RESAMPLES: usize = 1000;

/// Random stream of the seed for this; the parts of the runs and the simulation have their own.
const BOOTSTRAP_STREAM: u64 = 2;

#[cfg(test)]
pub(crate) mod tests {
    use barograph_loss::{Meter, Signature};

    use super::*;

    /// Makes `runs` runs of each cause with `windows` windows each: single losses of the network,
    /// long gaps of the host.
    pub(crate) fn made(packets: u32, runs: u32, windows: u32, seed: u64) -> Vec<LabelledWindow> {
        let (mut rng, mut meter, mut made) = (SeededRng::new(seed, 0), Meter::new(), Vec::new());
        for (run, window) in (0..2 * runs).flat_map(|run| (0..windows).map(move |window| (run, window))) {
            let is_host = run % 2 == 0;
            // From 0.001 to 0.03 of the packets.
            let lost = (f64::from(packets) * 0.001 * 30f64.powf(rng.uniform())) as u32 + 1;
            let gaps = if is_host { lost.div_ceil(100) } else { lost };
            let longest = packets / gaps - lost.div_ceil(gaps);
            let between = |rng: &mut SeededRng| (rng.uniform() * f64::from(longest)) as u32;
            let lengths: Vec<u32> =
                (0..gaps).flat_map(|_| [1 + between(&mut rng), (lost / gaps).max(1)]).collect();
            let signature = Signature::from_runs(packets, lengths).unwrap();
            let lost = signature.lost();
            made.push(LabelledWindow {
                metrics: meter.measure(&signature),
                evidence: Evidence {
                    burst: Some(1 + window % 4),
                    delay_s: Some(if is_host { 1e-6 } else { 2e-3 }),
                    host_drops: Some(if is_host { lost } else { 0 }),
                    marks: None,
                },
                signature,
                cause: if is_host { Label::Host } else { Label::Network },
                kind: if is_host { "gen" } else { "random" }.to_owned(),
                run: format!("r{run}"),
            });
        }
        made
    }

    #[test]
    fn each_run_is_in_one_part_and_each_part_has_each_kind() {
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
        assert_eq!(Split::Five.classify(&windows, 7).unwrap().len(), windows.len());
        let half = Split::Half.classify(&windows, 7).unwrap();
        assert_eq!(half.len(), windows.len() / 2);
        let reported: Vec<&str> = half.iter().map(|judged| judged.window.run.as_str()).collect();
        let halves = parts_of(&windows, 2, 7);
        assert!(reported.iter().all(|run| halves[run] == 1));
    }

    #[test]
    fn each_method_gets_only_its_own_evidence() {
        let all = Evidence { burst: Some(4), delay_s: Some(0.1), host_drops: Some(3), marks: Some(2) };
        let left = Method::ALL.map(|method| method.evidence(&all));
        assert_eq!(left[..3], [Evidence::default(); 3]);
        assert_eq!(left[3], Evidence { burst: Some(4), ..Evidence::default() });
        assert_eq!(left[4], Evidence { delay_s: Some(0.1), ..Evidence::default() });
        assert_eq!((left[5], left[6]), (Evidence { host_drops: None, ..all }, all));
        for (at, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, at, "a diagnosis is looked up by the method's number");
        }
    }

    #[test]
    fn the_interval_resamples_runs_by_the_seed() {
        // Two runs of 50 windows, one all right and one all wrong: a resample has 0, a half or 1
        // right.
        let runs = [(50.0, 50.0), (0.0, 50.0)];
        let found = share(&runs, 1).unwrap();
        assert_eq!((found.value, found.interval), (0.5, Some((0.0, 1.0))));
        assert_eq!(share(&runs, 1), Some(found));
        let many: Vec<(f64, f64)> = (0..40).map(|run| (f64::from(run % 10), 10.0)).collect();
        let (low, high) = share(&many, 1).unwrap().interval.unwrap();
        // The mean is 0.45 with a standard deviation of 0.29 over 40 runs, so the interval is ±
        // 0.09.
        assert!((0.33..0.39).contains(&low) && (0.51..0.57).contains(&high), "{low} {high}");
        assert_ne!(share(&many, 2).unwrap().interval, Some((low, high)));
    }

    #[test]
    fn one_run_has_no_interval_and_no_runs_have_no_share() {
        assert_eq!(share(&[(1.0, 4.0)], 1), Some(Share { value: 0.25, interval: None }));
        assert_eq!(share(&[], 1), None);
    }
}
