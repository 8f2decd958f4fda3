//! Figures of the results, drawn from the rows alone.

use std::path::Path;

use barograph_transfer::controller::ControllerKind;
use plotters::element::Rectangle;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color as _, RGBColor};
use serde_json::Value;

use super::Part;
use crate::figure::{
    Area, Axes, BLUE, GREEN, INK, Mark, NORMAL, ORANGE, PURPLE, SKY, SMALL, Scale, VERMILION, largest, svg,
    text, write as label,
};
use crate::output::save;

pub(crate) fn write(part: Part, rows: &[Value], folder: &Path) -> anyhow::Result<()> {
    let (name, figure) = match part {
        Part::Network => ("transfer-network.svg", network(rows)?),
        Part::Uncontended => ("transfer-uncontended.svg", uncontended(rows)?),
        _ => return Ok(()),
    };
    let Some(figure) = figure else { return Ok(()) };
    save(folder, name, &figure).map(drop)
}

/// A line of a panel: goodput as a share of the bottleneck by loss.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Goodput over loss at 100 ms: a row for each bottleneck, our controllers on the left and other
/// programs on the right.
fn network(rows: &[Value]) -> anyhow::Result<Option<String>> {
    let rates = [100, 300].map(|mbit_s| {
        let [ours, peers] = [true, false].map(|is_ours| series(rows, mbit_s, is_ours));
        (mbit_s, ours, peers)
    });
    let rates: Vec<_> =
        rates.into_iter().filter(|(_, ours, peers)| !ours.is_empty() || !peers.is_empty()).collect();
    if rates.is_empty() {
        return Ok(None);
    }
    let height = rates.len() as i32 * (PANEL_HEIGHT + GAP) + MARGIN;
    let figure = svg(2 * (LEFT + PANEL_WIDTH + NAMES), height, |root| {
        for (row, (mbit_s, ours, peers)) in rates.iter().enumerate() {
            let top = MARGIN + row as i32 * (PANEL_HEIGHT + GAP);
            for (left, what, series) in
                [(0, "Barograph's controllers", ours), (LEFT + PANEL_WIDTH + NAMES, "others", peers)]
            {
                panel(root, left + LEFT, top, &format!("{mbit_s} Mbit/s, {RTT_MS} ms: {what}"), series)?;
            }
        }
        Ok(())
    })?;
    Ok(Some(figure))
}

/// Series in the order of the rows, without void points.
fn series(rows: &[Value], mbit_s: u64, is_ours: bool) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| row["mbit_s"] == mbit_s && row["rtt_ms"] == RTT_MS) {
        let (Some(name), Some(loss), Some(bps)) =
            (row["what"].as_str(), row["loss"].as_f64(), row["bit_s"].as_f64())
        else {
            continue;
        };
        if name.parse::<ControllerKind>().is_ok() != is_ours {
            continue;
        }
        // A series is also added if its first cell is void, so that it has the same colour in all
        // panels.
        let index = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
            all.push(Series { name: name.to_owned(), points: vec![] });
            all.len() - 1
        });
        if row["void"].is_null() {
            all[index].points.push((loss.max(NO_LOSS), bps / (mbit_s as f64 * 1e6)));
        }
    }
    all
}

