//! The paper's tables 1 to 6, of native against browser, and table 7, of the page's goodput by its defaults, as Markdown.

use std::fmt::Write;

use barograph_probe::reduce::median;
use barograph_study::compare::{Better, Cause, Moments, Study, figure};

use super::ClockName;
use super::browser::Ready;
use super::buffers::Buffers;
use super::collect::{LinkStudy, Quantity};
use super::link::Replayed;
use super::overhead::{Centre, EXCHANGES, Overhead};
use super::rates::{Beside, NATIVE_BYTES, Rates};
use crate::machine;

pub(crate) use self::json::json;

mod json;

/// All that a study found.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) links: Vec<LinkStudy>,
    pub(crate) browsers: Vec<Ready>,
    pub(crate) buffers: Vec<Buffers>,
    pub(crate) rates: Vec<Rates>,
    pub(crate) overhead: Overhead,
    /// How the emulated links' delays vary.
    pub(crate) jitter: Option<Variation>,
    /// Whether it was ended before it was done.
    pub(crate) is_cancelled: bool,
}

/// How delays vary: standard deviations and the mean, in seconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Variation {
    one_way_s: f64,
    round_trip_s: f64,
    mean_one_way_s: f64,
    is_seeded: bool,
}

impl Variation {
    pub(crate) fn of(replayed: &Replayed) -> Self {
        Self {
            one_way_s: replayed.one_way_s(),
            round_trip_s: replayed.round_trip_s(),
            mean_one_way_s: replayed.mean().as_secs_f64(),
            is_seeded: replayed.is_seeded,
        }
    }
}

/// All tables as Markdown.
pub(crate) fn all(results: &Results) -> String {
    let Results { links, browsers, buffers, rates, overhead, jitter, is_cancelled } = results;
    let mut text = "# Native against browser\n\n".to_owned();
    if *is_cancelled {
        text += "**Stopped before the end: this is what there is.**\n\n";
    }
    // Writing to a string cannot fail, here and below.
    let _ = places(&mut text, links, *jitter)
        .and_then(|()| machines(&mut text, browsers))
        .and_then(|()| moments(&mut text, links, Quantity::Goodput))
        .and_then(|()| moments(&mut text, links, Quantity::Rtt))
        .and_then(|()| coefficients(&mut text, links))
        .and_then(|()| outliers(&mut text, links))
        .and_then(|()| control(&mut text, buffers))
        .and_then(|()| shown(&mut text, rates))
        .and_then(|()| added(&mut text, overhead));
    text
}

fn places(text: &mut String, studies: &[LinkStudy], jitter: Option<Variation>) -> std::fmt::Result {
    writeln!(text, "Table 1: the links. Both hosts of each are network namespaces of one machine.")?;
    if let Some(Variation { one_way_s, round_trip_s, mean_one_way_s, is_seeded }) = jitter {
        let [one_way, round_trip, mean] = [one_way_s, round_trip_s, mean_one_way_s].map(|s| figure(s * 1e3));
        let source = if is_seeded { "seeded" } else { "of a file" };
        writeln!(
            text,
            "The emulated ones replay delays ({source}) each way, of standard deviation {one_way} ms one way and \
             {round_trip} ms of a packet and its answer; their mean, {mean} ms one way, is part of the link's delay."
        )?;
    }
    writeln!(text, "{REGIME}\n")?;
    writeln!(
        text,
        "| link | pairs a quantity | samples that failed, native and browser | emulator |\n|---|---:|---:|---|"
    )?;
    for LinkStudy { name, quantities, failures, stopped, void, .. } in studies {
        let pairs: Vec<String> =
            quantities.iter().map(|(_, study)| study.pairing.pairs.len().to_string()).collect();
        let pairs = if pairs.is_empty() { "–".to_owned() } else { pairs.join(", ") };
        let state = match (stopped, void) {
            (Some(why), _) => format!("**stopped**: {why}"),
            (None, Some(why)) => format!("**void**: {why}"),
            (None, None) => "kept up".to_owned(),
        };
        writeln!(text, "| {name} | {pairs} | {}, {} | {state} |", failures.0, failures.1)?;
    }
    writeln!(text)
}

