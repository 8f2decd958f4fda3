//! Draws a series with the forecasts issued for it, as SVG.

use barograph_forecast::Interval;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::input::Sample;

/// Remembers a series of any length in bounded memory, for one drawing.
///
/// Points are gathered in columns of equal counts; when there are more columns than a drawing can
/// show, neighbours are merged. Of each column the extremes remain, so no outlier is lost.
#[derive(Debug)]
pub struct Recorder {
    columns: Vec<Column>,
    per_column: u64,
    in_last: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { columns: Vec::new(), per_column: 1, in_last: 0 }
    }
}

/// What a drawing says beside its lines.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The name of the series.
    pub title: &'a str,
    /// The unit of its values, or empty.
    pub unit: &'a str,
    /// The level of the interval.
    pub level: f64,
    /// Whether times are seconds, not counts.
    pub timed: bool,
}

impl Recorder {
    /// Adds a value and the median forecast issued for it, with its interval.
    pub fn push(&mut self, sample: Sample, issued: Option<(f64, Option<Interval>)>) {
        let column = Column::new(sample, issued);
        if self.in_last == self.per_column || self.columns.is_empty() {
            if self.columns.len() == COLUMNS_MAX {
                self.columns =
                    self.columns.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], Column::with)).collect();
                self.per_column *= 2;
            }
            self.columns.push(column);
            self.in_last = 1;
        } else if let Some(last) = self.columns.last_mut() {
            *last = last.with(&column);
            self.in_last += 1;
        }
    }

    /// The drawing.
    ///
    /// # Errors
    /// What the drawing library could not do.
    pub fn svg(&self, labels: &Labels<'_>) -> Result<String, String> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(|error| error.to_string())?;
            let values = self.extent();
            if LOGARITHMIC_FROM * values.0 < values.1 && 0.0 < values.0 {
                let (low, high) = (values.0 / 1.3, values.1 * 1.3);
                self.chart(&root, labels, (low..high).log_scale(), (low, high))?;
            } else {
                let margin = match values.1 - values.0 {
                    span if 0.0 < span && span.is_finite() => span * 0.06,
                    _ => values.0.abs().max(1e-6) * 0.06,
                };
                let (low, high) = (values.0 - margin, values.1 + margin);
                self.chart(&root, labels, low..high, (low, high))?;
            }
            root.present().map_err(|error| error.to_string())?;
        }
        Ok(svg)
    }

    /// The least and the greatest value or forecast. The interval is left out: its first guesses
    /// may be wide, and the lines are what the eye looks for.
    fn extent(&self) -> (f64, f64) {
        let of = |column: &Column| {
            let forecast = column.issued.map_or(column.value, |issued| issued.forecast);
            (column.value.low.min(forecast.low), column.value.high.max(forecast.high))
        };
        let whole = (f64::INFINITY, f64::NEG_INFINITY);
        let (low, high) = self.columns.iter().map(of).fold(whole, |a, b| (a.0.min(b.0), a.1.max(b.1)));
        if low <= high { (low, high) } else { (0.0, 1.0) }
    }

    fn chart<Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        labels: &Labels<'_>,
        scale: Y,
        (low, high): (f64, f64),
    ) -> Result<(), String>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let failed = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
        let clock = Clock::of(&self.columns, labels.timed);
        let times = clock.range(&self.columns);
        let mut chart = ChartBuilder::on(root)
            .caption(labels.title, ("sans-serif", 26))
            .margin(14)
            .margin_right(28)
            .x_label_area_size(52)
            .y_label_area_size(86)
            .build_cartesian_2d(times, scale)
            .map_err(failed)?;
        let unit =
            if labels.unit.is_empty() { "value".to_owned() } else { format!("value ({})", labels.unit) };
        chart
            .configure_mesh()
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .axis_style(BLACK.mix(0.5))
            .x_desc(clock.name)
            .y_desc(unit)
            .axis_desc_style(("sans-serif", 19))
            .label_style(("sans-serif", 17))
            .x_labels(10)
            .y_labels(8)
            .x_label_formatter(&|time| short(*time))
            .y_label_formatter(&|value| short(*value))
            .draw()
            .map_err(failed)?;

        let issued = || self.columns.iter().filter_map(|column| column.issued.map(|issued| (column, issued)));
        let band =
            || issued().filter_map(|(column, issued)| issued.interval.map(|interval| (column, interval)));
        let end = |time: f64, value: f64| (clock.at(time), value.clamp(low, high));
        let upper = band().flat_map(|(c, i)| [end(c.first_s, i.high), end(c.last_s, i.high)]);
        let lower = band().flat_map(|(c, i)| [end(c.first_s, i.low), end(c.last_s, i.low)]);
        let outline: Vec<(f64, f64)> = upper.chain(lower.collect::<Vec<_>>().into_iter().rev()).collect();
        chart
            .draw_series([Polygon::new(outline, BAND.mix(0.3))])
            .map_err(failed)?
            .label(format!("{} % interval", short(labels.level * 100.0)))
            .legend(|(x, y)| Rectangle::new([(x, y - 6), (x + 24, y + 6)], BAND.mix(0.3).filled()));

        let line = |column: &Column, span: Span| {
            // A column of one point is a point; a wider one is a stroke between its extremes.
            [(column.first_s, span.low), (column.last_s, span.high)].map(|(time, value)| end(time, value))
        };
        chart
            .draw_series(LineSeries::new(
                self.columns.iter().flat_map(|column| line(column, column.value)),
                MEASURED.stroke_width(1),
            ))
            .map_err(failed)?
            .label("measured")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], MEASURED.stroke_width(2)));
        if self.columns.len() <= DOTS_MAX {
            chart
                .draw_series(
                    self.columns
                        .iter()
                        .flat_map(|column| line(column, column.value))
                        .map(|point| Circle::new(point, 2, MEASURED.filled())),
                )
                .map_err(failed)?;
        }
        chart
            .draw_series(LineSeries::new(
                issued().flat_map(|(column, issued)| line(column, issued.forecast)),
                FORECAST.stroke_width(1),
            ))
            .map_err(failed)?
            .label("forecast one step ahead")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], FORECAST.stroke_width(2)));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.25))
            .label_font(("sans-serif", 17))
            .legend_area_size(34)
            .margin(8)
            .draw()
            .map_err(failed)
    }
}

