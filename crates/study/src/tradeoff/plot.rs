//! Draws SVG charts: errors and bytes per hour against the period, and errors against the test
//! length.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::predictor::Predictor;
use super::scores::{MeasuredSeries, TradeoffScores};
use crate::plot::{FORECAST, MEASURED, xml_text};
use crate::units::{axis_number, format_period};

/// Draws a panel for each series, and a panel for the test lengths if there are several test
/// lengths.
///
/// # Errors
/// A message of the drawing library, or an error if the mean of a series is 0: errors cannot be
/// drawn in % of 0.
pub fn svg(study: &TradeoffScores) -> Result<String, String> {
    if let Some(measured) = study.series.iter().find(|measured| measured.grid.mean() <= 0.0) {
        return Err(format!(
            "the mean of {} is 0, so errors cannot be drawn in % of it",
            xml_text(&measured.name)
        ));
    }
    let shown = study.series.len().min(PANELS_MAX);
    let lengths = by_length(study);
    let panels = shown + usize::from(lengths.len() > 1);
    let mut svg = String::new();
    {
        let height = u32::try_from(panels).map_err(|error| error.to_string())? * PANEL_HEIGHT;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let areas = root.split_evenly((panels, 1));
        for (series, area) in (0..shown).zip(&areas) {
            against_period(area, study, series)?;
        }
        if let (true, Some(area)) = (shown < panels, areas.last()) {
            against_length(area, study, &lengths)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws mean absolute errors in % of the mean, on the left axis, and bytes an hour, on the right.
fn against_period(area: &Area<'_>, study: &TradeoffScores, series: usize) -> Result<(), String> {
    let measured = &study.series[series];
    let body = titled(area, &title(measured))?;
    let error = study.target.map_or_else(String::new, |target| format!(" of {target}"));
    let share = |number: f64| 100.0 * number / measured.grid.mean();
    let rows = || study.rows.iter().filter(|row| row.series == series);
    let top = rows().map(|row| share(row.mae().worst)).fold(1.0, f64::max) * 1.08;
    let ends =
        rows().map(|row| row.period_s).fold((f64::INFINITY, 0.0_f64), |(a, b), s| (a.min(s), b.max(s)));
    let bytes: Vec<(f64, f64)> =
        rows().filter_map(|row| Some((row.period_s, measured.bytes_per_hour(row.period_s)?))).collect();
    let high = bytes.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
    // Without goodput the axis on the right stays empty.
    let right = if high > 0.0 { high / 1e4..high * 2.0 } else { 1.0..10.0 };
    // The axis marks the periods that people use, such as minutes and hours, instead of powers of
    // ten.
    let ticks: Vec<f64> = TICKS_S.into_iter().filter(|s| (ends.0 / 1.2..ends.1 * 1.2).contains(s)).collect();
    let mut chart = ChartBuilder::on(&body)
        .margin(14)
        .x_label_area_size(52)
        .y_label_area_size(86)
        .right_y_label_area_size(if high > 0.0 { 90 } else { 10 })
        .build_cartesian_2d((ends.0 / 1.2..ends.1 * 1.2).log_scale().with_key_points(ticks), 0.0..top)
        .map_err(failed)?
        .set_secondary_coord((ends.0 / 1.2..ends.1 * 1.2).log_scale(), right.log_scale());
    chart
        .configure_mesh()
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK.mix(0.5))
        .x_desc("period between tests")
        .y_desc(format!("mean absolute error{error} (% of the mean)"))
        .axis_desc_style(("sans-serif", 19))
        .label_style(("sans-serif", 17))
        .x_labels(10)
        .y_labels(6)
        .x_label_formatter(&|period_s| format_period(*period_s))
        .y_label_formatter(&|share| axis_number(*share))
        .draw()
        .map_err(failed)?;
    if high > 0.0 {
        chart
            .configure_secondary_axes()
            .y_desc("bytes an hour")
            .axis_desc_style(("sans-serif", 19))
            .label_style(("sans-serif", 17))
            .y_label_formatter(&|bytes| format!("{bytes:.0e}"))
            .draw()
            .map_err(failed)?;
        chart.draw_secondary_series(LineSeries::new(bytes, BYTES.stroke_width(2))).map_err(failed)?;
    }
    for (predictor, colour) in Predictor::ALL.into_iter().zip(COLOURS) {
        let of = || rows().filter(move |row| row.predictor == predictor);
        let mean: Vec<(f64, f64)> = of().map(|row| (row.period_s, share(row.mae().mean))).collect();
        let worst = of().map(|row| (row.period_s, share(row.mae().worst)));
        let dots = mean.iter().map(|at| Circle::new(*at, 3, colour.filled()));
        chart.draw_series(dots).map_err(failed)?;
        chart.draw_series(LineSeries::new(mean.clone(), colour.stroke_width(2))).map_err(failed)?;
        chart.draw_series(DashedLineSeries::new(worst, 4, 5, colour.stroke_width(1))).map_err(failed)?;
    }
    Ok(())
}

/// Length and index of each series with a known test length, the shortest first.
fn by_length(study: &TradeoffScores) -> Vec<(f64, usize)> {
    let known = study.series.iter().enumerate();
    let mut known: Vec<(f64, usize)> =
        known.filter_map(|(i, measured)| Some((measured.length_s?, i))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    known
}

/// Draws the errors at the base period against the test length.
fn against_length(area: &Area<'_>, study: &TradeoffScores, lengths: &[(f64, usize)]) -> Result<(), String> {
    let body = titled(area, "errors at the base period, by test length")?;
    let points = |predictor: Predictor| {
        let point = move |(length_s, i): &(f64, usize)| {
            let row = study.row(*i, 1, predictor)?;
            Some((*length_s, 100.0 * row.mae().mean / study.series[*i].grid.mean()))
        };
        lengths.iter().filter_map(point).collect::<Vec<(f64, f64)>>()
    };
    let all = Predictor::ALL.map(points);
    let top = all.iter().flatten().map(|point| point.1).fold(1.0, f64::max) * 1.08;
    let longest_s = lengths.last().map_or(1.0, |(length_s, _)| *length_s);
    let mut chart = ChartBuilder::on(&body)
        .margin(14)
        .margin_right(28)
        .x_label_area_size(52)
        .y_label_area_size(86)
        .build_cartesian_2d(0.0..longest_s * 1.05, 0.0..top)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK.mix(0.5))
        .x_desc("length of a test (s)")
        .y_desc("mean absolute error (% of the mean)")
        .axis_desc_style(("sans-serif", 19))
        .label_style(("sans-serif", 17))
        .x_label_formatter(&|length_s| axis_number(*length_s))
        .y_label_formatter(&|share| axis_number(*share))
        .draw()
        .map_err(failed)?;
    for (points, colour) in all.into_iter().zip(COLOURS) {
        let dots = points.iter().map(|at| Circle::new(*at, 3, colour.filled()));
        chart.draw_series(dots).map_err(failed)?;
        chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).map_err(failed)?;
    }
    Ok(())
}

fn title(measured: &MeasuredSeries) -> String {
    let length = measured.length_s.map_or_else(String::new, |s| format!(", tests of {} s", axis_number(s)));
    format!("{}{length}", xml_text(&measured.name))
}

/// Draws a title and the legend, and returns the part of the area below them.
fn titled<'a>(area: &Area<'a>, title: &str) -> Result<Area<'a>, String> {
    let (head, rest) = area.split_vertically(HEAD);
    let style = |size: u32| {
        let style = ("sans-serif", size).into_font().into_text_style(area);
        style.pos(Pos::new(HPos::Left, VPos::Center))
    };
    let middle = HEAD / 2 + 4;
    head.draw(&Text::new(title.to_owned(), (24, middle), style(20))).map_err(failed)?;
    let names = Predictor::ALL.map(Predictor::name).into_iter().zip(COLOURS);
    let mut x = 470;
    for (name, colour) in names.chain([("bytes an hour", BYTES)]) {
        let line = PathElement::new([(x, middle), (x + 22, middle)], colour.stroke_width(3));
        head.draw(&line).map_err(failed)?;
        head.draw(&Text::new(name, (x + 28, middle), style(16))).map_err(failed)?;
        x += 52 + name.len() as i32 * 8;
    }
    head.draw(&Text::new("- - worst offset", (x, middle), style(16))).map_err(failed)?;
    Ok(rest)
}

fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    error.to_string()
}

/// Width of a figure, and heights of a panel and its heading, in pixels.
const WIDTH: u32 = 1200;
const PANEL_HEIGHT: u32 = 420;
const HEAD: i32 = 34;

/// Periods that are marked on the axis, in seconds; each period is about three times the period
/// before it.
const TICKS_S: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 43_200.0, 86_400.0, 604_800.0, 2_592_000.0];

/// Maximum number of series that are drawn. The command prints the results of all series as text or
/// JSON.
const PANELS_MAX: usize = 12;

/// Colours of Okabe and Ito (2008) for the predictors in their order; `BYTES` is for the cost.
const COLOURS: [RGBColor; 4] = [MEASURED, RGBColor(230, 159, 0), RGBColor(204, 121, 167), FORECAST];
const BYTES: RGBColor = RGBColor(150, 150, 150);
