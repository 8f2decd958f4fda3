//! `lab plan`: compares two orders of tests on replayed series: by the expected gain of a test, and
//! by the paper's list.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use barograph_forecast::{Battery, BatteryConfig, Objective};
use barograph_mesh::{Cost, PairForecast, PlanConfig, Planner, SelectionPolicy};
use barograph_sim::SeededRng;

use crate::output::Output;
use crate::series::read_folder;
use crate::stats::{mean, mean_and_error, range};
use crate::table::{Table, cells};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with the traces (*.csv).
    #[arg(value_name = "DIR")]
    traces: PathBuf,
    /// Pairs that the station tests; each replays a part of a trace.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    /// Turns of the station, with one test each.
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    turns: u32,
    /// Turns for which each value of a trace lasts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    hold: u32,
    /// Meshes drawn at random; each is replayed in both orders.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    seeds: u32,
    /// Half of each trace to use; the order was developed on the second.
    #[arg(long, value_enum, default_value_t = Half::First)]
    half: Half,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Half {
    First,
    Second,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let length = args.turns.div_ceil(args.hold) as usize;
    let halves: Vec<Vec<f64>> = read_folder(&args.traces)?
        .into_iter()
        .map(|(_, samples)| {
            let (first, second) = samples.split_at(samples.len() / 2);
            let half = if args.half == Half::First { first } else { second };
            half.iter().map(|sample| sample.value).collect()
        })
        .filter(|half: &Vec<f64>| length <= half.len())
        .collect();
    ensure!(!halves.is_empty(), "no trace has {length} values in a half");
    let about = format!(
        "{} pairs of {} traces, {} turns with a test each, values last {} turns, {} meshes; MAE in % of each pair's mean, ± standard error\n\n",
        args.pairs,
        halves.len(),
        args.turns,
        args.hold,
        args.seeds
    );
    let replayed = |policy| -> anyhow::Result<Vec<Replay>> {
        let seeds = (0..args.seeds).map(u64::from);
        seeds
            .map(|seed| {
                let pairs = drawn(&halves, args.pairs as usize, length, seed);
                replay(&pairs, args.turns as usize, args.hold as usize, policy, seed)
            })
            .collect()
    };
    let (gain, list) = (replayed(SelectionPolicy::Gain)?, replayed(SelectionPolicy::Paper)?);
    let mut table =
        Table::new(["order", "MAE of all pairs", "of the worst pair", "fewest and most tests of a pair"]);
    for (name, replays) in [("by expected gain", &gain), ("the paper's list", &list)] {
        let of = |of: fn(&Replay) -> f64| mean_and_error(&replays.iter().map(of).collect::<Vec<f64>>());
        let (mae, error) = of(Replay::mae);
        let worst = of(|replay| range(replay.errors.iter().copied()).1).0;
        let tests = |replay: &Replay| range(replay.tests.iter().map(|tests| f64::from(*tests)));
        let (fewest, most) = (
            mean(&replays.iter().map(|replay| tests(replay).0).collect::<Vec<f64>>()),
            mean(&replays.iter().map(|replay| tests(replay).1).collect::<Vec<f64>>()),
        );
        table.push(cells![
            name,
            format!("{:.2} ± {:.2}", 100.0 * mae, 100.0 * error),
            format!("{:.2}", 100.0 * worst),
            format!("{fewest:.1}, {most:.1}"),
        ]);
    }
    let differences: Vec<f64> = gain.iter().zip(&list).map(|(a, b)| a.mae() - b.mae()).collect();
    let (difference, error) = mean_and_error(&differences);
    let of_list = mean(&list.iter().map(Replay::mae).collect::<Vec<f64>>());
    Output::new(page, false).print(&format!(
        "{about}{table}\nDifference of the orders, mean over meshes: {:+.1} % ± {:.1} % of the list's MAE\n",
        100.0 * difference / of_list,
        100.0 * error / of_list
    ))
}

/// Draws `count` pairs: parts of consecutive traces, beginning with a random one. Each has `length`
/// values from a random position, divided by their mean.
fn drawn(traces: &[Vec<f64>], count: usize, length: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = SeededRng::new(seed, 0);
    let first = rng.index_below(traces.len());
    (first..first + count)
        .map(|trace| {
            let trace = &traces[trace % traces.len()];
            let from = rng.index_below(trace.len() - length + 1);
            let part = &trace[from..from + length];
            let mean = mean(part);
            // A part with only zeros stays so: it leaves nothing to forecast.
            part.iter().map(|value| if mean > 0.0 { value / mean } else { 0.0 }).collect()
        })
        .collect()
}

