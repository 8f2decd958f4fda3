//! How often each classifier is right, by kind and by loss rate, with each piece of evidence removed.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use barograph_loss::{Cause, Labelled, PAPER_KINDS};

use crate::forecast::report::aligned;

use super::judge::{Judged, Method, Models, Split};
use super::rates::{Rates, Share, misattributed, rates, runs};
use super::references::{EARLIER, FLOORS, GOALS, SPLIT_WITHIN};

/// Which windows a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Those of the paper's experiments: streams, on–off, TCP and random loss, against processes and a quota on the receiver.
    Papers,
    /// All but outages, which no pattern tells from a host's.
    All,
    Outage,
}

impl Kinds {
    pub(crate) fn has(self, kind: &str) -> bool {
        match self {
            Self::Papers => PAPER_KINDS.contains(&kind),
            Self::All => !Self::Outage.has(kind),
            Self::Outage => kind == "outage",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Papers => "paper's kinds",
            Self::All => "all kinds but outage",
            Self::Outage => "outage",
        }
    }
}

/// Loss rates from the lowest that the paper's classifier tells (§3.3), over those at which it changes its metric and at which our
/// windows change, to the highest it was trained on.
pub(crate) const BANDS: [f64; 5] = [8e-5, 5e-4, 2e-3, 1e-2, 5e-2];

/// Whether a loss rate is one that the classifiers are for.
pub(crate) fn is_in_range(window: &Labelled) -> bool {
    (BANDS[0]..=BANDS[4]).contains(&window.signature.loss_rate())
}

/// Tables, and those of them that are short.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) all: String,
    pub(crate) short: String,
}

impl Held {
    /// `title` is of the windows.
    fn add(&mut self, title: &str, tables: &[String; 3], is_short: bool) {
        let _ = write!(self.all, "\n### {title}\n\n{}", tables.join("\n"));
        if is_short {
            let _ = write!(self.short, "\n**{title}:**\n\n{}\n{}", tables[0], tables[2]);
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

/// The length that the floors and the earlier experiment are of (packets).
pub(crate) const FLOORS_AT: u32 = 20_000;

/// The lengths of windows there are (packets).
pub(crate) fn lengths(windows: &[Labelled]) -> BTreeSet<u32> {
    windows.iter().map(|window| window.signature.packets()).collect()
}

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
        let mut table = vec![self.header(["loss 0.00008–0.05", "cause"])];
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
                        table.extend(self.references(kinds, cause, &of));
                    }
                }
            }
        }
        let legend = if self.has_floors { FLOORS_LEGEND } else { "" };
        aligned(&table) + legend
    }

    /// What an earlier experiment had, the floor and the goal.
    fn references(&self, kinds: Kinds, cause: Cause, of: &[&Judged<'_>]) -> Vec<Vec<String>> {
        let row = |name: &str, cell: &dyn Fn(Method) -> String| {
            let mut row = vec![name.to_owned(), String::new(), String::new()];
            row.extend(self.methods.iter().map(|method| cell(*method)));
            row
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
        let mut table = vec![self.header(["kind", "loss"])];
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
        aligned(&table)
    }

    /// How the losses of windows with both causes are split.
    fn hybrids(&self, judged: &[&Judged<'_>]) -> String {
        let mut table =
            vec![self.header(["both causes: % of lost packets given to the wrong one; to none", ""])];
        for (name, is_low) in [("loss 0.00008–0.05", true), ("loss over 0.05", false)] {
            let of: Vec<&Judged<'_>> = judged
                .iter()
                .copied()
                .filter(|judged| judged.window.cause == Cause::Unknown)
                .filter(|judged| is_in_range(judged.window) == is_low)
                .collect();
            let cell = |method: &Method| {
                let of_method = misattributed(&of, *method, self.seed);
                of_method.map_or("–".to_owned(), |(wrong, none)| {
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
                        _ => "–".to_owned(),
                    };
                    let mut floor = ["– floor and goal", "", ""].map(str::to_owned).to_vec();
                    floor.extend(self.methods.iter().map(cell));
                    table.push(floor);
                }
            }
        }
        if table.len() == 1 { "No window has both causes.\n".to_owned() } else { aligned(&table) }
    }

    fn header(&self, first: [&str; 2]) -> Vec<String> {
        let mut header = first.map(str::to_owned).to_vec();
        header.push("windows (runs)".to_owned());
        header.extend(self.methods.iter().map(|method| method.name().to_owned()));
        header
    }

    fn row(&self, first: [&str; 2], of: &[&Judged<'_>]) -> Vec<String> {
        row(first, of, self.methods.iter().map(|method| cell(rates(of, *method, self.seed).as_ref())))
    }
}

/// Which band the window's loss rate is in, the highest among them closed.
pub(crate) fn band_of(window: &Labelled) -> usize {
    let rate = window.signature.loss_rate();
    BANDS[1..4].iter().filter(|bound| **bound <= rate).count()
}

fn row(first: [&str; 2], of: &[&Judged<'_>], cells: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut row = first.map(str::to_owned).to_vec();
    row.push(format!("{} ({})", of.len(), runs(of)));
    row.extend(cells);
    row
}

pub(crate) fn cell(rates: Option<&Rates>) -> String {
    let Some(rates) = rates else { return "–".to_owned() };
    let hybrid = if 0.0 < rates.hybrid { format!(" + {}", percent(rates.hybrid)) } else { String::new() };
    format!(
        "{} / {} / {}{hybrid}",
        percent_in(rates.right),
        percent(rates.wrong.value),
        percent(rates.inconclusive)
    )
}

fn percent_in(share: Share) -> String {
    let interval =
        share.interval.map_or(String::new(), |(low, high)| format!(" [{}, {}]", percent(low), percent(high)));
    format!("{}{interval}", percent(share.value))
}

/// Without the sign.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent == 0.0 || percent == 100.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
}

pub(crate) fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Host => "CPU",
        Cause::Network => "network",
        Cause::Unknown => "both",
    }
}
