//! Tables of all studies: Markdown with columns that also line up as plain text, and JSON lines of
//! the same rows.

use std::fmt;

use serde_json::Value;

/// Cells of a row, from any values with `to_string`.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}
pub(crate) use cells;

#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Number of columns, from the left, that are text; the others are numbers and right-aligned.
    text_columns: usize,
}

impl Table {
    pub(crate) fn new<T: ToString>(header: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![header.into_iter().map(|name| name.to_string()).collect()], text_columns: 1 }
    }

    /// A table with the names of its columns in one text, separated by bars.
    pub(crate) fn titled(header: &str) -> Self {
        Self::new(header.split(" | "))
    }

    /// Sets the number of text columns.
    pub(crate) fn text_columns(self, text_columns: usize) -> Self {
        Self { text_columns, ..self }
    }

    pub(crate) fn and<T: ToString>(mut self, header: impl IntoIterator<Item = T>) -> Self {
        self.rows[0].extend(header.into_iter().map(|name| name.to_string()));
        self
    }

    /// Adds a row; missing cells stay empty.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.rows[0].len().max(row.len()), String::new());
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The header and its rule, for rows that are written one by one. Columns are as wide as in
    /// `row`, the first at least `first_width`.
    pub(crate) fn head(&self, row: &[String], first_width: usize) -> (Widths, String) {
        let mut widths = Widths::of([self.rows[0].as_slice(), row].into_iter(), self.text_columns);
        widths.columns[0] = widths.columns[0].max(first_width);
        let head = widths.line(&self.rows[0]) + &widths.rule();
        (widths, head)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = Widths::of(self.rows.iter().map(Vec::as_slice), self.text_columns);
        f.write_str(&(widths.line(&self.rows[0]) + &widths.rule()))?;
        self.rows[1..].iter().try_for_each(|row| f.write_str(&widths.line(row)))
    }
}

/// Widths of the columns of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Widths {
    columns: Vec<usize>,
    text_columns: usize,
}

impl Widths {
    fn of<'a>(rows: impl Iterator<Item = &'a [String]> + Clone, text_columns: usize) -> Self {
        let count = rows.clone().map(<[String]>::len).max().unwrap_or(0);
        let width = |column: usize| {
            rows.clone().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        Self { columns: (0..count).map(|column| width(column).max(3)).collect(), text_columns }
    }

    pub(crate) fn line(&self, cells: &[String]) -> String {
        let cell = |(column, (cell, width)): (usize, (&String, &usize))| {
            let width = *width;
            if column < self.text_columns {
                format!("| {cell:<width$} ")
            } else {
                format!("| {cell:>width$} ")
            }
        };
        cells.iter().zip(&self.columns).enumerate().map(cell).collect::<String>() + "|\n"
    }

    fn rule(&self) -> String {
        let dashes = |(column, width): (usize, &usize)| {
            format!("|{}{}", "-".repeat(width + 1), if column < self.text_columns { '-' } else { ':' })
        };
        self.columns.iter().enumerate().map(dashes).collect::<String>() + "|\n"
    }
}

/// A table with its title and legend, and the numbers of its rows.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) text: String,
    pub(crate) rows: Vec<Value>,
}

impl Section {
    pub(crate) fn new(title: &str, legend: &str, table: &Table, rows: Vec<Value>) -> Self {
        Self { text: format!("\n## {title}\n\n{legend}\n\n{table}"), rows }
    }

    pub(crate) fn with(self, lines: &[String]) -> Self {
        Self { text: format!("{}\n{}", self.text, lines.concat()), ..self }
    }
}

/// A share in percent, without the sign; small ones with one decimal more.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if 0.0 < percent && percent < 0.995 { format!("{percent:.2}") } else { format!("{percent:.1}") }
}

/// A ratio, with two decimals below 10.
pub(crate) fn factor(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.2}") } else { format!("{factor:.0}") }
}

/// A number with this many decimals; a dash if there is none.
pub(crate) fn number(number: Option<f64>, decimals: usize) -> String {
    shown(number, |number| format!("{number:.decimals$}"))
}

/// A value formatted by `show`; a dash if there is none.
pub(crate) fn shown<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(dash, show)
}

/// Text in place of a missing value.
pub(crate) fn dash() -> String {
    "–".to_owned()
}

pub(crate) fn bold(text: &str) -> String {
    format!("**{text}**")
}

pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    joined(items, ", ")
}

pub(crate) fn joined<T: ToString>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_rows_and_header_are_aligned() {
        let mut table = Table::new(["path", "rate"]);
        let row = cells!["a long one", 5];
        let (widths, head) = table.head(&row, 10);
        let text = head + &widths.line(&row);
        assert_eq!(text, "| path       | rate |\n|------------|-----:|\n| a long one |    5 |\n");
        table.push(row);
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn a_short_row_is_padded() {
        let mut table = Table::new(["a", "b"]).and(["c"]);
        table.push(cells!["x"]);
        assert_eq!(table.to_string(), "| a   |   b |   c |\n|-----|----:|----:|\n| x   |     |     |\n");
    }
}
