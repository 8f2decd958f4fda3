//! The certificates that a client trusts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Which root certificates a client trusts.
#[derive(Clone, Debug)]
pub enum RootCertificates {
    /// No certificates: https servers are rejected.
    Nothing,
    /// The root certificates of the system.
    System,
    /// The root certificates of the system, and the certificates in a PEM file.
    SystemAnd(PathBuf),
    /// Only the certificates in a PEM file.
    Only(PathBuf),
}

/// The trusted certificates. The certificates are read only once, so a later change of a file has
/// no effect.
#[derive(Clone)]
pub struct TrustStore {
    pub(super) config: rustls::ClientConfig,
    /// Whether there is no certificate, so that no https server can be trusted.
    pub(super) is_empty: bool,
}

impl TrustStore {
    /// Reads the certificates that `trust` selects.
    ///
    /// # Errors
    /// A sentence that names the file that cannot be used.
    pub fn new(trust: &RootCertificates) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let RootCertificates::System | RootCertificates::SystemAnd(_) = trust {
            // Systems have some certificates that a strict parser rejects; the others are used.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if let RootCertificates::SystemAnd(file) | RootCertificates::Only(file) = trust {
            add(&mut roots, file)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let is_empty = roots.is_empty();
        Ok(Self { config: config.with_root_certificates(roots).with_no_client_auth(), is_empty })
    }
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let unusable = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let mut any = false;
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
        any = true;
    }
    if any { Ok(()) } else { Err(unusable(&"the file has no PEM certificate")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::client::{Client, ClientConfig};

    #[test]
    fn client_without_root_certificates_refuses_https_urls() {
        let tls = TrustStore::new(&RootCertificates::Nothing).unwrap();
        assert!(Client::new(ClientConfig::new("http://127.0.0.1:1/", tls.clone())).is_ok());
        let refused = Client::new(ClientConfig::new("https://127.0.0.1:1/", tls)).err().unwrap();
        assert!(refused.contains("certificates"), "{refused}");
    }
}
