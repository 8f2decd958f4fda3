//! Shared by all studies on emulated networks: the permission to make one, its TCP settings, and
//! further traffic on it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_probe::Target;
use barograph_probe::io::{Listener, ResponderLimits};
use barograph_sim::{Error, Host, Link, Network, report_skipped};

use crate::jobs::Task;

/// Whether this process may create networks. If not, `verb` is reported as skipped.
pub(crate) fn is_permitted(verb: &str) -> anyhow::Result<bool> {
    match Network::new(Link::Veth { rate_bps: None }) {
        Err(error @ Error::NotPermitted { .. }) => {
            report_skipped(&format!("lab {verb}: {error}"));
            Ok(false)
        }
        tried => tried.map(|_| true).context("cannot make an emulated network"),
    }
}

/// Why the measurements on a network are void; `None` if they are valid.
pub(crate) fn invalid_reason(network: &Network) -> Option<String> {
    network.report().and_then(|report| report.invalid_reason()).map(|reason| reason.to_string())
}

/// Changes a setting of IPv4 or TCP in one host only.
pub(crate) fn set_tcp(host: &Host, setting: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/net/ipv4/{setting}");
    host.run(|| std::fs::write(&path, value))?.with_context(|| format!("cannot write {value} to {path}"))
}

/// Stops the kernel from reusing what it learned from earlier connections to the same address,
/// which would favour or hinder the second of two programs.
pub(crate) fn forget_connections(network: &Network) -> anyhow::Result<()> {
    [&network.a, &network.b].into_iter().try_for_each(|host| set_tcp(host, "tcp_no_metrics_save", "1"))
}

/// Opens a connection from host `a` to host `b`, which returns every two bytes that it receives.
pub(crate) fn ping_pong(network: &Network, limit: Duration) -> anyhow::Result<TcpStream> {
    let listener = network.b.run(|| TcpListener::bind((network.b.v4(), 0)))??;
    let to = listener.local_addr()?;
    thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; 2];
        loop {
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)?;
        }
    });
    let stream = network.a.run(|| TcpStream::connect_timeout(&to, limit))??;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    Ok(stream)
}

/// A responder in a host, with its addresses for other hosts.
pub(crate) struct Responder(Listener);

impl Responder {
    pub(crate) fn start(host: &Host, limits: ResponderLimits) -> anyhow::Result<Self> {
        Ok(Self(host.run(|| Listener::start((host.v4(), 0).into(), limits))??))
    }

    /// Its address as `host:port`.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&self.0.address().to_string())?)
    }

    /// Its address as `http://host:port/`.
    pub(crate) fn url(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&format!("http://{}/", self.0.address()))?)
    }
}

/// Background datagrams at a varying rate, until dropped.
pub(crate) struct Traffic {
    bytes: Arc<AtomicU64>,
    _sender: Task<()>,
    /// Receives the datagrams; drops them when its buffer is full.
    _sink: UdpSocket,
}

impl Traffic {
    /// Sends from the first host to the second; `rate_bps` gives the rate (bit/s) at a time since
    /// the start.
    pub(crate) fn start(
        [from, to]: [&Host; 2],
        mut rate_bps: impl FnMut(Duration) -> f64 + Send + 'static,
    ) -> anyhow::Result<Self> {
        let bound =
            |host: &Host| host.run(|| UdpSocket::bind((host.v4(), 0)))?.context("no socket for traffic");
        let (sink, socket) = (bound(to)?, bound(from)?);
        socket.connect(sink.local_addr()?)?;
        socket.set_nonblocking(true)?;
        let bytes = Arc::new(AtomicU64::new(0));
        let sent = Arc::clone(&bytes);
        let sender = Task::start(move |stop| {
            let payload = [0; DATAGRAM_BYTES];
            let (began, mut last, mut due) = (Instant::now(), Instant::now(), 0.0);
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                let now = Instant::now();
                // What a busy machine missed is not sent in one burst.
                due += rate_bps(now - began) / 8.0 * (now - last).min(GAP_MAX).as_secs_f64();
                last = now;
                while DATAGRAM_BYTES as f64 <= due {
                    due -= DATAGRAM_BYTES as f64;
                    // A full buffer drops the datagram, as a full queue would.
                    if socket.send(&payload).is_ok() {
                        sent.fetch_add(DATAGRAM_BYTES as u64, Ordering::Relaxed);
                    }
                }
            }
        });
        Ok(Self { bytes, _sender: sender, _sink: sink })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A packet of medium size, with headers below every MTU.
const DATAGRAM_BYTES: usize = 1000;
const TICK: Duration = Duration::from_millis(2);
const GAP_MAX: Duration = Duration::from_millis(20);
