//! The report on the paper's experiment, and its figures.

use std::path::Path;

use barograph_sim::{LinkSimulation, Scenario};

use super::engine::{Row, Run};
use super::strategy::Strategy;
use super::{Args, engine, figures, load};
use crate::jobs;
use crate::output::{Output, save};
use crate::stats::{Summary, mean};
use crate::table::{Table, cells, dash, joined};

pub(crate) fn run(args: &Args, output: &Output) -> anyhow::Result<()> {
    let p1 = Experiment::run(args, P1, "p1")?;
    if args.json {
        return p1.runs.iter().try_for_each(|(strategy, run)| output.json(&Row::of(*strategy, run)));
    }
    let p2 = Experiment::run(args, P2, "p2")?;
    let mut report = "# The reduction of Allen, Wolski and Plank (2002)\n".to_owned();
    report += &tables_markdown(&p1);
    report += &shapes_markdown(&p1);
    report += &promises_markdown(&p1);
    report += &differences(&p1);
    report += "\n## Figures\n\n";
    for figure in [
        figures::statistics(&p1)?,
        figures::distribution(&p1)?,
        figures::tail(&p1)?,
        figures::one(&p1)?,
        figures::two(&p1)?,
        figures::changing(&p1)?,
    ] {
        let path = save(&args.out, figure.file, &figure.svg)?;
        report += &format!("- {}: {}\n", path.display(), figure.says);
    }
    report += "\n# The same on links that are congested now and then\n";
    report += &tables_markdown(&p2);
    report += &shapes_markdown(&p2);
    output.print(&report)
}

pub(crate) struct Experiment {
    pub(crate) scenario: Scenario,
    pub(crate) runs: Vec<(Strategy, Run)>,
}

impl Experiment {
    /// Runs a scenario in the way in which the paper ran its experiment.
    pub(crate) fn run(args: &Args, text: &str, stem: &str) -> anyhow::Result<Self> {
        let mut scenario = built_in(text, stem)?;
        scenario.reductions = REDUCTIONS;
        scenario.tries = args.tries.unwrap_or(TRIES);
        scenario.seed = args.seed.unwrap_or(scenario.seed);
        let strategies = args.strategies();
        let work = |strategy: &Strategy| {
            strategy.run(|strategy| engine::run_tree(&scenario, SETS, strategy, |_| {}))
        };
        let runs = jobs::all(&strategies, |strategy| format!("{stem} {}", strategy.name()), work);
        Ok(Self { runs: strategies.into_iter().zip(runs).collect(), scenario })
    }

    pub(crate) fn of(&self, strategy: Strategy) -> Option<&Run> {
        self.runs.iter().find(|(other, _)| *other == strategy).map(|(_, run)| run)
    }

    pub(crate) fn summary(&self, strategy: Strategy) -> Option<Summary> {
        self.of(strategy).map(|run| Summary::of(&run.times))
    }
}

/// A scenario that is part of the program.
pub(crate) fn built_in(text: &str, stem: &str) -> anyhow::Result<Scenario> {
    load::parse(text, stem, Path::new("")).map_err(|error| anyhow::anyhow!("{stem}: {error}"))
}

/// The paper's links, as far as its tables determine them.
pub(crate) const P1: &str = include_str!("../../scenarios/p1.toml");

/// Links that also show the paper's second mode, as far as they can.
pub(crate) const P2: &str = include_str!("../../scenarios/p2.toml");

/// §5: "10 sets of 100 reductions each".
pub(crate) const SETS: usize = 10;
pub(crate) const REDUCTIONS: usize = 100;

/// §5: "Nodes attempted to resend data 5 times", after the first send.
pub(crate) const TRIES: u32 = 6;

/// The paper's Table 1, in seconds: mean, maximum, minimum, 95th percentile, standard deviation;
/// then the variance. Its "Dynamic" is mean + 2 SD.
pub(crate) const TABLE_1: [(Strategy, Summary, f64); 3] = [
    (Strategy::Static(45.0), Summary { mean: 8.317, max: 51.796, min: 4.447, p95: 13.942, sd: 2.809 }, 7.888),
    (Strategy::Static(15.0), Summary { mean: 8.056, max: 51.187, min: 5.129, p95: 12.642, sd: 2.297 }, 5.261),
    (Strategy::Nws(2.0), Summary { mean: 7.495, max: 29.230, min: 5.303, p95: 10.794, sd: 1.650 }, 2.722),
];

