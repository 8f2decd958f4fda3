//! TLS configurations, and which certificates they accept.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, RootCertStore, ServerConfig, SignatureScheme,
};

use super::{Fingerprint, Identity, IdentityError};

/// Name of the control connection's protocol in TLS (RFC 7301).
pub(in crate::io) const ALPN: &[u8] = b"barograph-transfer/1";

/// Which certificates of a peer are accepted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Accepts a peer with the key of one of these certificates.
    Pinned(Vec<Fingerprint>),
    /// Accepts a peer with a certificate of these authorities (PEM). If there are none, a sender
    /// uses the authorities of the system. A receiver must name its authorities, because the
    /// system's authorities certify any owner of a domain name.
    Authorities(Vec<u8>),
}

/// TLS configuration of the end that connects.
pub(in crate::io) fn client(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<ClientConfig, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Pinned(pins) => Arc::new(Pinned { pins: pins.clone(), provider: Arc::clone(&provider) }),
        Trust::Authorities(pem) => {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots(pem)?), Arc::clone(&provider))
                .build()
                .map_err(|error| IdentityError::Authorities(error.to_string()))?
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity.map(Identity::parts) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Disable resumption: each connection verifies the peer again, and has its own keys.
    config.resumption = Resumption::disabled();
    // Send the server name only if the certificate is checked for it; a receiver has one
    // certificate and needs no name to choose it.
    config.enable_sni = matches!(trust, Trust::Authorities(_));
    Ok(config)
}

/// TLS configuration of the end that listens. `trust` applies to the certificates of clients. A
/// client with a token needs no certificate.
pub(in crate::io) fn server(
    identity: &Identity,
    trust: Option<&Trust>,
) -> Result<ServerConfig, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ClientCertVerifier> = match trust {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(Trust::Pinned(pins)) => Arc::new(Pinned { pins: pins.clone(), provider: Arc::clone(&provider) }),
        Some(Trust::Authorities(pem)) => {
            if pem.is_empty() {
                return Err(IdentityError::Authorities("a receiver has to name them".into()));
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)?), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|error| IdentityError::Authorities(error.to_string()))?
        }
    };
    let (chain, key) = identity.parts();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, IdentityError> {
    let wrong = |error: String| IdentityError::Authorities(error);
    let mut roots = RootCertStore::empty();
    if pem.is_empty() {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reason = found.errors.first().map_or("the system has none".into(), ToString::to_string);
            return Err(wrong(reason));
        }
        return Ok(roots);
    }
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("the file has none".into())) } else { Ok(roots) }
}

/// Fingerprint of a certificate that is not pinned.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not pinned")]
pub(in crate::io) struct Untrusted(pub Fingerprint);

/// Accepts a peer with the key of a pinned certificate. Names and times in the certificate are
/// ignored.
#[derive(Debug)]
struct Pinned {
    pins: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check_pin(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if self.pins.contains(&Fingerprint::of(certificate)) {
            return Ok(());
        }
        let found = Untrusted(Fingerprint::of(certificate));
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(found)))))
    }

    /// Verifies that the peer has the key (RFC 8446 §4.4.3): the certificate is public, so it
    /// proves nothing without the key.
    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }
}

/// Error of the functions that verify signatures of TLS 1.2. These functions are never called,
/// because TLS 1.2 is disabled.
const NO_TLS12: Error = Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_pin(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check_pin(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
