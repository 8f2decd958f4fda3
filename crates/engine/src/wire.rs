//! Records, entries and events as JSON, for the engines that send them (docs/spec/engine.md).
//!
//! All input is checked: a text that these functions accept is within the limits of the directory
//! and the archive. A value that these functions write as JSON is read back exactly. Unknown keys
//! are ignored, so that newer versions can add keys.

mod detail;
mod stream;

use std::borrow::Cow;
use std::net::SocketAddr;

use barograph_forecast::{Failure, Name, NameError, Outcome, Quantity, SeriesId};
use serde::{Deserialize, Serialize};

use crate::{Capabilities, EngineError, Entry, Event, Record};

pub use detail::{DETAIL_DEPTH_MAX, is_sound_detail};
pub use stream::{
    ERROR_BYTES_MAX, EVENT_BYTES_MAX, LineAssembler, REMOVED_EVENTS_HEADER, SUBSCRIPTION_LINE_BYTES_MAX,
    error_text, event_text, next_text, read_error, read_event, read_next, read_subscription_line,
    subscription_line,
};

/// Longest text of a record, in bytes: four names of 255 bytes and a detail of 4 KiB, each at its
/// longest as JSON (`\u00xx` for a byte), and the numbers.
pub const RECORD_BYTES_MAX: usize = 32 << 10;

/// Longest text of an entry, in bytes: 64 groups and 16 addresses at their longest.
pub const ENTRY_BYTES_MAX: usize = 128 << 10;

/// JSON form of a [`Record`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordJson<'a> {
    #[serde(borrow)]
    origin: Cow<'a, str>,
    seq: u64,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    target: Cow<'a, str>,
    #[serde(borrow)]
    quantity: Cow<'a, str>,
    time_unix_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_s: Option<f64>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    detail: Cow<'a, str>,
}

/// JSON form of an [`Entry`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntryJson<'a> {
    #[serde(borrow)]
    host: Cow<'a, str>,
    addresses: Vec<SocketAddr>,
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(borrow)]
    groups: Vec<Cow<'a, str>>,
    /// Names of capabilities. Unknown names are ignored.
    #[serde(borrow)]
    capabilities: Vec<Cow<'a, str>>,
    /// Public key as 64 hexadecimal digits.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
}

/// JSON form of an [`Event`]: `{"up": Entry}`, `"synced"`, `{"down": host}`, `{"removed": host}`.
///
/// A reader ends its watch at an unknown event. So `removed` is sent only to readers that request
/// it ([`REMOVED_EVENTS_HEADER`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventJson<'a> {
    /// A station registered, or changed its entry.
    #[serde(borrow)]
    Up(EntryJson<'a>),
    /// The snapshot is complete.
    Synced,
    /// A station left the group, or its lease ended.
    #[serde(borrow)]
    Down(Cow<'a, str>),
    /// An administrator removed a station.
    #[serde(borrow)]
    Removed(Cow<'a, str>),
}

impl<'a> From<&'a Record> for RecordJson<'a> {
    fn from(record: &'a Record) -> Self {
        let (value, error, after_s) = match record.outcome {
            Outcome::Value(value) => (Some(value), None, None),
            Outcome::Failed { failure, after_s } => (None, Some(failure.as_str().into()), Some(after_s)),
        };
        Self {
            origin: record.origin.as_str().into(),
            seq: record.seq,
            source: record.series.source.as_str().into(),
            target: record.series.target.as_str().into(),
            quantity: record.series.quantity.as_str().into(),
            time_unix_ns: record.time_unix_ns,
            value,
            error,
            after_s,
            detail: record.detail.as_str().into(),
        }
    }
}

impl TryFrom<RecordJson<'_>> for Record {
    type Error = EngineError;

    /// Omits a detail that is not sound ([`is_sound_detail`]); earlier versions stored such
    /// details.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the invalid name, or the value that [`Record::check`] refuses.
    fn try_from(json: RecordJson<'_>) -> Result<Self, EngineError> {
        let outcome = match (json.value, json.error, json.after_s) {
            (Some(value), None, None) => Outcome::Value(value),
            (None, Some(word), Some(after_s)) => match Failure::from_word(&word) {
                Some(failure) => Outcome::Failed { failure, after_s },
                None => return Err(EngineError::Invalid(format!("unknown failure `{}`", shown(&word)))),
            },
            _ => {
                return Err(EngineError::Invalid(
                    "a record has either a value, or an error and after_s".into(),
                ));
            }
        };
        let quantity = Quantity::new(&json.quantity).map_err(|error| invalid("quantity", &error))?;
        let record = Self {
            origin: name("origin", &json.origin)?,
            seq: json.seq,
            series: SeriesId {
                source: name("source", &json.source)?,
                target: name("target", &json.target)?,
                quantity,
            },
            time_unix_ns: json.time_unix_ns,
            outcome,
            detail: if is_sound_detail(&json.detail) { json.detail.into_owned() } else { String::new() },
        };
        record.check()?;
        Ok(record)
    }
}

