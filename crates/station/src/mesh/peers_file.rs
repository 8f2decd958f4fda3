//! File of the peers of the last run: a station that starts while the directory is unreachable
//! measures these peers.

use std::collections::HashMap;
use std::path::Path;

use barograph_engine::{Entry, wire};
use barograph_forecast::Name;
use serde_json::value::RawValue;

use super::PEERS_MAX;
use crate::state::StateFiles;

/// Reads the peers of an earlier run. A file that cannot be read causes only a warning, because the
/// directory has newer data.
pub(super) fn read(state: &Path) -> Vec<Entry> {
    let path = state.join(FILE);
    let text = match std::fs::metadata(&path) {
        Ok(metadata) if metadata.len() > BYTES_MAX => Err(std::io::Error::other("it is too long")),
        Ok(_) => std::fs::read(&path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => Err(error),
    };
    let entries = text.map_err(|error| error.to_string()).and_then(|text| parse(&text));
    entries.unwrap_or_else(|error| {
        tracing::warn!("cannot read {}: {error}; no peers until the directory responds", path.display());
        Vec::new()
    })
}

/// Groups of each peer in the file of an earlier run.
pub(crate) fn groups_known(state: &Path) -> HashMap<Name, Vec<Name>> {
    read(state).into_iter().map(|entry| (entry.host, entry.groups)).collect()
}

/// Replaces the contents of the file with `entries`.
pub(super) fn write<'a>(files: &StateFiles, entries: impl Iterator<Item = &'a Entry>) {
    let lines: Vec<String> = entries.take(PEERS_MAX).map(wire::entry_text).collect();
    let text = format!("[{}]\n", lines.join(",\n"));
    files.write(
        FILE,
        text.into_bytes(),
        "after a restart without the directory these peers may not be measured",
    );
}

fn parse(text: &[u8]) -> Result<Vec<Entry>, String> {
    let texts: Vec<&RawValue> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let entry = |text: &&RawValue| wire::read_entry(text.get().as_bytes()).map_err(|error| error.to_string());
    texts.iter().take(PEERS_MAX).map(entry).collect()
}

const FILE: &str = "peers.json";
/// Maximum size of the file, in bytes. A usual entry has some hundred bytes, so this is many times
/// the size of [`PEERS_MAX`] entries.
const BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_engine::Capabilities;

    use super::*;

    #[test]
    fn stored_peers_are_restored_and_a_damaged_file_counts_as_empty() {
        let state = tempfile::tempdir().unwrap();
        assert!(read(state.path()).is_empty());
        let entry = |host: &str| Entry {
            host: Name::new(host).unwrap(),
            addresses: vec!["[2001:db8::1]:1".parse().unwrap()],
            version: "0.1.0".into(),
            groups: vec![Name::new("local:x").unwrap()],
            capabilities: Capabilities::default(),
            key: Some([1; 32]),
        };
        let both = [entry("a"), entry("b\"")];
        write(&StateFiles::new(state.path()), both.iter());
        assert_eq!(read(state.path()), both);
        for damaged in ["", "{", "[{}]", "[1]", "nonsense"] {
            std::fs::write(state.path().join(FILE), damaged).unwrap();
            assert!(read(state.path()).is_empty(), "{damaged}");
        }
    }
}
