//! Output of `barograph compare`.

use std::io::{self, Write};

use barograph_study::ForecastTarget;
use barograph_study::compare::{
    ComparedSeries, Histogram, Moments, OUTLIER_FACTOR, Outlier, OutlierCause, Preference, SeriesComparison,
    TcpCounters,
};
use barograph_study::units::format_significant;
use serde::Serialize;

use crate::forecast::horizon::HorizonAnswer;

/// Texts that are printed with the numbers: the unit, the names of the series, the quantity and the
/// methods, and what was forecast if it was not the next value.
pub(super) struct Labels<'a> {
    pub(super) a: &'a str,
    pub(super) b: &'a str,
    pub(super) unit: &'a str,
    pub(super) quantity: Option<&'a str>,
    pub(super) methods: &'a str,
    pub(super) target: Option<ForecastTarget>,
}

/// Writes the comparison as text.
pub(super) fn text(out: &mut impl Write, study: &SeriesComparison, labels: &Labels<'_>) -> io::Result<()> {
    let SeriesComparison { a, b, pairing, outliers, .. } = study;
    let unit = if labels.unit.is_empty() { String::new() } else { format!(" {}", labels.unit) };
    let better = match study.better {
        Preference::Larger => "larger is better",
        Preference::Smaller => "smaller is better",
    };
    writeln!(out, "{}, {better}", labels.quantity.unwrap_or("values"))?;
    for (letter, name, side) in [("A", labels.a, a), ("B", labels.b, b)] {
        let Moments { count, mean, variance } = side.moments;
        let variance = variance.map_or_else(|| "unknown".to_owned(), format_significant);
        writeln!(
            out,
            "{letter}  {name}: n {count}, mean {}{unit}, variance (n − 1) {variance}",
            format_significant(mean)
        )?;
    }
    writeln!(
        out,
        "pairs by nearest time: {}; left over: {} of A, {} of B; time between the values of a pair: median {} s, largest {} s",
        pairing.pairs.len(),
        pairing.unpaired_a,
        pairing.unpaired_b,
        format_significant(pairing.time_difference_median_s),
        format_significant(pairing.time_difference_max_s),
    )?;
    study.warnings().iter().try_for_each(|doubt| writeln!(out, "warning: {doubt}"))?;
    writeln!(
        out,
        "coefficient {} (least squares through the origin; below 1: B reports worse): {}; without outliers: {}",
        study.better.coefficient_formula(),
        coefficient(study.coefficient),
        coefficient(study.without_outliers),
    )?;
    writeln!(out, "outliers (≥ {OUTLIER_FACTOR} × median): {}", outliers.len())?;
    outliers.iter().try_for_each(|outlier| writeln!(out, "  {}", line(outlier, &unit)))?;
    let target = labels.target.map_or_else(String::new, |target| format!(" of {target}"));
    writeln!(out, "forecast errors{target} (measured − forecast by {}):", labels.methods)?;
    for (letter, side) in [("A", a), ("B", b)] {
        let mae = side.mae().map_or_else(|| "unknown".to_owned(), format_significant);
        writeln!(out, "  {letter}: n {}, mean absolute error {mae}{unit}", side.errors.len())?;
    }
    distribution(out, a, b, &unit)?;
    match (study.distance, study.distance_critical) {
        (Some(distance), Some(critical)) => {
            let windows = labels.target.map_or_else(String::new, |_| {
                format!(", in {} and {} windows that do not overlap", a.windows, b.windows)
            });
            writeln!(
                out,
                "Kolmogorov–Smirnov distance of the errors: {distance:.4} (n {} and {}{windows}; 5 % of independent samples exceed {critical:.4})",
                a.errors.len(),
                b.errors.len(),
            )
        }
        _ => writeln!(
            out,
            "Kolmogorov–Smirnov distance of the errors: unknown, because there are no forecasts"
        ),
    }
}

/// Writes the non-empty bins of both error histograms: counts and cumulative shares.
fn distribution(out: &mut impl Write, a: &ComparedSeries, b: &ComparedSeries, unit: &str) -> io::Result<()> {
    let (bins_a, bins_b) = (&a.histogram, &b.histogram);
    if a.errors.is_empty() && b.errors.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  {:>14}  {:>8} {:>8}  {:>8} {:>8}",
        format!("error <{unit}"),
        "A",
        "up to",
        "B",
        "up to"
    )?;
    let share =
        |shares: &[f64], bin: usize| shares.get(bin).map_or_else(|| "–".into(), |s| format!("{s:.4}"));
    let mut row = |edge: String, counts: [u64; 2], shares: [String; 2]| {
        let ([a, b], [share_a, share_b]) = (counts, shares);
        writeln!(out, "  {edge:>14}  {a:>8} {share_a:>8}  {b:>8} {share_b:>8}")
    };
    if bins_a.below + bins_b.below > 0 {
        row("below".to_owned(), [bins_a.below, bins_b.below], [String::new(), String::new()])?;
    }
    let (shares_a, shares_b) = (bins_a.cumulative(), bins_b.cumulative());
    for (bin, counts) in bins_a.counts.iter().zip(&bins_b.counts).enumerate() {
        if counts != (&0, &0) {
            let shares = [share(&shares_a, bin), share(&shares_b, bin)];
            row(format_significant(bins_a.edge(bin + 1)), [*counts.0, *counts.1], shares)?;
        }
    }
    if bins_a.above + bins_b.above > 0 {
        row("above".to_owned(), [bins_a.above, bins_b.above], ["1.0000".to_owned(), "1.0000".to_owned()])?;
    }
    Ok(())
}

