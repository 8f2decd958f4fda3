//! What is printed: each row as soon as it is there, so that an interruption loses nothing that was measured.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::transfer::Table;

/// Standard output, and all numbers that went there.
pub(crate) struct Output {
    is_json: bool,
    /// Stands aside while something is printed.
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    part: String,
    rows: Vec<(String, Value)>,
    /// The names of columns of a table whose first row is yet to come, and then the columns' widths.
    header: Vec<String>,
    widths: Vec<usize>,
    first_width: usize,
}

impl Output {
    pub(crate) fn new(is_json: bool, bar: ProgressBar) -> Self {
        Self { is_json, bar, state: Mutex::default() }
    }

    /// The part that follows.
    pub(crate) fn begin_part(&self, name: &str) {
        name.clone_into(&mut self.state().part);
    }

    /// Prints a line that is no row.
    pub(crate) fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.is_json { Ok(()) } else { self.print(text) }
    }

    /// The head of a table; its rows follow, whose first cells will be at most so wide.
    pub(crate) fn begin(
        &self,
        title: &str,
        legend: &str,
        header: &[&str],
        first_width: usize,
    ) -> anyhow::Result<()> {
        {
            let mut state = self.state();
            state.header = header.iter().map(|&name| name.to_owned()).collect();
            state.widths.clear();
            state.first_width = first_width;
        }
        self.say(&format!("\n## {title}\n\n{legend}\n\n"))
    }

    /// One row, and the numbers that it is made of. The first one sets the columns' widths.
    pub(crate) fn row(&self, cells: &[String], numbers: Vec<Value>) -> anyhow::Result<()> {
        let text = {
            let mut state = self.state();
            let mut text = String::new();
            if state.widths.is_empty() {
                state.widths = widths(&state.header, cells, state.first_width);
                text += &line(&state.header, &state.widths);
                text += &rule(&state.widths);
            }
            text + &line(cells, &state.widths)
        };
        self.say(&text)?;
        self.numbers(numbers)
    }

    /// What stands below a table.
    pub(crate) fn end(&self, lines: &[String]) -> anyhow::Result<()> {
        self.say(&format!("\n{}", lines.concat()))
    }

    /// A table that is there all at once.
    pub(crate) fn table(&self, table: Table) -> anyhow::Result<()> {
        self.say(&table.text)?;
        self.numbers(table.rows)
    }

    /// The numbers of a part so far.
    pub(crate) fn rows_of(&self, part: &str) -> Vec<Value> {
        let state = self.state();
        state.rows.iter().filter(|(of, _)| of == part).map(|(_, row)| row.clone()).collect()
    }

    fn numbers(&self, numbers: Vec<Value>) -> anyhow::Result<()> {
        let mut text = String::new();
        {
            let mut state = self.state();
            let part = state.part.clone();
            for row in numbers {
                text += &format!("{}\n", json!({ "part": part, "row": row }));
                state.rows.push((part.clone(), row));
            }
        }
        if self.is_json { self.print(&text) } else { Ok(()) }
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        self.bar
            .suspend(|| {
                let mut out = std::io::stdout();
                out.write_all(text.as_bytes())?;
                out.flush()
            })
            .context("cannot write to standard output")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The width of the widest of the cells that will stand first in their rows.
pub(crate) fn widest(names: impl Iterator<Item = String>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0)
}

/// As wide as names and first cells.
fn widths(header: &[String], cells: &[String], first_width: usize) -> Vec<usize> {
    let width = |text: &String| text.chars().count();
    let mut widths: Vec<usize> =
        header.iter().zip(cells).map(|(name, cell)| width(name).max(width(cell)).max(3)).collect();
    if let Some(first) = widths.first_mut() {
        *first = first_width.max(*first);
    }
    widths
}

/// The first column to the left, numbers to the right.
fn line(cells: &[String], widths: &[usize]) -> String {
    let cell = |(column, (cell, width)): (usize, (&String, &usize))| {
        let width = *width;
        if column == 0 { format!("| {cell:<width$} ") } else { format!("| {cell:>width$} ") }
    };
    cells.iter().zip(widths).enumerate().map(cell).collect::<String>() + "|\n"
}

fn rule(widths: &[usize]) -> String {
    let dashes = |(column, width): (usize, &usize)| {
        let end = if column == 0 { '-' } else { ':' };
        format!("|{}{end}", "-".repeat(width + 1))
    };
    widths.iter().enumerate().map(dashes).collect::<String>() + "|\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_line_up_under_their_names() {
        let of = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
        let (header, first) = (of(["path", "rate"]), of(["a long one", "5"]));
        let widths = widths(&header, &first, 10);
        let text = line(&header, &widths) + &rule(&widths) + &line(&first, &widths);
        assert_eq!(text, "| path       | rate |\n|------------|-----:|\n| a long one |    5 |\n");
    }

    #[test]
    fn numbers_are_kept_by_part() {
        let output = Output::new(false, ProgressBar::hidden());
        for (part, number) in [("network", 1), ("busy", 2), ("network", 3)] {
            output.begin_part(part);
            output.numbers(vec![json!(number)]).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(output.rows_of("network"), [json!(1), json!(3)]);
        assert!(output.rows_of("files").is_empty());
    }
}
