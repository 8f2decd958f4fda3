//! Shared helpers: peers with a given behaviour, and a context with a deadline.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_probe::io::{Listener, ProbeContext, ResponderLimits, trusting};
use barograph_probe::wire::{REPLY_BYTES, Reply};
use barograph_probe::{MeasuredValue, ProbeError, QuantityResult, Target};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Time limit of a test: longer than any passing test takes on a slow machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn context(deadline: Duration) -> ProbeContext {
    ProbeContext { deadline, ..ProbeContext::default() }
}

pub(crate) fn listener() -> Listener {
    listener_with(ResponderLimits::default())
}

pub(crate) fn listener_with(limits: ResponderLimits) -> Listener {
    Listener::start("127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

pub(crate) fn target(address: SocketAddr) -> Target {
    Target::parse(&address.to_string()).unwrap()
}

pub(crate) fn only(mut readings: Vec<QuantityResult>) -> Result<MeasuredValue, ProbeError> {
    assert_eq!(readings.len(), 1, "{readings:?}");
    readings.remove(0).result
}

/// Opens a session without the client, to send what the client would not send.
pub(crate) fn session(listener: &Listener) -> TcpStream {
    let mut stream = TcpStream::connect(listener.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let request =
        "GET /v1/probe HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: barograph-probe/1\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

pub(crate) fn reply(stream: &mut TcpStream) -> Reply {
    let mut frame = [0; REPLY_BYTES];
    stream.read_exact(&mut frame).unwrap();
    Reply::decode(&frame).unwrap()
}

/// Reads up to an empty line; `None` if the stream ends before an empty line.
pub(crate) fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// The response that accepts an Upgrade.
pub(crate) const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: barograph-probe/1\r\n\r\n";

/// Reads the head of an Upgrade and accepts it.
pub(crate) fn upgrade(stream: &mut TcpStream, stop: &AtomicBool) {
    read_request(stream, stop);
    let _ = stream.write_all(SWITCHING.as_bytes());
}

/// Configuration of a TLS server with a certificate for loopback.
pub(crate) fn tls_server() -> Arc<rustls::ServerConfig> {
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("../data/localhost.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../data/localhost.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// Configuration of a TLS client that trusts the certificate of the test server.
pub(crate) fn trust() -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(include_bytes!("../data/ca.pem")).unwrap()).unwrap();
    Arc::new(trusting(roots).unwrap())
}

/// A TCP server on loopback that serves one connection after the other with `behave`.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(mut behave: impl FnMut(TcpStream, &AtomicBool) + Send + 'static) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                for stream in tcp.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let stream = stream.unwrap();
                    // With these timeouts, every behaviour checks `stop` at least every 20 ms.
                    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                    stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
                    behave(stream, &stop);
                }
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    pub(crate) fn target(&self) -> Target {
        target(self.address)
    }

    pub(crate) fn url(&self) -> Target {
        Target::parse(&format!("http://{}/x", self.address)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // This connection wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        let result = self.thread.take().unwrap().join();
        if !thread::panicking() {
            result.unwrap();
        }
    }
}

/// Reads until an empty line, or until the peer or the test ends.
pub(crate) fn read_request(stream: &mut TcpStream, stop: &AtomicBool) -> Vec<u8> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::WouldBlock && !stop.load(Ordering::Relaxed) => {}
            _ => break,
        }
    }
    request
}

/// Reads and discards until the peer or the test ends.
pub(crate) fn swallow(stream: &mut TcpStream, stop: &AtomicBool) {
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// Writes `bytes` repeatedly until the peer or the test ends.
pub(crate) fn pour(stream: &mut TcpStream, bytes: &[u8], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match stream.write(bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// Closes with a reset: a linger time of zero.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}
