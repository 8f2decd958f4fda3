//! One scenario under every strategy.

use anyhow::Context;
use barograph_sim::Scenario;

use super::args::Args;
use super::over_link::{self, Copies};
use super::row::Row;
use super::run::Run;
use super::strategy::Strategy;
use super::tree;
use crate::jobs;
use crate::output::Output;
use crate::table::{Table, cells, number};

/// Runs and prints.
pub(crate) fn run(args: &Args, scenario: &Scenario, output: &Output) -> anyhow::Result<()> {
    let mut strategies = args.strategies();
    if args.over_link && args.strategy.is_empty() {
        strategies.retain(|strategy| !strategy.is_hedged());
    }
    let runs = if args.over_link {
        runs_over_link(scenario, &strategies).with_context(|| scenario.name.clone())?
    } else {
        runs(scenario, &strategies)
    };
    let rows: Vec<Row> =
        strategies.iter().zip(&runs).map(|(strategy, run)| Row::of(*strategy, run)).collect();
    if args.json {
        eprintln!("{}", scenario.name);
    }
    rows.iter().try_for_each(|row| output.json(row))?;
    let mut text = markdown(scenario, &rows, &runs);
    if args.over_link {
        text += OVER_LINK;
    }
    output.print(&text)
}

fn runs(scenario: &Scenario, strategies: &[Strategy]) -> Vec<Run> {
    let work = |strategy: &Strategy| strategy.run(|strategy| tree::run(scenario, 1, strategy, |_| {}));
    jobs::all(strategies, |strategy| strategy.name(), work)
}

/// The same over real links; which static timeout is the best, the engine tells.
fn runs_over_link(scenario: &Scenario, strategies: &[Strategy]) -> anyhow::Result<Vec<Run>> {
    let work = |strategy: &Strategy| {
        let best_s = match strategy {
            Strategy::StaticBest => strategy.run(|strategy| tree::run(scenario, 1, strategy, |_| {})).best_s,
            _ => None,
        };
        let run = over_link::run(scenario, best_s.map_or(*strategy, Strategy::Static), Copies::Vanish)?;
        Ok(Run { best_s, ..run })
    };
    jobs::all(strategies, |strategy| strategy.name(), work).into_iter().collect()
}

fn markdown(scenario: &Scenario, rows: &[Row], runs: &[Run]) -> String {
    let Scenario { name, about, nodes, reductions, tries, seed, .. } = scenario;
    let mut text = format!("## {name}\n\n");
    if !about.is_empty() {
        text += &format!("{}. ", capitalised(about));
    }
    text += &format!("{nodes} nodes, {reductions} reductions, {tries} tries a message, seed {seed}.\n\n");
    let shortest = rows.iter().map(|row| row.mean_s).fold(f64::INFINITY, f64::min);
    let (unit, scale) = unit(shortest);
    let mut table = Table::new([
        "strategy",
        &format!("mean {unit}"),
        "p95",
        "max",
        "SD",
        "÷ static-best",
        "retried %",
        "retries a retried",
        "extra bytes %",
        "abandoned",
    ]);
    let best = rows.iter().find(|row| row.strategy == Strategy::StaticBest.name()).map(|row| row.mean_s);
    for row in rows {
        let times = [row.mean_s, row.p95_s, row.max_s, row.sd_s].map(|time| format!("{:.3}", time * scale));
        table.push([row.strategy.clone()].into_iter().chain(times).chain(cells![
            number(best.map(|best| row.mean_s / best), 3),
            format!("{:.2}", 100.0 * row.retried_share),
            row.retries(2),
            format!("{:.2}", 100.0 * row.extra_bytes_share),
            row.abandoned,
        ]));
    }
    text += &table.to_string();
    if let Some(best) = runs.iter().find_map(|run| run.best_s) {
        text += &format!("\nThe best static timeout, in hindsight of 40, is {best:.3} s.\n");
    }
    text + "An abandoned message is sent once more and waited for, so its reduction enters the means.\n\n"
}

const OVER_LINK: &str = "Over the real link code in virtual time, whose timers are exact to 1 ms. A link \
    sends no copy beside the first, so there is no default-hedged; the engine chose static-best.\n\n";

/// Seconds, or milliseconds where all is quick.
fn unit(shortest: f64) -> (&'static str, f64) {
    if shortest < 0.1 { ("ms", 1000.0) } else { ("s", 1.0) }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_hangs_on_the_seed_alone_and_a_generous_timeout_cuts_nothing() {
        let scenario = Scenario { nodes: 7, reductions: 20, ..Scenario::default() };
        let strategies = [Strategy::Static(45.0), Strategy::StaticBest, Strategy::Static(0.5)];
        let first = runs(&scenario, &strategies);
        let again = runs(&scenario, &strategies);
        for (one, other) in first.iter().zip(&again) {
            assert_eq!(one.times, other.times);
        }
        // Two levels up and two down, each a second.
        assert!(first[0].times.iter().all(|time| (time - 4.0).abs() < 1e-9), "{:?}", first[0].times);
        assert_eq!((first[0].sends, first[0].retried, first[0].abandoned()), (20 * 12, 0, 0));
        assert!(first[1].best_s.is_some_and(|best| 1.0 <= best));
        // Each message is cut off five times, half a second each, and waited for at last.
        assert_eq!(first[2].abandoned(), 20);
        assert_eq!(first[2].retries, 5 * first[2].sends);
        assert!((first[2].times[0] - 4.0 * 3.5).abs() < 1e-9, "{}", first[2].times[0]);
    }

    #[test]
    fn json_has_the_promised_keys() {
        let scenario = Scenario { nodes: 3, reductions: 2, ..Scenario::default() };
        let run = tree::run(&scenario, 1, Strategy::Static(2.0), |_| {});
        let line = serde_json::to_string(&Row::of(Strategy::Static(2.0), &run)).expect("a row is plain data");
        let keys = [
            "strategy",
            "mean_s",
            "p95_s",
            "max_s",
            "sd_s",
            "retried_share",
            "retries_per_retried",
            "extra_bytes_share",
            "abandoned",
        ];
        let at: Vec<_> = keys.iter().map(|key| line.find(&format!("\"{key}\":")).expect(key)).collect();
        assert!(at.is_sorted() && line.matches(':').count() == keys.len(), "{line}");
    }

    #[test]
    fn names_are_those_of_the_strategies() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.name().parse(), Ok(strategy));
        }
        assert_eq!("static-0.5".parse(), Ok(Strategy::Static(0.5)));
        for wrong in ["static-", "static-nan", "static-0", "static--1", "mean+sd", "static-1e99", "best"] {
            assert!(wrong.parse::<Strategy>().is_err_and(|error| error.contains("static-best")), "{wrong}");
        }
    }
}
