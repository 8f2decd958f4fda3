//! Questions that the paper leaves open: the size of messages, large messages in pieces, and two
//! other programs.

use barograph_sim::Scenario;

use super::engine::{Network, Row, Run, next_start};
use super::paper::{P1, built_in};
use super::strategy::{Strategy, best_static};
use super::{BeyondArgs, engine};
use crate::figure::{Axes, BLUE, INK, Mark, ORANGE, Scale, VERMILION, legend, svg};
use crate::jobs;
use crate::output::save;
use crate::stats::{Summary, mean};
use crate::table::{Table, cells, list, number};

/// P1 with response times that depend on the size: four fifths of that of 64 kB grow with it.
/// Stalls befall bytes rather than messages, so a message of 1 MB stalls sixteen times as often as
/// one of 64 kB.
pub(crate) fn wide_area(args: &BeyondArgs) -> anyhow::Result<Scenario> {
    let mut scenario = built_in(P1, "p1")?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.reductions = args.rounds as usize;
    scenario.link.size_share = 0.8;
    for stall in scenario.stall.iter_mut().chain(&mut scenario.more_stalls) {
        stall.per_bytes = Some(64 * KB);
    }
    Ok(scenario)
}

pub(crate) const ABOUT: &str = "The links are those of P1 (5 tries), where 0.2 of the response time of 64 kB is fixed and \
    0.8 grow with the size, and where stalls befall bytes: a megabyte stalls sixteen times as often as 64 kB.";

pub(crate) fn runs<P: Sync>(
    programs: &[P],
    strategies: &[Strategy],
    run: impl Fn(&P, Strategy) -> Run + Sync,
) -> Vec<Vec<Run>> {
    let work: Vec<(&P, Strategy)> = programs
        .iter()
        .flat_map(|program| strategies.iter().map(move |strategy| (program, *strategy)))
        .collect();
    let one = |(program, strategy): &(&P, Strategy)| match strategy {
        // The largest messages take longer than the paper's limit of two minutes for static
        // timeouts.
        Strategy::StaticBest => best_static(HINDSIGHT_MAX_S, |strategy| run(program, strategy)),
        strategy => run(program, *strategy),
    };
    let done = jobs::all(&work, |(_, strategy)| strategy.name(), one);
    let mut done = done.into_iter();
    programs.iter().map(|_| done.by_ref().take(strategies.len()).collect()).collect()
}

pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1024 * KB { format!("{} kB", bytes / KB) } else { format!("{} MB", bytes / KB / 1024) }
}

pub(crate) const KB: u64 = 1024;

/// One hour: more than thirty times what the largest message takes.
const HINDSIGHT_MAX_S: f64 = 3600.0;

/// Smaller gains count as ties, because three seeds cannot distinguish them.
pub(crate) const TIE: f64 = 0.015;

pub(crate) fn sizes_markdown(args: &BeyondArgs) -> anyhow::Result<String> {
    let wide_area = wide_area(args)?;
    let sizes: Vec<u64> = (0..8).map(|i| KB << (2 * i)).collect();
    let scenarios: Vec<Scenario> =
        sizes.iter().map(|bytes| Scenario { message_bytes: vec![*bytes], ..wide_area.clone() }).collect();
    let runs = runs(&scenarios, &SIZES_STRATEGIES, |scenario, strategy| {
        engine::run_tree(scenario, 1, strategy, |_| {})
    });
    let text = format!(
        "# The size of messages\n\nMean times of {} reductions in seconds. {ABOUT}\n\n{}\n{}",
        args.rounds,
        sizes_table(&sizes, &runs),
        sizes_findings(&sizes, &runs)
    );
    let path = save(&args.out, "sizes.svg", &draw(&sizes, &runs)?)?;
    Ok(text + &format!("\nFigure: {}\n", path.display()))
}

const SIZES_STRATEGIES: [Strategy; 5] = [
    Strategy::Static(45.0),
    Strategy::StaticBest,
    Strategy::Nws(2.0),
    Strategy::NwsEscalating,
    Strategy::Default,
];
const FORTY_FIVE: usize = 0;
const SIZES_BEST: usize = 1;
const NWS: usize = 2;
const ESCALATING: usize = 3;
const SIZES_DEFAULT: usize = 4;

