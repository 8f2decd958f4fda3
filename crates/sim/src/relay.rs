//! Relay: one thread that moves packets between two TUN devices at the times that the models give.

mod event_loop;
mod stats;

use self::{event_loop::RelayLoop, stats::RelayStats};
use crate::{
    Error, LinkChange, LinkDirection, QueueChain, RelayOptions, namespace::system, report::RelayReport,
    sync::lock,
};
use nix::{sys::prctl, unistd::gettid};
use std::{
    fs::{self, File},
    io::{PipeWriter, pipe},
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

/// For each direction, a change that the relay has not made yet.
type Changes = Mutex<[Option<LinkChange>; 2]>;

/// A running relay; dropping it ends the thread and closes the devices.
#[derive(Debug)]
pub(crate) struct PacketRelay {
    stats: Arc<Mutex<RelayStats>>,
    changes: Arc<Changes>,
    thread_id: i32,
    realtime: bool,
    /// Write end of a pipe to the thread. Closing the pipe wakes and ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl PacketRelay {
    /// Starts the relay: packets from `tuns[0]` go through `models[0]` to `tuns[1]`, and vice
    /// versa.
    pub(crate) fn start(
        tuns: [File; 2],
        models: [LinkDirection; 2],
        options: RelayOptions,
    ) -> Result<Self, Error> {
        let queues = QueueChain::new(&options.queues, options.queues_seed)?;
        let (stopped, stop) = pipe().map_err(|e| Error::io("make a pipe", e))?;
        let stats = Arc::new(Mutex::new(RelayStats::new(options.late)));
        let changes = Arc::new(Changes::default());
        let (id_sender, id) = mpsc::channel();
        let (spin, offload) = (options.spin, options.offload);
        let work = {
            let (stats, changes) = (Arc::clone(&stats), Arc::clone(&changes));
            move || {
                // Ignore errors: the receiver waits for this value, unless the start of the whole
                // relay has failed.
                let _ = id_sender.send(gettid().as_raw());
                // Without this setting, the kernel may round each wake-up by 50 µs. If the kernel
                // refuses the setting, the measured lateness shows the effect.
                let _ = prctl::set_timerslack(1);
                RelayLoop::new(tuns, models, queues, stats, changes, spin, offload).run(&stopped);
            }
        };
        let thread = thread::Builder::new()
            .name("sim-relay".into())
            .spawn(work)
            .map_err(|e| Error::io("start the relay's thread", e))?;
        let thread_id = id.recv().map_err(|_| {
            Error::io("start the relay's thread", std::io::Error::other("the thread ended at once"))
        })?;
        let realtime = options.realtime && request_realtime(thread_id);
        Ok(Self { stats, changes, thread_id, realtime, stop: Some(stop), thread: Some(thread) })
    }

    /// Changes both directions, A to B first, for packets that arrive later.
    pub(crate) fn change(&self, changes: [LinkChange; 2]) {
        *lock(&self.changes) = changes.map(Some);
    }

    pub(crate) fn report(&self) -> RelayReport {
        let mut report = lock(&self.stats).report();
        report.realtime = self.realtime;
        report.running = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        report.mean_wait = mean_wait(self.thread_id);
        report
    }
}

impl Drop for PacketRelay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic of the relay has been printed; `drop` must not panic again.
            let _ = thread.join();
        }
    }
}

/// Requests real-time scheduling for a thread of this process; returns whether it was granted.
fn request_realtime(thread_id: i32) -> bool {
    system("chrt", &["-f", "-p", REALTIME_PRIORITY, &thread_id.to_string()], "").is_ok()
}

/// Mean time that the thread waited for a core when it was ready, from the scheduler's statistics
/// (Linux, Documentation/scheduler/sched-stats.rst: time on the cpu, time waiting, number of time
/// slices).
fn mean_wait(thread_id: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).ok()?;
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let (_, wait, slices) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Duration::from_nanos(wait / slices.max(1)))
}

/// Priority above normal threads and below the kernel's own (50).
const REALTIME_PRIORITY: &str = "10";
