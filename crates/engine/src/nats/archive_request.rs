//! Requests to an archive and its responses, as JSON.

use std::time::Duration;

use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use barograph_forecast::{Name, Quantity, SeriesId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::connection::json;
use super::stream_read;
use super::subject::{self, REQUESTS, RESPONSES};
use crate::wire::RecordJson;
use crate::{Cursor, EngineError, HostId, Page, Range, Record, Selector};

/// A request to an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ArchiveRequest {
    /// Kind of the request. The kind is sent in the subject, not in the JSON.
    #[serde(skip)]
    pub(super) kind: &'static str,
    /// End of the response's subject, below [`response_prefix`] of the requester: two tokens that
    /// the requester chose. `None` if the response goes to the reply subject of the message, as in
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<String>,
    /// Number up to which the archive must have read the stream before it responds. So a station
    /// finds the records that the station itself wrote.
    #[serde(default)]
    pub(super) after_place: u64,
    /// Creation time of the stream to which `after_place` belongs; `None` for any stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quantity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_unix_ns: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_unix_ns: Option<i64>,
    #[serde(default)]
    pub(super) limit: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) registration: Option<RegistrationJson>,
    /// Of a write: the nonce of a response of this archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nonce: Option<String>,
    /// What the requester writes: records as lines of JSON, or its entry as JSON; empty if the
    /// entry is to be deleted. The body follows the JSON of the request, after a line feed.
    #[serde(skip)]
    pub(super) body: Bytes,
}

/// The write of a registration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegistrationJson {
    /// Identifier of the registration: letters and digits.
    pub(super) id: String,
    /// Lease of the entry, in seconds.
    pub(super) ttl_s: u64,
    /// Sequence number of the message to replace; `None` to replace the message that the archive
    /// reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) over: Option<u64>,
}

