//! What is printed: each row as soon as it is there, so that an interruption loses nothing that was measured.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::output::Output;
use crate::table::{Section, Table, Widths};

/// The output of all parts, and all numbers that went there.
pub(crate) struct Report {
    output: Output,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    part: String,
    rows: Vec<(String, Value)>,
    /// A table whose first row is yet to come, and how wide its first cells will be.
    coming: Option<(Table, usize)>,
    widths: Widths,
}

impl Report {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, state: Mutex::default() }
    }

    /// The part that follows.
    pub(crate) fn begin_part(&self, name: &str) {
        name.clone_into(&mut self.state().part);
    }

    /// Prints a line that is no row.
    pub(crate) fn say(&self, text: &str) -> anyhow::Result<()> {
        self.output.print(text)
    }

    /// The head of a table; its rows follow, whose first cells will be these.
    pub(crate) fn begin(
        &self,
        title: &str,
        legend: &str,
        table: Table,
        first_cells: impl Iterator<Item = String>,
    ) -> anyhow::Result<()> {
        let width = first_cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        self.state().coming = Some((table, width));
        self.say(&format!("\n## {title}\n\n{legend}\n\n"))
    }

    /// One row, and the numbers that it is made of. The first one sets the columns' widths.
    pub(crate) fn row(&self, cells: &[String], numbers: Vec<Value>) -> anyhow::Result<()> {
        let text = {
            let mut state = self.state();
            let head = state.coming.take().map(|(table, first_width)| table.head(cells, first_width));
            let head = head.map(|(widths, head)| {
                state.widths = widths;
                head
            });
            head.unwrap_or_default() + &state.widths.line(cells)
        };
        self.say(&text)?;
        self.numbers(numbers)
    }

    /// What stands below a table.
    pub(crate) fn end(&self, lines: &[String]) -> anyhow::Result<()> {
        self.say(&format!("\n{}", lines.concat()))
    }

    /// A table that is there all at once.
    pub(crate) fn section(&self, section: Section) -> anyhow::Result<()> {
        self.say(&section.text)?;
        self.numbers(section.rows)
    }

    /// The numbers of a part so far.
    pub(crate) fn rows_of(&self, part: &str) -> Vec<Value> {
        let state = self.state();
        state.rows.iter().filter(|(of, _)| of == part).map(|(_, row)| row.clone()).collect()
    }

    fn numbers(&self, numbers: Vec<Value>) -> anyhow::Result<()> {
        let part = self.state().part.clone();
        for row in numbers {
            self.output.json(&json!({ "part": part, "row": row }))?;
            self.state().rows.push((part.clone(), row));
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_by_part() {
        let report = Report::new(Output::new(None, false));
        for (part, number) in [("network", 1), ("busy", 2), ("network", 3)] {
            report.begin_part(part);
            report.numbers(vec![json!(number)]).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(report.rows_of("network"), [json!(1), json!(3)]);
        assert!(report.rows_of("files").is_empty());
    }
}
