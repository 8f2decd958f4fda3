//! Reads the stream of records into the archive.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::super::connection::RequestError;
use super::super::progress::{LeaderEnd, Progress};
use super::super::stream_position::StreamPosition;
use super::super::stream_read;
use super::super::streams::{self, RECORDS};
use super::{RETRY_MAX, RETRY_MIN, Shared};
use crate::log_limiter::LogLimiter;
use crate::{EngineError, Record};

pub(super) async fn read(shared: Arc<Shared>, mut position: StreamPosition) {
    let mut wait = RETRY_MIN;
    let mut log_limiter = LogLimiter::default();
    loop {
        let before = position.seq;
        let Err(why) = follow(&shared, &mut position, &mut log_limiter).await;
        if before < position.seq {
            wait = RETRY_MIN;
        }
        {
            let mut statistics = shared.lock();
            if statistics.last_error.as_ref() != Some(&why) {
                tracing::warn!(%why, "the archive cannot read the stream; retrying");
            }
            statistics.last_error = Some(why);
        }
        sleep(wait).await;
        wait = (2 * wait).min(RETRY_MAX);
    }
}

/// Reads existing and new messages. Returns the reason why reading cannot continue.
async fn follow(
    shared: &Shared,
    position: &mut StreamPosition,
    log_limiter: &mut LogLimiter,
) -> Result<std::convert::Infallible, String> {
    let said = |error: RequestError| EngineError::from(error).to_string();
    streams::ensure(&shared.connection).await.map_err(|error| error.to_string())?;
    let requested = Instant::now();
    let extent = streams::extent(&shared.connection, RECORDS).await.map_err(said)?;
    if position.stream != extent.created {
        position.begin(extent.created);
    }
    find_again(shared, position, &extent.state).await.map_err(said)?;
    let before = shared.progress.borrow().clone();
    let end = before.end.filter(|_| before.stream == position.stream).or(Some(extent.state.last_seq));
    let (stream, seq, own) = (position.stream.clone(), position.seq, position.watermark());
    let leader = Some(LeaderEnd { seq: extent.state.last_seq, requested });
    shared.progress.send_replace(Progress { stream, seq, end, leader, own });
    check_bucket(shared).await;
    let mut updated = None::<Instant>;
    let mut written = Instant::now();
    let mut checked = Instant::now();
    let mut bucket_checked = Instant::now();
    let mut kept = position.seq;
    let mut behind = None;
    loop {
        let pending = step(shared, position, log_limiter).await?;
        // Writing the file costs as much as storing many records, so the file is written less
        // often. Records after the written position are read again.
        if kept < position.seq && written.elapsed() >= WRITE_EVERY {
            position.write(&shared.file);
            (written, kept) = (Instant::now(), position.seq);
        }
        if pending == 0 {
            let is_awaited = shared.progress.receiver_count() > 0;
            let (check_every, pause) =
                if is_awaited { (END_EVERY, END_EVERY) } else { (CHECK_EVERY, POLL_EVERY) };
            if check_every <= checked.elapsed() {
                check_stream(shared, position, &mut behind).await?;
                checked = Instant::now();
            }
            if bucket_checked.elapsed() >= CHECK_EVERY {
                check_bucket(shared).await;
                bucket_checked = Instant::now();
            }
            if updated.is_none_or(|updated| updated.elapsed() >= UPDATE_EVERY) {
                updated = Some(Instant::now());
                update_streams(shared).await;
            }
            // A request for unread records ends the pause.
            let _ = timeout(pause, shared.wanted.notified()).await;
        }
    }
}

/// Moves the position back to the newest message that was read and is still in the stream
/// unchanged. A server that lost unsynced messages reuses the numbers of these messages for
/// different messages.
async fn find_again(
    shared: &Shared,
    position: &mut StreamPosition,
    state: &streams::State,
) -> Result<(), RequestError> {
    // The stream's limits of age or size removed every message up to the position. The remaining
    // messages are unread.
    if position.seq < state.first_seq && position.seq <= state.last_seq {
        return Ok(());
    }
    for (index, (seq, stored_at)) in position.checkpoints().into_iter().enumerate() {
        // If the comparison has no result, the message does not arrive or this replica is behind.
        // Then decide by the last number of the stream.
        let is_there = is_as_read(shared, seq, &stored_at).await?.unwrap_or(seq <= state.last_seq);
        if is_there {
            if index > 0 {
                tracing::warn!(after = seq, "{LOST}; it is read again from there");
            }
            // The messages after this message did not arrive and cannot be compared, so read them
            // again.
            position.go_back(Some((seq, stored_at)));
            return Ok(());
        }
    }
    if position.newest.is_some() || state.last_seq < position.seq {
        tracing::warn!("{LOST}; it is read again from its beginning");
        position.go_back(None);
    }
    Ok(())
}

/// Whether the message that was stored at this time is still in the stream; `None` if no message
/// arrived.
async fn is_as_read(shared: &Shared, seq: u64, stored_at: &str) -> Result<Option<bool>, RequestError> {
    let there = stream_read::read_range(&shared.connection, RECORDS, stream_read::ALL, seq, 1).await?;
    let message = there.messages.first().filter(|stored| stored.seq == seq);
    Ok(message.map(|stored| stored.stored_at() == Some(stored_at)))
}

