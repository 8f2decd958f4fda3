//! Percent-encoding (RFC 3986 §2.1): every byte except unreserved characters becomes `%XX`.

/// Encodes `text` for a query or a quoted header value.
#[must_use]
pub fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Decodes `text`; `None` if the result is longer than `bytes_max` or not UTF-8, or a `%` is not
/// followed by two digits.
#[must_use]
pub fn decode(text: &str, bytes_max: usize) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len().min(bytes_max));
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
        if bytes.len() > bytes_max {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_of_queries_are_percent_encoded() {
        assert_eq!(encode("http://a/?b&c d"), "http%3A%2F%2Fa%2F%3Fb%26c%20d");
    }
}
