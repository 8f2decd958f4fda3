//! How often a method is right, with intervals over runs, for windows of one run are not independent.

use std::collections::BTreeMap;

use barograph_loss::Cause;
use barograph_sim::Chance;

use super::judge::{Judged, Method, Outcome};
use crate::stats::{interval, resampled};
use crate::table::dash;

/// A share, and between what it lies with 95 % confidence; `None` with fewer than two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
}

/// Of windows with one cause.
pub(crate) struct Rates {
    pub(crate) right: Share,
    pub(crate) wrong: Share,
    pub(crate) hybrid: f64,
    pub(crate) inconclusive: f64,
}

/// How often a method is right on these; `None` where there are none.
pub(crate) fn rates(judged: &[&Judged<'_>], method: Method, seed: u64) -> Option<Rates> {
    let share =
        |outcome| ratio(judged, seed, |judged| (f64::from(u8::from(judged.outcome(method) == outcome)), 1.0));
    let right = share(Outcome::Right)?;
    Some(Rates {
        right,
        wrong: share(Outcome::Wrong)?,
        hybrid: share(Outcome::Hybrid)?.value,
        inconclusive: share(Outcome::Inconclusive)?.value,
    })
}

/// The share of lost packets of these windows that a method gives to the wrong one of two causes, and that which it gives to none.
pub(crate) fn misattributed(judged: &[&Judged<'_>], method: Method, seed: u64) -> Option<(Share, Share)> {
    let wrong = |judged: &Judged<'_>| {
        let (said, lost) = (judged.said(method), f64::from(judged.window.metrics.lost));
        let host = match judged.window.cause {
            Cause::Host => lost,
            Cause::Network => 0.0,
            Cause::Unknown => f64::from(judged.window.evidence.host_drops.unwrap_or_default()),
        };
        let too_much = |said: u32, truth: f64| (f64::from(said) - truth).max(0.0);
        (too_much(said.lost_host, host) + too_much(said.lost_network, lost - host), lost)
    };
    let unknown = |judged: &Judged<'_>| {
        (f64::from(judged.said(method).lost_unknown), f64::from(judged.window.metrics.lost))
    };
    Some((ratio(judged, seed, wrong)?, ratio(judged, seed, unknown)?))
}

/// How many runs these windows are of.
pub(crate) fn runs(judged: &[&Judged<'_>]) -> usize {
    let mut runs: Vec<&str> = judged.iter().map(|judged| judged.window.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.len()
}

/// The sum of the first of what `of` says over the sum of the second.
fn ratio(judged: &[&Judged<'_>], seed: u64, of: impl Fn(&Judged<'_>) -> (f64, f64)) -> Option<Share> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for judged in judged {
        let (part, whole) = of(judged);
        let sum = sums.entry(&judged.window.run).or_default();
        *sum = (sum.0 + part, sum.1 + whole);
    }
    share(&sums.into_values().collect::<Vec<_>>(), seed)
}

/// A ratio of sums over runs, with its percentile interval (Efron and Tibshirani, *An Introduction to the Bootstrap*, §13.3).
fn share(runs: &[(f64, f64)], seed: u64) -> Option<Share> {
    let ratio = |runs: &mut dyn Iterator<Item = &(f64, f64)>| {
        let (part, whole) = runs.fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        part / whole
    };
    let value = ratio(&mut runs.iter());
    if !value.is_finite() {
        return None;
    }
    let mut chance = Chance::new(seed, BOOTSTRAP_STREAM);
    let drawn = |drawn: &[usize]| ratio(&mut drawn.iter().map(|run| &runs[*run]));
    let interval = (2 <= runs.len())
        .then(|| interval(resampled(runs.len(), RESAMPLES, &mut chance, drawn), 0.025))
        .flatten();
    Some(Share { value, interval })
}

pub(crate) fn cell(rates: Option<&Rates>) -> String {
    let Some(rates) = rates else { return dash() };
    let hybrid = if 0.0 < rates.hybrid { format!(" + {}", percent(rates.hybrid)) } else { String::new() };
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

/// Without the sign.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent == 0.0 || percent == 100.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

/// "at least 1000" for percentile intervals (Efron and Tibshirani, §19.3).
const RESAMPLES: usize = 1000;

/// Of the seed; the parts of the runs and the simulation have others.
const BOOTSTRAP_STREAM: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_over_runs_and_of_the_seed() {
        // Two runs of 50 windows, one all right and one all wrong: what is drawn is 0, a half or 1.
        let runs = [(50.0, 50.0), (0.0, 50.0)];
        let found = share(&runs, 1).unwrap();
        assert_eq!((found.value, found.interval), (0.5, Some((0.0, 1.0))));
        assert_eq!(share(&runs, 1), Some(found));
        let many: Vec<(f64, f64)> = (0..40).map(|run| (f64::from(run % 10), 10.0)).collect();
        let (low, high) = share(&many, 1).unwrap().interval.unwrap();
        // 0.45, a standard deviation of 0.29 over 40 runs: ± 0.09.
        assert!((0.33..0.39).contains(&low) && (0.51..0.57).contains(&high), "{low} {high}");
        assert_ne!(share(&many, 2).unwrap().interval, Some((low, high)));
    }

    #[test]
    fn one_run_has_no_interval_and_none_has_no_share() {
        assert_eq!(share(&[(1.0, 4.0)], 1), Some(Share { value: 0.25, interval: None }));
        assert_eq!(share(&[], 1), None);
    }
}
