//! Writes received bytes to a sink, in a separate thread if the sink may wait.
#![expect(clippy::disallowed_methods, reason = "what waits for sockets and disks reads the clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Give, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::origin_reader::thread_panicked;
use super::{FlowError, Sink};

/// Received bytes, on their way to the sink.
pub(super) enum SinkWriter {
    /// The sink never waits, so packets are written to it directly.
    Direct(SynchronousSink),
    /// The sink may wait, so a separate thread writes to it.
    Threaded(WriteBlocks),
}

impl SinkWriter {
    /// Creates a writer to `sink`. `held_bytes` bytes of the object are durable from earlier
    /// sessions.
    pub(super) fn new(sink: Box<dyn Sink>, held_bytes: u64) -> Result<Self, FlowError> {
        let durable = Arc::new(AtomicU64::new(held_bytes));
        let store = Store { sink, unsynced: 0, since: Instant::now(), durable };
        Ok(if store.sink.is_immediate() {
            Self::Direct(SynchronousSink { store, is_finished: false })
        } else {
            Self::Threaded(WriteBlocks::new(store)?)
        })
    }

    /// Whether there is memory for the datagrams that one read of the socket may return.
    pub(super) fn has_room(&mut self) -> Result<bool, FlowError> {
        match self {
            Self::Direct(_) => Ok(true),
            Self::Threaded(blocks) => {
                blocks.collect(Duration::ZERO)?;
                // After the last block no memory is needed: only feedback is left to send.
                Ok(blocks.give.is_none() || blocks.has_room())
            }
        }
    }

    /// Accepts bytes of the object at `offset`.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        match self {
            Self::Direct(direct) => direct.store.write(offset, bytes),
            Self::Threaded(blocks) => blocks.put(offset, bytes),
        }
    }

    /// Passes gathered bytes to the thread if they have waited long enough, or in any case if `all`
    /// is set.
    pub(super) fn flush(&mut self, now: Duration, all: bool) -> Result<(), FlowError> {
        match self {
            Self::Direct(direct) => direct.store.sync_if_due(),
            Self::Threaded(blocks) => blocks.flush(now, all),
        }
    }

    /// Waits for memory, at most for `for_at_most`.
    pub(super) fn wait(&mut self, for_at_most: Duration) -> Result<(), FlowError> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Threaded(blocks) => blocks.collect(for_at_most),
        }
    }

    /// Starts to write all remaining bytes and to make them durable. The caller must not add bytes
    /// after this call.
    pub(super) fn finish(&mut self) -> Result<(), FlowError> {
        match self {
            Self::Direct(direct) if direct.is_finished => Ok(()),
            Self::Direct(direct) => {
                direct.is_finished = true;
                direct.store.sync()
            }
            Self::Threaded(blocks) => blocks.finish(),
        }
    }

    /// Whether all bytes are written and durable.
    pub(super) fn is_finished(&mut self) -> Result<bool, FlowError> {
        match self {
            Self::Direct(direct) => Ok(direct.is_finished),
            Self::Threaded(blocks) => {
                blocks.collect(Duration::ZERO)?;
                Ok(blocks.thread.as_ref().is_none_or(JoinHandle::is_finished))
            }
        }
    }

    /// Number of bytes of the object that are durable.
    pub(super) fn durable_bytes(&self) -> u64 {
        match self {
            Self::Direct(direct) => direct.store.durable.load(Ordering::Relaxed),
            Self::Threaded(blocks) => blocks.durable.load(Ordering::Relaxed),
        }
    }

    /// After a failure of the flow, writes received bytes and makes them durable, so that the next
    /// flow need not send them again.
    pub(super) fn abandon(&mut self) {
        if let Self::Threaded(blocks) = self
            && blocks.finish().is_ok()
        {
            let end = Instant::now() + ABANDON_FOR;
            while blocks.collect(SYNC_EACH).is_ok()
                && blocks.thread.as_ref().is_some_and(|thread| !thread.is_finished())
                && Instant::now() < end
            {}
        }
    }

    /// Returns the sink, which was finished before.
    pub(super) fn end(self) -> Result<Box<dyn Sink>, FlowError> {
        match self {
            Self::Direct(direct) => Ok(direct.store.sink),
            Self::Threaded(mut blocks) => {
                let thread = blocks.thread.take().ok_or_else(thread_panicked)?;
                thread.join().map_err(|_| thread_panicked())?
            }
        }
    }
}

/// A sink that the receiving thread writes to.
pub(super) struct SynchronousSink {
    store: Store,
    is_finished: bool,
}

