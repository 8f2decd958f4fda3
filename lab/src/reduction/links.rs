//! Figures 5 to 7: the times of messages on a link, and the timeouts that were set for them.

use barograph_sim::scenario::Shift;
use barograph_sim::{Scenario, Weather};

use super::engine::Sent;
use super::experiment::Experiment;
use super::strategy::Strategy;
use super::tree;
use crate::figure::{Axes, BLUE, Figure, INK, Mark, ORANGE, Scale, VERMILION, legend, svg, ticks};
use crate::stats::range;
use crate::table::joined;

/// Figure 5: one link over 100 reductions.
pub(super) fn one(experiment: &Experiment) -> anyhow::Result<Figure> {
    let scenario = one_set(experiment);
    // The path whose slowest message is the longest shows best what an outlier does.
    let sends = sends(&scenario, Strategy::Nws(2.0));
    let slowest = sends.iter().max_by(|a, b| a.took_s.total_cmp(&b.took_s)).map_or(0, |sent| sent.path);
    let panels = panels(&scenario, &[slowest]);
    let says = format!("the link with the slowest message, over 100 reductions: {}.", counts(&panels));
    Ok(Figure { file: "figure-5.svg", says, svg: draw(&panels)? })
}

/// Figure 6: two links of one node that differ.
pub(super) fn two(experiment: &Experiment) -> anyhow::Result<Figure> {
    let scenario = one_set(experiment);
    let weather = Weather::new(&scenario, scenario.nodes - 1);
    // The ways down from a node to its children, 2 n + 1 and 2 n + 2.
    let down = |node: usize| [4 * node + 1, 4 * node + 3];
    let differ = |paths: [usize; 2]| (weather.base_s(paths[0]) / weather.base_s(paths[1])).ln().abs();
    let nodes = 0..(scenario.nodes - 1) / 2;
    let paths = nodes.map(down).max_by(|a, b| differ(*a).total_cmp(&differ(*b))).unwrap_or([1, 3]);
    let panels = panels(&scenario, &paths);
    let says = format!(
        "two links of one node, of {:.2} and {:.2} s: {}.",
        weather.base_s(paths[0]),
        weather.base_s(paths[1]),
        counts(&panels)
    );
    Ok(Figure { file: "figure-6.svg", says, svg: draw(&panels)? })
}

/// Figure 7: a link whose behaviour changes.
pub(super) fn changing(experiment: &Experiment) -> anyhow::Result<Figure> {
    let shift = Shift { from: 40, until: 75, factor: 2.5, every_other_link: false };
    let scenario = Scenario { shifts: vec![shift], ..one_set(experiment) };
    let panels = panels(&scenario, &[0]);
    let says = format!(
        "a link that becomes 2.5 times slower at reduction 40, and recovers at 75: {}.",
        counts(&panels)
    );
    Ok(Figure { file: "figure-7.svg", says, svg: draw(&panels)? })
}

fn one_set(experiment: &Experiment) -> Scenario {
    Scenario { reductions: 100, ..experiment.scenario.clone() }
}

/// A path under a strategy.
struct Panel {
    title: String,
    sends: Vec<Sent>,
}

/// Each path under the paper's strategy and under ours.
fn panels(scenario: &Scenario, paths: &[usize]) -> Vec<Panel> {
    let mut panels = Vec::new();
    for strategy in [Strategy::Nws(2.0), Strategy::Default] {
        let sends = sends(scenario, strategy);
        for path in paths {
            let (child, parent) = (path / 2 + 1, (path / 2) / 2);
            let way = if path.is_multiple_of(2) { (child, parent) } else { (parent, child) };
            let of_path = sends.iter().filter(|sent| sent.path == *path).copied().collect();
            panels.push(Panel {
                title: format!("{}, node {} to node {}", strategy.name(), way.0, way.1),
                sends: of_path,
            });
        }
    }
    panels
}

fn sends(scenario: &Scenario, strategy: Strategy) -> Vec<Sent> {
    let mut sends = Vec::new();
    tree::run(scenario, 1, strategy, |sent| sends.push(sent));
    sends
}

fn counts(panels: &[Panel]) -> String {
    let count = |panel: &Panel| {
        let retried = panel.sends.iter().filter(|sent| 1 < sent.attempts).count();
        format!("{}, {retried} of {} retried", panel.title, panel.sends.len())
    };
    joined(panels.iter().map(count), "; ")
}

/// The panels in two columns, the first strategy on the left.
fn draw(panels: &[Panel]) -> anyhow::Result<String> {
    let rows = panels.len() / 2;
    let (least, highest) = range(panels.iter().flat_map(|panel| &panel.sends).map(|sent| sent.took_s));
    let all: Vec<f64> = vec![0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let top = all.iter().copied().find(|tick| 45.0_f64.max(highest) <= *tick).unwrap_or(100.0);
    let bottom = all.iter().copied().rev().find(|tick| *tick <= least.min(1.0)).unwrap_or(0.1);
    svg(1240, 76 + 400 * rows as i32, |root| {
        let items = [
            (Mark::Dot, BLUE, "message, from its first attempt to its acknowledgement"),
            (Mark::Ring, VERMILION, "retried"),
            (Mark::Line, ORANGE, "timeout of the first attempt"),
        ];
        legend(root, 90, 26, items)?;
        for (i, panel) in panels.iter().enumerate() {
            let (column, row) = ((i / rows) as i32, (i % rows) as i32);
            let area = [96 + 600 * column, 86 + 400 * row, 510, 290];
            let axes = Axes::new(area, Scale::Linear(0.0, 100.0), Scale::Log(bottom, top));
            let y: Vec<f64> = all.iter().copied().filter(|tick| (bottom..=top).contains(tick)).collect();
            let x = ticks(&[0.0, 20.0, 40.0, 60.0, 80.0, 100.0], "");
            axes.frame(root, &panel.title, ("reduction", &x), ("time (s), logarithmic", &ticks(&y, "")))?;
            let point = |sent: &Sent, value: f64| (sent.reduction as f64, value);
            let timeouts: Vec<(f64, f64)> =
                panel.sends.iter().map(|sent| point(sent, sent.timeout_s)).collect();
            axes.line(root, &timeouts, ORANGE, 2)?;
            let times: Vec<(f64, f64)> = panel.sends.iter().map(|sent| point(sent, sent.took_s)).collect();
            axes.line(root, &times, INK, 1)?;
            axes.marks(root, &times, Mark::Dot, BLUE)?;
            let retried = panel.sends.iter().filter(|sent| 1 < sent.attempts);
            let retried: Vec<(f64, f64)> = retried.map(|sent| point(sent, sent.took_s)).collect();
            axes.marks(root, &retried, Mark::Ring, VERMILION)?;
        }
        Ok(())
    })
}
