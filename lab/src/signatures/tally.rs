//! Counts of what was made, goals of a full set, and the rate at which windows are made; pure.

use std::collections::BTreeMap;

use barograph_loss::{Meter, Metrics};

use super::cut::{Label, Window};
use super::plan::Kind;
use super::store::Record;
use super::{LARGE, LENGTHS, WINDOW};
use crate::stats::{Rank, mean_of_some, quantile, sorted};
use crate::table::{Table, cells, list, number};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    kinds: BTreeMap<Kind, OfKind>,
    /// Windows by length and label, and by the kind of their run.
    rows: BTreeMap<(u32, Label, Kind), Row>,
    /// Runs of a class, separate for those that aimed at the lowest band.
    spent: BTreeMap<(Label, bool), Spent>,
    /// Windows of [`WINDOW`] packets with a label that differs from the design of the run.
    mismatches: BTreeMap<Kind, u32>,
    /// Gaps in which the socket dropped more packets than were lost.
    contradictions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfKind {
    runs: u32,
    /// For runs that aimed at all bands, and at the lowest.
    tries: [Tries; 2],
}

/// Runs of a kind with the same aim, and the windows among theirs that count for a goal.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    runs: u32,
    windows: u32,
}

#[derive(Debug, Default)]
struct Row {
    bands: [u32; BANDS],
    complexity: Vec<f64>,
    success_proportion: Vec<f64>,
    longest: Vec<f64>,
    delay_us: Vec<f64>,
}

/// Time of runs, and their windows in the bands of the classifiers: of [`WINDOW`] and of [`LARGE`]
/// packets.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    hours: f64,
    made: Made,
}

type Made = [[u32; 3]; 2];

impl Tally {
    /// Adds a run and all its windows.
    ///
    /// # Errors
    /// The gaps of the run do not fit their windows.
    pub(crate) fn record(&mut self, record: &Record, meter: &mut Meter) -> anyhow::Result<()> {
        let kind = record.kind;
        let before = self.made(kind.class());
        for length in LENGTHS {
            for window in record.trace.windows(length) {
                let metrics = window.metrics(length, meter)?;
                self.record_window(kind, &window, &metrics);
            }
        }
        self.contradictions += record.trace.contradictions;
        let made = added(before, self.made(kind.class()));
        self.record_run(kind, record.is_low, record.hours, made);
        Ok(())
    }

    fn record_run(&mut self, kind: Kind, is_low: bool, hours: f64, made: Made) {
        let of_kind = self.kinds.entry(kind).or_default();
        of_kind.runs += 1;
        let tries = &mut of_kind.tries[usize::from(is_low)];
        tries.runs += 1;
        tries.windows += if is_low { made[1][0] } else { made[0].iter().sum() };
        let spent = self.spent.entry((kind.class(), is_low)).or_default();
        spent.hours += hours;
        for (sum, count) in spent.made.iter_mut().flatten().zip(made.iter().flatten()) {
            *sum += count;
        }
    }

    fn record_window(&mut self, kind: Kind, window: &Window, metrics: &Metrics) {
        let (label, length) = (window.label(), metrics.packets);
        if length == WINDOW && kind.class() != Label::Hyb && kind.class() != label {
            *self.mismatches.entry(kind).or_default() += 1;
        }
        let band = band(f64::from(metrics.lost) / f64::from(length));
        let row = self.rows.entry((length, label, kind)).or_default();
        row.bands[band] += 1;
        if MEASURED.contains(&band) {
            row.complexity.push(metrics.complexity);
            row.success_proportion.push(metrics.success_proportion);
            row.longest.push(metrics.longest_run.into());
            row.delay_us.push(window.mean(|gap| gap.delay_us));
        }
    }

    /// Time of all runs (h).
    pub(crate) fn hours(&self) -> f64 {
        self.spent.values().map(|spent| spent.hours).sum()
    }

    pub(crate) fn runs(&self) -> u32 {
        self.kinds.values().map(|of_kind| of_kind.runs).sum()
    }

