//! How often each classifier is right, by kind and by loss rate, with each piece of evidence
//! removed.

use std::collections::BTreeSet;

use barograph_loss::{Label, LabelledWindow, Meter, PaperClassifier, fit_paper};

use super::judge::{
    BANDS, FLOORS_AT, Judged, Kinds, Method, Models, Rates, Split, VerdictOutcome, band_of, cause_name, cell,
    is_in_range, lengths, misattributed, parts_of, percent, percent_in, rates, runs, runs as runs_of, those,
};
use super::matrix::matrix;
use super::windows::Run;
use crate::stats::range;
use crate::table::{Table, cells, dash};

#[derive(Default)]
pub(crate) struct Held {
    pub(crate) all: String,
    pub(crate) short: String,
    /// Verdicts by kind, cause and evidence, of the five-fold split and of all lengths.
    pub(crate) matrix: String,
}

impl Held {
    /// Adds the tables of windows that `title` describes.
    fn add(&mut self, title: &str, tables: &[String; 3], is_short: bool) {
        self.all += &format!("\n### {title}\n\n{}", tables.join("\n"));
        if is_short {
            self.short += &format!("\n**{title}:**\n\n{}\n{}", tables[0], tables[2]);
        }
    }
}

/// Tables of models that are judged on runs that they were not fitted on. The short form has the
/// windows of [`FLOORS_AT`] packets, and the five-fold tables of the longest windows.
pub(crate) fn held_out(windows: &[LabelledWindow], seed: u64) -> anyhow::Result<Held> {
    let mut held = Held { all: format!("\n## Right and wrong verdicts\n{LEGEND}"), ..Held::default() };
    let longest = lengths(windows).into_iter().next_back();
    for split in [Split::Half, Split::Five] {
        let judged = split.classify(windows, seed)?;
        for packets in lengths(windows) {
            let title = format!("Windows of {packets} packets, {}", split.name());
            let (has_floors, has_earlier) = (packets >= FLOORS_AT, packets == FLOORS_AT);
            let tables = Tables { methods: &Method::ALL, has_floors, has_earlier, seed }.of(&judged, packets);
            let is_short = packets == FLOORS_AT || (split == Split::Five && Some(packets) == longest);
            held.add(&title, &tables, is_short);
            if split == Split::Five {
                held.matrix += &format!("\n**{title}:**\n\n{}", matrix(&judged, packets));
            }
        }
    }
    held.all += &format!("{MATRIX_TITLE}{}", held.matrix);
    Ok(held)
}

/// Tables of given models on all windows of the folder, without fitting.
pub(crate) fn as_they_are(windows: &[LabelledWindow], models: &Models, name: &str, seed: u64) -> Held {
    let all = format!("\n## Right and wrong verdicts of {name}, not fitted here\n{LEGEND}");
    let mut held = Held { all, ..Held::default() };
    let judged = models.classify(windows);
    for packets in lengths(windows) {
        let of = those(&judged, |window| window.signature.packets() == packets);
        let title = format!("Windows of {packets} packets: {} windows of {} runs", of.len(), runs(&of));
        let has_floors = packets >= FLOORS_AT;
        let tables =
            Tables { methods: &Method::OF_ONE, has_floors, has_earlier: false, seed }.of(&judged, packets);
        held.add(&title, &tables, packets == FLOORS_AT);
        held.matrix += &format!("\n**{title}:**\n\n{}", matrix(&judged, packets));
    }
    held.all += &format!("{MATRIX_TITLE}{}", held.matrix);
    held
}

const MATRIX_TITLE: &str = "\n## Verdicts by kind and evidence\n";

const LEGEND: &str = "\n% right [95 % interval over runs] / wrong / inconclusive; + those called hybrid, if any. An interval of [0, 0] or [100, 100] says only \
    that no run had any.\n";

const FLOORS_LEGEND: &str = "\nA floor or goal says how much is right at least, and how much wrong or called hybrid at most: of a window with one cause, hybrid is wrong. \
    An outage is wrong where it is called the CPU's.\n";

