//! The paper's Figures 4 to 6 and its Table 2, with our windows.

use barograph_loss::{CurveReport, FitReport, Label, LabelledWindow, fit_paper};

use super::judge::{BANDS, Kinds, Method, Split, cause_name, is_in_range, lengths, rates, runs, those};
use super::tables::{TABLE_2, three};
use crate::figure::{Axis, Chart, Layer, Shape, charts, highest, ticks};
use crate::table::{Table, cells, dash, joined};

pub(crate) type Figure = (String, String);

/// Figures 4 to 6 for the two longest window lengths, each for the paper's kinds and for all kinds;
/// then Figures 4 and 5 for each kind of queue, see [`of_queues`].
pub(crate) fn figures(windows: &[LabelledWindow]) -> anyhow::Result<Vec<Figure>> {
    let chosen: Vec<u32> = lengths(windows).into_iter().rev().take(2).collect();
    let mut panels: [Vec<Chart>; 3] = Default::default();
    for (packets, kinds) in
        chosen.iter().flat_map(|packets| [(*packets, Kinds::Papers), (*packets, Kinds::All)])
    {
        let has = |window: &&LabelledWindow| window.signature.packets() == packets && kinds.has(&window.kind);
        let of: Vec<&LabelledWindow> = windows.iter().filter(has).collect();
        let title = format!("{}, {packets} packets", kinds.name());
        panels[0].push(figure_4(&title, &of));
        panels[1].push(figure_5(&title, &of));
        let owned: Vec<LabelledWindow> = of.into_iter().cloned().collect();
        if let Ok(fit) = fit_paper(&owned) {
            panels[2]
                .extend(FitReport::of(&fit.classifier, &owned).iter().map(|report| figure_6(&title, report)));
        }
    }
    let mut figures = Vec::new();
    for (number, panels) in (4..).zip(&panels) {
        figures.push((format!("loss-figure-{number}.svg"), charts(panels, 2)?));
    }
    figures.extend(of_queues(windows)?);
    Ok(figures)
}

/// Figures 4 and 5 for each kind of queue in the set, for the two longest window lengths. A figure
/// without panels is left out.
pub(crate) fn of_queues(windows: &[LabelledWindow]) -> anyhow::Result<Vec<Figure>> {
    let chosen: Vec<u32> = lengths(windows).into_iter().rev().take(2).collect();
    let (queues, mut figures) = (queues(windows, &chosen), Vec::new());
    let mut add = |number: u32, panels: Vec<Chart>| -> anyhow::Result<()> {
        if !panels.is_empty() {
            figures.push((format!("loss-figure-{number}-queues.svg"), charts(&panels, 2)?));
        }
        Ok(())
    };
    add(4, queues.iter().map(|(title, of)| figure_4(title, of)).collect())?;
    let has_low =
        |of: &[&LabelledWindow]| of.iter().any(|window| window.cause == Label::Network && is_low(window));
    add(5, queues.iter().filter(|(_, of)| has_low(of)).map(|(title, of)| figure_5(title, of)).collect())?;
    Ok(figures)
}

/// Whether the paper decides by the success proportion at the loss rate of this window.
fn is_low(window: &LabelledWindow) -> bool {
    (BANDS[0]..BANDS[1]).contains(&window.signature.loss_rate())
}

/// One title and its windows for each kind of queue that does not drop its tail (Dickens §7.2): the
/// windows that the queue lost beside all windows that the CPU lost.
fn queues<'a>(windows: &'a [LabelledWindow], lengths: &[u32]) -> Vec<(String, Vec<&'a LabelledWindow>)> {
    let mut queues = Vec::new();
    for (kind, packets) in QUEUES.iter().flat_map(|kind| lengths.iter().map(move |packets| (*kind, *packets)))
    {
        let of_length = windows.iter().filter(|window| window.signature.packets() == packets);
        let of: Vec<&LabelledWindow> =
            of_length.filter(|window| window.cause == Label::Host || window.kind == kind).collect();
        if of.iter().any(|window| window.kind == kind) {
            queues.push((format!("{kind}, {packets} packets"), of));
        }
    }
    queues
}