/// The paper's Table 2: percent of the sends retried, and their retries on average.
pub(crate) const TABLE_2: [(Strategy, f64, f64); 6] = [
    (Strategy::Static(45.0), 0.050, 1.000),
    (Strategy::Static(15.0), 0.312, 1.380),
    (Strategy::Static(5.0), 2.513, 1.542),
    (Strategy::Static(2.0), 45.538, 2.638),
    (Strategy::Nws(2.0), 9.056, 1.176),
    (Strategy::Nws(1.0), 20.851, 1.241),
];

pub(crate) fn tables_markdown(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let sets = experiment.runs.first().map_or(0, |(_, run)| run.times.len() / scenario.reductions);
    format!(
        "\n{} nodes in a binary tree, messages of 64 kB, {sets} sets of {} reductions, {} tries a message, seed {}; \
         the links are those of the scenario {}: {}. Every strategy runs on the same links with the \
         same random numbers.\n\n\
         ## Table 1: reduction times in seconds\n\n{}\n\
         ## Table 2: timeouts\n\n{}\n{}",
        scenario.nodes,
        scenario.reductions,
        scenario.tries,
        scenario.seed,
        scenario.name,
        scenario.about,
        table_1(experiment),
        table_2(experiment),
        abandoned_text(experiment)
    )
}

fn table_1(experiment: &Experiment) -> Table {
    let numbers = |of: &Summary, variance: f64| [of.mean, of.max, of.min, of.p95, variance, of.sd];
    let measured = |strategy: Strategy, run: &Run| {
        let summary = Summary::of(&run.times);
        (strategy.name() + &run.best(), numbers(&summary, summary.variance()))
    };
    let mut columns = Vec::new();
    for (strategy, paper, variance) in &TABLE_1 {
        columns.push((format!("{}, paper", strategy.name()), numbers(paper, *variance)));
        columns.extend(experiment.of(*strategy).map(|run| measured(*strategy, run)));
    }
    let ours = [Strategy::StaticBest, Strategy::NwsEscalating, Strategy::Default, Strategy::DefaultHedged];
    columns.extend(ours.iter().filter_map(|ours| Some(measured(*ours, experiment.of(*ours)?))));
    let mut table = Table::new([""]).and(columns.iter().map(|(title, _)| title));
    for (i, name) in ["mean", "max", "min", "95th percentile", "variance", "SD"].iter().enumerate() {
        table.push(cells![name].into_iter().chain(columns.iter().map(|(_, of)| format!("{:.3}", of[i]))));
    }
    table
}

fn table_2(experiment: &Experiment) -> Table {
    let mut table = Table::titled(
        " | retried %, paper | retried % | average retries, paper | average retries | abandoned",
    );
    let ours = experiment.runs.iter().map(|(strategy, _)| *strategy);
    let paper = TABLE_2.map(|(strategy, ..)| strategy);
    for strategy in paper.into_iter().chain(ours.filter(|strategy| !paper.contains(strategy))) {
        let stated = TABLE_2.iter().find(|(other, ..)| *other == strategy);
        let stated = stated.map(|(_, percent, retries)| [percent, retries].map(|x| format!("{x:.3}")));
        let [percent, retries] = stated.unwrap_or([dash(), dash()]);
        let Some(run) = experiment.of(strategy) else { continue };
        let row = Row::of(strategy, run);
        let measured = format!("{:.3}", 100.0 * row.retried_share);
        table.push(cells![row.strategy, percent, measured, retries, row.retries(3), row.abandoned]);
    }
    table
}

/// How abandoned reductions enter the means, and the means without them.
fn abandoned_text(experiment: &Experiment) -> String {
    let alone = |run: &Run| {
        let kept = run.times.iter().zip(&run.gave_up).filter(|(_, gave_up)| !**gave_up);
        let kept: Vec<f64> = kept.map(|(time, _)| *time).collect();
        if kept.is_empty() { "none is left".to_owned() } else { format!("{:.3} s", mean(&kept)) }
    };
    let differ = experiment.runs.iter().filter(|(_, run)| run.abandoned() > 0).map(|(strategy, run)| {
        format!("{} {} instead of {:.3} s", strategy.name(), alone(run), mean(&run.times))
    });
    let differ = joined(differ, ", ");
    format!(
        "The paper abandons a reduction when a message has been sent {} times; it does not say how such \
         reductions enter its means. Here the message is then sent once more and waited for, so that every \
         reduction has a time and all enter the means.{}\n",
        experiment.scenario.tries,
        if differ.is_empty() {
            " None was abandoned.".to_owned()
        } else {
            format!(" Without them the means would be: {differ}.")
        }
    )
}