    /// Windows in the bands of the classifiers, of runs of any kind.
    fn bands(&self, length: u32, label: Label) -> [u32; 3] {
        let rows = self.rows.iter().filter(|((of, its, _), _)| (*of, *its) == (length, label));
        rows.fold([0; 3], |sums, (_, row)| [0, 1, 2].map(|index| sums[index] + row.bands[MEASURED[index]]))
    }

    fn made(&self, label: Label) -> Made {
        [WINDOW, LARGE].map(|length| self.bands(length, label))
    }

    fn count(&self, length: u32, label: Label) -> u32 {
        self.bands(length, label).iter().sum()
    }

    /// Windows of [`LARGE`] packets in the lowest band.
    fn lowest(&self, label: Label) -> u32 {
        self.bands(LARGE, label)[0]
    }

    /// Windows of the runs of a kind, with its label.
    fn of_kind(&self, length: u32, kind: Kind) -> [u32; 3] {
        let row = self.rows.get(&(length, kind.class(), kind));
        MEASURED.map(|band| row.map_or(0, |row| row.bands[band]))
    }

    /// Kinds with a window in the bands of the classifiers.
    fn kinds_of(&self, length: u32, label: Label) -> usize {
        let is_of =
            |(of, its, kind): &(u32, Label, Kind)| (*of, *its) == (length, label) && kind.class() == label;
        let has_one = |row: &Row| MEASURED.iter().any(|band| row.bands[*band] > 0);
        self.rows.iter().filter(|(key, row)| is_of(key) && has_one(row)).count()
    }

    /// Whether a run of this kind brings the set of `kinds` closer to its goals; `is_low` aims at
    /// the lowest band.
    pub(crate) fn is_wanted(&self, kind: Kind, is_low: bool, kinds: &[Kind]) -> bool {
        let class = kind.class();
        if !self.is_fruitful(kind, is_low) {
            return false;
        }
        if class == Label::Hyb {
            return self.count(WINDOW, class) < HYBRIDS;
        }
        let of_class =
            kinds.iter().filter(|other| other.class() == class && self.is_fruitful(**other, is_low));
        let share = of_class.count().max(1) as u32;
        let lacks = |of_class: u32, of_kind: u32, goal: u32| of_class < goal && of_kind < MOST * goal / share;
        if is_low {
            return lacks(self.lowest(class), self.of_kind(LARGE, kind)[0], LOW_GOAL);
        }
        let of_kind = |length| self.of_kind(length, kind).iter().sum::<u32>();
        of_kind(WINDOW) < KIND_GOAL
            || lacks(self.count(WINDOW, class), of_kind(WINDOW), GOAL)
            || lacks(self.count(LARGE, class), of_kind(LARGE), LARGE_GOAL)
    }

    /// Whether runs of this kind can give windows for the goal that they aim at: not if several
    /// gave none.
    fn is_fruitful(&self, kind: Kind, is_low: bool) -> bool {
        let tries =
            self.kinds.get(&kind).map(|of_kind| of_kind.tries[usize::from(is_low)]).unwrap_or_default();
        (kind.can_be_low() || !is_low) && (tries.runs < FUTILE_RUNS || tries.windows > 0)
    }

    /// Whether no run of these kinds is wanted.
    pub(crate) fn is_reached(&self, kinds: &[Kind]) -> bool {
        !kinds.iter().any(|kind| [false, true].iter().any(|is_low| self.is_wanted(*kind, *is_low, kinds)))
    }

    /// A line with the progress of the set.
    pub(crate) fn progress(&self) -> String {
        let of = |(label, name): (Label, &str)| {
            let [all, large] = [WINDOW, LARGE].map(|length| self.count(length, label));
            format!(
                "{name} {all} of {GOAL} windows, {large} of {LARGE_GOAL} large ones, {} of {LOW_GOAL} at low loss",
                self.lowest(label)
            )
        };
        format!("{}; {:.2} h", CAUSES.map(of).join("; "), self.hours())
    }

