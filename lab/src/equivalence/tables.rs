//! All results: the paper's tables 1 to 6 and table 7 as Markdown, the same as one JSON object, and
//! the figures 4 to 9.

use std::path::Path;

use anyhow::anyhow;
use barograph_study::compare::plot::{FigureRow, Panel, svg};
use barograph_study::compare::{ComparedSeries, Moments, OutlierCause, SeriesComparison, format_significant};
use serde_json::{Value, json as object};

use super::collect::{Buffers, Centre, DirectionRates, EXCHANGES, LinkStudy, NATIVE_BYTES, Overhead, Rates};
use super::programs::{Quantity, Ready};
use super::{ClockName, REGIME, Results, Variation, by_scatter};
use crate::machine;
use crate::output::save;
use crate::stats::{median, range};
use crate::table::{Table, cells, dash, list, number, shown};

pub(crate) fn all(results: &Results) -> String {
    let Results { links, browsers, buffers, rates, overhead, jitter, is_cancelled } = results;
    let stopped =
        if *is_cancelled { "**Stopped early: the tables show the pairs made until then.**\n\n" } else { "" };
    [
        format!("# Native against browser\n\n{stopped}"),
        link_table(links, *jitter),
        machines(browsers),
        moments(links, Quantity::Goodput),
        moments(links, Quantity::Rtt),
        coefficients(links),
        outliers(links),
        control(buffers),
        page(rates),
        added(overhead),
    ]
    .concat()
}

fn link_table(studies: &[LinkStudy], jitter: Option<Variation>) -> String {
    let jitter = jitter.map(|Variation { one_way_s, round_trip_s, mean_one_way_s, .. }| {
        let [one_way, round_trip, mean] = [one_way_s, round_trip_s, mean_one_way_s].map(|s| format_significant(s * 1e3));
        format!(
            "The emulated links replay seeded delays in each direction. Their standard deviation is {one_way} ms one way and \
             {round_trip} ms for a packet and its answer; their mean, {mean} ms one way, is part of the link's delay.\n"
        )
    });
    let mut table =
        Table::new(["link", "pairs a quantity", "samples that failed, native and browser", "emulator"]);
    for LinkStudy { name, quantities, failures, stopped, invalid_reason, .. } in studies {
        let pairs = list(quantities.iter().map(|(_, study)| study.pairing.pairs.len()));
        let state = match (stopped, invalid_reason) {
            (Some(why), _) => format!("**stopped**: {why}"),
            (None, Some(why)) => format!("**void**: {why}"),
            (None, None) => "kept up".to_owned(),
        };
        let pairs = if pairs.is_empty() { dash() } else { pairs };
        table.push(cells![name, pairs, format!("{}, {}", failures.0, failures.1), state]);
    }
    format!(
        "Table 1: the links. Both hosts of each are network namespaces of one machine.\n{}{REGIME}\n\n{table}\n",
        jitter.unwrap_or_default()
    )
}

fn machines(browsers: &[Ready]) -> String {
    let mut table = Table::new(["", ""]).text_columns(2);
    table.push(cells!["kernel", format!("{}, TCP {}", machine::kernel(), machine::congestion())]);
    let processors = format!("{}, load {} at the end", machine::processors(), machine::load());
    table.push(cells!["processors", processors]);
    table.push(cells!["memory", machine::memory()]);
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    table.push(cells!["native", format!("barograph {}, {build} build", env!("CARGO_PKG_VERSION"))]);
    if let Some(ready) = browsers.last() {
        table.push(cells!["browser", format!("{}, headless", ready.browser)]);
        table.push(cells!["its clock", clock(ready)]);
    }
    format!("Table 2: the machine and the browser.\n\n{table}\n")
}

fn clock(ready: &Ready) -> String {
    let isolated = if ready.isolated { "isolated" } else { "not isolated" };
    format!("{} µs, page {isolated}", format_significant(ready.clock_resolution_s * 1e6))
}

