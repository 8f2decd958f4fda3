//! Open connections, streams or sessions: applies the decisions of [`Admission`].

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::limits::authenticated::AuthenticatedCallers;
use crate::sync::lock;
use barograph_limits::admission::{Admission, AdmissionError, AdmissionKind, ConnectionId};
use barograph_limits::authenticated::CredentialOwner;

/// All connections of a station, or all its slots of one kind; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    authenticated: AuthenticatedCallers,
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug)]
struct State {
    admission: Admission,
    /// For each connection: the signal to end.
    ends: HashMap<ConnectionId, Arc<Notify>>,
}

/// A connection or a slot; closed when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    all: Connections,
    id: ConnectionId,
    ip: IpAddr,
    head_within: Duration,
    has_asked: AtomicBool,
    end: Arc<Notify>,
    /// Time by which the caller must have read the bytes of the response that were sent so far;
    /// `None` if there is no such time.
    read_until: Mutex<Option<tokio::time::Instant>>,
    /// Notified when `read_until` was set.
    reads: Notify,
}

impl Connections {
    pub(crate) fn new(max: usize, kind: AdmissionKind, authenticated: AuthenticatedCallers) -> Self {
        let state = State { admission: Admission::new(max, kind), ends: HashMap::new() };
        Self(Arc::new(Shared { authenticated, state: Mutex::new(state), ended: Notify::new() }))
    }

    /// Admits a connection. If there is no room, closes another connection. Returns whether another
    /// connection was closed.
    ///
    /// # Errors
    /// The limit that refused the connection.
    pub(crate) fn accept(
        &self,
        ip: IpAddr,
        is_here: bool,
    ) -> Result<(Arc<ConnectionGuard>, bool), AdmissionError> {
        self.accept_ending(ip, is_here, Arc::default())
    }

    /// As [`Connections::accept`], with a given signal to end.
    fn accept_ending(
        &self,
        ip: IpAddr,
        is_here: bool,
        end: Arc<Notify>,
    ) -> Result<(Arc<ConnectionGuard>, bool), AdmissionError> {
        let mut state = lock(&self.0.state);
        let now = self.now();
        let admitted = self
            .0
            .authenticated
            .with(|authenticated| state.admission.accept(ip, is_here, authenticated, now))?;
        let shed = admitted.shed.and_then(|shed| state.ends.remove(&shed));
        state.ends.insert(admitted.id, Arc::clone(&end));
        drop(state);
        if let Some(shed) = &shed {
            shed.notify_one();
        }
        let (id, head_within) = (admitted.id, admitted.head_within);
        let connection = ConnectionGuard {
            all: self.clone(),
            id,
            ip,
            head_within,
            has_asked: AtomicBool::new(false),
            end,
            read_until: Mutex::default(),
            reads: Notify::new(),
        };
        Ok((Arc::new(connection), shed.is_some()))
    }

    /// Closes a connection without a request in progress, to free its resources. Returns whether a
    /// connection was closed.
    pub(crate) fn shed_one(&self) -> bool {
        let mut state = lock(&self.0.state);
        let now = self.now();
        let shed = self.0.authenticated.with(|authenticated| state.admission.shed_one(authenticated, now));
        let end = shed.and_then(|shed| state.ends.remove(&shed));
        drop(state);
        if let Some(end) = &end {
            end.notify_one();
        }
        end.is_some()
    }

    /// Maximum number of connections that may be open.
    pub(crate) fn max(&self) -> usize {
        lock(&self.0.state).admission.max()
    }

    /// Number of open connections.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0.state).admission.open_count()
    }

    /// Waits until no connection is open.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.len() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn now(&self) -> Duration {
        self.0.authenticated.now()
    }
}

impl ConnectionGuard {
    /// Returns when this connection must close to make room for another connection.
    pub(crate) async fn shed(&self) {
        self.end.notified().await;
    }

    /// Takes a slot for the stream or session that this connection serves. If the slot is taken
    /// away to make room, the whole connection closes: a caller that does not read would not notice
    /// the end of a response.
    ///
    /// # Errors
    /// The limit that refused the slot.
    pub(crate) fn take_slot(
        &self,
        slots: &Connections,
        is_here: bool,
    ) -> Result<(Arc<Self>, bool), AdmissionError> {
        slots.accept_ending(self.ip, is_here, Arc::clone(&self.end))
    }

