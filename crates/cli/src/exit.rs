//! Exit codes and the one sentence that goes with them: 0 done, 1 failed, 2 bad usage or input.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Why a verb ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line, the configuration or the input is wrong.
    Input(String),
    /// Something did not work.
    Failed(String),
}

/// The exit code of a verb, after its sentence.
pub(crate) fn code(result: Result<ExitCode, Failure>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(Failure::Input(message)) => bad_input(message),
        Err(Failure::Failed(message)) => failed(message),
    }
}

/// Columns of the widest cell each, two spaces apart.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Something did not work.
pub(crate) fn failed(message: impl Display) -> ExitCode {
    say(message);
    ExitCode::from(1)
}

/// The command line, the configuration or the input is wrong.
pub(crate) fn bad_input(message: impl Display) -> ExitCode {
    say(message);
    ExitCode::from(2)
}

/// One line on standard error.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "barograph: {message}");
}

/// Prints a line on standard output; false when nobody reads any more.
pub(crate) fn print(line: impl Display) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
