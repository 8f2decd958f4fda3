//! Files that change while they are sent.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use barograph_transfer::controller::ControllerKind;
use barograph_transfer::files::FileError;
use barograph_transfer::io::FlowError;
use barograph_transfer::io::RefuseReason;
use barograph_transfer::io::{SendConfig, SessionError, TransferEvent, send};

use super::common::*;

fn disturbed(disturb: impl Fn(&Path)) -> (SessionError, SessionError) {
    let ([_from, into], path) = file_to_send(&noise(5, 24 << 20));
    let served = Served::new(config(into.path()), false);
    let slowly = SendConfig {
        controller: ControllerKind::Fixed,
        rate_bytes_s: Some(3e7),
        ..to_send(&path, served.to())
    };
    let mut is_done = false;
    let error = send(slowly, &false.into(), &mut |event| {
        if matches!(event, TransferEvent::Progress(seen) if seen.stats.acked_bytes > 0) && !is_done {
            is_done = true;
            disturb(&path);
        }
    })
    .unwrap_err();
    assert!(!into.path().join("file").exists());
    let told = served.ended().unwrap_err();
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0, "nothing is kept that nobody can go on with");
    (error, told)
}

#[test]
fn a_file_that_shrinks_ends_the_transfer_at_both_ends() {
    let (ours, theirs) =
        disturbed(|path| File::options().write(true).open(path).unwrap().set_len(1000).unwrap());
    let is_told = match &ours {
        SessionError::Flow(FlowError::File(error)) | SessionError::File(error) => {
            matches!(error, FileError::Shrank { end: 1000, .. })
        }
        _ => false,
    };
    assert!(is_told, "{ours:?}");
    assert!(
        matches!(&theirs, SessionError::Refused { reason: RefuseReason::Changed, text } if text.contains("shrank")),
        "{theirs:?}"
    );
}

#[test]
fn a_file_that_is_written_to_ends_the_transfer_at_both_ends() {
    let (ours, theirs) = disturbed(|path| {
        File::options().append(true).open(path).unwrap().write_all(b"more").unwrap();
    });
    assert!(ours.to_string().contains("changed while it was sent"), "{ours}");
    assert!(matches!(&theirs, SessionError::Refused { reason: RefuseReason::Changed, .. }), "{theirs:?}");
}
