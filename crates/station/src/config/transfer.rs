//! The `[transfer]` table: what this station may send and receive when it is asked.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::value::Value;

/// Settings of transfers (docs/spec/api.md, "Transfers").
#[derive(Clone, Debug, PartialEq)]
pub struct TransferConfig {
    /// Directories from which files are sent; none = nothing is.
    pub send: Vec<PathBuf>,
    /// Directories into which files are received; none = nothing is.
    pub receive: Vec<PathBuf>,
    /// Bytes that one transfer may bring, at most.
    pub bytes_max: u64,
    /// Transfers at once, those that are waited for among them.
    pub transfers_max: usize,
    /// TCP and UDP ports of transfers that come; `None` = any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Whether files that are there already are replaced.
    pub replace: bool,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            send: Vec::new(),
            receive: Vec::new(),
            bytes_max: u64::MAX,
            transfers_max: 8,
            ports: None,
            replace: false,
        }
    }
}

impl TransferConfig {
    /// Sets a key of the table; `None` = there is no such key.
    pub(super) fn assign(&mut self, key: &str, value: &Value) -> Option<Result<(), String>> {
        Some(match key {
            "send" => value.words().and_then(directories).map(|v| self.send = v),
            "receive" => value.words().and_then(directories).map(|v| self.receive = v),
            "bytes_max" => value.integer(1, 1 << 62).map(|v| self.bytes_max = v),
            "transfers_max" => value.integer(1, 1024).map(|v| self.transfers_max = v as usize),
            "ports" => value.text().and_then(|text| ports(&text)).map(|v| self.ports = Some(v)),
            "replace" => value.flag().map(|v| self.replace = v),
            _ => return None,
        })
    }
}

/// Whole paths: a station's working directory is nobody's choice.
fn directories(words: Vec<String>) -> Result<Vec<PathBuf>, String> {
    let paths: Vec<PathBuf> = words.into_iter().map(PathBuf::from).collect();
    match paths.iter().find(|path| !path.is_absolute()) {
        Some(path) => Err(format!("expected paths that begin with /, found `{}`", path.display())),
        None => Ok(paths),
    }
}

/// `first-last`, or one.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(format!("expected ports such as 10200-10210, found `{}`", super::value::short(text))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_are_whole_and_ports_are_a_range() {
        assert!(directories(vec!["/a".into(), "/b c".into()]).is_ok());
        assert!(directories(vec!["/a".into(), "b".into()]).unwrap_err().contains("`b`"));
        assert_eq!(ports("10200-10210").unwrap(), 10_200..=10_210);
        assert_eq!(ports("7").unwrap(), 7..=7);
        for bad in ["", "0", "0-3", "5-4", "1-65536", "a-b", "1-2-3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
