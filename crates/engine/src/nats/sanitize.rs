//! Makes the bytes of a NATS server parsable for the client library: bytes in, bytes out, without
//! socket and clock.
//!
//! async-nats (0.51) ends its connection when it cannot parse a message; one kind of header even
//! ends the library's task. A server delivers any bytes that a member wrote. This module replaces
//! an unreadable header block by a readable one: a header that reports the replacement, and the
//! headers that the server added. A block with a lifetime that the server may not read counts as
//! unreadable, too.

use async_nats::{HeaderName, StatusCode};

use super::archive_request::{self, WRITE_BYTES_MAX};
use super::directory::TTL;
use super::subject::REQUESTS;

/// Filter for the bytes from the server to the client, with its state between two reads.
#[derive(Debug, Default)]
pub(super) struct Sanitizer {
    /// The incomplete protocol line or header block.
    held: Vec<u8>,
    expects: Expects,
    /// Addresses of other servers that the server reported. They are removed from the INFO that the
    /// client reads.
    pub(super) discovered: Vec<String>,
}

#[derive(Debug, Default)]
enum Expects {
    #[default]
    Line,
    /// A header block of `block` bytes, and `after` bytes after the header block.
    Block { arguments: String, block: usize, after: usize },
    /// Number of following bytes that are copied unchanged.
    Payload(usize),
    /// Number of following bytes that are dropped.
    Dropped(usize),
}

/// Error that ends a connection: the bytes are not the NATS protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) &'static str);

impl Sanitizer {
    /// Processes bytes of the server, and appends the bytes for the client to `out`.
    ///
    /// # Errors
    /// [`ProtocolError`] for bytes that no server sends. The connection cannot continue.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        loop {
            match &mut self.expects {
                Expects::Payload(left) => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*left));
                    out.extend_from_slice(now);
                    *left -= now.len();
                    bytes = rest;
                    if *left > 0 {
                        return Ok(());
                    }
                    self.expects = Expects::Line;
                }
                Expects::Dropped(left) => {
                    let now = bytes.len().min(*left);
                    *left -= now;
                    bytes = &bytes[now..];
                    if *left > 0 {
                        return Ok(());
                    }
                    self.expects = Expects::Line;
                }
                Expects::Block { arguments, block, after } => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*block - self.held.len()));
                    self.held.extend_from_slice(now);
                    bytes = rest;
                    if self.held.len() < *block {
                        return Ok(());
                    }
                    if !is_readable(&self.held) {
                        self.held = readable(&self.held);
                    }
                    let (header, total) = (self.held.len(), self.held.len() + *after - END.len());
                    out.extend_from_slice(format!("HMSG {arguments} {header} {total}\r\n").as_bytes());
                    out.append(&mut self.held);
                    self.expects = Expects::Payload(*after);
                }
                Expects::Line => {
                    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                        self.held.extend_from_slice(bytes);
                        return if self.held.len() > LINE_BYTES_MAX { Err(TOO_LONG) } else { Ok(()) };
                    };
                    self.held.extend_from_slice(&bytes[..=end]);
                    bytes = &bytes[end + 1..];
                    if self.held.len() > LINE_BYTES_MAX {
                        return Err(TOO_LONG);
                    }
                    if self.held.ends_with(END) {
                        let line = std::mem::take(&mut self.held);
                        self.line(&line[..line.len() - END.len()], out)?;
                    }
                }
            }
        }
    }

    /// Processes a complete line, given without its line end.
    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        if let Some(arguments) = line.strip_prefix(b"HMSG ") {
            let arguments = printable(arguments);
            let parts: Vec<&str> = arguments.split(' ').filter(|part| !part.is_empty()).collect();
            let [named @ .., block, total] = &parts[..] else { return Err(ARGUMENTS) };
            let (block, total) = (size(block)?, size(total)?);
            if !matches!(named.len(), 2 | 3) || total < block {
                return Err(ARGUMENTS);
            }
            if is_long_question(&arguments, total) {
                self.expects = Expects::Dropped(total + END.len());
                return Ok(());
            }
            self.expects =
                Expects::Block { arguments: named.join(" "), block, after: total - block + END.len() };
            return Ok(());
        }
        if let Some(arguments) = line.strip_prefix(b"MSG ") {
            let line = printable(arguments);
            let mut parts = line.split(' ').filter(|part| !part.is_empty());
            let (count, last) = (parts.clone().count(), parts.next_back().unwrap_or_default());
            if !matches!(count, 3 | 4) {
                return Err(ARGUMENTS);
            }
            let size = size(last)?;
            if is_long_question(&line, size) {
                self.expects = Expects::Dropped(size + END.len());
                return Ok(());
            }
            self.expects = Expects::Payload(size + END.len());
            out.extend_from_slice(format!("MSG {line}").as_bytes());
        } else if let Some(info) = line.strip_prefix(b"INFO ") {
            out.extend_from_slice(b"INFO ");
            out.extend_from_slice(&self.local_info(info)?);
        } else if let Some(text) = line.strip_prefix(b"-ERR") {
            out.extend_from_slice(format!("-ERR {}", printable(text).trim_start()).as_bytes());
        } else if [&b"+OK"[..], b"PING", b"PONG"].iter().any(|known| line.starts_with(known)) {
            out.extend_from_slice(line);
        } else {
            return Err(ProtocolError("an operation that no NATS server has"));
        }
        out.extend_from_slice(END);
        Ok(())
    }

    /// Returns the server's INFO, changed for a client that reaches servers only through this
    /// process.
    fn local_info(&mut self, info: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let failed = ProtocolError("an INFO that cannot be read");
        let mut info: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(info).map_err(|_| failed)?;
        info.remove("ws_connect_urls");
        if let Some(serde_json::Value::Array(urls)) = info.remove("connect_urls") {
            self.discovered.extend(urls.iter().filter_map(|url| url.as_str().map(str::to_owned)));
        }
        for tls in ["tls_required", "tls_available", "tls_verify"] {
            info.remove(tls);
        }
        serde_json::to_vec(&info).map_err(|_| failed)
    }
}

