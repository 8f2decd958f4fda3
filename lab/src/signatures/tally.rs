//! Counts of what was made, goals of a full set, and the rate and time to reach them; pure.

use std::collections::BTreeMap;

use barograph_loss::Metrics;

use super::cut::{Label, Window};
use super::plan::Kind;
use super::{LARGE, LENGTHS, WINDOW};
use crate::stats::{Rank, mean_of_some, quantile, sorted};
use crate::table::{Table, cells, list, number};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    runs: BTreeMap<Kind, u32>,
    /// Number of windows by length, label and band.
    windows: BTreeMap<(u32, Label, usize), u32>,
    rows: BTreeMap<(Label, Kind), Row>,
    /// Windows with a label that differs from the design of the run.
    mismatches: BTreeMap<Kind, u32>,
    /// Gaps in which the socket dropped more packets than were lost.
    contradictions: u64,
}

#[derive(Debug, Default)]
struct Row {
    bands: [u32; BANDS],
    complexity: Vec<f64>,
    success_proportion: Vec<f64>,
    longest: Vec<f64>,
    delay_us: Vec<f64>,
}

impl Tally {
    pub(crate) fn record_run(&mut self, kind: Kind, contradictions: u64) {
        *self.runs.entry(kind).or_default() += 1;
        self.contradictions += contradictions;
    }

    pub(crate) fn record_window(&mut self, kind: Kind, length: u32, window: &Window, metrics: &Metrics) {
        let (label, band) = (window.label(), band(f64::from(metrics.lost) / f64::from(length)));
        self.record_windows(length, label, band, 1);
        if length != SHOWN {
            return;
        }
        if kind.class() != Label::Hyb && kind.class() != label {
            *self.mismatches.entry(kind).or_default() += 1;
        }
        let row = self.rows.entry((label, kind)).or_default();
        row.bands[band] += 1;
        if MEASURED.contains(&band) {
            row.complexity.push(metrics.complexity);
            row.success_proportion.push(metrics.success_proportion);
            row.longest.push(metrics.longest_run.into());
            row.delay_us.push(window.mean(|gap| gap.delay_us));
        }
    }

    pub(super) fn record_windows(&mut self, length: u32, label: Label, band: usize, count: u32) {
        *self.windows.entry((length, label, band)).or_default() += count;
    }

    fn bands(&self, length: u32, label: Label) -> [u32; 3] {
        MEASURED.map(|band| self.windows.get(&(length, label, band)).copied().unwrap_or(0))
    }

    /// Windows of [`WINDOW`] and of [`LARGE`] packets by band, which the goals refer to.
    pub(crate) fn made(&self, label: Label) -> [[u32; 3]; 2] {
        [WINDOW, LARGE].map(|length| self.bands(length, label))
    }

    /// Windows of [`WINDOW`] packets in all bands of the classifiers, and of [`LARGE`] in the
    /// lowest band.
    pub(crate) fn count(&self, label: Label) -> (u32, u32) {
        let [of_all, [lowest, ..]] = self.made(label);
        (of_all.iter().sum(), lowest)
    }

    pub(crate) fn table(&self) -> String {
        let mut kinds = Table::titled(
            "label | kind | runs | below 8e-5 | to 5e-4 | to 5e-3 | to 5e-2 | above | C1 | sp | \
             longest | delay (µs)",
        )
        .text_columns(2);
        for ((label, kind), row) in &self.rows {
            let middle =
                |values: &[f64]| number(quantile(&sorted(values.iter().copied()), 0.5, Rank::Above), 0);
            let runs = self.runs.get(kind).copied().unwrap_or(0);
            let bands = row.bands.iter().map(u32::to_string);
            kinds.push(cells![label.as_str(), kind, runs].into_iter().chain(bands).chain([
                number(mean_of_some(&row.complexity), 3),
                number(mean_of_some(&row.success_proportion), 3),
                middle(&row.longest),
                middle(&row.delay_us),
            ]));
        }
        let mut labels =
            Table::new(["label", "windows of 10 000", "20 000", "100 000", "of these at 0.00008 to 0.0005"]);
        for label in Label::ALL {
            let lengths = LENGTHS.map(|length| self.bands(length, label).iter().sum::<u32>().to_string());
            labels.push(cells![label.as_str()].into_iter().chain(lengths).chain(cells![self.count(label).1]));
        }
        let mismatches: u32 = self.mismatches.values().sum();
        let by_kind = list(self.mismatches.iter().map(|(kind, n)| format!("{kind}: {n}")));
        format!(
            "Windows of {SHOWN} packets with at least one loss; complexity, success proportion (means), longest run of losses and \
             delay before a loss (medians) of those that lose 0.00008 to 0.05.\n\n{kinds}\n{labels}\n\
             {mismatches} windows are not what their run was designed for{}{by_kind}; in {} gaps the socket's count is above the loss.\n",
            if by_kind.is_empty() { "" } else { " – " },
            self.contradictions,
        )
    }
}

