//! The paper's Figures 2 to 7 with our numbers, and the paper's where it states some.

use super::experiment::Experiment;
use super::{links, times};
use crate::figure::Figure;

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