/// Replaces every byte that is not a printable ASCII character with `?`. Any member can choose a
/// subject, and subjects of stations have only printable characters.
fn printable(text: &[u8]) -> String {
    let printable = |byte: u8| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' };
    text.iter().map(|byte| printable(*byte)).collect()
}

/// Returns whether a message is an archive request longer than any that a station sends. Such a
/// message would take memory until the archive responds.
fn is_long_question(arguments: &str, bytes: usize) -> bool {
    let subject = arguments.trim_start().split(' ').next().unwrap_or_default();
    let is_request = subject.strip_prefix(REQUESTS).is_some_and(|rest| rest.starts_with('.'));
    let is_write = archive_request::is_write(archive_request::of_subject(subject).1);
    is_request && bytes > if is_write { WRITE_BYTES_MAX } else { QUESTION_BYTES_MAX }
}

fn size(text: &str) -> Result<usize, ProtocolError> {
    text.parse().ok().filter(|size| *size <= MESSAGE_BYTES_MAX).ok_or(ARGUMENTS)
}

/// Returns whether the client library can parse this header block, by the rules of its
/// `Connection::try_read_op`, and reads the same lifetime of the message as the server.
fn is_readable(block: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(block) else { return false };
    // The server ends a line only at CR LF, the client library also at LF.
    let mut lines = text.split("\r\n");
    let Some(version) = lines.next().and_then(|line| line.strip_prefix("NATS/1.0")) else { return false };
    let status = version.trim();
    let status = status.split_once(' ').map_or(status, |(status, _)| status.trim());
    let is_version =
        !version.contains(['\r', '\n']) && (status.is_empty() || status.parse::<StatusCode>().is_ok());
    // The client library appends a line that begins with a space to the value before it. The server
    // does not, so such a line has no name here. The client library removes Unicode's white space
    // around a value, and the server does not.
    let is_header = |line: &str| {
        let header = line.split_once(':').filter(|(name, _)| name.parse::<HeaderName>().is_ok());
        !line.contains(['\r', '\n']) && header.is_some_and(|(_, value)| value.trim() == value.trim_ascii())
    };
    is_version && lines.all(|line| line.is_empty() || is_header(line)) && !hides_lifetime(text)
}