/// A sink, and the number of written bytes that are not durable yet.
struct Store {
    sink: Box<dyn Sink>,
    unsynced: u64,
    /// Time of the last sync.
    since: Instant,
    durable: Arc<AtomicU64>,
}

impl Store {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        self.unsynced += bytes.len() as u64;
        self.sink.write(offset, bytes)
    }

    fn sync_if_due(&mut self) -> Result<(), FlowError> {
        let is_due = self.unsynced >= SYNC_BYTES || (self.unsynced > 0 && self.since.elapsed() >= SYNC_EACH);
        if is_due { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        self.sink.sync()?;
        self.durable.fetch_add(std::mem::take(&mut self.unsynced), Ordering::Relaxed);
        self.since = Instant::now();
        Ok(())
    }
}

/// Passes full blocks to the thread that writes them, and takes empty blocks back.
pub(super) struct WriteBlocks {
    /// Channel to the writing thread; `None` after the last block.
    give: Option<Give<Block>>,
    back: Receiver<Block>,
    thread: Option<JoinHandle<Result<Box<dyn Sink>, FlowError>>>,
    block: Block,
    /// When the first bytes of `block` arrived; `None` until this time is recorded.
    since: Option<Duration>,
    /// Empty blocks. The block that was emptied last is used first, because its memory is still in
    /// a cache.
    free: Vec<Block>,
    made: usize,
    durable: Arc<AtomicU64>,
}

/// Bytes in order of arrival, and their offsets.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// For each part of `bytes`: its offset in the object, and its end in `bytes`.
    parts: Vec<(u64, usize)>,
}

impl WriteBlocks {
    fn new(store: Store) -> Result<Self, FlowError> {
        let (give, given) = channel();
        let (tell, back) = channel();
        let durable = Arc::clone(&store.durable);
        let thread = std::thread::Builder::new()
            .name("transfer-write".to_owned())
            .spawn(move || drain(store, &given, &tell))?;
        let thread = Some(thread);
        let block = Block::new();
        Ok(Self { give: Some(give), back, thread, block, since: None, free: Vec::new(), made: 1, durable })
    }

    fn has_room(&self) -> bool {
        self.made - self.free.len() < BLOCKS
    }

    /// Takes back written blocks. If the thread ended before the last block, returns the thread's
    /// error.
    fn collect(&mut self, mut for_at_most: Duration) -> Result<(), FlowError> {
        loop {
            match self.back.recv_timeout(for_at_most) {
                Ok(block) => self.free.push(block),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) if self.give.is_some() => return Err(self.why()),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            for_at_most = Duration::ZERO;
        }
    }

    fn why(&mut self) -> FlowError {
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(error))) => error,
            _ => thread_panicked(),
        }
    }

    /// Adds bytes. A block of at least [`GIVEN_MIN`] bytes ends at the next multiple of
    /// [`BLOCK_BYTES`] in the object. Then bytes that are hashed together are usually written
    /// together, and need not be read back.
    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        let to_end = BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize;
        let Some((before, after)) = bytes.split_at_checked(to_end) else {
            return self.gather(offset, bytes);
        };
        self.gather(offset, before)?;
        if self.block.bytes.len() >= GIVEN_MIN {
            self.send_block()?;
        }
        self.gather(offset + before.len() as u64, after)
    }

    fn gather(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Block { bytes: gathered, parts } = &self.block;
        if gathered.len() + bytes.len() > BLOCK_BYTES || parts.len() >= PARTS_MAX {
            self.send_block()?;
        }
        let Block { bytes: gathered, parts } = &mut self.block;
        let carries_on = parts.last().is_some_and(|(at, end)| {
            let begin =
                parts.len().checked_sub(2).and_then(|before| parts.get(before)).map_or(0, |part| part.1);
            at + (end - begin) as u64 == offset
        });
        gathered.extend_from_slice(bytes);
        match parts.last_mut() {
            Some(last) if carries_on => last.1 = gathered.len(),
            _ => parts.push((offset, gathered.len())),
        }
        Ok(())
    }

    fn flush(&mut self, now: Duration, all: bool) -> Result<(), FlowError> {
        if self.block.parts.is_empty() {
            return Ok(());
        }
        let since = *self.since.get_or_insert(now);
        if all || since + GATHER_FOR <= now { self.send_block() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), FlowError> {
        let flushed = self.flush(Duration::ZERO, true);
        self.give = None;
        flushed
    }

    fn send_block(&mut self) -> Result<(), FlowError> {
        let next = self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            Block::new()
        });
        self.since = None;
        let full = std::mem::replace(&mut self.block, next);
        let is_given = self.give.as_ref().is_some_and(|give| give.send(full).is_ok());
        if is_given { Ok(()) } else { Err(self.why()) }
    }
}