    /// Returns if no head of a request has arrived in time; otherwise never returns.
    pub(crate) async fn head_timeout(&self) {
        tokio::time::sleep(self.head_within).await;
        if self.has_asked.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Sets the time by which the caller must have read the part of a response that was sent;
    /// `None` if there is no response.
    pub(crate) fn set_read_deadline(&self, at: Option<tokio::time::Instant>) {
        *lock(&self.read_until) = at;
        self.reads.notify_one();
    }

    /// Returns when a response was not read in time.
    pub(crate) async fn read_timeout(&self) {
        loop {
            let until = *lock(&self.read_until);
            match until {
                Some(until) if until <= tokio::time::Instant::now() => return,
                Some(until) => tokio::time::sleep_until(until).await,
                None => self.reads.notified().await,
            }
        }
    }

    /// Marks the start of a request, which is in progress until the result is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> RequestGuard {
        self.has_asked.store(true, Ordering::Relaxed);
        lock(&self.all.0.state).admission.request_began(self.id);
        RequestGuard(Arc::clone(self))
    }

    /// Records a request that does not count as in progress: the connection stays idle, but its
    /// silence starts anew.
    pub(crate) fn request_arrived(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        self.progressed();
    }

    /// Records that a request arrived, or that the system accepted bytes of a response.
    fn progressed(&self) {
        lock(&self.all.0.state).admission.progressed(self.id, self.all.now());
    }

    /// Records that a token or a signature authorised the caller of this connection.
    pub(crate) fn record_authentication(&self, owner: CredentialOwner) {
        let (state, now) = (lock(&self.all.0.state), self.all.now());
        self.all.0.authenticated.with(|authenticated| {
            if state.admission.may_be_authenticated(self.ip, authenticated, now) {
                authenticated.insert(self.ip, owner, now);
            }
        });
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.all.0.state);
        state.admission.closed(self.id);
        state.ends.remove(&self.id);
        drop(state);
        self.all.0.ended.notify_one();
    }
}

/// A request without a complete response.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionGuard>);

impl RequestGuard {
    /// Keeps the request in progress until the first frame of a body of known length, or until the
    /// end of a body of unknown length. [`ProgressStream`] covers the time during which the caller
    /// reads.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        let request = Some(self);
        Body::new(TrackedBody { body, request })
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let all = &self.0.all;
        lock(&all.0.state).admission.request_ended(self.0.id, all.now());
    }
}

/// A body, with the request that ends when the body ends.
struct TrackedBody {
    body: Body,
    request: Option<RequestGuard>,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if self.body.size_hint().exact().is_some() {
            self.request = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// A connection's stream that reports progress when the system accepts bytes: a response may wait
/// in this stream long after its request has ended.
pub(crate) struct ProgressStream<S> {
    stream: S,
    connection: Arc<ConnectionGuard>,
}

impl<S> ProgressStream<S> {
    pub(crate) fn new(stream: S, connection: Arc<ConnectionGuard>) -> Self {
        Self { stream, connection }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ProgressStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProgressStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(1..)) = written {
            self.connection.progressed();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        if let Poll::Ready(Ok(1..)) = written {
            self.connection.progressed();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Two callers have a response in a buffer. The connection of the caller that reads must not be
    /// closed.
    #[tokio::test]
    async fn a_client_that_reads_a_long_response_slowly_is_not_idle() {
        let all = Connections::new(64, AdmissionKind::Connections, AuthenticatedCallers::new());
        let accept = |host| all.accept(IpAddr::from([192, 0, 2, host]), false).unwrap().0;
        let (reads, waits) = (accept(1), accept(2));
        for connection in [&reads, &waits] {
            drop(connection.request());
        }
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut ours = ProgressStream::new(ours, Arc::clone(&reads));
        ours.write_all(&[0; 1 << 10]).await.unwrap();
        theirs.read_exact(&mut [0; 1 << 9]).await.unwrap();
        ours.write_all(&[0; 1 << 9]).await.unwrap();
        assert!(all.shed_one());
        assert!(lock(&all.0.state).ends.contains_key(&reads.id), "the one that reads was closed");
        waits.shed().await;
    }

    #[test]
    fn a_request_that_does_not_count_as_in_progress_only_ends_the_silence() {
        let all = Connections::new(64, AdmissionKind::Connections, AuthenticatedCallers::new());
        let accept = |host| all.accept(IpAddr::from([192, 0, 2, host]), false).unwrap().0;
        let (asked, silent) = (accept(1), accept(2));
        asked.request_arrived();
        assert!(asked.has_asked.load(Ordering::Relaxed));
        assert!(all.shed_one() && silent.shed().now_or_never().is_some(), "it was silent longest");
        assert!(all.shed_one() && asked.shed().now_or_never().is_some(), "it is idle");
    }
}
