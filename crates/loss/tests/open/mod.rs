//! Labelled windows written by `lab signatures`: the open signatures, if they are beside the
//! repository, and the smaller set in `tests/recorded`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use barograph_loss::{
    Classifier, Diagnosis, Evidence, GapEvidence, Label, LabelledWindow, Meter, PAPER_KINDS, PaperClassifier,
    Signature, Verdict, assign_folds,
};
use barograph_sim::report_skipped;

/// A labelled window with its evidence. The label is from the kernel's drop counter.
pub(crate) struct Window {
    pub(crate) labelled: LabelledWindow,
    /// Number of packets that the socket dropped.
    pub(crate) host: u32,
    pub(crate) burst: u32,
    pub(crate) delay_s: f64,
    /// Index of the window in its run, from 0.
    pub(crate) index: u32,
}

/// Evidence that the classifier is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvidenceSet {
    pub(crate) burst: bool,
    pub(crate) delay: bool,
}

impl EvidenceSet {
    pub(crate) const ALL: [Self; 4] = [
        Self { burst: false, delay: false },
        Self { burst: true, delay: false },
        Self { burst: false, delay: true },
        Self { burst: true, delay: true },
    ];
}

impl Window {
    pub(crate) fn evidence(&self, told: EvidenceSet) -> Evidence {
        let burst = told.burst.then_some(self.burst);
        Evidence { burst, delay_s: told.delay.then_some(self.delay_s), ..Evidence::default() }
    }

    pub(crate) fn diagnose(&self, classifier: &Classifier, evidence: &Evidence) -> Diagnosis {
        classifier.diagnose(&self.labelled.signature, &self.labelled.metrics, evidence)
    }

    /// Whether the loss rate of the window is in the range of the classifier. Other windows are
    /// ignored.
    pub(crate) fn is_in_range(&self) -> bool {
        PaperClassifier::LOSS_RATES.contains(&self.labelled.signature.loss_rate())
    }

    pub(crate) fn is_outage(&self) -> bool {
        self.labelled.kind == "outage"
    }

    /// Number of the half of all runs that contains this run. 0 = even run numbers, used to choose
    /// thresholds; 1 = odd run numbers.
    pub(crate) fn half(&self) -> usize {
        self.labelled.run[1..].parse::<usize>().unwrap() % 2
    }

    pub(crate) fn is_papers(&self) -> bool {
        PAPER_KINDS.contains(&self.labelled.kind.as_str())
    }
}

/// Returns all windows. If the signatures are missing, prints a message and returns `None`.
pub(crate) fn windows() -> Option<Vec<Window>> {
    let folder = folder();
    if !folder.is_dir() {
        report_skipped(&format!("the open signatures are not at {}", folder.display()));
        return None;
    }
    Some(windows_in(&folder, &[10_000, 20_000, 100_000]))
}

/// Reads the windows of these lengths (packets) in a folder written by `lab signatures`.
pub(crate) fn windows_in(folder: &Path, lengths: &[u32]) -> Vec<Window> {
    let of_length = |length: &u32| {
        let length = *length;
        ["net", "cpu", "hyb"]
            .into_iter()
            .flat_map(move |label| read(folder.join(format!("w{length}_{label}.txt.gz")), length))
    };
    lengths.iter().flat_map(of_length).collect()
}

/// Gaps of a run: first packet, number of lost packets, and increase of the socket's drop counter.
pub(crate) struct GapDrops(Vec<(u32, u32, u32)>);

impl GapDrops {
    /// Evidence on each gap of a window. If a gap extends over the border of two windows, its drops
    /// count in both windows.
    pub(crate) fn of_window(&self, window: &Window) -> Vec<GapEvidence> {
        let packets = window.labelled.signature.packets();
        let (from, to) = (window.index * packets, (window.index + 1) * packets);
        let of_window = self.0.iter().filter(|(start, lost, _)| *start < to && start + lost > from);
        of_window
            .map(|(_, _, drops)| GapEvidence { host_drops: Some(*drops), ..GapEvidence::default() })
            .collect()
    }
}

