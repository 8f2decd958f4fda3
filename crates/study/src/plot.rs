//! Draws a series with the forecasts issued for it, as SVG.

mod axes;

use barograph_forecast::Interval;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use self::axes::tick_label;
use self::axes::{LOGARITHMIC_FROM, TimeAxis, ValueAxis};
use crate::input::Sample;
use crate::units::axis_number;

/// Collects a series of any length for one drawing, in bounded memory.
///
/// Points are grouped in columns of equal counts. If there are more columns than a drawing can
/// show, neighbours are merged. Each column keeps its minimum and maximum, so no outlier is lost.
#[derive(Debug)]
pub struct PlotData {
    columns: Vec<PlotColumn>,
    per_column: u64,
    in_last: u64,
}

impl Default for PlotData {
    fn default() -> Self {
        Self { columns: Vec::new(), per_column: 1, in_last: 0 }
    }
}

/// The texts of a drawing, the level of the forecast's interval, and whether the times are seconds.
#[derive(Clone, Copy, Debug)]
pub struct PlotLabels<'a> {
    /// The name of the series.
    pub title: &'a str,
    /// The unit of the values, or empty.
    pub unit: &'a str,
    /// Level of the interval, 0 to 1.
    pub level: f64,
    /// Whether times are seconds; otherwise they are counts.
    pub timed: bool,
}

impl PlotData {
    /// Adds a value and the median forecast issued for it, with its interval.
    pub fn push(&mut self, sample: Sample, issued: Option<(f64, Option<Interval>)>) {
        let column = PlotColumn::new(sample, issued);
        if self.columns.len() == COLUMNS_MAX {
            self.halve();
        }
        let pause_s = self.pause_s();
        match self.columns.last_mut() {
            Some(last) if self.in_last < self.per_column && column.first_s - last.last_s <= pause_s => {
                *last = last.with(&column);
                self.in_last += 1;
            }
            _ => {
                self.columns.push(column);
                self.in_last = 1;
            }
        }
    }

    /// Merges neighbouring columns to make room. Two columns with a pause between them are merged
    /// only if the other merges do not make enough room, because the merged column would hide the
    /// pause.
    fn halve(&mut self) {
        let pause_s = self.pause_s();
        let merge = |limit_s: f64| {
            let mut merged: Vec<PlotColumn> = Vec::with_capacity(COLUMNS_MAX);
            let mut columns = self.columns.iter().peekable();
            while let Some(column) = columns.next() {
                let partner = columns.next_if(|next| next.first_s - column.last_s <= limit_s);
                merged.push(partner.map_or(*column, |partner| column.with(partner)));
            }
            merged
        };
        let merged = merge(pause_s);
        self.columns = if merged.len() <= COLUMNS_MAX / 4 * 3 { merged } else { merge(f64::INFINITY) };
        self.per_column *= 2;
        self.in_last = self.per_column;
    }

