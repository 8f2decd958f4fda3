//! A proxy for a connection with a long delay, or for a connection that can be frozen. Neither end
//! detects the freeze, as if the other host were suspended.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Forwards to one server. While it is frozen, it forwards nothing and closes nothing.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    is_frozen: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn new(server: &str) -> Self {
        Self::long(server, Duration::ZERO).await
    }

    /// Starts a proxy to `server` that delays the bytes in both directions by `delay`.
    pub(crate) async fn long(server: &str, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (server, is_frozen) = (server.to_owned(), watch::Sender::new(false));
        let frozen = is_frozen.subscribe();
        let task = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (client_in, client_out) = client.into_split();
                let (server_in, server_out) = server.into_split();
                tasks.spawn(forward(client_in, server_out, frozen.clone(), delay));
                tasks.spawn(forward(server_in, client_out, frozen.clone(), delay));
            }
        });
        Self { address, is_frozen, task }
    }

    pub(crate) fn freeze(&self) {
        self.is_frozen.send_replace(true);
    }

    pub(crate) fn thaw(&self) {
        self.is_frozen.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
    delay: Duration,
) {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let receive = async move {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            // An error means that the proxy was dropped, which also ends this task.
            let _ = frozen.wait_for(|is_frozen| !is_frozen).await;
            if sender.send((Instant::now() + delay, bytes[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let send = async move {
        while let Some((due, bytes)) = under_way.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(receive, send);
}
