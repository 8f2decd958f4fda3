//! What a flow of ours leaves to others: to cubic and to bbr, and to its own kind.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use barograph_sim::Network;
use barograph_transfer::controller::Kind;
use serde_json::{Value, json};

use super::flow::{Course, Flow, Ours, now_ms};
use super::goal::{self, Bound};
use super::path::Path;
use super::peer::iperf;
use super::session::Session;
use super::tool::run;
use crate::transfer::{Table, percent};

const MBIT_S: u64 = 100;
const FLOWS: u64 = 4;
/// Between the starts of flows of one kind (s).
const APART_S: u64 = 2;
/// A run is so many times as long as one of throughput: shares take their time.
const LONGER: u64 = 8;
/// Of a run, the part after which shares are taken: the first sixth is the start.
const SETTLED: u64 = 6;
const JAIN: f64 = 0.95;

pub(crate) fn table(session: &Session) -> anyhow::Result<Table> {
    let kinds: &[Kind] = if session.is_full { &Kind::ALL } else { &[Kind::Model, Kind::HighSpeed] };
    let seconds = LONGER * session.seconds;
    let (mut cells, mut rows, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    for kind in kinds {
        for rtt_ms in [20, 100] {
            let path = Path { mbit_s: MBIT_S, rtt_ms, loss: 0.0, seed: session.seed };
            let mut row = vec![format!("{kind}, {rtt_ms} ms")];
            for congestion in ["cubic", "bbr"] {
                session.note(format!("{kind} beside {congestion}, {rtt_ms} ms"));
                let beside = beside(session, &path, *kind, congestion, seconds)?;
                row.push(format!("{:.2} / {:.2}{}", beside.ours, beside.other, mark(beside.is_void)));
                row.push(beside.queue_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1}")));
                if *kind == Kind::DEFAULT && congestion == "cubic" {
                    let what = format!("{rtt_ms} ms: {kind} beside cubic ÷ an equal share");
                    goals.push(goal::line(&what, Bound::Within(0.5, 2.0), Some(beside.ours)));
                }
                rows.push(json!({
                    "controller": kind.name(), "rtt_ms": rtt_ms, "beside": congestion, "of_equal_share": beside.ours,
                    "others_of_equal_share": beside.other, "queue_ms": beside.queue_ms, "is_void": beside.is_void,
                }));
            }
            session.note(format!("four of {kind}, {rtt_ms} ms"));
            let (four, numbers) = four(session, &path, *kind, seconds)?;
            if *kind == Kind::DEFAULT {
                let what = format!("{rtt_ms} ms: Jain's index of four");
                goals.push(goal::line(&what, Bound::Least(JAIN), numbers["four_jain"].as_f64()));
            }
            row.extend(four);
            cells.push(row);
            rows.push(numbers);
        }
    }
    let legend = format!(
        "{MBIT_S} Mbit/s, a queue of one product, {seconds} s. Beside a flow of iperf3 from the same moment: what ours / the other gets of half the \
         bottleneck after the first sixth, and the median queue that ours meets (its smoothed round trip less the path's). Four of a kind that start \
         {APART_S} s apart, so much longer: Jain's index after the last start and a sixth, from when on it stays at {JAIN} over {} s (s), and their sum. * The emulator \
         was late or lost packets itself.",
        span_s(seconds)
    );
    let header = [
        "controller, round trip",
        "ours / cubic",
        "queue (ms)",
        "ours / bbr",
        "queue (ms)",
        "Jain of four",
        "fair from (s)",
        "% of the bottleneck",
        "queue (ms)",
    ];
    Ok(Table::new("Fairness", &legend, &header, cells, rows).with(&goals))
}

struct Beside {
    /// Of half the bottleneck.
    ours: f64,
    other: f64,
    queue_ms: Option<f64>,
    is_void: bool,
}

fn beside(
    session: &Session,
    path: &Path,
    kind: Kind,
    congestion: &str,
    seconds: u64,
) -> anyhow::Result<Beside> {
    let network = Network::new(path.link())?;
    let _server = iperf::serve(&network, PORT)?;
    let ours = ours(session, kind, 0);
    let flow = Flow::start(&network, &ours)?;
    let began_ms = now_ms();
    let (to, time) = (network.b.v4().to_string(), seconds.to_string());
    let words =
        ["iperf3", "-c", &to, "-p", &PORT.to_string(), "-J", "-i", "1", "-t", &time, "-C", congestion];
    let ended = run(&network.a, &words, seconds + GRACE_S);
    let to_ms = began_ms + 1000 * seconds;
    let from_ms = began_ms + 1000 * (seconds / SETTLED);
    let course = flow.stop()?;
    let report = iperf::parse(ended?)?;
    let half = path.bps() as f64 / 2.0;
    let intervals = report["intervals"].as_array().context("iperf3 tells no intervals")?;
    let after: Vec<f64> = intervals
        .iter()
        .skip((seconds / SETTLED) as usize)
        .filter_map(|interval| interval["sum"]["bits_per_second"].as_f64())
        .collect();
    Ok(Beside {
        ours: course.bps(from_ms, to_ms) / half,
        other: after.iter().sum::<f64>() / after.len().max(1) as f64 / half,
        queue_ms: queue_ms(&course, path, from_ms, to_ms),
        is_void: is_void(&network),
    })
}

fn four(session: &Session, path: &Path, kind: Kind, seconds: u64) -> anyhow::Result<(Vec<String>, Value)> {
    let network = Network::new(path.link())?;
    let began_ms = now_ms();
    let flows = (0..FLOWS).map(|number| {
        let flow = Flow::start(&network, &ours(session, kind, number));
        thread::sleep(Duration::from_secs(APART_S));
        flow
    });
    let flows = flows.collect::<anyhow::Result<Vec<Flow>>>()?;
    let last = APART_S * FLOWS;
    let to_ms = began_ms + 1000 * (last + seconds);
    thread::sleep(Duration::from_millis(to_ms.saturating_sub(now_ms())));
    let is_void = is_void(&network);
    let courses = flows.into_iter().map(Flow::stop).collect::<anyhow::Result<Vec<Course>>>()?;
    let from_ms = began_ms + 1000 * (last + seconds / SETTLED);
    let between = |from_ms: u64, to_ms: u64| -> Vec<f64> {
        courses.iter().map(|course| course.bps(from_ms, to_ms)).collect()
    };
    let shares = between(from_ms, to_ms);
    let span = span_s(seconds);
    let at = |second: u64| jain(&between(began_ms + 1000 * second, began_ms + 1000 * (second + span)));
    let fair_from = fair_from(last, last + seconds - span, at);
    let (index, all) = (jain(&shares), shares.iter().sum::<f64>() / path.bps() as f64);
    let first = courses.first().ok_or_else(|| anyhow!("no flow"))?;
    let queue_ms = queue_ms(first, path, from_ms, to_ms);
    let cells = vec![
        format!("{index:.3}{}", mark(is_void)),
        fair_from.map_or_else(|| "never".to_owned(), |second| second.to_string()),
        percent(all),
        queue_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1}")),
    ];
    let numbers = json!({
        "controller": kind.name(), "rtt_ms": path.rtt_ms, "four_jain": index, "fair_from_s": fair_from, "four_share": all,
        "queue_ms": queue_ms, "is_void": is_void,
    });
    Ok((cells, numbers))
}

