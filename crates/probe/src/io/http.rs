//! The subset of HTTP/1.1 that an Upgrade and one GET need: request heads, response heads, bodies
//! up to their end.

use std::io::{self, Read};

use crate::signed::Challenge;

/// Head of a response: the status and the headers used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    /// Length of the body; `None` if the body ends with the connection.
    pub(super) content_length: Option<u64>,
    /// The protocols in the `Upgrade` header.
    pub(super) upgrade: Option<String>,
    /// The single-use token from an `https` station.
    pub(super) probe_token: Option<String>,
    /// The challenge of a station that requires a signature.
    pub(super) challenge: Option<Challenge>,
}

impl ResponseHead {
    /// Whether the server supports the probe protocol; true even if the server refused the request.
    pub(super) fn is_station(&self) -> bool {
        self.upgrade.as_deref().is_some_and(names_probe)
    }

    /// Whether the response has no body, regardless of its headers (RFC 9112 §6.3).
    pub(super) fn has_no_body(&self) -> bool {
        matches!(self.status, 204 | 304)
    }
}

/// Head of a request that may be an Upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub(super) path: String,
    pub(super) upgrade: Option<String>,
}

/// Whether an `Upgrade` header contains the probe protocol in this version.
pub(super) fn names_probe(upgrade: &str) -> bool {
    upgrade.split(',').any(|protocol| protocol.trim().eq_ignore_ascii_case(crate::wire::UPGRADE))
}

/// Reads from `stream` until `parse` finds a complete head. Returns the head and the bytes read
/// after it.
///
/// Calls `first_byte` when the first bytes arrive.
pub(super) fn read_head<H>(
    stream: &mut impl Read,
    parse: impl Fn(&[u8]) -> Result<Option<(H, usize)>, String>,
    mut first_byte: impl FnMut(),
) -> io::Result<(H, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes.is_empty() {
            first_byte();
        }
        bytes.extend_from_slice(&buffer[..read]);
        if let Some((head, length)) = parse(&bytes).map_err(garbage)? {
            return Ok((head, bytes.split_off(length)));
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(garbage(format!("the head of the response is longer than {HEAD_BYTES_MAX} bytes")));
        }
    }
}

/// Parses the head of a final response; interim responses (1xx except 101, RFC 9110 §15.2) are
/// skipped.
pub(super) fn parse_response(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, String> {
    let mut skipped = 0;
    loop {
        let Some((head, length)) = parse_one_response(&bytes[skipped..])? else { return Ok(None) };
        skipped += length;
        if head.status == 101 || head.status >= 200 {
            return Ok(Some((head, skipped)));
        }
    }
}

fn parse_one_response(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let status = response.parse(bytes).map_err(|error| {
        format!("the response is not HTTP/1.1 ({error}); is the port that of an HTTP server?")
    })?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let mut head = ResponseHead { status: response.code.unwrap_or_default(), ..ResponseHead::default() };
    let mut chunked = false;
    for header in response.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            let bytes = value.parse().ok().filter(|_| value.bytes().all(|digit| digit.is_ascii_digit()));
            let bytes = bytes.ok_or_else(|| format!("the Content-Length `{value:.40}` is not a number"))?;
            // Two different lengths are an attack or a defect (RFC 9112 §6.3).
            if head.content_length.replace(bytes).is_some_and(|earlier| earlier != bytes) {
                return Err("the response has two different Content-Length headers".to_string());
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = true;
        } else if header.name.eq_ignore_ascii_case("upgrade") {
            head.upgrade = Some(value.to_string());
        } else if header.name.eq_ignore_ascii_case(crate::wire::TOKEN_HEADER) {
            head.probe_token = Some(value.to_string());
        } else if header.name.eq_ignore_ascii_case("www-authenticate") {
            head.challenge = head.challenge.or_else(|| Challenge::parse(value));
        }
    }
    if chunked {
        // The request had `Connection: close`, so the end of the connection is the end of the body.
        head.content_length = None;
    }
    Ok(Some((head, length)))
}

/// Parses the head of a request.
pub(super) fn parse_request(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let status = request.parse(bytes).map_err(|error| format!("the request is not HTTP/1.1 ({error})"))?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let path = request.path.unwrap_or_default().to_string();
    let upgrade = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("upgrade"));
    let upgrade = upgrade.map(|header| String::from_utf8_lossy(header.value).into_owned());
    Ok(Some((RequestHead { path, upgrade }, length)))
}

/// Whether `text` is allowed as a header value: visible ASCII without spaces.
pub(super) fn is_header_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn garbage(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Maximum length of a head in bytes; servers refuse request heads above 8 to 64 KiB.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of headers; servers refuse more than about a hundred.
const HEADERS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn response_heads_give_status_length_and_upgrade() {
        let whole = |text: &str| parse_response(text.as_bytes()).unwrap().unwrap();
        let (head, length) = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!((head.status, head.content_length, length), (200, Some(5), 38));
        let (head, _) = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(head.content_length, None, "the encoding wins (RFC 9112 §6.3)");
        let (head, _) = whole("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\n\r\n");
        assert_eq!(head.status, 404);
        let (head, _) = whole("HTTP/1.1 401 No\r\nUpgrade: h2c, Barograph-Probe/1\r\n\r\n");
        assert!(head.is_station());
    }

    #[test]
    fn incomplete_heads_give_none_and_invalid_heads_give_an_error() {
        assert_eq!(parse_response(b"HTTP/1.1 200 OK\r\nContent-Le"), Ok(None));
        assert_eq!(parse_response(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1."), Ok(None));
        for bad in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        ] {
            assert!(parse_response(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
