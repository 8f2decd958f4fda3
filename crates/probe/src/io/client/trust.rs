//! TLS towards a server: whom to trust, and the handshake.

use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use barograph_forecast::Failure;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::clock::Clock;
use super::super::connection::Wire;
use super::Context;
use crate::{ProbeError, Target};

/// TLS on a fresh connection to `target`, its handshake done.
pub(super) fn connect(
    tcp: TcpStream,
    target: &Target,
    context: &Context,
    clock: &Clock,
) -> Result<Wire, ProbeError> {
    let doing = format!("TLS with {}", target.host());
    let untrusted = |message: String| clock.fail(Failure::Untrusted, format!("{doing}: {message}"));
    let config = match &context.tls {
        Some(config) => Arc::clone(config),
        None => system_trust().map_err(|message| clock.fail(Failure::Local, message))?,
    };
    let name = ServerName::try_from(target.host().to_string())
        .map_err(|_| untrusted("the host is no name that a certificate can have".to_string()))?;
    let connection = ClientConnection::new(config, name).map_err(|error| untrusted(error.to_string()))?;
    Wire::client(tcp, connection, clock).map_err(|error| {
        // rustls wraps its own errors so.
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(
                cause @ (rustls::Error::InvalidMessage(_)
                | rustls::Error::InappropriateMessage { .. }
                | rustls::Error::InappropriateHandshakeMessage { .. }),
            ) => clock.fail(Failure::Garbage, format!("{doing}: the server does not speak it ({cause})")),
            Some(cause) => untrusted(cause.to_string()),
            None => clock.io(&doing, &error),
        }
    })
}

/// A client that trusts the certificates `roots`.
///
/// # Errors
/// [`rustls::Error`] when this build has no protocol version in common with itself.
pub fn trusting(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The system's certificates, read once.
fn system_trust() -> Result<Arc<ClientConfig>, String> {
    static SYSTEM: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    SYSTEM
        .get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            // Systems carry certificates that no strict reader takes; the rest is what counts.
            let (good, _) = roots.add_parsable_certificates(found.certs);
            if good == 0 {
                let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
                return Err(format!("the system has no certificates to trust{why}"));
            }
            trusting(roots).map(Arc::new).map_err(|error| error.to_string())
        })
        .clone()
}
