//! Signals as messages: stop, stop at once, read the configuration again.

use std::sync::mpsc::{Receiver, channel};

use tokio::signal::unix::{SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT or SIGTERM.
    Stop,
    /// SIGHUP.
    Reload,
}

/// Takes SIGINT, SIGTERM and SIGHUP from now on; they arrive at the receiver.
///
/// # Errors
/// When the thread or the handlers cannot be made.
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
                // Who asks to reload and then to stop has both done, in that order.
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