/// Kinds of queues: random early detection (RED), controlled delay (CoDel), queues in series.
const QUEUES: [&str; 3] = ["red", "codel", "series"];

fn figure_4(title: &str, windows: &[&LabelledWindow]) -> Chart {
    let layer = |cause, colour| {
        let point = |window: &&&LabelledWindow| (window.signature.loss_rate(), window.metrics.complexity);
        let of = windows.iter().filter(|window| window.cause == cause && is_in_range(window));
        Layer::new(cause_name(cause), Shape::Dots, of.map(|window| point(&window)).collect(), colour)
    };
    let layers = vec![layer(Label::Network, NETWORK), layer(Label::Host, CPU)];
    Chart::new(title, loss_rates(BANDS[0]), complexity(), layers)
}

/// Distribution of success proportions at low loss rates, in 100 bins (Dickens §3.1.5).
fn figure_5(title: &str, windows: &[&LabelledWindow]) -> Chart {
    let layer = |cause, colour| {
        let of: Vec<f64> = windows
            .iter()
            .filter(|window| window.cause == cause && is_low(window))
            .map(|window| window.metrics.success_proportion)
            .collect();
        let mut counts = [0u32; 100];
        of.iter().for_each(|share| counts[((share * 100.0) as usize).min(99)] += 1);
        let points = (0..100).zip(counts).filter(|(_, count)| *count > 0);
        let points =
            points.map(|(bin, count)| (f64::from(bin) / 100.0, 100.0 * f64::from(count) / of.len() as f64));
        let name = format!("{}, {} windows", cause_name(cause), of.len());
        Layer::new(name, Shape::Bars(0.01), points.collect(), colour)
    };
    let layers = vec![layer(Label::Network, NETWORK), layer(Label::Host, CPU)];
    let (x, y) = (Axis::linear("success proportion", 0.0, 1.0), ("% of the windows", highest(&layers)));
    Chart::new(format!("{title}, loss 0.00008–0.0005"), x, Axis::linear(y.0, 0.0, y.1), layers)
}

/// Mean complexity of each bin with its 95 % confidence interval, and the fitted curves.
fn figure_6(title: &str, report: &FitReport) -> Chart {
    let mut layers = Vec::new();
    for (cause, of, colour) in [(Label::Network, &report.network, NETWORK), (Label::Host, &report.host, CPU)]
    {
        let name = cause_name(cause);
        let rate = |share: i32| BANDS[1] * (BANDS[4] / BANDS[1]).powf(f64::from(share) / 100.0);
        let curve = (0..=100).map(|share| (rate(share), of.curve.at(rate(share)).mean)).collect();
        layers.push(Layer::new(format!("{name}, fitted"), Shape::Thin, curve, colour));
        let mut means = Vec::new();
        for bin in &of.bins {
            let Some(complexity) = bin.complexity else { continue };
            let at = (bin.from * bin.to).sqrt();
            let half = NORMAL_95 * complexity.sd / ((bin.windows - bin.outliers) as f64).sqrt();
            let bar = vec![(at, complexity.mean - half), (at, complexity.mean + half)];
            layers.push(Layer::new("", Shape::Thin, bar, colour));
            means.push((at, complexity.mean));
        }
        layers.push(Layer::new(format!("{name}, mean of a bin"), Shape::Dots, means, colour));
    }
    Chart::new(title, loss_rates(BANDS[1]), complexity(), layers)
}

fn loss_rates(low: f64) -> Axis {
    let marks = [1e-4, 5e-4, 2e-3, 1e-2, 5e-2];
    Axis::log("loss rate", low, BANDS[4]).with_ticks(ticks(&marks, ""))
}

/// Axis from the complexity of a single loss, 0.245, to that of a random string.
fn complexity() -> Axis {
    Axis::linear("complexity, log2(Na(17)) / 17", 0.2, 0.8)
        .with_ticks(ticks(&[0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], ""))
}

const CPU: usize = 1;
const NETWORK: usize = 0;

/// Half the width of a 95 % interval of a normal distribution, in standard errors.
const NORMAL_95: f64 = 1.96;

