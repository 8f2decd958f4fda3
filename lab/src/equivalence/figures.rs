//! The paper's figures 4 to 9, native on the left and the browser on the right.

use std::path::Path;

use anyhow::anyhow;
use barograph_study::compare::plot::{Panel, Row, svg};

use super::asked::Quantity;
use super::collect::LinkStudy;
use crate::output::save;

/// Draws all into a directory; says which.
pub(crate) fn write(studies: &[LinkStudy], directory: &Path) -> anyhow::Result<String> {
    let mut text = "Figures:\n\n".to_owned();
    for (number, title, panel, quantities) in FIGURES {
        let rows: Vec<Row<'_>> = studies.iter().flat_map(|study| rows(study, panel, quantities)).collect();
        let drawn = svg(&rows).map_err(|error| anyhow!("figure {number} cannot be drawn: {error}"))?;
        let path = save(directory, &format!("figure-{number}.svg"), &drawn)?;
        text += &format!("- {}: figure {number}, {title}\n", path.display());
    }
    Ok(text)
}

fn rows<'a>(study: &'a LinkStudy, panel: Panel, quantities: &'a [Quantity]) -> impl Iterator<Item = Row<'a>> {
    // Of a series without values there is nothing to draw.
    let wanted = study
        .quantities
        .iter()
        .filter(|(quantity, compared)| quantities.contains(quantity) && !compared.pairing.pairs.is_empty());
    wanted.map(move |(quantity, compared)| {
        let title = |who: &str| format!("{}, {}: {who}", study.name, quantity.as_str());
        Row {
            title_a: title(if panel == Panel::Distributions { "A native, B browser" } else { "native" }),
            title_b: title("browser"),
            panel,
            study: compared,
            unit: quantity.unit(),
        }
    })
}

/// Number, title, kind and quantities, as in the paper.
const FIGURES: [(u32, &str, Panel, &[Quantity]); 6] = [
    (4, "raw goodput", Panel::Series, &[Quantity::Goodput]),
    (5, "round-trip time", Panel::Series, &[Quantity::Rtt]),
    (6, "round-trip time with Nagle's algorithm", Panel::Series, &[Quantity::RttNagle]),
    (7, "forecast errors of raw goodput", Panel::Histograms, &[Quantity::Goodput]),
    (8, "forecast errors of round-trip times", Panel::Histograms, &[Quantity::Rtt, Quantity::RttNagle]),
    (9, "distributions of the forecast errors", Panel::Distributions, &Quantity::ALL),
];
