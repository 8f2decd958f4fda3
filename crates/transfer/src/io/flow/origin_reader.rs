//! Reads bytes of an origin before the sender needs them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Tell, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::busy::{busy, this_thread};
use super::{FlowError, Origin};
use crate::proto::Sender;

/// The bytes to send next, read into memory before the sender needs them.
///
/// A thread fills blocks with the bytes that will be sent next. Blocks that were sent stay until
/// their memory is needed, because most bytes that are sent again were first sent a moment ago.
/// Other bytes that are sent again are read before the next new bytes.
pub(super) enum OriginReader {
    /// The origin never waits, so its bytes are read directly into packets.
    Direct(Box<dyn Origin>),
    /// The origin may wait, so a separate thread reads its bytes.
    Threaded(ReadBlocks),
}

impl OriginReader {
    pub(super) fn new(origin: Box<dyn Origin>) -> Result<Self, FlowError> {
        Ok(if origin.is_immediate() {
            Self::Direct(origin)
        } else {
            Self::Threaded(ReadBlocks::new(origin)?)
        })
    }

    /// Whether all bytes are available at any time.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self, Self::Direct(_))
    }

    /// Requests the bytes that `sender` will send next.
    pub(super) fn order(&mut self, sender: &Sender) -> Result<(), FlowError> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Threaded(blocks) => {
                blocks.collect()?;
                blocks.order(sender);
                Ok(())
            }
        }
    }

    /// Whether the first `payload` bytes of a range are available. If they are not available but
    /// were sent before, the range is requested as urgent. Bytes from `unsent` on were never sent.
    pub(super) fn has(&mut self, range: &Range<u64>, payload: u64, unsent: u64) -> bool {
        match self {
            Self::Direct(_) => true,
            Self::Threaded(blocks) => {
                let is_there = blocks.has(&(range.start..range.end.min(range.start.saturating_add(payload))));
                if !is_there {
                    blocks.order_now(range, unsent);
                }
                is_there
            }
        }
    }

    /// Copies the bytes from `offset` on; returns whether they were available.
    pub(super) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<bool, FlowError> {
        match self {
            Self::Direct(origin) => origin.read(offset, out).map(|()| true),
            Self::Threaded(blocks) => Ok(blocks.copy(offset, out)),
        }
    }

    /// Waits until more bytes are available, at most for `for_at_most`.
    pub(super) fn wait(&mut self, for_at_most: Duration) -> Result<(), FlowError> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Threaded(blocks) => blocks.wait(for_at_most),
        }
    }

    /// Time for which the reading thread computed or waited for a processor; 0 if there is no
    /// reading thread.
    pub(super) fn busy(&self) -> Duration {
        let thread = match self {
            Self::Direct(_) => 0,
            Self::Threaded(blocks) => blocks.shared.thread.load(Ordering::Relaxed),
        };
        // `busy` returns `None` for 0, because no thread has the number 0.
        busy(thread).unwrap_or_default()
    }

    /// Waits until the thread has ended its current read; returns the origin.
    pub(super) fn end(self) -> Result<Box<dyn Origin>, FlowError> {
        match self {
            Self::Direct(origin) => Ok(origin),
            Self::Threaded(mut blocks) => {
                blocks.shared.close();
                let thread = blocks.thread.take().ok_or_else(thread_panicked)?;
                thread.join().map_err(|_| thread_panicked())
            }
        }
    }
}

/// Blocks of an object, and the thread that fills them.
pub(super) struct ReadBlocks {
    shared: Arc<Shared>,
    filled: Receiver<Result<Block, FlowError>>,
    thread: Option<JoinHandle<Box<dyn Origin>>>,
    blocks: VecDeque<Block>,
    /// Index of the block that was used last.
    used: usize,
    /// End of the range of never-sent bytes that was requested so far.
    ordered: u64,
    /// `orders`: number of requested blocks of never-sent bytes. `urgent`: requested ranges of
    /// bytes that are to be sent again.
    orders: usize,
    urgent: VecDeque<Range<u64>>,
    made: usize,
}

