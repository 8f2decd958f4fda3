//! Names as tokens of subjects, and the subjects that contain them.

use barograph_forecast::{Name, SeriesId};

use crate::HostId;

/// A name as one token of a subject: letters, digits, `_` and `-` as they are, every other byte as
/// `=XX`.
///
/// Permissions contain tokens instead of names, because a name may contain a wildcard or a dot.
///
/// ```
/// # use barograph_engine::token;
/// assert_eq!(token("north.example.net"), "north=2Eexample=2Enet");
/// ```
#[must_use]
pub fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            token.push(char::from(byte));
        } else {
            token.push_str(&format!("={byte:02X}"));
        }
    }
    token
}

/// Returns the name that `token` encodes; `None` if `token` is not the token of a name.
pub(super) fn name(token: &str) -> Option<HostId> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'=' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    let name = Name::new(std::str::from_utf8(&bytes).ok()?).ok()?;
    // Accept only the canonical token of a name. Otherwise a name would have several tokens, and a
    // permission for one of the tokens would not cover the other tokens.
    (self::token(name.as_str()) == token).then_some(name)
}

/// Subject to which the records of a series are published. The source has no token of its own: a
/// station writes its own measurements, so the source is the origin.
pub(super) fn record(series: &SeriesId, origin: &HostId) -> String {
    let [origin, target] = [origin, &series.target].map(|name| token(name.as_str()));
    format!("{RECORDS}.{origin}.{target}.{}", token(series.quantity.as_str()))
}

/// Subject under which an archive stores the records of a station. Each station has one subject, so
/// that no station can fill the servers' index of subjects. The servers search this index if a
/// message has certain headers. Older configurations map what a station publishes ([`record`]) to
/// this subject.
pub(super) fn kept(origin: &HostId) -> String {
    format!("{KEPT}.{}", token(origin.as_str()))
}

/// Prefix of the subjects of records.
pub(super) const RECORDS: &str = "barograph.m";

/// Prefix of the subjects of records that an archive stores for stations.
pub(super) const KEPT: &str = "barograph.r";

/// Prefix of the keys of registrations, as in any bucket of that name.
pub(super) const ENTRIES: &str = "$KV.barograph_dir";

/// Prefix with which an older configuration permitted stations to read the extent of a stream from
/// an account without JetStream.
pub(super) const EXTENTS: &str = "barograph.i";

/// Prefix of requests to archives.
pub(super) const REQUESTS: &str = "barograph.a";

/// Prefix of responses of archives.
pub(super) const RESPONSES: &str = "barograph.b";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_canonical_encoding_of_a_name_is_a_token() {
        assert_eq!(token("a.b*c>d=e"), "a=2Eb=2Ac=3Ed=3De");
        for not_a_token in ["=2e", "a.b", "=61", "=", "=4", "=ZZ", "=FF", "", "=+1"] {
            assert_eq!(name(not_a_token), None, "{not_a_token}");
        }
    }

    proptest! {
        #[test]
        fn every_name_survives_encoding_as_a_token(text in "\\PC{1,60}") {
            if let Ok(known) = Name::new(&text) {
                let token = token(&text);
                prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-=".contains(&byte)));
                prop_assert_eq!(name(&token), Some(known));
            }
        }

        #[test]
        fn decoding_a_token_does_not_panic(text in "[=0-9A-Fa-fé.]{0,12}") {
            let _ = name(&text);
        }
    }
}
