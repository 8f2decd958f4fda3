//! Shows transfers in progress: on a terminal, in a log, as JSON, or not at all.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use barograph_transfer::files::{SkippedPath, WindowLogError};
use barograph_transfer::io::{TransferEvent, TransferSummary};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::failure::TransferFailure;
use super::progress::{TransferProgress, TransferRole};
use super::{failure, json, summary};
use crate::client::printable;
use crate::exit::{eprint_line, print_line};

/// Shows transfers, one or several at the same time. Each transfer is identified by its number.
pub(crate) struct TransferOutput {
    mode: OutputMode,
    role: TransferRole,
    /// Whether output names the transfer, because there may be more than one transfer.
    is_numbered: bool,
    began: Instant,
    transfers: Mutex<BTreeMap<u64, Transfer>>,
}

/// Options of a [`TransferOutput`].
pub(crate) struct OutputOptions {
    /// Whether output is one JSON object a line; overrides `is_quiet`.
    pub(crate) is_json: bool,
    /// Whether only errors are shown.
    pub(crate) is_quiet: bool,
    /// Whether output names the transfer, because there may be more than one transfer.
    pub(crate) is_numbered: bool,
    /// Role of this end in the transfers.
    pub(crate) role: TransferRole,
}

/// Form in which transfers are shown.
enum OutputMode {
    /// One JSON object a line on standard output.
    Json,
    /// Lines that change in place, on standard error.
    Terminal(MultiProgress),
    /// A line now and then on standard error.
    Log,
    /// Only errors, on standard error.
    Quiet,
}

struct Transfer {
    progress: TransferProgress,
    bar: Option<ProgressBar>,
    last_output: Option<Instant>,
}

impl TransferOutput {
    pub(crate) fn new(options: OutputOptions) -> Self {
        let OutputOptions { is_json, is_quiet, is_numbered, role } = options;
        let mode = match () {
            () if is_json => OutputMode::Json,
            () if is_quiet => OutputMode::Quiet,
            () if std::io::stderr().is_terminal() => OutputMode::Terminal(MultiProgress::new()),
            () => OutputMode::Log,
        };
        Self { mode, role, is_numbered, began: Instant::now(), transfers: Mutex::default() }
    }

    pub(crate) fn event(&self, number: u64, event: &TransferEvent) {
        let mut transfers = self.lock();
        let transfer = transfers.entry(number).or_insert_with(|| Transfer {
            progress: TransferProgress::new(self.role),
            bar: None,
            last_output: None,
        });
        transfer.progress.on_event(self.began.elapsed().as_secs_f64(), event);
        let is_progress = matches!(event, TransferEvent::Progress(_));
        match &self.mode {
            OutputMode::Json => {
                if is_progress && !transfer.is_due(JSON_EVERY) {
                    return;
                }
                if let Some(value) = json::event(&transfer.progress, event) {
                    self.print_json(number, value);
                }
            }
            OutputMode::Quiet => {}
            OutputMode::Terminal(bars) => {
                match event {
                    TransferEvent::Notice(notice) => suspended(bars, || eprint_line(skipped_text(notice))),
                    TransferEvent::WindowsNotKept(error) => {
                        suspended(bars, || eprint_line(windows_text(error)));
                    }
                    TransferEvent::Failover { why, host, port } => {
                        suspended(bars, || eprint_line(failure::fallback_message(why, host, *port)));
                    }
                    _ => {}
                }
                transfer.draw(bars, self.is_numbered);
            }
            OutputMode::Log => match event {
                TransferEvent::Notice(notice) => eprint_line(skipped_text(notice)),
                TransferEvent::WindowsNotKept(error) => eprint_line(windows_text(error)),
                TransferEvent::Failover { why, host, port } => {
                    eprint_line(failure::fallback_message(why, host, *port))
                }
                TransferEvent::Progress(_) => {
                    if transfer.last_output.is_some() && transfer.is_due(LOG_EVERY) {
                        eprint_line(transfer.named(&transfer.progress.line(), self.is_numbered));
                    }
                    // The first event starts the interval of log lines, but prints no line.
                    transfer.last_output.get_or_insert_with(Instant::now);
                }
                TransferEvent::Verifying => {
                    eprint_line(transfer.named(&transfer.progress.line(), self.is_numbered))
                }
                _ => {}
            },
        }
    }

    /// Shows a transfer that ended well.
    pub(crate) fn done(&self, number: u64, summary: &TransferSummary) {
        let mut transfer = self.remove(number);
        // A short transfer has no progress events.
        transfer.progress.seen = summary.progress;
        match &self.mode {
            OutputMode::Json => self.print_json(number, json::done(summary, &transfer.progress)),
            OutputMode::Quiet => {}
            OutputMode::Terminal(_) | OutputMode::Log => {
                let mut lines = summary::summary_lines(summary, &transfer.progress);
                if std::io::stdout().is_terminal() {
                    lines = summary::fitted(&lines, width());
                }
                self.with_bars_cleared(|| {
                    print_line(lines.join("\n"));
                });
            }
        }
    }

