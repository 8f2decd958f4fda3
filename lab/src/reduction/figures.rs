//! The paper's Figures 2 to 7 with our numbers, and the paper's where it states some.

mod links;
mod times;

use super::paper::Experiment;

/// A drawing and what it shows.
pub(crate) struct Figure {
    pub(crate) file: &'static str,
    pub(crate) says: String,
    pub(crate) svg: String,
}

/// All that can be drawn from what was run.
pub(crate) fn all(experiment: &Experiment) -> anyhow::Result<Vec<Figure>> {
    Ok(vec![
        times::statistics(experiment)?,
        times::distribution(experiment)?,
        times::tail(experiment)?,
        links::one(experiment)?,
        links::two(experiment)?,
        links::changing(experiment)?,
    ])
}
