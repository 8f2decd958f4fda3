//! What the paper says, beside what was found.

use crate::forecast::report::aligned;

/// A statement of Gloperf §4 on one series.
pub(crate) struct Statement {
    series: String,
    says: String,
    /// What was found, and whether it agrees; `None` where it could not be computed.
    found: Option<(String, bool)>,
}

impl Statement {
    pub(crate) fn new(series: &str, says: &str, found: Option<(String, bool)>) -> Self {
        Self { series: series.to_owned(), says: says.to_owned(), found }
    }
}

/// All as a table.
pub(crate) fn table(statements: &[Statement]) -> String {
    let mut table = vec![["series", "the paper says (§4)", "here", "holds"].map(str::to_owned).to_vec()];
    for Statement { series, says, found } in statements {
        let (here, holds) = found.clone().unwrap_or_else(|| ("not computed".to_owned(), false));
        let holds = if found.is_none() {
            "–"
        } else if holds {
            "yes"
        } else {
            "no"
        };
        table.push(vec![series.clone(), says.clone(), here, holds.to_owned()]);
    }
    aligned(&table)
}