/// Applies the current bounds to streams that an older version created. If the servers deny the
/// change or do not respond, the archive continues.
async fn update_streams(shared: &Shared) {
    match streams::update(&shared.connection).await {
        Ok(()) => {}
        Err(error @ EngineError::Denied(_)) => tracing::warn!(
            %error, "cannot update the limits of the streams; any member can stop the NATS servers \
            (docs/nats-operations.md, \"From an older mesh\")"
        ),
        Err(error) => tracing::warn!(%error, "cannot check the limits of the streams; retrying"),
    }
}

/// Reads the creation time of the bucket, which members request from an archive.
async fn check_bucket(shared: &Shared) {
    if let Some(created) = streams::bucket(&shared.connection).await {
        let mut bucket = shared.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.as_ref() != Some(&created) {
            // The numbers of a new bucket start from 1.
            shared.newest.store(0, Ordering::Relaxed);
            *bucket = Some(created);
        }
    }
}

/// Checks with the leader that the stream is still that of `position`, and records the end of the
/// stream. A different stream does not have the expected records.
///
/// `behind` is the time since which the leader has reported an earlier end than `position`, and no
/// server has confirmed the message at `position`.
async fn check_stream(
    shared: &Shared,
    position: &StreamPosition,
    behind: &mut Option<Instant>,
) -> Result<(), String> {
    let requested = Instant::now();
    let extent = match streams::extent(&shared.connection, RECORDS).await {
        Ok(extent) => extent,
        // The servers' queue for such requests may be full. Ignore this error, because reads of
        // records do not use this queue.
        Err(RequestError::NoAnswer(why)) => {
            tracing::debug!(%why, "the stream is not checked");
            return Ok(());
        }
        Err(error) => return Err(EngineError::from(error).to_string()),
    };
    let state = extent.state;
    if extent.created != position.stream {
        return Err(LOST.into());
    }
    if state.last_seq < position.seq {
        // A busy leader may be behind the replica from which this archive read. The replica that
        // answers the read may be behind too: then no message arrives.
        let newest = position.newest.as_ref().filter(|(newest, _)| *newest == position.seq);
        let Some((seq, stored_at)) = newest else { return Err(LOST.into()) };
        let is_there = match is_as_read(shared, *seq, stored_at).await {
            Ok(is_there) => is_there,
            Err(RequestError::NoAnswer(_)) => None,
            Err(error) => return Err(EngineError::from(error).to_string()),
        };
        return if is_lost(is_there, behind, Instant::now()) { Err(LOST.into()) } else { Ok(()) };
    }
    *behind = None;
    let leader = Some(LeaderEnd { seq: state.last_seq, requested });
    shared.progress.send_modify(|progress| progress.leader = leader);
    // The stream is empty, so requests up to its end can be answered. The position stays: a server
    // with a failed disk also reports an empty stream, and finds the messages again after a
    // restart.
    if state.last_seq < state.first_seq {
        shared.progress.send_modify(|progress| progress.seq = state.last_seq);
    }
    Ok(())
}

/// Returns whether messages that were read are lost, if the leader reports an earlier end.
/// `is_there` is true if the last message that was read is in the stream unchanged, and `None` if
/// no server sent that message. `behind` is the time since which no server has sent that message.
fn is_lost(is_there: Option<bool>, behind: &mut Option<Instant>, now: Instant) -> bool {
    match is_there {
        Some(is_there) => {
            *behind = None;
            !is_there
        }
        None => now - *behind.get_or_insert(now) >= BEHIND_MAX,
    }
}

/// Messages that were read for one commit.
#[derive(Default)]
struct ReadAhead {
    records: Vec<Record>,
    /// When the servers stored each record, in nanoseconds since 1970-01-01 UTC; `None` = unknown.
    stored_unix_ns: Vec<Option<i64>>,
    count: u64,
    discarded: u64,
    /// Sequence number of the last message, which may be a lost message; `None` if there is no new
    /// message.
    last: Option<u64>,
    /// Sequence number and storage time of the last message that arrived.
    newest: Option<(u64, String)>,
    /// Number of further messages in the stream.
    pending: u64,
}