fn band(loss_rate: f64) -> usize {
    EDGES.iter().filter(|edge| **edge <= loss_rate).count()
}

/// Loss rates: the paper's classifier works from the first, uses success proportions up to the
/// second, and was fitted up to the last (Dickens §3).
const EDGES: [f64; 4] = [0.00008, 0.0005, 0.005, 0.05];
const BANDS: usize = EDGES.len() + 1;
const MEASURED: [usize; 3] = [1, 2, 3];

/// Window length of the table (packets).
const SHOWN: u32 = 20_000;

/// Whether runs of this kind bring the set closer to its goals; `low` aims at the lowest band.
pub(crate) fn is_wanted(kind: Kind, low: bool, tally: &Tally) -> bool {
    let (all, lowest) = tally.count(kind.class());
    match (kind.class(), low) {
        (Label::Hyb, low) => !low && all < HYBRIDS,
        (_, true) => kind.can_be_low() && lowest < LOW_GOAL,
        (_, false) => all < GOAL,
    }
}

/// Whether the goals of these kinds are reached. Hybrids are made in addition, without a goal.
pub(crate) fn is_reached(kinds: &[Kind], tally: &Tally) -> bool {
    let mut causes = kinds.iter().filter(|kind| kind.class() != Label::Hyb);
    !causes.any(|kind| [false, true].iter().any(|low| is_wanted(*kind, *low, tally)))
}

/// Time of the runs of a class and their windows, separate for runs that aimed at the lowest band.
#[derive(Debug, Default)]
pub(crate) struct Pace(BTreeMap<(Label, bool), Spent>);

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    hours: f64,
    made: Made,
}

/// Windows of one label in the bands of the classifiers: of [`WINDOW`] and of [`LARGE`] packets.
type Made = [[u32; 3]; 2];

impl Pace {
    pub(crate) fn record(&mut self, kind: Kind, low: bool, hours: f64, before: &Made, after: &Made) {
        let spent = self.0.entry((kind.class(), low)).or_default();
        spent.hours += hours;
        for (sum, (after, before)) in
            spent.made.iter_mut().flatten().zip(after.iter().flatten().zip(before.iter().flatten()))
        {
            *sum += after - before;
        }
    }

    /// A line with the progress of the set.
    pub(crate) fn line(&self, tally: &Tally) -> String {
        let of = |(label, name): (Label, &str)| {
            let (all, lowest) = tally.count(label);
            let left =
                self.hours_left(label, tally).map_or("unknown".to_owned(), |hours| format!("{hours:.1}"));
            format!("{name} {all} of {GOAL} windows, {lowest} of {LOW_GOAL} at low loss, {left} h to go")
        };
        CAUSES.map(of).join("; ")
    }

