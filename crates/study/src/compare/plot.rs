//! Draws comparisons as SVG: two series side by side, two histograms side by side, two
//! distributions in one chart.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{ComparedSeries, Histogram, SeriesComparison};
use crate::input::Sample;
use crate::plot::{FORECAST, MEASURED, PlotData, PlotLabels, tick_label, xml_text};
use crate::units::axis_number;

/// One row of a figure.
pub struct FigureRow<'a> {
    /// Title above the left half, or above the whole row.
    pub title_a: String,
    /// Title above the right half, if the row has two halves.
    pub title_b: String,
    /// The kind of chart to draw.
    pub panel: Panel,
    /// The comparison that is drawn.
    pub study: &'a SeriesComparison,
    /// Unit of the values, or empty.
    pub unit: &'a str,
}

/// The kind of chart that one row of the drawing shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    /// The values over time: the first series left, the second right (JavaNws, figures 4 to 6).
    Series,
    /// The histograms of the forecast errors: the first series left, the second right (figures 7
    /// and 8).
    Histograms,
    /// The distribution functions of the forecast errors, in one chart (figure 9).
    Distributions,
}

/// Draws all three charts of one comparison; `a` and `b` are the names of the series.
pub fn comparison_svg(study: &SeriesComparison, a: &str, b: &str, unit: &str) -> Result<String, String> {
    let row = |panel, name: &dyn Fn(&str) -> String| FigureRow {
        title_a: name(a),
        title_b: name(b),
        panel,
        study,
        unit,
    };
    let distributions = FigureRow {
        title_a: "distributions of the forecast errors".to_owned(),
        ..row(Panel::Distributions, &str::to_owned)
    };
    svg(&[
        row(Panel::Series, &str::to_owned),
        row(Panel::Histograms, &|name| format!("{name}: forecast errors")),
        distributions,
    ])
}