impl Block {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(BLOCK_BYTES), parts: Vec::new() }
    }
}

fn drain(mut store: Store, given: &Receiver<Block>, tell: &Give<Block>) -> Result<Box<dyn Sink>, FlowError> {
    loop {
        match given.recv_timeout(SYNC_EACH) {
            Ok(mut block) => {
                let mut at = 0;
                for (offset, end) in block.parts.drain(..) {
                    store.write(offset, block.bytes.get(at..end).unwrap_or_default())?;
                    at = end;
                }
                block.bytes.clear();
                // Ignore the error: the receiving thread may have ended.
                let _ = tell.send(block);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        store.sync_if_due()?;
    }
    store.sync()?;
    Ok(store.sink)
}

/// Maximum number of adjacent bytes that a sink receives in one write.
const BLOCK_BYTES: usize = 1 << 20;
/// Minimum number of bytes in a block that ends early, at a multiple of [`BLOCK_BYTES`] in the
/// object. Without this minimum, each small piece that fills a hole could end a block.
const GIVEN_MIN: usize = BLOCK_BYTES / 4;
/// Maximum number of parts in a block, so that the offsets of tiny parts do not fill memory. In a
/// full block with this number of parts, the mean part has 128 bytes.
const PARTS_MAX: usize = 8192;
/// Maximum number of blocks: 64 MiB in total. As many bytes may arrive at 10 Gbit/s in 50 ms, while
/// a disk makes data durable. Memory is allocated only when it is needed.
const BLOCKS: usize = 64;
/// Longest time for which received bytes of a slow flow wait for further bytes before they are
/// written.
const GATHER_FOR: Duration = Duration::from_millis(100);
/// Longest wait for a disk after a flow failed.
const ABANDON_FOR: Duration = Duration::from_secs(10);
/// Longest time between syncs. A crash loses at most one second of received data, as much as common
/// databases and journals lose. The lost data is sent again.
const SYNC_EACH: Duration = Duration::from_secs(1);
/// Maximum number of bytes between syncs of a fast flow; a disk of 500 MB/s writes them in half a
/// second.
const SYNC_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    type Writes = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

    struct Noting(Writes);

    impl Sink for Noting {
        fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((offset, bytes.to_vec()));
            Ok(())
        }

        fn sync(&mut self) -> Result<(), FlowError> {
            Ok(())
        }
    }

    /// The writes that a sink receives for packets with these starts and ends in `object`.
    fn written(packets: impl Iterator<Item = (usize, usize)>, object: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let writes = Writes::default();
        let mut writer = SinkWriter::new(Box::new(Noting(Arc::clone(&writes))), 0).expect("a thread begins");
        for (start, end) in packets {
            writer.put(start as u64, &object[start..end]).expect("it is taken");
        }
        writer.finish().expect("it is taken");
        writer.end().expect("it is written");
        std::mem::take(&mut *writes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn object(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    const PACKET: usize = 1433;

    #[test]
    fn packets_in_order_are_written_in_whole_blocks() {
        let object = object(5 * BLOCK_BYTES / 2);
        let packets = (0..object.len()).step_by(PACKET).map(|at| (at, object.len().min(at + PACKET)));
        let writes = written(packets, &object);
        let starts: Vec<u64> = writes.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(starts, [0, BLOCK_BYTES as u64, 2 * BLOCK_BYTES as u64]);
        let joined: Vec<u8> = writes.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(joined == object);
    }

    #[test]
    fn packets_in_any_order_are_written_at_their_offsets() {
        let object = object(3 * BLOCK_BYTES + 17);
        let mut packets: Vec<(usize, usize)> =
            (0..object.len()).step_by(PACKET).map(|at| (at, object.len().min(at + PACKET))).collect();
        // Every seventh packet arrives at the end, in reverse order.
        let late: Vec<(usize, usize)> = packets.iter().copied().step_by(7).rev().collect();
        packets.retain(|packet| !late.contains(packet));
        packets.extend(late);
        let mut there = vec![0; object.len()];
        let mut bytes = 0;
        for (offset, part) in written(packets.into_iter(), &object) {
            bytes += part.len();
            there[offset as usize..offset as usize + part.len()].copy_from_slice(&part);
        }
        assert_eq!(bytes, object.len());
        assert!(there == object);
    }
}
