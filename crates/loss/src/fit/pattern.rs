//! Fitting of the default classifier's model.

use std::collections::BTreeMap;

use super::logistic::{Class, Example, fit_odds};
use super::order::in_order;
use super::{FitError, LabelledWindow};
use crate::classifier::is_like_an_outage;
use crate::classifier::pattern::{
    CauseModel, EvidenceKinds, KnownEvidence, PatternModel, WindowRange, features,
};
use crate::{Classifier, Label, LossRun, Metrics, Signature, WORD_MAX};

/// Smallest number of windows of each cause for a fit. Fewer windows would come from only one or
/// two runs, and one or two runs do not represent all runs.
const WINDOWS_MIN: usize = 20;

/// Numbers of parts into which each window is divided, so that the model is also fitted on shorter
/// windows.
const PART_COUNTS: [u32; 3] = [1, 2, 5];

/// Fits the default classifier's model on the windows that have only one cause. Windows of both
/// causes are ignored. Outages are also ignored, because an outage has the same pattern as losses
/// of the host. If too few windows have a burst, features of the burst get no weight. If too few
/// windows have a delay, the delay gets no weight. The order of the windows does not matter.
///
/// ```
/// use barograph_loss::{Evidence, Meter, Signature, Verdict, fit, read_labelled};
///
/// let mut meter = Meter::new();
/// let mut windows = Vec::new();
/// for run in 1..=20 {
///     // The host loses long runs, the network single packets.
///     let host = format!("3000,{},4000,{}\tcause=cpu\trun=h{run}", 40 + run, 60 + run);
///     let network = format!("{},1,700,1,900,1\tcause=network\trun=n{run}", 500 * run);
///     for line in [host, network] {
///         windows.extend(read_labelled(&line, Some(20_000), &mut meter).unwrap());
///     }
/// }
/// let classifier = fit(&windows).unwrap();
/// let window = Signature::from_runs(20_000, [3000, 50, 4000, 70]).unwrap();
/// let metrics = meter.measure(&window);
/// let diagnosis = classifier.diagnose(&window, &metrics, &Evidence::default());
/// assert_eq!(diagnosis.verdict, Verdict::Host);
/// ```
///
/// # Errors
/// [`FitError::TooFew`] if one of the causes has too few windows.
pub fn fit(windows: &[LabelledWindow]) -> Result<Classifier, FitError> {
    let usable = windows.iter().filter(|window| is_usable(window));
    let pieces: Vec<_> = in_order(usable).into_iter().flat_map(pieces).collect();
    let mut odds = [CauseModel::default(); 4];
    for (index, (_, kinds)) in KnownEvidence::COMBINATIONS.into_iter().enumerate() {
        odds[index] = match examples(&pieces, kinds) {
            Ok(examples) => fit_odds(&examples, kinds),
            Err(error) if index == 0 => return Err(error),
            // If too few windows have a delay, use the model without the delay. If too few windows
            // have a burst, use the model without burst and delay.
            Err(_) if kinds.has_delay => odds[index - 2],
            Err(_) => odds[0],
        };
    }
    let lengths = || pieces.iter().map(|piece| piece.metrics.packets);
    let packets = WindowRange {
        // Shorter windows are inconclusive anyway.
        low: lengths().min().unwrap_or_default().max(WORD_MAX),
        high: lengths().max().unwrap_or_default().max(WORD_MAX),
    };
    Ok(Classifier { pattern: PatternModel { packets, odds } })
}

/// A labelled window, with the metrics of a part of the window or of the whole window.
struct WindowPart<'a> {
    window: &'a LabelledWindow,
    metrics: Metrics,
}

/// Whether the fit uses the window: the window has only one cause and is not an outage of the
/// network. An outage has the same pattern as losses of the host.
fn is_usable(window: &LabelledWindow) -> bool {
    let known = KnownEvidence::of(&window.evidence);
    let is_outage = window.cause == Label::Network
        && is_like_an_outage(window.signature.loss_runs(), &window.metrics, known.burst);
    window.cause != Label::Both && !is_outage
}

fn pieces(window: &LabelledWindow) -> Vec<WindowPart<'_>> {
    let packets = window.signature.packets();
    let parts = PART_COUNTS.into_iter().flat_map(|parts| (0..parts).map(move |part| (part, packets / parts)));
    parts
        .filter_map(|(part, length)| of_part(&window.signature, part * length, length))
        .filter(|metrics| metrics.lost > 0)
        .map(|metrics| WindowPart { window, metrics })
        .collect()
}

/// Metrics of the part of a window with `length` packets that begins at `from`. `None` if this part
/// would cut a run of losses, because the model would then be fitted on a run that is too short.
fn of_part(signature: &Signature, from: u32, length: u32) -> Option<Metrics> {
    let (to, mut at, mut received_from) = (from + length, 0, from);
    let mut is_cut = false;
    let gaps = signature.loss_runs().filter_map(|gap| {
        let start = at + gap.received;
        at = start + gap.lost;
        is_cut |=
            length < signature.packets() && [from, to].iter().any(|border| start < *border && *border < at);
        if start < from || at > to {
            return None;
        }
        let received = start - received_from;
        received_from = at;
        Some(LossRun { received, lost: gap.lost })
    });
    let metrics = Metrics::of_gaps(length, gaps);
    (!is_cut).then_some(metrics)
}

/// Examples from all windows with the evidence in `kinds`. Each cause has half the total weight.
/// The weight of a run is the square root of the number of its windows, because windows of one run
/// are similar, but not equal.
fn examples(pieces: &[WindowPart<'_>], kinds: EvidenceKinds) -> Result<Vec<Example>, FitError> {
    let EvidenceKinds { has_burst, has_delay } = kinds;
    let known = |piece: &WindowPart<'_>| {
        let all = KnownEvidence::of(&piece.window.evidence);
        (all.burst.is_some() || !has_burst) && (all.delay_s.is_some() || !has_delay)
    };
    let mut windows = BTreeMap::new();
    for piece in pieces.iter().filter(|piece| known(piece)) {
        *windows.entry((&piece.window.run, piece.metrics.packets)).or_insert(0usize) += 1;
    }
    let mut total = [0.0; 2];
    let mut found = [0; 2];
    let mut examples = Vec::new();
    for piece in pieces.iter().filter(|piece| known(piece)) {
        let all = KnownEvidence::of(&piece.window.evidence);
        let is_host = piece.window.cause == Label::Host;
        let class = match piece.window.cause {
            Label::Host => Class::Host,
            _ if all.delay_s.is_some() && !all.has_queue() => Class::Link,
            _ => Class::Queue,
        };
        let weight = (windows[&(&piece.window.run, piece.metrics.packets)] as f64).sqrt().recip();
        let known = KnownEvidence {
            burst: all.burst.filter(|_| has_burst),
            delay_s: all.delay_s.filter(|_| has_delay),
            is_marked: false,
        };
        total[usize::from(is_host)] += weight;
        found[usize::from(is_host)] += usize::from(piece.metrics.packets == piece.window.signature.packets());
        examples.push(Example { features: features(&piece.metrics, known), class, weight });
    }
    for (cause, found) in [Label::Network, Label::Host].into_iter().zip(found) {
        if found < WINDOWS_MIN {
            return Err(FitError::TooFew { cause, at: "", found, needed: WINDOWS_MIN });
        }
    }
    for example in &mut examples {
        example.weight /= 2.0 * total[usize::from(example.class == Class::Host)];
    }
    Ok(examples)
}