struct Tables<'a> {
    methods: &'a [Method],
    /// Whether the table has rows with floors and goals.
    has_floors: bool,
    /// Whether the table has a row of the earlier experiment, which these windows are a part of.
    has_earlier: bool,
    seed: u64,
}

impl Tables<'_> {
    /// Three tables: by cause and kinds, by kind and band, and for windows with both causes.
    fn of(&self, judged: &[Judged<'_>], packets: u32) -> [String; 3] {
        let judged = those(judged, |window| window.signature.packets() == packets);
        let in_range = those(judged.iter().copied(), is_in_range);
        [self.summary(&in_range), self.by_kind_and_band(&in_range), self.hybrids(&judged)]
    }

    fn summary(&self, judged: &[&Judged<'_>]) -> String {
        let mut table = self.table(["loss 0.00008–0.05", "cause"]);
        for kinds in [Kinds::Papers, Kinds::All, Kinds::Outage] {
            for cause in [Label::Host, Label::Network] {
                let is = |window: &LabelledWindow| window.cause == cause && kinds.has(&window.kind);
                let of = those(judged.iter().copied(), is);
                if !of.is_empty() {
                    table.push(self.row([kinds.name(), cause_name(cause)], &of));
                    if self.has_floors {
                        self.references(kinds, cause, &of).into_iter().for_each(|row| table.push(row));
                    }
                }
            }
        }
        let legend = if self.has_floors { FLOORS_LEGEND } else { "" };
        format!("{table}{legend}")
    }

    fn references(&self, kinds: Kinds, cause: Label, of: &[&Judged<'_>]) -> Vec<Vec<String>> {
        let row = |name: &str, cell: &dyn Fn(Method) -> String| {
            let of_methods = self.methods.iter().map(|method| cell(*method));
            cells![name, "", ""].into_iter().chain(of_methods).collect()
        };
        let mut rows = Vec::new();
        let found = |method| rates(of, method, self.seed);
        let mut earlier = EARLIER.iter().filter(|earlier| (earlier.kinds, earlier.cause) == (kinds, cause));
        let earlier = earlier.next().filter(|_| self.has_earlier);
        if let Some(earlier) = earlier {
            rows.push(row("– an earlier experiment of ours", &|method| earlier.cell(method)));
        }
        for (name, floors) in [("– floor", &FLOORS[..]), ("– goal", &GOALS)] {
            for floor in floors.iter().filter(|floor| (floor.kinds, floor.cause) == (kinds, cause)) {
                // On its own kinds the paper's classifier has to reproduce the earlier experiment.
                let is_papers = |method| (method, kinds, name) == (Method::Paper, Kinds::Papers, "– floor");
                rows.push(row(name, &|method| match (earlier, found(method)) {
                    (Some(earlier), Some(found)) if is_papers(method) => {
                        format!("earlier ± 3: {}", earlier.is_near(found.right.value, found.wrong.value))
                    }
                    (_, found) => floor.cell(method, found.as_ref()),
                }));
            }
        }
        rows
    }

    fn by_kind_and_band(&self, judged: &[&Judged<'_>]) -> String {
        let mut table = self.table(["kind", "loss"]);
        for cause in [Label::Host, Label::Network] {
            let of_cause = those(judged.iter().copied(), |window| window.cause == cause);
            let kinds: BTreeSet<&str> = of_cause.iter().map(|judged| judged.window.kind.as_str()).collect();
            for kind in kinds.into_iter().map(Some).chain([None]) {
                let name = format!("{}: {}", cause_name(cause), kind.unwrap_or(Kinds::All.name()));
                let has = |of: &str| kind.map_or(Kinds::All.has(of), |kind| kind == of);
                for (band, bounds) in BANDS.windows(2).enumerate() {
                    let is = |window: &LabelledWindow| has(&window.kind) && band_of(window) == band;
                    let of = those(of_cause.iter().copied(), is);
                    if !of.is_empty() {
                        table.push(self.row([&name, &format!("{}–{}", bounds[0], bounds[1])], &of));
                    }
                }
            }
        }
        table.to_string()
    }

    fn hybrids(&self, judged: &[&Judged<'_>]) -> String {
        let mut table = self.table(["both causes: % of lost packets given to the wrong one; to none", ""]);
        for (name, is_low) in [("loss 0.00008–0.05", true), ("loss over 0.05", false)] {
            let is = |window: &LabelledWindow| window.cause == Label::Both && is_in_range(window) == is_low;
            let of = those(judged.iter().copied(), is);
            let cell = |method: &Method| {
                let of_method = misattributed(&of, *method, self.seed);
                of_method.map_or_else(dash, |(wrong, none)| {
                    format!("{}; {}", percent_in(wrong), percent(none.value))
                })
            };
            if !of.is_empty() {
                table.push(row([name, ""], &of, self.methods.iter().map(cell)));
                if is_low && self.has_floors {
                    let cell = |method: &Method| match misattributed(&of, *method, self.seed) {
                        Some((wrong, none)) if *method == Method::Counter => {
                            let is_met = 100.0 * (wrong.value + none.value) <= SPLIT_WITHIN;
                            format!("≤ {SPLIT_WITHIN}: {}", if is_met { "met" } else { "missed" })
                        }
                        _ => dash(),
                    };
                    let floors = self.methods.iter().map(cell);
                    table.push(cells!["– floor and goal", "", ""].into_iter().chain(floors));
                }
            }
        }
        if table.is_empty() { "No window has both causes.\n".to_owned() } else { table.to_string() }
    }

    fn table(&self, first: [&str; 2]) -> Table {
        let methods = self.methods.iter().map(|method| method.name());
        Table::new(first).and(["windows (runs)"]).and(methods)
    }

    fn row(&self, first: [&str; 2], of: &[&Judged<'_>]) -> Vec<String> {
        row(first, of, self.methods.iter().map(|method| cell(rates(of, *method, self.seed).as_ref())))
    }
}

fn row(first: [&str; 2], of: &[&Judged<'_>], cells: impl Iterator<Item = String>) -> Vec<String> {
    cells![first[0], first[1], format!("{} ({})", of.len(), runs(of))].into_iter().chain(cells).collect()
}

/// A row of Dickens Table 1: a transfer of four hours with losses of the host alone.
pub(crate) struct Transfer {
    pub(crate) loss_rate: f64,
    /// Windows with losses among the [`Transfer::WINDOWS`].
    pub(crate) lossy: usize,
    /// Lossy windows with a loss rate under 0.00008.
    pub(crate) below_range: usize,
    /// Windows within the range that were inconclusive or attributed to the network: 0.86 and 0.22
    /// % of 924, 0.2 % of 1425, 0.7 % of 1044.
    pub(crate) missed: usize,
    pub(crate) with_mbit_s: f64,
    pub(crate) without_mbit_s: f64,
}

impl Transfer {
    /// "1.6 terabytes" in windows of 100 MB (§4.1).
    pub(crate) const WINDOWS: usize = 16_000;
}

/// Dickens Table 1. Its text gives 0.00055 as the third rate.
#[rustfmt::skip]
pub(crate) const TRANSFERS: [Transfer; 3] = [
    Transfer { loss_rate: 0.000_35, lossy: 1110, below_range: 186, missed: 10, with_mbit_s: 8883.0, without_mbit_s: 74.0 },
    Transfer { loss_rate: 0.000_45, lossy: 1429, below_range: 4, missed: 3, with_mbit_s: 9490.0, without_mbit_s: 35.0 },
    Transfer { loss_rate: 0.000_56, lossy: 1051, below_range: 7, missed: 7, with_mbit_s: 9397.0, without_mbit_s: 41.5 },
];

/// Dickens Table 2, and columns 3 to 5 of his Table 1: cause, metric, right, wrong, inconclusive
/// (%).
pub(crate) const TABLE_2: [(Label, &str, [&str; 3]); 5] = [
    (Label::Network, "complexity", ["99.94", "0.052", "0.001"]),
    (Label::Network, "success proportion", ["98.2", "0.18", "1.5"]),
    (Label::Host, "both, long-term loss 0.00035", ["98.9", "0.22", "0.86"]),
    (Label::Host, "both, long-term loss 0.00045", ["99.8", "0", "0.2"]),
    (Label::Host, "both, long-term loss 0.00056", ["99.3", "0", "0.7"]),
];

/// Result of an earlier experiment of ours on windows of 20 000 packets, five-fold by run, with
/// twice as many runs of the same kinds. Its programs are not kept. Right / wrong / inconclusive
/// (%).
pub(crate) struct Earlier {
    pub(crate) kinds: Kinds,
    pub(crate) cause: Label,
    /// The paper's classifier by tail areas, fitted on the same kinds.
    paper: [f64; 3],
    /// Kernel densities over mean burst, success proportion and words.
    pattern: &'static str,
    /// Boosted trees over the pattern and the delay.
    delay: &'static str,
}

impl Earlier {
    /// Cell beside the method of ours that had the same evidence.
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

    pub(crate) fn papers(&self) -> String {
        let [right, wrong, inconclusive] = self.paper;
        format!("{right} / {wrong} / {inconclusive}")
    }

    /// Whether the paper's classifier reproduces the earlier experiment: the share that is right
    /// differs by at most 3 points, and the share that is wrong is at most 3 points larger.
    pub(crate) fn is_near(&self, right: f64, wrong: f64) -> String {
        let off = (100.0 * right - self.paper[0]).abs().max(100.0 * wrong - self.paper[1]) - 3.0;
        if off <= 0.0 { "met".to_owned() } else { format!("missed by {off:.1}") }
    }
}

#[rustfmt::skip]
pub(crate) const EARLIER: [Earlier; 4] = [
    Earlier { kinds: Kinds::Papers, cause: Label::Host, paper: [76.3, 0.6, 23.1], pattern: "97.7 / 0 / 2.3", delay: "98.3 / 0.6 / 1.2" },
    Earlier { kinds: Kinds::Papers, cause: Label::Network, paper: [83.3, 3.8, 12.9], pattern: "97.8 / 0.2 / 2.0", delay: "98.9 / 0.2 / 0.9" },
    Earlier { kinds: Kinds::All, cause: Label::Host, paper: [24.7, 4.7, 70.6], pattern: "84.4 / 0 / 15.6", delay: "96.2 / 0 / 3.8" },
    Earlier { kinds: Kinds::All, cause: Label::Network, paper: [72.0, 0.5, 27.6], pattern: "93.1 / 0.3 / 6.6", delay: "97.9 / 0 / 2.1" },
];

/// Bounds for windows of 20 000 packets and more: right at least, and wrong or called hybrid at
/// most (%).
pub(crate) struct Floor {
    pub(crate) kinds: Kinds,
    pub(crate) cause: Label,
    /// Without the delay, whether or not the sender's burst is known.
    pattern: Option<(f64, f64)>,
    /// With the delay, whether or not the sender's burst is known.
    delay: Option<(f64, f64)>,
    counter: Option<(f64, f64)>,
}

impl Floor {
    /// The bounds of a method and whether it met them. A window of one cause that is called hybrid
    /// counts as wrong.
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
        if right > 0.0 {
            format!("≥ {right}, ≤ {wrong}: {met}")
        } else {
            format!("≤ {wrong} wrong: {met}")
        }
    }
}

/// Bounds that have to be met. An outage must not be called the CPU's if the kernel's drop counter
/// is known.
#[rustfmt::skip]
pub(crate) const FLOORS: [Floor; 5] = [
    Floor { kinds: Kinds::Papers, cause: Label::Host, pattern: Some((97.0, 0.8)), delay: None, counter: None },
    Floor { kinds: Kinds::Papers, cause: Label::Network, pattern: Some((97.0, 0.8)), delay: None, counter: None },
    Floor { kinds: Kinds::All, cause: Label::Host, pattern: Some((95.0, 0.3)), delay: Some((97.0, 0.3)), counter: Some((100.0, 0.0)) },
    Floor { kinds: Kinds::All, cause: Label::Network, pattern: Some((95.0, 0.3)), delay: Some((97.0, 0.3)), counter: Some((100.0, 0.0)) },
    Floor { kinds: Kinds::Outage, cause: Label::Network, pattern: None, delay: None, counter: Some((0.0, 0.0)) },
];

#[rustfmt::skip]
pub(crate) const GOALS: [Floor; 4] = [
    Floor { kinds: Kinds::Papers, cause: Label::Host, pattern: Some((98.5, 0.2)), delay: None, counter: None },
    Floor { kinds: Kinds::Papers, cause: Label::Network, pattern: Some((98.5, 0.2)), delay: None, counter: None },
    Floor { kinds: Kinds::All, cause: Label::Host, pattern: None, delay: Some((98.0, 0.2)), counter: Some((100.0, 0.0)) },
    Floor { kinds: Kinds::All, cause: Label::Network, pattern: None, delay: Some((98.0, 0.2)), counter: Some((100.0, 0.0)) },
];

/// Largest share (%) of the losses of both causes that may be attributed to the wrong cause or to
/// none if the kernel's drop counter is known: floor and goal.
pub(crate) const SPLIT_WITHIN: f64 = 1.0;

pub(crate) fn three(rates: Option<&Rates>) -> [String; 3] {
    rates.map_or(["–"; 3].map(str::to_owned), |rates| {
        [rates.right.value, rates.wrong.value, rates.inconclusive + rates.hybrid].map(percent)
    })
}

/// Compares the paper's classifier with the earlier experiment; empty if a cause has no window of
/// the paper's kinds.
pub(crate) fn reproduction_table(windows: &[LabelledWindow], seed: u64) -> anyhow::Result<String> {
    let compared: Vec<&LabelledWindow> = windows.iter().filter(|window| is_compared(window)).collect();
    let of = |cause| compared.iter().copied().filter(|window| window.cause == cause).collect::<Vec<_>>();
    let causes = [Label::Host, Label::Network].map(|cause| (cause, of(cause)));
    if causes.iter().any(|(_, of)| of.is_empty()) {
        return Ok(String::new());
    }
    let header = causes.iter().flat_map(|(cause, of)| {
        [format!("{}, {} windows", cause_name(*cause), of.len()), "within 3 points".to_owned()]
    });
    let mut table = Table::new([format!("windows of {FLOORS_AT} packets, the paper's kinds")]).and(header);
    let mut add = |name: &str, cells: [[String; 2]; 2]| {
        table.push(cells![name].into_iter().chain(cells.into_iter().flatten()));
    };
    add(
        "the earlier experiment, twice as many runs, five-fold",
        causes_of(|cause| [earlier(cause).map_or(String::new(), Earlier::papers), String::new()]),
    );
    let owned: Vec<LabelledWindow> = compared.iter().copied().cloned().collect();
    for (name, model) in [
        ("its curves, as they are, on these windows", PaperClassifier::read(CURVES)?),
        ("ours, fitted on these windows themselves", fit_paper(&owned)?.classifier),
    ] {
        let judged = Models::of_papers(model).classify(&owned);
        add(name, causes_of(|cause| judged_cells(&judged, cause, seed)));
    }
    let judged = Split::Five.classify(windows, seed)?;
    let five: Vec<Judged<'_>> = judged.into_iter().filter(|judged| is_compared(judged.window)).collect();
    add("ours, five-fold, this seed's parts", causes_of(|cause| judged_cells(&five, cause, seed)));
    let assignments: Vec<Assignment> = (0..ASSIGNMENTS)
        .map(|index| Assignment::new(windows, seed + index))
        .collect::<anyhow::Result<_>>()?;
    add(
        &format!("…, {ASSIGNMENTS} random assignments of the runs: mean [least, most right]"),
        causes_of(|cause| mean_cells(&assignments, cause, |assignment| assignment.shares(cause))),
    );
    add(
        "…, bands of loss as frequent as in the earlier experiment",
        causes_of(|cause| mean_cells(&assignments, cause, |assignment| assignment.shares_by_band(cause))),
    );
    Ok(format!("{REPRODUCTION_LEGEND}{table}"))
}

const REPRODUCTION_LEGEND: &str = "\n## The paper's classifier against an earlier experiment\n\nRight [interval] / wrong / inconclusive, %, loss 0.00008–0.05; is right within 3 points \
    of the earlier experiment's, and wrong at most 3 points above?\n\n";

fn causes_of(cells: impl Fn(Label) -> [String; 2]) -> [[String; 2]; 2] {
    [Label::Host, Label::Network].map(cells)
}

fn is_compared(window: &LabelledWindow) -> bool {
    window.signature.packets() == FLOORS_AT && Kinds::Papers.has(&window.kind) && is_in_range(window)
}

fn earlier(cause: Label) -> Option<&'static Earlier> {
    EARLIER.iter().find(|earlier| (earlier.kinds, earlier.cause) == (Kinds::Papers, cause))
}

fn judged_cells(judged: &[Judged<'_>], cause: Label, seed: u64) -> [String; 2] {
    let of = those(judged, |window| window.cause == cause);
    let found = rates(&of, Method::Paper, seed);
    let verdict = found
        .as_ref()
        .zip(earlier(cause))
        .map(|(found, earlier)| earlier.is_near(found.right.value, found.wrong.value));
    [cell(found.as_ref()), verdict.unwrap_or_default()]
}

/// Number of windows by cause, band and outcome for one random assignment of the runs to fifths.
struct Assignment([[[u32; 3]; BANDS.len() - 1]; 2]);

impl Assignment {
    /// Each fifth is judged by curves fitted on the other four.
    fn new(windows: &[LabelledWindow], seed: u64) -> anyhow::Result<Self> {
        let part_of = parts_of(windows, PARTS, seed);
        let mut counts = Self(Default::default());
        for part in 0..PARTS {
            let is_judged = |window: &&LabelledWindow| part_of[window.run.as_str()] == part;
            let compared = || windows.iter().filter(|window| is_compared(window));
            let fitted: Vec<LabelledWindow> =
                compared().filter(|window| !is_judged(window)).cloned().collect();
            let model = fit_paper(&fitted)?.classifier;
            for window in compared().filter(is_judged) {
                let outcome = VerdictOutcome::of(model.diagnose(&window.metrics).verdict, window.cause);
                counts.0[index(window.cause)][band_of(window)][outcome_index(outcome)] += 1;
            }
        }
        Ok(counts)
    }

    fn shares(&self, cause: Label) -> [f64; 3] {
        let of = &self.0[index(cause)];
        let all: u32 = of.iter().flatten().sum();
        [0, 1, 2].map(|outcome| of.iter().map(|band| f64::from(band[outcome])).sum::<f64>() / f64::from(all))
    }

    /// As [`Self::shares`], with each band weighted by its windows in the earlier experiment. A
    /// band without windows here is left out.
    fn shares_by_band(&self, cause: Label) -> [f64; 3] {
        let (mut sums, mut weights) = ([0.0; 3], 0.0);
        for (band, weight) in self.0[index(cause)].iter().zip(EARLIER_BANDS[index(cause)]) {
            let all: u32 = band.iter().sum();
            if all > 0 {
                weights += weight;
                for (sum, count) in sums.iter_mut().zip(band) {
                    *sum += weight * f64::from(*count) / f64::from(all);
                }
            }
        }
        sums.map(|sum| sum / weights)
    }
}

fn mean_cells(
    assignments: &[Assignment],
    cause: Label,
    shares: impl Fn(&Assignment) -> [f64; 3],
) -> [String; 2] {
    let all: Vec<[f64; 3]> = assignments.iter().map(shares).collect();
    let [right, wrong, inconclusive] =
        [0, 1, 2].map(|outcome| all.iter().map(|shares| shares[outcome]).sum::<f64>() / all.len() as f64);
    let (least, most) = range(all.iter().map(|shares| shares[0]));
    let shown = format!(
        "{} [{}, {}] / {} / {}",
        percent(right),
        percent(least),
        percent(most),
        percent(wrong),
        percent(inconclusive)
    );
    [shown, earlier(cause).map_or(String::new(), |earlier| earlier.is_near(right, wrong))]
}

fn index(cause: Label) -> usize {
    usize::from(cause != Label::Host)
}

fn outcome_index(outcome: VerdictOutcome) -> usize {
    match outcome {
        VerdictOutcome::Right => 0,
        VerdictOutcome::Wrong => 1,
        VerdictOutcome::Hybrid | VerdictOutcome::Inconclusive => 2,
    }
}

const PARTS: usize = 5;

/// The results of single assignments differ by chance. The standard error of the mean of 30 is a
/// sixth of their standard deviation.
const ASSIGNMENTS: u64 = 30;

/// Windows of the earlier experiment in each of [`BANDS`], CPU and network.
const EARLIER_BANDS: [[f64; BANDS.len() - 1]; 2] = [[3.0, 10.0, 63.0, 97.0], [108.0, 86.0, 74.0, 182.0]];

/// Curves that the earlier experiment fitted on all its windows of this length, these among them.
const CURVES: &str = "format = \"barograph-loss-paper\"
version = 1
fitted_on = { windows = 623, runs = 0 }

[[models]]
packets = 20000
windows = 623
low = { cpu = { mean = 0.76, sd = 0.05 }, network = { mean = 0.07, sd = 0.17 } }
cpu = { a = 0.305, b = -0.19, sd = 0.014 }
network = { a = 0.469, b = 5.48, c = -0.262, d = -304.0, sd = 0.053 }
";

/// Accuracy by window length: windows of each of [`LENGTHS`] are cut from whole runs. They are
/// judged by the given models, or else by models fitted on windows of all lengths of other runs.
pub(crate) fn length_table(runs: &[Run], models: Option<&Models>, seed: u64) -> anyhow::Result<String> {
    let (mut windows, mut meter): (Vec<LabelledWindow>, _) = (Vec::new(), Meter::new());
    for (run, length) in runs.iter().flat_map(|run| LENGTHS.map(|length| (run, length))) {
        run.cut(length, &mut meter, |window| windows.push(window))?;
    }
    windows.retain(|window| window.cause != Label::Both && Kinds::All.has(&window.kind));
    let (judged, by) = match models {
        Some(models) => (models.classify(&windows), "by models that were not fitted here"),
        None => (Split::Five.classify(&windows, seed)?, Split::Five.name()),
    };
    let methods = [Method::Paper, Method::Pattern, Method::Burst];
    let mut table =
        Table::new(["packets", "cause", "windows (runs)", "losses, median"]).and(methods.map(Method::name));
    for (length, cause) in
        LENGTHS.into_iter().flat_map(|length| [Label::Host, Label::Network].map(|cause| (length, cause)))
    {
        let of = those(&judged, |window| {
            window.signature.packets() == length && window.cause == cause && is_in_range(window)
        });
        let mut lost: Vec<u32> = of.iter().map(|judged| judged.window.metrics.lost).collect();
        lost.sort_unstable();
        let row = cells![
            length,
            cause_name(cause),
            format!("{} ({})", of.len(), runs_of(&of)),
            lost.get(lost.len() / 2).map_or_else(dash, u32::to_string),
        ];
        let of_methods = methods.map(|method| cell(rates(&of, method, seed).as_ref()));
        table.push(row.into_iter().chain(of_methods));
    }
    Ok(format!(
        "\n## Length of the window\n\nCut from whole runs, all kinds but outage, loss 0.00008–0.05, {by}; % right [95 % interval over runs] / \
         wrong / inconclusive; + those called hybrid, if any.\n\n{table}"
    ))
}

/// Window lengths (packets): from 1000, where one loss is a rate of 0.001, to the paper's length.
const LENGTHS: [u32; 7] = [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];

#[cfg(test)]
mod tests {
    use super::super::judge::Share;
    use super::super::judge::tests::made;

    use super::*;

    #[test]
    fn a_floor_counts_a_hybrid_verdict_for_one_cause_as_wrong() {
        let share = |value| Share { value, interval: None };
        let rates =
            |wrong, hybrid| Rates { right: share(0.98), wrong: share(wrong), hybrid, inconclusive: 0.0 };
        let [floor, goal] = [&FLOORS[0], &GOALS[0]];
        let cell = |floor: &Floor, wrong, hybrid| floor.cell(Method::Burst, Some(&rates(wrong, hybrid)));
        assert_eq!(cell(floor, 0.005, 0.0), "≥ 97, ≤ 0.8: met");
        assert_eq!(cell(floor, 0.005, 0.01), "≥ 97, ≤ 0.8: missed");
        assert_eq!(cell(goal, 0.0, 0.0), "≥ 98.5, ≤ 0.2: missed");
        // A method without a floor, and an outage, which may be inconclusive.
        assert_eq!(floor.cell(Method::Counter, Some(&rates(0.0, 0.0))), "–");
        assert_eq!(FLOORS[4].cell(Method::Counter, Some(&rates(0.0, 0.0))), "≤ 0 wrong: met");
        assert_eq!(FLOORS[4].cell(Method::Counter, Some(&rates(0.1, 0.0))), "≤ 0 wrong: missed");
    }

    #[test]
    fn the_reproduction_table_has_the_earlier_curves_and_ignores_other_kinds() {
        let mut windows = made(FLOORS_AT, 6, 12, 3);
        let text = reproduction_table(&windows, 1).unwrap();
        assert!(text.contains("its curves, as they are") && text.contains("30 random assignments"), "{text}");
        let mut others = made(FLOORS_AT, 6, 12, 4);
        others.iter_mut().for_each(|window| {
            window.kind = "slow".to_owned();
            window.run = format!("other {}", window.run);
        });
        windows.extend(others);
        // The other kinds add runs, which changes the random assignment. The rows without one do
        // not change.
        let with_others = reproduction_table(&windows, 1).unwrap();
        let fixed = |text: &str| {
            text.lines()
                .filter(|line| line.contains("themselves") || line.contains("its curves"))
                .collect::<String>()
        };
        assert_eq!(fixed(&with_others), fixed(&text));
        windows.retain(|window| window.kind == "slow");
        assert_eq!(reproduction_table(&windows, 1).unwrap(), "");
    }

    #[test]
    fn bands_have_the_weights_of_the_earlier_experiment() {
        let mut assignment = Assignment(Default::default());
        // Network: 1 of 2 right in the first band, 3 of 3 wrong in the last; the others have none.
        assignment.0[1][0] = [1, 0, 1];
        assignment.0[1][3] = [0, 3, 0];
        assert_eq!(assignment.shares(Label::Network), [0.2, 0.6, 0.2]);
        let [right, wrong, inconclusive] = assignment.shares_by_band(Label::Network);
        assert!((right - 54.0 / 290.0).abs() < 1e-12 && (inconclusive - right).abs() < 1e-12);
        assert!((wrong - 182.0 / 290.0).abs() < 1e-12);
    }

    #[test]
    fn is_near_compares_right_and_wrong_shares() {
        let earlier = earlier(Label::Network).unwrap();
        assert_eq!([earlier.is_near(0.81, 0.05), earlier.is_near(0.86, 0.0)], ["met", "met"]);
        assert_eq!(earlier.is_near(0.735, 0.02), "missed by 6.8");
        assert_eq!(earlier.is_near(0.833, 0.088), "missed by 2.0");
    }
}
