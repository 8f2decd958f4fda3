//! `lab plan`: what the order of tests is worth, on replayed series: by forecast error × staleness, and by the paper's list.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use barograph_forecast::{Battery, Config, Loss};
use barograph_mesh::{Cost, PairForecast, PlanConfig, Planner, Policy};

use crate::forecast::read_folder;

/// What `lab plan` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder with the traces (*.csv).
    #[arg(value_name = "DIR")]
    traces: PathBuf,
    /// How many pairs one station tests; each replays a part of a trace.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    /// Turns of the station; each makes one test, and moves every series on by one value.
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    turns: u32,
    /// How many seeds to take the mean of.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
}

/// Replays and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let traces: Vec<Vec<f64>> = read_folder(&args.traces)?
        .into_iter()
        .map(|(_, samples)| samples.iter().map(|sample| sample.value).collect())
        .collect();
    let pairs = parts(&traces, args.pairs as usize, args.turns as usize);
    ensure!(
        pairs.len() == args.pairs as usize,
        "the traces have {} parts of {} values; expected {}",
        pairs.len(),
        args.turns,
        args.pairs
    );
    let mut text = format!(
        "{} pairs, {} turns with a test each, mean of {} seeds; MAE in % of each pair's mean\n\n\
         | order | MAE of all pairs | of the worst pair | fewest and most tests of a pair |\n|---|---:|---:|---:|\n",
        args.pairs, args.turns, args.seeds
    );
    for (name, policy) in
        [("error × staleness", Policy::ErrorTimesStaleness), ("the paper's list", Policy::Paper)]
    {
        let replays: Vec<Replay> =
            (0..args.seeds).map(|seed| replay(&pairs, policy, u64::from(seed))).collect::<Result<_, _>>()?;
        let mean = |of: fn(&Replay) -> f64| replays.iter().map(of).sum::<f64>() / replays.len() as f64;
        writeln!(
            text,
            "| {name} | {:.2} | {:.2} | {:.1}, {:.1} |",
            100.0 * mean(Replay::mae),
            100.0 * mean(|replay| replay.errors.iter().copied().fold(0.0, f64::max)),
            mean(|replay| replay.tests.iter().min().copied().unwrap_or(0) as f64),
            mean(|replay| replay.tests.iter().max().copied().unwrap_or(0) as f64),
        )?;
    }
    print!("{text}");
    Ok(())
}

/// Parts of the traces, of so many values each and with a mean of 1: the first of each trace, the second of each, and so on.
fn parts(traces: &[Vec<f64>], count: usize, length: usize) -> Vec<Vec<f64>> {
    let most = traces.iter().map(|trace| trace.len() / length).max().unwrap_or(0);
    (0..most)
        .flat_map(|part| traces.iter().filter_map(move |trace| trace.chunks_exact(length).nth(part)))
        .filter_map(|part| {
            let mean = part.iter().sum::<f64>() / length as f64;
            (0.0 < mean).then(|| part.iter().map(|value| value / mean).collect())
        })
        .take(count)
        .collect()
}

/// What came of one order.
struct Replay {
    /// Of each pair, the mean error of what was forecast at every turn after the first quarter, tested then or not.
    errors: Vec<f64>,
    /// Of each pair, how often it was tested.
    tests: Vec<u32>,
}

impl Replay {
    fn mae(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len() as f64
    }
}

/// One station tests one pair a turn, and forecasts all of them.
fn replay(pairs: &[Vec<f64>], policy: Policy, seed: u64) -> anyhow::Result<Replay> {
    let config = PlanConfig { seed, policy, ..PlanConfig::default() };
    let mut planner = Planner::new("station", config, std::time::Duration::ZERO)?;
    let names: Vec<String> = (0..pairs.len()).map(|pair| pair.to_string()).collect();
    planner.set_peers(names.iter().map(String::as_str));
    let mut batteries: Vec<Battery> = pairs.iter().map(|_| Battery::new(&Config::default())).collect();
    // Of each pair, the errors at its own tests, which are all that a station knows: their sum and number.
    let mut known = vec![(0.0, 0_u32); pairs.len()];
    let (mut errors, mut tests) = (vec![0.0; pairs.len()], vec![0; pairs.len()]);
    let turns = pairs.iter().map(Vec::len).min().unwrap_or(0);
    let from = turns / WARM_UP_PART;
    let truth = |pair: usize, turn: usize| pairs[pair][turn];
    for turn in 0..turns {
        for (pair, battery) in batteries.iter().enumerate().filter(|_| from <= turn) {
            // A pair without a test so far is wrong by all of it.
            let forecast = battery.forecast(Loss::Absolute).map_or(0.0, |forecast| forecast.value);
            errors[pair] += (forecast - truth(pair, turn)).abs() / (turns - from) as f64;
        }
        let now = planner.next_at();
        let next = planner.next(now).context("nobody refuses, so that each turn has a peer")?;
        let pair: usize = next.peer.parse()?;
        let value = truth(pair, turn);
        if let Some(forecast) = batteries[pair].forecast(Loss::Absolute) {
            known[pair].0 += (forecast.value - value).abs();
            known[pair].1 += 1;
        }
        batteries[pair].update(value)?;
        tests[pair] += 1;
        if let (Some(forecast), (sum, count @ 1..)) = (batteries[pair].forecast(Loss::Absolute), known[pair])
        {
            let relative_error = sum / f64::from(count) / forecast.value;
            let settles_in = std::time::Duration::ZERO;
            planner.set_forecast(
                &next.peer,
                PairForecast { relative_error, goodput_bit_s: forecast.value, settles_in },
            );
        }
        planner.tested(now, &next.peer, Cost::default());
    }
    Ok(Replay { errors, tests })
}

/// The first quarter is not scored: by default each pair has seven tests in it, by the paper's list.
const WARM_UP_PART: usize = 4;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn both_orders_make_as_many_tests_and_error_gives_turns_to_those_that_vary() {
        let steady = vec![1.0; 400];
        // A level that moves every 20 turns.
        let moving: Vec<f64> = (0..400).map(|i| if i / 20 % 2 == 0 { 0.5 } else { 1.5 }).collect();
        let mut pairs = vec![steady; 9];
        pairs.push(moving);
        let of = |policy| replay(&pairs, policy, 1).unwrap();
        let (ours, papers) = (of(Policy::ErrorTimesStaleness), of(Policy::Paper));
        assert_eq!((ours.tests.iter().sum::<u32>(), papers.tests.iter().sum::<u32>()), (400, 400));
        assert!(papers.tests.iter().all(|tests| *tests == 40), "{:?}", papers.tests);
        assert!(100 < ours.tests[9], "{:?}", ours.tests);
        assert!(ours.errors[..9].iter().all(|error| *error < 1e-12), "{:?}", ours.errors);
        assert!(ours.mae() < papers.mae(), "{} {}", ours.mae(), papers.mae());
    }

    #[test]
    fn parts_are_of_all_traces_in_turn_and_have_a_mean_of_1() {
        let traces = [vec![2.0; 5], vec![4.0, 12.0], vec![0.0; 4]];
        assert_eq!(parts(&traces, 9, 2), [vec![1.0, 1.0], vec![0.5, 1.5], vec![1.0, 1.0]]);
    }
}