    /// The shortest time without values that is shown as a pause, in seconds: ten times the mean
    /// distance between columns, but at least a hundredth of the time of the whole series.
    fn pause_s(&self) -> f64 {
        let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) else { return 0.0 };
        let mean_s = (last.last_s - first.first_s) / self.columns.len() as f64;
        (mean_s * 10.0).max((last.last_s - first.first_s) / 100.0)
    }

    /// Draws the series as SVG.
    pub fn svg(&self, labels: &PlotLabels<'_>) -> Result<String, String> {
        let (title, unit) = (xml_text(labels.title), xml_text(labels.unit));
        let labels = &PlotLabels { title: &title, unit: &unit, ..*labels };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(|error| error.to_string())?;
            let (head, root) = root.split_vertically(HEAD);
            heading(&head, labels).map_err(|error| error.to_string())?;
            self.draw(&root, labels, self.extent(), MEASURED)?;
            root.present().map_err(|error| error.to_string())?;
        }
        Ok(svg)
    }

    /// Draws the chart without its heading. `extent` is the range of the values, `measured` the
    /// colour of measured values.
    pub(crate) fn draw(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        labels: &PlotLabels<'_>,
        extent: (f64, f64),
        measured: RGBColor,
    ) -> Result<(), String> {
        let (value_axis, logarithmic) = ValueAxis::of(extent);
        let (low, high) = (value_axis.low, value_axis.high);
        if logarithmic {
            self.chart(root, labels, (low..high).log_scale(), &value_axis, measured)
        } else {
            self.chart(root, labels, low..high, &value_axis, measured)
        }
    }

    /// The least and the greatest value or forecast, with some room for the interval. The room is
    /// limited: the first intervals may be wide, and the lines are more important.
    pub(crate) fn extent(&self) -> (f64, f64) {
        let lines = |column: &PlotColumn| {
            column.issued.map_or(column.value, |issued| column.value.with(issued.forecast))
        };
        let Some(lines) = self.columns.iter().map(lines).reduce(ValueRange::with) else { return (0.0, 1.0) };
        let interval = self.columns.iter().filter_map(|column| column.issued?.interval);
        let all = interval.fold(lines, ValueRange::with);
        // Subtract half of each number, because the difference of two large numbers may overflow.
        let room = (lines.high / 2.0 - lines.low / 2.0) * 0.4;
        let low = if lines.low > 0.0 && LOGARITHMIC_FROM * lines.low < lines.high {
            lines.low
        } else {
            all.low.max(lines.low - room)
        };
        (low, all.high.min(lines.high + room))
    }

    /// The columns between pauses of the series. No line is drawn across a pause.
    fn runs(&self) -> Vec<Vec<PlotColumn>> {
        let pause_s = self.pause_s();
        let mut runs: Vec<Vec<PlotColumn>> = vec![Vec::new()];
        let mut end_s = f64::NEG_INFINITY;
        for column in &self.columns {
            let mut column = *column;
            let before_s = std::mem::replace(&mut end_s, column.last_s);
            if let Some(run) = runs.last_mut() {
                if pause_s < column.last_s - column.first_s {
                    // The pause is inside this column, so this column ends a run and the next
                    // column begins a new run.
                    column.last_s = column.first_s;
                    run.push(column);
                    runs.push(Vec::new());
                } else if pause_s < column.first_s - before_s && !run.is_empty() {
                    runs.push(vec![column]);
                } else {
                    run.push(column);
                }
            }
        }
        runs
    }

    fn chart<Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        labels: &PlotLabels<'_>,
        scale: Y,
        value_axis: &ValueAxis,
        colour: RGBColor,
    ) -> Result<(), String>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let failed = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
        let time_axis = TimeAxis::of(&self.columns, labels.timed);
        let (times, values) = (time_axis.range(), value_axis.low..value_axis.high);
        let mut chart = ChartBuilder::on(root)
            .margin(14)
            .margin_right(28)
            .x_label_area_size(52)
            .y_label_area_size(86)
            .build_cartesian_2d(times.clone(), scale)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.5))
            .x_desc(time_axis.name.as_str())
            .y_desc(value_axis.name(labels.unit))
            .axis_desc_style(("sans-serif", 19))
            .label_style(("sans-serif", 17))
            .x_labels(10)
            .y_labels(8)
            .x_label_formatter(&|time| tick_label(*time, &times))
            .y_label_formatter(&|value| tick_label(*value, &values))
            .draw()
            .map_err(failed)?;

        let end = |time: f64, value: f64| (time_axis.at(time), value_axis.at(value));
        for run in self.runs() {
            let issued = || run.iter().filter_map(|column| column.issued.map(|issued| (column, issued)));
            let band =
                || issued().filter_map(|(column, issued)| issued.interval.map(|interval| (column, interval)));
            let upper = band().flat_map(|(c, i)| [end(c.first_s, i.high), end(c.last_s, i.high)]);
            let lower = band().flat_map(|(c, i)| [end(c.first_s, i.low), end(c.last_s, i.low)]);
            let outline: Vec<(f64, f64)> = upper.chain(lower.collect::<Vec<_>>().into_iter().rev()).collect();
            chart.draw_series([Polygon::new(outline, BAND.mix(0.3))]).map_err(failed)?;

            // Draw a column with one point as a point, and a column with several points as a line
            // from its minimum to its maximum.
            let stroke = |column: &PlotColumn, span: ValueRange| {
                [end(column.first_s, span.low), end(column.last_s, span.high)]
            };
            let measured = || run.iter().flat_map(|column| stroke(column, column.value));
            chart.draw_series(LineSeries::new(measured(), colour.stroke_width(1))).map_err(failed)?;
            if self.columns.len() <= DOTS_MAX {
                let dots = measured().map(|point| Circle::new(point, 2, colour.filled()));
                chart.draw_series(dots).map_err(failed)?;
            }
            let forecasts = issued().flat_map(|(column, issued)| stroke(column, issued.forecast));
            chart
                .draw_series(LineSeries::new(forecasts, FORECAST.mix(0.8).stroke_width(1)))
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// Draws the title and the legend, above the chart, so that the chart is not covered.
fn heading(
    head: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    labels: &PlotLabels<'_>,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let middle = HEAD / 2 + 4;
    let left = Pos::new(HPos::Left, VPos::Center);
    head.draw(&Text::new(
        labels.title.to_owned(),
        (24, middle),
        ("sans-serif", 25).into_font().into_text_style(head).pos(left),
    ))?;
    let names = [
        "measured".to_owned(),
        "forecast one step ahead".to_owned(),
        format!("{} % interval", axis_number(labels.level * 100.0)),
    ];
    for (i, (name, x)) in names.into_iter().zip([700, 822, 1048]).enumerate() {
        let ends = [(x, middle), (x + 22, middle)];
        match i {
            0 => head.draw(&PathElement::new(ends, MEASURED.stroke_width(2)))?,
            1 => head.draw(&PathElement::new(ends, FORECAST.stroke_width(2)))?,
            _ => {
                head.draw(&Rectangle::new([(x, middle - 6), (x + 22, middle + 6)], BAND.mix(0.3).filled()))?
            }
        }
        let style = ("sans-serif", 17).into_font().into_text_style(head).pos(left);
        head.draw(&Text::new(name, (x + 28, middle), style))?;
    }
    Ok(())
}

/// The beginning of a text, without the characters that XML does not allow even when escaped (XML
/// 1.0 §2.2), and without other control characters.
pub(crate) fn xml_text(text: &str) -> String {
    let is_drawn = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().filter(is_drawn).take(LABEL_CHARACTERS).collect()
}

/// A column of a drawing: consecutive points of a series, with the range of their values and
/// forecasts.
#[derive(Clone, Copy, Debug)]
struct PlotColumn {
    first_s: f64,
    last_s: f64,
    value: ValueRange,
    issued: Option<IssuedRange>,
}

/// The forecasts and intervals of a column.
#[derive(Clone, Copy, Debug)]
struct IssuedRange {
    forecast: ValueRange,
    interval: Option<ValueRange>,
}

#[derive(Clone, Copy, Debug)]
struct ValueRange {
    low: f64,
    high: f64,
}

impl ValueRange {
    fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

impl PlotColumn {
    fn new(sample: Sample, issued: Option<(f64, Option<Interval>)>) -> Self {
        let point = |value| ValueRange { low: value, high: value };
        Self {
            first_s: sample.time_s,
            last_s: sample.time_s,
            value: point(sample.value),
            issued: issued.map(|(forecast, interval)| IssuedRange {
                forecast: point(forecast),
                interval: interval.map(|interval| ValueRange { low: interval.lower, high: interval.upper }),
            }),
        }
    }

    /// Merges this column with a later one.
    fn with(self, later: &Self) -> Self {
        Self {
            first_s: self.first_s,
            last_s: later.last_s,
            value: self.value.with(later.value),
            issued: either(self.issued, later.issued, |a, b| IssuedRange {
                forecast: a.forecast.with(b.forecast),
                interval: either(a.interval, b.interval, ValueRange::with),
            }),
        }
    }
}

/// Joins both values, or returns the only value that is present.
fn either<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}

/// Height of the title and the legend, in pixels.
const HEAD: i32 = 44;

/// Maximum number of characters of a label: as many as fit beside the legend, or along an axis.
const LABEL_CHARACTERS: usize = 50;

/// Width and height of a drawing, in pixels.
const SIZE: (u32, u32) = (1200, 560);

/// Maximum number of columns: one for each pixel of the width. When this number is reached, merging
/// removes at least a quarter of the columns.
const COLUMNS_MAX: usize = 1200;

/// Maximum number of columns with which single points can be distinguished, so that points are
/// drawn as dots.
const DOTS_MAX: usize = 150;

/// Blue and orange of Okabe and Ito (2008), which people with any kind of colour vision can
/// distinguish.
pub(crate) const MEASURED: RGBColor = RGBColor(0, 90, 150);
pub(crate) const FORECAST: RGBColor = RGBColor(213, 94, 0);
const BAND: RGBColor = RGBColor(230, 159, 0);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn labels() -> PlotLabels<'static> {
        PlotLabels { title: "a <series>", unit: "ms", level: 0.9, timed: true }
    }

    #[test]
    fn a_long_series_is_drawn_in_bounded_memory() {
        let mut data = PlotData::default();
        for i in 0..100_000 {
            let value = if i == 54_321 { 1e6 } else { f64::from(i % 7) + 1.0 };
            let interval = Interval { level: 0.9, lower: value - 1.0, upper: value + 1.0 };
            data.push(Sample { time_s: f64::from(i), value }, Some((value, Some(interval))));
        }
        assert!(data.columns.len() <= COLUMNS_MAX);
        assert_eq!(data.extent(), (1.0, 1e6 + 1.0), "the outlier is kept");
        let svg = data.svg(&labels()).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &lt;series&gt;") && svg.contains("value (ms)"));
        assert!(svg.len() < 300_000, "{}", svg.len());
    }

    #[test]
    fn labels_contain_only_valid_xml_characters() {
        let mut data = PlotData::default();
        data.push(Sample { time_s: 0.0, value: 1.0 }, None);
        let long = "x".repeat(1000);
        for (title, unit) in [("a\u{0}b\n\u{1b}[1m\u{85}", "\u{8}<&>\"'\u{ffff}"), (&long, &long), ("", "")] {
            let svg = data.svg(&PlotLabels { title, unit, ..labels() }).unwrap();
            assert!(!svg.contains(|c: char| c != '\n' && c.is_control() || c == '\u{ffff}'), "{svg:?}");
            assert!(!svg.contains("<&>") && svg.len() < 10_000, "{svg}");
        }
    }

    #[test]
    fn no_line_is_drawn_across_a_pause() {
        let mut data = PlotData::default();
        for i in 0..100_000 {
            let time_s = if i < 30_000 { f64::from(i) } else { f64::from(i) + 50_000.0 };
            data.push(Sample { time_s, value: 1.0 }, None);
        }
        let runs = data.runs();
        assert_eq!(runs.len(), 2);
        let end_s = runs[0].last().unwrap().last_s;
        assert_eq!((end_s, runs[1][0].first_s), (29_999.0, 80_000.0));
    }

    #[test]
    fn empty_and_extreme_series_are_drawn() {
        let series: [&[(f64, f64)]; 10] = [
            &[],
            &[(0.0, 0.0)],
            &[(7.0, -3.0)],
            &[(0.0, 5.0), (0.0, 5.0)],
            &[(0.0, 1e308), (1.0, -1e308)],
            &[(0.0, 5e-324), (1.0, 1e300)],
            &[(0.0, 5e-324), (1.0, 0.0)],
            &[(-1e308, 1.0), (1e308, 2.0)],
            &[(1e300, 1e9), (1e300, 1e9 + 1e-6)],
            &[(1e9, 1.0), (1e9 + 1e-6, 2.0)],
        ];
        for values in series {
            let mut data = PlotData::default();
            for (time_s, value) in values.iter().copied() {
                data.push(Sample { time_s, value }, Some((value, None)));
            }
            let svg = data.svg(&labels()).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}");
        }
    }
}