/// Draws rows below each other, as one SVG.
pub fn svg(rows: &[FigureRow<'_>]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let height = ROW_HEIGHT * u32::try_from(rows.len().max(1)).map_err(|error| error.to_string())?;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        for (row, area) in rows.iter().zip(root.split_evenly((rows.len().max(1), 1))) {
            row.draw(&area)?;
        }
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

/// Draws the grid and labels of a chart. It is a macro, because the type of a chart depends on the
/// types of its axes.
macro_rules! axes {
    ($chart:expr, $range:expr, $x:expr, $y:expr) => {
        $chart
            .configure_mesh()
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.5))
            .x_desc($x)
            .y_desc($y)
            .axis_desc_style(("sans-serif", 19))
            .label_style(("sans-serif", 17))
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&|value| tick_label(*value, &$range))
            .y_label_formatter(&|value| axis_number(*value))
            .draw()
            .map_err(failed)?
    };
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl FigureRow<'_> {
    fn draw(&self, area: &Area<'_>) -> Result<(), String> {
        let Self { title_a, title_b, study, .. } = self;
        if self.panel == Panel::Distributions {
            let chart = titled(area, title_a)?;
            return self.distributions(&chart);
        }
        let halves = area.split_evenly((1, 2));
        let sides = [(title_a, &study.a, MEASURED), (title_b, &study.b, FORECAST)];
        for (half, (title, side, colour)) in halves.iter().zip(sides) {
            let chart = titled(half, title)?;
            match self.panel {
                Panel::Series => self.series(&chart, side, colour)?,
                _ => self.histogram(&chart, side, colour)?,
            }
        }
        Ok(())
    }

    /// Draws the values of one side over time. Both sides have the same axis of values.
    fn series(&self, area: &Area<'_>, side: &ComparedSeries, colour: RGBColor) -> Result<(), String> {
        let size = self.study.a.median.abs().max(self.study.b.median.abs());
        let (exponent, unit) = match self.unit {
            "s" | "bit/s" => prefixed(self.unit, size),
            // The chart chooses a power of ten by itself.
            unit => (0, xml_text(unit)),
        };
        let plot_data = |side: &ComparedSeries| {
            let mut plot_data = PlotData::default();
            for Sample { time_s, value } in &side.series.samples {
                plot_data.push(Sample { time_s: *time_s, value: value / 10f64.powi(exponent) }, None);
            }
            plot_data
        };
        let (a, b) = (plot_data(&self.study.a).extent(), plot_data(&self.study.b).extent());
        let labels = PlotLabels { title: "", unit: &unit, level: 0.0, timed: true };
        plot_data(side).draw(area, &labels, (a.0.min(b.0), a.1.max(b.1)), colour)
    }

    /// Draws the histogram of one side's errors. Both sides have the same axes, and empty bins at
    /// both ends are left out.
    fn histogram(&self, area: &Area<'_>, side: &ComparedSeries, colour: RGBColor) -> Result<(), String> {
        let both = [&self.study.a.histogram, &self.study.b.histogram];
        let filled = |bin: &usize| both.iter().any(|histogram| histogram.counts[*bin] != 0);
        let bins = side.histogram.counts.len();
        let first = (0..bins).find(filled).unwrap_or(0).saturating_sub(1);
        let last = (0..bins).rfind(filled).unwrap_or(bins - 1).saturating_add(1).min(bins - 1);
        let most = both.iter().flat_map(|histogram| histogram.counts.iter().copied()).max().unwrap_or(0);
        let Histogram { counts, below, above, .. } = &side.histogram;
        let axis = ErrorAxis::of(side.histogram.edge(first), side.histogram.edge(last + 1), self.unit);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .margin_right(28)
            .x_label_area_size(52)
            .y_label_area_size(86)
            .build_cartesian_2d(axis.range(), 0.0..(most.max(1) as f64 * 1.05))
            .map_err(failed)?;
        let outside = if below + above == 0 { String::new() } else { format!(", {} outside", below + above) };
        axes!(chart, axis.range(), axis.name("error") + &outside, "values in a bin");
        let bars = (first..=last).filter(|bin| counts[*bin] != 0).map(|bin| {
            let edges = [side.histogram.edge(bin), side.histogram.edge(bin + 1)].map(|edge| axis.at(edge));
            Rectangle::new([(edges[0], 0.0), (edges[1], counts[bin] as f64)], colour.filled())
        });
        chart.draw_series(bars).map_err(failed).map(drop)
    }

    /// Draws the distributions without the smallest hundredth and the largest hundredth of the
    /// errors. These errors would compress the rest to a vertical line.
    fn distributions(&self, area: &Area<'_>) -> Result<(), String> {
        let sides = [(&self.study.a, MEASURED, 3), (&self.study.b, FORECAST, 1)];
        let sorted = sides.map(|(side, ..)| {
            let mut errors = side.errors.clone();
            errors.sort_by(f64::total_cmp);
            errors
        });
        let quantile = |errors: &[f64], share: f64| {
            errors.get(((errors.len().saturating_sub(1)) as f64 * share).round() as usize).copied()
        };
        let ends = |share: f64| sorted.iter().filter_map(move |errors| quantile(errors, share));
        let low = ends(TAIL).reduce(f64::min).unwrap_or(0.0);
        let high = ends(1.0 - TAIL).reduce(f64::max).unwrap_or(0.0);
        let axis = ErrorAxis::of(low, high, self.unit);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .margin_right(28)
            .x_label_area_size(52)
            .y_label_area_size(86)
            .build_cartesian_2d(axis.range(), 0.0..1.0)
            .map_err(failed)?;
        axes!(chart, axis.range(), axis.name("error"), "share of the errors up to this value");
        for (errors, (_, colour, width)) in sorted.iter().zip(sides) {
            let line = steps(errors).into_iter().map(|(error, share)| (axis.at(error), share));
            chart.draw_series(LineSeries::new(line, colour.stroke_width(width))).map_err(failed)?;
        }
        self.legend(area)
    }

    fn legend(&self, area: &Area<'_>) -> Result<(), String> {
        let distance = self.study.distance.map_or_else(String::new, |d| format!("distance {d:.3}"));
        let style = ("sans-serif", 17).into_font().into_text_style(area);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        for (y, text, colour) in
            [(36, "first (A)", Some(MEASURED)), (60, "second (B)", Some(FORECAST)), (84, &distance, None)]
        {
            if let Some(colour) = colour {
                let line = PathElement::new([(124, y), (150, y)], colour.stroke_width(3));
                area.draw(&line).map_err(failed)?;
            }
            let x = if colour.is_some() { 158 } else { 124 };
            area.draw(&Text::new(text.to_owned(), (x, y), style.clone())).map_err(failed)?;
        }
        Ok(())
    }
}