/// Reads several ranges of messages for one commit. A range ends after a fixed number of bytes, and
/// a record may take far more bytes as a message than in the archive. With one commit for each
/// range, a few such records would delay the records of all stations.
///
/// If the message at the position arrived earlier, the first range begins with that message, and
/// the function compares the two copies.
async fn read_ahead(
    shared: &Shared,
    position: &StreamPosition,
    log_limiter: &mut LogLimiter,
) -> Result<ReadAhead, String> {
    let mut ahead = ReadAhead::default();
    let newest = position.newest.as_ref().filter(|(newest, _)| *newest == position.seq);
    for _ in 0..RANGES_MAX {
        let first = match ahead.last {
            None if newest.is_some() => position.seq,
            last => last.unwrap_or(position.seq).saturating_add(1),
        };
        let range =
            stream_read::read_range(&shared.connection, RECORDS, stream_read::ALL, first, RANGE_MESSAGES)
                .await;
        let range = range.map_err(|error| EngineError::from(error).to_string())?;
        ahead.pending = range.pending;
        for message in &range.messages {
            if let Some((_, stored_at)) = newest.filter(|(newest, _)| *newest == message.seq) {
                if message.stored_at() != Some(stored_at) {
                    return Err(LOST.into());
                }
                continue;
            }
            ahead.count += 1;
            if let Some(stored_at) = message.stored_at() {
                ahead.newest = Some((message.seq, stored_at.to_owned()));
            }
            match message.record() {
                Ok(record) => {
                    ahead.records.push(record);
                    ahead.stored_unix_ns.push(message.stored_unix_ns());
                }
                Err(why) => {
                    ahead.discarded += 1;
                    let origin = message.subject.split('.').nth(2).unwrap_or_default();
                    if log_limiter.is_due(origin, Instant::now().into_std()) {
                        tracing::warn!(%why, seq = message.seq, "a message was discarded");
                    }
                }
            }
        }
        for &(from, to) in range.lost.iter().filter(|(_, to)| position.seq < *to) {
            let count = to - from.max(position.seq + 1) + 1;
            (ahead.count, ahead.discarded) = (ahead.count + count, ahead.discarded + count);
            if log_limiter.is_due("", Instant::now().into_std()) {
                tracing::warn!(seq = to, "skipped a message that the servers do not deliver");
            }
        }
        let before = ahead.last;
        ahead.last = ahead.last.max(range.last().filter(|last| position.seq < *last));
        if ahead.last == before
            || range.pending == 0
            || ahead.records.len() + RANGE_MESSAGES > Record::BATCH_MAX
        {
            break;
        }
    }
    Ok(ahead)
}

/// Reads the records of one commit into the archive. Returns the number of messages in the stream
/// that are still to be read.
async fn step(
    shared: &Shared,
    position: &mut StreamPosition,
    log_limiter: &mut LogLimiter,
) -> Result<u64, String> {
    let ahead = read_ahead(shared, position, log_limiter).await?;
    let ReadAhead { mut records, stored_unix_ns, count, discarded, last, newest, pending } = ahead;
    let Some(last) = last else {
        let mut statistics = shared.lock();
        (statistics.lag, statistics.last_error) = (0, None);
        return Ok(0);
    };
    // The position moves only after the archive's commit.
    shared.local.bound_labels(records.iter_mut().zip(stored_unix_ns));
    shared.local.append_forwarded(&records).await.map_err(|error| error.to_string())?;
    {
        let mut statistics = shared.lock();
        statistics.consumed += count;
        statistics.discarded += discarded;
        // All messages in the stream are read, so a gap in their numbers shows messages that have
        // left it. Messages that left the stream before this archive read its first message are not
        // counted.
        if position.seq != 0 {
            statistics.missed += last.saturating_sub(position.seq).saturating_sub(count);
        }
        (statistics.lag, statistics.last_error) = (pending, None);
    }
    for record in records.iter().filter(|record| record.origin == shared.connection.config.host) {
        position.record_own(record);
    }
    position.move_to(last, newest);
    shared.progress.send_modify(|progress| (progress.seq, progress.own) = (last, position.watermark()));
    Ok(pending)
}

/// Reason to read the stream again.
const LOST: &str = "the stream was recreated, or lost messages that this archive had read";

/// Largest number of messages in one range.
const RANGE_MESSAGES: usize = 1000;

/// Largest number of ranges that are read for one commit. With the longest messages, these ranges
/// have 32 MiB: many times the bytes that servers accept in a second if they sync each message.
const RANGES_MAX: usize = 32;

/// Longest time that a record is in the stream before it is read into the archive.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Interval of checks whether the stream was recreated.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Interval of checks whether the stream was recreated, while requests wait. A waiting request may
/// need a position that the stream does not have.
const END_EVERY: Duration = Duration::from_millis(100);

/// Time for which all servers may be behind this archive before their messages count as lost. In a
/// measurement with 700 records a second, a response took up to 3.9 s.
const BEHIND_MAX: Duration = Duration::from_secs(5);

/// Interval of attempts to change the streams. Servers that refuse a change may permit it later.
const UPDATE_EVERY: Duration = Duration::from_mins(1);

/// Interval of writes of the position. The stored position need not be exact, and fewer writes
/// reduce the load of the disk.
const WRITE_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_no_server_sends_is_lost_after_a_time_limit() {
        let (begin, mut behind) = (Instant::now(), None);
        let mut look = |is_there, after| is_lost(is_there, &mut behind, begin + after);
        let almost = BEHIND_MAX - Duration::from_millis(1);
        assert!(!look(None, Duration::ZERO) && !look(None, almost), "the replica may be behind");
        assert!(!look(Some(true), almost) && !look(None, BEHIND_MAX), "it was sent meanwhile");
        assert!(look(None, 2 * BEHIND_MAX));
        assert!(look(Some(false), Duration::ZERO), "another message has its number");
    }
}
