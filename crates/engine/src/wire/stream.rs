//! Errors, lines and pages between stations (docs/spec/engine.md §2, §5).

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{ENTRY_BYTES_MAX, EventJson, RECORD_BYTES_MAX, RecordJson, read, text};
use crate::{Cursor, EngineError, Event, Record};

/// Longest line of a subscription, in bytes: a record and its cursor.
pub const SUBSCRIPTION_LINE_BYTES_MAX: usize = RECORD_BYTES_MAX + 100;

/// Longest line of a watch, in bytes.
pub const EVENT_BYTES_MAX: usize = ENTRY_BYTES_MAX;

/// Name and value of a request header: a caller that sends this header can read the event
/// `{"removed": host}` in a watch. Callers that do not send this header get `{"down": host}`
/// instead.
pub const REMOVED_EVENTS_HEADER: (&str, &str) = ("barograph-events", "removed");

/// Longest text of an error, in bytes: a sentence that may contain a name longer than permitted.
pub const ERROR_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ErrorJson<'a> {
    #[serde(borrow)]
    error: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct PlacedJson<'a> {
    cursor: u64,
    #[serde(borrow)]
    record: RecordJson<'a>,
}

#[derive(Serialize, Deserialize)]
struct NextJson {
    next: Option<u64>,
}

/// Writes an error as JSON.
#[must_use]
pub fn error_text(error: &EngineError) -> String {
    let mut json = ErrorJson { error: "".into(), kind: "".into(), missed: None, found: None, known: None };
    let (kind, sentence) = match error {
        EngineError::Unknown(why) => ("unknown", why.clone()),
        EngineError::Denied(why) => ("denied", why.clone()),
        // The wait is in the header `Retry-After`, not here (docs/spec/engine.md §6).
        EngineError::Unavailable(why) | EngineError::Throttled { reason: why, .. } => {
            ("unavailable", why.clone())
        }
        EngineError::Corrupt(why) => ("corrupt", why.clone()),
        EngineError::TooOld(why) => ("too_old", why.clone()),
        EngineError::Invalid(why) => ("invalid", why.clone()),
        EngineError::TooNew { found, known } => {
            (json.found, json.known) = (Some(*found), Some(*known));
            ("too_new", error.to_string())
        }
        EngineError::Lagged { missed } => {
            json.missed = Some(*missed);
            ("lagged", error.to_string())
        }
    };
    (json.kind, json.error) = (kind.into(), sentence.into());
    text(&json)
}

/// Reads an error; `None` if its kind is unknown.
#[must_use]
pub fn read_error(text: &[u8]) -> Option<EngineError> {
    let json: ErrorJson<'_> = read("error", text, ERROR_BYTES_MAX).ok()?;
    // Clean the text, because it is from a peer and is written to logs and terminals.
    let why: String = json.error.chars().take(SENTENCE_CHARS_MAX).filter(|c| !c.is_control()).collect();
    Some(match &*json.kind {
        "unknown" => EngineError::Unknown(why),
        "denied" => EngineError::Denied(why),
        "unavailable" => EngineError::Unavailable(why),
        "corrupt" => EngineError::Corrupt(why),
        "too_old" => EngineError::TooOld(why),
        "invalid" => EngineError::Invalid(why),
        "too_new" => EngineError::TooNew { found: json.found?, known: json.known? },
        "lagged" => EngineError::Lagged { missed: json.missed? },
        _ => return None,
    })
}

/// Writes an event as a line, without the line end.
#[must_use]
pub fn event_text(event: &Event) -> String {
    text(&EventJson::from(event))
}

/// Reads a line of a watch: an event, or the error that ends the watch.
///
/// # Errors
/// The error in the line; [`EngineError::Invalid`] if the line is neither.
pub fn read_event(line: &[u8]) -> Result<Event, EngineError> {
    match read::<EventJson<'_>>("event", line, EVENT_BYTES_MAX) {
        Ok(json) => json.try_into(),
        Err(other) => Err(read_error(line).unwrap_or(other)),
    }
}

/// Writes a line of a subscription, without the line end.
#[must_use]
pub fn subscription_line(cursor: Cursor, record: &Record) -> String {
    text(&PlacedJson { cursor: cursor.0, record: record.into() })
}

/// Reads a line of a subscription: a record and its cursor, or an error.
///
/// # Errors
/// The error in the line; [`EngineError::Invalid`] if the line is neither.
pub fn read_subscription_line(line: &[u8]) -> Result<(Cursor, Record), EngineError> {
    match read::<PlacedJson<'_>>("record", line, SUBSCRIPTION_LINE_BYTES_MAX) {
        Ok(json) => Ok((Cursor(json.cursor), json.record.try_into()?)),
        Err(other) => Err(read_error(line).unwrap_or(other)),
    }
}

