//! A stream that limits the bytes from its peer, and yields to other sessions.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counters::Counters;

/// A stream with an allowance of bytes that its peer may send.
///
/// The WebSocket library answers pings, joins fragments and skips empty fragments without any call
/// from the session. Each ping and fragment has bytes on the wire, so the allowance limits the cost
/// of this work.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    counters: Arc<Counters>,
    allowance: u64,
    /// Number of bytes since the last yield to other tasks.
    run: usize,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S, counters: Arc<Counters>) -> Self {
        Self { inner, counters, allowance: SLACK_BYTES, run: 0 }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Allows the peer to send `bytes` more bytes. An unused allowance is first cut to
    /// [`SLACK_BYTES`], so that a peer cannot accumulate allowances.
    pub(super) fn allow(&mut self, bytes: u64) {
        self.allowance = self.allowance.min(SLACK_BYTES).saturating_add(bytes);
    }

    /// Sets the allowance to `bytes`.
    pub(super) fn allow_only(&mut self, bytes: u64) {
        self.allowance = bytes;
    }

    /// Whether this call must let other tasks run first: one thread serves all sessions and the
    /// API.
    fn yields(&mut self, context: &mut Context<'_>) -> bool {
        if self.run < RUN_BYTES {
            return false;
        }
        self.run = 0;
        // Use `yield_now` and not a wake-up: the runtime then polls for I/O before it resumes this
        // task. After a wake-up the runtime polls for I/O only once in 61 task polls.
        pin!(tokio::task::yield_now()).poll(context).is_pending()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.yields(context) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        this.run += read;
        this.counters.received_bytes.fetch_add(read as u64, Ordering::Relaxed);
        match this.allowance.checked_sub(read as u64) {
            Some(left) => {
                this.allowance = left;
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.yields(context) {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
        this.run += written;
        this.counters.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

/// Number of bytes that a peer may send beyond its requests, for pings, headers of frames and
/// reports. These bytes can be some ten thousand empty messages, which take a millisecond of work.
/// The charge for opening a session includes these bytes.
pub(super) const SLACK_BYTES: u64 = 64 * 1024;
/// Number of bytes after which a stream yields: the size of the largest message. At 1 GB/s, other
/// sessions wait less than 0.1 ms until this stream yields.
const RUN_BYTES: usize = 64 * 1024;
