//! The `[transfer]` table: what this station may send and receive when it is asked.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Config;
use super::kind::{flag, integer, maybe, text, words};
use super::setting::settings;
use super::value::short;

settings! {
    |config: Config| config.transfer;

    /// Files that this station sends and receives when a caller with its token, or on this host,
    /// asks (docs/spec/api.md, "Transfers").
    pub struct TransferConfig {
        /// Directories from which files are sent, with all that is below; `[]` = none. The
        /// station's state is never sent. Let only those write to them whom you trust with what the
        /// station may read.
        send: Vec<PathBuf> = Vec::new() => "transfer.send", words(directories), AtOnce;
        /// Directories into which files are received, with all that is below; `[]` = none.
        receive: Vec<PathBuf> = Vec::new() => "transfer.receive", words(directories), AtOnce;
        /// Bytes that one transfer may bring, counted in blocks of 4 KiB: those of the data, and
        /// one at least for each file, directory and link, of which there are 2^20 at most.
        bytes_max: u64 = u64::MAX =>
            "transfer.bytes_max", integer(1..=1 << 62), AtOnce, example 1000000000000;
        /// Transfers at once, those that are waited for among them.
        transfers_max: usize = 8 => "transfer.transfers_max", integer(1..=1024), AtOnce;
        /// TCP and UDP ports of transfers that come, to be let through a firewall; without it the
        /// system chooses.
        ports: Option<RangeInclusive<u16>> = None =>
            "transfer.ports", maybe(text(ports)), AtOnce, example "10200-10207";
        /// Whether files that are there already are replaced.
        replace: bool = false => "transfer.replace", flag(), AtOnce;
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
    fn paths_are_whole_and_ports_are_a_range() {
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
