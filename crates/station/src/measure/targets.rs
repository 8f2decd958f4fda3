//! The list of targets: defaults, configured targets, peers of the mesh, and targets added through
//! the API. Added targets are stored in a file of the state directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state::write_whole;
use crate::sync::lock;
use crate::target::{Provenance, Target};

/// List of all targets, with a callback for changes.
pub(crate) struct Targets {
    file: PathBuf,
    lists: Mutex<Lists>,
    changed: Box<dyn Fn(Vec<Target>) + Send + Sync>,
}

#[derive(Default)]
struct Lists {
    /// Default and configured targets, by name.
    configured: BTreeMap<String, Target>,
    added: BTreeMap<String, Target>,
    /// Peers of the mesh. A target of the same name in another list overrides the peer.
    mesh: BTreeMap<String, Target>,
}

/// Error: the list was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetsError {
    #[error("`{0}` is already measured")]
    Exists(String),
    #[error("`{0}` is not a target of this station")]
    Unknown(String),
    #[error("`{name}` comes from the {from}; remove it there")]
    NotAdded { name: String, from: &'static str },
    #[error("at most {ADDED_MAX} targets can be added")]
    TooMany,
    #[error("cannot read or write the list of targets {path}: {error}", path = path.display())]
    Store { path: PathBuf, error: std::io::Error },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTarget {
    target: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quantities: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period_s: Option<f64>,
}

impl Targets {
    /// Opens the list with the added targets stored in `directory`. Every change calls `changed`
    /// with all targets.
    ///
    /// # Errors
    /// If the file exists but cannot be read. The file is not overwritten.
    pub(crate) fn open(
        directory: &Path,
        changed: impl Fn(Vec<Target>) + Send + Sync + 'static,
    ) -> Result<Self, TargetsError> {
        let file = directory.join(FILE);
        let added = match std::fs::read(&file) {
            Ok(bytes) => read(&bytes).map_err(|error| TargetsError::Store { path: file.clone(), error })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(TargetsError::Store { path: file, error }),
        };
        let lists = Lists { added, ..Lists::default() };
        Ok(Self { file, lists: Mutex::new(lists), changed: Box::new(changed) })
    }

    /// Replaces the default and the configured targets.
    pub(crate) fn set_configured(&self, configured: Vec<Target>) {
        let mut lists = lock(&self.lists);
        lists.configured.clear();
        // Later targets override earlier ones: the configuration overrides a default target.
        lists
            .configured
            .extend(configured.into_iter().map(|target| (target.name.as_str().to_string(), target)));
        (self.changed)(all(&lists));
    }

    /// Replaces the peers of the mesh.
    pub(crate) fn set_mesh(&self, peers: Vec<Target>) {
        let mut lists = lock(&self.lists);
        lists.mesh = peers.into_iter().map(|target| (target.name.as_str().to_string(), target)).collect();
        (self.changed)(all(&lists));
    }

    /// Provenance of the target that overrides the peer `name`, if there is one.
    pub(crate) fn overrides_mesh(&self, name: &str) -> Option<Provenance> {
        let lists = lock(&self.lists);
        lists.configured.get(name).or_else(|| lists.added.get(name)).map(|target| target.provenance)
    }

    /// Adds a target and stores the list.
    pub(crate) fn add(&self, target: Target) -> Result<(), TargetsError> {
        let mut lists = lock(&self.lists);
        let name = target.name.as_str().to_string();
        if lists.configured.contains_key(&name) || lists.added.contains_key(&name) {
            return Err(TargetsError::Exists(name));
        }
        if lists.added.len() >= ADDED_MAX {
            return Err(TargetsError::TooMany);
        }
        lists.added.insert(name.clone(), target);
        if let Err(error) = self.store(&lists) {
            lists.added.remove(&name);
            return Err(error);
        }
        (self.changed)(all(&lists));
        Ok(())
    }

    /// Removes an added target.
    pub(crate) fn remove(&self, name: &str) -> Result<(), TargetsError> {
        let mut lists = lock(&self.lists);
        let Some(target) = lists.added.remove(name) else {
            return Err(match lists.configured.get(name) {
                Some(target) if target.provenance == Provenance::Default => {
                    TargetsError::NotAdded { name: name.into(), from: "default targets" }
                }
                Some(_) => TargetsError::NotAdded { name: name.into(), from: "configuration" },
                None if lists.mesh.contains_key(name) => {
                    TargetsError::NotAdded { name: name.into(), from: "mesh" }
                }
                None => TargetsError::Unknown(name.chars().take(80).collect()),
            });
        };
        if let Err(error) = self.store(&lists) {
            lists.added.insert(name.into(), target);
            return Err(error);
        }
        (self.changed)(all(&lists));
        Ok(())
    }

    /// All targets, by name.
    pub(crate) fn all(&self) -> Vec<Target> {
        all(&lock(&self.lists))
    }

    fn store(&self, lists: &Lists) -> Result<(), TargetsError> {
        let kept: Vec<StoredTarget> = lists.added.values().map(StoredTarget::from).collect();
        let text = serde_json::to_string_pretty(&kept).unwrap_or_default() + "\n";
        write_whole(&self.file, text.as_bytes())
            .map_err(|error| TargetsError::Store { path: self.file.clone(), error })
    }
}

fn all(lists: &Lists) -> Vec<Target> {
    let mut all = lists.mesh.clone();
    all.extend(lists.added.clone());
    all.extend(lists.configured.clone());
    all.into_values().collect()
}

fn read(bytes: &[u8]) -> std::io::Result<BTreeMap<String, Target>> {
    let kept: Vec<StoredTarget> = serde_json::from_slice(bytes)?;
    let mut added = BTreeMap::new();
    for kept in kept.into_iter().take(ADDED_MAX) {
        let period =
            kept.period_s.map(Duration::try_from_secs_f64).transpose().map_err(std::io::Error::other)?;
        let target = Target::parse(&kept.target, &kept.quantities, period, Provenance::Added)
            .map_err(std::io::Error::other)?;
        added.insert(target.name.as_str().to_string(), target);
    }
    Ok(added)
}

impl From<&Target> for StoredTarget {
    fn from(target: &Target) -> Self {
        Self {
            target: target.name.as_str().to_string(),
            quantities: target.quantities.iter().map(ToString::to_string).collect(),
            period_s: target.period.map(|period| period.as_secs_f64()),
        }
    }
}

const FILE: &str = "targets.json";
/// Maximum number of added targets. A station cannot measure so many targets without skipping
/// experiments.
const ADDED_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn target(address: &str, from: Provenance) -> Target {
        Target::parse(address, &[], Some(Duration::from_secs(3)), from).unwrap()
    }

    #[test]
    fn added_targets_are_kept_and_configured_ones_protected() {
        let directory = tempfile::tempdir().unwrap();
        let targets = Targets::open(directory.path(), |_| {}).unwrap();
        targets.set_configured(vec![target("a:1", Provenance::Default), target("b:1", Provenance::Config)]);
        targets.add(target("c:1", Provenance::Added)).unwrap();
        assert!(matches!(targets.add(target("a:1", Provenance::Added)), Err(TargetsError::Exists(_))));
        assert!(matches!(targets.add(target("c:1", Provenance::Added)), Err(TargetsError::Exists(_))));
        assert!(matches!(targets.remove("a:1"), Err(TargetsError::NotAdded { .. })));
        assert!(matches!(targets.remove("x:1"), Err(TargetsError::Unknown(_))));
        assert_eq!(targets.all().len(), 3);
        let again = Targets::open(directory.path(), |_| {}).unwrap();
        assert_eq!(again.all(), [target("c:1", Provenance::Added)]);
        again.remove("c:1").unwrap();
        assert!(Targets::open(directory.path(), |_| {}).unwrap().all().is_empty());
    }

    #[test]
    fn a_configured_or_added_target_overrides_a_peer_of_the_same_name() {
        let directory = tempfile::tempdir().unwrap();
        let targets = Targets::open(directory.path(), |_| {}).unwrap();
        let peers = ["a:1", "b:1", "c:1"].map(|address| target(address, Provenance::Mesh));
        targets.set_mesh(peers.to_vec());
        targets.set_configured(vec![target("a:1", Provenance::Config)]);
        targets.add(target("b:1", Provenance::Added)).unwrap();
        let from: Vec<Provenance> = targets.all().iter().map(|target| target.provenance).collect();
        assert_eq!(from, [Provenance::Config, Provenance::Added, Provenance::Mesh]);
        assert_eq!(targets.overrides_mesh("a:1"), Some(Provenance::Config));
        assert_eq!(targets.overrides_mesh("c:1"), None);
        assert!(targets.remove("c:1").unwrap_err().to_string().contains("mesh"));
        targets.set_mesh(Vec::new());
        assert_eq!(targets.all().len(), 2);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        for text in ["{", "[{}]", "[{\"target\": \"a\"}]", "[{\"target\": \"a:1\", \"period_s\": -1}]"] {
            std::fs::write(&file, text).unwrap();
            assert!(Targets::open(directory.path(), |_| {}).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }
}
