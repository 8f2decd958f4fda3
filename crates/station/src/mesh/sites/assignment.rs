//! The site and groups of a station, the source of the site, and the file in which both are stored.

use std::path::{Path, PathBuf};

use barograph_forecast::Name;
use barograph_mesh::{GLOBAL, SitePosition, UNSET};
use serde::{Deserialize, Serialize};

use crate::config::{MeshConfig, local_group, unset_group};
use crate::state::{remove, write_whole};

/// The site and groups of a station, and the source of the site.
///
/// A station that took a site may also stay in `local:default`. It stays there as long as that
/// group contains a different station that only members of `local:default` measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteAssignment {
    pub(crate) site: Name,
    /// Whether the station is in `global`, for any reason.
    pub(crate) represents: bool,
    pub(crate) source: SiteSource,
    pub(crate) groups: Vec<Name>,
}

/// Where the site of a station comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteSource {
    Default,
    Configured,
    /// An operator accepted the proposed site.
    Accepted,
    Auto,
}

impl SiteSource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Configured => "configured",
            Self::Accepted => "accepted",
            Self::Auto => "auto",
        }
    }
}

/// Contents of the file for a site that was taken.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteFile {
    site: String,
    represents: bool,
    auto: bool,
}

impl SiteFile {
    /// Reads the file in the state directory `state`. `None` if it is missing or damaged; the
    /// station then uses its configured site.
    fn read(state: &Path) -> Option<Self> {
        let path = state.join(FILE);
        let warn = |error: &dyn std::fmt::Display| {
            tracing::warn!("{}: {error}; using the configured site", path.display());
        };
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).inspect_err(|error| warn(error)).ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                warn(&error);
                None
            }
        }
    }
}

impl SiteAssignment {
    /// Assignment at the start: the configured site, otherwise the site that was taken before,
    /// otherwise none.
    pub(crate) fn at_start(config: &MeshConfig, state: &Path) -> Self {
        let file = if config.has_site() { None } else { SiteFile::read(state) };
        // A site that was taken automatically is dropped if `mesh.sites` is no longer `auto`.
        let Some(file) = file.filter(|file| !file.auto || config.sites_auto) else {
            return Self::configured(config);
        };
        let source = if file.auto { SiteSource::Auto } else { SiteSource::Accepted };
        let position = SitePosition { site: file.site, represents: file.represents };
        Self::at_position(config, &position, source, true).unwrap_or_else(|error| {
            let path = state.join(FILE);
            tracing::warn!("{}: {error}; using the configured site", path.display());
            Self::configured(config)
        })
    }

    /// Assignment by the configuration. With `mesh.sites = auto` and no site, the station
    /// represents itself.
    pub(super) fn configured(config: &MeshConfig) -> Self {
        let represents = config.sites_auto && !config.has_site();
        let source = match (config.has_site(), config.sites_auto) {
            (true, _) => SiteSource::Configured,
            (false, true) => SiteSource::Auto,
            (false, false) => SiteSource::Default,
        };
        Self::new(config, config.site.clone(), represents, source)
    }

    /// Assignment of a station that takes a position. If `is_unset`, the station is also in
    /// `local:default`.
    ///
    /// # Errors
    /// The reason why the site's name cannot be part of a group's name.
    pub(super) fn at_position(
        config: &MeshConfig,
        position: &SitePosition,
        source: SiteSource,
        is_unset: bool,
    ) -> Result<Self, String> {
        let site = Name::new(&position.site).map_err(|error| format!("the site's name: {error}"))?;
        local_group(&site)?;
        let mut assignment = Self::new(config, site, position.represents, source);
        let unset = unset_group();
        if is_unset && !assignment.groups.contains(&unset) {
            assignment.groups.push(unset);
        }
        Ok(assignment)
    }

    fn new(config: &MeshConfig, site: Name, represents: bool, source: SiteSource) -> Self {
        let groups = config.groups_at(&site, represents);
        let represents = groups.iter().any(|group| group.as_str() == GLOBAL);
        Self { site, represents, source, groups }
    }

    /// Whether the station is in `local:default`.
    pub(super) fn is_unset(&self) -> bool {
        self.groups.contains(&unset_group())
    }

    /// Whether the site was accepted or taken automatically.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.source, SiteSource::Accepted | SiteSource::Auto) && self.site.as_str() != UNSET
    }

    /// Stores the assignment for the next start.
    ///
    /// # Errors
    /// The error of the system, with the path of the file.
    pub(super) fn store(&self, state: &Path) -> Result<(), (PathBuf, std::io::Error)> {
        let path = state.join(FILE);
        let done = if self.is_taken() {
            let (site, auto) = (self.site.to_string(), self.source == SiteSource::Auto);
            let file = SiteFile { site, represents: self.represents, auto };
            write_whole(&path, serde_json::to_string(&file).unwrap_or_default().as_bytes())
        } else {
            remove(&path)
        };
        done.map_err(|error| (path, error))
    }
}

pub(super) const FILE: &str = "site.json";
