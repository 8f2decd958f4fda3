//! Figures 2 to 4: the times of reductions.

use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};

use super::Figure;
use crate::figure::{
    Axes, BLUE, GREEN, INK, Mark, ORANGE, PURPLE, SKY, SMALL, Scale, VERMILION, legend, svg, text, ticks,
    write,
};
use crate::reduction::engine::Run;
use crate::reduction::paper::{Experiment, TABLE_1};
use crate::reduction::row::Summary;
use crate::reduction::strategy::Strategy;

/// Figure 2: maximum, 95th percentile, mean and minimum of each strategy.
pub(super) fn statistics(experiment: &Experiment) -> anyhow::Result<Figure> {
    let count = experiment.runs.len() as i32;
    let axes = Axes {
        left: 100,
        top: 96,
        width: 110 * count,
        height: 420,
        x: Scale::Linear(-0.5, f64::from(count) - 0.5),
        y: Scale::Log(4.0, 70.0),
    };
    let drawn = svg(axes.left + axes.width + 30, axes.top + axes.height + 90, |root| {
        let names: Vec<(f64, String)> = experiment
            .runs
            .iter()
            .enumerate()
            .map(|(i, (strategy, _))| (i as f64, strategy.name()))
            .collect();
        let y = ticks(&[4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0], "");
        axes.frame(root, "", ("timeout", &names), ("reduction time (s), logarithmic", &y))?;
        let colours = [PURPLE, ORANGE, BLUE, GREEN];
        let items = |what: &str, mark: Mark| {
            let names = ["maximum", "95th percentile", "mean", "minimum"];
            names
                .iter()
                .zip(colours)
                .map(|(name, colour)| (mark, colour, format!("{name}{what}")))
                .collect::<Vec<_>>()
        };
        legend(root, axes.left, 30, &items("", Mark::Dot))?;
        legend(root, axes.left, 58, &items(", paper", Mark::Ring))?;
        for (i, (strategy, run)) in experiment.runs.iter().enumerate() {
            let Summary { max, p95, mean, min, .. } = Summary::of(&run.times);
            let (here, there) = (i as f64 - 0.10, i as f64 + 0.16);
            axes.line(root, &[(here, min), (here, max)], INK, 1)?;
            for (value, colour) in [max, p95, mean, min].into_iter().zip(colours) {
                Mark::Dot.draw(root, axes.at(here, value), colour)?;
            }
            let label = axes.at(here, mean);
            write(
                root,
                &format!("{mean:.2}"),
                (label.0 - 8, label.1),
                text(SMALL - 3, HPos::Right, VPos::Center),
            )?;
            if let Some(paper) = TABLE_1.iter().find(|column| column.strategy == *strategy) {
                axes.line(root, &[(there, paper.min), (there, paper.max)], INK, 1)?;
                for (value, colour) in [paper.max, paper.p95, paper.mean, paper.min].into_iter().zip(colours)
                {
                    Mark::Ring.draw(root, axes.at(there, value), colour)?;
                }
            }
        }
        Ok(())
    })?;
    let mean = |strategy| experiment.of(strategy).map_or(f64::NAN, |run| Summary::of(&run.times).mean);
    let compared: Vec<String> = TABLE_1
        .iter()
        .map(|paper| {
            format!("{} {:.2} (paper {:.2})", paper.strategy.name(), mean(paper.strategy), paper.mean)
        })
        .collect();
    let says = format!("statistics of the reduction times; means in seconds: {}.", compared.join(", "));
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

fn names(runs: &[(Strategy, RGBColor, &Run)]) -> Vec<(Mark, RGBColor, String)> {
    runs.iter().map(|(strategy, colour, _)| (Mark::Line, *colour, strategy.name())).collect()
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
    let axes = Axes {
        left: 100,
        top: 70,
        width: 860,
        height: 400,
        x: Scale::Linear(4.0, 15.0),
        y: Scale::Linear(0.0, top),
    };
    let drawn = svg(1000, 560, |root| {
        let y: Vec<f64> = (0..=(top / 5.0) as u32).map(|i| 5.0 * f64::from(i)).collect();
        let x: Vec<f64> = (4..=15).map(f64::from).collect();
        axes.frame(
            root,
            "",
            ("reduction time (s)", &ticks(&x, "")),
            ("share of reductions (% in half a second)", &ticks(&y, "")),
        )?;
        legend(root, axes.left, 34, &names(&runs))?;
        lines.iter().try_for_each(|(colour, points)| axes.line(root, points, *colour, width(*colour)))
    })?;
    let shares: Vec<String> = runs
        .iter()
        .map(|(strategy, _, run)| {
            let below = run.times.iter().filter(|time| **time < 8.0).count() as f64 / run.times.len() as f64;
            format!("{} {:.0} %", strategy.name(), 100.0 * below)
        })
        .collect();
    let says = format!("distribution of the times below 15 s; below 8 s lie {}.", shares.join(", "));
    Ok(Figure { file: "figure-3.svg", says, svg: drawn })
}

/// Seconds of a bin of Figure 3.
const BIN: f64 = 0.5;

/// Figure 4: the tail, as the share of reductions that took longer.
pub(super) fn tail(experiment: &Experiment) -> anyhow::Result<Figure> {
    let runs = compared(experiment);
    let axes = Axes {
        left: 100,
        top: 70,
        width: 860,
        height: 400,
        x: Scale::Linear(5.0, 60.0),
        y: Scale::Log(0.05, 100.0),
    };
    let drawn = svg(1000, 560, |root| {
        let x: Vec<f64> = (1..=12).map(|i| 5.0 * f64::from(i)).collect();
        let y = ticks(&[0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0], "");
        axes.frame(
            root,
            "",
            ("reduction time (s)", &ticks(&x, "")),
            ("reductions that took longer (%), logarithmic", &y),
        )?;
        legend(root, axes.left, 34, &names(&runs))?;
        for (_, colour, run) in &runs {
            let mut sorted = run.times.clone();
            sorted.sort_by(f64::total_cmp);
            let longer = |i: usize| 100.0 * (sorted.len() - i) as f64 / sorted.len() as f64;
            // A step at each time: level until it, then down.
            let steps = |(i, time): (usize, &f64)| [(*time, longer(i)), (*time, longer(i + 1))];
            let points: Vec<(f64, f64)> =
                sorted.iter().enumerate().flat_map(steps).filter(|(x, _)| 5.0 <= *x).collect();
            axes.line(root, &points, *colour, width(*colour))?;
        }
        Ok(())
    })?;
    let maxima: Vec<String> = runs
        .iter()
        .map(|(strategy, _, run)| {
            let paper = TABLE_1.iter().find(|column| column.strategy == *strategy);
            let paper = paper.map_or(String::new(), |column| format!(" (paper {:.1})", column.max));
            format!("{} {:.1}{paper}", strategy.name(), Summary::of(&run.times).max)
        })
        .collect();
    let says = format!("the tail; longest reductions in seconds: {}.", maxima.join(", "));
    Ok(Figure { file: "figure-4.svg", says, svg: drawn })
}