impl<'a> From<&'a Entry> for EntryJson<'a> {
    fn from(entry: &'a Entry) -> Self {
        let Capabilities { responder, bulk, archive, iperf3, trains } = entry.capabilities;
        let words =
            [(responder, RESPONDER), (bulk, BULK), (archive, ARCHIVE), (iperf3, IPERF3), (trains, TRAINS)];
        Self {
            host: entry.host.as_str().into(),
            addresses: entry.addresses.clone(),
            version: entry.version.as_str().into(),
            groups: entry.groups.iter().map(|group| group.as_str().into()).collect(),
            capabilities: words.iter().filter(|(can, _)| *can).map(|(_, word)| (*word).into()).collect(),
            key: entry.key.map(|key| hex(&key).into()),
        }
    }
}

impl TryFrom<EntryJson<'_>> for Entry {
    type Error = EngineError;

    /// # Errors
    /// [`EngineError::Invalid`] with the invalid name or key, or the limit that [`Entry::check`]
    /// refuses.
    fn try_from(json: EntryJson<'_>) -> Result<Self, EngineError> {
        let can = |word: &str| json.capabilities.iter().any(|given| given == word);
        let groups = json.groups.iter().take(Self::GROUPS_MAX + 1);
        let entry = Self {
            host: name("host", &json.host)?,
            addresses: json.addresses,
            version: json.version.to_string(),
            groups: groups.map(|group| name("group", group)).collect::<Result<_, _>>()?,
            capabilities: Capabilities {
                responder: can(RESPONDER),
                bulk: can(BULK),
                archive: can(ARCHIVE),
                iperf3: can(IPERF3),
                trains: can(TRAINS),
            },
            key: json.key.as_deref().map(key).transpose()?,
        };
        entry.check()?;
        Ok(entry)
    }
}

impl<'a> From<&'a Event> for EventJson<'a> {
    fn from(event: &'a Event) -> Self {
        match event {
            Event::Up(entry) => Self::Up(entry.into()),
            Event::Synced => Self::Synced,
            Event::Down(host) => Self::Down(host.as_str().into()),
            Event::Removed(host) => Self::Removed(host.as_str().into()),
        }
    }
}

impl TryFrom<EventJson<'_>> for Event {
    type Error = EngineError;

    /// # Errors
    /// [`EngineError::Invalid`] with the invalid name or key, or the limit that [`Entry::check`]
    /// refuses.
    fn try_from(json: EventJson<'_>) -> Result<Self, EngineError> {
        Ok(match json {
            EventJson::Up(entry) => Self::Up(entry.try_into()?),
            EventJson::Synced => Self::Synced,
            EventJson::Down(host) => Self::Down(name("host", &host)?),
            EventJson::Removed(host) => Self::Removed(name("host", &host)?),
        })
    }
}

/// Writes a record as JSON.
#[must_use]
pub fn record_text(record: &Record) -> String {
    text(&RecordJson::from(record))
}

/// Reads a record that is to be stored.
///
/// # Errors
/// [`EngineError::Invalid`] if `text` is too long, is not a record as JSON, breaks a limit, or has
/// a detail that is not sound ([`is_sound_detail`]).
pub fn read_record(text: &[u8]) -> Result<Record, EngineError> {
    let json: RecordJson<'_> = read("record", text, RECORD_BYTES_MAX)?;
    if !is_sound_detail(&json.detail) {
        let why = format!(
            "the detail must be a JSON object of numbers within a double and Unicode strings, nested at most \
             {DETAIL_DEPTH_MAX} levels deep"
        );
        return Err(EngineError::Invalid(why));
    }
    json.try_into()
}

