//! A model fitted on a host's own windows, and whether it is better than another model.

use std::collections::{BTreeMap, BTreeSet};

use super::order::assign_folds;
use super::pattern::fit;
use super::{FitError, LabelledWindow};
use crate::{Classifier, Evidence, Label, Verdict};

/// A model of the default classifier that was fitted on windows of one host, and its comparison
/// with another model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OwnModel {
    /// The classifier, fitted on all windows.
    pub classifier: Classifier,
    /// Verdicts on runs that were held back, by models that were fitted on the other runs.
    pub own_scores: HeldBackScores,
    /// Verdicts of the other model on the same windows.
    pub other_scores: HeldBackScores,
}

/// How often a model was right and wrong about windows of each cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeldBackScores {
    /// Windows with losses of the host.
    pub host: VerdictShares,
    /// Windows with losses of the network.
    pub network: VerdictShares,
}

/// Shares of right and wrong verdicts, each the mean over runs of the share of the run's windows;
/// 0 to 1. The other verdicts are inconclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VerdictShares {
    /// Share of windows with the right cause.
    pub right: f64,
    /// Share of windows with another verdict than the right cause and [`Verdict::Inconclusive`].
    pub wrong: f64,
}

impl HeldBackScores {
    /// Mean of the right shares of both causes, 0 to 1.
    pub fn mean_right(&self) -> f64 {
        (self.host.right + self.network.right) / 2.0
    }
}

impl OwnModel {
    /// Whether the own model should be used instead of the other model: it is right more often by
    /// at least 2 points, as the mean of both causes; for neither cause it is right less often by
    /// more than 1 point, or wrong more often.
    ///
    /// The last condition protects other users of the path: a model that takes congestion for
    /// losses of the host would keep a sender from slowing down.
    pub fn is_better(&self) -> bool {
        let (own, other) = (&self.own_scores, &self.other_scores);
        let is_no_worse = |own: VerdictShares, other: VerdictShares| {
            own.wrong <= other.wrong && own.right >= other.right - LOSS_MAX
        };
        own.mean_right() >= other.mean_right() + GAIN_MIN
            && is_no_worse(own.host, other.host)
            && is_no_worse(own.network, other.network)
    }
}

/// Fits a model on windows of one host, and compares it with the model `other` on runs that are
/// held back. Windows of both causes are ignored.
///
/// The runs are divided into five parts, each with runs of both causes. A model that was fitted on
/// four parts judges the windows of the fifth part, with all evidence except the drop counter,
/// because the counter gave the labels.
///
/// ```
/// use barograph_loss::{Classifier, Meter, fit_own, read_labelled};
///
/// let (mut meter, mut windows) = (Meter::new(), Vec::new());
/// for window in 0..60 {
///     // Five windows a run.
///     let run = window / 5;
///     let host = format!("3000,{},4000,{}\tcause=cpu\trun=h{run}", 40 + window, 60 + window);
///     let network = format!("{},1,700,1,900,1\tcause=network\trun=n{run}", 50 * window);
///     for line in [host, network] {
///         windows.extend(read_labelled(&line, Some(20_000), &mut meter).unwrap());
///     }
/// }
/// let own = fit_own(&windows, &Classifier::shipped()).unwrap();
/// assert!(own.own_scores.mean_right() > 0.9);
/// ```
///
/// # Errors
/// [`FitError::TooFewRuns`] if there are fewer than five runs of a cause; [`FitError::TooFew`] if a
/// cause has too few windows.
pub fn fit_own(windows: &[LabelledWindow], other: &Classifier) -> Result<OwnModel, FitError> {
    let of_one_cause = windows.iter().filter(|window| window.cause != Label::Both);
    let windows: Vec<LabelledWindow> = of_one_cause.cloned().collect();
    for cause in [Label::Host, Label::Network] {
        let runs: BTreeSet<&str> =
            windows.iter().filter(|window| window.cause == cause).map(|window| window.run.as_str()).collect();
        if runs.len() < PARTS {
            return Err(FitError::TooFewRuns { cause, found: runs.len(), needed: PARTS });
        }
    }
    let classifier = fit(&windows)?;
    let (mut own, mut others) = (RunTallies::default(), RunTallies::default());
    let part_of =
        assign_folds(windows.iter().map(|window| (cause_name(window), &*window.run)), PARTS, |_| ());
    for part in 0..PARTS {
        let is_in = |window: &&LabelledWindow| part_of.get(&*window.run) == Some(&part);
        let rest: Vec<LabelledWindow> = windows.iter().filter(|window| !is_in(window)).cloned().collect();
        let fitted = fit(&rest)?;
        for window in windows.iter().filter(is_in) {
            own.add(window, &fitted);
            others.add(window, other);
        }
    }
    Ok(OwnModel { classifier, own_scores: own.scores(), other_scores: others.scores() })
}

/// Verdicts on the windows of each cause and run: all, right, wrong.
#[derive(Default)]
struct RunTallies<'a>(BTreeMap<(Label, &'a str), [u32; 3]>);

impl<'a> RunTallies<'a> {
    fn add(&mut self, window: &'a LabelledWindow, classifier: &Classifier) {
        let evidence = Evidence { host_drops: None, ..window.evidence };
        let verdict = classifier.diagnose(&window.signature, &window.metrics, &evidence).verdict;
        let right = if window.cause == Label::Host { Verdict::Host } else { Verdict::Network };
        let tally = self.0.entry((window.cause, &window.run)).or_default();
        tally[0] += 1;
        tally[1] += u32::from(verdict == right);
        tally[2] += u32::from(verdict != right && verdict != Verdict::Inconclusive);
    }

