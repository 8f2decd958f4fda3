//! What was made: windows by kind and band; pure.

use std::collections::BTreeMap;

use barograph_loss::Metrics;

use super::args::{LARGE, LENGTHS, WINDOW};
use super::cut::{Label, Window};
use super::kind::Kind;
use crate::stats::{Rank, mean_of_some, quantile, sorted};
use crate::table::{Table, cells, list, number};

/// Counts of windows, for the closing table and for a set's goals.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    runs: BTreeMap<Kind, u32>,
    /// By length, label and band.
    windows: BTreeMap<(u32, Label, usize), u32>,
    rows: BTreeMap<(Label, Kind), Row>,
    /// Windows whose label is not what the run was designed for.
    mismatches: BTreeMap<Kind, u32>,
    /// Gaps in which the socket dropped more than was lost.
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
    pub(crate) fn note_run(&mut self, kind: Kind, contradictions: u64) {
        *self.runs.entry(kind).or_default() += 1;
        self.contradictions += contradictions;
    }

    pub(crate) fn note_window(&mut self, kind: Kind, length: u32, window: &Window, metrics: &Metrics) {
        let (label, band) = (window.label(), band(f64::from(metrics.lost) / f64::from(length)));
        self.note_windows(length, label, band, 1);
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
            row.longest.push(metrics.longest_burst.into());
            row.delay_us.push(window.mean(|gap| gap.delay_us));
        }
    }

    pub(super) fn note_windows(&mut self, length: u32, label: Label, band: usize, count: u32) {
        *self.windows.entry((length, label, band)).or_default() += count;
    }

    /// Windows of a length and a label in each band that classifiers are for.
    fn bands(&self, length: u32, label: Label) -> [u32; 3] {
        MEASURED.map(|band| self.windows.get(&(length, label, band)).copied().unwrap_or(0))
    }

    /// What goals are about: bands of windows of [`WINDOW`] and of [`LARGE`] packets.
    pub(crate) fn made(&self, label: Label) -> [[u32; 3]; 2] {
        [WINDOW, LARGE].map(|length| self.bands(length, label))
    }

    /// Windows of [`WINDOW`] packets in all bands that classifiers are for, and of [`LARGE`] in the lowest of them.
    pub(crate) fn count(&self, label: Label) -> (u32, u32) {
        let [of_all, [lowest, ..]] = self.made(label);
        (of_all.iter().sum(), lowest)
    }

    /// Markdown.
    pub(crate) fn table(&self) -> String {
        let mut kinds = Table::new([
            "label",
            "kind",
            "runs",
            "below 8e-5",
            "to 5e-4",
            "to 5e-3",
            "to 5e-2",
            "above",
            "C1",
            "sp",
            "longest",
            "delay (µs)",
        ])
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

/// Which band of loss a window is in.
fn band(loss_rate: f64) -> usize {
    EDGES.iter().filter(|edge| **edge <= loss_rate).count()
}

/// The paper's classifier works from the first, with success proportions up to the second, and was fitted up to the last (Dickens §3).
const EDGES: [f64; 4] = [0.00008, 0.0005, 0.005, 0.05];
const BANDS: usize = EDGES.len() + 1;

/// The bands that classifiers are for.
const MEASURED: [usize; 3] = [1, 2, 3];

/// The length of window that the table is about.
const SHOWN: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::super::cut::Gap;
    use super::super::kind::{Cpu, Net};
    use super::*;

    #[test]
    fn windows_are_counted_by_label_and_band_and_against_the_design() {
        let mut tally = Tally::default();
        let window = |lost, drops| Window {
            number: 0,
            gaps: vec![Gap { received: 5, lost, drops, delay_us: 7, ..Gap::default() }],
        };
        let mut meter = barograph_loss::Meter::new();
        let mut note = |kind, lost: u32, drops| {
            let signature = barograph_loss::Signature::from_runs(SHOWN, [5, lost]).unwrap_or_default();
            tally.note_window(kind, SHOWN, &window(lost.into(), drops), &meter.measure(&signature));
        };
        let (poisson, slow) = (Kind::Net(Net::Poisson), Kind::Cpu(Cpu::Slow));
        note(poisson, 2, 0);
        note(poisson, 200, 0);
        note(poisson, 200, 1);
        note(slow, 1, 1);
        note(Kind::Hyb(Net::Poisson), 5000, 3);
        tally.note_run(poisson, 4);
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
}
