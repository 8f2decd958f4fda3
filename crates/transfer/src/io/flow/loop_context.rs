//! Clock, stop flag and progress of a loop: the code is the same for the sending and the receiving
//! loop.
#![expect(clippy::disallowed_methods, reason = "what waits for sockets and disks reads the clock")]

#[cfg(target_os = "linux")]
use std::ffi::c_ulong;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use barograph_loss::LabelledWindow;
#[cfg(target_os = "linux")]
use nix::sys::prctl;
use nix::time::{ClockId, clock_gettime};

use super::busy::{busy, this_thread};
use super::{FlowMonitor, FlowProgress};

/// Clock of a flow, with its stop flag and the progress that other threads read.
pub(super) struct LoopContext<'a> {
    monitor: &'a FlowMonitor,
    began: Instant,
    shown: Duration,
    cpu_before: Duration,
    thread: i32,
    busy_before: Option<Duration>,
    /// Timer slack of this thread before the flow.
    #[cfg(target_os = "linux")]
    slack_ns: Option<c_ulong>,
}

impl<'a> LoopContext<'a> {
    pub(super) fn new(monitor: &'a FlowMonitor) -> Self {
        #[cfg(target_os = "linux")]
        let slack_ns = prctl::get_timerslack().ok().and_then(|slack| c_ulong::try_from(slack).ok());
        // Ignore an error: bursts are then a little late.
        #[cfg(target_os = "linux")]
        let _ = prctl::set_timerslack(SLACK_NS);
        let thread = this_thread();
        Self {
            monitor,
            began: Instant::now(),
            shown: Duration::ZERO,
            cpu_before: cpu(),
            thread,
            busy_before: busy(thread),
            #[cfg(target_os = "linux")]
            slack_ns,
        }
    }

    /// Time since the flow began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.monitor.stop.load(Ordering::Relaxed)
    }

    /// Whether it is time to publish the progress for other threads, ten times a second.
    pub(super) fn is_show_due(&self, now: Duration) -> bool {
        self.shown + SHOW_EACH <= now
    }

    /// Passes labelled windows to other threads.
    pub(super) fn add_windows(&self, windows: impl Iterator<Item = LabelledWindow>) {
        self.monitor.add_windows(windows);
    }

    pub(super) fn show(&mut self, now: Duration, progress: FlowProgress) {
        self.shown = now;
        let cpu = cpu().saturating_sub(self.cpu_before);
        let busy = busy(self.thread).zip(self.busy_before).map(|(now, before)| now.saturating_sub(before));
        let progress = FlowProgress { cpu, busy_time: busy.unwrap_or(cpu), ..progress };
        *self.monitor.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

#[cfg(target_os = "linux")]
impl Drop for LoopContext<'_> {
    fn drop(&mut self) {
        // Restore the timer slack, because the thread belongs to the caller.
        let _ = self.slack_ns.map(prctl::set_timerslack);
    }
}

/// Converts the kernel's arrival times to times of a flow.
///
/// The kernel's times are wall-clock times, and the wall clock may be set at any moment. So only
/// the age of a packet is used, and an age of more than a second counts as a second.
#[derive(Clone, Copy)]
pub(super) struct ArrivalClock {
    now: Duration,
    real: SystemTime,
}

impl ArrivalClock {
    pub(super) fn new(now: Duration) -> Self {
        Self { now, real: SystemTime::now() }
    }

    /// When a packet arrived. If the kernel does not report this time, returns the present time.
    pub(super) fn time(&self, stamp: Option<SystemTime>) -> Duration {
        let ago = stamp.and_then(|stamp| self.real.duration_since(stamp).ok()).unwrap_or_default();
        self.now.saturating_sub(ago.min(AGO_MAX))
    }
}

/// CPU time of this thread.
pub(super) fn cpu() -> Duration {
    // Linux has this clock since 2.6.12, macOS since 10.12.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Time between two updates of the progress. Ten updates a second look smooth to people.
const SHOW_EACH: Duration = Duration::from_millis(100);
/// Linux lets timers be 50 µs late to save wake-ups (prctl(2), PR_SET_TIMERSLACK). At 10 Gbit/s, 50
/// µs are as long as a burst, so the slack is 1 µs here.
#[cfg(target_os = "linux")]
const SLACK_NS: c_ulong = 1000;
/// Time between two checks of a waiting flow whether to stop. The time is half of 100 ms, the
/// documented limit.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(50);
/// Largest age of a packet. A running receiver reads each packet sooner, so a larger age probably
/// means that the clock was set.
const AGO_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_time_follows_its_timestamp_up_to_a_second_back() {
        let real = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let clock = ArrivalClock { now: Duration::from_secs(5), real };
        let at = |ago_ms: u64| clock.time(Some(real - Duration::from_millis(ago_ms)));
        assert_eq!(at(3), Duration::from_millis(4_997));
        assert_eq!(at(7_000), Duration::from_secs(4));
        assert_eq!(clock.time(Some(real + Duration::from_secs(9))), Duration::from_secs(5));
        assert_eq!(clock.time(None), Duration::from_secs(5));
    }
}
