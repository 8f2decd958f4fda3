//! The effect of the size of messages: where adaptive timeouts gain most, and where nothing.

use barograph_sim::Scenario;

use super::args::BeyondArgs;
use super::beyond::{ABOUT, KB, TIE, runs, size, wide_area};
use super::run::Run;
use super::strategy::Strategy;
use super::tree;
use crate::figure::{Axes, BLUE, INK, Mark, ORANGE, Scale, VERMILION, legend, svg};
use crate::output::save;
use crate::stats::mean;
use crate::table::{Table, cells, list, number};

/// 1 kB to 16 MB in powers of 4.
pub(crate) fn markdown(args: &BeyondArgs) -> anyhow::Result<String> {
    let wide_area = wide_area(args)?;
    let sizes: Vec<u64> = (0..8).map(|i| KB << (2 * i)).collect();
    let scenarios: Vec<Scenario> =
        sizes.iter().map(|bytes| Scenario { message_bytes: vec![*bytes], ..wide_area.clone() }).collect();
    let runs = runs(&scenarios, &STRATEGIES, |scenario, strategy| tree::run(scenario, 1, strategy, |_| {}));
    let text = format!(
        "# The size of messages\n\nMean times of {} reductions in seconds. {ABOUT}\n\n{}\n{}",
        args.rounds,
        table(&sizes, &runs),
        findings(&sizes, &runs)
    );
    let path = save(&args.out, "sizes.svg", &draw(&sizes, &runs)?)?;
    Ok(text + &format!("\nFigure: {}\n", path.display()))
}

const STRATEGIES: [Strategy; 5] = [
    Strategy::Static(45.0),
    Strategy::StaticBest,
    Strategy::Nws(2.0),
    Strategy::NwsEscalating,
    Strategy::Default,
];
/// Where each stands among them.
const FORTY_FIVE: usize = 0;
const BEST: usize = 1;
const NWS: usize = 2;
const ESCALATING: usize = 3;
const DEFAULT: usize = 4;

fn ratio(runs: &[Run], of: usize, to: usize) -> f64 {
    mean(&runs[of].times) / mean(&runs[to].times)
}

fn table(sizes: &[u64], runs: &[Vec<Run>]) -> Table {
    let mut table = Table::new([
        "size",
        "static-45",
        "abandoned %",
        "static-best",
        "its timeout",
        "mean+2sd",
        "seed-escalating",
        "default",
        "default ÷ static-best",
        "default ÷ static-45",
    ]);
    for (bytes, runs) in sizes.iter().zip(runs) {
        let mean = |of: usize| format!("{:.2}", mean(&runs[of].times));
        let abandoned = 100.0 * runs[FORTY_FIVE].abandoned() as f64 / runs[FORTY_FIVE].times.len() as f64;
        table.push(cells![
            size(*bytes),
            mean(FORTY_FIVE),
            format!("{abandoned:.0}"),
            mean(BEST),
            number(runs[BEST].best_s, 2) + " s",
            mean(NWS),
            mean(ESCALATING),
            mean(DEFAULT),
            format!("{:.3}", ratio(runs, DEFAULT, BEST)),
            format!("{:.3}", ratio(runs, DEFAULT, FORTY_FIVE)),
        ]);
    }
    table
}

/// The size of the largest gain, and those of none.
fn findings(sizes: &[u64], runs: &[Vec<Run>]) -> String {
    let mut text = String::new();
    for (to, name) in [(BEST, "the best static timeout"), (FORTY_FIVE, "a static 45 s")] {
        let ratios: Vec<f64> = runs.iter().map(|runs| ratio(runs, DEFAULT, to)).collect();
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
            (VERMILION, DEFAULT, BEST, "default ÷ best static"),
            (BLUE, ESCALATING, BEST, "seed-escalating ÷ best static"),
            (ORANGE, DEFAULT, FORTY_FIVE, "default ÷ static 45 s"),
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