pub(crate) fn shapes_markdown(experiment: &Experiment) -> String {
    let mut text = "\n## The paper's shapes\n\n".to_owned();
    for shape in [eager_mass, second_mode, best_static, two_beat_one] {
        if let Some(Shape { claim, holds, numbers }) = shape(experiment) {
            let verdict = if holds { "holds" } else { "does not hold" };
            text += &format!("- {claim}: **{verdict}**. {numbers}\n");
        }
    }
    text
}

struct Shape {
    claim: &'static str,
    holds: bool,
    numbers: String,
}

fn share_below(run: &Run, seconds: f64) -> f64 {
    share(run, |time| time < seconds)
}

fn share(run: &Run, of: impl Fn(f64) -> bool) -> f64 {
    run.times.iter().filter(|time| of(**time)).count() as f64 / run.times.len() as f64
}

/// §5.1: "A greater fraction of the execution times are shorter for 2-second timeouts, considering
/// only those executions that are less than 8 seconds."
fn eager_mass(experiment: &Experiment) -> Option<Shape> {
    let eager = share_below(experiment.of(Strategy::Static(2.0))?, 8.0);
    let others = [Strategy::Static(15.0), Strategy::Static(45.0), Strategy::Nws(2.0)];
    let mut holds = true;
    let mut numbers = format!("Below 8 s: static-2 {:.1} %", 100.0 * eager);
    for other in others {
        let below = share_below(experiment.of(other)?, 8.0);
        holds &= below < eager;
        numbers += &format!(", {} {:.1} %", other.name(), 100.0 * below);
    }
    Some(Shape {
        claim: "A static 2 s has more mass below 8 s than 15 s, 45 s and mean + 2 SD",
        holds,
        numbers: numbers + ".",
    })
}

/// §5.1: "Note the large mode in the 2-second data at approximately 16 seconds."
fn second_mode(experiment: &Experiment) -> Option<Shape> {
    let run = experiment.of(Strategy::Static(2.0))?;
    let bin = |from: f64| share(run, |time| from <= time && time < from + 1.0);
    let highest = |bins: std::ops::Range<u32>| {
        bins.map(|from| (bin(f64::from(from)), from)).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0))
    };
    let (_, first) = highest(0..14);
    let (height, at) = highest(14..18);
    let valley = (first..at).map(|from| bin(f64::from(from))).fold(f64::INFINITY, f64::min);
    // Half as high again as the valley before it, and at least one reduction in a hundred.
    let holds = height > 1.5 * valley && height >= 0.01;
    let (beyond, late) = highest(11..60);
    let numbers = format!(
        "Of its times, {:.1} % lie in the fullest second from 14 to 18 s, {:.1} % in the emptiest second between it and \
         the main mode at {first} to {} s; the fullest second beyond 11 s is {late} to {} s with {:.1} %, and {:.1} % lie \
         beyond 14 s.",
        100.0 * height,
        100.0 * valley,
        first + 1,
        late + 1,
        100.0 * beyond,
        100.0 * share(run, |time| time >= 14.0),
    );
    Some(Shape { claim: "A static 2 s has a second mode near 16 s", holds, numbers })
}

/// §5: "we will consider the 15-second timeout the most performance effective of the static
/// methods".
fn best_static(experiment: &Experiment) -> Option<Shape> {
    let of = |seconds| Some((seconds, experiment.summary(Strategy::Static(seconds))?));
    let all = [of(2.0)?, of(5.0)?, of(15.0)?, of(45.0)?];
    let best = |value: fn(&Summary) -> f64| {
        all.iter().min_by(|a, b| value(&a.1).total_cmp(&value(&b.1))).map_or(0.0, |(seconds, _)| *seconds)
    };
    let (by_mean, by_p95) = (best(|summary| summary.mean), best(|summary| summary.p95));
    let numbers: Vec<String> = all
        .iter()
        .map(|(seconds, summary)| format!("{seconds} s {:.3} and {:.3} s", summary.mean, summary.p95))
        .collect();
    Some(Shape {
        claim: "15 s is the best of the four static timeouts, in mean and 95th percentile",
        holds: by_mean == 15.0 && by_p95 == 15.0,
        numbers: format!("Mean and 95th percentile: {}.", numbers.join("; ")),
    })
}