/// Writes the last line of a page, without the line end.
#[must_use]
pub fn next_text(next: Option<Cursor>) -> String {
    text(&NextJson { next: next.map(|cursor| cursor.0) })
}

/// Reads the last line of a page; `None` if the line is not the last line of a page.
#[must_use]
pub fn read_next(line: &[u8]) -> Option<Option<Cursor>> {
    // `next` must be present; a record has no such key.
    let is_last = line.starts_with(b"{\"next\"");
    let json: NextJson = if is_last { serde_json::from_slice(line).ok()? } else { return None };
    Some(json.next.map(Cursor))
}

/// Assembles lines from the pieces in which they arrive, up to a length.
#[derive(Debug)]
pub struct LineAssembler {
    /// The line that is still incomplete.
    begun: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
    bytes_max: usize,
}

impl LineAssembler {
    /// Makes an assembler for lines of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { begun: Vec::new(), whole: VecDeque::new(), bytes_max }
    }

    /// Adds bytes that have arrived.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if a line is too long, even if it is incomplete. After this error,
    /// add no more bytes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), EngineError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.begin(&bytes[..end])?;
            self.whole.push_back(std::mem::take(&mut self.begun));
            bytes = &bytes[end + 1..];
        }
        self.begin(bytes)
    }

    /// Returns the next complete line, without the line end.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }

    /// Returns the bytes after the last complete line.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.begun
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        if self.begun.len() + bytes.len() > self.bytes_max {
            return Err(EngineError::Invalid(format!("a line has more than {} bytes", self.bytes_max)));
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }
}

/// Longest sentence of a peer, in characters. Further characters are cut off.
const SENTENCE_CHARS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_survive_encoding_and_decoding() {
        let why = || "a \"sentence\"".to_string();
        for error in [
            EngineError::Unknown(why()),
            EngineError::Denied(why()),
            EngineError::Unavailable(why()),
            EngineError::Corrupt(why()),
            EngineError::TooOld(why()),
            EngineError::Invalid(why()),
            EngineError::TooNew { found: 9, known: 3 },
            EngineError::Lagged { missed: 17 },
        ] {
            let text = error_text(&error);
            assert_eq!(read_error(text.as_bytes()), Some(error.clone()), "{text}");
            assert_eq!(read_event(text.as_bytes()), Err(error.clone()));
            assert_eq!(read_subscription_line(text.as_bytes()), Err(error));
        }
        for other in
            [r#"{"error":"x"}"#, r#"{"error":"x","kind":"new"}"#, r#"{"error":"x","kind":"lagged"}"#, ""]
        {
            assert_eq!(read_error(other.as_bytes()), None, "{other}");
        }
        let steering = read_error(br#"{"error":"a\u001b[2Jb","kind":"denied"}"#);
        assert_eq!(steering, Some(EngineError::Denied("a[2Jb".into())));
    }

    #[test]
    fn the_last_line_of_a_page_is_distinguished_from_a_record() {
        for next in [None, Some(Cursor(1 << 53))] {
            assert_eq!(read_next(next_text(next).as_bytes()), Some(next));
        }
        assert_eq!(read_next(br#"{"origin":"a"}"#), None);
        assert_eq!(read_next(br#"{"next":-1}"#), None);
    }

    #[test]
    fn a_line_beyond_the_limit_is_refused_before_it_is_stored() {
        let mut lines = LineAssembler::new(10);
        for _ in 0..2 {
            lines.push(b"12345").unwrap();
        }
        assert!(lines.push(b"1").is_err());
        assert!(LineAssembler::new(10).push(b"12345678901\n").is_err());
    }

    proptest! {
        /// The lines do not depend on how the bytes are split.
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_are_split(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0_usize..200, 0..9),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut lines = LineAssembler::new(200);
            for pair in cuts.windows(2) {
                lines.push(&text[pair[0]..pair[1]]).unwrap();
            }
            let mut expected: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
            prop_assert_eq!(Some(lines.rest()), expected.pop());
            let found: Vec<Vec<u8>> = std::iter::from_fn(|| lines.next_line()).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn decoding_a_line_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (read_event(&bytes), read_subscription_line(&bytes), read_next(&bytes), read_error(&bytes));
        }

        /// Random texts that resemble the lines of a stream.
        #[test]
        fn decoding_almost_valid_lines_does_not_panic(
            head in r#"(\{"up":|\{"down":|\{"removed":|"synced|\{"cursor":[0-9]{1,20},"record":|\{"next":|\{"error":)"#,
            tail in r#"[\{\}\[\]",:a-z0-9\\]{0,80}"#,
        ) {
            let bytes = format!("{head}{tail}").into_bytes();
            let _ = (read_event(&bytes), read_subscription_line(&bytes), read_next(&bytes), read_error(&bytes));
        }
    }
}
