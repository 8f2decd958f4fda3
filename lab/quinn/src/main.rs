//! Bulk transfer over quinn, which `lab transfer-real` compares with Barograph: one connection, one
//! stream, bytes from memory to memory.
//!
//! `quinn-bulk serve ADDRESS` prints `listening` and accepts one connection. At its end it prints
//! the bytes read and the seconds from the first byte to the last.
//! `quinn-bulk send ADDRESS SECONDS cubic|bbr` writes for that many seconds. The windows suffice
//! for 10 Gbit/s over 100 ms. The cipher is AES-128-GCM, as in Barograph. The certificate is not
//! verified, because both ends are namespaces of one machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite::TLS13_AES_128_GCM_SHA256, default_provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // One thread for each end, as in quinn's own benchmark: each end has one connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", at] => runtime.block_on(serve(at.parse()?)),
        ["send", to, seconds, congestion] => {
            runtime.block_on(send(to.parse()?, Duration::from_secs(seconds.parse()?), congestion))
        }
        _ => bail!("quinn-bulk serve ADDRESS | quinn-bulk send ADDRESS SECONDS cubic|bbr"),
    }
}

async fn serve(at: SocketAddr) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.into()], key.into())?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport("cubic")?));
    let endpoint = Endpoint::server(config, at)?;
    println!("listening");
    let connection = endpoint.accept().await.context("the endpoint is closed")?.await?;
    let mut stream = connection.accept_uni().await?;
    let (began, mut bytes, mut last) = (Instant::now(), 0_u64, Instant::now());
    // The sender closes the connection when its time is over. All bytes until then count.
    while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, false).await {
        bytes += chunk.bytes.len() as u64;
        last = Instant::now();
    }
    println!("{bytes} {}", last.duration_since(began).as_secs_f64());
    Ok(())
}

async fn send(to: SocketAddr, time: Duration, congestion: &str) -> anyhow::Result<()> {
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport(congestion)?));
    let endpoint = Endpoint::client((std::net::Ipv4Addr::UNSPECIFIED, 0).into())?;
    let connection = endpoint.connect_with(config, to, "localhost")?.await?;
    let mut stream = connection.open_uni().await?;
    let block = vec![7; BLOCK_BYTES];
    // The timeout ends the writes even if the stream's window stays full.
    let writing = async { while stream.write_all(&block).await.is_ok() {} };
    let _ = tokio::time::timeout(time, writing).await;
    connection.close(VarInt::from_u32(0), b"");
    let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
    Ok(())
}

fn transport(congestion: &str) -> anyhow::Result<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(u64::from(WINDOW_BYTES))
        // The closing packet may be lost in a full buffer; this timeout then ends the connection.
        .max_idle_timeout(Some(VarInt::from_u32(IDLE_MS).into()));
    match congestion {
        "cubic" => config.congestion_controller_factory(Arc::new(CubicConfig::default())),
        "bbr" => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
        other => bail!("no congestion controller is called {other}"),
    };
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: vec![TLS13_AES_128_GCM_SHA256], ..default_provider() })
}

/// Accepts every certificate of a server.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

const BLOCK_BYTES: usize = 1 << 20;

/// Many round trips, so that a slow path is not cut off, and short enough to wait for.
const IDLE_MS: u32 = 3000;

/// Bytes in flight at 10 Gbit/s over 100 ms.
const WINDOW_BYTES: u32 = 125_000_000;