/// Table 2 of the paper and the errors of its Table 1, beside the errors of the paper's classifier
/// on our windows. No window was judged by a model fitted on its run.
pub(crate) fn table_2(windows: &[LabelledWindow], seed: u64) -> anyhow::Result<String> {
    let mut table = Table::new(["cause", "metric", "windows (runs)", "right", "wrong", "inconclusive"]);
    for (cause, metric, numbers) in &TABLE_2 {
        let numbers = numbers.map(str::to_owned);
        table.push(
            cells![cause_name(*cause), format!("{metric}, **the paper's**"), ""].into_iter().chain(numbers),
        );
    }
    let judged = Split::Five.classify(windows, seed)?;
    for packets in lengths(windows) {
        for (kinds, method) in [(Kinds::Papers, Method::Paper), (Kinds::All, Method::PaperOfAll)] {
            for (cause, is_low) in
                [(Label::Network, false), (Label::Network, true), (Label::Host, false), (Label::Host, true)]
            {
                let of = those(&judged, |window| {
                    let LabelledWindow { signature, kind, .. } = window;
                    let is_of = window.cause == cause && signature.packets() == packets && kinds.has(kind);
                    is_of && is_in_range(window) && (signature.loss_rate() < BANDS[1]) == is_low
                });
                if !of.is_empty() {
                    let metric = if is_low { "success proportion" } else { "complexity" };
                    let metric = format!("{metric}, {packets} packets, {}", kinds.name());
                    let row = cells![cause_name(cause), metric, format!("{} ({})", of.len(), runs(&of))];
                    table.push(row.into_iter().chain(three(rates(&of, method, seed).as_ref())));
                }
            }
        }
    }
    Ok(format!("\n## Table 2: the paper's classifier (%)\n\nOurs five-fold by run.\n\n{table}"))
}

/// The fitted curves, and whether windows of similar loss rates are normally distributed around
/// them (Dickens §3.2).
pub(crate) fn normality(windows: &[LabelledWindow]) -> String {
    let mut text = "\n## The paper's curves and the test of Shapiro and Wilk (§3.1.6, §3.2)\n\n".to_owned();
    let mut table = Table::titled(
        "kinds | packets | cause | complexity at loss p | SD | within 1, 2, 3 SD, % | \
         bins: windows without outliers (outliers), W, p",
    );
    for kinds in [Kinds::Papers, Kinds::All] {
        let of: Vec<LabelledWindow> =
            windows.iter().filter(|window| kinds.has(&window.kind)).cloned().collect();
        let fit = match fit_paper(&of) {
            Ok(fit) => fit,
            Err(error) => {
                text += &format!("{}: {error}\n\n", kinds.name());
                continue;
            }
        };
        for left_out in &fit.left_out {
            text += &format!("{}, {left_out}\n\n", kinds.name());
        }
        for report in FitReport::of(&fit.classifier, &of) {
            for (cause, curve) in [(Label::Network, &report.network), (Label::Host, &report.host)] {
                let row = cells![kinds.name(), report.packets, cause_name(cause)];
                table.push(row.into_iter().chain(curve_cells(curve)));
            }
        }
    }
    text + &table.to_string()
}

fn curve_cells(report: &CurveReport) -> [String; 4] {
    let curve = &report.curve;
    let mut formula = format!("{:.3} exp({:.3} p)", curve.a, curve.b);
    if curve.c != 0.0 {
        formula += &format!(" {:+.3} exp({:.0} p)", curve.c, curve.d);
    }
    let bins = report.bins.iter().filter(|bin| bin.windows > 0).map(|bin| {
        let tested = bin.normality.map_or(dash(), |test| format!("{:.3}, {:.3}", test.w, test.p));
        format!("{}–{}: {} ({}), {tested}", bin.from, bin.to, bin.windows - bin.outliers, bin.outliers)
    });
    let (tested, normal) = report.normal_bins();
    let bins = format!("{}; normal by p ≥ 0.05: {normal} of {tested}", joined(bins, "; "));
    let within = report
        .within
        .map_or(dash(), |shares| joined(shares.map(|share| format!("{:.0}", 100.0 * share)), ", "));
    [formula, format!("{:.3}", curve.sd), within, bins]
}
