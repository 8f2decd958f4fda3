//! The scores as a figure: a row for each trace, a dot for each battery.

use barograph_forecast::{Loss, Preset, Rule};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Trace;
use super::score::{BATTERIES, geometric_mean};
use crate::forecast::report::best_of_nws;

/// Two panels, MSE and MAE, as SVG.
pub(crate) fn svg(traces: &[Trace]) -> anyhow::Result<String> {
    let mut svg = String::new();
    let rows = traces.len() + 1;
    let height = TOP + rows as i32 * ROW + BOTTOM;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        names(&root, traces)?;
        legend(&root, traces)?;
        for (loss, title, left) in [
            (Loss::Squared, "mean squared error ÷ that of the last value", NAMES),
            (Loss::Absolute, "mean absolute error ÷ that of the last value", NAMES + PANEL + GAP),
        ] {
            Panel { left, rows: rows as i32, loss }.draw(&root, title, traces)?;
        }
        root.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The traces' names on the left.
fn names(root: &Area<'_>, traces: &[Trace]) -> anyhow::Result<()> {
    for (row, name) in traces.iter().map(|trace| trace.name.as_str()).chain(["geometric mean"]).enumerate() {
        let weight = if row == traces.len() { FontStyle::Bold } else { FontStyle::Normal };
        let style = text(18, HPos::Right, VPos::Center, weight);
        root.draw(&Text::new(name.to_owned(), (NAMES - 14, middle(row as i32)), style))?;
    }
    Ok(())
}

/// What the colours mean, above the panels.
fn legend(root: &Area<'_>, traces: &[Trace]) -> anyhow::Result<()> {
    let marks = traces[0].scores.iter().map(|score| format!("{} {}", score.preset, score.rule));
    let mut x = 30;
    for (i, name) in marks.chain(["best of nws in hindsight".to_owned()]).enumerate() {
        mark(root, (x, 28), i)?;
        root.draw(&Text::new(
            name.clone(),
            (x + 14, 28),
            text(17, HPos::Left, VPos::Center, FontStyle::Normal),
        ))?;
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
        let bottom = TOP + self.rows * ROW;
        for tick in 2..=13 {
            let ratio = f64::from(tick) / 10.0;
            let style = if tick == 10 { BLACK.mix(0.6) } else { BLACK.mix(0.12) };
            root.draw(&PathElement::new(
                [(self.x(ratio), TOP), (self.x(ratio), bottom)],
                style.stroke_width(1),
            ))?;
            if tick % 2 == 0 {
                let at = (self.x(ratio), bottom + 8);
                root.draw(&Text::new(
                    format!("{ratio:.1}"),
                    at,
                    text(16, HPos::Center, VPos::Top, FontStyle::Normal),
                ))?;
            }
        }
        let at = (self.left + PANEL / 2, bottom + 34);
        root.draw(&Text::new(title.to_owned(), at, text(18, HPos::Center, VPos::Top, FontStyle::Normal)))?;
        let above_means = bottom - ROW;
        let line = [(self.left, above_means), (self.left + PANEL, above_means)];
        root.draw(&PathElement::new(line, BLACK.mix(0.6)))?;
        for row in 0..self.rows {
            let line = [(self.left, middle(row)), (self.left + PANEL, middle(row))];
            root.draw(&PathElement::new(line, BLACK.mix(0.10)))?;
        }
        for (row, trace) in traces.iter().enumerate() {
            self.row(root, row as i32, &self.ratios(trace))?;
        }
        let all: Vec<Vec<f64>> = traces.iter().map(|trace| self.ratios(trace)).collect();
        let means: Vec<f64> =
            (0..all[0].len()).map(|i| geometric_mean(all.iter().map(|ratios| ratios[i]))).collect();
        self.row(root, self.rows - 1, &means)
    }

    /// The ratios of a trace in the order of the legend.
    fn ratios(&self, trace: &Trace) -> Vec<f64> {
        let scores = trace.scores.iter().map(|score| score.errors.of(self.loss));
        scores.chain([best_of_nws(trace, self.loss).1]).collect()
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

/// The mark of a battery – the colour tells the preset, the shape the rule – or, after all of them, of
/// the best single method.
fn mark(root: &Area<'_>, (x, y): (i32, i32), i: usize) -> anyhow::Result<()> {
    let Some((preset, rule)) = BATTERIES.get(i).copied() else {
        root.draw(&PathElement::new([(x, y - 10), (x, y + 10)], BLACK.stroke_width(2)))?;
        return Ok(());
    };
    let colour = match preset {
        Preset::Nws => BLUE,
        Preset::Classic => GREEN,
        Preset::Full => VERMILION,
    };
    match rule {
        Rule::TwoLevel => root.draw(&Circle::new((x, y), 5, colour.stroke_width(2)))?,
        Rule::Flat => root.draw(&Cross::new((x, y), 5, colour.stroke_width(2)))?,
        Rule::Blend => root.draw(&Circle::new((x, y), 6, colour.filled()))?,
    }
    Ok(())
}

fn middle(row: i32) -> i32 {
    TOP + row * ROW + ROW / 2
}

fn text(size: u32, horizontal: HPos, vertical: VPos, weight: FontStyle) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font().style(weight)).pos(Pos::new(horizontal, vertical))
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

/// Colours of Okabe and Ito (2008).
const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
