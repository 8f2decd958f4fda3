//! Files of windows whose cause is known (docs/spec/classify.md §4).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use barograph_loss::{Labelled, Meter, Table, TableError, read_labelled, stated_window};

use super::source::{Lines, Source};
use super::{Problem, empty};

/// Which files and windows there were: what is read twice would count twice.
#[derive(Default)]
pub(super) struct Seen {
    files: BTreeSet<PathBuf>,
    /// Where each window was, by its run, its length and its number in the run.
    windows: BTreeMap<(String, u32, String), String>,
}

impl Seen {
    /// Whether a file is not one that was read before, under whatever name.
    fn is_new(&mut self, path: &Path) -> bool {
        // What has no path of its own is no file, or is reported when it is opened; of a pipe nothing comes twice.
        let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        !is_file || fs::canonicalize(path).map_or(true, |path| self.files.insert(path))
    }
}

/// The columns that name a window, by a table's header.
struct Named {
    run: usize,
    window: usize,
}

impl Named {
    fn of_header(header: &str) -> Option<Self> {
        let at =
            |wanted: &str| header.trim_start_matches('#').split('\t').position(|name| name.trim() == wanted);
        Some(Self { run: at("run")?, window: at("window")? })
    }

    /// The names in a row: of the run, and of the window in it.
    fn of_row(&self, row: &str) -> Option<[String; 2]> {
        let field = |at: usize| row.split('\t').nth(at).map(|field| field.trim().to_owned());
        Some([field(self.run)?, field(self.window)?])
            .filter(|names| names.iter().all(|name| !name.is_empty()))
    }
}

/// Reads a table of labelled windows, or labelled lines; none of which may have been read before.
pub(super) fn read(path: &Path, window: Option<u32>, seen: &mut Seen) -> Result<Vec<Labelled>, Problem> {
    let source = Source::open(path)?;
    let name = source.name.clone();
    if !seen.is_new(path) {
        let why = "this file is named twice, so that its windows would count twice";
        return Err(Problem::Input(format!("{name}: {why}")));
    }
    let mut lines = Lines::new(source)?;
    let mut window = window;
    let (mut table, mut named, mut meter, mut windows) = (None, None, Meter::new(), Vec::new());
    while let Some((number, text)) = lines.next_line()? {
        let wrong = |error: TableError| Problem::Input(format!("{name}: line {number}: {error}"));
        window = stated_window(text).or(window);
        if let Some(header) = Table::of_header(text).map_err(wrong)? {
            (table, named) = (Some(header), Named::of_header(text));
            // Lines of bits have no window, so a name tells only of tables.
            window = window.or_else(|| named_window(path));
            continue;
        }
        if text.starts_with('#') {
            continue;
        }
        let read = match (&table, window) {
            (Some(table), Some(window)) => table.read(text, window, &mut meter),
            (Some(_), None) => {
                return Err(Problem::Input(format!(
                    "{name}: the length of the windows is not known: give --window N, a line `# window N`, or a name that begins with wN_"
                )));
            }
            (None, window) => read_labelled(text, window, &mut meter),
        };
        let Some(mut read) = read.map_err(wrong)? else { continue };
        if let Some([run, number_in_run]) = named.as_ref().and_then(|named: &Named| named.of_row(text)) {
            let (packets, here) = (read.metrics.packets, format!("{name}: line {number}"));
            let key = (run.clone(), packets, number_in_run.clone());
            if let Some(before) = seen.windows.insert(key, here) {
                let window = format!("window {number_in_run} of run {run}, of {packets} packets");
                let why = format!("{window}, is in {before} too; runs of another set need other names");
                return Err(Problem::Input(format!("{name}: line {number}: {why}")));
            }
        }
        if read.run.is_empty() {
            // A window that does not say which run it is of has one of its own.
            read.run = format!("{name}:{number}");
        }
        windows.push(read);
    }
    if windows.is_empty() { Err(empty(&name)) } else { Ok(windows) }
}

/// The length that a name such as `w20000_cpu.txt.gz` tells.
fn named_window(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix('w')?.split_once('_')?.0.parse().ok()
}
