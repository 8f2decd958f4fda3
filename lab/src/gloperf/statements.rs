//! What the paper says, beside what was found.

use crate::table::{Table, cells};

/// A statement of Gloperf §4 on one series.
pub(crate) struct Statement {
    series: String,
    says: String,
    /// What was found, and whether it agrees; `None` where it could not be computed.
    found: Option<(String, bool)>,
}

impl Statement {
    pub(crate) fn new(series: &str, says: impl Into<String>, found: Option<(String, bool)>) -> Self {
        Self { series: series.to_owned(), says: says.into(), found }
    }
}

/// All as a table.
pub(crate) fn table(statements: &[Statement]) -> Table {
    let mut table = Table::new(["series", "the paper says (§4)", "here", "holds"]);
    for Statement { series, says, found } in statements {
        let (here, holds) = match found {
            Some((here, holds)) => (here.as_str(), if *holds { "yes" } else { "no" }),
            None => ("not computed", "–"),
        };
        table.push(cells![series, says, here, holds]);
    }
    table
}