fn panel(root: &Area<'_>, left: i32, top: i32, title: &str, series: &[Series]) -> anyhow::Result<()> {
    let (x, y) = (Scale::Log(NO_LOSS, 1e-2), Scale::Linear(0.0, 1.0));
    let axes = Axes::new([left, top, PANEL_WIDTH, PANEL_HEIGHT], x, y);
    let losses = [(NO_LOSS, "0"), (1e-4, "0.01 %"), (1e-3, "0.1 %"), (1e-2, "1 %")];
    let losses = losses.map(|(loss, name)| (loss, name.to_owned()));
    let shares = [0, 25, 50, 75, 100].map(|percent| (f64::from(percent) / 100.0, format!("{percent} %")));
    axes.frame(root, title, ("random loss", &losses), ("goodput, of the bottleneck", &shares))?;
    for (i, (series, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        axes.line(root, &series.points, *colour, 2)?;
        axes.marks(root, &series.points, Mark::Dot, *colour)?;
        let at = (left + PANEL_WIDTH + 24, top + 10 + 26 * i as i32);
        Mark::Dot.draw(root, at, *colour)?;
        label(root, &series.name, (at.0 + 14, at.1), text(SMALL, HPos::Left, VPos::Center))?;
    }
    Ok(())
}

/// A bar for each row: the limits, ours, others. Void runs have none.
fn uncontended(rows: &[Value]) -> anyhow::Result<Option<String>> {
    let bars: Vec<(&str, f64)> = rows
        .iter()
        .filter(|row| row["what"] != "blake3" && row["void"].is_null())
        .filter_map(|row| Some((row["what"].as_str()?, row["bit_s"].as_f64()? / 1e9)))
        .collect();
    let largest = largest(bars.iter().map(|(_, gbit_s)| *gbit_s));
    if largest <= 0.0 {
        return Ok(None);
    }
    let height = MARGIN + bars.len() as i32 * BAR;
    let figure = svg(BAR_NAMES + BAR_WIDTH + NAMES, height, |root| {
        let title = "From memory to memory over veth (Gbit/s of the user's bytes)";
        label(root, title, (BAR_NAMES, MARGIN / 2), text(NORMAL, HPos::Left, VPos::Center))?;
        for (i, (name, gbit_s)) in bars.iter().enumerate() {
            let (top, end) = (
                MARGIN + i as i32 * BAR,
                BAR_NAMES + (gbit_s / largest * f64::from(BAR_WIDTH)).round() as i32,
            );
            let colour = if name.starts_with("Barograph") {
                BLUE
            } else if name.starts_with("limit") {
                INK
            } else {
                ORANGE
            };
            root.draw(&Rectangle::new([(BAR_NAMES, top), (end, top + BAR - 8)], colour.mix(0.8).filled()))?;
            let middle = top + (BAR - 8) / 2;
            label(root, name, (BAR_NAMES - 10, middle), text(SMALL, HPos::Right, VPos::Center))?;
            label(root, &format!("{gbit_s:.2}"), (end + 8, middle), text(SMALL, HPos::Left, VPos::Center))?;
        }
        Ok(())
    })?;
    Ok(Some(figure))
}

/// Round trip that the goals refer to.
const RTT_MS: u64 = 100;

/// Position of a loss of 0 on a logarithmic axis.
const NO_LOSS: f64 = 2e-5;
const COLOURS: [RGBColor; 7] = [BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, INK];

/// Sizes and margins in pixels.
const LEFT: i32 = 100;
const PANEL_WIDTH: i32 = 420;
const PANEL_HEIGHT: i32 = 320;
const NAMES: i32 = 210;
const GAP: i32 = 130;
const MARGIN: i32 = 60;
const BAR: i32 = 30;
const BAR_NAMES: i32 = 460;
const BAR_WIDTH: i32 = 560;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cell(mbit_s: u64, what: &str, loss: f64, bps: f64) -> Value {
        json!({ "mbit_s": mbit_s, "rtt_ms": 100, "loss": loss, "what": what, "bit_s": bps, "void": null })
    }

    #[test]
    fn series_exclude_void_rows() {
        let mut rows = vec![
            cell(100, "model", 0.0, 95e6),
            cell(100, "model", 1e-3, 90e6),
            cell(100, "scp", 1e-3, 5e6),
            cell(300, "model", 1e-3, 250e6),
        ];
        rows.push(json!({ "mbit_s": 100, "rtt_ms": 100, "loss": 1e-2, "what": "model", "bit_s": 1e6, "void": "late" }));
        let ours = series(&rows, 100, true);
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].points, [(NO_LOSS, 0.95), (1e-3, 0.9)]);
        assert_eq!(series(&rows, 100, false)[0].name, "scp");
    }

    #[test]
    fn figures_contain_their_path_and_subject() {
        let figure = network(&[cell(300, "model", 1e-3, 250e6)]).unwrap_or_default().unwrap_or_default();
        assert!(figure.contains("300 Mbit/s, 100 ms") && figure.contains("model"), "{figure}");
        let bars =
            [json!({ "what": "limit, sealed", "bit_s": 9.5e9 }), json!({ "what": "scp", "bit_s": null })];
        let figure = uncontended(&bars).unwrap_or_default().unwrap_or_default();
        assert!(figure.contains("9.50") && !figure.contains("scp"), "{figure}");
        let void = [json!({ "what": "scp", "bit_s": 1e9, "void": true })];
        assert!(uncontended(&void).is_ok_and(|figure| figure.is_none()));
        assert!(network(&[]).is_ok_and(|figure| figure.is_none()));
    }
}