/// The corners of a distribution function. If there are more than a drawing can show, only every
/// nth value has corners.
fn steps(sorted: &[f64]) -> Vec<(f64, f64)> {
    let n = sorted.len();
    let every = n.div_ceil(POINTS_MAX).max(1);
    let kept = (0..n).filter(|i| i % every == 0 || *i + 1 == n);
    kept.flat_map(|i| [(sorted[i], i as f64 / n as f64), (sorted[i], (i + 1) as f64 / n as f64)]).collect()
}

/// An axis for the drawing library, which needs a range wider than 0 and numbers of ordinary size.
struct ErrorAxis {
    exponent: i32,
    unit: String,
    low: f64,
    high: f64,
}

impl ErrorAxis {
    fn of(low: f64, high: f64, unit: &str) -> Self {
        let (exponent, unit) = prefixed(unit, low.abs().max(high.abs()));
        let unscaled = Self { exponent, unit, low: f64::NEG_INFINITY, high: f64::INFINITY };
        let (low, high) = (unscaled.at(low), unscaled.at(high));
        let margin = ((high - low) * 0.02).max(high.abs().max(low.abs()) * 1e-6).max(1e-9);
        Self { low: low - margin, high: high + margin, ..unscaled }
    }

    fn at(&self, value: f64) -> f64 {
        (value / 10f64.powi(self.exponent)).clamp(self.low, self.high)
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }

    fn name(&self, what: &str) -> String {
        if self.unit.is_empty() { what.to_owned() } else { format!("{what} ({})", self.unit) }
    }
}

/// Exponent of the power of ten by which the chart divides values of this `size`, so that the
/// labels have few digits; and the unit of the divided values.
fn prefixed(unit: &str, size: f64) -> (i32, String) {
    let steps: &[(i32, &str)] = match unit {
        "s" => &[(0, "s"), (-3, "ms"), (-6, "µs"), (-9, "ns")],
        "bit/s" => &[(9, "Gbit/s"), (6, "Mbit/s"), (3, "kbit/s"), (0, "bit/s")],
        _ => &[],
    };
    let unit = xml_text(unit);
    let suits = |(exponent, _): &&(i32, &str)| 10f64.powi(*exponent) <= size;
    match steps.iter().find(suits) {
        Some((exponent, name)) => (*exponent, (*name).to_owned()),
        None if size == 0.0 || (0.1..1e5).contains(&size) => (0, unit),
        None => {
            // Choose a power of a thousand, because prefixes of units are such powers.
            let exponent = ((size.log10() / 3.0).floor() as i32 * 3).clamp(-300, 300);
            (exponent, format!("1e{exponent} {unit}").trim_end().to_owned())
        }
    }
}

/// Draws a title, and returns the part of the area below it.
fn titled<'a>(area: &Area<'a>, title: &str) -> Result<Area<'a>, String> {
    let (head, rest) = area.split_vertically(HEAD);
    let style = ("sans-serif", 20).into_font().into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    head.draw(&Text::new(xml_text(title), (24, HEAD / 2 + 4), style)).map_err(failed)?;
    Ok(rest)
}

fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    error.to_string()
}

const WIDTH: u32 = 1200;
const ROW_HEIGHT: u32 = 360;
const HEAD: i32 = 34;

/// Maximum number of corners of a distribution function. More corners than pixels would show no
/// more detail.
const POINTS_MAX: usize = 2000;

/// Share of the errors at each end that is not drawn.
const TAIL: f64 = 0.01;
