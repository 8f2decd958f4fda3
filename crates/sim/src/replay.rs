//! Reads delay series for replay from text.

use crate::{Error, spec::MAX_DELAY};
use std::{fs::File, io::Read, path::Path, time::Duration};

/// Reads delays from a file, for [`Jitter::Replay`](crate::Jitter::Replay); see
/// [`delays_from_text`].
///
/// # Errors
/// [`Error::Io`] if the file cannot be read as text; otherwise as [`delays_from_text`].
pub fn delays_from_file(path: &Path) -> Result<Vec<Duration>, Error> {
    let action = || format!("read delays from {}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|e| Error::io(action(), e))?;
    file.take(FILE_LIMIT_BYTES).read_to_string(&mut text).map_err(|e| Error::io(action(), e))?;
    delays_from_text(&text)
}

/// Reads delays in seconds, one in each line. The delay is the last comma-separated field, so a
/// single column and `time_s,value` are both valid. A header in the first line, empty lines and `#`
/// comments are skipped.
///
/// # Errors
/// [`Error::BadDelay`] names the first line that is not a delay of 0 to 60 s;
/// [`Error::BadDelayCount`] if there are no delays or more than a million.
pub fn delays_from_text(text: &str) -> Result<Vec<Duration>, Error> {
    let mut delays = Vec::new();
    let mut header_allowed = true;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let field = line.rsplit(',').next().unwrap_or(line).trim();
        let seconds = field.parse::<f64>();
        if seconds.is_err() && std::mem::take(&mut header_allowed) {
            continue;
        }
        header_allowed = false;
        let delay = seconds.ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        match delay.filter(|&delay| delay <= MAX_DELAY) {
            Some(delay) => delays.push(delay),
            None => {
                return Err(Error::BadDelay { line: index + 1, text: field.chars().take(40).collect() });
            }
        }
        if delays.len() > COUNT_LIMIT {
            break;
        }
    }
    match delays.len() {
        1..=COUNT_LIMIT => Ok(delays),
        count => Err(Error::BadDelayCount { count, limit: COUNT_LIMIT }),
    }
}

/// Maximum number of delays in a series. A million packets are a long experiment, and their delays
/// take 16 MB.
const COUNT_LIMIT: usize = 1_000_000;

/// Maximum bytes of a file: a million lines of 64 bytes.
const FILE_LIMIT_BYTES: u64 = 64_000_000;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn delays_are_read_from_text_with_columns_headers_and_comments() {
        let expected = [Duration::from_millis(10), Duration::from_millis(20)];
        for text in ["0.010\n0.020\n", "time_s,value\n1,0.01\n2,0.02", "# seconds\n\n 5, 1e-2\n6,2e-2 "] {
            assert_eq!(delays_from_text(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn invalid_delays_are_rejected_with_their_line() {
        for (text, line) in [("0.1\nx\n", 2), ("a\nb\n", 2), ("-1", 1), ("NaN", 1), ("inf", 1), ("61", 1)] {
            match delays_from_text(text) {
                Err(Error::BadDelay { line: found, .. }) => assert_eq!(found, line, "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
        assert!(matches!(delays_from_text("# none"), Err(Error::BadDelayCount { count: 0, .. })));
    }
}