    /// Shows a transfer that failed.
    pub(crate) fn failed(&self, number: u64, failure: &TransferFailure) {
        let transfer = self.remove(number);
        if matches!(self.mode, OutputMode::Json) {
            self.print_json(number, json::failed(failure, &transfer.progress));
        }
        self.message(transfer.named(&failure.message, self.is_numbered));
    }

    /// Number of transfers in progress.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().len()
    }

    /// Prints a sentence on standard error.
    pub(crate) fn message(&self, text: impl std::fmt::Display) {
        self.with_bars_cleared(|| eprint_line(&text));
    }

    /// Prints an event that belongs to no transfer, if output is JSON.
    pub(crate) fn json_event(&self, value: impl FnOnce() -> Value) {
        if matches!(self.mode, OutputMode::Json) {
            // A closed standard output does not stop the transfer.
            print_line(value());
        }
    }

    /// Calls `write`; on a terminal, the lines that change in place are cleared before.
    fn with_bars_cleared(&self, write: impl FnOnce()) {
        match &self.mode {
            OutputMode::Terminal(bars) => suspended(bars, write),
            _ => write(),
        }
    }

    fn print_json(&self, number: u64, mut value: Value) {
        if let (true, Some(line)) = (self.is_numbered, value.as_object_mut()) {
            line.insert("transfer".into(), json!(number));
        }
        print_line(value);
    }

    fn remove(&self, number: u64) -> Transfer {
        let found = self.lock().remove(&number);
        let transfer = found.unwrap_or_else(|| Transfer {
            progress: TransferProgress::new(self.role),
            bar: None,
            last_output: None,
        });
        if let Some(bar) = &transfer.bar {
            bar.finish_and_clear();
        }
        transfer
    }

    /// Locks the transfers; if a different thread panicked while it held the lock, the counts are
    /// still valid.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Transfer>> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transfer {
    /// Whether `every` has passed since the last output; if so, the current time counts as the last
    /// output.
    fn is_due(&mut self, every: Duration) -> bool {
        let is_due = self.last_output.is_none_or(|last| every <= last.elapsed());
        if is_due {
            self.last_output = Some(Instant::now());
        }
        is_due
    }

    fn draw(&mut self, bars: &MultiProgress, is_numbered: bool) {
        let width = width();
        let mut lines = self.progress.lines(width);
        if let (true, Some(peer)) = (is_numbered, &self.progress.peer) {
            lines.splice(0..0, super::progress::wrapped(&format!("from {peer}:"), width));
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = bars.add(ProgressBar::new(0));
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(lines.join("\n"));
    }

    fn named(&self, text: &str, is_numbered: bool) -> String {
        match (&self.progress.peer, is_numbered) {
            (Some(peer), true) => format!("{peer}: {text}"),
            _ => text.into(),
        }
    }
}

/// Clears the bars and writes; the next event draws the bars again. `MultiProgress::suspend` panics
/// if the terminal is gone.
fn suspended(bars: &MultiProgress, write: impl FnOnce()) {
    let _ = bars.clear();
    write();
}

/// Sentence about windows that are not kept, with the reason.
pub(crate) fn windows_text(error: &WindowLogError) -> String {
    printable(&format!("keeping no more windows of this transfer: {error}"))
}

/// Sentence about a file that is skipped, with the reason.
pub(crate) fn skipped_text(notice: &SkippedPath) -> String {
    let text = match notice {
        SkippedPath::Special(path, what) => format!("skipped {}: it is {what}", path.display()),
        SkippedPath::Link(path) => {
            format!("skipped {}: it is a symbolic link; pass --links to send it", path.display())
        }
        SkippedPath::LinkLeadsOut(path, target) => {
            format!(
                "skipped {}: it is a symbolic link to {}, outside of the files to send",
                path.display(),
                target.display()
            )
        }
        SkippedPath::Unfinished(path) => format!("skipped {}: it is an unfinished transfer", path.display()),
        other => format!("skipped: {other:?}"),
    };
    printable(&text)
}

/// Columns of the terminal minus one: some terminals wrap a line that is full.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    match size {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col) - 1,
        _ => WIDTH,
    }
}

/// Width that is used if the terminal does not report its width: 80 columns minus one.
const WIDTH: usize = 79;
/// Minimum time between two JSON progress events. This time is slightly below one second, the
/// shortest time over which a rate is measured.
const JSON_EVERY: Duration = Duration::from_millis(950);
/// Minimum time between two log lines. This time is longer than [`JSON_EVERY`], because people read
/// a log after the transfer.
const LOG_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_files_are_named_with_control_characters_escaped() {
        assert_eq!(
            skipped_text(&SkippedPath::Special("/a\u{1b}[2J".into(), "a FIFO")),
            "skipped /a\\u{1b}[2J: it is a FIFO"
        );
        assert_eq!(
            skipped_text(&SkippedPath::Link("/b".into())),
            "skipped /b: it is a symbolic link; pass --links to send it"
        );
    }
}
