//! Transfers that are stopped, and resume.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barograph_transfer::controller::ControllerKind;
use barograph_transfer::io::FlowError;
use barograph_transfer::io::{
    ReceiverEndpoint, SendConfig, SessionError, TransferEvent, TransferSummary, send,
};
use barograph_transfer::testkit::files::{Source, WalkConfig};
use barograph_transfer::testkit::io::control::{Message, RefuseReason};
use tempfile::tempdir;

use super::common::*;

const BYTES: usize = 12 << 20;

/// Bytes that the receiver had when a session began, and bytes that were acknowledged in this
/// session.
#[derive(Debug, Default)]
struct Session {
    held_bytes: u64,
    acked_bytes: u64,
}

/// Returns the configuration of a slow sender, which can be stopped during the transfer. The whole
/// transfer takes at least 0.6 s.
fn slowly(path: &Path, to: ReceiverEndpoint) -> SendConfig {
    SendConfig { controller: ControllerKind::Fixed, rate_bytes_s: Some(2e7), ..to_send(path, to) }
}

/// Sends until the receiver has `enough` bytes, and then sets `stop`. If `stop` is [`NEVER`], stops
/// the sender instead.
fn send_until(
    config: SendConfig,
    enough: u64,
    stop: &AtomicBool,
) -> (Session, Result<TransferSummary, SessionError>) {
    let (mut session, own) = (Session::default(), AtomicBool::new(false));
    let is_own = std::ptr::eq(stop, &NEVER);
    let ended = send(config, &own, &mut |event| match event {
        TransferEvent::Begun { held_bytes, .. } => session.held_bytes = held_bytes,
        TransferEvent::Progress(seen) => {
            session.acked_bytes = seen.stats.acked_bytes;
            if enough <= seen.held_bytes {
                (if is_own { &own } else { stop }).store(true, Ordering::Relaxed);
            }
        }
        _ => {}
    });
    (session, ended)
}

static NEVER: AtomicBool = AtomicBool::new(false);

/// Returns three numbers of bytes in ascending order. Each number is within the first two fifths of
/// the object, so that enough bytes remain if the stop comes late.
fn moments(seed: u64) -> Vec<u64> {
    let mut moments: Vec<u64> =
        noise(seed, 3).into_iter().map(|byte| u64::from(byte) * BYTES as u64 / 640).collect();
    moments.sort_unstable();
    moments
}

fn check(from: &Path, into: &Path, sessions: &[Session], last: &TransferSummary) {
    for pair in sessions.windows(2) {
        assert!(
            pair[0].held_bytes + pair[0].acked_bytes <= pair[1].held_bytes,
            "what was acknowledged is not sent again: {sessions:?}"
        );
    }
    let before = sessions.last().unwrap();
    assert!(before.held_bytes + before.acked_bytes <= last.held_bytes, "{sessions:?} {last:?}");
    assert!(last.held_bytes > 0, "{sessions:?}");
    assert_eq!(last.held_bytes + last.progress.stats.acked_bytes, BYTES as u64);
    assert!(fs::read(from).unwrap() == fs::read(into.join("file")).unwrap());
    assert_eq!(fs::read_dir(into).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_stopped_sender_resumes_the_transfer() {
    for seed in 1..=2 {
        let ([_from, into], path) = file_to_send(&noise(seed, BYTES));
        // Each session has a different receiver address.
        let mut sessions = vec![];
        for enough in moments(seed) {
            let served = Served::new(config(into.path()), false);
            let (session, ended) = send_until(slowly(&path, served.to()), enough, &NEVER);
            assert!(matches!(ended, Err(SessionError::Flow(FlowError::Stopped))), "{ended:?}");
            let told = served.ended();
            assert!(
                matches!(&told, Err(SessionError::Refused { reason: RefuseReason::Stopped, .. })),
                "{told:?}"
            );
            sessions.push(session);
        }
        let served = Served::new(config(into.path()), true);
        let last = sent(to_send(&path, served.to())).unwrap();
        check(&path, into.path(), &sessions, &last);
    }
}

#[test]
fn a_restarted_receiver_with_another_address_resumes_the_transfer() {
    let ([_from, into], path) = file_to_send(&noise(3, BYTES));
    let mut sessions = vec![];
    for enough in moments(3) {
        let served = Served::new(config(into.path()), false);
        let (session, ended) = send_until(slowly(&path, served.to()), enough, &served.stop);
        assert!(
            matches!(&ended, Err(SessionError::Refused { reason: RefuseReason::Stopped, .. })),
            "{ended:?}"
        );
        let told = served.ended();
        assert!(matches!(&told, Err(SessionError::Flow(FlowError::Stopped))), "{told:?}");
        served.join();
        sessions.push(session);
    }
    let served = Served::new(config(into.path()), true);
    let last = sent(to_send(&path, served.to())).unwrap();
    check(&path, into.path(), &sessions, &last);
}

#[test]
fn a_sender_that_sent_nothing_removes_no_partial_files() {
    let ([_from, into], path) = file_to_send(&noise(6, BYTES));
    let served = Served::new(config(into.path()), false);
    let (_, ended) = send_until(slowly(&path, served.to()), BYTES as u64 / 4, &NEVER);
    assert!(ended.is_err());
    assert!(served.ended().is_err());

    let (source, _) = Source::walk(std::slice::from_ref(&path), WalkConfig::default()).unwrap();
    let Message::Offer { manifest, suites, datagram_bytes_max, .. } = offer(source.manifest().encode())
    else {
        panic!()
    };
    let twice = blake3::hash(blake3::hash(&manifest).as_bytes());
    let id = *twice.as_bytes().first_chunk().unwrap();
    let mut channel = connect(&served);
    channel.send(&Message::Offer { id, manifest, suites, datagram_bytes_max }).unwrap();
    let Ok(Message::Accept { held, .. }) = channel.wait(&AtomicBool::new(false)) else { panic!() };
    let held: u64 = held.iter().map(|range| range.end - range.start).sum();
    assert!(BYTES as u64 / 4 <= held);
    channel.refuse(RefuseReason::Changed, "it is another's");
    let told = served.ended();
    assert!(matches!(&told, Err(SessionError::Refused { reason: RefuseReason::Changed, .. })), "{told:?}");

    assert_eq!(sent(to_send(&path, served.to())).unwrap().held_bytes, held);
}

#[test]
fn a_sender_receives_the_durable_bytes_and_caches_its_hashes() {
    let (from, into, memory) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let path = from.path().join("file");
    fs::write(&path, noise(4, BYTES)).unwrap();
    let memory = memory.path().join("memory");
    let durable = Arc::new(AtomicU64::new(0));
    let served = Served::new(config(into.path()), false);
    let slowly = || SendConfig {
        rate_bytes_s: Some(6e6),
        hash_cache_directory: Some(memory.clone()),
        ..slowly(&path, served.to())
    };
    let stop = AtomicBool::new(false);
    let ended = send(slowly(), &stop, &mut |event| {
        if let TransferEvent::Progress(seen) = event
            && seen.durable_bytes > 0
        {
            durable.store(seen.durable_bytes, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(ended, Err(SessionError::Flow(FlowError::Stopped))), "{ended:?}");
    assert!(served.ended().is_err());
    assert!(fs::read_dir(&memory).unwrap().count() > 0);
    let last = sent(slowly()).unwrap();
    assert!(0 < durable.load(Ordering::Relaxed) && durable.load(Ordering::Relaxed) <= last.held_bytes);
    assert!(served.ended().is_ok());
    assert_eq!(fs::read_dir(&memory).unwrap().count(), 0, "it is forgotten once it is of no use");
}
