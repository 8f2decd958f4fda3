//! One direction of a connection: pieces that arrive at given times, in order.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::sync::lock;

/// State shared by both ends of a direction.
#[derive(Default)]
pub(super) struct SimPipe(Mutex<State>);

#[derive(Default)]
struct State {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    /// Arrival time of the piece that was sent last. Pieces that are sent later do not arrive
    /// before this time.
    last: Option<Instant>,
    /// Time at which the reader reads the end of the stream.
    closed: Option<Instant>,
    reset: Option<Instant>,
    /// Whether the reader is gone.
    abandoned: bool,
    reader: Option<Waker>,
}

impl SimPipe {
    /// Sends `bytes` to arrive at `at`, or together with the previous piece if the previous piece
    /// arrives after `at`.
    pub(super) fn push(&self, bytes: Vec<u8>, at: Instant) {
        let mut state = self.state();
        let at = state.last.map_or(at, |last| last.max(at));
        state.last = Some(at);
        if !state.abandoned {
            state.pieces.push_back((at, bytes));
        }
        state.wake();
    }

    /// Closes the writer's end of the stream. Pieces in flight still arrive if `late` is true;
    /// otherwise they are dropped.
    pub(super) fn close(&self, late: bool) {
        let now = Instant::now();
        let mut state = self.state();
        if !late {
            state.pieces.retain(|&(at, _)| at <= now);
        }
        state.closed = Some(state.pieces.back().map_or(now, |&(at, _)| at.max(now)));
        state.wake();
    }

    /// Makes reads fail from `at` on, even if pieces have not arrived.
    pub(super) fn reset(&self, at: Instant) {
        let mut state = self.state();
        state.reset = Some(at);
        state.wake();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Reads what has arrived by `now`. If there is nothing to read yet, the error is the time of
    /// the next event, or `None` if no event is known.
    fn read(&mut self, now: Instant, buffer: &mut ReadBuf<'_>) -> Result<io::Result<()>, Option<Instant>> {
        if let Some((at, bytes)) = self.pieces.front_mut().filter(|(at, _)| *at <= now)
            && self.reset.is_none_or(|reset| *at <= reset)
        {
            let n = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..n]);
            bytes.drain(..n);
            if bytes.is_empty() {
                self.pieces.pop_front();
            }
            return Ok(Ok(()));
        }
        if self.reset.is_some_and(|reset| reset <= now) {
            return Ok(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.pieces.is_empty() && self.closed.is_some_and(|closed| closed <= now) {
            return Ok(Ok(()));
        }
        let next = self.pieces.front().map(|&(at, _)| at).or(self.closed);
        Err(next.into_iter().chain(self.reset).min())
    }
}

pub(super) struct Reader {
    pipe: Arc<SimPipe>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Reader {
    pub(super) fn new(pipe: Arc<SimPipe>) -> Self {
        Self { pipe, sleep: None }
    }

    pub(super) fn pipe(&self) -> &SimPipe {
        &self.pipe
    }

    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let next = {
                let mut state = self.pipe.state();
                match state.read(Instant::now(), buffer) {
                    Ok(read) => return Poll::Ready(read),
                    Err(next) => {
                        state.reader = Some(context.waker().clone());
                        next
                    }
                }
            };
            let Some(next) = next else { return Poll::Pending };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if sleep.deadline() != next {
                sleep.as_mut().reset(next);
            }
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.pipe.state();
        state.abandoned = true;
        // As with TCP, data that arrive without a reader are dropped.
        state.pieces.clear();
    }
}
