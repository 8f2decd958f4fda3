//! Charts in columns, each with its legend and, where it has costs, a second axis of bytes an hour.

use plotters::element::Rectangle;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, FontTransform, RGBColor};

use super::{
    Area, Axes, BLUE, GREEN, INK, Mark, NORMAL, ORANGE, PURPLE, SKY, SMALL, Scale, VERMILION, legend, line,
    svg, text, write,
};

/// One chart.
pub(crate) struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    /// The axis on the right and its line.
    right: Option<(Axis, Vec<(f64, f64)>)>,
    layers: Vec<Layer>,
}

/// An axis that is as long as its data.
pub(crate) struct Axis {
    name: String,
    is_log: bool,
    low: f64,
    high: f64,
    /// Places of the marks; empty for five of equal distance.
    ticks: Vec<(f64, String)>,
}

/// What is drawn in one colour.
pub(crate) struct Layer {
    name: String,
    shape: Shape,
    pub(crate) points: Vec<(f64, f64)>,
    /// Which of [`COLOURS`].
    colour: usize,
}

/// How points are drawn.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Line,
    /// A thin line without dots.
    Thin,
    Dots,
    /// Bars of this share of the axis.
    Bars(f64),
}

impl Axis {
    pub(crate) fn linear(name: &str, low: f64, high: f64) -> Self {
        // A range of nothing has no scale.
        let high = if low < high { high } else { low + 1.0 };
        Self { name: name.to_owned(), is_log: false, low, high, ticks: Vec::new() }
    }

    pub(crate) fn log(name: &str, low: f64, high: f64) -> Self {
        let (low, high) = if 0.0 < low && low < high { (low, high) } else { (1.0, 10.0) };
        Self { name: name.to_owned(), is_log: true, low, high, ticks: Vec::new() }
    }

    pub(crate) fn with_ticks(self, ticks: Vec<(f64, String)>) -> Self {
        Self { ticks, ..self }
    }

    fn scale(&self) -> Scale {
        if self.is_log { Scale::Log(self.low, self.high) } else { Scale::Linear(self.low, self.high) }
    }

    fn marks(&self) -> Vec<(f64, String)> {
        if !self.ticks.is_empty() {
            let within = |tick: &&(f64, String)| (self.low..=self.high).contains(&tick.0);
            return self.ticks.iter().filter(within).cloned().collect();
        }
        let share = |i: i32| f64::from(i) / 4.0;
        let at = |i: i32| match self.is_log {
            true => self.low * (self.high / self.low).powf(share(i)),
            false => self.low + (self.high - self.low) * share(i),
        };
        (0..=4).map(at).map(|value| (value, number(value))).collect()
    }
}

/// Charts in so many columns.
pub(crate) fn charts(charts: &[Chart], columns: usize) -> anyhow::Result<String> {
    let columns = columns.max(1);
    let rows = charts.len().div_ceil(columns).max(1);
    svg(columns as i32 * WIDTH, rows as i32 * HEIGHT, |root| {
        for (i, chart) in charts.iter().enumerate() {
            chart.draw(root, (i % columns) as i32 * WIDTH, (i / columns) as i32 * HEIGHT)?;
        }
        Ok(())
    })
}

impl Chart {
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis, layers: Vec<Layer>) -> Self {
        Self { title: title.into(), x, y, right: None, layers }
    }

    /// With an axis on the right, and its line.
    pub(crate) fn with_right(self, right: Option<(Axis, Vec<(f64, f64)>)>) -> Self {
        Self { right, ..self }
    }

    fn draw(&self, root: &Area<'_>, left: i32, top: i32) -> anyhow::Result<()> {
        let area = [left + LEFT, top + TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
        let axes = |y: &Axis| Axes::new(area, self.x.scale(), y.scale());
        let main = axes(&self.y);
        let (x, y) = (self.x.marks(), self.y.marks());
        main.frame(root, "", (&self.x.name, &x), (&self.y.name, &y))?;
        write(root, &self.title, (left + LEFT, top + 30), text(NORMAL, HPos::Left, VPos::Center))?;
        for layer in &self.layers {
            layer.draw(root, &main)?;
        }
        let mut names: Vec<(Mark, RGBColor, String)> = self
            .layers
            .iter()
            .filter(|layer| !layer.name.is_empty())
            .map(|layer| {
                let mark = if layer.shape == Shape::Dots { Mark::Dot } else { Mark::Line };
                (mark, layer.colour(), layer.name.clone())
            })
            .collect();
        if let Some((axis, points)) = &self.right {
            let right = axes(axis);
            right.line(root, points, COST, 2)?;
            let edge = right.left + right.width;
            for (value, label) in axis.marks() {
                let at = right.at(1.0, value).1;
                line(root, [(edge, at), (edge + 6, at)], INK)?;
                write(root, &label, (edge + 10, at), text(SMALL, HPos::Left, VPos::Center))?;
            }
            let upright = text(NORMAL, HPos::Center, VPos::Top).transform(FontTransform::Rotate270);
            write(root, &axis.name, (edge + RIGHT - 34, right.top + right.height / 2), upright)?;
            names.push((Mark::Line, COST, axis.name.clone()));
        }
        legend(root, left + LEFT, top + 58, names)
    }
}

impl Layer {
    pub(crate) fn new(name: impl Into<String>, shape: Shape, points: Vec<(f64, f64)>, colour: usize) -> Self {
        Self { name: name.into(), shape, points, colour }
    }

    fn colour(&self) -> RGBColor {
        COLOURS[self.colour % COLOURS.len()]
    }

    fn draw(&self, root: &Area<'_>, axes: &Axes) -> anyhow::Result<()> {
        let colour = self.colour();
        if matches!(self.shape, Shape::Line | Shape::Thin) {
            // A value that is missing parts a line in two.
            for run in self.points.split(|(_, y)| !y.is_finite()).filter(|run| !run.is_empty()) {
                axes.line(root, run, colour, if self.shape == Shape::Thin { 1 } else { 2 })?;
            }
        }
        match self.shape {
            Shape::Thin => {}
            Shape::Line | Shape::Dots => {
                for (x, y) in self.points.iter().filter(|(_, y)| y.is_finite()) {
                    Mark::Dot.draw(root, axes.at(*x, *y), colour)?;
                }
            }
            Shape::Bars(share) => {
                let half = (share * f64::from(axes.width) / 2.0).max(1.0) as i32;
                for (x, y) in &self.points {
                    let ((x, top), (_, floor)) = (axes.at(*x, *y), axes.at(*x, 0.0));
                    root.draw(&Rectangle::new(
                        [(x - half, top), (x + half, floor)],
                        colour.mix(0.6).filled(),
                    ))?;
                }
            }
        }
        Ok(())
    }
}

/// The largest of the numbers that are finite.
pub(crate) fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.filter(|number| number.is_finite()).fold(0.0, f64::max)
}

/// The largest of all that is drawn.
pub(crate) fn highest(layers: &[Layer]) -> f64 {
    largest(layers.iter().flat_map(|layer| &layer.points).map(|point| point.1))
}

/// A number on an axis.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if 1e5 <= size => format!("{value:.0e}"),
        size if 100.0 <= size => format!("{value:.0}"),
        size if 1.0 <= size => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Pixels.
const WIDTH: i32 = 860;
const HEIGHT: i32 = 470;
const LEFT: i32 = 110;
const RIGHT: i32 = 120;
const TOP: i32 = 84;
const BOTTOM: i32 = 76;

/// Of series and predictors, and of the cost.
const COLOURS: [RGBColor; 6] = [BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY];
const COST: RGBColor = RGBColor(140, 140, 140);
