//! The sending end, with one receiver or several that share the destination's storage.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::outgoing::{self, Errand};
use super::receivers::Receivers;
use super::talk::{LOOK_EVERY, check_stop};
use super::{Event, SendConfig, SessionError, Summary, To};
use crate::files::{Source, TransferId};
use crate::io::control::Reason;
use crate::io::flow::{FlowError, FlowProgress};
use crate::proto::Stats;

pub(super) fn send(
    config: &SendConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Summary, SessionError> {
    let began = Instant::now();
    let (mut source, notices) = Source::walk(&config.paths, config.walk)?;
    notices.into_iter().for_each(|notice| on_event(Event::Notice(notice)));
    check_stop(stop)?;
    let manifest = source.manifest().encode();
    let id = outgoing::identifier(&manifest);
    if let Some(memory) = &config.memory {
        // Ignore an error: without kept hashes, a resumed transfer reads files twice, but works.
        let _ = source.remember(memory, TransferId(id));
    }
    let all: Vec<&To> = std::iter::once(&config.to).chain(&config.others).collect();
    let mut receivers = Receivers::new(all.len());
    let (mut source, mut before) = (Some(source), Before::default());
    let ended = loop {
        let Some(own) = source.take() else { break Err(SessionError::broken()) };
        let to = all.get(receivers.at()).copied().unwrap_or(&config.to);
        let errand = Errand { id, manifest: &manifest, may_leave: receivers.may_leave() };
        let session = outgoing::session(config, to, own, &errand, stop, &mut |event| {
            on_event(match event {
                Event::Progress(seen) => Event::Progress(before.with(seen)),
                other => other,
            });
        });
        source = session.source;
        let error = match session.ended {
            Ok(summary) => break Ok(before.sum(summary, began)),
            Err(error) => error,
        };
        before.add(session.seen, session.begun);
        let Some(wait) = receivers.after(began.elapsed(), &error, session.durable_bytes) else {
            break Err(error);
        };
        let (host, port) = all.get(receivers.at()).copied().unwrap_or(&config.to).place();
        on_event(Event::Elsewhere { why: error, host: host.into(), port });
        if !is_waited(wait, stop) {
            break Err(FlowError::Stopped.into());
        }
    };
    let forgets = matches!(&ended, Ok(_) | Err(SessionError::Refused { reason: Reason::Digest, .. }));
    // If they are not forgotten, dropping the source writes the hashes to the disk.
    if let Some(mut source) = source
        && forgets
    {
        // Ignore an error: remaining hashes do no harm: they are used only if the files are
        // unchanged.
        let _ = source.forget();
    }
    ended
}

/// Waits for `wait`; `false` if `stop` was set before the end.
fn is_waited(wait: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + wait;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
    }
    !stop.load(Ordering::Relaxed)
}

/// Sums over the sessions with earlier receivers.
#[derive(Debug, Default)]
struct Before {
    held_bytes: Option<u64>,
    lasted: Duration,
    seen: FlowProgress,
}

impl Before {
    fn add(&mut self, seen: FlowProgress, begun: Option<(u64, Duration)>) {
        let Some((held_bytes, lasted)) = begun else { return };
        self.held_bytes.get_or_insert(held_bytes);
        self.lasted += lasted;
        self.seen = self.with(seen);
    }

    /// Counters of all sessions, the present one included.
    fn with(&self, seen: FlowProgress) -> FlowProgress {
        let (own, of) = (self.seen.stats, seen.stats);
        let stats = Stats {
            sent_packets: own.sent_packets + of.sent_packets,
            sent_bytes: own.sent_bytes + of.sent_bytes,
            acked_bytes: own.acked_bytes + of.acked_bytes,
            probe_packets: own.probe_packets + of.probe_packets,
            lost_packets: own.lost_packets + of.lost_packets,
            spurious_packets: own.spurious_packets + of.spurious_packets,
            lost_host: own.lost_host + of.lost_host,
            lost_network: own.lost_network + of.lost_network,
            lost_unknown: own.lost_unknown + of.lost_unknown,
        };
        // Every field is named, so that a new one must be a sum or the last value.
        FlowProgress {
            stats,
            held_bytes: seen.held_bytes,
            durable_bytes: seen.durable_bytes,
            rate_bytes_s: seen.rate_bytes_s,
            rtt: seen.rtt,
            limit: seen.limit,
            drain_bytes_s: seen.drain_bytes_s,
            cpu: self.seen.cpu + seen.cpu,
            cpu_classifier: self.seen.cpu_classifier + seen.cpu_classifier,
            busy: self.seen.busy + seen.busy,
            busy_reader: self.seen.busy_reader + seen.busy_reader,
            lacked: self.seen.lacked + seen.lacked,
            refused_datagrams: self.seen.refused_datagrams + seen.refused_datagrams,
        }
    }

    fn sum(&self, last: Summary, began: Instant) -> Summary {
        Summary {
            held_bytes: self.held_bytes.unwrap_or(last.held_bytes),
            lasted: self.lasted + last.lasted,
            lasted_all: began.elapsed(),
            seen: self.with(last.seen),
            ..last
        }
    }
}
