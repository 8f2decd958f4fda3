//! Two receivers of one directory.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_transfer::controller::ControllerKind;
use barograph_transfer::io::ControlError;
use barograph_transfer::io::{ReceiverEndpoint, SendConfig, SessionError, TransferEvent, send};
use barograph_transfer::testkit::files::{Destination, DestinationConfig, FileError, Manifest, TransferId};
use tempfile::tempdir;

use super::common::*;

const BYTES: usize = 12 << 20;

/// What the sender's events reported.
#[derive(Debug, Default)]
struct Told {
    held_bytes: Vec<u64>,
    whys: Vec<String>,
}

/// Returns the configuration of a sender to both receivers. The rate is slow, so that tests can act
/// during the transfer.
fn to_both(path: &std::path::Path, first: ReceiverEndpoint, second: ReceiverEndpoint) -> SendConfig {
    SendConfig {
        controller: ControllerKind::Fixed,
        rate_bytes_s: Some(1e7),
        fallback_receivers: vec![second],
        ..to_send(path, first)
    }
}

#[test]
fn the_rest_goes_to_the_second_receiver_when_the_first_is_stopped() {
    let ([_from, into], path) = file_to_send(&noise(5, BYTES));
    let first = Served::new(config(into.path()), false);
    let second = Served::new(config(into.path()), true);
    let mut told = Told::default();
    let (mut most, mut is_back) = (0, false);
    let last =
        send(to_both(&path, first.to(), second.to()), &AtomicBool::new(false), &mut |event| match event {
            TransferEvent::Begun { held_bytes, .. } => told.held_bytes.push(held_bytes),
            TransferEvent::Progress(seen) => {
                if BYTES as u64 / 3 <= seen.held_bytes {
                    first.stop.store(true, Ordering::Relaxed);
                }
                is_back |= seen.stats.sent_bytes < most;
                most = seen.stats.sent_bytes;
            }
            TransferEvent::Failover { why, .. } => told.whys.push(why.to_string()),
            _ => {}
        });
    let last = last.unwrap();
    assert!(first.ended().is_err() && second.ended().is_ok());
    let [0, again] = told.held_bytes[..] else { panic!("{told:?}") };
    assert!(BYTES as u64 / 3 <= again && again < BYTES as u64, "{told:?}");
    assert_eq!((told.whys.len(), is_back), (1, false), "{told:?}");
    // The counts include both sessions. Bytes that the first receiver had are not sent again, but
    // bytes that were in flight are sent again.
    let stats = last.progress.stats;
    assert_eq!(last.held_bytes, 0, "{last:?}");
    assert!(stats.acked_bytes <= BYTES as u64 && BYTES as u64 <= stats.sent_bytes, "{stats:?}");
    assert!(stats.sent_bytes < BYTES as u64 + (1 << 20), "{stats:?}");
    assert!(fs::read(&path).unwrap() == fs::read(into.path().join("file")).unwrap());
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn an_unreachable_receiver_is_skipped_and_all_receivers_are_tried() {
    let ([_from, into], path) = file_to_send(&noise(6, 100_000));
    let gone = {
        let served = Served::new(config(into.path()), false);
        served.to()
    };
    let served = Served::new(config(into.path()), false);
    let summary = sent(to_both(&path, gone.clone(), served.to())).unwrap();
    assert_eq!(summary.progress.stats.acked_bytes, 100_000);
    assert!(served.ended().is_ok());
    drop(served);

    let ended = sent(to_both(&path, gone.clone(), gone));
    assert!(matches!(ended, Err(SessionError::Control(ControlError::Connect(..)))), "{ended:?}");
}

#[test]
fn a_refusal_that_every_receiver_would_give_ends_the_transfer() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let path = from.path().join("file");
    fs::write(&path, "new").unwrap();
    fs::write(into.path().join("file"), "old").unwrap();
    let served = [0, 1].map(|_| Served::new(config(into.path()), false));
    let mut turns = 0;
    let ended = send(to_both(&path, served[0].to(), served[1].to()), &AtomicBool::new(false), &mut |event| {
        turns += u64::from(matches!(event, TransferEvent::Failover { .. }));
    });
    assert!(matches!(ended, Err(SessionError::Refused { .. })), "{ended:?}");
    assert_eq!(turns, 0);
    assert_eq!(fs::read(into.path().join("file")).unwrap(), b"old");
}

/// Simulates a different host. Such a host does not see the lock of the directory, but sees the
/// lock of the file in the directory.
#[test]
fn the_lock_of_a_file_alone_excludes_another_host() {
    use rustix::fs::{FlockOperation, flock};

    let into = tempdir().unwrap();
    let (id, manifest) = (TransferId([7; 16]), Manifest::new(vec![]).unwrap());
    let open = || Destination::open(into.path(), id, manifest.clone(), DestinationConfig::default());
    drop(open().unwrap());
    let lock = fs::File::options().write(true).open(into.path().join(id.directory()).join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert!(matches!(open(), Err(FileError::Busy(_))));
    drop(lock);
    open().unwrap().discard().unwrap();
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0, "nothing is left");
}
