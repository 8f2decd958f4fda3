//! The `[transfer]` table: directories and limits for transfers at the request of callers.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Config;
use super::kind::{flag, integer, list, optional, text};
use super::setting::settings;
use super::value::short;

settings! {
    |config: Config| config.transfer;

    /// Files that this station sends and receives at the request of callers that have its token or
    /// are on this host (docs/spec/api.md, "Transfers").
    pub struct TransferConfig {
        /// Directories from which files may be sent, including all below them; `[]` = none. The
        /// station never sends its state directory. Give write access to these directories only to
        /// users that you trust with all files that the station can read.
        send: Vec<PathBuf> = Vec::new() => "transfer.send", list(directories), AtOnce;
        /// Directories into which files may be received, including all below them; `[]` = none.
        receive: Vec<PathBuf> = Vec::new() => "transfer.receive", list(directories), AtOnce;
        /// Maximum number of bytes that one transfer may write. Data is counted in blocks of 4 KiB;
        /// each file, directory and link counts as at least one block. A transfer may write at most
        /// 2^20 files, directories and links. Default: no limit.
        bytes_max: u64 = u64::MAX =>
            "transfer.bytes_max", integer(1..=1 << 62), AtOnce, example 1000000000000;
        /// Maximum number of transfers at once, including those that wait for their sender.
        transfers_max: usize = 8 => "transfer.transfers_max", integer(1..=1024), AtOnce;
        /// TCP and UDP ports for incoming transfers, to open in a firewall. Default: the system
        /// chooses.
        ports: Option<RangeInclusive<u16>> = None =>
            "transfer.ports", optional(text(ports)), AtOnce, example "10200-10207";
        /// Whether received files replace existing ones.
        replace: bool = false => "transfer.replace", flag(), AtOnce;
    }
}

/// Requires absolute paths: the working directory of a station is arbitrary.
fn directories(words: Vec<String>) -> Result<Vec<PathBuf>, String> {
    let paths: Vec<PathBuf> = words.into_iter().map(PathBuf::from).collect();
    match paths.iter().find(|path| !path.is_absolute()) {
        Some(path) => Err(format!("expected paths that begin with /, found `{}`", path.display())),
        None => Ok(paths),
    }
}

/// Parses `first-last`, or one port.
fn ports(text: String) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(format!("expected ports such as 10200-10210, found `{}`", short(&text))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_must_be_absolute_and_ports_must_be_a_range() {
        assert!(directories(vec!["/a".into(), "/b c".into()]).is_ok());
        assert!(directories(vec!["/a".into(), "b".into()]).unwrap_err().contains("`b`"));
        let ports = |text| ports(String::from(text));
        assert_eq!(ports("10200-10210").unwrap(), 10_200..=10_210);
        assert_eq!(ports("7").unwrap(), 7..=7);
        for bad in ["", "0", "0-3", "5-4", "1-65536", "a-b", "1-2-3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
