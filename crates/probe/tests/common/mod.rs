//! What the tests of this crate share: peers that behave in a given way, and a context in a hurry.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "shared by tests, each using a part"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_probe::io::{Context, Limits, Listener};
use barograph_probe::{Measured, ProbeError, Reading, Target};

/// Long enough that no slow machine reaches it in a test that passes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn context(deadline: Duration) -> Context {
    Context { deadline, ..Context::default() }
}

pub(crate) fn listener() -> Listener {
    listener_with(Limits::default())
}

pub(crate) fn listener_with(limits: Limits) -> Listener {
    Listener::start("127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

pub(crate) fn target(address: SocketAddr) -> Target {
    Target::parse(&address.to_string()).unwrap()
}

pub(crate) fn only(mut readings: Vec<Reading>) -> Result<Measured, ProbeError> {
    assert_eq!(readings.len(), 1, "{readings:?}");
    readings.remove(0).result
}

/// A TCP server on loopback that treats each connection as `behave` does, one after the other.
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
                    // Every behaviour looks at `stop` at least this often.
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
        // Wakes the accept.
        let _ = TcpStream::connect(self.address);
        let result = self.thread.take().unwrap().join();
        if !thread::panicking() {
            result.unwrap();
        }
    }
}

/// Reads until an empty line, or the peer or the test ends.
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

/// Reads and forgets until the peer or the test ends.
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

/// Writes `bytes` again and again until the peer or the test ends.
pub(crate) fn pour(stream: &mut TcpStream, bytes: &[u8], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match stream.write(bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// Closes with a reset: unread data and no lingering.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}