    /// Goals of a full set and what there is; Markdown.
    pub(crate) fn goals(&self) -> String {
        let mut table = Table::titled("cause | packets | loss | goal | windows | kinds with one | reached")
            .text_columns(3);
        for (label, name) in CAUSES {
            let mut push = |length: u32, loss: &str, goal: u32, windows: u32, kinds: String| {
                let is_reached = if goal <= windows { "yes" } else { "**no**" };
                table.push(cells![name, length, loss, goal, windows, kinds, is_reached]);
            };
            for (length, goal) in [(WINDOW, GOAL), (LARGE, LARGE_GOAL)] {
                let kinds = self.kinds_of(length, label).to_string();
                push(length, "0.00008 to 0.05", goal, self.count(length, label), kinds);
            }
            push(LARGE, "0.00008 to 0.0005", LOW_GOAL, self.lowest(label), String::new());
        }
        format!("{table}\n{} runs in {:.2} hours.\n", self.runs(), self.hours())
    }

    /// All windows by label, kind and loss; Markdown.
    pub(crate) fn table(&self) -> String {
        let mut labels =
            Table::new(["label", "windows of 10 000", "20 000", "100 000", "of these at 0.00008 to 0.0005"]);
        for label in Label::ALL {
            let counts = LENGTHS.map(|length| self.count(length, label)).into_iter();
            labels.push(
                cells![label.as_str()]
                    .into_iter()
                    .chain(counts.chain([self.lowest(label)]).map(|n| n.to_string())),
            );
        }
        let mismatches: u32 = self.mismatches.values().sum();
        let by_kind = list(self.mismatches.iter().map(|(kind, n)| format!("{kind}: {n}")));
        format!(
            "Windows with at least one loss; complexity, success proportion (means), longest run of losses and \
             delay before a loss (medians) of those that lose 0.00008 to 0.05.\n\n\
             Windows of {WINDOW} packets:\n\n{}\nWindows of {LARGE} packets:\n\n{}\nLosses of 0.00008 to 0.05:\n\n{labels}\n\
             {mismatches} windows of {WINDOW} packets are not what their run was designed for{}{by_kind}; in {} gaps the socket's count is above the loss.\n",
            self.kinds_table(WINDOW),
            self.kinds_table(LARGE),
            if by_kind.is_empty() { "" } else { " – " },
            self.contradictions,
        )
    }

    fn kinds_table(&self, length: u32) -> Table {
        let mut table = Table::titled(
            "label | kind | runs | below 8e-5 | to 5e-4 | to 5e-3 | to 5e-2 | above | C1 | sp | \
             longest | delay (µs)",
        )
        .text_columns(2);
        for ((_, label, kind), row) in self.rows.iter().filter(|((of, _, _), _)| *of == length) {
            let middle =
                |values: &[f64]| number(quantile(&sorted(values.iter().copied()), 0.5, Rank::Above), 0);
            let runs = self.kinds.get(kind).map_or(0, |of_kind| of_kind.runs);
            let bands = row.bands.iter().map(u32::to_string);
            table.push(cells![label.as_str(), kind, runs].into_iter().chain(bands).chain([
                number(mean_of_some(&row.complexity), 3),
                number(mean_of_some(&row.success_proportion), 3),
                middle(&row.longest),
                middle(&row.delay_us),
            ]));
        }
        table
    }

    /// Windows an hour; Markdown.
    pub(crate) fn rates(&self) -> String {
        let bands = |length: u32| [format!("{length}: to 5e-4"), "to 5e-3".to_owned(), "to 5e-2".to_owned()];
        let mut table =
            Table::new(["class", "runs for", "hours"]).and(bands(WINDOW)).and(bands(LARGE)).text_columns(2);
        for ((label, is_low), spent) in &self.spent {
            let aim = if *is_low { "the lowest band" } else { "all bands" };
            let made = spent.made.iter().flatten();
            let made = made.map(|count| format!("{:.0}", f64::from(*count) / spent.hours));
            table.push(cells![label.as_str(), aim, format!("{:.2}", spent.hours)].into_iter().chain(made));
        }
        format!("\nWindows an hour of runs, by loss (runs at the same time share the time):\n\n{table}")
    }
}

fn band(loss_rate: f64) -> usize {
    EDGES.iter().filter(|edge| **edge <= loss_rate).count()
}