/// Whether the server may not find the header with the lifetime of the message. The server searches
/// for the name also in values and in other names. After an occurrence there, it may miss the
/// header (`getHeaderKeyIndex` of nats-server 2.12). Then the server keeps the message longer than
/// its readers expect.
fn hides_lifetime(text: &str) -> bool {
    let header = text.find(&format!("\r\n{TTL}:")).map(|at| at + END.len());
    header.is_some() && header != text.find(TTL)
}

/// Returns a replacement for an unreadable header block: a header that reports the replacement, and
/// the headers that the server appended.
fn readable(block: &[u8]) -> Vec<u8> {
    let mut made = format!("NATS/1.0\r\n{UNREADABLE}: 1\r\n");
    for name in OF_THE_SERVER {
        let value = |line: &[u8]| {
            Some(printable(line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?.trim_ascii()))
        };
        // Use the last line with this name: earlier lines are from the sender, not from the server.
        if let Some(value) = block.rsplit(|byte| *byte == b'\n').find_map(value) {
            made.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    made.push_str("\r\n");
    made.into_bytes()
}

/// Header that replaces the unreadable headers of a message.
pub(super) const UNREADABLE: &str = "Barograph-Unreadable";

/// Headers that the server appends to a message that it reads from a stream. A reader needs these
/// headers to continue after the message.
const OF_THE_SERVER: [&str; 5] =
    ["Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"];

const END: &[u8] = b"\r\n";
const ARGUMENTS: ProtocolError = ProtocolError("a message with wrong arguments");
const TOO_LONG: ProtocolError = ProtocolError("a line longer than any server's");

/// Longest line: an INFO with the servers of a large cluster.
pub(super) const LINE_BYTES_MAX: usize = 1 << 18;

/// Largest size of a question to an archive with its headers, in bytes. A question with three names
/// of 255 bytes, each byte escaped as two, is smaller.
const QUESTION_BYTES_MAX: usize = 4 << 10;

/// Largest size of a message, in bytes. A message of 64 MiB, the largest `max_payload` of a server,
/// is smaller, together with the headers that the server adds.
const MESSAGE_BYTES_MAX: usize = 80 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Returns the output of a [`Sanitizer`] that reads `bytes` in pieces of these sizes.
    fn through(bytes: &[u8], sizes: &[usize]) -> Result<Vec<u8>, ProtocolError> {
        let (mut sanitizer, mut out, mut rest) = (Sanitizer::default(), Vec::new(), bytes);
        for size in sizes.iter().chain([&bytes.len()]) {
            let (now, after) = rest.split_at(rest.len().min(*size));
            sanitizer.push(now, &mut out)?;
            rest = after;
        }
        Ok(out)
    }

    fn message(subject: &[u8], block: &[u8], payload: &[u8]) -> Vec<u8> {
        let sizes = format!(" 7 {} {}\r\n", block.len(), block.len() + payload.len());
        [b"HMSG ", subject, sizes.as_bytes(), block, payload, END].concat()
    }

    /// Pieces of header blocks. Few combinations of pieces are a valid block.
    fn block() -> impl Strategy<Value = Vec<u8>> {
        let pieces: Vec<&[u8]> = vec![
            b"NATS/1.0",
            b" 503",
            b" 99999",
            b"\r\n",
            b"\r",
            b"\n",
            b"a: b",
            b"c:",
            b" ",
            b"\xc3\xa4",
            b"\xff",
            b"\0",
            b":",
            b"Nats-Sequence: 1",
            b"Nats-TTL",
            b"-",
            b"\r\nNats-TTL: 6s\r\n",
            // Each of these two hides the header after it from the server.
            b"\r\na: Nats-TTLNats-TTL",
            b"\r\nNats-TTL-Nats-TTL: x",
            b"no colon",
            "\u{2003}".as_bytes(),
        ];
        prop::collection::vec(prop::sample::select(pieces), 0..12).prop_map(|pieces| pieces.concat())
    }

    /// Value of the header `Nats-TTL` for nats-server 2.12.15 (`getHeaderKeyIndex`, `getHeader`).
    fn server_lifetime(block: &[u8]) -> Option<&[u8]> {
        let find =
            |from: usize, what: &[u8]| block[from..].windows(what.len()).position(|window| window == what);
        let name = TTL.as_bytes();
        let mut offset = 0;
        loop {
            let index = find(offset, name).filter(|index| *index >= 2)? + offset;
            let after = index + name.len();
            if block[index - 2..index] != *END || block.get(after) != Some(&b':') {
                offset = after;
                continue;
            }
            let from = after + 1 + block[after + 1..].iter().take_while(|byte| **byte == b' ').count();
            return Some(&block[from..from + find(from, END)?]);
        }
    }

    /// Value of the header `Nats-TTL` for the client library.
    fn client_lifetime(block: &[u8]) -> Option<&[u8]> {
        let text = std::str::from_utf8(block).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(TTL)?.strip_prefix(':'));
        value.map(|value| value.trim().as_bytes())
    }

    proptest! {
        #[test]
        fn server_and_client_read_the_same_lifetime_in_a_readable_block(block in block()) {
            let block = [b"NATS/1.0\r\n", &block[..], b"\r\n\r\n"].concat();
            if is_readable(&block) {
                let of_server = server_lifetime(&block).map(|value| value.trim_ascii_end());
                prop_assert_eq!(of_server, client_lifetime(&block), "{}", String::from_utf8_lossy(&block));
            }
        }

        #[test]
        fn relay_output_does_not_depend_on_how_the_bytes_are_split(
            blocks in prop::collection::vec(block(), 1..4),
            junk in prop::collection::vec(any::<u8>(), 0..20),
            sizes in prop::collection::vec(1_usize..9, 0..60),
        ) {
            let mut bytes: Vec<u8> = blocks.iter().flat_map(|block| message(b"s", block, b"\r\nx")).collect();
            bytes.extend(junk);
            prop_assert_eq!(through(&bytes, &sizes), through(&bytes, &[]));
        }

        #[test]
        fn every_header_block_becomes_readable_and_keeps_its_stream_position(block in block()) {
            let made = if is_readable(&block) { block.clone() } else { readable(&block) };
            prop_assert!(is_readable(&made), "{}", String::from_utf8_lossy(&made));
            // The server appends to a block without its last two bytes.
            let kept = &block[..block.len().saturating_sub(2)];
            let stored = [kept, b"Nats-Stream: S\r\nNats-Subject: \xff.x\r\nNats-Sequence: 77\r\n\r\n"].concat();
            let expected = format!("NATS/1.0\r\n{UNREADABLE}: 1\r\nNats-Subject: ?.x\r\nNats-Sequence: 77\r\n\r\n");
            prop_assert_eq!(readable(&stored), expected.into_bytes());
        }

        #[test]
        fn messages_with_valid_headers_pass_unchanged(
            headers in prop::collection::vec(("[!-9;-~]{1,9}", "[!-~]([ -~]{0,9}[!-~])?"), 0..4),
            subject in "[!-~]{1,9}",
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let block = format!("NATS/1.0\r\n{lines}\r\n");
            let mut bytes = message(subject.as_bytes(), block.as_bytes(), &payload);
            bytes.extend(format!("MSG {subject} 8 r.x {}\r\n", payload.len()).bytes());
            bytes.extend([&payload[..], b"\r\nPING\r\n+OK\r\n-ERR 'x'\r\n"].concat());
            prop_assert_eq!(through(&bytes, &[]).unwrap(), bytes);
        }
    }

    #[cfg(feature = "testkit")]
    #[test]
    fn the_relay_corpus_passes_the_fuzz_checks() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/relay");
        for file in std::fs::read_dir(corpus).unwrap() {
            crate::fuzz_relay(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn a_lifetime_that_the_server_does_not_read_is_unreadable() {
        assert!(is_readable(b"NATS/1.0\r\na: b\r\nNats-TTL: 300s\r\n\r\n"));
        for lines in [
            "a: b\nNats-TTL: 300s",
            "\n",
            "a: b\r",
            "Nats-TTL:\r\n 300s",
            "a: Nats-TTLNats-TTL\r\nNats-TTL: 300s",
            "Nats-TTL-Nats-TTL: x\r\nNats-TTL: 300s",
        ] {
            assert!(!is_readable(format!("NATS/1.0\r\n{lines}\r\n\r\n").as_bytes()), "{lines:?}");
        }
    }

    #[test]
    fn server_info_loses_its_tls_flag_and_server_addresses() {
        let mut sanitizer = Sanitizer::default();
        let mut out = Vec::new();
        let info = b"INFO {\"nonce\":\"n\",\"tls_required\":true,\"connect_urls\":[\"b:4222\"]}\r\n";
        sanitizer.push(info, &mut out).unwrap();
        assert_eq!(out, b"INFO {\"nonce\":\"n\"}\r\n");
        assert_eq!(sanitizer.discovered, ["b:4222"]);
    }

    #[test]
    fn a_request_that_is_too_long_is_dropped() {
        let question = |bytes: usize| {
            let text = "q".repeat(bytes);
            [
                format!("MSG barograph.a.watermark 3 _R_.x {bytes}\r\n{text}\r\n"),
                format!("MSG barograph.a.north.latest 3 {bytes}\r\n{text}\r\n"),
                format!("HMSG barograph.a.latest.7 3 _R_.x 12 {}\r\nNATS/1.0\r\n\r\n{text}\r\n", 12 + bytes),
            ]
        };
        let message =
            |subject: &str, bytes: usize| format!("MSG {subject} 4 {bytes}\r\n{}\r\n", "r".repeat(bytes));
        let longest = message("barograph.a.north.append", WRITE_BYTES_MAX);
        let too_long = message("barograph.a.north.register", WRITE_BYTES_MAX + 1);
        assert_eq!(through(format!("{too_long}{longest}").as_bytes(), &[]), Ok(longest.into_bytes()));
        let record = message("barograph.m.x.y.rtt", 9000);
        for (question, kept) in question(5000).into_iter().zip(question(4000)) {
            let bytes = [&question, &kept, &record, &question, "PING\r\n"].concat();
            let expected = [&kept, &record, "PING\r\n"].concat();
            assert_eq!(through(bytes.as_bytes(), &[]), Ok(expected.clone().into_bytes()));
            assert_eq!(through(bytes.as_bytes(), &[7; 4000]), Ok(expected.into_bytes()));
        }
    }

    #[test]
    fn invalid_protocol_lines_are_refused() {
        for bytes in
            ["GET / HTTP/1.1\r\n", "MSG a 1\r\n", "HMSG a 1 5 4\r\n", "MSG a 1 99999999999\r\n", "INFO x\r\n"]
        {
            assert!(through(bytes.as_bytes(), &[]).is_err(), "{bytes}");
        }
        assert_eq!(through(&vec![b'x'; LINE_BYTES_MAX + 1], &[]), Err(TOO_LONG));
    }
}
