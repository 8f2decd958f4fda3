//! Axes, lines and marks of the figures, as SVG.

pub(crate) mod chart;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A drawing and what it shows.
pub(crate) struct Figure {
    pub(crate) file: &'static str,
    pub(crate) says: String,
    pub(crate) svg: String,
}

/// One diagram of a figure.
pub(crate) struct Axes {
    /// The plotting area in pixels.
    pub(crate) left: i32,
    pub(crate) top: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
    x: Scale,
    y: Scale,
}

/// From data to a share of an axis.
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
    /// Over a plotting area of `left`, `top`, `width` and `height` pixels.
    pub(crate) fn new([left, top, width, height]: [i32; 4], x: Scale, y: Scale) -> Self {
        Self { left, top, width, height, x, y }
    }

    pub(crate) fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let x = self.left + (self.x.share(x) * f64::from(self.width)).round() as i32;
        let y = self.top + self.height - (self.y.share(y) * f64::from(self.height)).round() as i32;
        (x, y)
    }

    /// The frame, a title, ticks with their labels, and what the axes mean.
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

    /// The points, each as a mark.
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

/// A line through these points (pixels).
pub(crate) fn line(
    root: &Area<'_>,
    points: impl Into<Vec<(i32, i32)>>,
    style: impl Into<ShapeStyle>,
) -> anyhow::Result<()> {
    Ok(root.draw(&PathElement::new(points, style))?)
}

/// Names in a row, each with the line or mark that stands for it.
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

/// What stands for a value.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    Line,
    Dot,
    LargeDot,
    Ring,
    SmallRing,
}

impl Mark {
    pub(crate) fn draw(self, root: &Area<'_>, (x, y): (i32, i32), colour: RGBColor) -> anyhow::Result<()> {
        let (radius, style) = match self {
            Self::Line => return line(root, [(x - 12, y), (x + 12, y)], colour.stroke_width(3)),
            Self::Dot => (4, colour.filled()),
            Self::LargeDot => (6, colour.filled()),
            Self::Ring => (6, colour.stroke_width(2)),
            Self::SmallRing => (5, colour.stroke_width(2)),
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
    styled(size, horizontal, vertical, FontStyle::Normal)
}

pub(crate) fn styled(size: u32, horizontal: HPos, vertical: VPos, weight: FontStyle) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font().style(weight)).pos(Pos::new(horizontal, vertical))
}

/// A drawing of so many pixels as SVG.
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

/// Ticks at these values, labelled with them.
pub(crate) fn ticks(values: &[f64], unit: &str) -> Vec<(f64, String)> {
    values.iter().map(|value| (*value, format!("{value}{unit}"))).collect()
}

/// Pixels.
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
