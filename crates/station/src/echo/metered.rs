//! A stream that takes only so many bytes from its peer, and lets other sessions have their turn.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counters::Counters;

/// A stream with an allowance of bytes that its peer may send.
///
/// The library below messages answers pings, joins fragments and passes over empty ones by itself: the
/// allowance bounds what all of that may cost, for each of them has bytes on the wire.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    counters: Arc<Counters>,
    allowance: u64,
    /// Bytes since other tasks had their turn.
    run: usize,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S, counters: Arc<Counters>) -> Self {
        Self { inner, counters, allowance: SLACK_BYTES, run: 0 }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Allows `bytes` more. What was not used before is kept only up to a bound, so that requests
    /// cannot be saved up for.
    pub(super) fn allow(&mut self, bytes: u64) {
        self.allowance = self.allowance.min(SLACK_BYTES).saturating_add(bytes);
    }

    /// Allows `bytes` and no more.
    pub(super) fn allow_only(&mut self, bytes: u64) {
        self.allowance = bytes;
    }

    /// Whether the next call must let others run first: one thread serves all sessions and the API.
    fn yields(&mut self, context: &mut Context<'_>) -> bool {
        if self.run < RUN_BYTES {
            return false;
        }
        self.run = 0;
        // Not a mere wake-up: this lets the runtime look for what has arrived before it goes on here.
        // Otherwise it would do so only every 61 turns.
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

/// What a peer may send beyond what its requests need: pings, headers of frames, reports. As messages of
/// no bytes it is some ten thousand, a millisecond of work. It is paid for when the session is opened.
pub(super) const SLACK_BYTES: u64 = 64 * 1024;
/// A largest message: at 1 GB/s others wait a tenth of a millisecond for it.
const RUN_BYTES: usize = 64 * 1024;