fn ratio(runs: &[Run], of: usize, to: usize) -> f64 {
    mean(&runs[of].times) / mean(&runs[to].times)
}

fn sizes_table(sizes: &[u64], runs: &[Vec<Run>]) -> Table {
    let mut table = Table::titled(
        "size | static-45 | abandoned % | static-best | its timeout | mean+2sd | seed-escalating | \
         default | default ÷ static-best | default ÷ static-45",
    );
    for (bytes, runs) in sizes.iter().zip(runs) {
        let mean = |of: usize| format!("{:.2}", mean(&runs[of].times));
        let abandoned = 100.0 * runs[FORTY_FIVE].abandoned() as f64 / runs[FORTY_FIVE].times.len() as f64;
        table.push(cells![
            size(*bytes),
            mean(FORTY_FIVE),
            format!("{abandoned:.0}"),
            mean(SIZES_BEST),
            number(runs[SIZES_BEST].best_s, 2) + " s",
            mean(NWS),
            mean(ESCALATING),
            mean(SIZES_DEFAULT),
            format!("{:.3}", ratio(runs, SIZES_DEFAULT, SIZES_BEST)),
            format!("{:.3}", ratio(runs, SIZES_DEFAULT, FORTY_FIVE)),
        ]);
    }
    table
}

fn sizes_findings(sizes: &[u64], runs: &[Vec<Run>]) -> String {
    let mut text = String::new();
    for (to, name) in [(SIZES_BEST, "the best static timeout"), (FORTY_FIVE, "a static 45 s")] {
        let ratios: Vec<f64> = runs.iter().map(|runs| ratio(runs, SIZES_DEFAULT, to)).collect();
        let best = (0..sizes.len()).min_by(|a, b| ratios[*a].total_cmp(&ratios[*b])).unwrap_or(0);
        let listed = |of: &dyn Fn(f64) -> bool| {
            let found = sizes.iter().zip(&ratios).filter(|(_, ratio)| of(**ratio));
            let names = list(found.map(|(bytes, _)| size(*bytes)));
            if names.is_empty() { "no size".to_owned() } else { names }
        };
        text += &format!(
            "Against {name} the default gains most at {} ({:.1} %); it gains nothing (within {} %) at {}, and loses at {}.\n",
            size(sizes[best]),
            100.0 * (1.0 - ratios[best]),
            TIE * 100.0,
            listed(&|ratio| (ratio - 1.0).abs() <= TIE),
            listed(&|ratio| 1.0 + TIE < ratio),
        );
    }
    let is_late =
        |(_, runs): &(&u64, &Vec<Run>)| runs[FORTY_FIVE].abandoned() == runs[FORTY_FIVE].times.len();
    let late = list(sizes.iter().zip(runs).filter(is_late).map(|(bytes, _)| size(*bytes)));
    if !late.is_empty() {
        text += &format!("A static 45 s cannot deliver {late} and abandons every reduction there.\n");
    }
    text
}

fn draw(sizes: &[u64], runs: &[Vec<Run>]) -> anyhow::Result<String> {
    let kilobytes = |bytes: u64| bytes as f64 / KB as f64;
    let axes = Axes::new([100, 70, 860, 380], Scale::Log(0.8, 20_000.0), Scale::Linear(0.2, 1.4));
    svg(1000, 540, |root| {
        let x: Vec<(f64, String)> = sizes.iter().map(|bytes| (kilobytes(*bytes), size(*bytes))).collect();
        let y: Vec<f64> = (1..=7).map(|i| f64::from(i) / 5.0).collect();
        let y: Vec<(f64, String)> = y.iter().map(|value| (*value, format!("{value:.1}"))).collect();
        axes.frame(root, "", ("size of a message", &x), ("mean reduction time, ratio", &y))?;
        axes.line(root, &[(0.8, 1.0), (20_000.0, 1.0)], INK, 1)?;
        let lines = [
            (VERMILION, SIZES_DEFAULT, SIZES_BEST, "default ÷ best static"),
            (BLUE, ESCALATING, SIZES_BEST, "seed-escalating ÷ best static"),
            (ORANGE, SIZES_DEFAULT, FORTY_FIVE, "default ÷ static 45 s"),
        ];
        legend(root, 100, 34, lines.map(|(colour, _, _, name)| (Mark::Line, colour, name)))?;
        for (colour, of, to, _) in lines {
            let point = |(bytes, runs): (&u64, &Vec<Run>)| (kilobytes(*bytes), ratio(runs, of, to));
            let points: Vec<(f64, f64)> = sizes.iter().zip(runs).map(point).collect();
            axes.line(root, &points, colour, 3)?;
            axes.marks(root, &points, Mark::Dot, colour)?;
        }
        Ok(())
    })
}

