//! Figures 2 to 4 with the times of reductions, and Figures 5 to 7 with the times of messages on a
//! link and their timeouts.

use barograph_sim::scenario::BaseShift;
use barograph_sim::{LinkSimulation, Scenario};
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};

use super::engine;
use super::engine::{Run, Sent};
use super::paper::{Experiment, TABLE_1};
use super::strategy::Strategy;
use crate::figure::{
    Axes, BLUE, Figure, GREEN, INK, Mark, ORANGE, PURPLE, SKY, SMALL, Scale, VERMILION, legend, svg, text,
    ticks, write,
};
use crate::stats::{Summary, mean, range, sorted};
use crate::table::{joined, list};

/// Figure 2: maximum, 95th percentile, mean and minimum of each strategy.
pub(super) fn statistics(experiment: &Experiment) -> anyhow::Result<Figure> {
    let count = experiment.runs.len() as i32;
    let (x, y) = (Scale::Linear(-0.5, f64::from(count) - 0.5), Scale::Log(4.0, 70.0));
    let axes = Axes::new([100, 96, 110 * count, 420], x, y);
    let drawn = svg(axes.left + axes.width + 30, axes.top + axes.height + 90, |root| {
        let names = experiment.runs.iter().enumerate().map(|(i, (strategy, _))| (i as f64, strategy.name()));
        let names: Vec<(f64, String)> = names.collect();
        let y = ticks(&[4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0], "");
        axes.frame(root, "", ("timeout", &names), ("reduction time (s), logarithmic", &y))?;
        let statistics =
            [(PURPLE, "maximum"), (ORANGE, "95th percentile"), (BLUE, "mean"), (GREEN, "minimum")];
        legend(root, axes.left, 30, statistics.map(|(colour, name)| (Mark::Dot, colour, name.to_owned())))?;
        let papers = statistics.map(|(colour, name)| (Mark::Ring, colour, format!("{name}, paper")));
        legend(root, axes.left, 58, papers)?;
        let column = |x: f64, of: &Summary, mark: Mark| {
            axes.line(root, &[(x, of.min), (x, of.max)], INK, 1)?;
            [of.max, of.p95, of.mean, of.min]
                .iter()
                .zip(statistics)
                .try_for_each(|(value, (colour, _))| mark.draw(root, axes.at(x, *value), colour))
        };
        for (i, (strategy, run)) in experiment.runs.iter().enumerate() {
            let summary = Summary::of(&run.times);
            let (here, there) = (i as f64 - 0.10, i as f64 + 0.16);
            column(here, &summary, Mark::Dot)?;
            let (x, y) = axes.at(here, summary.mean);
            let label = text(SMALL - 3, HPos::Right, VPos::Center);
            write(root, &format!("{:.2}", summary.mean), (x - 8, y), label)?;
            if let Some((_, paper, _)) = TABLE_1.iter().find(|(of, ..)| of == strategy) {
                column(there, paper, Mark::Ring)?;
            }
        }
        Ok(())
    })?;
    let compared = list(TABLE_1.iter().map(|(strategy, paper, _)| {
        let ours = experiment.of(*strategy).map_or(f64::NAN, |run| mean(&run.times));
        format!("{} {ours:.2} (paper {:.2})", strategy.name(), paper.mean)
    }));
    let says = format!("statistics of the reduction times; means in seconds: {compared}.");
    Ok(Figure { file: "figure-2.svg", says, svg: drawn })
}

/// Strategies of Figures 3 and 4 with their colours. The first is drawn first with a wide line,
/// because the second covers most of it.
const COMPARED: [(Strategy, RGBColor); 6] = [
    (Strategy::Static(45.0), INK),
    (Strategy::Static(15.0), ORANGE),
    (Strategy::Static(2.0), PURPLE),
    (Strategy::Nws(1.0), SKY),
    (Strategy::Nws(2.0), BLUE),
    (Strategy::Default, VERMILION),
];

fn compared(experiment: &Experiment) -> Vec<(Strategy, RGBColor, &Run)> {
    let run = |(strategy, colour)| experiment.of(strategy).map(|run| (strategy, colour, run));
    COMPARED.into_iter().filter_map(run).collect()
}

fn width(colour: RGBColor) -> u32 {
    if colour == INK { 6 } else { 3 }
}

fn names(runs: &[(Strategy, RGBColor, &Run)]) -> impl Iterator<Item = (Mark, RGBColor, String)> {
    runs.iter().map(|(strategy, colour, _)| (Mark::Line, *colour, strategy.name()))
}