/// Reads a record that was stored elsewhere. A detail that is not sound is omitted.
///
/// # Errors
/// [`EngineError::Invalid`] if `text` is too long, is not a record as JSON, or breaks a limit.
pub fn read_stored_record(text: &[u8]) -> Result<Record, EngineError> {
    read::<RecordJson<'_>>("record", text, RECORD_BYTES_MAX)?.try_into()
}

/// Writes an entry as JSON.
#[must_use]
pub fn entry_text(entry: &Entry) -> String {
    text(&EntryJson::from(entry))
}

/// Reads an entry from JSON.
///
/// # Errors
/// [`EngineError::Invalid`] if `text` is too long, is not an entry as JSON, or breaks a limit.
pub fn read_entry(text: &[u8]) -> Result<Entry, EngineError> {
    read::<EntryJson<'_>>("entry", text, ENTRY_BYTES_MAX)?.try_into()
}

fn text(json: &impl Serialize) -> String {
    serde_json::to_string(json).expect("strings, finite numbers and arrays of them are JSON")
}

fn read<'a, T: Deserialize<'a>>(what: &str, text: &'a [u8], bytes_max: usize) -> Result<T, EngineError> {
    if text.len() > bytes_max {
        return Err(EngineError::Invalid(format!(
            "the {what} has {} bytes (at most {bytes_max})",
            text.len()
        )));
    }
    serde_json::from_slice(text).map_err(|error| EngineError::Invalid(format!("not a {what}: {error}")))
}

fn name(what: &str, text: &str) -> Result<Name, EngineError> {
    Name::new(text).map_err(|error| invalid(what, &error))
}

fn invalid(what: &str, error: &NameError) -> EngineError {
    EngineError::Invalid(format!("{what}: {error}"))
}

fn key(text: &str) -> Result<[u8; 32], EngineError> {
    from_hex(text).ok_or_else(|| EngineError::Invalid("a key has 64 hexadecimal digits".into()))
}

/// Writes bytes as hexadecimal digits, two for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads 32 bytes (a key or a digest) from 64 hexadecimal digits; `None` if the text has a
/// different form.
#[must_use]
pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Shortens a word from a peer to a length that fits in an error message.
fn shown(word: &str) -> String {
    word.chars().take(40).collect()
}