fn machines(text: &mut String, browsers: &[Ready]) -> std::fmt::Result {
    writeln!(text, "Table 2: the machine and the browser.\n\n| | |\n|---|---|")?;
    writeln!(text, "| kernel | {}, TCP {} |", machine::kernel(), machine::congestion())?;
    writeln!(text, "| processors | {}, load {} at the end |", machine::processors(), machine::load())?;
    writeln!(text, "| memory | {} |", machine::memory())?;
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    writeln!(text, "| native | barograph {}, {build} build |", env!("CARGO_PKG_VERSION"))?;
    if let Some(ready) = browsers.last() {
        writeln!(text, "| browser | {}, headless |", ready.browser)?;
        writeln!(text, "| its clock | {} |", clock(ready))?;
    }
    writeln!(text)
}

fn clock(ready: &Ready) -> String {
    let isolated = if ready.isolated { "isolated" } else { "not isolated" };
    format!("{} µs, page {isolated}", figure(ready.clock_resolution_s * 1e6))
}

/// Tables 3 and 4.
fn moments(text: &mut String, studies: &[LinkStudy], quantity: Quantity) -> std::fmt::Result {
    let (number, what, unit, scale) = match quantity {
        Quantity::Goodput => (3, "raw goodput", "Mbit/s", 1e-6),
        Quantity::Rtt | Quantity::RttNagle => (4, "round-trip time", "ms", 1e3),
    };
    writeln!(
        text,
        "Table {number}: mean ({unit}) and variance (n − 1) of {what}, and its median ({unit}).\n"
    )?;
    writeln!(text, "| link | native mean | variance | median | browser mean | variance | median |")?;
    writeln!(text, "|---|---:|---:|---:|---:|---:|---:|")?;
    for (name, study) in of(studies, quantity) {
        write!(text, "| {name} |")?;
        for side in [&study.a, &study.b] {
            let Moments { count, mean, variance } = side.moments;
            if count == 0 {
                write!(text, " – | – | – |")?;
                continue;
            }
            let variance = variance.map_or_else(|| "–".to_owned(), |v| figure(v * scale * scale));
            write!(text, " {} | {variance} | {} |", figure(mean * scale), figure(side.median * scale))?;
        }
        writeln!(text)?;
    }
    let paper: &[[&str; 5]] = if quantity == Quantity::Goodput { &PAPER_3 } else { &PAPER_4 };
    for [pair, c_mean, c_variance, java_mean, java_variance] in paper {
        writeln!(text, "| paper: {pair} | {c_mean} | {c_variance} | | {java_mean} | {java_variance} | |")?;
    }
    writeln!(text)
}

