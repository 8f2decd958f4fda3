//! File of the stations that an administrator removed from the mesh. After a restart their series
//! in the archive stay hidden, and a station that hosts a mesh reports the removal again.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;

use barograph_forecast::Name;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::PEERS_MAX;
use crate::state::StateFiles;
use crate::sync::lock;

/// Stations that were removed and not admitted again. The oldest removal is first.
#[derive(Debug)]
pub(crate) struct RemovedStations {
    files: StateFiles,
    list: Mutex<List>,
    /// Signals that the file was written.
    written: Notify,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Removed {
    pub(crate) host: Name,
    /// When this station received the removal, in ns since 1970-01-01 UTC.
    pub(crate) at_unix_ns: i64,
}

#[derive(Debug, Default)]
struct List {
    stations: VecDeque<Removed>,
    /// Whether the file is out of date.
    is_changed: bool,
}

#[derive(Serialize, Deserialize)]
struct RemovedJson {
    host: String,
    at_unix_ns: i64,
}

impl RemovedStations {
    /// Reads the list of an earlier run. A file that cannot be read causes a warning and an empty
    /// list.
    pub(crate) fn open(files: &StateFiles) -> Self {
        let path = files.directory().join(FILE);
        let stations = match std::fs::read(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(VecDeque::new()),
            Err(error) => Err(error.to_string()),
        };
        let stations = stations.unwrap_or_else(|error| {
            tracing::warn!("{}: {error}; stations removed earlier may be shown again", path.display());
            VecDeque::new()
        });
        let list = Mutex::new(List { stations, is_changed: false });
        Self { files: files.clone(), list, written: Notify::new() }
    }

    /// Adds a station, or replaces its earlier removal. If the list is full, drops the oldest
    /// removal.
    pub(super) fn insert(&self, removed: Removed) {
        let mut list = lock(&self.list);
        list.stations.retain(|known| known.host != removed.host);
        if list.stations.len() >= PEERS_MAX {
            list.stations.pop_front();
        }
        list.stations.push_back(removed);
        list.is_changed = true;
    }

    /// Removes a station from the list; returns whether it was on the list.
    pub(super) fn remove(&self, host: &Name) -> bool {
        self.retain(|known| known != host)
    }

    /// Removes the stations for which `still` is false; returns whether there were any.
    pub(super) fn retain(&self, still: impl Fn(&Name) -> bool) -> bool {
        let mut list = lock(&self.list);
        let before = list.stations.len();
        list.stations.retain(|removed| still(&removed.host));
        let has_removed = list.stations.len() < before;
        list.is_changed |= has_removed;
        has_removed
    }

    pub(crate) fn contains(&self, host: &Name) -> bool {
        lock(&self.list).stations.iter().any(|removed| removed.host == *host)
    }

    /// All stations on the list, oldest first.
    pub(crate) fn all(&self) -> Vec<Removed> {
        lock(&self.list).stations.iter().cloned().collect()
    }

    /// Writes the list if it has changed. Blocks for the disk.
    pub(super) fn keep(&self) {
        if !lock(&self.list).is_changed {
            return;
        }
        let all = self.all();
        let json = all
            .iter()
            .map(|removed| RemovedJson { host: removed.host.to_string(), at_unix_ns: removed.at_unix_ns });
        let text = serde_json::to_string_pretty(&json.collect::<Vec<_>>()).unwrap_or_default() + "\n";
        self.files.write(
            FILE,
            text.into_bytes(),
            "after a restart stations that were removed may be shown again",
        );
        let mut list = lock(&self.list);
        list.is_changed = list.stations != all;
        drop(list);
        self.written.notify_waiters();
    }

    /// Waits until the station is on the list and the list was written. `is_removed` is false while
    /// the list still has an earlier removal of a station that has returned. If the write fails,
    /// the file is written later ([`StateFiles`]), and this function does not wait for that.
    pub(crate) async fn wait_until_written(&self, host: &Name, is_removed: impl Fn() -> bool) {
        loop {
            let written = self.written.notified();
            if is_removed() && self.is_written(host) {
                return;
            }
            written.await;
        }
    }

    fn is_written(&self, host: &Name) -> bool {
        let list = lock(&self.list);
        !list.is_changed && list.stations.iter().any(|removed| removed.host == *host)
    }
}

/// Names of the stations in the file of an earlier run; empty if there is no file.
/// [`RemovedStations::open`] reports a damaged file.
pub(crate) fn names_known(state: &Path) -> Vec<Name> {
    let text = std::fs::read(state.join(FILE)).unwrap_or_default();
    parse(&text).unwrap_or_default().into_iter().map(|removed| removed.host).collect()
}

fn parse(text: &[u8]) -> Result<VecDeque<Removed>, String> {
    let stations: Vec<RemovedJson> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let stations = stations.into_iter().take(PEERS_MAX).map(|RemovedJson { host, at_unix_ns }| {
        let host = Name::new(&host).map_err(|error| error.to_string())?;
        Ok(Removed { host, at_unix_ns })
    });
    stations.collect()
}

const FILE: &str = "removed.json";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_list_of_removed_stations_survives_a_restart_and_is_bounded() {
        let state = tempfile::tempdir().unwrap();
        let open = || RemovedStations::open(&StateFiles::new(state.path()));
        let name = |text: &str| Name::new(text).unwrap();
        let (b, c) = (name("b\""), name("c"));
        let list = open();
        let insert = |host: &Name, at_unix_ns| list.insert(Removed { host: host.clone(), at_unix_ns });
        for (host, at_unix_ns) in [(&b, 7), (&c, 8), (&b, 9)] {
            insert(host, at_unix_ns);
        }
        list.remove(&c);
        list.keep();
        assert_eq!(open().all(), [Removed { host: b.clone(), at_unix_ns: 9 }]);
        for i in 0..PEERS_MAX {
            insert(&name(&format!("h{i}")), 10);
        }
        list.keep();
        assert_eq!((open().all().len(), open().contains(&b)), (PEERS_MAX, false), "the oldest is forgotten");
        std::fs::write(state.path().join(FILE), "[{\"host\": \"a b\", \"at_unix_ns\": 1}]").unwrap();
        assert_eq!(open().all(), []);
    }

    #[test]
    fn a_list_that_cannot_be_written_is_written_later() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("later");
        let files = StateFiles::new(&folder);
        let list = RemovedStations::open(&files);
        list.insert(Removed { host: Name::new("b").unwrap(), at_unix_ns: 7 });
        list.keep();
        std::fs::create_dir(&folder).unwrap();
        files.retry();
        assert_eq!(RemovedStations::open(&files).all().len(), 1);
    }
}
