//! Errors of series, and the texts in them.

use std::io;

use barograph_forecast::Battery;

use super::LINE_BYTES_MAX;

/// Why a series could not be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum InputError {
    /// The bytes could not be read.
    #[error("cannot be read: {}", io_message(.0))]
    Io(#[source] io::Error),
    /// A line does not follow its format.
    #[error("line {line}: expected {expected}, found {found}")]
    Unexpected {
        /// Number of the line, from 1.
        line: u64,
        /// What the line should contain.
        expected: &'static str,
        /// The beginning of the line, and what is wrong with it.
        found: String,
    },
    /// A number is NaN, infinite, or too large for a double.
    #[error("line {line}: {field} is {found}, expected a finite number")]
    NotFinite {
        /// Number of the line, from 1.
        line: u64,
        /// The field: `time_s` or `value`.
        field: &'static str,
        found: String,
    },
    /// A value that no battery accepts.
    #[error("line {line}: value is {value:e}; its magnitude may be at most {:e}", Battery::VALUE_MAX)]
    TooLarge {
        /// Number of the line, from 1.
        line: u64,
        value: f64,
    },
    #[error("line {line}: expected times that do not decrease, found {time_s} after {before_s}")]
    Decreasing {
        /// Number of the line, from 1.
        line: u64,
        /// The time of this line, in seconds.
        time_s: f64,
        /// The time of the measurement before, in seconds.
        before_s: f64,
    },
    #[error("line {line}: expected at most {LINE_BYTES_MAX} bytes a line")]
    TooLong {
        /// Number of the line, from 1.
        line: u64,
    },
    #[error("line {line}: expected UTF-8 text")]
    NotText {
        /// Number of the line, from 1.
        line: u64,
    },
    /// The lines have measurements of more than one quantity.
    #[error("the series contains {}; select one with --quantity", listed(.quantities))]
    MixedQuantities {
        /// Names of the quantities, such as `rtt`: the first two, or all
        /// ([`SeriesReader::listing_quantities`](super::SeriesReader::listing_quantities)).
        quantities: Vec<String>,
    },
    #[error("line {line}: no column {column}; the columns are {names}")]
    NoSuchColumn {
        /// Number of the line, from 1.
        line: u64,
        /// The beginning of the wanted name, quoted.
        column: String,
        /// The names of the columns, quoted.
        names: String,
    },
    #[error("line {line}: expected a header with the names of the columns, because --column selects one")]
    NoHeader {
        /// Number of the line, from 1.
        line: u64,
    },
    #[error(
        "line {line}: several columns hold numbers, {names}; select one with --column, or rename it to value"
    )]
    ManyColumns {
        /// Number of the first line of data, from 1.
        line: u64,
        /// The names of these columns, quoted.
        names: String,
    },
    #[error("line {line}: no column holds a number; the columns are {names}")]
    NoNumbers {
        /// Number of the first line of data, from 1.
        line: u64,
        /// The names of the columns, quoted.
        names: String,
    },
    #[error(
        "line {line}: expected a time in column {column}, in seconds or as ISO 8601 such as \
         2026-05-01T12:00:00Z, found {found}"
    )]
    NoTime {
        /// Number of the first line of data, from 1.
        line: u64,
        /// The beginning of the column's name, quoted.
        column: String,
        /// The beginning of the field, quoted.
        found: String,
    },
    #[error("line {line}: expected no time in column {column}, because the lines before have none")]
    LateTime {
        /// Number of the line, from 1.
        line: u64,
        /// The beginning of the column's name, quoted.
        column: String,
    },
    /// The lines have measurements of more than one source or target.
    #[error("the series contains values of two {end}s, {before} and {next}; keep the lines of one {end}")]
    MixedEndpoints {
        /// What differs: `source` or `target`.
        end: &'static str,
        /// The beginning of the first name, quoted.
        before: String,
        /// The beginning of the next name, quoted.
        next: String,
    },
    /// No line has a measurement of the wanted quantity.
    #[error("the series has no value of {quantity:?}; check --quantity")]
    NoSuchQuantity { quantity: String },
    #[error("no values; expected lines with time_s,value, with a JSON object, or with a number")]
    Empty,
    /// The output of `ping` has no reply.
    #[error("no values; expected {}, in English (LC_ALL=C)", super::ping::EXPECTED)]
    NoReply,
}

impl InputError {
    /// Whether only this measurement is bad, so that reading can continue with the next line.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::TooLarge { .. })
    }
}

/// The message of a system error, without its number.
pub fn io_message(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The beginning of a line, quoted, with control characters made visible.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARACTERS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The names, quoted, with "and" before the last one; only the first ones of very many.
pub(super) fn listed<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| excerpt(name.as_ref())).collect();
    let mut length = 0;
    let is_shown = |name: &&String| {
        length += name.len();
        length <= LISTED_BYTES_MAX
    };
    let shown = names.iter().take_while(is_shown).count().max(1).min(names.len());
    match names.split_at(shown) {
        ([first @ .., last], []) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        (shown, []) => shown.join(", "),
        (shown, rest) => format!("{} and {} more", shown.join(", "), rest.len()),
    }
}

/// Maximum number of characters of a bad line in a message: enough to recognise the line, and few
/// enough for one line of a terminal.
const EXCERPT_CHARACTERS: usize = 40;

/// Largest number of bytes of the names in a message: the dozen quantities of a station, and few
/// enough to read.
const LISTED_BYTES_MAX: usize = 250;