/// What was added between two counts.
fn added(before: Made, after: Made) -> Made {
    let mut made = after;
    made.iter_mut().flatten().zip(before.iter().flatten()).for_each(|(count, before)| *count -= before);
    made
}

/// Loss rates: the paper's classifier works from the first, uses success proportions up to the
/// second, and was fitted up to the last (Dickens §3).
const EDGES: [f64; 4] = [0.00008, 0.0005, 0.005, 0.05];
const BANDS: usize = EDGES.len() + 1;
const MEASURED: [usize; 3] = [1, 2, 3];

const CAUSES: [(Label, &str); 2] = [(Label::Net, "network"), (Label::Cpu, "CPU")];

/// Windows of [`WINDOW`] and of [`LARGE`] packets of each cause: as many as show a share of errors
/// of 0.3 % and of 1.5 % (three windows).
const GOAL: u32 = 1000;
const LARGE_GOAL: u32 = 200;

/// Windows of [`LARGE`] packets of each cause in the lowest band, where the paper fits a normal
/// distribution (Dickens §3.1.5): the error of its standard deviation is then a ninth.
const LOW_GOAL: u32 = 40;

/// Windows of [`WINDOW`] packets of each kind: an error of one in 40 shows.
const KIND_GOAL: u32 = 40;

/// A kind stops at this multiple of its even share of a goal, so that no kind dominates a cause.
const MOST: u32 = 2;

/// The paper has no hybrids; this many give a share to within 10 points.
const HYBRIDS: u32 = 100;

