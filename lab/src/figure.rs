//! Axes, lines and marks of the figures, as SVG.

use plotters::coord::Shift;
use plotters::element::Rectangle;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, RGBColor};

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) struct Figure {
    pub(crate) file: &'static str,
    pub(crate) says: String,
    pub(crate) svg: String,
}

pub(crate) struct Axes {
    /// Left edge of the plotting area (pixels), as are the next three.
    pub(crate) left: i32,
    pub(crate) top: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
    x: Scale,
    y: Scale,
}

/// Maps data to a share of an axis, 0 to 1.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    Linear(f64, f64),
    Log(f64, f64),
}

impl Scale {
    fn share(self, value: f64) -> f64 {
        match self {
            Self::Linear(min, max) => (value.clamp(min, max) - min) / (max - min),
            Self::Log(min, max) => (value.clamp(min, max) / min).ln() / (max / min).ln(),
        }
    }
}

impl Axes {
    /// Axes over a plotting area of `left`, `top`, `width` and `height` pixels.
    pub(crate) fn new([left, top, width, height]: [i32; 4], x: Scale, y: Scale) -> Self {
        Self { left, top, width, height, x, y }
    }

    pub(crate) fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let x = self.left + (self.x.share(x) * f64::from(self.width)).round() as i32;
        let y = self.top + self.height - (self.y.share(y) * f64::from(self.height)).round() as i32;
        (x, y)
    }

    /// Draws the frame, a title, ticks with their labels, and the names of the axes.
    pub(crate) fn frame(
        &self,
        root: &Area<'_>,
        title: &str,
        x: (&str, &[(f64, String)]),
        y: (&str, &[(f64, String)]),
    ) -> anyhow::Result<()> {
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        for (value, label) in x.1 {
            let at = self.at(*value, 0.0).0;
            line(root, [(at, self.top), (at, bottom)], GRID)?;
            write(root, label, (at, bottom + 8), text(SMALL, HPos::Center, VPos::Top))?;
        }
        for (value, label) in y.1 {
            let at = self.at(0.0, *value).1;
            line(root, [(self.left, at), (right, at)], GRID)?;
            write(root, label, (self.left - 8, at), text(SMALL, HPos::Right, VPos::Center))?;
        }
        line(root, [(self.left, self.top), (self.left, bottom), (right, bottom)], INK)?;
        write(root, x.0, (self.left + self.width / 2, bottom + 34), text(NORMAL, HPos::Center, VPos::Top))?;
        let upright = text(NORMAL, HPos::Center, VPos::Top).transform(FontTransform::Rotate270);
        write(root, y.0, (self.left - 74, self.top + self.height / 2), upright)?;
        write(root, title, (self.left, self.top - 14), text(NORMAL, HPos::Left, VPos::Bottom))
    }

    pub(crate) fn line(
        &self,
        root: &Area<'_>,
        points: &[(f64, f64)],
        colour: RGBColor,
        width: u32,
    ) -> anyhow::Result<()> {
        let mut points: Vec<(i32, i32)> = points.iter().map(|(x, y)| self.at(*x, *y)).collect();
        points.dedup();
        line(root, points, colour.stroke_width(width))
    }

    pub(crate) fn marks(
        &self,
        root: &Area<'_>,
        points: &[(f64, f64)],
        mark: Mark,
        colour: RGBColor,
    ) -> anyhow::Result<()> {
        points.iter().try_for_each(|(x, y)| mark.draw(root, self.at(*x, *y), colour))
    }
}

pub(crate) fn line(
    root: &Area<'_>,
    points: impl Into<Vec<(i32, i32)>>,
    style: impl Into<ShapeStyle>,
) -> anyhow::Result<()> {
    Ok(root.draw(&PathElement::new(points, style))?)
}

