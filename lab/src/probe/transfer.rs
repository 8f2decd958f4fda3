//! `goodput` and `goodput_down` against iperf3: the same bytes on the same path, in turns.

use anyhow::Context;
use barograph_forecast::{Battery, Config, Loss};
use barograph_probe::reduce::median;
use barograph_probe::{Direction, Experiment, Plan};
use barograph_sim::{Network, say_skipped};

use super::path::{Bench, Path, Station, Unanswered, measure, once};
use super::peer::{has_iperf3, iperf3};
use super::row::{Goal, Question, Row, Unit, Verdict};

/// Progress: one for each pair of transfers.
pub(crate) fn steps(quick: bool) -> u64 {
    let size = Size::of(quick);
    (size.rates_bps.len() * DIRECTIONS.len()) as u64 * u64::from(size.pairs)
}

/// Both directions on paths of several rates.
pub(crate) fn rows(bench: &Bench, quick: bool) -> Vec<Row> {
    let size = Size::of(quick);
    let present = has_iperf3();
    if !present {
        say_skipped("iperf3 is not installed");
    }
    let mut rows = Vec::new();
    for &rate_bps in size.rates_bps {
        let path = Path::shaped(RTT_MS, rate_bps);
        for direction in DIRECTIONS {
            let [raw, corrected] = questions(direction, &path);
            if present {
                let bytes = (rate_bps as f64 / 8.0 * size.seconds) as u64;
                rows.extend(compare(bench, &path, direction, (bytes, size.pairs), [raw, corrected]));
            } else {
                rows.push(corrected.unanswered(Verdict::Skipped, "iperf3 is not installed".to_owned()));
            }
        }
    }
    rows
}

/// One transfer of each.
struct Pair {
    raw: f64,
    corrected: f64,
    iperf3: f64,
    /// Bytes that iperf3's receiver counted.
    iperf3_bytes: u64,
}

/// Pairs, each on a fresh network, until enough are good.
fn compare(
    bench: &Bench,
    path: &Path,
    direction: Direction,
    (bytes, wanted): (u64, u32),
    [raw, corrected]: [Question; 2],
) -> Vec<Row> {
    let (mut pairs, mut void, mut why) = (Vec::new(), 0, String::new());
    for attempt in 0..2 * wanted {
        if wanted <= pairs.len() as u32 || (wanted <= attempt && !bench.may_repeat()) {
            break;
        }
        bench.begin(&format!("{}, {}", corrected.measure, path.name));
        // Each goes first as often as the other.
        let ours_first = attempt % 2 == 0;
        match once(path, attempt.into(), &|network: &Network| pair(network, direction, bytes, ours_first)) {
            Ok(pair) => {
                pairs.push(pair);
                bench.done();
            }
            Err(Unanswered { verdict: Verdict::Void, why: reason }) => {
                void += 1;
                why = reason;
            }
            Err(Unanswered { verdict, why }) => return vec![corrected.unanswered(verdict, why)],
        }
    }
    let note = format!("{} pairs of {:.1} MB, {void} void", pairs.len(), bytes as f64 / 1e6);
    if (pairs.len() as u32) < wanted.div_ceil(2) {
        return vec![corrected.unanswered(Verdict::Void, format!("{note}; {why}"))];
    }
    let of =
        |value: fn(&Pair) -> f64| median(&pairs.iter().map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let theirs = of(|pair| pair.iperf3);
    let arrived = of(|pair| pair.iperf3_bytes as f64) / bytes as f64;
    let detail = format!("{note}; iperf3 counted {:.2} % of the bytes", arrived * 100.0);
    vec![
        raw.answered(of(|pair| pair.raw), theirs, note),
        corrected.answered(of(|pair| pair.corrected), theirs, detail),
    ]
}

/// Measures the round trip as a station does, forecasts it, and then makes the two transfers.
fn pair(network: &Network, direction: Direction, bytes: u64, ours_first: bool) -> anyhow::Result<Pair> {
    let station = Station::start(network)?;
    let target = station.target()?;
    let mut battery = Battery::new(&Config::default());
    for _ in 0..3 {
        let rtt = Experiment::Rtt { n: Plan::RTT_EXCHANGES };
        battery.update(measure(network, &target, rtt, None)?.remove(0).value)?;
    }
    let rtt_forecast_s = battery.forecast(Loss::Absolute).map(|forecast| forecast.value);
    let goodput = || {
        let experiment = Experiment::Goodput { direction, bytes };
        let measured = measure(network, &target, experiment, rtt_forecast_s)?.remove(0);
        anyhow::Ok((measured.value, measured.raw.context("goodput has a raw rate")?))
    };
    let ((corrected, raw), received) = if ours_first {
        (goodput()?, iperf3(network, direction, bytes)?)
    } else {
        let received = iperf3(network, direction, bytes)?;
        (goodput()?, received)
    };
    Ok(Pair { raw, corrected, iperf3: received.bits_per_second, iperf3_bytes: received.bytes })
}

fn questions(direction: Direction, path: &Path) -> [Question; 2] {
    let name = match direction {
        Direction::Up => "goodput",
        Direction::Down => "goodput_down",
    };
    ["raw", "corrected"].map(|kind| Question {
        measure: format!("{name}, {kind}"),
        path: path.name.clone(),
        unit: Unit::Megabits,
        peer: "iperf3",
        goal: Goal::Within(0.05),
    })
}

/// How much is transferred.
struct Size {
    rates_bps: &'static [u64],
    /// What the bytes take at the path's rate.
    seconds: f64,
    /// Pairs for each rate and direction.
    pairs: u32,
}

impl Size {
    fn of(quick: bool) -> Self {
        if quick {
            Self { rates_bps: &[50_000_000], seconds: 2.0, pairs: 3 }
        } else {
            Self { rates_bps: &[50_000_000, 100_000_000], seconds: 3.0, pairs: 5 }
        }
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

const RTT_MS: u64 = 20;