/// A part of the object.
struct Block {
    start: u64,
    is_urgent: bool,
    bytes: Vec<u8>,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ReadBlocks {
    fn new(origin: Box<dyn Origin>) -> Result<Self, FlowError> {
        let shared = Arc::new(Shared::default());
        let (tell, filled) = channel();
        let orders = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("transfer-read".to_owned())
            .spawn(move || fill(origin, &orders, &tell))?;
        Ok(Self {
            shared,
            filled,
            thread: Some(thread),
            blocks: VecDeque::with_capacity(BLOCKS),
            used: 0,
            ordered: 0,
            orders: 0,
            urgent: VecDeque::new(),
            made: 0,
        })
    }

    fn collect(&mut self) -> Result<(), FlowError> {
        loop {
            match self.filled.try_recv() {
                Ok(filled) => self.take(filled?),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(thread_panicked()),
            }
        }
    }

    fn wait(&mut self, for_at_most: Duration) -> Result<(), FlowError> {
        match self.filled.recv_timeout(for_at_most) {
            Ok(filled) => self.take(filled?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(thread_panicked()),
        }
        Ok(())
    }

    fn take(&mut self, block: Block) {
        if block.is_urgent {
            self.urgent.retain(|range| range.start != block.start);
        } else {
            self.orders -= 1;
        }
        self.blocks.push_back(block);
    }

    fn order(&mut self, sender: &Sender) {
        let unsent = sender.unsent(0).start;
        let mut ahead = self.orders + self.blocks.iter().filter(|block| unsent < block.end()).count();
        while ahead < AHEAD {
            let range = sender.unsent(self.ordered.max(unsent));
            let end = range.end.min(range.start.saturating_add(BLOCK_BYTES));
            if end <= range.start {
                return;
            }
            let Some(buffer) = self.buffer(unsent) else { return };
            self.ordered = end;
            self.orders += 1;
            ahead += 1;
            self.shared.order(range.start..end, buffer, false);
        }
    }

    /// Requests the bytes of a range that were sent before, with priority over all other bytes.
    /// Bytes from `unsent` on were never sent; `order` requests these.
    fn order_now(&mut self, range: &Range<u64>, unsent: u64) {
        let again = range.start..range.end.min(unsent);
        let Some(start) = self.missing(&again) else { return };
        let end = again.end.min(start.saturating_add(BLOCK_BYTES));
        if !self.urgent.iter().any(|range| range.contains(&start))
            && let Some(buffer) = self.buffer(unsent)
        {
            self.urgent.push_back(start..end);
            self.shared.order(start..end, buffer, true);
        }
    }

    /// Returns a buffer: a new buffer if the limit allows it, otherwise the buffer of the oldest
    /// block that was sent. Returns `None` if there is no such block.
    fn buffer(&mut self, unsent: u64) -> Option<Vec<u8>> {
        if self.made < BLOCKS {
            self.made += 1;
            return Some(Vec::with_capacity(BLOCK_BYTES as usize));
        }
        let oldest = self.blocks.iter().position(|block| block.end() <= unsent)?;
        self.used = 0;
        Some(self.blocks.remove(oldest)?.bytes)
    }

    fn has(&mut self, range: &Range<u64>) -> bool {
        self.missing(range).is_none()
    }

    /// The first byte of a range that is not available.
    fn missing(&mut self, range: &Range<u64>) -> Option<u64> {
        let mut at = range.start;
        while at < range.end {
            match self.find(at) {
                Some(block) => at = block.end(),
                None => return Some(at),
            }
        }
        None
    }

    /// The block that contains the byte at `at`.
    fn find(&mut self, at: u64) -> Option<&Block> {
        let holds = |block: &Block| block.start <= at && at < block.end();
        if !self.blocks.get(self.used).is_some_and(holds) {
            self.used = self.blocks.iter().position(holds)?;
        }
        self.blocks.get(self.used)
    }

    fn copy(&mut self, offset: u64, mut out: &mut [u8]) -> bool {
        let mut at = offset;
        while !out.is_empty() {
            let Some(block) = self.find(at) else { return false };
            let from = block.bytes.get((at - block.start) as usize..).unwrap_or_default();
            let Some((from, _)) = from.split_at_checked(from.len().min(out.len())) else { return false };
            let (here, rest) = std::mem::take(&mut out).split_at_mut(from.len());
            here.copy_from_slice(from);
            at += from.len() as u64;
            out = rest;
        }
        true
    }
}

impl Drop for ReadBlocks {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Requests to the thread that fills blocks.
#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    more: Condvar,
    /// The kernel's number of the reading thread, once the thread has started.
    thread: AtomicI32,
}

#[derive(Default)]
struct Orders {
    waiting: VecDeque<(u64, Block)>,
    is_closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, range: Range<u64>, bytes: Vec<u8>, is_urgent: bool) {
        let order = (range.end, Block { start: range.start, is_urgent, bytes });
        let mut orders = self.lock();
        if is_urgent {
            orders.waiting.push_front(order)
        } else {
            orders.waiting.push_back(order)
        }
        self.more.notify_one();
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.more.notify_one();
    }

    fn next(&self) -> Option<(u64, Block)> {
        let mut orders = self.lock();
        loop {
            if orders.is_closed {
                return None;
            }
            if let Some(order) = orders.waiting.pop_front() {
                return Some(order);
            }
            let waited = self.more.wait_timeout(orders, Duration::from_secs(1));
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn fill(
    mut origin: Box<dyn Origin>,
    shared: &Shared,
    tell: &Tell<Result<Block, FlowError>>,
) -> Box<dyn Origin> {
    shared.thread.store(this_thread(), Ordering::Relaxed);
    while let Some((end, mut block)) = shared.next() {
        block.bytes.resize((end - block.start) as usize, 0);
        let filled = origin.read(block.start, &mut block.bytes);
        if tell.send(filled.map(|()| block)).is_err() {
            break;
        }
    }
    origin
}

pub(super) fn thread_panicked() -> FlowError {
    FlowError::ThreadPanicked
}

/// Size of a block, in bytes. Larger reads of a file are hardly faster, and a block that was just
/// filled is still in a cache of 1 MiB when it is sealed.
const BLOCK_BYTES: u64 = 256 * 1024;
/// Number of blocks that are read ahead of the sender: 8 MiB in total. At 1 GB/s these blocks are
/// enough for 8 ms, longer than a read of a solid-state disk takes.
const AHEAD: usize = 32;
/// Total number of blocks. Half of the blocks keep bytes that were sent already, for
/// retransmissions.
const BLOCKS: usize = 2 * AHEAD;