fn ours(session: &Session, kind: Kind, number: u64) -> Ours {
    let rate_bytes_s = (kind == Kind::Fixed).then_some(MBIT_S as f64 * 125_000.0);
    Ours { rate_bytes_s, seed: session.seed + number, ..Ours::new(kind) }
}

fn queue_ms(course: &Course, path: &Path, from_ms: u64, to_ms: u64) -> Option<f64> {
    let [median, _] = course.rtts_s(from_ms, to_ms)?;
    Some((1e3 * median - path.rtt_ms as f64).max(0.0))
}

fn is_void(network: &Network) -> bool {
    network.report().is_some_and(|report| report.void().is_some())
}

fn mark(is_void: bool) -> &'static str {
    if is_void { "*" } else { "" }
}

/// Over how long Jain's index is taken (s).
fn span_s(seconds: u64) -> u64 {
    (seconds / 4).clamp(1, 10)
}

/// Jain, Chiu and Hawe (1984): 1 where all get the same, 1/n where one gets all.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 0.0 }
}

/// The first second from which on the index stays high until the last; `None` where it does not.
fn fair_from(first: u64, last: u64, at: impl Fn(u64) -> f64) -> Option<u64> {
    let unfair = (first..=last).rev().find(|second| at(*second) < JAIN);
    match unfair {
        None => (first <= last).then_some(first),
        Some(second) => (second < last).then_some(second + 1),
    }
}

const PORT: u16 = 5202;
const GRACE_S: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_lies_between_a_share_and_one() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn fairness_counts_from_where_it_stays() {
        let at = |second| if second == 3 || second > 5 { 1.0 } else { 0.5 };
        assert_eq!(fair_from(0, 9, at), Some(6));
        assert_eq!(fair_from(6, 9, at), Some(6));
        assert_eq!(fair_from(0, 5, at), None);
        assert_eq!(fair_from(7, 6, at), None, "too short to tell");
    }
}
