//! What a full set is to have, how fast it comes, and how long that takes; pure.

use std::collections::BTreeMap;

use super::args::{LARGE, WINDOW};
use super::cut::Label;
use super::kind::Kind;
use super::tally::Tally;
use crate::table::{Table, cells};

/// Whether runs of this kind bring the set closer to what it is to have; `low` aims at the lowest band.
pub(crate) fn is_wanted(kind: Kind, low: bool, tally: &Tally) -> bool {
    let (all, lowest) = tally.count(kind.class());
    match (kind.class(), low) {
        (Label::Hyb, low) => !low && all < HYBRIDS,
        (_, true) => kind.can_be_low() && lowest < LOW_GOAL,
        (_, false) => all < GOAL,
    }
}

/// Whether nothing is left to be made of these kinds. Hybrids are made beside, not waited for.
pub(crate) fn is_reached(kinds: &[Kind], tally: &Tally) -> bool {
    let mut causes = kinds.iter().filter(|kind| kind.class() != Label::Hyb);
    !causes.any(|kind| [false, true].iter().any(|low| is_wanted(*kind, *low, tally)))
}

/// Time that runs of a class took, and what they had, apart for those that aimed at the lowest band.
#[derive(Debug, Default)]
pub(crate) struct Pace(BTreeMap<(Label, bool), Spent>);

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    hours: f64,
    made: Made,
}

/// Windows of one label in the bands that classifiers are for: of [`WINDOW`] and of [`LARGE`] packets.
type Made = [[u32; 3]; 2];

impl Pace {
    pub(crate) fn note(&mut self, kind: Kind, low: bool, hours: f64, before: &Made, after: &Made) {
        let spent = self.0.entry((kind.class(), low)).or_default();
        spent.hours += hours;
        for (sum, (after, before)) in
            spent.made.iter_mut().flatten().zip(after.iter().flatten().zip(before.iter().flatten()))
        {
            *sum += after - before;
        }
    }

    /// A line on how far a set is.
    pub(crate) fn line(&self, tally: &Tally) -> String {
        let of = |(label, name): (Label, &str)| {
            let (all, lowest) = tally.count(label);
            let left =
                self.hours_left(label, tally).map_or("unknown".to_owned(), |hours| format!("{hours:.1}"));
            format!("{name} {all} of {GOAL} windows, {lowest} of {LOW_GOAL} at low loss, {left} h to go")
        };
        CAUSES.map(of).join("; ")
    }

