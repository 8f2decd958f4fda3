//! Why a command that reads files gave no answer, and the drawing that must not replace what is read.

use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use barograph_forecast::NotFinite;
use barograph_study::input::cause;

use crate::exit::{bad_input, failed};

/// One line on standard error, and the exit code.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The command line or the input is wrong: 2.
    Input(String),
    /// Something else did not work: 1.
    Failed(String),
    /// Standard output cannot be written: 1, or 0 where its reader has seen enough (`| head`).
    Output(io::Error),
}

impl Problem {
    pub(crate) fn input(text: impl Display) -> Self {
        Self::Input(text.to_string())
    }

    pub(crate) fn unopened(name: impl Display, error: &io::Error) -> Self {
        Self::Input(format!("{name}: cannot be opened: {}", cause(error)))
    }

    pub(crate) fn unwritten(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: cannot be written: {}", shown(path), cause(error)))
    }

    /// What is wrong with a file; to fail to read it is no fault of its content.
    pub(crate) fn of_series(name: impl Display, error: impl Display, is_unread: bool) -> Self {
        let text = format!("{name}: {error}");
        if is_unread { Self::Failed(text) } else { Self::Input(text) }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<NotFinite> for Problem {
    fn from(error: NotFinite) -> Self {
        Self::Input(format!("the battery refused a value: {error}"))
    }
}

/// Reports how a command ended.
pub(crate) fn ended(done: Result<(), Problem>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem::Input(text)) => bad_input(text),
        Err(Problem::Failed(text)) => failed(text),
        Err(Problem::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Problem::Output(error)) => {
            failed(format_args!("the output cannot be written: {}", cause(&error)))
        }
    }
}

/// Opens a series, unless `plot` would be drawn into it.
pub(crate) fn open(path: &Path, plot: Option<&Path>) -> Result<File, Problem> {
    let unopened = |error| Problem::unopened(shown(path), &error);
    let metadata = fs::metadata(path).map_err(unopened)?;
    if metadata.is_dir() {
        return Err(unopened(io::ErrorKind::IsADirectory.into()));
    }
    if is_same(plot, &metadata) {
        return Err(Problem::input(format_args!(
            "{}: is one of the series; draw into another file",
            shown(path)
        )));
    }
    File::open(path).map_err(unopened)
}

/// Whether the drawing would go into the file that is read, under whatever name.
pub(crate) fn is_same(plot: Option<&Path>, input: &Metadata) -> bool {
    let plot = plot.and_then(|plot| fs::metadata(plot).ok());
    plot.is_some_and(|plot| (plot.dev(), plot.ino()) == (input.dev(), input.ino()))
}

/// Writes the drawing of `what`.
pub(crate) fn draw(path: &Path, what: &str, svg: Result<String, String>) -> Result<(), Problem> {
    let svg = svg.map_err(|error| Problem::Failed(format!("{what} cannot be drawn: {error}")))?;
    fs::write(path, svg).map_err(|error| Problem::unwritten(path, &error))
}

/// A path on one line: control characters in it are escaped.
pub(crate) fn shown(path: &Path) -> String {
    let mut shown = String::new();
    for character in path.to_string_lossy().chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}
