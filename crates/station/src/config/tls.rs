//! TLS certificate and key of the station's port.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Error: the certificate or the key cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum TlsError {
    /// The configuration names only the certificate or only the key.
    #[error("set both tls.certificate and tls.key, or neither")]
    Half,
    /// A file cannot be read, or contains no PEM block of the expected kind (certificate or key).
    #[error("{path}: {message}", path = path.display())]
    File { path: PathBuf, message: String },
    /// Certificate and key do not match, or the key is of an unknown kind.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// TLS configuration from a certificate chain and a private key (PEM); `None` if neither is
/// configured.
///
/// # Errors
/// [`TlsError`], with the path of the file.
pub fn load(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err(TlsError::Half),
    };
    let refuse = |path: &Path, message: String| TlsError::File { path: path.to_path_buf(), message };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refuse(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(refuse(certificate, "the file contains no certificate (PEM)".into()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}