fn moments(studies: &[LinkStudy], quantity: Quantity) -> String {
    let (number, what, unit, scale, papers) = match quantity {
        Quantity::Goodput => (3, "raw goodput", "Mbit/s", 1e-6, PAPER_3),
        Quantity::Rtt | Quantity::RttNagle => (4, "round-trip time", "ms", 1e3, PAPER_4),
    };
    let mut table =
        Table::new(["link", "native mean", "variance", "median", "browser mean", "variance", "median"]);
    let side = |side: &barograph_study::compare::ComparedSeries| {
        let Moments { count, mean, variance } = side.moments;
        if count == 0 {
            return [dash(), dash(), dash()];
        }
        let variance = shown(variance, |v| format_significant(v * scale * scale));
        [format_significant(mean * scale), variance, format_significant(side.median * scale)]
    };
    for (name, study) in studies.iter().filter_map(|study| Some((study.name, study.of(quantity)?))) {
        table.push(cells![name].into_iter().chain(side(&study.a)).chain(side(&study.b)));
    }
    for [pair, c_mean, c_variance, java_mean, java_variance] in papers {
        let pair = format!("paper: {pair}");
        table.push(cells![pair, c_mean, c_variance, "", java_mean, java_variance]);
    }
    format!(
        "Table {number}: mean ({unit}) and variance (n − 1) of {what}, and its median ({unit}).\n\n{table}\n"
    )
}

fn coefficients(studies: &[LinkStudy]) -> String {
    let quantities = [Quantity::Goodput, Quantity::Rtt, Quantity::RttNagle];
    let mut table =
        Table::titled("link | goodput | distance | rtt | distance | rtt, Nagle | distance | 5 % by chance");
    let mut scatter = Table::new(["link", "goodput", "rtt", "rtt, Nagle"]);
    for study in studies {
        let of_quantities = quantities.iter().flat_map(|quantity| match study.of(*quantity) {
            Some(study) => [with_and_without(study), number(study.distance, 3)],
            None => [dash(), dash()],
        });
        let critical = study.quantities.first().and_then(|(_, study)| study.distance_critical);
        table.push(cells![study.name].into_iter().chain(of_quantities).chain([number(critical, 3)]));
        let by_chance = quantities.map(|quantity| number(study.of(quantity).and_then(by_scatter), 4));
        scatter.push(cells![study.name].into_iter().chain(by_chance));
    }
    for [pair, bandwidth, rtt, nagle] in PAPER_5 {
        table.push(cells![format!("paper: {pair}"), bandwidth, "", rtt, "", nagle]);
    }
    format!(
        "Table 5: least-squares coefficient through the origin (goodput: browser ÷ native; times: native ÷ browser; below 1: \
         the browser reports worse), in brackets without outliers (how many); and the Kolmogorov–Smirnov distance of the \
         forecast errors.\n\n{table}\n\
         Scatter alone draws the coefficient below 1: two independent samples of one distribution, paired at random, would have\n\n\
         {scatter}\n"
    )
}

fn with_and_without(study: &SeriesComparison) -> String {
    let without = number(study.without_outliers, 4);
    format!("{} ({without}: {})", number(study.coefficient, 4), study.outliers.len())
}

fn outliers(studies: &[LinkStudy]) -> String {
    let mut text = String::new();
    for LinkStudy { name, quantities, .. } in studies {
        for (quantity, outlier) in quantities
            .iter()
            .flat_map(|(quantity, study)| study.outliers.iter().map(move |of| (quantity, of)))
        {
            let cause = match outlier.cause {
                OutlierCause::Network => "network",
                OutlierCause::Unexplained => "unexplained",
            };
            let retrans =
                outlier.kernel_a.retrans.map_or_else(String::new, |n| format!(", {n} retransmitted"));
            text += &format!(
                "- left out of {} on {name} at {:.1} s: native {} {unit}{retrans}, browser {} {unit}: {cause}\n",
                quantity.as_str(),
                outlier.time_s,
                format_significant(outlier.a),
                format_significant(outlier.b),
                unit = quantity.unit(),
            );
        }
    }
    text + "\n"
}

