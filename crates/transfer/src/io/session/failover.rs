//! The sending end, with one receiver or several that share the destination's storage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::control_task::{POLL_INTERVAL, check_stop};
use super::outgoing::{self, SessionRequest};
use super::receivers::ReceiverRotation;
use super::{ReceiverEndpoint, SendConfig, SessionError, TransferEvent, TransferSummary};
use crate::files::{Source, TransferId};
use crate::io::control::RefuseReason;
use crate::io::flow::{FlowError, FlowProgress};
use crate::proto::SenderStats;

pub(super) fn send(
    config: &SendConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(TransferEvent),
) -> Result<TransferSummary, SessionError> {
    let began = Instant::now();
    let (mut source, notices) = Source::walk(&config.paths, config.walk)?;
    notices.into_iter().for_each(|notice| on_event(TransferEvent::Notice(notice)));
    check_stop(stop)?;
    let manifest = source.manifest().encode();
    let id = outgoing::identifier(&manifest);
    if let Some(directory) = &config.hash_cache_directory {
        // Ignore an error: without kept hashes, a resumed transfer reads files twice, but works.
        let _ = source.use_hash_cache(directory, TransferId(id));
    }
    let all: Vec<&ReceiverEndpoint> =
        std::iter::once(&config.receiver).chain(&config.fallback_receivers).collect();
    let mut receivers = ReceiverRotation::new(all.len());
    let (mut source, mut earlier) = (Some(source), EarlierSessions::default());
    let ended = loop {
        let Some(own) = source.take() else { break Err(SessionError::broken()) };
        let to = all.get(receivers.at()).copied().unwrap_or(&config.receiver);
        let request = SessionRequest { id, manifest: &manifest, may_leave: receivers.may_leave() };
        let session = outgoing::session(config, to, own, &request, stop, &mut |event| {
            on_event(match event {
                TransferEvent::Progress(progress) => TransferEvent::Progress(earlier.with(progress)),
                other => other,
            });
        });
        source = session.source;
        let error = match session.ended {
            Ok(summary) => break Ok(earlier.sum(summary, began)),
            Err(error) => error,
        };
        earlier.add(session.progress, session.begun);
        let Some(wait) = receivers.after(began.elapsed(), &error, session.durable_bytes) else {
            break Err(error);
        };
        let (host, port) = all.get(receivers.at()).copied().unwrap_or(&config.receiver).host_and_port();
        on_event(TransferEvent::Failover { why: error, host: host.into(), port });
        if !wait_unless_stopped(wait, stop) {
            break Err(FlowError::Stopped.into());
        }
    };
    let forgets = matches!(&ended, Ok(_) | Err(SessionError::Refused { reason: RefuseReason::Digest, .. }));
    // Remove the kept hashes after a success or a wrong digest. In all other cases, dropping the
    // source writes the hashes to the disk.
    if let Some(mut source) = source
        && forgets
    {
        // Ignore an error: remaining hashes do no harm, because they are used only if the files are
        // unchanged.
        let _ = source.remove_hash_cache();
    }
    ended
}

/// Waits for `wait`; `false` if `stop` was set before the end.
fn wait_unless_stopped(wait: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + wait;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
    }
    !stop.load(Ordering::Relaxed)
}

/// Sums of the counters over all sessions before the present session.
#[derive(Debug, Default)]
struct EarlierSessions {
    held_bytes: Option<u64>,
    lasted: Duration,
    progress: FlowProgress,
}

impl EarlierSessions {
    fn add(&mut self, progress: FlowProgress, begun: Option<(u64, Duration)>) {
        let Some((held_bytes, lasted)) = begun else { return };
        self.held_bytes.get_or_insert(held_bytes);
        self.lasted += lasted;
        self.progress = self.with(progress);
    }

    /// Counters of all sessions, including the present session.
    fn with(&self, progress: FlowProgress) -> FlowProgress {
        let (own, of) = (self.progress.stats, progress.stats);
        let stats = SenderStats {
            sent_packets: own.sent_packets + of.sent_packets,
            sent_bytes: own.sent_bytes + of.sent_bytes,
            acked_bytes: own.acked_bytes + of.acked_bytes,
            probe_packets: own.probe_packets + of.probe_packets,
            lost_packets: own.lost_packets + of.lost_packets,
            spurious_packets: own.spurious_packets + of.spurious_packets,
            lost_host: own.lost_host + of.lost_host,
            lost_network: own.lost_network + of.lost_network,
            lost_unknown: own.lost_unknown + of.lost_unknown,
            settled: own.settled + of.settled,
            taken_back: own.taken_back + of.taken_back,
            pending: own.pending + of.pending,
        };
        // Name every field here. If a field is added to the type, this code does not compile until
        // it defines the field as a sum or as the last value.
        FlowProgress {
            stats,
            held_bytes: progress.held_bytes,
            durable_bytes: progress.durable_bytes,
            rate_bytes_s: progress.rate_bytes_s,
            rtt: progress.rtt,
            limit: progress.limit,
            drain_bytes_s: progress.drain_bytes_s,
            cpu: self.progress.cpu + progress.cpu,
            cpu_classifier: self.progress.cpu_classifier + progress.cpu_classifier,
            busy_time: self.progress.busy_time + progress.busy_time,
            busy_reader: self.progress.busy_reader + progress.busy_reader,
            read_wait: self.progress.read_wait + progress.read_wait,
            refused_datagrams: self.progress.refused_datagrams + progress.refused_datagrams,
        }
    }

    fn sum(&self, last: TransferSummary, began: Instant) -> TransferSummary {
        TransferSummary {
            held_bytes: self.held_bytes.unwrap_or(last.held_bytes),
            lasted: self.lasted + last.lasted,
            lasted_all: began.elapsed(),
            progress: self.with(last.progress),
            ..last
        }
    }
}