/// §5: "the dynamic predictions using two standard deviations is clearly the best of the dynamic
/// timeout methods".
fn two_beat_one(experiment: &Experiment) -> Option<Shape> {
    let (one, two) = (experiment.summary(Strategy::Nws(1.0))?, experiment.summary(Strategy::Nws(2.0))?);
    Some(Shape {
        claim: "Mean + 2 SD beats mean + 1 SD, in mean and 95th percentile",
        holds: two.mean < one.mean && two.p95 < one.p95,
        numbers: format!(
            "Mean {:.3} to {:.3} s, 95th percentile {:.3} to {:.3} s.",
            two.mean, one.mean, two.p95, one.p95
        ),
    })
}

/// How these links differ from the paper's Table 2, and why its percentages cannot be reached.
pub(crate) fn differences(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let mut sends = Vec::new();
    let uncut = engine::run_tree(scenario, 1, Strategy::Static(1e6), |sent| sends.push(sent.took_s));
    let beyond =
        |limit: f64| 100.0 * sends.iter().filter(|took| **took > limit).count() as f64 / sends.len() as f64;
    let simulation = LinkSimulation::new(scenario, scenario.nodes - 1);
    let slowest = (0..2 * (scenario.nodes - 1)).map(|path| simulation.base_s(path)).fold(0.0, f64::max);
    let (_, percent, retries) = TABLE_2[3];
    let chain = 2 * scenario.nodes.ilog2();
    let spent = f64::from(chain) * percent / 100.0 * retries * 2.0;
    let average = TABLE_1[0].1.mean / f64::from(chain);
    // The other reductions take at least the paper's minimum.
    let least = percent / 100.0 * f64::from(chain) * 2.0 + (1.0 - percent / 100.0) * TABLE_1[0].1.min;
    format!(
        "\n## Where these links differ from the paper's Table 2\n\n\
         In the paper {percent} % of the messages did not make it within 2 s, and were then sent again {retries} times on \
         average. On these links only {:.2} % of the messages take longer than 2 s ({:.2} % longer than 5 s, {:.3} % \
         longer than 15 s; the mean reduction without a timeout takes {:.3} s), and the slowest link has a typical time \
         of {slowest:.2} s: hence the small percentages of all static rows.\n\n\
         Links that draw a new slowness for each message, the same for every strategy, cannot show both tables. \
         From a leaf to the root and back {chain} messages follow each other, so by Table 1 (45 s) one of them takes \
         {average:.2} s on average even on the slowest way through the tree. But if the retries of Table 2 were spread evenly, \
         those {chain} would spend {spent:.1} s on attempts cut off after 2 s: more than twice the mean reduction under \
         any timeout that the paper reports. Hardly any reduction could then stay below 8 s, but the paper reports a greater \
         fraction there than under the other timeouts. If all retries were in the same reductions, those would need {chain} \
         messages of over 2 s each, and the mean under 45 s would be at least {least:.1} s, not {:.1}. So the retried messages \
         were not on the slowest ways, or they came together in hours that the other strategies did not meet, or cancelled \
         copies still filled the bottleneck. It is also unclear what the percentages refer to: \"a couple of timeouts\" \
         (its §5, of 45 s) would be 0.003 % of 60 000 messages, not 0.050 %.\n",
        beyond(2.0),
        beyond(5.0),
        beyond(15.0),
        mean(&uncut.times),
        TABLE_1[0].1.mean,
    )
}

