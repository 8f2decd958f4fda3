//! What the fuzzers run, as plain functions, so that `cargo test` can replay their corpora.

use crate::wire::{DataHead, Feedback, Header, Kind};

/// Decodes `data` as a datagram, and as the body of every kind; what is accepted is written again as it was.
///
/// # Panics
/// When a decoder breaks a promise.
pub fn fuzz_datagram(data: &[u8]) {
    if let Ok((header, body)) = Header::decode(data) {
        assert_eq!([&header.encode()[..], body].concat(), data, "{header:?}");
        match header.kind {
            Kind::Data => assert_data(body),
            Kind::Feedback => assert_feedback(body),
        }
    }
    assert_data(data);
    assert_feedback(data);
}

fn assert_data(body: &[u8]) {
    if let Ok((head, payload)) = DataHead::decode(body) {
        let mut again = vec![];
        head.encode(&mut again);
        assert_eq!(again.len(), head.encoded_len());
        again.extend(payload);
        assert_eq!(again, body, "{head:?}");
    }
}

fn assert_feedback(body: &[u8]) {
    if let Ok(feedback) = Feedback::decode(body) {
        assert!(feedback.runs.len() <= body.len() / 2, "memory in proportion");
        let mut again = vec![];
        assert_eq!(feedback.encode(&mut again, body.len()), Some(feedback.runs.len()));
        assert_eq!(again, body, "{feedback:?}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn replay(folder: &str, fuzz: impl Fn(&[u8])) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(folder);
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(8 <= replayed, "the corpus is there, not {replayed} files");
    }

    #[test]
    fn the_corpora_hold() {
        replay("datagram", fuzz_datagram);
    }
}
