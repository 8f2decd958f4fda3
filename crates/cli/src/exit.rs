//! Exit codes and the one sentence that goes with them: 0 done, 1 failed, 2 bad usage or input.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

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