/// Whether the promises hold; empty if a strategy that they need was not run.
pub(crate) fn promises_markdown(experiment: &Experiment) -> String {
    let lines = [against_nws(experiment), against_static(experiment), retries(experiment)];
    let lines: String = lines.into_iter().flatten().map(|line| format!("- {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("\n## What is promised of the default\n\n{lines}") }
}

fn verdict(holds: bool) -> &'static str {
    if holds { "**holds**" } else { "**does not hold**" }
}

fn against_nws(experiment: &Experiment) -> Option<String> {
    let (ours, theirs) = (experiment.summary(Strategy::Default)?, experiment.summary(Strategy::Nws(2.0))?);
    let ratios = [ours.mean / theirs.mean, ours.p95 / theirs.p95, ours.variance() / theirs.variance()];
    let holds = ratios.iter().all(|ratio| *ratio <= 1.0 + WORSE);
    let [mean, p95, variance] = ratios;
    Some(format!(
        "Mean, 95th percentile and variance no worse than those of mean + 2 SD within 1 %: {}. They are {mean:.3}, {p95:.3} \
         and {variance:.3} times as large.",
        verdict(holds)
    ))
}

fn against_static(experiment: &Experiment) -> Option<String> {
    let ours = experiment.summary(Strategy::Default)?;
    let statics = [2.0, 5.0, 15.0, 45.0].map(Strategy::Static).into_iter().chain([Strategy::StaticBest]);
    let statics: Vec<Summary> =
        statics.map(|strategy| experiment.summary(strategy)).collect::<Option<_>>()?;
    let least = |of: fn(&Summary) -> f64| statics.iter().map(of).fold(f64::INFINITY, f64::min);
    let (mean, p95) = (least(|summary| summary.mean), least(|summary| summary.p95));
    Some(format!(
        "Mean and 95th percentile less than those of every static timeout: {}. They are {:.3} and {:.3} s, the least \
         static ones {mean:.3} and {p95:.3} s.",
        verdict(ours.mean < mean && ours.p95 < p95),
        ours.mean,
        ours.p95
    ))
}

fn retries(experiment: &Experiment) -> Option<String> {
    let row = Row::of(Strategy::Default, experiment.of(Strategy::Default)?);
    Some(format!(
        "At most 1.2 retries of a message that is retried, and no reduction abandoned: {}. They are {:.3} and {}.",
        verdict(row.retries_per_retried <= 1.2 && row.abandoned == 0),
        row.retries_per_retried,
        row.abandoned
    ))
}

const WORSE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(times: &[(Strategy, Vec<f64>)]) -> Experiment {
        let run = |times: &Vec<f64>| Run { times: times.clone(), ..Run::default() };
        let runs = times.iter().map(|(strategy, times)| (*strategy, run(times))).collect();
        Experiment { scenario: Scenario::default(), runs }
    }

    #[test]
    fn a_shape_is_found_only_in_matching_results() {
        let eager: Vec<f64> = [vec![6.0; 60], vec![7.5; 20], vec![12.0; 4], vec![16.2; 16]].concat();
        let with = |eager: Vec<f64>| {
            experiment(&[
                (Strategy::Static(2.0), eager),
                (Strategy::Static(5.0), vec![8.4; 100]),
                (Strategy::Static(15.0), vec![8.1; 100]),
                (Strategy::Static(45.0), vec![8.3; 100]),
                (Strategy::Nws(1.0), vec![7.7; 100]),
                (Strategy::Nws(2.0), [vec![7.4; 50], vec![8.1; 50]].concat()),
            ])
        };
        let holds = |experiment: &Experiment| {
            [eager_mass, second_mode, best_static, two_beat_one]
                .map(|shape| shape(experiment).is_some_and(|shape| shape.holds))
        };
        assert_eq!(holds(&with(eager)), [true, true, true, false]);
        assert_eq!(holds(&with(vec![7.0; 100])), [true, false, false, false]);
        let slow: Vec<f64> = [vec![8.2; 60], vec![13.5; 20], vec![16.2; 20]].concat();
        assert_eq!(holds(&with(slow)), [false, true, true, false]);
        let smooth: Vec<f64> = (0..100).map(|i| 8.0 + f64::from(i) / 10.0).collect();
        let mut smooth = with(smooth);
        assert!(!holds(&smooth)[1]);
        smooth.runs[4].1.times = vec![9.0; 100];
        assert!(holds(&smooth)[3]);
    }

    #[test]
    fn a_promise_is_reported_as_kept_or_broken() {
        let run = |times: [f64; 2], gave_up| Run {
            times: times.to_vec(),
            gave_up: vec![gave_up, false],
            sends: 10,
            retried: 1,
            retries: 1,
            ..Run::default()
        };
        let with = |default: Run| {
            let mut runs: Vec<(Strategy, Run)> =
                Strategy::ALL.map(|strategy| (strategy, run([7.0, 9.0], false))).to_vec();
            for (strategy, run) in &mut runs {
                if *strategy == Strategy::Default {
                    *run = default.clone();
                }
            }
            promises_markdown(&Experiment { scenario: Scenario::default(), runs })
        };
        let count = |text: &str| text.matches("**holds**").count();
        assert_eq!(count(&with(run([7.0, 8.9], false))), 3, "{}", with(run([7.0, 8.9], false)));
        assert_eq!(count(&with(run([7.0, 9.0], false))), 2, "as good as a static one is not better");
        assert_eq!(count(&with(run([7.0, 9.5], true))), 0);
    }
}