    /// Windows an hour, and the time that the goals need; Markdown.
    pub(crate) fn table(&self, tally: &Tally) -> String {
        let bands = |length: u32| [format!("{length}: to 5e-4"), "to 5e-3".to_owned(), "to 5e-2".to_owned()];
        let mut table =
            Table::new(["class", "runs for", "hours"]).and(bands(WINDOW)).and(bands(LARGE)).text_columns(2);
        for ((label, low), spent) in &self.0 {
            let aim = if *low { "the lowest band" } else { "all bands" };
            let made = spent.made.iter().flatten();
            let made = made.map(|count| format!("{:.0}", f64::from(*count) / spent.hours));
            table.push(cells![label.as_str(), aim, format!("{:.2}", spent.hours)].into_iter().chain(made));
        }
        let mut text = format!(
            "\nWindows an hour of runs, by loss:\n\n{table}\nGoals: {GOAL} windows of {WINDOW} packets at losses of 0.00008 to 0.05, and {LOW_GOAL} of {LARGE} to 0.0005, of each cause. Hours from an empty set, at this pace:\n"
        );
        for (label, name) in CAUSES {
            let hours = self.hours(label, GOAL.into(), LOW_GOAL.into());
            let hours = hours
                .map_or("unknown, because a band had no window".to_owned(), |hours| format!("{hours:.1}"));
            let (all, lowest) = tally.count(label);
            text += &format!("{name} {hours} (there are {all} and {lowest});\n");
        }
        text
    }

    fn hours_left(&self, label: Label, tally: &Tally) -> Option<f64> {
        let (all, lowest) = tally.count(label);
        self.hours(label, GOAL.saturating_sub(all).into(), LOW_GOAL.saturating_sub(lowest).into())
    }

    /// Hours of runs of one class until these numbers of windows exist; `None` if a rate is unknown
    /// or 0.
    fn hours(&self, label: Label, all: f64, lowest: f64) -> Option<f64> {
        let [usual, low] = [false, true].map(|low| self.0.get(&(label, low)).copied().unwrap_or_default());
        let both = Spent { hours: usual.hours + low.hours, made: added(usual.made, low.made) };
        // Both kinds of runs alternate until one goal is reached; then only the other kind runs.
        let hours = if all > 0.0 && lowest > 0.0 {
            let (of_all, of_lowest) = (all / both.all(), lowest / both.lowest());
            let first = of_all.min(of_lowest);
            if of_all < of_lowest {
                first + (lowest - first * both.lowest()) / low.lowest()
            } else {
                first + (all - first * both.all()) / usual.all()
            }
        } else if all > 0.0 {
            all / usual.all()
        } else if lowest > 0.0 {
            lowest / low.lowest()
        } else {
            0.0
        };
        hours.is_finite().then_some(hours)
    }
}

impl Spent {
    /// Windows an hour that count for [`GOAL`].
    fn all(&self) -> f64 {
        self.made[0].iter().map(|count| f64::from(*count)).sum::<f64>() / self.hours
    }

    /// Windows an hour that count for [`LOW_GOAL`].
    fn lowest(&self) -> f64 {
        f64::from(self.made[1][0]) / self.hours
    }
}

fn added(mut one: Made, other: Made) -> Made {
    one.iter_mut().flatten().zip(other.iter().flatten()).for_each(|(sum, count)| *sum += count);
    one
}

const CAUSES: [(Label, &str); 2] = [(Label::Net, "network"), (Label::Cpu, "CPU")];

/// Windows that the paper had of each cause, and of these at its lowest losses (Dickens §3.1.4,
/// §3.1.5).
const GOAL: u32 = 5000;
const LOW_GOAL: u32 = 1200;

/// The paper has no hybrids; with this many, a tenth of them gives a share to within 3 points.
const HYBRIDS: u32 = 2500;

#[cfg(test)]
mod tests {
    use super::super::cut::Gap;
    use super::super::plan::{Cpu, Net};

    use super::*;

