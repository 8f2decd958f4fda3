//! Errors of commands that read files, and the check that a drawing does not overwrite its input.

use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use barograph_forecast::InvalidValue;
use barograph_study::input::io_message;

use crate::exit::{bad_input, failed};

/// An error: one line on standard error, and an exit code.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The command line or the input is wrong: exit code 2.
    Input(String),
    /// Something else failed: exit code 1.
    Failed(String),
    /// Standard output cannot be written: exit code 1, or 0 if its reader left early (`| head`).
    Output(io::Error),
}

impl Problem {
    pub(crate) fn input(text: impl Display) -> Self {
        Self::Input(text.to_string())
    }

    pub(crate) fn unopened(name: impl Display, error: &io::Error) -> Self {
        Self::Input(format!("{name}: cannot be opened: {}", io_message(error)))
    }

    pub(crate) fn unwritten(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: cannot be written: {}", shown(path), io_message(error)))
    }

    /// The sentence of the error, without its exit code.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Input(text) | Self::Failed(text) => text,
            Self::Output(error) => io_message(&error),
        }
    }

    /// Error of a series: [`Problem::Failed`] if the file could not be read, else
    /// [`Problem::Input`]. A file that could not be read does not count as wrong input.
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

impl From<InvalidValue> for Problem {
    fn from(error: InvalidValue) -> Self {
        Self::Input(format!("cannot use a value: {error}"))
    }
}

/// Prints the error of a command, if there is one, and returns its exit code.
pub(crate) fn ended(done: Result<(), Problem>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem::Input(text)) => bad_input(text),
        Err(Problem::Failed(text)) => failed(text),
        Err(Problem::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Problem::Output(error)) => {
            failed(format_args!("cannot write the output: {}", io_message(&error)))
        }
    }
}

/// Opens a series, unless the drawing `plot` would overwrite it.
pub(crate) fn open(path: &Path, plot: Option<&Path>) -> Result<File, Problem> {
    let unopened = |error| Problem::unopened(shown(path), &error);
    let metadata = fs::metadata(path).map_err(unopened)?;
    if metadata.is_dir() {
        return Err(unopened(io::ErrorKind::IsADirectory.into()));
    }
    if is_same(plot, &metadata) {
        return Err(Problem::input(format_args!(
            "{}: is one of the series; pass another file to --plot",
            shown(path)
        )));
    }
    File::open(path).map_err(unopened)
}

/// Whether the drawing would overwrite the input file, under any name.
pub(crate) fn is_same(plot: Option<&Path>, input: &Metadata) -> bool {
    let plot = plot.and_then(|plot| fs::metadata(plot).ok());
    plot.is_some_and(|plot| (plot.dev(), plot.ino()) == (input.dev(), input.ino()))
}

/// Writes the drawing of `what` to `path`.
pub(crate) fn draw(path: &Path, what: &str, svg: Result<String, String>) -> Result<(), Problem> {
    let svg = svg.map_err(|error| Problem::Failed(format!("cannot draw {what}: {error}")))?;
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
