//! Several transfers at the same time, and a transfer with many files.

use std::fs;
use std::sync::mpsc::channel;

use barograph_transfer::controller::ControllerKind;
use barograph_transfer::io::RefuseReason;
use barograph_transfer::io::{ReceiveConfig, SendConfig, SessionError, TransferEvent, send};
use tempfile::tempdir;

use super::common::*;

#[test]
fn files_of_two_concurrent_senders_do_not_mix() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let served = Served::new(config(into.path()), false);
    std::thread::scope(|scope| {
        for name in ["one", "other"] {
            let path = from.path().join(name);
            fs::write(&path, noise(name.len() as u64, 4 << 20)).unwrap();
            let to = served.to();
            scope.spawn(move || sent(to_send(&path, to)).unwrap());
        }
    });
    served.ended().unwrap();
    served.ended().unwrap();
    assert!(listing(from.path()) == listing(into.path()));
}

#[test]
fn a_duplicate_transfer_or_one_transfer_too_many_is_refused_as_busy() {
    for transfers_max in [8, 1] {
        let ([_from, into], path) = file_to_send(&noise(9, 4 << 20));
        let served = Served::new(ReceiveConfig { transfers_max, ..config(into.path()) }, false);
        let (begun, begins) = channel();
        let (stop, to) = (std::sync::atomic::AtomicBool::new(false), served.to());
        std::thread::scope(|scope| {
            // At 100 kB/s the transfer runs until it is stopped.
            let slowly = SendConfig {
                controller: ControllerKind::Fixed,
                rate_bytes_s: Some(1e5),
                ..to_send(&path, to.clone())
            };
            scope.spawn(|| {
                send(slowly, &stop, &mut |event| {
                    if matches!(event, TransferEvent::Begun { .. }) {
                        begun.send(()).unwrap();
                    }
                })
                .unwrap_err()
            });
            begins.recv_timeout(TEST_TIMEOUT).unwrap();
            let second = sent(to_send(&path, to));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(
                matches!(&second, Err(SessionError::Refused { reason: RefuseReason::Busy, .. })),
                "{second:?}"
            );
        });
    }
}

#[test]
fn a_thousand_files_arrive() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let root = from.path().join("many");
    for number in 0..1000u64 {
        let directory = root.join(format!("{}", number % 10));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), noise(number, number as usize)).unwrap();
    }
    let served = Served::new(config(into.path()), true);
    let summary = sent(to_send(&root, served.to())).unwrap();
    assert_eq!((summary.files, summary.bytes), (1000, 999 * 500));
    assert!(listing(&root) == listing(&into.path().join("many")));
}
