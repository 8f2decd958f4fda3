//! Files of labelled windows (docs/spec/classify.md §4).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use barograph_loss::{LabelledWindow, Meter, TableError, TableReader, parse_window_comment, read_labelled};

use super::source::{Lines, Source};
use super::{Problem, empty};

/// Files and windows that were read already, so that none of them is counted twice.
#[derive(Default)]
pub(super) struct ReadWindows {
    files: BTreeSet<PathBuf>,
    /// Text with the position of each window in the files. The key is the window's run, its length
    /// and its number in the run.
    windows: BTreeMap<(String, u32, String), String>,
}

impl ReadWindows {
    /// Records a file. Returns whether the file is new. A file that was read under a different name
    /// is not new.
    fn is_new(&mut self, path: &Path) -> bool {
        // A pipe delivers each window once. A path that does not resolve fails when it is opened.
        let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        !is_file || fs::canonicalize(path).map_or(true, |path| self.files.insert(path))
    }
}

/// Columns of a table that identify a window.
struct WindowColumns {
    run: usize,
    window: usize,
}

impl WindowColumns {
    fn of_header(header: &str) -> Option<Self> {
        let at =
            |wanted: &str| header.trim_start_matches('#').split('\t').position(|name| name.trim() == wanted);
        Some(Self { run: at("run")?, window: at("window")? })
    }

    /// The run of a row, and the number of its window in the run.
    fn of_row(&self, row: &str) -> Option<[String; 2]> {
        let field = |at: usize| row.split('\t').nth(at).map(|field| field.trim().to_owned());
        Some([field(self.run)?, field(self.window)?])
            .filter(|names| names.iter().all(|name| !name.is_empty()))
    }
}

/// Reads a table of labelled windows, or labelled lines. A window that was read before is an error.
pub(super) fn read(
    path: &Path,
    window: Option<u32>,
    read_before: &mut ReadWindows,
) -> Result<Vec<LabelledWindow>, Problem> {
    let source = Source::open(path)?;
    let name = source.name.clone();
    if !read_before.is_new(path) {
        let why = "this file is named twice; name it once, or its windows would count twice";
        return Err(Problem::Input(format!("{name}: {why}")));
    }
    let mut lines = Lines::new(source)?;
    let mut window = window;
    let (mut table, mut columns, mut meter, mut windows) = (None, None, Meter::new(), Vec::new());
    while let Some((number, text)) = lines.next_line()? {
        let wrong = |error: TableError| Problem::Input(format!("{name}: line {number}: {error}"));
        window = parse_window_comment(text).or(window);
        if let Some(header) = TableReader::from_header(text).map_err(wrong)? {
            (table, columns) = (Some(header), WindowColumns::of_header(text));
            // Only tables take the length from the file's name: lines of bits need none.
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
                    "{name}: the length of the windows is unknown; pass --window N, add a line `# window N`, or begin the file's name with wN_"
                )));
            }
            (None, window) => read_labelled(text, window, &mut meter),
        };
        let Some(mut read) = read.map_err(wrong)? else { continue };
        if let Some([run, number_in_run]) =
            columns.as_ref().and_then(|columns: &WindowColumns| columns.of_row(text))
        {
            let (packets, here) = (read.metrics.packets, format!("{name}: line {number}"));
            let key = (run.clone(), packets, number_in_run.clone());
            if let Some(before) = read_before.windows.insert(key, here) {
                let window = format!("window {number_in_run} of run {run}, of {packets} packets");
                let why = format!("{window}, is in {before} too; give runs of another set other names");
                return Err(Problem::Input(format!("{name}: line {number}: {why}")));
            }
        }
        if read.run.is_empty() {
            // A window without a run counts as a separate run.
            read.run = format!("{name}:{number}");
        }
        windows.push(read);
    }
    if windows.is_empty() { Err(empty(&name)) } else { Ok(windows) }
}

/// Length of the windows in a file name such as `w20000_cpu.txt.gz`.
fn named_window(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix('w')?.split_once('_')?.0.parse().ok()
}