    fn scores(&self) -> HeldBackScores {
        HeldBackScores { host: self.shares(Label::Host), network: self.shares(Label::Network) }
    }

    fn shares(&self, cause: Label) -> VerdictShares {
        let mean = |count: usize| {
            let shares = self.0.iter().filter(|((of, _), _)| *of == cause);
            let shares = shares.map(|(_, tally)| f64::from(tally[count]) / f64::from(tally[0]));
            let (sum, runs) = shares.fold((0.0, 0.0), |(sum, runs), share| (sum + share, runs + 1.0));
            if runs > 0.0 { sum / runs } else { 0.0 }
        };
        VerdictShares { right: mean(1), wrong: mean(2) }
    }
}

/// Name by which runs are assigned to parts, so that each part has runs of both causes.
fn cause_name(window: &LabelledWindow) -> &'static str {
    if window.cause == Label::Host { "cpu" } else { "network" }
}

/// Number of parts into which the runs are divided, and smallest number of runs of each cause.
const PARTS: usize = 5;
/// Smallest gain for which a model is replaced, as a share. A smaller one may be chance: with 50
/// windows of a cause, one window is 2 points.
const GAIN_MIN: f64 = 0.02;
/// Largest share by which a model may be right less often for one cause.
const LOSS_MAX: f64 = 0.01;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Meter, read_labelled};

    /// Windows of 20 000 packets: `runs` runs of each cause, ten windows a run. A window has 12
    /// losses. `host` and `network` give their lengths.
    fn windows(runs: u32, host: fn(u32) -> u32, network: fn(u32) -> u32) -> Vec<LabelledWindow> {
        let mut meter = Meter::new();
        let mut windows = Vec::new();
        for (cause, length) in [("cpu", host), ("network", network)] {
            for window in 0..10 * runs {
                // A fixed scramble of the number of the window and of the loss.
                let noise = |at: u32| (window * 7919 + at * 104_729 + window * at * 31) % 1009;
                let losses = (0..12).map(|at| format!("{},{}", 300 + noise(at), length(noise(at + 40))));
                let losses = losses.collect::<Vec<_>>().join(",");
                let line = format!("{losses}\tburst=4\tcause={cause}\trun={cause}{}", window / 10);
                windows.extend(read_labelled(&line, Some(20_000), &mut meter).unwrap());
            }
        }
        windows
    }

    /// Losses of a host that the shipped model knows: stalls of 60 to 159 packets.
    fn long_stall(noise: u32) -> u32 {
        60 + noise % 100
    }

    /// Losses of a host with short stalls: 5 to 9 packets.
    fn short_stall(noise: u32) -> u32 {
        5 + noise % 5
    }

    /// Losses of a path: single packets and pairs.
    fn single(noise: u32) -> u32 {
        1 + u32::from(noise.is_multiple_of(6))
    }

    #[test]
    fn a_host_with_other_contention_gets_a_model_of_its_own() {
        let windows = windows(8, short_stall, single);
        let own = fit_own(&windows, &Classifier::shipped()).unwrap();
        // The shipped model was fitted on longer stalls.
        assert!(own.other_scores.host.right < 0.5, "{:?}", own.other_scores);
        assert!(own.own_scores.host.right > 0.95 && own.own_scores.network.right > 0.95, "{own:?}");
        assert!(own.is_better());
        // Without the counter, the own model finds the cause.
        let window = windows.iter().find(|window| window.cause == Label::Host).unwrap();
        let evidence = Evidence { host_drops: None, ..window.evidence };
        let verdict = own.classifier.diagnose(&window.signature, &window.metrics, &evidence).verdict;
        assert_eq!(verdict, Verdict::Host);
    }

    #[test]
    fn a_host_that_the_other_model_knows_keeps_that_model() {
        let own = fit_own(&windows(8, long_stall, single), &Classifier::shipped()).unwrap();
        assert!(own.other_scores.mean_right() > 0.98, "{:?}", own.other_scores);
        assert!(!own.is_better());
    }

    #[test]
    fn a_model_that_does_not_tell_the_causes_apart_is_not_used() {
        let own = fit_own(&windows(8, single, single), &Classifier::shipped()).unwrap();
        assert!(!own.is_better(), "{own:?}");
    }

    #[test]
    fn a_gain_for_one_cause_does_not_excuse_wrong_verdicts_for_the_other() {
        let shares = |right, wrong| VerdictShares { right, wrong };
        let scores = |host, network| HeldBackScores { host, network };
        let own = |own_scores, other_scores| {
            OwnModel { classifier: Classifier::shipped(), own_scores, other_scores }.is_better()
        };
        let other = scores(shares(0.5, 0.0), shares(0.9, 0.0));
        assert!(own(scores(shares(0.9, 0.0), shares(0.9, 0.0)), other));
        assert!(own(scores(shares(0.55, 0.0), shares(0.895, 0.0)), other));
        assert!(!own(scores(shares(0.9, 0.0), shares(0.9, 0.01)), other), "wrong more often");
        assert!(!own(scores(shares(0.9, 0.0), shares(0.88, 0.0)), other), "right less often");
        assert!(!own(scores(shares(0.53, 0.0), shares(0.9, 0.0)), other), "the gain is too small");
        assert!(!own(other, other));
    }

    #[test]
    fn too_few_runs_are_an_error() {
        let windows = windows(4, long_stall, single);
        let error = fit_own(&windows, &Classifier::shipped()).unwrap_err();
        assert_eq!(error, FitError::TooFewRuns { cause: Label::Host, found: 4, needed: 5 });
        assert!(error.to_string().contains("4 of the 5 needed"), "{error}");
    }
}