const RESPONDER: &str = "responder";
const BULK: &str = "bulk";
const ARCHIVE: &str = "archive";
const IPERF3: &str = "iperf3";
const TRAINS: &str = "trains";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::Battery;
    use proptest::prelude::*;

    use super::*;

    fn sample(outcome: Outcome, detail: &str) -> Record {
        let series = SeriesId {
            source: Name::new("näch\"ste").unwrap(),
            target: Name::new("[::1]:80").unwrap(),
            quantity: Quantity::RTT,
        };
        let (origin, time_unix_ns) = (series.source.clone(), 1_767_225_600_123_456_789);
        Record { origin, seq: Record::SEQ_MAX, series, time_unix_ns, outcome, detail: detail.into() }
    }

    #[test]
    fn records_survive_encoding_and_decoding() {
        let failed = |failure| Outcome::Failed { failure, after_s: 0.1 };
        let values = [0.0, -0.0, 0.1, f64::MIN_POSITIVE, -Battery::VALUE_MAX, 9_007_199_254_740_993.0];
        for outcome in values.map(Outcome::Value).into_iter().chain(Failure::ALL.map(failed)) {
            let record = sample(outcome, "{\"a\":\n\"\\u00e9\"}");
            assert_eq!(read_record(record_text(&record).as_bytes()).unwrap(), record);
        }
    }

    #[test]
    fn the_longest_records_and_entries_fit_the_limits() {
        let name = Name::new(&"\"".repeat(255)).unwrap();
        let series = SeriesId { source: name.clone(), target: name.clone(), quantity: Quantity::RTT };
        let detail = "\t".repeat(Record::DETAIL_BYTES_MAX);
        let record = Record { origin: name.clone(), series, detail, ..sample(Outcome::Value(0.1), "") };
        assert!(record_text(&record).len() < RECORD_BYTES_MAX);
        let entry = Entry {
            host: name.clone(),
            addresses: vec![
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap();
                16
            ],
            version: "\u{1}".repeat(64),
            groups: vec![name; Entry::GROUPS_MAX],
            capabilities: Capabilities {
                responder: true,
                bulk: true,
                archive: true,
                iperf3: true,
                trains: true,
            },
            key: Some([0xa5; 32]),
        };
        let text = entry_text(&entry);
        assert!(text.len() < ENTRY_BYTES_MAX, "{}", text.len());
        assert_eq!(read_entry(text.as_bytes()).unwrap(), entry);
        let gone = [Event::Down(entry.host.clone()), Event::Removed(entry.host.clone())];
        for event in [Event::Up(entry), Event::Synced].into_iter().chain(gone) {
            let text = text_of(&event);
            let json: EventJson<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(Event::try_from(json).unwrap(), event);
        }
    }

    fn text_of(event: &Event) -> String {
        super::text(&EventJson::from(event))
    }

    #[test]
    fn records_outside_the_limits_are_refused() {
        let good = record_text(&sample(Outcome::Value(1.0), ""));
        assert!(read_record(good.as_bytes()).is_ok());
        for (from, to) in [
            ("\"value\":1.0", "\"value\":1e71"),
            ("\"value\":1.0", "\"value\":null"),
            ("\"value\":1.0", "\"value\":1.0,\"error\":\"reset\",\"after_s\":1.0"),
            ("\"value\":1.0", "\"error\":\"tired\",\"after_s\":1.0"),
            ("\"value\":1.0", "\"error\":\"reset\",\"after_s\":-1.0"),
            ("9007199254740992", "9007199254740993"),
            ("9007199254740992", "0"),
            ("rtt", "RTT"),
            ("[::1]:80", "a b"),
            ("1767225600123456789", "-1"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            assert!(matches!(read_record(bad.as_bytes()), Err(EngineError::Invalid(_))), "{bad}");
        }
        let long = format!("{}{good}", " ".repeat(RECORD_BYTES_MAX));
        assert!(matches!(read_record(long.as_bytes()), Err(EngineError::Invalid(_))));
    }

    #[test]
    fn a_detail_is_a_json_object_that_every_reader_can_parse() {
        let text = |detail: &str| record_text(&sample(Outcome::Value(1.0), detail));
        let nested = |deep: usize| format!("{}0{}", "{\"a\":".repeat(deep), "}".repeat(deep));
        let arrays = |deep: usize| format!("{{\"a\":{}{}}}", "[".repeat(deep - 1), "]".repeat(deep - 1));
        let brackets = format!("{{\"[{{\\\"[\": \"{}\"}}", "[".repeat(100));
        for detail in ["", "{}", " {\"n\": 1}\n", &nested(16), &arrays(16), &brackets] {
            assert_eq!(read_record(text(detail).as_bytes()).unwrap().detail, detail);
        }
        let bad = ["none", "7", "null", "\"{}\"", "[]", "[{}]", "{", "{}}", "{} {}", "{'a': 1}", " "];
        // Details that strict parsers refuse: numbers that no double can hold, and unpaired UTF-16
        // surrogates.
        let unreadable = ["{\"a\": 1e999}", "{\"a\": [-1e999]}", "{\"a\": \"\\ud800\"}", "{\"\\udc00\": 1}"];
        let digits = format!("{{\"a\": {}}}", "1".repeat(400));
        let generated = [nested(17), arrays(17), arrays(2000), digits];
        for detail in bad.into_iter().chain(unreadable).chain(generated.each_ref().map(String::as_str)) {
            let error = read_record(text(detail).as_bytes()).unwrap_err();
            assert!(
                matches!(&error, EngineError::Invalid(why) if why.contains("detail")),
                "{detail}: {error}"
            );
            let stored = read_stored_record(text(detail).as_bytes()).unwrap();
            assert_eq!(stored, sample(Outcome::Value(1.0), ""), "it is left out: {detail}");
        }
    }

    proptest! {
        #[test]
        fn decoding_records_and_entries_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_record(&bytes);
            let _ = read_entry(&bytes);
        }
    }
}
