//! Two endpoints of quinn on this host.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use barograph_quinn::{DropCountingRuntime, HostLossConfig, LossReports, loss_counts};
use quinn::congestion::CubicConfig;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig,
};
use tokio::time::timeout;

/// Whether the receiver has the extension.
#[derive(Clone, Copy, PartialEq)]
enum Receiver {
    Reports,
    Stock,
}

/// A connection from a sender with the extension to a receiver. The receiver's socket buffer is
/// small.
struct Pair {
    sender: Connection,
    receiver: Connection,
    _endpoints: [Endpoint; 2],
}

async fn connect(receiver: Receiver) -> Pair {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let certificate = made.cert.der().clone();
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(HostLossConfig::new(Arc::new(CubicConfig::default()))));
    client.transport_config(Arc::new(transport));

    let socket = UdpSocket::bind(loopback()).unwrap();
    socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES).unwrap();
    let address = socket.local_addr().unwrap();
    let runtime = DropCountingRuntime::new(Arc::new(TokioRuntime));
    let drops = runtime.drops();
    let runtime: Arc<dyn quinn::Runtime> = match receiver {
        Receiver::Reports => Arc::new(runtime),
        Receiver::Stock => Arc::new(TokioRuntime),
    };
    let server = Endpoint::new(EndpointConfig::default(), Some(server), socket, runtime).unwrap();
    let endpoint = Endpoint::client(loopback()).unwrap();
    let connecting = endpoint.connect_with(client, address, "localhost").unwrap();
    let (sending, receiving) =
        tokio::join!(connecting, async { server.accept().await.unwrap().await.unwrap() });
    let sending = sending.unwrap();
    tokio::spawn(LossReports::new(sending.clone(), None).serve());
    if receiver == Receiver::Reports {
        tokio::spawn(LossReports::new(receiving.clone(), Some(drops)).serve());
    }
    Pair { sender: sending, receiver: receiving, _endpoints: [server, endpoint] }
}

/// Sends so much that a small buffer overflows, and reads it.
async fn transfer(pair: &Pair) {
    let sending = async {
        let mut stream = pair.sender.open_uni().await.unwrap();
        stream.write_all(&vec![7; OBJECT_BYTES]).await.unwrap();
        stream.finish().unwrap();
        stream.stopped().await.unwrap();
    };
    let receiving = async {
        let mut stream = pair.receiver.accept_uni().await.unwrap();
        assert_eq!(stream.read_to_end(OBJECT_BYTES).await.unwrap().len(), OBJECT_BYTES);
    };
    timeout(PATIENCE, async { tokio::join!(sending, receiving) }).await.unwrap();
}

#[tokio::test]
async fn drops_of_the_receivers_socket_are_reported() {
    let pair = connect(Receiver::Reports).await;
    let agreed = async {
        while !loss_counts(&pair.sender).unwrap().is_reported {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, agreed).await.unwrap();
    transfer(&pair).await;
    let counts = loss_counts(&pair.sender).unwrap();
    let lost = pair.sender.stats().path.lost_bytes;
    assert!(lost > 0 && counts.reported_bytes > lost / 2, "{counts:?} of {lost} bytes");
    assert!(counts.host_bytes + counts.network_bytes <= lost, "{counts:?} of {lost} bytes");
}

#[tokio::test]
async fn a_receiver_without_the_extension_gets_offers_and_the_transfer_succeeds() {
    let pair = connect(Receiver::Stock).await;
    let offer = timeout(PATIENCE, pair.receiver.read_datagram()).await.unwrap().unwrap();
    assert_eq!(&offer[..], b"BGQL\x01\x01\x00\x00");
    transfer(&pair).await;
    let counts = loss_counts(&pair.sender).unwrap();
    assert!(!counts.is_reported && counts.host_bytes == 0, "{counts:?}");
    assert_eq!(counts.network_bytes, pair.sender.stats().path.lost_bytes, "each counts at once");
}

#[tokio::test]
async fn a_connection_with_another_controller_has_no_counts() {
    let pair = connect(Receiver::Stock).await;
    assert_eq!(loss_counts(&pair.receiver), None);
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Linux doubles this size; a batch of packets fits, and a window does not.
const BUFFER_BYTES: usize = 16_384;
/// Number of bytes to send: thousands of packets.
const OBJECT_BYTES: usize = 4_000_000;
/// Limit of each wait, far longer than any takes.
const PATIENCE: Duration = Duration::from_secs(60);