fn control(buffers: &[Buffers]) -> String {
    let Some(default) = buffers.iter().find(|row| row.is_default()) else { return String::new() };
    let mut table = Table::titled(
        "write | receive block of the native responder | pairs | browser ÷ native | native, Mbit/s | \
         ÷ native default | error | browser, Mbit/s | ÷ browser default | error | distance | ",
    );
    for Buffers { write_bytes, receive_bytes, study, invalid_reason } in buffers {
        let bytes = |bytes: &Option<usize>| bytes.map_or_else(|| "default".to_owned(), size);
        let sides = [(&study.a, &default.study.a), (&study.b, &default.study.b)];
        let sides = sides.into_iter().flat_map(|(side, default)| {
            let mean = side.moments.mean;
            let ratio = Some(mean / default.moments.mean).filter(|ratio| ratio.is_finite());
            let error = number(side.mae().map(|mae| 100.0 * mae / mean), 2) + " %";
            [format_significant(mean / 1e6), number(ratio, 4), error]
        });
        let (pairs, coefficient) = (study.pairing.pairs.len(), number(study.coefficient, 4));
        let invalid_reason =
            invalid_reason.as_ref().map_or_else(String::new, |why| format!("**void**: {why}"));
        table.push(
            cells![bytes(write_bytes), bytes(receive_bytes), pairs, coefficient]
                .into_iter()
                .chain(sides)
                .chain([number(study.distance, 3), invalid_reason]),
        );
    }
    for [pair, coefficient] in PAPER_6 {
        table.push(cells![format!("paper: {pair}"), "", "", coefficient]);
    }
    format!(
        "Table 6: raw goodput under other buffers, on the link of 100 Mbit/s: bytes of a write (of a message in the \
         browser), and the receive block of the native responder; the station that answers the page reads as it always \
         does. Pairs are interleaved within a row, rows come one after another. The error is the mean absolute error of \
         the forecasts in percent of the mean, the distance that of the forecast errors of native and browser.\n\n{table}\n"
    )
}

fn page(rates: &[Rates]) -> String {
    if rates.is_empty() {
        return String::new();
    }
    let mut table = Table::titled(
        "link | direction | rounds | page, Mbit/s | least, most | lower bounds | with 64 KiB, Mbit/s | \
         native, Mbit/s | page ÷ native | ",
    )
    .text_columns(2);
    for Rates { link, up, down, stopped, invalid_reason } in rates {
        for (direction, beside) in [("up", up), ("down", down)] {
            let DirectionRates { page, .. } = beside;
            let [typical, small, native] = beside.medians();
            let mbit = |bit_s: Option<f64>| shown(bit_s, |bit_s| format_significant(bit_s / 1e6));
            let [least, most] = [f64::min, f64::max].map(|of| page.iter().map(|page| page.bit_s).reduce(of));
            let state = invalid_reason.as_ref().map(|why| format!("**void**: {why}"));
            let state = state.or_else(|| stopped.as_ref().map(|why| format!("**stopped**: {why}")));
            table.push(cells![
                link,
                direction,
                page.len(),
                mbit(typical),
                format!("{}, {}", mbit(least), mbit(most)),
                page.iter().filter(|page| page.at_least).count(),
                mbit(small),
                mbit(native),
                number(typical.zip(native).map(|(page, native)| page / native), 3),
                state.unwrap_or_default(),
            ]);
        }
    }
    format!(
        "Table 7: goodput as the page shows it, corrected, by its default sizes and with 64 KiB, and of native transfers \
         of {}; medians over the rounds, in turns. The page calls a rate that has not settled a lower bound.\n\n{table}\n",
        size(usize::try_from(NATIVE_BYTES).unwrap_or(usize::MAX))
    )
}