/// After this many runs without a window that counts, the kind is left out: with one window in two
/// runs, four without would be one case in 16.
const FUTILE_RUNS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::super::cut::{Gap, Trace};
    use super::super::plan::{Cpu, Net};

    use super::*;

    const GEN: Kind = Kind::Cpu(Cpu::Gen);
    const SLOW: Kind = Kind::Cpu(Cpu::Slow);
    const POISSON: Kind = Kind::Net(Net::Poisson);

    /// A run of one window of [`LARGE`] packets, which begins with a gap.
    fn record(kind: Kind, is_low: bool, lost: u64, drops: u64) -> Record {
        let gap = Gap { received: 5, lost, drops, delay_us: 7, sojourn_us: 0 };
        let trace = Trace { packets: LARGE.into(), lost, gaps: vec![gap], contradictions: 1 };
        Record { number: 0, kind, is_low, hours: 0.01, config: serde_json::json!({}), trace }
    }

    fn tally(records: impl IntoIterator<Item = Record>) -> Tally {
        let (mut tally, mut meter) = (Tally::default(), Meter::new());
        records.into_iter().for_each(|record| tally.record(&record, &mut meter).unwrap());
        tally
    }

    /// As many windows as these, in a band, of runs of a kind.
    fn add(tally: &mut Tally, (length, kind, band): (u32, Kind, usize), count: u32) {
        tally.rows.entry((length, kind.class(), kind)).or_default().bands[band] += count;
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn windows_are_counted_by_label_kind_and_band_and_deviations_reported() {
        let hybrid = Kind::Hyb(Net::Poisson);
        let tally = tally([
            record(POISSON, false, 2, 0),
            record(POISSON, false, 200, 0),
            record(POISSON, true, 200, 1),
            record(SLOW, false, 40, 40),
            record(hybrid, false, 5000, 3),
        ]);
        // Of 20 000 packets, 2 are 1e-4, 200 are 1e-2 and 40 are 2e-3; of 100 000, 2e-5, 2e-3 and
        // 4e-4.
        assert_eq!([Label::Net, Label::Cpu].map(|label| tally.bands(WINDOW, label)), [[1, 0, 1], [0, 1, 0]]);
        assert_eq!([Label::Net, Label::Cpu].map(|label| tally.bands(LARGE, label)), [[0, 1, 0], [1, 0, 0]]);
        assert_eq!([Label::Net, Label::Cpu].map(|label| tally.lowest(label)), [0, 1]);
        assert_eq!((tally.runs(), tally.kinds_of(WINDOW, Label::Net)), (5, 1));
        let text = words(&tally.table());
        assert!(text.contains("| net | poisson | 3 | 0 | 1 | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("| net | poisson | 3 | 1 | 0 | 1 | 0 | 0 |"), "{text}");
        assert!(text.contains("| cpu | slow | 1 | 0 | 1 | 0 | 0 | 0 |"), "{text}");
        assert!(text.contains("| hyb | hyb-poisson | 1 | 0 | 0 | 0 | 0 | 1 | – | – | – | – |"), "{text}");
        assert!(
            text.contains(
                "1 windows of 20000 packets are not what their run was designed for – poisson: 1; in 5 gaps"
            ),
            "{text}"
        );
        let rates = words(&tally.rates());
        // Two windows of 20 000 packets in 0.02 hours.
        assert!(rates.contains("| net | all bands | 0.02 | 50 | 0 | 50 | 0 | 50 | 0 |"), "{rates}");
        assert!(rates.contains("| net | the lowest band | 0.01 | 0 |"), "{rates}");
    }

    #[test]
    fn a_set_of_one_cause_ends_with_the_goals_of_that_cause() {
        let mut tally = Tally::default();
        let is_wanted = |tally: &Tally, is_low| tally.is_wanted(GEN, is_low, &[GEN]);
        assert!(is_wanted(&tally, true) && is_wanted(&tally, false));
        add(&mut tally, (WINDOW, GEN, 3), GOAL);
        assert!(is_wanted(&tally, true) && is_wanted(&tally, false));
        add(&mut tally, (LARGE, GEN, 3), LARGE_GOAL);
        assert!(is_wanted(&tally, true) && !is_wanted(&tally, false));
        assert!(!tally.is_reached(&[GEN]));
        assert!(words(&tally.goals()).contains("| CPU | 100000 | 0.00008 to 0.05 | 200 | 200 | 1 | yes |"));
        assert!(words(&tally.goals()).contains("| CPU | 100000 | 0.00008 to 0.0005 | 40 | 0 | | **no** |"));
        add(&mut tally, (LARGE, GEN, 1), LOW_GOAL);
        assert!(tally.is_reached(&[GEN]) && !tally.is_reached(&[GEN, POISSON]));
        add(&mut tally, (WINDOW, Kind::Hyb(Net::Tcp), 3), HYBRIDS);
        assert!(tally.is_reached(&[GEN, Kind::Hyb(Net::Tcp)]));
    }

    #[test]
    fn no_kind_dominates_its_cause_and_each_has_some_windows() {
        let mut tally = Tally::default();
        add(&mut tally, (WINDOW, GEN, 3), GOAL);
        add(&mut tally, (LARGE, GEN, 3), LARGE_GOAL);
        add(&mut tally, (LARGE, GEN, 1), LOW_GOAL);
        assert!(tally.is_wanted(SLOW, false, &[GEN, SLOW]), "it has no windows of its own");
        add(&mut tally, (WINDOW, SLOW, 3), KIND_GOAL);
        assert!(!tally.is_wanted(SLOW, false, &[GEN, SLOW]));

        let kinds: Vec<Kind> = Kind::all();
        let mut tally = Tally::default();
        add(&mut tally, (WINDOW, GEN, 3), GOAL / 2);
        add(&mut tally, (LARGE, GEN, 3), LARGE_GOAL / 2);
        assert!(!tally.is_wanted(GEN, false, &kinds), "one of four kinds has half of the windows");
        assert!(tally.is_wanted(SLOW, false, &kinds));
        assert!(tally.is_wanted(GEN, false, &[GEN, SLOW]), "of two kinds it may have more");
    }

    #[test]
    fn a_kind_without_windows_in_four_runs_is_left_out() {
        let lossless = |count| (0..count).map(|_| record(SLOW, true, 60_000, 60_000));
        assert!(tally(lossless(3)).is_wanted(SLOW, true, &[SLOW]));
        let mut tally = tally(lossless(4));
        assert!(!tally.is_wanted(SLOW, true, &[SLOW]));
        assert!(tally.is_wanted(SLOW, false, &[SLOW]), "its usual runs may have some");
        tally.record(&record(SLOW, true, 40, 40), &mut Meter::new()).unwrap();
        assert!(tally.is_wanted(SLOW, true, &[SLOW]));
    }
}