    #[test]
    fn windows_are_counted_by_label_and_band_and_deviations_reported() {
        let mut tally = Tally::default();
        let window = |lost, drops| Window {
            number: 0,
            gaps: vec![Gap { received: 5, lost, drops, delay_us: 7, ..Gap::default() }],
        };
        let mut meter = barograph_loss::Meter::new();
        let mut note = |kind, lost: u32, drops| {
            let signature = barograph_loss::Signature::from_runs(SHOWN, [5, lost]).unwrap_or_default();
            tally.record_window(kind, SHOWN, &window(lost.into(), drops), &meter.measure(&signature));
        };
        let (poisson, slow) = (Kind::Net(Net::Poisson), Kind::Cpu(Cpu::Slow));
        note(poisson, 2, 0);
        note(poisson, 200, 0);
        note(poisson, 200, 1);
        note(slow, 1, 1);
        note(Kind::Hyb(Net::Poisson), 5000, 3);
        tally.record_run(poisson, 4);
        assert_eq!([Label::Net, Label::Cpu].map(|label| tally.bands(SHOWN, label)), [[1, 0, 1], [0; 3]]);
        assert_eq!(tally.count(Label::Net), (2, 0));
        let table = tally.table().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.contains("| net | poisson | 1 | 0 | 1 | 0 | 1 | 0 |"), "{table}");
        assert!(table.contains("| cpu | slow | 0 | 1 | 0 | 0 | 0 | 0 | – | – | – | – |"), "{table}");
        assert!(
            table.contains("1 windows are not what their run was designed for – poisson: 1; in 4 gaps"),
            "{table}"
        );
    }

    const GEN: Kind = Kind::Cpu(Cpu::Gen);

    fn pace(usual: Made, low: Made) -> Pace {
        let mut pace = Pace::default();
        pace.record(GEN, false, 0.5, &Made::default(), &usual);
        pace.record(GEN, true, 0.5, &Made::default(), &low);
        pace
    }

    #[test]
    fn the_slower_goal_continues_alone() {
        // In an hour, usual runs make 1000 windows and 50 low ones; low runs make 200 and 400.
        let made = pace([[100, 200, 200], [25, 0, 0]], [[100, 0, 0], [200, 9, 9]]);
        // Alternating, 600 and 225 an hour: 1200 low ones take 5.33 hours, the other 1800 of 5000
        // then 1.8.
        assert!((made.hours(Label::Cpu, 5000.0, 1200.0).unwrap() - 7.133).abs() < 0.001);
        // 600 take an hour, with 225 low ones; 975 are left.
        assert!((made.hours(Label::Cpu, 600.0, 1200.0).unwrap() - (1.0 + 975.0 / 400.0)).abs() < 1e-9);
        assert_eq!(made.hours(Label::Cpu, 0.0, 1200.0), Some(3.0));
        assert_eq!(made.hours(Label::Cpu, 5000.0, 0.0), Some(5.0));
        assert_eq!(made.hours(Label::Cpu, 0.0, 0.0), Some(0.0));
    }

    #[test]
    fn a_goal_that_is_never_reached_has_no_duration() {
        assert_eq!(pace([[1, 1, 1], [0; 3]], [[1, 1, 1], [0; 3]]).hours(Label::Cpu, 5000.0, 1200.0), None);
        assert_eq!(Pace::default().hours(Label::Net, 1.0, 1.0), None);
        let table = pace([[50, 0, 0], [0; 3]], [[0; 3]; 2]).table(&Tally::default());
        let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.contains("| cpu | all bands | 0.50 | 100 | 0 |"), "{table}");
        assert!(table.contains("CPU unknown"), "{table}");
    }

    #[test]
    fn a_set_of_one_cause_ends_with_the_goals_of_that_cause() {
        let mut tally = Tally::default();
        assert!(is_wanted(GEN, true, &tally) && is_wanted(GEN, false, &tally));
        assert!(!is_reached(&[GEN], &tally));
        tally.record_windows(WINDOW, Label::Cpu, 3, GOAL);
        assert!(is_wanted(GEN, true, &tally) && !is_wanted(GEN, false, &tally));
        assert!(!is_reached(&[GEN], &tally));
        tally.record_windows(LARGE, Label::Cpu, 1, LOW_GOAL);
        assert!(is_reached(&[GEN, Kind::Hyb(Net::Tcp)], &tally));
        assert!(!is_reached(&[GEN, Kind::Net(Net::Tcp)], &tally));
        // An outage is never in the lowest band; once there are enough windows, that band is not
        // awaited.
        tally.record_windows(WINDOW, Label::Net, 1, GOAL);
        assert!(is_reached(&[Kind::Net(Net::Outage)], &tally) && !is_reached(&[Kind::Net(Net::Tcp)], &tally));
    }
}