/// Draws names in a row, each with its line or mark.
pub(crate) fn legend<T: ToString>(
    root: &Area<'_>,
    left: i32,
    y: i32,
    items: impl IntoIterator<Item = (Mark, RGBColor, T)>,
) -> anyhow::Result<()> {
    let mut x = left;
    for (mark, colour, name) in items {
        let name = name.to_string();
        mark.draw(root, (x + 14, y), colour)?;
        write(root, &name, (x + 34, y), text(SMALL, HPos::Left, VPos::Center))?;
        x += 58 + (name.chars().count() as f64 * 8.2) as i32;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    Line,
    Dot,
    Ring,
}

impl Mark {
    pub(crate) fn draw(self, root: &Area<'_>, (x, y): (i32, i32), colour: RGBColor) -> anyhow::Result<()> {
        let (radius, style) = match self {
            Self::Line => return line(root, [(x - 12, y), (x + 12, y)], colour.stroke_width(3)),
            Self::Dot => (4, colour.filled()),
            Self::Ring => (6, colour.stroke_width(2)),
        };
        Ok(root.draw(&Circle::new((x, y), radius, style))?)
    }
}

pub(crate) fn write(
    root: &Area<'_>,
    words: &str,
    at: (i32, i32),
    style: TextStyle<'_>,
) -> anyhow::Result<()> {
    Ok(root.draw(&Text::new(words.to_owned(), at, style))?)
}

pub(crate) fn text(size: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(horizontal, vertical))
}

/// Draws on an area of `width` × `height` pixels and returns it as SVG.
pub(crate) fn svg(
    width: i32,
    height: i32,
    draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(svg)
}

pub(crate) fn ticks(values: &[f64], unit: &str) -> Vec<(f64, String)> {
    values.iter().map(|value| (*value, format!("{value}{unit}"))).collect()
}

/// Sizes of the font in pixels.
pub(crate) const SMALL: u32 = 17;
pub(crate) const NORMAL: u32 = 19;

/// Colours of Okabe and Ito (2008).
pub(crate) const INK: RGBColor = RGBColor(60, 60, 60);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(crate) const SKY: RGBColor = RGBColor(86, 180, 233);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
const GRID: RGBColor = RGBColor(225, 225, 225);

pub(crate) struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    /// The axis on the right and the points of its line.
    right: Option<(Axis, Vec<(f64, f64)>)>,
    layers: Vec<Layer>,
}

/// An axis from `low` to `high`.
pub(crate) struct Axis {
    name: String,
    is_log: bool,
    low: f64,
    high: f64,
    /// Positions and labels of the ticks; empty for five at equal distances.
    ticks: Vec<(f64, String)>,
}

/// Points that are drawn in one colour.
pub(crate) struct Layer {
    name: String,
    shape: Shape,
    pub(crate) points: Vec<(f64, f64)>,
    /// Index into [`COLOURS`], modulo its length.
    colour: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Line,
    /// A thin line without dots.
    Thin,
    Dots,
    /// Bars with this share of the axis as width.
    Bars(f64),
}

impl Axis {
    pub(crate) fn linear(name: &str, low: f64, high: f64) -> Self {
        // A range of length 0 has no scale.
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

    /// Adds an axis on the right with its line.
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
            // A missing value interrupts the line.
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

pub(crate) fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.filter(|number| number.is_finite()).fold(0.0, f64::max)
}

pub(crate) fn highest(layers: &[Layer]) -> f64 {
    largest(layers.iter().flat_map(|layer| &layer.points).map(|point| point.1))
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e5 => format!("{value:.0e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Size and margins of a chart in pixels.
const WIDTH: i32 = 860;
const HEIGHT: i32 = 470;
const LEFT: i32 = 110;
const RIGHT: i32 = 120;
const TOP: i32 = 84;
const BOTTOM: i32 = 76;

/// Colours of series and predictors, and of the cost.
const COLOURS: [RGBColor; 6] = [BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY];
const COST: RGBColor = RGBColor(140, 140, 140);
