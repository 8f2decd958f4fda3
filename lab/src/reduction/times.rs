//! Figures 2 to 4: the times of reductions.

use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};

use super::experiment::{Experiment, TABLE_1};
use super::run::Run;
use super::strategy::Strategy;
use crate::figure::{
    Axes, BLUE, Figure, GREEN, INK, Mark, ORANGE, PURPLE, SKY, SMALL, Scale, VERMILION, legend, svg, text,
    ticks, write,
};
use crate::stats::{Summary, mean, sorted};
use crate::table::list;

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

/// The strategies of Figures 3 and 4 with their colours.
/// The first is drawn first and wide, since the second lies on it for the most part.
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

/// Seconds of a bin of Figure 3.
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
                sorted.iter().enumerate().flat_map(steps).filter(|(x, _)| 5.0 <= *x).collect();
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
