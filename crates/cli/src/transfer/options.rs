//! Options that `send` and `recv` share, and their parsers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_station::{Signal, signals};
use barograph_transfer::io::identity::{Fingerprint, Identity, Trust};

use super::show::TransferOutput;

/// Default port of `barograph send HOST`: the default port of a station plus one.
pub(crate) const PORT: u16 = 10_133;

/// Identity of this end, and the authorities that it trusts.
#[derive(Debug, clap::Args)]
pub(crate) struct IdentityArgs {
    /// PEM file with the certificate and private key of this end; a file that does not exist is
    /// created [default: a new certificate and key each time]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Trust certificates of these certificate authorities (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) authorities: Option<PathBuf>,
}

impl IdentityArgs {
    /// Identity of this end, if `--identity` was given. If the file does not exist, the function
    /// creates the file and calls `made` with a message for the user.
    pub(crate) fn identity(&self, made: impl FnOnce(String)) -> Result<Option<Identity>, String> {
        let Some(path) = &self.identity else { return Ok(None) };
        let is_new = !path.exists();
        let identity = Identity::kept_in(path).map_err(|error| error.to_string())?;
        if is_new {
            made(format!("created {}; its fingerprint is {}", path.display(), identity.fingerprint()));
        }
        Ok(Some(identity))
    }

    /// Certificates to trust besides the certificate of a receiver address; `pins` are the
    /// fingerprints that other options gave. Returns an error if both authorities and `pins` are
    /// given.
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
        format!("{}: cannot be read: {}", path.display(), barograph_study::input::io_message(&error))
    })
}

/// Parses a certificate's SHA-256 as `openssl x509 -fingerprint -sha256` prints it, or without
/// colons.
pub(crate) fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// Stops the transfers cleanly at the first signal, and ends the process at the next signal. A
/// hangup is ignored: transfers continue without a terminal.
pub(crate) fn stop_on_signal(output: &Arc<TransferOutput>) -> std::io::Result<Arc<AtomicBool>> {
    let signals = signals::listen()?;
    let (stop, output) = (Arc::new(AtomicBool::new(false)), Arc::clone(output));
    let told = Arc::clone(&stop);
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        while let Ok(signal) = signals.recv() {
            match signal {
                Signal::Reload => {}
                Signal::Stop if told.swap(true, Ordering::SeqCst) => std::process::exit(1),
                Signal::Stop if output.under_way() > 0 => {
                    output.message("Stopping… press Ctrl-C again to quit now")
                }
                Signal::Stop => {}
            }
        }
    })?;
    Ok(stop)
}

/// Warning that is printed with `--clear`.
pub(crate) const CLEAR: &str = "--clear: if the other end has it too, the data is not encrypted: anyone on the path can read it, and changes \
     are detected only at the end, by BLAKE3; use it on your own networks only";