impl ArchiveRequest {
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            answer: None,
            after_place: 0,
            stream: None,
            origin: None,
            source: None,
            target: None,
            quantity: None,
            from_unix_ns: None,
            until_unix_ns: None,
            limit: 0,
            cursor: None,
            registration: None,
            nonce: None,
            body: Bytes::new(),
        }
    }

    /// A request to store these records of the requester, as lines of JSON.
    pub(super) fn append(records: Bytes) -> Self {
        Self { body: records, ..Self::new(APPEND) }
    }

    /// A request to write this entry of the requester, or to delete the entry if the text is empty.
    pub(super) fn register(registration: RegistrationJson, entry: Bytes) -> Self {
        Self { registration: Some(registration), body: entry, ..Self::new(REGISTER) }
    }

    /// The message of the request.
    pub(super) fn payload(&self) -> Bytes {
        let head = json(self);
        if self.body.is_empty() {
            return head;
        }
        [&head[..], b"\n", &self.body[..]].concat().into()
    }

    /// Reads the message of a request to write.
    pub(super) fn read_write(payload: &Bytes) -> serde_json::Result<Self> {
        let end = payload.iter().position(|&byte| byte == b'\n').unwrap_or(payload.len());
        let request: Self = serde_json::from_slice(&payload[..end])?;
        Ok(Self { body: payload.slice(payload.len().min(end + 1)..), ..request })
    }

    /// Sets the two tokens at which the response is expected.
    pub(super) fn with_response_at(self, chosen: String) -> Self {
        Self { answer: Some(chosen), ..self }
    }

    /// Sets the nonce with which the archive accepts this write.
    pub(super) fn with_nonce(self, nonce: Option<String>) -> Self {
        Self { nonce, ..self }
    }

    pub(super) fn history(series: &SeriesId, range: &Range) -> Self {
        let SeriesId { source, target, quantity } = series;
        Self {
            source: Some(source.to_string()),
            target: Some(target.to_string()),
            quantity: Some(quantity.as_str().into()),
            from_unix_ns: Some(range.from_unix_ns),
            until_unix_ns: Some(range.until_unix_ns),
            limit: range.limit,
            cursor: range.after.map(|cursor| cursor.0),
            ..Self::new(HISTORY)
        }
    }

    pub(super) fn latest(selector: &Selector, after: Option<Cursor>, limit: usize) -> Self {
        Self {
            source: selector.source.as_ref().map(Name::to_string),
            target: selector.target.as_ref().map(Name::to_string),
            quantity: selector.quantity.as_ref().map(|quantity| quantity.as_str().into()),
            limit,
            cursor: after.map(|cursor| cursor.0),
            ..Self::new(LATEST)
        }
    }

    pub(super) fn watermark(origin: &HostId) -> Self {
        Self { origin: Some(origin.to_string()), ..Self::new(WATERMARK) }
    }

    pub(super) fn bucket() -> Self {
        Self::new(BUCKET)
    }

    pub(super) fn next_seq(origin: &HostId) -> Self {
        Self { origin: Some(origin.to_string()), ..Self::new(NEXT_SEQ) }
    }

    pub(super) fn origin(&self) -> Result<HostId, EngineError> {
        name("origin", self.origin.as_deref())?
            .ok_or_else(|| EngineError::Invalid("the request has no origin".into()))
    }

    pub(super) fn selector(&self) -> Result<Selector, EngineError> {
        let quantity = match &self.quantity {
            Some(text) => Some(
                Quantity::new(text).map_err(|error| EngineError::Invalid(format!("quantity: {error}")))?,
            ),
            None => None,
        };
        Ok(Selector {
            source: name("source", self.source.as_deref())?,
            target: name("target", self.target.as_deref())?,
            quantity,
        })
    }

    pub(super) fn series(&self) -> Result<SeriesId, EngineError> {
        match self.selector()? {
            Selector { source: Some(source), target: Some(target), quantity: Some(quantity) } => {
                Ok(SeriesId { source, target, quantity })
            }
            _ => Err(EngineError::Invalid("a series has a source, a target and a quantity".into())),
        }
    }

    pub(super) fn range(&self, limit: usize, after: Option<Cursor>) -> Range {
        let from_unix_ns = self.from_unix_ns.unwrap_or(i64::MIN);
        Range { from_unix_ns, until_unix_ns: self.until_unix_ns.unwrap_or(i64::MAX), limit, after }
    }
}

/// Response of an archive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ArchiveResponseJson<'a> {
    /// Number of the archive; see [`archive_number`].
    pub(super) archive: u16,
    /// Whether the archive reads a stream different from the one in the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) other_stream: bool,
    /// Creation time of the stream that the archive reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<String>,
    /// When the bucket of registrations was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bucket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) items: Option<Vec<RecordJson<'a>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorJson>,
    /// Whether nothing was written because the key does not have the expected sequence number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) conflict: bool,
    /// Whether nothing was written because the servers deny the archive such writes. Servers with
    /// an older configuration do so, and permit the station to write by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) direct: bool,
    /// Nonce for the next writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nonce: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ErrorJson {
    kind: String,
    text: String,
    /// Of a rate limit: time until the limit permits the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
}

