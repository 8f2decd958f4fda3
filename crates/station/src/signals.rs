//! Signals of the process as messages: stop, and reload the configuration.

use std::sync::mpsc::{Receiver, channel};

use tokio::signal::unix::{SignalKind, signal};

/// What a signal requests from the station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop the station: SIGINT or SIGTERM.
    Stop,
    /// Reload the configuration: SIGHUP.
    Reload,
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP; the receiver gets one message for each signal.
///
/// # Errors
/// The error of the system if the thread or the handlers cannot be created.
pub fn listen() -> std::io::Result<Receiver<Signal>> {
    let (sender, receiver) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            loop {
                // If a reload and a stop are both pending, send the reload first.
                let signal = tokio::select! {
                    biased;
                    _ = hangup.recv() => Signal::Reload,
                    _ = interrupt.recv() => Signal::Stop,
                    _ = terminate.recv() => Signal::Stop,
                };
                if sender.send(signal).is_err() {
                    return;
                }
            }
        });
    })?;
    Ok(receiver)
}