/// Reads the socket's drops in each gap, by run.
pub(crate) fn counts() -> BTreeMap<String, GapDrops> {
    let text = text(folder().join("runs.txt.gz"));
    let runs = text.lines().filter(|line| !line.starts_with('#'));
    runs.map(|line| {
        let fields: Vec<_> = line.split('\t').collect();
        let mut at = 0;
        let gaps = fields[7].split_whitespace().map(|gap| {
            let numbers: Vec<u32> = gap.split(':').map(|number| number.parse().unwrap()).collect();
            let start = at + numbers[0];
            at = start + numbers[1];
            (start, numbers[1], numbers[2])
        });
        (fields[0].to_owned(), GapDrops(gaps.collect()))
    })
    .collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/signatures")
}

fn text(path: PathBuf) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn read(path: PathBuf, length: u32) -> Vec<Window> {
    let text = text(path);
    let mut meter = Meter::new();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            let runs = fields[15].split(',').map(|run| run.parse().unwrap());
            let signature = Signature::from_runs(length, runs).unwrap();
            let (burst, delay_s) = (fields[4].parse().unwrap(), fields[12].parse::<f64>().unwrap() * 1e-6);
            let evidence = Evidence { burst: Some(burst), delay_s: Some(delay_s), ..Evidence::default() };
            let cause = match fields[0] {
                "cpu" => Label::Host,
                "net" => Label::Network,
                _ => Label::Both,
            };
            let host = (fields[14].parse::<f64>().unwrap() * f64::from(signature.lost())).round() as u32;
            let (kind, run) = (fields[3].to_owned(), fields[1].to_owned());
            let metrics = meter.measure(&signature);
            assert_eq!(metrics.na17.to_string(), fields[9], "{run} {}", fields[2]);
            Window {
                labelled: LabelledWindow { signature, metrics, evidence, cause, kind, run },
                host,
                burst,
                delay_s,
                index: fields[2].parse().unwrap(),
            }
        })
        .collect()
}

/// Calls `make` for each window, with a model fitted on the runs outside the fold of the window's
/// run.
pub(crate) fn cross_validated<T>(
    windows: &[Window],
    folds: usize,
    make: impl Fn(&Classifier, &Window) -> T,
) -> Vec<T> {
    // All runs count as one kind and are assigned in the order of their names. `lab signatures`
    // chooses the names at random.
    let runs = assign_folds(windows.iter().map(|window| ("", window.labelled.run.as_str())), folds, |_| ());
    let fit_without = |fold: usize| {
        let others = windows.iter().filter(|window| runs[window.labelled.run.as_str()] != fold);
        barograph_loss::fit(&others.map(|window| window.labelled.clone()).collect::<Vec<_>>()).unwrap()
    };
    let classifiers: Vec<Classifier> = (0..folds).map(fit_without).collect();
    windows.iter().map(|window| make(&classifiers[runs[window.labelled.run.as_str()]], window)).collect()
}

/// Numbers of right verdicts, wrong verdicts and windows, for the windows of one cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Score {
    pub(crate) right: u32,
    pub(crate) wrong: u32,
    pub(crate) all: u32,
}

impl Score {
    pub(crate) fn with(mut self, cause: Label, verdict: Verdict) -> Self {
        self.all += 1;
        self.right += u32::from(is(cause, verdict));
        let other = if cause == Label::Host { Label::Network } else { Label::Host };
        self.wrong += u32::from(is(other, verdict));
        self
    }

    pub(crate) fn right(&self) -> f64 {
        100.0 * f64::from(self.right) / f64::from(self.all)
    }

    pub(crate) fn wrong(&self) -> f64 {
        100.0 * f64::from(self.wrong) / f64::from(self.all)
    }
}

fn is(cause: Label, verdict: Verdict) -> bool {
    verdict == if cause == Label::Host { Verdict::Host } else { Verdict::Network }
}