/// Figure 3: the distribution of reduction times below 15 s.
pub(super) fn distribution(experiment: &Experiment) -> anyhow::Result<Figure> {
    let runs = compared(experiment);
    let lines: Vec<(RGBColor, Vec<(f64, f64)>)> = runs
        .iter()
        .map(|(_, colour, run)| {
            let bin = |i: u32| {
                let from = 4.0 + BIN * f64::from(i);
                let count = run.times.iter().filter(|time| from <= **time && **time < from + BIN).count();
                (from + BIN / 2.0, 100.0 * count as f64 / run.times.len() as f64)
            };
            (*colour, (0..22).map(bin).collect())
        })
        .collect();
    let highest = lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(0.0, f64::max);
    let top = (highest / 5.0).ceil().max(1.0) * 5.0;
    let axes = Axes::new([100, 70, 860, 400], Scale::Linear(4.0, 15.0), Scale::Linear(0.0, top));
    let drawn = svg(1000, 560, |root| {
        let y: Vec<f64> = (0..=(top / 5.0) as u32).map(|i| 5.0 * f64::from(i)).collect();
        let x: Vec<f64> = (4..=15).map(f64::from).collect();
        axes.frame(
            root,
            "",
            ("reduction time (s)", &ticks(&x, "")),
            ("share of reductions (% in half a second)", &ticks(&y, "")),
        )?;
        legend(root, axes.left, 34, names(&runs))?;
        lines.iter().try_for_each(|(colour, points)| axes.line(root, points, *colour, width(*colour)))
    })?;
    let shares = list(runs.iter().map(|(strategy, _, run)| {
        let below = run.times.iter().filter(|time| **time < 8.0).count() as f64 / run.times.len() as f64;
        format!("{} {:.0} %", strategy.name(), 100.0 * below)
    }));
    let says = format!("distribution of the times below 15 s; below 8 s lie {}.", shares);
    Ok(Figure { file: "figure-3.svg", says, svg: drawn })
}

/// Seconds of a bin in Figure 3.
const BIN: f64 = 0.5;

/// Figure 4: the tail, as the share of reductions that took longer.
pub(super) fn tail(experiment: &Experiment) -> anyhow::Result<Figure> {
    let runs = compared(experiment);
    let axes = Axes::new([100, 70, 860, 400], Scale::Linear(5.0, 60.0), Scale::Log(0.05, 100.0));
    let drawn = svg(1000, 560, |root| {
        let x: Vec<f64> = (1..=12).map(|i| 5.0 * f64::from(i)).collect();
        let y = ticks(&[0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0], "");
        axes.frame(
            root,
            "",
            ("reduction time (s)", &ticks(&x, "")),
            ("reductions that took longer (%), logarithmic", &y),
        )?;
        legend(root, axes.left, 34, names(&runs))?;
        for (_, colour, run) in &runs {
            let sorted = sorted(run.times.iter().copied());
            let longer = |i: usize| 100.0 * (sorted.len() - i) as f64 / sorted.len() as f64;
            // A step at each time: level until it, then down.
            let steps = |(i, time): (usize, &f64)| [(*time, longer(i)), (*time, longer(i + 1))];
            let points: Vec<(f64, f64)> =
                sorted.iter().enumerate().flat_map(steps).filter(|(x, _)| *x >= 5.0).collect();
            axes.line(root, &points, *colour, width(*colour))?;
        }
        Ok(())
    })?;
    let maxima = list(runs.iter().map(|(strategy, _, run)| {
        let paper = TABLE_1.iter().find(|(of, ..)| of == strategy);
        let paper = paper.map_or(String::new(), |(_, paper, _)| format!(" (paper {:.1})", paper.max));
        format!("{} {:.1}{paper}", strategy.name(), Summary::of(&run.times).max)
    }));
    let says = format!("the tail; longest reductions in seconds: {}.", maxima);
    Ok(Figure { file: "figure-4.svg", says, svg: drawn })
}

/// Figure 5: one link over 100 reductions.
pub(super) fn one(experiment: &Experiment) -> anyhow::Result<Figure> {
    let scenario = one_set(experiment);
    // The path with the slowest message shows best the effect of an outlier.
    let sends = sends(&scenario, Strategy::Nws(2.0));
    let slowest = sends.iter().max_by(|a, b| a.took_s.total_cmp(&b.took_s)).map_or(0, |sent| sent.path);
    let panels = panels(&scenario, &[slowest]);
    let says = format!("the link with the slowest message, over 100 reductions: {}.", counts(&panels));
    Ok(Figure { file: "figure-5.svg", says, svg: draw(&panels)? })
}

/// Figure 6: two links of one node, those that differ most.
pub(super) fn two(experiment: &Experiment) -> anyhow::Result<Figure> {
    let scenario = one_set(experiment);
    let simulation = LinkSimulation::new(&scenario, scenario.nodes - 1);
    // The paths down from a node to its children, 2 n + 1 and 2 n + 2.
    let down = |node: usize| [4 * node + 1, 4 * node + 3];
    let differ = |paths: [usize; 2]| (simulation.base_s(paths[0]) / simulation.base_s(paths[1])).ln().abs();
    let nodes = 0..(scenario.nodes - 1) / 2;
    let paths = nodes.map(down).max_by(|a, b| differ(*a).total_cmp(&differ(*b))).unwrap_or([1, 3]);
    let panels = panels(&scenario, &paths);
    let says = format!(
        "two links of one node, of {:.2} and {:.2} s: {}.",
        simulation.base_s(paths[0]),
        simulation.base_s(paths[1]),
        counts(&panels)
    );
    Ok(Figure { file: "figure-6.svg", says, svg: draw(&panels)? })
}