impl ArchiveResponseJson<'_> {
    /// Refuses a write with an old nonce, or without a nonce.
    pub(super) fn stale(self) -> Self {
        let text =
            "the request has no valid nonce of this archive; repeat it with the nonce in this response";
        Self { error: Some(ErrorJson { kind: STALE.into(), text: text.into(), wait_ms: None }), ..self }
    }

    pub(super) fn is_stale(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.kind == STALE)
    }

    pub(super) fn with_error(self, error: EngineError) -> Self {
        let mut wait_ms = None;
        let (kind, text) = match error {
            EngineError::Throttled { reason, wait } => {
                wait_ms = Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1));
                ("throttled", reason)
            }
            EngineError::Unknown(text) => ("unknown", text),
            EngineError::Denied(text) => ("denied", text),
            EngineError::Unavailable(text) => ("unavailable", text),
            EngineError::Corrupt(text) => ("corrupt", text),
            EngineError::TooOld(text) => ("too_old", text),
            EngineError::Invalid(text) => ("invalid", text),
            error @ (EngineError::TooNew { .. } | EngineError::Lagged { .. }) => {
                ("unavailable", error.to_string())
            }
        };
        Self { error: Some(ErrorJson { kind: kind.into(), text, wait_ms }), ..self }
    }

    /// Returns the result of the response, or the error in the response. The result is the number
    /// in the response, if there is a number, and a page, which may be empty.
    pub(super) fn read(self) -> Result<(Option<u64>, Page<Record>), EngineError> {
        if let Some(ErrorJson { kind, text, wait_ms }) = self.error {
            return Err(match kind.as_str() {
                "throttled" => {
                    let wait = Duration::from_millis(wait_ms.unwrap_or(THROTTLED_MS));
                    EngineError::Throttled { reason: text, wait }
                }
                "unknown" => EngineError::Unknown(text),
                "denied" => EngineError::Denied(text),
                "corrupt" => EngineError::Corrupt(text).of_another_archive(),
                "too_old" => EngineError::TooOld(text),
                "invalid" => EngineError::Invalid(text),
                _ => EngineError::Unavailable(text),
            });
        }
        let items = self.items.unwrap_or_default();
        if items.len() > Range::LIMIT_MAX {
            return Err(EngineError::Unavailable(format!(
                "an archive sent {} records in one response",
                items.len()
            )));
        }
        let items = items.into_iter().map(Record::try_from).collect::<Result<_, _>>()?;
        Ok((self.number, Page { items, next: self.next.map(Cursor) }))
    }
}

/// Checks the number of records that are requested for a page.
pub(super) fn check_limit(limit: usize) -> Result<(), EngineError> {
    if (1..=Range::LIMIT_MAX).contains(&limit) {
        return Ok(());
    }
    Err(EngineError::Invalid(format!("a page has 1 to {} records, not {limit}", Range::LIMIT_MAX)))
}

/// Returns a number from 1 to 4095 for an archive's name. Cursors contain this number, because a
/// position is valid only in the archive that returned the position. If two archives of a mesh have
/// the same number, each of the two may accept a cursor of the other, and refuses writes with a
/// nonce of the other. So the numbers must differ (docs/nats-operations.md, "Two archives").
pub(super) fn archive_number(host: &HostId) -> u16 {
    // FNV-1a (Fowler, Noll, Vo) is the same in every version of every station.
    let hash = host.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    u16::try_from(hash % 4095 + 1).expect("at most 4095")
}

/// Converts an archive's position to a cursor of the mesh. The cursor is exact as a JSON number,
/// because positions are below 2⁴⁰.
pub(super) fn cursor(archive: u16, position: Cursor) -> u64 {
    u64::from(archive) << POSITION_BITS | position.0
}

/// Returns the number of the archive, and the position, that a cursor of the mesh contains.
pub(super) fn parts(cursor: u64) -> (u16, Cursor) {
    (u16::try_from(cursor >> POSITION_BITS).unwrap_or(u16::MAX), Cursor(cursor & ((1 << POSITION_BITS) - 1)))
}

/// Subject of a request of `requester` to this archive, or to any archive. The servers' permissions
/// let a station use only its own token.
pub(super) fn subject(requester: &str, kind: &str, archive: Option<u16>) -> String {
    let archive = archive.map(|number| format!("-{number}")).unwrap_or_default();
    format!("{REQUESTS}.{requester}.{kind}{archive}")
}

pub(super) fn headers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static(REQUEST_HEADER), HeaderValue::from("1"))])
}

/// Returns whether a message on the subject of a request was published by a station; false if it
/// may be a response of a server.
///
/// A JetStream request may name another station's request subject as its reply subject. The server
/// then publishes its response there. If the request reads an entry, the response is text that the
/// requester wrote, with `Nats-Subject` or without any headers. If the servers have older
/// permissions (`is_outdated`), stations of older versions send requests without headers.
pub(super) fn is_request(headers: Option<&HeaderMap>, is_outdated: bool) -> bool {
    let has = |name| headers.is_some_and(|headers| headers.get(name).is_some());
    (is_outdated || has(REQUEST_HEADER)) && !has(stream_read::SUBJECT)
}

