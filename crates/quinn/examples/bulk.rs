//! Sends bytes over QUIC for some seconds, with and without reports of the receiver's drops.
//!
//! ```sh
//! cargo run --release -p barograph-quinn --example bulk -- serve 127.0.0.1:4433
//! cargo run --release -p barograph-quinn --example bulk -- send 127.0.0.1:4433 10 cubic
//! ```
//!
//! `serve` accepts one connection and prints the goodput at its end. After `cubic`, `newreno` or
//! `bbr`, `stock` sends with quinn's controller alone. `window=BYTES` instead ignores all losses.
//! The certificate is not verified: the server makes a new one for each run.

use std::any::Any;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use barograph_quinn::{DropCountingRuntime, HostLossConfig, LossReports, loss_counts};
use quinn::congestion::{BbrConfig, Controller, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::time::{Instant, timeout};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", at] => serve(at.parse()?).await,
        ["send", to, seconds, name] => send(to.parse()?, seconds.parse()?, wrapped(name)?).await,
        ["send", to, seconds, name, "stock"] => send(to.parse()?, seconds.parse()?, stock(name)?).await,
        _ => {
            Err("bulk serve ADDRESS | bulk send ADDRESS SECONDS cubic|newreno|bbr|window=BYTES [stock]"
                .into())
        }
    }
}

async fn serve(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    let runtime = DropCountingRuntime::new(Arc::new(TokioRuntime));
    let drops = runtime.drops();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![made.cert.into()], key.into())?;
    config.transport_config(Arc::new(transport(stock("cubic")?)));
    let socket = UdpSocket::bind(at)?;
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(runtime))?;
    println!("listening");
    let connection = endpoint.accept().await.ok_or("the endpoint is closed")?.await?;
    tokio::spawn(LossReports::new(connection.clone(), Some(drops.clone())).serve());
    let mut stream = connection.accept_uni().await?;
    let (start, mut bytes, mut last) = (Instant::now(), 0_usize, Instant::now());
    // The sender closes the connection when its time is over. All bytes until then count.
    while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, false).await {
        bytes += chunk.bytes.len();
        last = Instant::now();
    }
    let seconds = (last - start).as_secs_f64();
    let mbit_s = bytes as f64 * 8e-6 / seconds.max(1e-3);
    println!("{mbit_s:.2} Mbit/s in {seconds:.1} s, dropped: {:?} bytes", drops.dropped_bytes());
    Ok(())
}

async fn send(to: SocketAddr, seconds: u64, factory: Factory) -> Result<(), Box<dyn Error>> {
    let tls = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport(factory)));
    let endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    let connection = endpoint.connect_with(config, to, "localhost")?.await?;
    tokio::spawn(LossReports::new(connection.clone(), None).serve());
    let mut stream = connection.open_uni().await?;
    let block = vec![7; 1 << 20];
    let writing = async { while stream.write_all(&block).await.is_ok() {} };
    // The timeout ends the writes even if the stream's window stays full.
    let _ = timeout(Duration::from_secs(seconds), writing).await;
    let path = connection.stats().path;
    println!("lost {} of {} packets; {:?}", path.lost_packets, path.sent_packets, loss_counts(&connection));
    connection.close(VarInt::from_u32(0), b"");
    let _ = timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
    Ok(())
}

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

fn stock(name: &str) -> Result<Factory, String> {
    match name {
        "cubic" => Ok(Arc::new(CubicConfig::default())),
        "newreno" => Ok(Arc::new(NewRenoConfig::default())),
        "bbr" => Ok(Arc::new(BbrConfig::default())),
        other => Err(format!("no controller is called {other}")),
    }
}

fn wrapped(name: &str) -> Result<Factory, String> {
    match name.strip_prefix("window=").map(str::parse) {
        Some(Ok(bytes)) => Ok(Arc::new(FixedWindow(bytes))),
        Some(Err(error)) => Err(format!("{name}: {error}")),
        None => Ok(Arc::new(HostLossConfig::new(stock(name)?))),
    }
}

/// A window in bytes that nothing changes, for private links only.
#[derive(Clone)]
struct FixedWindow(u64);

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _: std::time::Instant, _: u16) -> Box<dyn Controller> {
        self.clone_box()
    }
}

impl Controller for FixedWindow {
    fn on_congestion_event(&mut self, _: std::time::Instant, _: std::time::Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Windows for 1 Gbit/s over 200 ms; the default ones would limit a long path.
fn transport(factory: Factory) -> TransportConfig {
    let window = 25_000_000_u32;
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(u64::from(window))
        // The closing packet may be lost in a full buffer; this timeout then ends the connection.
        .max_idle_timeout(Some(VarInt::from_u32(3000).into()))
        .congestion_controller_factory(factory);
    config
}

/// Accepts every certificate of a server.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
