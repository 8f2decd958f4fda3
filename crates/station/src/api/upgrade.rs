//! Connections taken out of the HTTP server after `101`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use barograph_probe::TcpInfo;
use barograph_probe::io::bulk_tcp_info;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::echo::Socket;
use crate::limits::connections::ProgressStream;

/// The stream below an upgraded connection.
pub(super) enum UpgradedStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Whether the headers of a request name an upgrade to `protocol` (RFC 9110 §7.8).
pub(super) fn is_asked(headers: &HeaderMap, protocol: &str) -> bool {
    has_word(headers, &header::CONNECTION, "upgrade") && has_word(headers, &header::UPGRADE, protocol)
}

/// Whether the list in the header `name` contains `word`, in upper or lower case.
pub(super) fn has_word(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        value.to_str().unwrap_or_default().split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
    })
}

/// Waits until `101` is written; returns the stream, and the bytes that the client sent early.
///
/// # Errors
/// If the wait takes too long, or if the connection is closed.
pub(super) async fn take(upgrade: OnUpgrade) -> io::Result<(UpgradedStream, Vec<u8>)> {
    let upgraded = tokio::time::timeout(UPGRADE_TIMEOUT, upgrade)
        .await
        .map_err(|_| io::ErrorKind::TimedOut)?
        .map_err(io::Error::other)?;
    match upgraded.downcast::<TokioIo<ProgressStream<TcpStream>>>() {
        Ok(parts) => Ok((UpgradedStream::Plain(parts.io.into_inner().into_inner()), parts.read_buf.to_vec())),
        Err(upgraded) => {
            let parts = upgraded
                .downcast::<TokioIo<ProgressStream<TlsStream<TcpStream>>>>()
                .map_err(|_| io::Error::other("the connection is of an unknown kind"))?;
            Ok((UpgradedStream::Tls(Box::new(parts.io.into_inner().into_inner())), parts.read_buf.to_vec()))
        }
    }
}

impl UpgradedStream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl Socket for UpgradedStream {
    fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.tcp().set_nodelay(nodelay)
    }

    fn bulk_tcp_info(&self, elapsed_s: f64) -> Option<TcpInfo> {
        bulk_tcp_info(self.tcp(), elapsed_s)
    }
}

impl AsyncRead for UpgradedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for UpgradedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}

/// Longest wait until the response `101` is written.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