/// Prefix of the subjects of responses to `requester`. The subject of a response has two tokens
/// that the requester chose; `chosen` is the first of these tokens, or both.
pub(super) fn response_prefix(requester: &str, chosen: &str) -> String {
    format!("{RESPONSES}.{requester}.{chosen}")
}

/// Returns the subject of a response to `requester`; `None` if the end of the subject, which the
/// requester chose, is invalid. The permissions of the servers enforce the token `requester`. The
/// end must be two tokens of letters and digits, because servers execute what an archive publishes.
pub(super) fn response_subject(requester: &str, chosen: &str) -> Option<String> {
    let is_token = |token: &str| {
        (1..=CHOSEN_BYTES_MAX).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let (session, number) = chosen.split_once('.')?;
    let is_safe = is_token(session) && is_token(number) && subject::name(requester).is_some();
    is_safe.then(|| response_prefix(requester, chosen))
}

/// Subjects of the requests to this archive, or to any archive. The subject of a request of an
/// older station does not name the requester.
pub(super) fn subjects(archive: Option<u16>) -> Vec<String> {
    let older = archive.map(|number| format!(".{number}")).unwrap_or_default();
    let older = format!("{REQUESTS}.*{older}");
    KINDS.iter().map(|kind| subject("*", kind, archive)).chain([older]).collect()
}

/// Returns two parts of a request's subject: the token of the requester, empty if the subject has
/// no such token, and the kind of the request.
pub(super) fn of_subject(subject: &str) -> (&str, &str) {
    let mut tokens = subject.strip_prefix(REQUESTS).unwrap_or_default().split('.').skip(1);
    let first = tokens.next().unwrap_or_default();
    match tokens.next() {
        Some(second) if !second.starts_with(|first: char| first.is_ascii_digit()) => {
            (first, second.split('-').next().unwrap_or_default())
        }
        _ => ("", first),
    }
}

fn name(what: &str, text: Option<&str>) -> Result<Option<Name>, EngineError> {
    text.map(Name::new).transpose().map_err(|error| EngineError::Invalid(format!("{what}: {error}")))
}

/// Kind of the error of a write with an old nonce, or without a nonce.
const STALE: &str = "stale";

/// Header that marks a request.
const REQUEST_HEADER: &str = "Barograph-Question";

/// Kinds of requests, as they are in the subject.
pub(super) const HISTORY: &str = "history";
pub(super) const LATEST: &str = "latest";
pub(super) const WATERMARK: &str = "watermark";
pub(super) const NEXT_SEQ: &str = "next_seq";
pub(super) const BUCKET: &str = "bucket";
pub(super) const APPEND: &str = "append";
pub(super) const REGISTER: &str = "register";
const KINDS: [&str; 7] = [HISTORY, LATEST, WATERMARK, NEXT_SEQ, BUCKET, APPEND, REGISTER];

/// Returns whether a request of this kind writes.
pub(super) fn is_write(kind: &str) -> bool {
    matches!(kind, APPEND | REGISTER)
}

/// Largest size of a request to write with its headers, in bytes. The servers refuse longer
/// messages of a station (`payload` in `deploy/nats`).
pub(super) const WRITE_BYTES_MAX: usize = 20 << 10;

/// Wait after a rate limit without a time, in milliseconds.
const THROTTLED_MS: u64 = 1000;

/// Largest number of bytes of a token that a requester chooses. The random part of an inbox has 22
/// bytes.
const CHOSEN_BYTES_MAX: usize = 32;

/// Number of bits of a position; they are enough for 10¹² records in an archive.
const POSITION_BITS: u32 = 40;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_subject_names_its_requester_and_matches_its_archive() {
        for kind in KINDS {
            assert_eq!(of_subject(&subject("north", kind, None)), ("north", kind));
            assert_eq!(of_subject(&subject("no-rth", kind, Some(17))), ("no-rth", kind));
            assert!(subjects(Some(17)).contains(&subject("*", kind, Some(17))));
            assert!(subjects(None).contains(&subject("*", kind, None)));
        }
        assert_eq!(of_subject("barograph.a.latest"), ("", "latest"), "of an older station");
        assert_eq!(of_subject("barograph.a.latest.17"), ("", "latest"));
        let is_sent = |names: &[&'static str], is_outdated| {
            let named = names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from("1")));
            is_request(Some(&HeaderMap::from_iter(named)), is_outdated)
        };
        assert!(is_sent(&[REQUEST_HEADER], false) && is_sent(&[], true) && is_request(None, true));
        assert!(
            !is_sent(&[REQUEST_HEADER, stream_read::SUBJECT], false)
                && !is_sent(&[], false)
                && !is_request(None, false)
        );
        assert!(!is_sent(&[stream_read::SUBJECT], true));
        assert!(subjects(None).contains(&"barograph.a.*".to_owned()));
        assert!(subjects(Some(17)).contains(&"barograph.a.*.17".to_owned()));
    }

    #[test]
    fn response_subjects_are_only_below_the_token_of_the_requester() {
        assert_eq!(response_subject("no=2Erth", "aZ09.17"), Some("barograph.b.no=2Erth.aZ09.17".into()));
        let long = format!("{}.1", "x".repeat(33));
        for chosen in
            ["", "a", "a.", ".a", "a.b.c", "a.*", ">.a", "a.>", "a.b c", "a.b\r\n", "a.ä", "$JS.API", &long]
        {
            assert_eq!(response_subject("north", chosen), None, "{chosen}");
        }
        for requester in ["", "*", ">", "a.b", "no?rth"] {
            assert_eq!(response_subject(requester, "a.1"), None, "{requester}");
        }
    }

    #[test]
    fn the_errors_of_a_write_keep_their_meaning() {
        let wait = Duration::from_millis(20);
        let errors = [
            EngineError::Unknown("x".into()),
            EngineError::Denied("x".into()),
            EngineError::Unavailable("x".into()),
            EngineError::Invalid("x".into()),
            EngineError::Throttled { reason: "x".into(), wait },
        ];
        for error in errors {
            let answer = ArchiveResponseJson::default().with_error(error.clone());
            let sent = serde_json::to_vec(&answer).unwrap();
            let read = serde_json::from_slice::<ArchiveResponseJson<'_>>(&sent).unwrap().read().unwrap_err();
            match read {
                EngineError::Throttled { wait: longer, .. } => assert!(wait <= longer && longer < 2 * wait),
                read => assert_eq!(read, error),
            }
        }
    }

    #[test]
    fn a_request_to_write_keeps_its_body() {
        for body in ["", "{}\n{}\n", "\n"] {
            let request = ArchiveRequest::append(Bytes::from_static(body.as_bytes()));
            assert_eq!(ArchiveRequest::read_write(&request.payload()).unwrap().body, body.as_bytes());
        }
    }

    #[test]
    fn a_request_to_write_may_lack_the_fields_of_questions() {
        let sent = Bytes::from_static(b"{\"answer\":\"s.1\"}\n{}");
        let request = ArchiveRequest::read_write(&sent).unwrap();
        assert_eq!((request.after_place, &request.body[..]), (0, &b"{}"[..]));
    }

    #[test]
    fn corruption_in_another_archive_is_reported_as_unavailable() {
        let answer = ArchiveResponseJson { archive: 1, ..ArchiveResponseJson::default() }
            .with_error(EngineError::Corrupt("page 7".into()));
        let Err(EngineError::Unavailable(why)) = answer.read() else { panic!("not unavailable") };
        assert!(why.contains("another archive") && why.contains("page 7"), "{why}");
    }
}