/// Table of what the browser adds, and of how much of it the clock may cause.
fn added(overhead: &Overhead) -> String {
    let stopped = overhead.stopped.as_ref().map_or_else(String::new, |why| {
        format!("The measurement of what the browser adds ended early: {why}\n\n")
    });
    if overhead.blocks.is_empty() {
        return stopped;
    }
    let (fine, coarse) = (Some(ClockName::Fine), Some(ClockName::Coarse));
    let clock_of = |name| overhead.ready(name).map_or_else(|| "not measured".to_owned(), clock);
    let rows = [
        ("native probe, native responder".to_owned(), overhead.centres(None, |block| block.native)),
        ("native WebSocket, station".to_owned(), overhead.centres(None, |block| block.websocket)),
        (
            format!("browser, station; clock {}", clock_of(ClockName::Fine)),
            overhead.centres(fine, |block| block.browser),
        ),
        (
            format!("browser, station; clock {}", clock_of(ClockName::Coarse)),
            overhead.centres(coarse, |block| block.browser),
        ),
        (
            "WebSocket and station: native WebSocket − native probe".to_owned(),
            overhead.centres(None, |block| block.websocket.minus(block.native)),
        ),
        (
            "browser: fine clock − native WebSocket".to_owned(),
            overhead.centres(fine, |block| block.browser.minus(block.websocket)),
        ),
        (
            "browser: coarse clock − native WebSocket".to_owned(),
            overhead.centres(coarse, |block| block.browser.minus(block.websocket)),
        ),
        ("clock: coarse − fine, of neighbouring blocks".to_owned(), overhead.clock_share()),
    ];
    let mut table = Table::new(["", "blocks", "median", "mean"]);
    for (what, centres) in rows {
        let spread = [|centre: &Centre| centre.median_s, |centre: &Centre| centre.mean_s]
            .map(|of| with_spread(&centres.iter().map(of).collect::<Vec<_>>()));
        table.push(cells![what, centres.len()].into_iter().chain(spread));
    }
    // Both ends of a time are cut to whole steps, so a time is wrong by less than one step either
    // way.
    let ready = [ClockName::Fine, ClockName::Coarse].into_iter().filter_map(|name| overhead.ready(name));
    let steps = list(ready.map(|ready| format!("{} µs", micros(ready.clock_resolution_s))));
    format!(
        "{stopped}What the browser adds to a round trip on loopback, in µs. In every block each program makes {EXCHANGES} exchanges one \
         after another on one connection, after some to warm up; a block has a browser of its own, with the fine and the \
         coarse clock in turns. Medians over the blocks of their medians and of their means; in brackets the least and the \
         greatest block.\n\n{table}\nOne step of the clock is the most that it can account for in one exchange: {steps} (the finer clock, the coarser). \
         The cause of the rest was not measured: it lies between the page's script and the socket, in both directions.\n\n"
    )
}

fn with_spread(values_s: &[f64]) -> String {
    let (low, high) = range(values_s.iter().copied());
    shown(median(values_s), |median_s| format!("{} ({} to {})", micros(median_s), micros(low), micros(high)))
}

fn micros(s: f64) -> String {
    format!("{:.1}", s * 1e6)
}

fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1024) { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") }
}

/// JavaNws, table 3: bandwidth by C and by Java.
const PAPER_3: [[&str; 5]; 4] = [
    ["a-g", "0.61", "0.02", "0.61", "0.02"],
    ["c-d", "0.65", "0.05", "0.65", "0.05"],
    ["f-n", "1.41", "0.00", "1.66", "0.00"],
    ["p-k", "1.06", "0.01", "1.01", "0.01"],
];

/// JavaNws, table 4: round-trip times by C and by Java.
const PAPER_4: [[&str; 5]; 4] = [
    ["a-g", "96", "890", "96", "1007"],
    ["c-d", "94", "102", "95", "2888"],
    ["f-n", "49", "3", "49", "9"],
    ["p-k", "95", "175", "96", "3579"],
];

/// JavaNws, table 5: coefficients of bandwidth, round-trip time, and that with Nagle's algorithm.
const PAPER_5: [[&str; 4]; 4] = [
    ["a-g", "0.99", "0.93", "0.87"],
    ["c-d", "1.01", "1.00", "0.96"],
    ["f-n", "1.18", "1.00", "1.00"],
    ["p-k", "0.95", "0.99", "0.98"],
];

/// JavaNws, table 6: the coefficient of bandwidth before and after both used buffers of 32 KiB.
const PAPER_6: [[&str; 2]; 2] = [["k-j, Java 1.1.3", "0.92"], ["k-j, Java 1.2.1, 32 KiB", "1.00"]];