/// Formats one outlier as a line.
fn line(outlier: &Outlier, unit: &str) -> String {
    let value = |value: f64, is_outlier: bool, kernel: TcpCounters| {
        let mut text = format!("{}{unit}", format_significant(value));
        if is_outlier {
            text += " (outlier)";
        }
        if let Some(retrans) = kernel.retrans {
            text += &format!(", {retrans} retransmitted");
        }
        if let Some(min_rtt_s) = kernel.min_rtt_s {
            text += &format!(", min RTT {} s", format_significant(min_rtt_s));
        }
        text
    };
    let cause = match outlier.cause {
        OutlierCause::Network => "network",
        OutlierCause::Unexplained => "unexplained",
    };
    let a = value(outlier.a, outlier.is_a, outlier.kernel_a);
    let b = value(outlier.b, outlier.is_b, outlier.kernel_b);
    format!("time {} s: A {a}; B {b}: {cause}", outlier.time_s)
}

/// Writes the comparison as one line of JSON.
pub(super) fn json(out: &mut impl Write, study: &SeriesComparison, labels: &Labels<'_>) -> io::Result<()> {
    let SeriesComparison { pairing, .. } = study;
    let answer = Answer {
        quantity: labels.quantity,
        unit: labels.unit,
        better: study.better,
        a: SideAnswer::of(labels, labels.a, &study.a),
        b: SideAnswer::of(labels, labels.b, &study.b),
        pairs: Pairs {
            count: pairing.pairs.len(),
            left_a: pairing.unpaired_a,
            left_b: pairing.unpaired_b,
            distance_median_s: pairing.time_difference_median_s,
            distance_max_s: pairing.time_difference_max_s,
        },
        coefficient: study.coefficient,
        coefficient_without_outliers: study.without_outliers,
        outliers: &study.outliers,
        methods: labels.methods,
        horizon: labels.target.map(HorizonAnswer::from),
        ks_distance: study.distance,
        doubts: study.warnings(),
        ks_critical_5_percent: study.distance_critical,
    };
    serde_json::to_writer(&mut *out, &answer)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Answer<'a> {
    quantity: Option<&'a str>,
    unit: &'a str,
    better: Preference,
    a: SideAnswer<'a>,
    b: SideAnswer<'a>,
    pairs: Pairs,
    coefficient: Option<f64>,
    coefficient_without_outliers: Option<f64>,
    outliers: &'a [Outlier],
    methods: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    horizon: Option<HorizonAnswer>,
    ks_distance: Option<f64>,
    doubts: Vec<String>,
    ks_critical_5_percent: Option<f64>,
}

#[derive(Serialize)]
struct Pairs {
    count: usize,
    left_a: usize,
    left_b: usize,
    distance_median_s: f64,
    distance_max_s: f64,
}

#[derive(Serialize)]
struct SideAnswer<'a> {
    name: &'a str,
    #[serde(flatten)]
    moments: Moments,
    median: f64,
    errors: Errors<'a>,
}

#[derive(Serialize)]
struct Errors<'a> {
    count: usize,
    /// Number of windows that do not overlap; only at a horizon.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows: Option<usize>,
    mean_absolute: Option<f64>,
    /// Lower edge of the first bin.
    histogram_from: f64,
    histogram: &'a Histogram,
    /// Share of the errors below the upper edge of each bin.
    cdf: Vec<f64>,
}

impl<'a> SideAnswer<'a> {
    fn of(labels: &Labels<'_>, name: &'a str, side: &'a ComparedSeries) -> Self {
        let ComparedSeries { errors, histogram, windows, .. } = side;
        let errors = Errors {
            count: errors.len(),
            windows: labels.target.map(|_| *windows),
            mean_absolute: side.mae(),
            histogram_from: histogram.edge(0),
            histogram,
            cdf: histogram.cumulative(),
        };
        Self { name, moments: side.moments, median: side.median, errors }
    }
}

fn coefficient(coefficient: Option<f64>) -> String {
    coefficient.map_or_else(|| "unknown".to_owned(), |c| format!("{c:.4}"))
}
