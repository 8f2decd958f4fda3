//! Files of windows whose cause is known (docs/spec/classify.md §4).

use std::path::Path;

use barograph_loss::{Labelled, Meter, Table, read_labelled, stated_window};

use super::Problem;
use super::source::{Lines, Source};

/// Reads a table of labelled windows, or labelled lines.
pub(super) fn read(path: &Path, window: Option<u32>) -> Result<Vec<Labelled>, Problem> {
    let source = Source::open(path)?;
    let name = source.name.clone();
    let mut lines = Lines::new(source)?;
    let mut window = window;
    let (mut table, mut meter, mut windows) = (None, Meter::new(), Vec::new());
    while let Some((number, text)) = lines.next_line()? {
        let wrong = |error| Problem::Labelled { name: name.clone(), line: number, error };
        window = stated_window(text).or(window);
        if let Some(header) = Table::of_header(text).map_err(wrong)? {
            table = Some(header);
            // Lines of bits have no window, so a name tells only of tables.
            window = window.or_else(|| named_window(path));
            continue;
        }
        if text.starts_with('#') {
            continue;
        }
        let read = match (&table, window) {
            (Some(table), Some(window)) => table.read(text, window, &mut meter),
            (Some(_), None) => return Err(Problem::NoWindow { name }),
            (None, window) => read_labelled(text, window, &mut meter),
        };
        let Some(mut read) = read.map_err(wrong)? else { continue };
        if read.run.is_empty() {
            // A window that does not say which run it is of has one of its own.
            read.run = format!("{name}:{number}");
        }
        windows.push(read);
    }
    if windows.is_empty() { Err(Problem::Empty { name }) } else { Ok(windows) }
}

/// The length that a name such as `w20000_cpu.txt.gz` tells.
fn named_window(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix('w')?.split_once('_')?.0.parse().ok()
}
