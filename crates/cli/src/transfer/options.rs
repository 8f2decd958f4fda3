//! What both commands are given alike, and how it is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_station::{Signal, signals};
use barograph_transfer::io::identity::{Fingerprint, Identity, Trust};

use super::show::Show;

/// Where `barograph send HOST` looks if no port is said: one above a station's.
pub(crate) const PORT: u16 = 10_133;

/// Who this end is, and whom it trusts beside the line.
#[derive(Debug, clap::Args)]
pub(crate) struct IdentityArgs {
    /// Certificate and private key of this end, in one PEM file that is made if it is not there [default: new ones each time]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Trust whom these certificate authorities vouch for (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) authorities: Option<PathBuf>,
}

impl IdentityArgs {
    /// This end's certificate, where one was given; `made` is told of one that was not there before.
    pub(crate) fn identity(&self, made: impl FnOnce(String)) -> Result<Option<Identity>, String> {
        let Some(path) = &self.identity else { return Ok(None) };
        let is_new = !path.exists();
        let identity = Identity::kept_in(path).map_err(|error| error.to_string())?;
        if is_new {
            made(format!("made {}; its fingerprint is {}", path.display(), identity.fingerprint()));
        }
        Ok(Some(identity))
    }

    /// Whom to trust beside the line; `pins` are of other options.
    pub(crate) fn trust(&self, pins: &[Fingerprint]) -> Result<Option<Trust>, String> {
        match (&self.authorities, pins) {
            (Some(path), []) => Ok(Some(Trust::Authorities(read(path)?))),
            (None, [_, ..]) => Ok(Some(Trust::Pinned(pins.to_vec()))),
            (None, []) => Ok(None),
            (Some(_), _) => Err("--authorities cannot be combined with fingerprints".into()),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| {
        format!("{}: cannot be read: {}", path.display(), barograph_study::input::cause(&error))
    })
}

/// A certificate's SHA-256 as `openssl x509 -fingerprint -sha256` prints it, or without the colons.
pub(crate) fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// Stops when asked: at the first signal cleanly, at the second at once. A hangup is no reason to: transfers go on without a terminal.
pub(crate) fn stop_on_signal(show: &Arc<Show>) -> std::io::Result<Arc<AtomicBool>> {
    let signals = signals::listen()?;
    let (stop, show) = (Arc::new(AtomicBool::new(false)), Arc::clone(show));
    let told = Arc::clone(&stop);
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        while let Ok(signal) = signals.recv() {
            match signal {
                Signal::Reload => {}
                Signal::Stop if told.swap(true, Ordering::SeqCst) => std::process::exit(1),
                Signal::Stop if 0 < show.under_way() => show.say("stopping; once more stops at once"),
                Signal::Stop => {}
            }
        }
    })?;
    Ok(stop)
}

/// Said wherever nothing is sealed.
pub(crate) const CLEAR: &str = "--clear: if the other end says so too, what is sent is not sealed: whoever is on its way can read it, and change it until BLAKE3 tells at the end; \
     for networks of your own";
