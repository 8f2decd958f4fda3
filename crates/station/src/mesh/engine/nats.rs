//! Engines of a station in a mesh on NATS servers.

use std::sync::Arc;

pub(crate) use barograph_engine::{Archiver, ArchiverStatistics};
use barograph_engine::{Local, Nats, NatsConfig, NatsTls};
use barograph_forecast::Name;

use super::{EngineLocation, Engines, JoinError, spooled};
use crate::config::Config;

/// Creates the engines of a mesh on NATS. With `mesh.archive`, the station's own archive stores the
/// records of all stations.
///
/// # Errors
/// [`JoinError::Engine`] if a certificate or the credentials cannot be used.
pub(super) fn engines(config: &Config, host: &Name, local: Arc<Local>) -> Result<Engines, JoinError> {
    let mesh = &config.mesh;
    let files = [&mesh.nats_ca, &mesh.nats_certificate, &mesh.nats_key];
    let tls = files.iter().any(|file| file.is_some()).then(|| NatsTls {
        ca: mesh.nats_ca.clone(),
        certificate: mesh.nats_certificate.clone(),
        key: mesh.nats_key.clone(),
    });
    let nats = Arc::new(Nats::new(NatsConfig {
        credentials: mesh.nats_credentials.clone(),
        tls,
        replicas: mesh.nats_replicas,
        ..NatsConfig::new(mesh.nats.clone(), host.clone())
    })?);
    if mesh.archive {
        nats.warn_if_replicas_vulnerable();
    } else {
        nats.warn_if_permissions_outdated();
    }
    let archive = mesh.archive.then(|| Archiver::prepare(&nats, Arc::clone(&local), &config.state));
    let archiver = archive.transpose()?.map(Arc::new);
    let foreign_archive = mesh.archive.then(|| Arc::clone(&local));
    let engines = spooled(mesh, host, local, nats, EngineLocation::Nats { archive: mesh.archive })?;
    Ok(Engines { archiver, foreign_archive, ..engines })
}
