//! How often each classifier is right, by kind and by loss rate, with each piece of evidence removed.

use std::collections::BTreeSet;

use barograph_loss::{Cause, Labelled};

use super::judge::{Judged, Method, Models, Split};
use super::kinds::{BANDS, FLOORS_AT, Kinds, band_of, cause_name, is_in_range, lengths};
use super::rates::{cell, misattributed, percent, percent_in, rates, runs};
use super::references::{EARLIER, FLOORS, GOALS, SPLIT_WITHIN};
use crate::table::{Table, cells, dash};

/// Tables, and those of them that are short.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) all: String,
    pub(crate) short: String,
}

impl Held {
    /// `title` is of the windows.
    fn add(&mut self, title: &str, tables: &[String; 3], is_short: bool) {
        self.all += &format!("\n### {title}\n\n{}", tables.join("\n"));
        if is_short {
            self.short += &format!("\n**{title}:**\n\n{}\n{}", tables[0], tables[2]);
        }
    }
}

/// Models that are judged by others than those that they were fitted on. Short are the rows of the length that floors are of, and five-fold of the longest.
pub(crate) fn held_out(windows: &[Labelled], seed: u64) -> anyhow::Result<Held> {
    let mut held = Held { all: format!("\n## Right and wrong verdicts\n{LEGEND}"), short: String::new() };
    let longest = lengths(windows).into_iter().next_back();
    for split in [Split::Half, Split::Five] {
        let judged = split.judge(windows, seed)?;
        for packets in lengths(windows) {
            let title = format!("Windows of {packets} packets, {}", split.name());
            let has_floors = packets == FLOORS_AT;
            let tables = Tables { methods: &Method::ALL, has_floors, has_earlier: has_floors, seed }
                .of(&judged, packets);
            let is_short = packets == FLOORS_AT || (split == Split::Five && Some(packets) == longest);
            held.add(&title, &tables, is_short);
        }
    }
    Ok(held)
}

/// Models that were fitted before, on whatever is in the folder.
pub(crate) fn as_they_are(windows: &[Labelled], models: &Models, name: &str, seed: u64) -> Held {
    let all = format!("\n## Right and wrong verdicts of {name}, not fitted here\n{LEGEND}");
    let mut held = Held { all, short: String::new() };
    let judged = models.judge(windows);
    for packets in lengths(windows) {
        let of: Vec<&Judged<'_>> =
            judged.iter().filter(|judged| judged.window.signature.packets() == packets).collect();
        let title = format!("Windows of {packets} packets: {} windows of {} runs", of.len(), runs(&of));
        let has_floors = packets == FLOORS_AT;
        let tables =
            Tables { methods: &Method::OF_ONE, has_floors, has_earlier: false, seed }.of(&judged, packets);
        held.add(&title, &tables, packets == FLOORS_AT);
    }
    held
}

const LEGEND: &str = "\n% right [95 % interval over runs] / wrong / inconclusive; + those called hybrid, if any. An interval of [0, 0] or [100, 100] says only \
    that no run had any.\n";

const FLOORS_LEGEND: &str = "\nA floor or goal says how much is right at least, and how much wrong or called hybrid at most: of a window with one cause, hybrid is wrong. \
    An outage is wrong where it is called the CPU's.\n";

/// What tables are made of the same windows.
struct Tables<'a> {
    methods: &'a [Method],
    /// Whether what is to be reached stands below.
    has_floors: bool,
    /// … and what an earlier experiment had, by windows of which these are a part.
    has_earlier: bool,
    seed: u64,
}

impl Tables<'_> {
    /// By cause and kinds, by kind and band, and of windows with both causes.
    fn of(&self, judged: &[Judged<'_>], packets: u32) -> [String; 3] {
        let judged: Vec<&Judged<'_>> =
            judged.iter().filter(|judged| judged.window.signature.packets() == packets).collect();
        let in_range: Vec<&Judged<'_>> =
            judged.iter().copied().filter(|judged| is_in_range(judged.window)).collect();
        [self.summary(&in_range), self.by_kind_and_band(&in_range), self.hybrids(&judged)]
    }

    /// A row for each cause and set of kinds.
    fn summary(&self, judged: &[&Judged<'_>]) -> String {
        let mut table = self.table(["loss 0.00008–0.05", "cause"]);
        for kinds in [Kinds::Papers, Kinds::All, Kinds::Outage] {
            for cause in [Cause::Host, Cause::Network] {
                let of: Vec<&Judged<'_>> = judged
                    .iter()
                    .copied()
                    .filter(|judged| judged.window.cause == cause && kinds.has(&judged.window.kind))
                    .collect();
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

    /// What an earlier experiment had, the floor and the goal.
    fn references(&self, kinds: Kinds, cause: Cause, of: &[&Judged<'_>]) -> Vec<Vec<String>> {
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
                // The paper's classifier is to be what it was, where it is given the same kinds.
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

    /// A row for each cause, kind and band that has windows.
    fn by_kind_and_band(&self, judged: &[&Judged<'_>]) -> String {
        let mut table = self.table(["kind", "loss"]);
        for cause in [Cause::Host, Cause::Network] {
            let of_cause: Vec<&Judged<'_>> =
                judged.iter().copied().filter(|judged| judged.window.cause == cause).collect();
            let kinds: BTreeSet<&str> = of_cause.iter().map(|judged| judged.window.kind.as_str()).collect();
            for kind in kinds.into_iter().map(Some).chain([None]) {
                let name = format!("{}: {}", cause_name(cause), kind.unwrap_or(Kinds::All.name()));
                let has = |of: &str| kind.map_or(Kinds::All.has(of), |kind| kind == of);
                for (band, bounds) in BANDS.windows(2).enumerate() {
                    let of: Vec<&Judged<'_>> = of_cause
                        .iter()
                        .copied()
                        .filter(|judged| has(&judged.window.kind) && band_of(judged.window) == band)
                        .collect();
                    if !of.is_empty() {
                        table.push(self.row([&name, &format!("{}–{}", bounds[0], bounds[1])], &of));
                    }
                }
            }
        }
        table.to_string()
    }

    /// How the losses of windows with both causes are split.
    fn hybrids(&self, judged: &[&Judged<'_>]) -> String {
        let mut table = self.table(["both causes: % of lost packets given to the wrong one; to none", ""]);
        for (name, is_low) in [("loss 0.00008–0.05", true), ("loss over 0.05", false)] {
            let of: Vec<&Judged<'_>> = judged
                .iter()
                .copied()
                .filter(|judged| judged.window.cause == Cause::Unknown)
                .filter(|judged| is_in_range(judged.window) == is_low)
                .collect();
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