fn coefficients(text: &mut String, studies: &[LinkStudy]) -> std::fmt::Result {
    writeln!(
        text,
        "Table 5: least-squares coefficient through the origin (goodput: browser ÷ native; times: native ÷ browser; below 1: \
         the browser reports worse), in brackets without outliers (how many); and the Kolmogorov–Smirnov distance of the \
         forecast errors.\n"
    )?;
    writeln!(text, "| link | goodput | distance | rtt | distance | rtt, Nagle | distance | 5 % by chance |")?;
    writeln!(text, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    for study in studies {
        write!(text, "| {} |", study.name)?;
        for quantity in [Quantity::Goodput, Quantity::Rtt, Quantity::RttNagle] {
            match study.of(quantity) {
                Some(study) => {
                    write!(text, " {} | {} |", with_and_without(study), number(study.distance, 3))?;
                }
                None => write!(text, " – | – |")?,
            }
        }
        let critical = study.quantities.first().and_then(|(_, study)| study.distance_critical);
        writeln!(text, " {} |", number(critical, 3))?;
    }
    for [pair, bandwidth, rtt, nagle] in PAPER_5 {
        writeln!(text, "| paper: {pair} | {bandwidth} | | {rtt} | | {nagle} | | |")?;
    }
    writeln!(
        text,
        "\nScatter alone draws the coefficient below 1: two independent samples of one distribution, paired at random, would have\n"
    )?;
    writeln!(text, "| link | goodput | rtt | rtt, Nagle |\n|---|---:|---:|---:|")?;
    for study in studies {
        write!(text, "| {} |", study.name)?;
        for quantity in [Quantity::Goodput, Quantity::Rtt, Quantity::RttNagle] {
            write!(text, " {} |", number(study.of(quantity).and_then(by_scatter), 4))?;
        }
        writeln!(text)?;
    }
    writeln!(text)
}

/// The coefficient of independent pairs of the series that is divided by: of x and y with one mean μ and variance σ²,
/// Σxy ÷ Σx² tends to μ² ÷ (μ² + σ²).
fn by_scatter(study: &Study) -> Option<f64> {
    let side = match study.better {
        Better::Larger => &study.a,
        Better::Smaller => &study.b,
    };
    let Moments { mean, variance, .. } = side.moments;
    variance.map(|variance| mean * mean / (mean * mean + variance)).filter(|ratio| ratio.is_finite())
}

fn with_and_without(study: &Study) -> String {
    let without = number(study.without_outliers, 4);
    format!("{} ({without}: {})", number(study.coefficient, 4), study.outliers.len())
}

/// Each that was left out.
fn outliers(text: &mut String, studies: &[LinkStudy]) -> std::fmt::Result {
    for LinkStudy { name, quantities, .. } in studies {
        for (quantity, study) in quantities {
            for outlier in &study.outliers {
                let cause = match outlier.cause {
                    Cause::Network => "network",
                    Cause::Unexplained => "unexplained",
                };
                let retrans =
                    outlier.kernel_a.retrans.map_or_else(String::new, |n| format!(", {n} sent again"));
                writeln!(
                    text,
                    "- left out of {} on {name} at {:.1} s: native {} {unit}{retrans}, browser {} {unit}: {cause}",
                    quantity.as_str(),
                    outlier.time_s,
                    figure(outlier.a),
                    figure(outlier.b),
                    unit = quantity.unit(),
                )?;
            }
        }
    }
    writeln!(text)
}

fn control(text: &mut String, buffers: &[Buffers]) -> std::fmt::Result {
    let Some(default) = buffers.iter().find(|row| row.is_default()) else { return Ok(()) };
    writeln!(
        text,
        "Table 6: raw goodput under other buffers, on the link of 100 Mbit/s: bytes of a write (of a message in the \
         browser), and the receive block of the native responder; the station that answers the page reads as it always \
         does. Pairs are interleaved within a row, rows come one after another. The error is the mean absolute error of \
         the forecasts in percent of the mean, the distance that of the forecast errors of native and browser.\n"
    )?;
    writeln!(
        text,
        "| write | receive block of the native responder | pairs | browser ÷ native | native, Mbit/s | ÷ native default | \
         error | browser, Mbit/s | ÷ browser default | error | distance | |"
    )?;
    writeln!(text, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")?;
    for Buffers { write_bytes, receive_bytes, study, void } in buffers {
        let bytes = |bytes: &Option<usize>| bytes.map_or_else(|| "default".to_owned(), size);
        let (write, receive) = (bytes(write_bytes), bytes(receive_bytes));
        write!(text, "| {write} | {receive} | {} |", study.pairing.pairs.len())?;
        write!(text, " {} |", number(study.coefficient, 4))?;
        for (side, default) in [(&study.a, &default.study.a), (&study.b, &default.study.b)] {
            let mean = side.moments.mean;
            let ratio = Some(mean / default.moments.mean).filter(|ratio| ratio.is_finite());
            let error = side.mae().map(|mae| 100.0 * mae / mean);
            write!(text, " {} | {} | {} % |", figure(mean / 1e6), number(ratio, 4), number(error, 2))?;
        }
        let void = void.as_ref().map_or_else(String::new, |why| format!("**void**: {why}"));
        writeln!(text, " {} | {void} |", number(study.distance, 3))?;
    }
    for [pair, coefficient] in PAPER_6 {
        writeln!(text, "| paper: {pair} | | | {coefficient} | | | | | | | | |")?;
    }
    writeln!(text)
}

fn shown(text: &mut String, rates: &[Rates]) -> std::fmt::Result {
    if rates.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "Table 7: goodput as the page shows it, corrected, by its default sizes and with 64 KiB, and of native transfers \
         of {}; medians of so many rounds, in turns. What had not settled the page calls a lower bound.\n",
        size(usize::try_from(NATIVE_BYTES).unwrap_or(usize::MAX))
    )?;
    writeln!(
        text,
        "| link | direction | rounds | page, Mbit/s | least, most | lower bounds | with 64 KiB, Mbit/s | native, Mbit/s | page ÷ native | |"
    )?;
    writeln!(text, "|---|---|---:|---:|---|---:|---:|---:|---:|---|")?;
    for Rates { link, up, down, stopped, void } in rates {
        for (direction, beside) in [("up", up), ("down", down)] {
            let Beside { page, .. } = beside;
            let [shown, small, native] = beside.medians();
            let mbit = |bit_s: Option<f64>| bit_s.map_or_else(|| "–".to_owned(), |bit_s| figure(bit_s / 1e6));
            let least = page.iter().map(|shown| shown.bit_s).reduce(f64::min);
            let most = page.iter().map(|shown| shown.bit_s).reduce(f64::max);
            let bounds = page.iter().filter(|shown| shown.at_least).count();
            let ratio = shown.zip(native).map(|(shown, native)| shown / native);
            let state = void.as_ref().map(|why| format!("**void**: {why}"));
            let state = state.or_else(|| stopped.as_ref().map(|why| format!("**stopped**: {why}")));
            writeln!(
                text,
                "| {link} | {direction} | {} | {} | {}, {} | {bounds} | {} | {} | {} | {} |",
                page.len(),
                mbit(shown),
                mbit(least),
                mbit(most),
                mbit(small),
                mbit(native),
                number(ratio, 3),
                state.unwrap_or_default()
            )?;
        }
    }
    writeln!(text)
}

/// What the browser adds, and how much of it the clock can be.
fn added(text: &mut String, overhead: &Overhead) -> std::fmt::Result {
    if let Some(why) = &overhead.stopped {
        writeln!(text, "What the browser adds could not be measured to the end: {why}\n")?;
    }
    if overhead.blocks.is_empty() {
        return Ok(());
    }
    let (fine, coarse) = (Some(ClockName::Fine), Some(ClockName::Coarse));
    writeln!(
        text,
        "What the browser adds to a round trip on loopback, in µs. In every block each program makes {EXCHANGES} exchanges one \
         after another on one connection, after some to warm up; a block has a browser of its own, with the fine and the \
         coarse clock in turns. Medians over the blocks of their medians and of their means; in brackets the least and the \
         greatest block.\n"
    )?;
    writeln!(text, "| | blocks | median | mean |\n|---|---:|---:|---:|")?;
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
        ("clock: the last less the one before, of neighbouring blocks".to_owned(), overhead.clock_share()),
    ];
    for (what, centres) in rows {
        let [medians, means] = [|centre: &Centre| centre.median_s, |centre: &Centre| centre.mean_s]
            .map(|of| with_spread(centres.iter().map(of)));
        writeln!(text, "| {what} | {} | {medians} | {means} |", centres.len())?;
    }
    // Both ends of a time are cut to whole steps, so that it is off by less than one, either way.
    let steps: Vec<String> = [ClockName::Fine, ClockName::Coarse]
        .into_iter()
        .filter_map(|name| {
            overhead.ready(name).map(|ready| format!("{} µs", micros(ready.clock_resolution_s)))
        })
        .collect();
    writeln!(
        text,
        "\nOne step of the clock is the most that it can account for in one exchange: {} (the finer clock, the coarser). \
         What the rest is was not measured: it lies between the page's script and the socket, on both ways.\n",
        steps.join(", ")
    )
}

/// A median with the least and the greatest, in µs.
fn with_spread(values_s: impl Iterator<Item = f64> + Clone) -> String {
    let Some(median_s) = median(&values_s.clone().collect::<Vec<_>>()) else { return "–".to_owned() };
    let low = values_s.clone().fold(f64::INFINITY, f64::min);
    let high = values_s.fold(f64::NEG_INFINITY, f64::max);
    format!("{} ({} to {})", micros(median_s), micros(low), micros(high))
}

/// Seconds in µs, to a tenth.
fn micros(s: f64) -> String {
    format!("{:.1}", s * 1e6)
}

fn of(studies: &[LinkStudy], quantity: Quantity) -> impl Iterator<Item = (&'static str, &Study)> {
    studies.iter().filter_map(move |study| Some((study.name, study.of(quantity)?)))
}

fn number(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "–".to_owned(), |number| format!("{number:.decimals$}"))
}

fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1024) { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") }
}

/// Native probes know no other way, so the page does the same.
const REGIME: &str = "Every experiment has a new connection of its own, natively and in the browser, whatever the quantity; \
the time to open it is no part of any value.";

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
