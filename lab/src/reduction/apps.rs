//! Two programs besides the reduction: a request to replicas, and a pipeline of small messages.

use barograph_sim::Scenario;

use super::args::BeyondArgs;
use super::beyond::{ABOUT, KB, runs, size, wide_area};
use super::engine::Network;
use super::row::Row;
use super::run::Run;
use super::strategy::Strategy;
use super::tree::next_start;
use crate::table::Table;

/// Both, under every strategy.
pub(crate) fn markdown(args: &BeyondArgs) -> anyhow::Result<String> {
    let scenario = wide_area(args)?;
    let mut text = format!("# Two other programs\n\n{ABOUT} {} rounds each.\n", args.rounds);
    let requests: Vec<Request> =
        [(3, Needs::All), (3, Needs::Majority), (10, Needs::All), (10, Needs::Majority)]
            .into_iter()
            .chain([(30, Needs::All), (30, Needs::Majority)])
            .map(|(replicas, needs)| Request { replicas, needs })
            .collect();
    let titles: Vec<String> = requests.iter().map(Request::title).collect();
    let done = runs(&requests, &Strategy::ALL, |request, strategy| request.run(&scenario, strategy));
    text += &format!(
        "\n## A request to replicas\n\nA client asks n replicas at once, 64 kB each, and goes on when all, or the majority, \
         have answered. Mean and 95th percentile in seconds; an asterisk where requests were abandoned.\n\n{}",
        table(&titles, &done)
    );
    let pipelines = [Pipeline { bytes: KB }, Pipeline { bytes: 16 * KB }];
    let titles: Vec<String> = pipelines.iter().map(|pipeline| size(pipeline.bytes)).collect();
    let done = runs(&pipelines, &Strategy::ALL, |pipeline, strategy| pipeline.run(&scenario, strategy));
    text += &format!(
        "\n## A pipeline of small messages\n\n{MESSAGES} messages pass {HOPS} nodes in order; a node sends the next message \
         when the one before is acknowledged. From the first message's start to the last one's arrival, as above.\n\n{}",
        table(&titles, &done)
    );
    Ok(text)
}

/// A client and its replicas.
struct Request {
    replicas: usize,
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq)]
enum Needs {
    All,
    Majority,
}

impl Request {
    fn title(&self) -> String {
        let needed = if self.needs == Needs::All { "all" } else { "majority" };
        format!("{needed} of {}", self.replicas)
    }

    fn run(&self, scenario: &Scenario, strategy: Strategy) -> Run {
        let mut network = Network::new(scenario, self.replicas, strategy, &vec![0; 2 * self.replicas]);
        let needed = if self.needs == Needs::All { self.replicas } else { self.replicas / 2 + 1 };
        let mut start = 0.0;
        for round in 0..scenario.reductions {
            let send = |replica: usize| network.send_one(2 * replica, round, start, &mut |_| {});
            let mut answers: Vec<f64> = (0..self.replicas).map(send).collect();
            answers.sort_by(f64::total_cmp);
            network.finished(answers[needed - 1] - start);
            start = next_start(scenario, round, answers[self.replicas - 1]);
        }
        network.run
    }
}

/// Nodes in a row.
struct Pipeline {
    bytes: u64,
}

impl Pipeline {
    fn run(&self, scenario: &Scenario, strategy: Strategy) -> Run {
        let owners: Vec<usize> = (0..HOPS).flat_map(|hop| [hop, hop + 1]).collect();
        let mut network = Network::new(scenario, HOPS, strategy, &owners);
        let mut start = 0.0;
        for round in 0..scenario.reductions {
            // When each hop has delivered its latest message, and may send the next.
            let mut free = [start; HOPS];
            for message in 0..MESSAGES {
                let mut at: f64 = start;
                for (hop, free) in free.iter_mut().enumerate() {
                    let number = round * MESSAGES + message;
                    at = network.send(2 * hop, number, at.max(*free), self.bytes, &mut |_| {});
                    *free = at;
                }
            }
            network.finished(free[HOPS - 1] - start);
            start = next_start(scenario, round, free[HOPS - 1]);
        }
        network.run
    }
}

/// A row for each strategy, mean and 95th percentile of each program.
fn table(titles: &[String], done: &[Vec<Run>]) -> Table {
    let mut table = Table::new(["strategy"]).and(titles);
    for (i, strategy) in Strategy::ALL.iter().enumerate() {
        let cell = |runs: &Vec<Run>| {
            let row = Row::of(*strategy, &runs[i]);
            let mark = if row.abandoned == 0 { "" } else { "*" };
            format!("{:.2}, {:.2}{mark}{}", row.mean_s, row.p95_s, runs[i].best())
        };
        table.push([strategy.name()].into_iter().chain(done.iter().map(cell)));
    }
    table
}

/// As deep as the reduction's way to the root and back.
const HOPS: usize = 8;

const MESSAGES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every attempt takes a second, whatever its size.
    fn steady() -> Scenario {
        Scenario { reductions: 3, ..Scenario::default() }
    }

    #[test]
    fn a_pipeline_is_full_after_its_first_messages() {
        let run = Pipeline { bytes: KB }.run(&steady(), Strategy::Static(45.0));
        assert_eq!(run.times, [(MESSAGES + HOPS - 1) as f64; 3]);
        assert_eq!(run.sends as usize, 3 * MESSAGES * HOPS);
    }

    #[test]
    fn a_majority_does_not_wait_for_the_slow() {
        let law = barograph_sim::scenario::Law::Lognormal { sigma: 0.5, slow_share: 0.0, slow_factor: 1.0 };
        let link = barograph_sim::scenario::LinkLaw { law, ..Default::default() };
        let scenario = Scenario { link, ..steady() };
        let times = |needs| Request { replicas: 9, needs }.run(&scenario, Strategy::Static(45.0)).times;
        for (all, majority) in times(Needs::All).iter().zip(times(Needs::Majority)) {
            assert!(majority < *all);
        }
    }
}
