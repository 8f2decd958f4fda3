//! The paper's tables 1 to 6, of native against browser, as Markdown.

use std::fmt::Write;

use barograph::compare::{Better, Cause, Moments, Study, figure};

use super::browser::Ready;
use super::buffers::Buffers;
use super::collect::{LinkStudy, Quantity};
use super::hosts;
use super::overhead::Overhead;

/// All of them.
pub(crate) fn all(
    studies: &[LinkStudy],
    browsers: &[Ready],
    buffers: &[Buffers],
    overheads: &[Overhead],
) -> String {
    let mut text = "# Native against browser\n\n".to_owned();
    // Writing to a string cannot fail, here and below.
    let _ = places(&mut text, studies)
        .and_then(|()| machines(&mut text, browsers))
        .and_then(|()| moments(&mut text, studies, Quantity::Goodput))
        .and_then(|()| moments(&mut text, studies, Quantity::Rtt))
        .and_then(|()| coefficients(&mut text, studies))
        .and_then(|()| outliers(&mut text, studies))
        .and_then(|()| control(&mut text, buffers))
        .and_then(|()| added(&mut text, overheads));
    text
}

fn places(text: &mut String, studies: &[LinkStudy]) -> std::fmt::Result {
    writeln!(text, "Table 1: the links. Both hosts of each are network namespaces of one machine.\n")?;
    writeln!(
        text,
        "| link | pairs a quantity | samples that failed, native and browser | emulator |\n|---|---:|---:|---|"
    )?;
    for LinkStudy { name, quantities, failures, void, .. } in studies {
        let pairs: Vec<String> =
            quantities.iter().map(|(_, study)| study.pairing.pairs.len().to_string()).collect();
        let void = void.as_ref().map_or_else(|| "kept up".to_owned(), |why| format!("**void**: {why}"));
        writeln!(text, "| {name} | {} | {}, {} | {void} |", pairs.join(", "), failures.0, failures.1)?;
    }
    writeln!(text)
}

fn machines(text: &mut String, browsers: &[Ready]) -> std::fmt::Result {
    writeln!(text, "Table 2: the machine and the browser.\n\n| | |\n|---|---|")?;
    writeln!(text, "| kernel | {}, TCP {} |", hosts::kernel(), hosts::congestion())?;
    writeln!(text, "| processors | {}, load {} at the end |", hosts::processors(), hosts::load())?;
    writeln!(text, "| memory | {} |", hosts::memory())?;
    writeln!(text, "| native | barograph {} |", env!("CARGO_PKG_VERSION"))?;
    if let Some(ready) = browsers.last() {
        let whose = if ready.page == "own" { "the page's own" } else { "a bare one" };
        writeln!(text, "| browser | {}, headless; communicator: {whose} |", ready.browser)?;
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
            let Moments { mean, variance, .. } = side.moments;
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
            for (_, study) in study.quantities.iter().filter(|(which, _)| *which == quantity) {
                write!(text, " {} | {} |", with_and_without(study), number(study.distance, 3))?;
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
            for (_, study) in study.quantities.iter().filter(|(which, _)| *which == quantity) {
                write!(text, " {} |", number(by_scatter(study), 4))?;
            }
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
    if buffers.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "Table 6: raw goodput under other buffers, on the link of 100 Mbit/s: bytes of a write (of a message in the \
         browser), and of a read by the native program's responder. The error is the mean absolute error of the forecasts \
         in percent of the mean.\n"
    )?;
    writeln!(
        text,
        "| write | read | pairs | browser ÷ native | native, Mbit/s | error | browser, Mbit/s | error | distance | |"
    )?;
    writeln!(text, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")?;
    for Buffers { write_bytes, receive_bytes, study, void } in buffers {
        let bytes = |bytes: &Option<usize>| bytes.map_or_else(|| "default".to_owned(), size);
        write!(
            text,
            "| {} | {} | {} |",
            bytes(write_bytes),
            bytes(receive_bytes),
            study.pairing.pairs.len()
        )?;
        write!(text, " {} |", number(study.coefficient, 4))?;
        for side in [&study.a, &study.b] {
            let error = side.mae().map(|mae| 100.0 * mae / side.moments.mean);
            write!(text, " {} | {} % |", figure(side.moments.mean / 1e6), number(error, 2))?;
        }
        let void = void.as_ref().map_or_else(String::new, |why| format!("**void**: {why}"));
        writeln!(text, " {} | {void} |", number(study.distance, 3))?;
    }
    for [pair, coefficient] in PAPER_6 {
        writeln!(text, "| paper: {pair} | | | {coefficient} | | | | | | |")?;
    }
    writeln!(text)
}

/// What the browser adds, and how much of it the clock can be.
fn added(text: &mut String, overheads: &[Overhead]) -> std::fmt::Result {
    if overheads.is_empty() {
        return Ok(());
    }
    writeln!(text, "What the browser adds to a round trip on loopback: the difference of the medians.\n")?;
    writeln!(
        text,
        "| its clock | pairs | native, µs | browser, µs | added, µs |\n|---|---:|---:|---:|---:|"
    )?;
    for overhead in overheads {
        let Overhead { ready, native_s, browser_s, pairs } = overhead;
        let [native, browser, added] = [*native_s, *browser_s, overhead.added_s()].map(|s| figure(s * 1e6));
        writeln!(text, "| {} | {pairs} | {native} | {browser} | {added} |", clock(ready))?;
    }
    // Both ends of a time are cut to whole steps, so that it is off by less than one, either way.
    for overhead in overheads {
        let Overhead { ready, .. } = overhead;
        let [step, added] = [ready.clock_resolution_s, overhead.added_s()].map(|s| figure(s * 1e6));
        writeln!(text, "\nThe clock can account for at most one step of it: {step} µs of {added} µs.")?;
    }
    writeln!(text)
}

fn of(studies: &[LinkStudy], quantity: Quantity) -> impl Iterator<Item = (&'static str, &Study)> {
    studies.iter().flat_map(move |study| {
        let of_quantity = study.quantities.iter().filter(move |(which, _)| *which == quantity);
        of_quantity.map(move |(_, compared)| (study.name, compared))
    })
}

fn number(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "–".to_owned(), |number| format!("{number:.decimals$}"))
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