pub(crate) fn json(results: &Results) -> Value {
    let Results { links, browsers, buffers, rates, overhead, jitter, is_cancelled } = results;
    let links: Vec<Value> = links
        .iter()
        .map(|link| {
            let quantities: Vec<Value> = link
                .quantities
                .iter()
                .map(|(quantity, study)| with(compared(study), "quantity", quantity.as_str().into()))
                .collect();
            object!({
                "link": link.name,
                "failures": {"native": link.failures.0, "browser": link.failures.1},
                "stopped": link.stopped,
                "void": link.invalid_reason,
                "quantities": quantities,
            })
        })
        .collect();
    let buffers: Vec<Value> = buffers
        .iter()
        .map(|row| {
            object!({
                "write_bytes": row.write_bytes,
                "native_receive_block_bytes": row.receive_bytes,
                "void": row.invalid_reason,
                "goodput": compared(&row.study),
            })
        })
        .collect();
    object!({
        "is_cancelled": is_cancelled,
        "regime": REGIME,
        "jitter": jitter,
        "links": links,
        "machine": {
            "kernel": machine::kernel(),
            "congestion": machine::congestion(),
            "processors": machine::processors(),
            "memory": machine::memory(),
            "load": machine::load(),
            "native": env!("CARGO_PKG_VERSION"),
            "is_release": !cfg!(debug_assertions),
        },
        "browsers": browsers,
        "buffers": buffers,
        "rates": rates,
        "overhead": overhead_json(overhead),
    })
}

fn compared(study: &SeriesComparison) -> Value {
    object!({
        "pairs": study.pairing.pairs.len(),
        "native": side_json(&study.a),
        "browser": side_json(&study.b),
        "coefficient": study.coefficient,
        "coefficient_without_outliers": study.without_outliers,
        "coefficient_by_scatter": by_scatter(study),
        "outliers": study.outliers,
        "ks_distance": study.distance,
        "ks_critical_5_percent": study.distance_critical,
    })
}

fn side_json(side: &ComparedSeries) -> Value {
    let median = (side.moments.count > 0).then_some(side.median);
    object!({"moments": side.moments, "median": median, "mean_absolute_error": side.mae()})
}

fn overhead_json(overhead: &Overhead) -> Value {
    object!({
        "stopped": overhead.stopped,
        "fine": overhead.ready(ClockName::Fine),
        "coarse": overhead.ready(ClockName::Coarse),
        "blocks": overhead.blocks,
        "clock_share": overhead.clock_share(),
    })
}

fn with(mut value: Value, key: &str, more: Value) -> Value {
    value[key] = more;
    value
}

pub(crate) fn write_figures(studies: &[LinkStudy], directory: &Path) -> anyhow::Result<String> {
    let mut text = "Figures:\n\n".to_owned();
    for (number, title, panel, quantities) in FIGURES {
        let rows: Vec<FigureRow<'_>> =
            studies.iter().flat_map(|study| figure_rows(study, panel, quantities)).collect();
        let drawn = svg(&rows).map_err(|error| anyhow!("figure {number} cannot be drawn: {error}"))?;
        let path = save(directory, &format!("figure-{number}.svg"), &drawn)?;
        text += &format!("- {}: figure {number}, {title}\n", path.display());
    }
    Ok(text)
}

fn figure_rows<'a>(
    study: &'a LinkStudy,
    panel: Panel,
    quantities: &'a [Quantity],
) -> impl Iterator<Item = FigureRow<'a>> {
    // A series without values has nothing to draw.
    let wanted = study
        .quantities
        .iter()
        .filter(|(quantity, compared)| quantities.contains(quantity) && !compared.pairing.pairs.is_empty());
    wanted.map(move |(quantity, compared)| {
        let title = |who: &str| format!("{}, {}: {who}", study.name, quantity.as_str());
        FigureRow {
            title_a: title(if panel == Panel::Distributions { "A native, B browser" } else { "native" }),
            title_b: title("browser"),
            panel,
            study: compared,
            unit: quantity.unit(),
        }
    })
}

/// Number, title, kind and quantities, as in the paper.
const FIGURES: [(u32, &str, Panel, &[Quantity]); 6] = [
    (4, "raw goodput", Panel::Series, &[Quantity::Goodput]),
    (5, "round-trip time", Panel::Series, &[Quantity::Rtt]),
    (6, "round-trip time with Nagle's algorithm", Panel::Series, &[Quantity::RttNagle]),
    (7, "forecast errors of raw goodput", Panel::Histograms, &[Quantity::Goodput]),
    (8, "forecast errors of round-trip times", Panel::Histograms, &[Quantity::Rtt, Quantity::RttNagle]),
    (9, "distributions of the forecast errors", Panel::Distributions, &Quantity::ALL),
];