/// Neighbouring points of a series.
#[derive(Clone, Copy, Debug)]
struct Column {
    first_s: f64,
    last_s: f64,
    value: Span,
    issued: Option<IssuedSpan>,
}

/// The forecasts and intervals of a column.
#[derive(Clone, Copy, Debug)]
struct IssuedSpan {
    forecast: Span,
    interval: Option<Span>,
}

/// From the least to the greatest of some numbers.
#[derive(Clone, Copy, Debug)]
struct Span {
    low: f64,
    high: f64,
}

impl Span {
    fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

impl Column {
    fn new(sample: Sample, issued: Option<(f64, Option<Interval>)>) -> Self {
        let point = |value| Span { low: value, high: value };
        Self {
            first_s: sample.time_s,
            last_s: sample.time_s,
            value: point(sample.value),
            issued: issued.map(|(forecast, interval)| IssuedSpan {
                forecast: point(forecast),
                interval: interval.map(|interval| Span { low: interval.lower, high: interval.upper }),
            }),
        }
    }

    /// This column and a later one as one.
    fn with(self, later: &Self) -> Self {
        Self {
            first_s: self.first_s,
            last_s: later.last_s,
            value: self.value.with(later.value),
            issued: either(self.issued, later.issued, |a, b| IssuedSpan {
                forecast: a.forecast.with(b.forecast),
                interval: either(a.interval, b.interval, Span::with),
            }),
        }
    }
}

/// Both joined, or the one there is.
fn either<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}

/// The unit of the time axis.
struct Clock {
    name: &'static str,
    unit_s: f64,
}

impl Clock {
    /// A unit that gives numbers of at most three digits or so.
    fn of(columns: &[Column], timed: bool) -> Self {
        let last_s = columns.iter().map(|column| column.last_s.abs()).fold(0.0, f64::max);
        let (name, unit_s) = match last_s {
            _ if !timed => ("measurement", 1.0),
            s if s <= 600.0 => ("time (s)", 1.0),
            s if s <= 4.0 * 3600.0 => ("time (min)", 60.0),
            s if s <= 4.0 * 86_400.0 => ("time (h)", 3600.0),
            _ => ("time (days)", 86_400.0),
        };
        Self { name, unit_s }
    }

    fn at(&self, time_s: f64) -> f64 {
        time_s / self.unit_s
    }

    fn range(&self, columns: &[Column]) -> std::ops::Range<f64> {
        let first = columns.first().map_or(0.0, |column| self.at(column.first_s));
        let last = columns.last().map_or(1.0, |column| self.at(column.last_s));
        // One point, or all at one time, still needs an axis.
        if first < last { first..last } else { first - 0.5..first + 0.5 }
    }
}

/// A number on an axis.
fn short(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{number:.1e}");
    }
    let text = format!("{number:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Wide enough for a page, in pixels.
const SIZE: (u32, u32) = (1200, 560);

/// About one column a pixel; merging halves their number.
const COLUMNS_MAX: usize = 1200;

/// Up to here single points can be told apart.
const DOTS_MAX: usize = 150;

/// Values that span more than this factor are drawn on a logarithmic scale, or all but the outliers
/// would be one flat line.
const LOGARITHMIC_FROM: f64 = 100.0;

/// Blue and orange of Okabe and Ito (2008), which people of all kinds of colour vision can tell apart.
const MEASURED: RGBColor = RGBColor(0, 90, 150);
const FORECAST: RGBColor = RGBColor(213, 94, 0);
const BAND: RGBColor = RGBColor(230, 159, 0);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn labels() -> Labels<'static> {
        Labels { title: "a <series>", unit: "ms", level: 0.9, timed: true }
    }

    #[test]
    fn any_series_is_drawn_in_bounded_memory() {
        let mut recorder = Recorder::default();
        for i in 0..100_000 {
            let value = if i == 54_321 { 1e6 } else { f64::from(i % 7) + 1.0 };
            let interval = Interval { level: 0.9, lower: value - 1.0, upper: value + 1.0 };
            recorder.push(Sample { time_s: f64::from(i), value }, Some((value, Some(interval))));
        }
        assert!(recorder.columns.len() <= COLUMNS_MAX);
        assert_eq!(recorder.extent(), (1.0, 1e6), "the outlier is kept");
        let svg = recorder.svg(&labels()).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &lt;series&gt;") && svg.contains("value (ms)"));
        assert!(svg.len() < 300_000, "{}", svg.len());
    }

    #[test]
    fn odd_series_are_drawn() {
        for values in [&[][..], &[0.0], &[5.0, 5.0], &[1e308, -1e308], &[5e-324, 1e300], &[-3.0]] {
            let mut recorder = Recorder::default();
            for value in values {
                recorder.push(Sample { time_s: 0.0, value: *value }, None);
            }
            let svg = recorder.svg(&labels()).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}");
        }
    }
}
