//! A socket of quinn that follows the kernel's drop counter.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use tokio::sync::watch;

use crate::drops::{DropMeter, Reporter};
use crate::wire::Report;

/// A runtime that counts what the kernel dropped at its sockets. Everything else is done by another
/// runtime.
///
/// Only Linux counts drops (`SO_MEMINFO`). On other systems the runtime works, and nothing is
/// reported.
///
/// ```
/// use std::sync::Arc;
///
/// use barograph_quinn::DropCountingRuntime;
/// use quinn::{EndpointConfig, TokioRuntime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let runtime = DropCountingRuntime::new(Arc::new(TokioRuntime));
/// let drops = runtime.drops();
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let runtime = Arc::new(runtime);
/// let endpoint = quinn::Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
/// // For each connection: LossReports::new(connection, Some(drops.clone())).serve()
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DropCountingRuntime {
    inner: Arc<dyn Runtime>,
    drops: SocketDrops,
}

impl DropCountingRuntime {
    /// Wraps the sockets of `inner`.
    pub fn new(inner: Arc<dyn Runtime>) -> Self {
        let shared = Shared {
            runtime: Arc::clone(&inner),
            has_counter: AtomicBool::new(false),
            meter: Mutex::default(),
            dropped_bytes: watch::Sender::new(0),
        };
        Self { inner, drops: SocketDrops(Arc::new(shared)) }
    }

    /// Drops of the endpoint's socket. Use one runtime for each endpoint.
    pub fn drops(&self) -> SocketDrops {
        self.drops.clone()
    }
}

impl Runtime for DropCountingRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        self.inner.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.inner.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let counter = DropCounter::new(&socket)?;
        self.drops.restart(counter.read().is_some());
        let inner = self.inner.wrap_udp_socket(socket)?;
        Ok(Arc::new(DropCountingSocket { inner, counter, drops: self.drops.clone() }))
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }
}

/// What a socket dropped, for the connections that use it.
#[derive(Clone)]
pub struct SocketDrops(Arc<Shared>);

struct Shared {
    runtime: Arc<dyn Runtime>,
    has_counter: AtomicBool,
    meter: Mutex<DropMeter>,
    dropped_bytes: watch::Sender<u64>,
}

impl SocketDrops {
    /// Estimated number of bytes that the socket dropped so far; `None` if the system does not
    /// count drops. The kernel counts buffers; each counts as the largest of late.
    pub fn dropped_bytes(&self) -> Option<u64> {
        self.has_counter().then(|| self.with(|meter| meter.dropped_bytes()))
    }

    pub(crate) fn has_counter(&self) -> bool {
        self.0.has_counter.load(Ordering::Relaxed)
    }

    /// Changes with each rise of the drop counter.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.dropped_bytes.subscribe()
    }

    pub(crate) fn reporter(&self) -> Reporter {
        self.with(|meter| Reporter::new(meter))
    }

    pub(crate) fn report(&self, reporter: &mut Reporter) -> Report {
        let now = self.0.runtime.now();
        self.with(|meter| reporter.report(now, meter))
    }

    fn restart(&self, has_counter: bool) {
        self.0.has_counter.store(has_counter, Ordering::Relaxed);
        let now = self.0.runtime.now();
        self.with(|meter| meter.restart(now));
    }

    fn on_read(&self, drops: u32, buffers: &[RecvMeta]) {
        let now = self.0.runtime.now();
        let lengths = buffers.iter().map(|buffer| buffer.len);
        let dropped = self.with(|meter| meter.on_read(now, drops, lengths).then(|| meter.dropped_bytes()));
        if let Some(bytes) = dropped {
            self.0.dropped_bytes.send_replace(bytes);
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut DropMeter) -> T) -> T {
        work(&mut self.0.meter.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for SocketDrops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketDrops").field("dropped_bytes", &self.dropped_bytes()).finish()
    }
}

/// A socket that reads the drop counter after each receive call.
#[derive(Debug)]
struct DropCountingSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    counter: DropCounter,
    drops: SocketDrops,
}

impl AsyncUdpSocket for DropCountingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.inner.poll_recv(cx, bufs, meta))?;
        if let Some(drops) = self.counter.read() {
            self.drops.on_read(drops, meta.get(..count).unwrap_or_default());
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(target_os = "linux")]
use linux::DropCounter;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::net::UdpSocket;

    use nix::sys::socket::getsockopt;
    use nix::{getsockopt_impl, libc, sockopt_impl};

    /// Reads the number of buffers that the kernel dropped at a socket.
    #[derive(Debug)]
    pub(super) struct DropCounter(UdpSocket);

    impl DropCounter {
        pub(super) fn new(socket: &UdpSocket) -> io::Result<Self> {
            socket.try_clone().map(Self)
        }

        /// The counter, which wraps; `None` if the kernel has none (Linux before 4.12).
        pub(super) fn read(&self) -> Option<u32> {
            let [.., drops] = getsockopt(&self.0, MemoryInfo).ok()?;
            Some(drops)
        }
    }

    sockopt_impl!(
        /// Memory of a socket; the last number is that of drops (`SK_MEMINFO_DROPS`).
        MemoryInfo,
        GetOnly,
        libc::SOL_SOCKET,
        libc::SO_MEMINFO,
        [u32; MEMORY_NUMBERS]
    );

    /// Number of values of `SO_MEMINFO` (`SK_MEMINFO_VARS` of `linux/sock_diag.h`).
    const MEMORY_NUMBERS: usize = 9;
}

/// On other systems there is no counter.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct DropCounter;

#[cfg(not(target_os = "linux"))]
impl DropCounter {
    fn new(_: &UdpSocket) -> io::Result<Self> {
        Ok(Self)
    }

    fn read(&self) -> Option<u32> {
        None
    }
}