    /// Windows an hour, and what the goals take; Markdown.
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
                .map_or("unknown, for some band had no window".to_owned(), |hours| format!("{hours:.1}"));
            let (all, lowest) = tally.count(label);
            text += &format!("{name} {hours} (there are {all} and {lowest});\n");
        }
        text
    }

    fn hours_left(&self, label: Label, tally: &Tally) -> Option<f64> {
        let (all, lowest) = tally.count(label);
        self.hours(label, GOAL.saturating_sub(all).into(), LOW_GOAL.saturating_sub(lowest).into())
    }

    /// Hours of runs of one class until so many windows are there; `None` where a pace is not known, or nothing comes.
    fn hours(&self, label: Label, all: f64, lowest: f64) -> Option<f64> {
        let [usual, low] = [false, true].map(|low| self.0.get(&(label, low)).copied().unwrap_or_default());
        let both = Spent { hours: usual.hours + low.hours, made: added(usual.made, low.made) };
        // Both aims in turn until one goal is reached, and then what the other needs.
        let hours = if 0.0 < all && 0.0 < lowest {
            let (of_all, of_lowest) = (all / both.all(), lowest / both.lowest());
            let first = of_all.min(of_lowest);
            if of_all < of_lowest {
                first + (lowest - first * both.lowest()) / low.lowest()
            } else {
                first + (all - first * both.all()) / usual.all()
            }
        } else if 0.0 < all {
            all / usual.all()
        } else if 0.0 < lowest {
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

    /// … and for [`LOW_GOAL`].
    fn lowest(&self) -> f64 {
        f64::from(self.made[1][0]) / self.hours
    }
}

fn added(mut one: Made, other: Made) -> Made {
    one.iter_mut().flatten().zip(other.iter().flatten()).for_each(|(sum, count)| *sum += count);
    one
}

const CAUSES: [(Label, &str); 2] = [(Label::Net, "network"), (Label::Cpu, "CPU")];

/// What the paper had of each cause, and of these at its lowest losses (Dickens §3.1.4, §3.1.5).
const GOAL: u32 = 5000;
const LOW_GOAL: u32 = 1200;

/// The paper has none; so many that a tenth of them tells a share to 3 points.
const HYBRIDS: u32 = 2500;

#[cfg(test)]
mod tests {
    use super::super::kind::{Cpu, Net};
    use super::*;

    const GEN: Kind = Kind::Cpu(Cpu::Gen);

    fn pace(usual: Made, low: Made) -> Pace {
        let mut pace = Pace::default();
        pace.note(GEN, false, 0.5, &Made::default(), &usual);
        pace.note(GEN, true, 0.5, &Made::default(), &low);
        pace
    }

    #[test]
    fn the_slower_goal_goes_on_alone() {
        // An hour: 1000 windows and 50 low ones by usual runs, 200 and 400 by low ones.
        let made = pace([[100, 200, 200], [25, 0, 0]], [[100, 0, 0], [200, 9, 9]]);
        // In turn 600 and 225 an hour: 1200 low ones take 5.33 hours, and the other 1800 of 5000 then 1.8.
        assert!((made.hours(Label::Cpu, 5000.0, 1200.0).unwrap() - 7.133).abs() < 0.001);
        // 600 take an hour, in which 225 low ones come; 975 are left.
        assert!((made.hours(Label::Cpu, 600.0, 1200.0).unwrap() - (1.0 + 975.0 / 400.0)).abs() < 1e-9);
        assert_eq!(made.hours(Label::Cpu, 0.0, 1200.0), Some(3.0));
        assert_eq!(made.hours(Label::Cpu, 5000.0, 0.0), Some(5.0));
        assert_eq!(made.hours(Label::Cpu, 0.0, 0.0), Some(0.0));
    }

    #[test]
    fn what_never_comes_has_no_hour() {
        assert_eq!(pace([[1, 1, 1], [0; 3]], [[1, 1, 1], [0; 3]]).hours(Label::Cpu, 5000.0, 1200.0), None);
        assert_eq!(Pace::default().hours(Label::Net, 1.0, 1.0), None);
        let table = pace([[50, 0, 0], [0; 3]], [[0; 3]; 2]).table(&Tally::default());
        let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.contains("| cpu | all bands | 0.50 | 100 | 0 |"), "{table}");
        assert!(table.contains("CPU unknown"), "{table}");
    }

    #[test]
    fn a_set_of_one_cause_ends_with_it() {
        let mut tally = Tally::default();
        assert!(is_wanted(GEN, true, &tally) && is_wanted(GEN, false, &tally));
        assert!(!is_reached(&[GEN], &tally));
        tally.note_windows(WINDOW, Label::Cpu, 3, GOAL);
        assert!(is_wanted(GEN, true, &tally) && !is_wanted(GEN, false, &tally));
        assert!(!is_reached(&[GEN], &tally));
        tally.note_windows(LARGE, Label::Cpu, 1, LOW_GOAL);
        assert!(is_reached(&[GEN, Kind::Hyb(Net::Tcp)], &tally));
        assert!(!is_reached(&[GEN, Kind::Net(Net::Tcp)], &tally));
        // An outage is never of the lowest band; once there are windows enough it is not waited for.
        tally.note_windows(WINDOW, Label::Net, 1, GOAL);
        assert!(is_reached(&[Kind::Net(Net::Outage)], &tally) && !is_reached(&[Kind::Net(Net::Tcp)], &tally));
    }
}