struct Replay {
    /// Mean error of each pair's forecasts at all turns after the first quarter, whether tested or
    /// not.
    errors: Vec<f64>,
    /// Number of tests of each pair.
    tests: Vec<u32>,
}

impl Replay {
    fn mae(&self) -> f64 {
        mean(&self.errors)
    }
}

/// Simulates one station that tests one pair in each turn and forecasts all of them.
fn replay(
    pairs: &[Vec<f64>],
    turns: usize,
    hold: usize,
    policy: SelectionPolicy,
    seed: u64,
) -> anyhow::Result<Replay> {
    let config = PlanConfig { seed, policy, ..PlanConfig::default() };
    let mut planner = Planner::new("station", config, std::time::Duration::ZERO)?;
    let names: Vec<String> = (0..pairs.len()).map(|pair| pair.to_string()).collect();
    planner.set_peers(names.iter().map(String::as_str));
    let mut batteries: Vec<Battery> = pairs.iter().map(|_| Battery::new(&BatteryConfig::default())).collect();
    let (mut errors, mut tests) = (vec![0.0; pairs.len()], vec![0; pairs.len()]);
    let from = turns / WARM_UP_PART;
    let truth = |pair: usize, turn: usize| pairs[pair][turn / hold];
    for turn in 0..turns {
        for (pair, battery) in batteries.iter().enumerate().filter(|_| from <= turn) {
            // Before its first test the forecast of a pair is 0.
            let forecast = battery.forecast(Objective::Absolute).map_or(0.0, |forecast| forecast.value);
            errors[pair] += (forecast - truth(pair, turn)).abs() / (turns - from) as f64;
        }
        let now = planner.next_at();
        let next = planner.next(now).context("the planner has no peer for this turn")?;
        let pair: usize = next.peer.parse()?;
        let value = truth(pair, turn);
        batteries[pair].update(value)?;
        tests[pair] += 1;
        planner.record_test(now, &next.peer, Cost::default(), value);
        if let Some(forecast) = batteries[pair].forecast(Objective::Absolute) {
            let settles_in = std::time::Duration::ZERO;
            planner.set_forecast(&next.peer, PairForecast { goodput_bit_s: forecast.value, settles_in });
        }
    }
    Ok(Replay { errors, tests })
}

/// The first quarter is not scored: by the paper's list and with the defaults each pair has seven
/// tests in it.
const WARM_UP_PART: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_gives_more_turns_to_changing_pairs_with_equally_many_tests() {
        // 100 tests of each pair by the list. With fewer, forecasts depend on the last value and
        // follow noise, too.
        const TURNS: usize = 1200;
        let mut rng = SeededRng::new(1, 0);
        let mut made = |of: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
            (0..TURNS).map(|turn| of(turn, 2.0 * rng.uniform() - 1.0)).collect()
        };
        let mut pairs = Vec::new();
        for pair in 0..4 {
            // A level that moves every 60 turns, noise that no test reduces, and a pair with almost
            // neither.
            pairs.push(made(&|turn, _| if (turn / 60 + pair) % 2 == 0 { 0.5 } else { 1.5 }));
            pairs.push(made(&|_, noise| 1.0 + 0.8 * noise));
            pairs.push(made(&|_, noise| 1.0 + 0.02 * noise));
        }
        let of = |policy| replay(&pairs, TURNS, 1, policy, 1).unwrap();
        let (ours, papers) = (of(SelectionPolicy::Gain), of(SelectionPolicy::Paper));
        assert_eq!((ours.tests.iter().sum::<u32>(), papers.tests.iter().sum::<u32>()), (1200, 1200));
        assert!(papers.tests.iter().all(|tests| *tests == 100), "{:?}", papers.tests);
        let turns = |kind: usize| f64::from(ours.tests.iter().skip(kind).step_by(3).sum::<u32>()) / 4.0;
        // An order by age alone would give equal numbers; the noise is as large as the moves. With
        // seeds 1 to 8 the ratio is 1.25 to 1.47.
        assert!(1.2 * turns(1) <= turns(0) && turns(2) < turns(1), "{:?}", ours.tests);
        assert!(ours.mae() < papers.mae(), "{} {}", ours.mae(), papers.mae());
    }

    #[test]
    fn meshes_are_drawn_from_all_traces_by_the_seed() {
        let traces = [vec![2.0; 5], vec![4.0, 12.0], vec![0.0; 4]];
        let mut pairs = drawn(&traces, 3, 2, 7);
        assert_eq!(pairs, drawn(&traces, 3, 2, 7));
        pairs.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(pairs, [vec![0.0, 0.0], vec![0.5, 1.5], vec![1.0, 1.0]]);
    }
}