/// Messages of 1, 4 and 16 MB, whole and in pieces.
pub(crate) fn pieces_markdown(args: &BeyondArgs) -> anyhow::Result<String> {
    let scenario = wide_area(args)?;
    let mut text = format!(
        "# Large messages in pieces\n\nMean time of a message in seconds, over {LINKS} links with {} messages each (fewer \
         where there are over {FEW} pieces), after a third of them that warm up the timeouts. A piece is an exchange of its own: the next one is sent when it is acknowledged, so \
         each costs a round trip. {ABOUT}\n",
        args.rounds
    );
    for whole in [1024 * KB, 4096 * KB, 16_384 * KB] {
        let pieces: Vec<u64> = (0..6).map(|i| (16 * KB) << (2 * i)).filter(|piece| *piece <= whole).collect();
        let runs =
            runs(&pieces, &PIECES_STRATEGIES, |piece, strategy| program(&scenario, whole, *piece, strategy));
        text += &format!(
            "\n## {}\n\n{}\n{}",
            size(whole),
            pieces_table(&pieces, &runs),
            pieces_findings(&pieces, &runs)
        );
    }
    Ok(text)
}

const PIECES_STRATEGIES: [Strategy; 4] =
    [Strategy::StaticBest, Strategy::Nws(2.0), Strategy::NwsEscalating, Strategy::Default];

/// Sends messages of `whole` bytes in pieces, on links of their own.
fn program(scenario: &Scenario, whole: u64, piece: u64, strategy: Strategy) -> Run {
    let pieces = (whole / piece) as usize;
    // Timeouts learn as much from hundreds of pieces as from hundreds of messages.
    let messages = (scenario.reductions * FEW / pieces.max(FEW)).max(LEAST);
    // Only the paths away from the node are used; all start at one node.
    let mut network = Network::new(scenario, LINKS, strategy, &[0; 2 * LINKS]);
    for link in 0..LINKS {
        let mut at = 0.0;
        for message in 0..messages {
            let start = at;
            for number in 0..pieces {
                at = network.send(2 * link, message * pieces + number, at, piece, &mut |_| {});
            }
            if messages / 3 <= message {
                network.finished(at - start);
            }
        }
    }
    network.run
}

fn pieces_table(pieces: &[u64], runs: &[Vec<Run>]) -> Table {
    let names = PIECES_STRATEGIES.map(Strategy::name);
    let mut table = Table::new(["piece"]).and(names).and(["default, p95", "default, ÷ whole"]);
    let whole = runs.last().map_or(f64::NAN, |runs| mean(&runs[PIECES_DEFAULT].times));
    for (piece, runs) in pieces.iter().zip(runs) {
        let of_strategies = runs.iter().map(|run| format!("{:.2}{}", mean(&run.times), run.best()));
        let Summary { mean, p95, .. } = Summary::of(&runs[PIECES_DEFAULT].times);
        let of_default = [format!("{p95:.2}"), format!("{:.3}", mean / whole)];
        table.push([size(*piece)].into_iter().chain(of_strategies).chain(of_default));
    }
    table
}

fn pieces_findings(pieces: &[u64], runs: &[Vec<Run>]) -> String {
    let summaries: Vec<Summary> = runs.iter().map(|runs| Summary::of(&runs[PIECES_DEFAULT].times)).collect();
    let Some((whole, cut)) = summaries.split_last() else { return String::new() };
    let verdict = |what: &str, of: fn(&Summary) -> f64| {
        let best = (0..cut.len()).min_by(|a, b| of(&cut[*a]).total_cmp(&of(&cut[*b]))).unwrap_or(0);
        let gain = 1.0 - of(&cut[best]) / of(whole);
        let verdict = if gain > TIE { "pays" } else { "does not pay" };
        let than = if gain > 0.0 { "less" } else { "more" };
        let percent = 100.0 * gain.abs();
        format!(
            "in the {what} it {verdict}: at best {percent:.1} % {than}, with pieces of {}",
            size(pieces[best])
        )
    };
    let (mean, p95) =
        (verdict("mean", |summary| summary.mean), verdict("95th percentile", |summary| summary.p95));
    format!("Whether cutting pays under the default: {mean}; {p95}.\n")
}

