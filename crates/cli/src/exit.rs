//! Exit codes, and the sentence that is printed with each: 0 done, 1 failed, 2 bad usage or input.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// An error that ends a verb.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line, the configuration or the input is wrong: exit code 2.
    Input(String),
    /// Anything else failed: exit code 1.
    Failed(String),
}

/// Prints the message of a failure, and returns the exit code of the command.
pub(crate) fn code(result: Result<ExitCode, Failure>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(Failure::Input(message)) => bad_input(message),
        Err(Failure::Failed(message)) => failed(message),
    }
}

/// Formats rows as columns, each as wide as its widest cell, two spaces apart.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Prints the sentence of a failure; returns exit code 1.
pub(crate) fn failed(message: impl Display) -> ExitCode {
    eprint_line(message);
    ExitCode::from(1)
}

/// Prints what is wrong with the command line, the configuration or the input; returns exit code 2.
pub(crate) fn bad_input(message: impl Display) -> ExitCode {
    eprint_line(message);
    ExitCode::from(2)
}

/// Prints one line on standard error; does nothing if standard error is closed.
pub(crate) fn eprint_line(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "barograph: {message}");
}

/// Prints a line on standard output; returns false if standard output has no reader any more.
pub(crate) fn print_line(line: impl Display) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
