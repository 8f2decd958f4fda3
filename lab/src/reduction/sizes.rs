//! The effect of the size of messages: where adaptive timeouts gain most, and where nothing.

use barograph_sim::Scenario;

use super::BeyondArgs;
use super::beyond::{ABOUT, KB, TIE, figure, runs, size, wide_area};
use super::engine::Run;
use super::row::mean;
use super::strategy::Strategy;
use super::tree;
use crate::figure::{Axes, BLUE, INK, Mark, ORANGE, Scale, VERMILION, legend, svg};
use crate::forecast::report::aligned;

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
    Ok(text + &figure(args, "sizes.svg", &draw(&sizes, &runs)?)?)
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

fn table(sizes: &[u64], runs: &[Vec<Run>]) -> String {
    let header = [
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
    ];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for (bytes, runs) in sizes.iter().zip(runs) {
        let means: Vec<String> = runs.iter().map(|run| format!("{:.2}", mean(&run.times))).collect();
        let abandoned = 100.0 * runs[FORTY_FIVE].abandoned() as f64 / runs[FORTY_FIVE].times.len() as f64;
        table.push(vec![
            size(*bytes),
            means[FORTY_FIVE].clone(),
            format!("{abandoned:.0}"),
            means[BEST].clone(),
            runs[BEST].best_s.map_or(String::new(), |seconds| format!("{seconds:.2} s")),
            means[NWS].clone(),
            means[ESCALATING].clone(),
            means[DEFAULT].clone(),
            format!("{:.3}", ratio(runs, DEFAULT, BEST)),
            format!("{:.3}", ratio(runs, DEFAULT, FORTY_FIVE)),
        ]);
    }
    aligned(&table)
}

/// The size of the largest gain, and those of none.
fn findings(sizes: &[u64], runs: &[Vec<Run>]) -> String {
    let mut text = String::new();
    for (to, name) in [(BEST, "the best static timeout"), (FORTY_FIVE, "a static 45 s")] {
        let ratios: Vec<f64> = runs.iter().map(|runs| ratio(runs, DEFAULT, to)).collect();
        let best = (0..sizes.len()).min_by(|a, b| ratios[*a].total_cmp(&ratios[*b])).unwrap_or(0);
        let listed = |of: &dyn Fn(f64) -> bool| {
            let names: Vec<String> = sizes
                .iter()
                .zip(&ratios)
                .filter(|(_, ratio)| of(**ratio))
                .map(|(bytes, _)| size(*bytes))
                .collect();
            if names.is_empty() { "no size".to_owned() } else { names.join(", ") }
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
    let late: Vec<String> = sizes
        .iter()
        .zip(runs)
        .filter(|(_, runs)| runs[FORTY_FIVE].abandoned() == runs[FORTY_FIVE].times.len())
        .map(|(bytes, _)| size(*bytes))
        .collect();
    if !late.is_empty() {
        text += &format!(
            "A static 45 s cannot deliver {} and abandons every reduction there.\n",
            late.join(", ")
        );
    }
    text
}

fn draw(sizes: &[u64], runs: &[Vec<Run>]) -> anyhow::Result<String> {
    let kilobytes = |bytes: u64| bytes as f64 / KB as f64;
    let axes = Axes {
        left: 100,
        top: 70,
        width: 860,
        height: 380,
        x: Scale::Log(0.8, 20_000.0),
        y: Scale::Linear(0.2, 1.4),
    };
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
        legend(root, 100, 34, &lines.map(|(colour, _, _, name)| (Mark::Line, colour, name.to_owned())))?;
        for (colour, of, to, _) in lines {
            let points: Vec<(f64, f64)> = sizes
                .iter()
                .zip(runs)
                .map(|(bytes, runs)| (kilobytes(*bytes), ratio(runs, of, to)))
                .collect();
            axes.line(root, &points, colour, 3)?;
            for (x, y) in points {
                Mark::Dot.draw(root, axes.at(x, y), colour)?;
            }
        }
        Ok(())
    })
}