const PIECES_DEFAULT: usize = 3;

/// Enough links that no single one decides the mean.
const LINKS: usize = 10;

/// With more pieces than this in a message, fewer messages are sent, so that no row takes minutes.
const FEW: usize = 16;

/// Least number of messages on a link: the mean is then over 200.
const LEAST: usize = 30;

pub(crate) fn apps_markdown(args: &BeyondArgs) -> anyhow::Result<String> {
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
        "\n## A request to replicas\n\nA client sends a request of 64 kB to n replicas at once and continues when all, or the majority, \
         have responded. Mean and 95th percentile in seconds; an asterisk marks abandoned requests.\n\n{}",
        apps_table(&titles, &done)
    );
    let pipelines = [Pipeline { bytes: KB }, Pipeline { bytes: 16 * KB }];
    let titles: Vec<String> = pipelines.iter().map(|pipeline| size(pipeline.bytes)).collect();
    let done = runs(&pipelines, &Strategy::ALL, |pipeline, strategy| pipeline.run(&scenario, strategy));
    text += &format!(
        "\n## A pipeline of small messages\n\n{MESSAGES} messages pass {HOPS} nodes in order; a node sends the next message \
         when the one before is acknowledged. From the first message's start to the last one's arrival, as above.\n\n{}",
        apps_table(&titles, &done)
    );
    Ok(text)
}

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

struct Pipeline {
    bytes: u64,
}

impl Pipeline {
    fn run(&self, scenario: &Scenario, strategy: Strategy) -> Run {
        let owners: Vec<usize> = (0..HOPS).flat_map(|hop| [hop, hop + 1]).collect();
        let mut network = Network::new(scenario, HOPS, strategy, &owners);
        let mut start = 0.0;
        for round in 0..scenario.reductions {
            // Time at which each hop has delivered its latest message and may send the next.
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

fn apps_table(titles: &[String], done: &[Vec<Run>]) -> Table {
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

/// As many hops as the reduction has to the root and back.
const HOPS: usize = 8;
const MESSAGES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_the_sum_of_the_times_of_its_pieces() {
        let mut scenario = Scenario { reductions: 30, ..Scenario::default() };
        scenario.link.size_share = 0.5;
        let time = |piece| program(&scenario, 256 * KB, piece, Strategy::Static(45.0)).times;
        // Half a second, and half a second for each 64 kB.
        assert_eq!(time(256 * KB), vec![2.5; 20 * LINKS], "a third warms up");
        assert_eq!(time(64 * KB), vec![4.0; 20 * LINKS]);
    }

    /// Every attempt takes one second, whatever its size.
    fn steady() -> Scenario {
        Scenario { reductions: 3, ..Scenario::default() }
    }

    #[test]
    fn a_pipeline_takes_one_step_a_message_once_it_is_full() {
        let run = Pipeline { bytes: KB }.run(&steady(), Strategy::Static(45.0));
        assert_eq!(run.times, [(MESSAGES + HOPS - 1) as f64; 3]);
        assert_eq!(run.sends as usize, 3 * MESSAGES * HOPS);
    }

    #[test]
    fn a_request_for_a_majority_does_not_wait_for_slow_replicas() {
        let law = barograph_sim::scenario::ResponseTimeLaw::Lognormal {
            sigma: 0.5,
            slow_share: 0.0,
            slow_factor: 1.0,
        };
        let link = barograph_sim::scenario::LinkLaw { law, ..Default::default() };
        let scenario = Scenario { link, ..steady() };
        let times = |needs| Request { replicas: 9, needs }.run(&scenario, Strategy::Static(45.0)).times;
        for (all, majority) in times(Needs::All).iter().zip(times(Needs::Majority)) {
            assert!(majority < *all);
        }
    }
}
