//! Certificates that a client trusts.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

/// Configuration of a TLS client that trusts the certificates in `roots`.
///
/// # Errors
/// [`rustls::Error`] if this build supports no TLS version.
pub fn trusting(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Configuration with the system's certificates, which are read once.
pub(super) fn system() -> Result<Arc<ClientConfig>, String> {
    static SYSTEM: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    SYSTEM
        .get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            // Ignore certificates that a strict parser rejects: some systems have such
            // certificates.
            let (good, _) = roots.add_parsable_certificates(found.certs);
            if good == 0 {
                let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
                return Err(format!("the system has no trusted certificates{why}; install ca-certificates"));
            }
            trusting(roots).map(Arc::new).map_err(|error| error.to_string())
        })
        .clone()
}
