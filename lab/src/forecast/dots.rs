//! The scores as a figure: a row for each trace, a dot for each battery.

use barograph_forecast::{Loss, Preset, Rule};
use plotters::element::Cross;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{BLACK, Color as _, FontStyle, RGBColor};

use super::score::BATTERIES;
use super::trace::Trace;
use crate::figure::{Area, BLUE, GREEN, Mark, VERMILION, line, styled, svg, text, write};
use crate::stats::geometric_mean;

/// Two panels, MSE and MAE, as SVG.
pub(crate) fn svg_of(traces: &[Trace]) -> anyhow::Result<String> {
    let rows = traces.len() as i32 + 1;
    svg(WIDTH, TOP + rows * ROW + BOTTOM, |root| {
        names(root, traces)?;
        legend(root, traces)?;
        for (loss, title, left) in [
            (Loss::Squared, "mean squared error ÷ that of the last value", NAMES),
            (Loss::Absolute, "mean absolute error ÷ that of the last value", NAMES + PANEL + GAP),
        ] {
            Panel { left, rows, loss }.draw(root, title, traces)?;
        }
        Ok(())
    })
}

/// The traces' names on the left.
fn names(root: &Area<'_>, traces: &[Trace]) -> anyhow::Result<()> {
    for (row, name) in traces.iter().map(|trace| trace.name.as_str()).chain(["geometric mean"]).enumerate() {
        let weight = if row == traces.len() { FontStyle::Bold } else { FontStyle::Normal };
        write(root, name, (NAMES - 14, middle(row as i32)), styled(18, HPos::Right, VPos::Center, weight))?;
    }
    Ok(())
}

/// What the colours mean, above the panels.
fn legend(root: &Area<'_>, traces: &[Trace]) -> anyhow::Result<()> {
    let marks = traces[0].scores.iter().map(|score| format!("{} {}", score.preset, score.rule));
    let mut x = 30;
    for (i, name) in marks.chain(["best of nws in hindsight".to_owned()]).enumerate() {
        mark(root, (x, 28), i)?;
        write(root, &name, (x + 14, 28), text(17, HPos::Left, VPos::Center))?;
        x += 30 + (name.chars().count() as f64 * 7.5) as i32;
    }
    Ok(())
}

/// One loss.
struct Panel {
    left: i32,
    rows: i32,
    loss: Loss,
}

impl Panel {
    fn draw(&self, root: &Area<'_>, title: &str, traces: &[Trace]) -> anyhow::Result<()> {
        let (bottom, right) = (TOP + self.rows * ROW, self.left + PANEL);
        for tick in 2..=13 {
            let ratio = f64::from(tick) / 10.0;
            let x = self.x(ratio);
            line(root, [(x, TOP), (x, bottom)], BLACK.mix(if tick == 10 { 0.6 } else { 0.12 }))?;
            if tick % 2 == 0 {
                write(root, &format!("{ratio:.1}"), (x, bottom + 8), text(16, HPos::Center, VPos::Top))?;
            }
        }
        write(root, title, (self.left + PANEL / 2, bottom + 34), text(18, HPos::Center, VPos::Top))?;
        line(root, [(self.left, bottom - ROW), (right, bottom - ROW)], BLACK.mix(0.6))?;
        for row in 0..self.rows {
            line(root, [(self.left, middle(row)), (right, middle(row))], BLACK.mix(0.10))?;
        }
        let all: Vec<Vec<f64>> = traces.iter().map(|trace| self.ratios(trace)).collect();
        let mean = |i: usize| geometric_mean(all.iter().map(|ratios| ratios[i]));
        let means = (0..all[0].len()).map(mean).collect();
        for (row, ratios) in all.iter().chain([&means]).enumerate() {
            self.row(root, row as i32, ratios)?;
        }
        Ok(())
    }

    /// The ratios of a trace in the order of the legend.
    fn ratios(&self, trace: &Trace) -> Vec<f64> {
        let scores = trace.scores.iter().map(|score| score.errors.of(self.loss));
        scores.chain([trace.best_of_nws(self.loss).1]).collect()
    }

    fn row(&self, root: &Area<'_>, row: i32, ratios: &[f64]) -> anyhow::Result<()> {
        // The default comes last, over the others.
        let default = |i: &usize| BATTERIES.get(*i) == Some(&(Preset::Full, Rule::Blend));
        let order = (0..ratios.len()).filter(|i| !default(i)).chain((0..ratios.len()).filter(default));
        for i in order.filter(|i| ratios[*i].is_finite()) {
            mark(root, (self.x(ratios[i]), middle(row)), i)?;
        }
        Ok(())
    }

    /// Where a ratio stands; those beyond the scale stand at its end.
    fn x(&self, ratio: f64) -> i32 {
        let share = (ratio.clamp(LOW, HIGH) - LOW) / (HIGH - LOW);
        self.left + (share * f64::from(PANEL)).round() as i32
    }
}

/// The mark of a battery – the colour stands for the preset, the shape for the rule – or, after all of them, of
/// the best single method.
fn mark(root: &Area<'_>, (x, y): (i32, i32), i: usize) -> anyhow::Result<()> {
    let Some((preset, rule)) = BATTERIES.get(i).copied() else {
        return line(root, [(x, y - 10), (x, y + 10)], BLACK.stroke_width(2));
    };
    let colour: RGBColor = match preset {
        Preset::Nws => BLUE,
        Preset::Classic => GREEN,
        Preset::Full => VERMILION,
    };
    match rule {
        Rule::TwoLevel => Mark::SmallRing.draw(root, (x, y), colour),
        Rule::Flat => Ok(root.draw(&Cross::new((x, y), 5, colour.stroke_width(2)))?),
        Rule::Blend => Mark::LargeDot.draw(root, (x, y), colour),
    }
}

fn middle(row: i32) -> i32 {
    TOP + row * ROW + ROW / 2
}

/// Pixels.
const NAMES: i32 = 290;
const PANEL: i32 = 500;
const GAP: i32 = 44;
const WIDTH: i32 = NAMES + 2 * PANEL + GAP + 30;
const TOP: i32 = 56;
const ROW: i32 = 34;
const BOTTOM: i32 = 66;

/// The scale of ratios: 1 is the last value, and little lies beyond these on real series.
const LOW: f64 = 0.2;
const HIGH: f64 = 1.3;