/// Figure 7: a link with a change of behaviour.
pub(super) fn changing(experiment: &Experiment) -> anyhow::Result<Figure> {
    let shift = BaseShift { from: 40, until: 75, factor: 2.5, every_other_link: false };
    let scenario = Scenario { shifts: vec![shift], ..one_set(experiment) };
    let panels = panels(&scenario, &[0]);
    let says = format!(
        "a link that becomes 2.5 times slower at reduction 40, and recovers at 75: {}.",
        counts(&panels)
    );
    Ok(Figure { file: "figure-7.svg", says, svg: draw(&panels)? })
}

fn one_set(experiment: &Experiment) -> Scenario {
    Scenario { reductions: 100, ..experiment.scenario.clone() }
}

struct Panel {
    title: String,
    sends: Vec<Sent>,
}

/// Each path under the paper's strategy and under ours.
fn panels(scenario: &Scenario, paths: &[usize]) -> Vec<Panel> {
    let mut panels = Vec::new();
    for strategy in [Strategy::Nws(2.0), Strategy::Default] {
        let sends = sends(scenario, strategy);
        for path in paths {
            let (child, parent) = (path / 2 + 1, (path / 2) / 2);
            let way = if path.is_multiple_of(2) { (child, parent) } else { (parent, child) };
            let of_path = sends.iter().filter(|sent| sent.path == *path).copied().collect();
            panels.push(Panel {
                title: format!("{}, node {} to node {}", strategy.name(), way.0, way.1),
                sends: of_path,
            });
        }
    }
    panels
}

fn sends(scenario: &Scenario, strategy: Strategy) -> Vec<Sent> {
    let mut sends = Vec::new();
    engine::run_tree(scenario, 1, strategy, |sent| sends.push(sent));
    sends
}

fn counts(panels: &[Panel]) -> String {
    let count = |panel: &Panel| {
        let retried = panel.sends.iter().filter(|sent| sent.attempts > 1).count();
        format!("{}, {retried} of {} retried", panel.title, panel.sends.len())
    };
    joined(panels.iter().map(count), "; ")
}

fn draw(panels: &[Panel]) -> anyhow::Result<String> {
    let rows = panels.len() / 2;
    let (least, highest) = range(panels.iter().flat_map(|panel| &panel.sends).map(|sent| sent.took_s));
    let all: Vec<f64> = vec![0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let top = all.iter().copied().find(|tick| 45.0_f64.max(highest) <= *tick).unwrap_or(100.0);
    let bottom = all.iter().copied().rev().find(|tick| *tick <= least.min(1.0)).unwrap_or(0.1);
    svg(1240, 76 + 400 * rows as i32, |root| {
        let items = [
            (Mark::Dot, BLUE, "message, from its first attempt to its acknowledgement"),
            (Mark::Ring, VERMILION, "retried"),
            (Mark::Line, ORANGE, "timeout of the first attempt"),
        ];
        legend(root, 90, 26, items)?;
        for (i, panel) in panels.iter().enumerate() {
            let (column, row) = ((i / rows) as i32, (i % rows) as i32);
            let area = [96 + 600 * column, 86 + 400 * row, 510, 290];
            let axes = Axes::new(area, Scale::Linear(0.0, 100.0), Scale::Log(bottom, top));
            let y: Vec<f64> = all.iter().copied().filter(|tick| (bottom..=top).contains(tick)).collect();
            let x = ticks(&[0.0, 20.0, 40.0, 60.0, 80.0, 100.0], "");
            axes.frame(root, &panel.title, ("reduction", &x), ("time (s), logarithmic", &ticks(&y, "")))?;
            let point = |sent: &Sent, value: f64| (sent.reduction as f64, value);
            let timeouts: Vec<(f64, f64)> =
                panel.sends.iter().map(|sent| point(sent, sent.timeout_s)).collect();
            axes.line(root, &timeouts, ORANGE, 2)?;
            let times: Vec<(f64, f64)> = panel.sends.iter().map(|sent| point(sent, sent.took_s)).collect();
            axes.line(root, &times, INK, 1)?;
            axes.marks(root, &times, Mark::Dot, BLUE)?;
            let retried = panel.sends.iter().filter(|sent| sent.attempts > 1);
            let retried: Vec<(f64, f64)> = retried.map(|sent| point(sent, sent.took_s)).collect();
            axes.marks(root, &retried, Mark::Ring, VERMILION)?;
        }
        Ok(())
    })
}
