//! The relay: one thread that moves packets between two TUN devices when the models say so.

use crate::{
    Error, Fate, Line, Model, RelayOptions,
    namespace::system,
    report::{Counts, Report},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl, time::TimeSpec},
    time::{ClockId, clock_gettime},
    unistd::gettid,
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    fs::{self, File},
    io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe},
    ops::ControlFlow,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A running relay; dropping it ends the thread and closes the devices.
#[derive(Debug)]
pub(crate) struct Relay {
    ledger: Arc<Mutex<Ledger>>,
    thread_id: i32,
    realtime: bool,
    /// Closing it wakes the thread and ends it.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts moving packets: what is read from `tuns[0]` goes through `models[0]` to `tuns[1]`, and back.
    pub(crate) fn start(tuns: [File; 2], models: [Model; 2], options: RelayOptions) -> Result<Self, Error> {
        let line = Line::new(&options.queues, options.queues_seed)?;
        let (stopped, stop) = pipe().map_err(|e| Error::io("make a pipe", e))?;
        let ledger = Arc::new(Mutex::new(Ledger::new(options.late)));
        let (tell_id, id) = mpsc::channel();
        let spin = options.spin;
        let work = {
            let ledger = Arc::clone(&ledger);
            move || {
                // The receiver waits for it, or is gone with the whole relay.
                let _ = tell_id.send(gettid().as_raw());
                // Else the kernel may round each wake-up by 50 µs; where it refuses, lateness will tell.
                let _ = prctl::set_timerslack(1);
                Shuttle::new(tuns, models, line, ledger, spin).run(&stopped);
            }
        };
        let thread = thread::Builder::new()
            .name("sim-relay".into())
            .spawn(work)
            .map_err(|e| Error::io("start the relay's thread", e))?;
        let thread_id = id
            .recv()
            .map_err(|_| Error::io("start the relay's thread", std::io::Error::other("it ended at once")))?;
        let realtime = options.realtime && ask_realtime(thread_id);
        Ok(Self { ledger, thread_id, realtime, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn report(&self) -> Report {
        let mut report = lock(&self.ledger).report();
        report.realtime = self.realtime;
        report.running = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        report.mean_wait = mean_wait(self.thread_id);
        report
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the relay has been printed; dropping must not panic again.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct Shuttle {
    tuns: [File; 2],
    models: [Model; 2],
    /// The queues from A to B before the link, if there are.
    line: Line<Vec<u8>>,
    has_line: bool,
    under_way: BinaryHeap<Reverse<Packet>>,
    under_way_bytes: usize,
    next_number: u64,
    spin: Duration,
    /// The epoch of the models' clock.
    epoch: Instant,
    ledger: Arc<Mutex<Ledger>>,
}

/// A packet on its way, ordered by departure and then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    at: Duration,
    number: u64,
    direction: usize,
    bytes: Vec<u8>,
}

impl Shuttle {
    fn new(
        tuns: [File; 2],
        models: [Model; 2],
        line: Line<Vec<u8>>,
        ledger: Arc<Mutex<Ledger>>,
        spin: Duration,
    ) -> Self {
        Self {
            tuns,
            models,
            has_line: !line.is_empty(),
            line,
            under_way: BinaryHeap::new(),
            under_way_bytes: 0,
            next_number: 0,
            spin,
            epoch: Instant::now(),
            ledger,
        }
    }

    /// Moves packets until the other end of `stopped` closes, or a device is gone.
    fn run(mut self, stopped: &PipeReader) {
        let mut spun = Duration::ZERO;
        let mut readable = [false; 2];
        loop {
            {
                let ledger = Arc::clone(&self.ledger);
                let mut ledger = lock(&ledger);
                for direction in [0, 1] {
                    if readable[direction] && self.take_in(direction, &mut ledger).is_break() {
                        return;
                    }
                }
                self.put_out(&mut ledger);
                ledger.note_cpu(thread_cpu().saturating_sub(spun));
            }
            let until_due = self.until_due();
            let nap = until_due.map(|due| due.saturating_sub(self.spin));
            let before = Instant::now();
            match self.wait(stopped, nap) {
                Ready::Stop => return,
                Ready::Readable(which) => readable = which,
            }
            let spinning = nap == Some(Duration::ZERO) && until_due != nap;
            if spinning && readable == [false; 2] {
                spun += before.elapsed();
            }
        }
    }

    /// Reads what has come, up to a batch, and lets the model decide. Breaks when the device is gone: it would
    /// be readable, and fail, for ever.
    fn take_in(&mut self, direction: usize, ledger: &mut Ledger) -> ControlFlow<()> {
        let mut buffer = [0; BUFFER_BYTES];
        for _ in 0..BATCH {
            let length = match self.tuns[direction].read(&mut buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    ledger.counts[direction].read_errors += 1;
                    return ControlFlow::Break(());
                }
            };
            let bytes = &buffer[..length];
            if is_multicast(bytes) {
                ledger.counts[direction].ignored += 1;
                continue;
            }
            let now = self.epoch.elapsed();
            if direction == 0 && self.has_line {
                self.line.push(now, length, bytes.to_vec());
            } else {
                self.send_off(direction, now, bytes.to_vec(), &mut ledger.counts[direction]);
            }
        }
        ControlFlow::Continue(())
    }

    /// Lets the link decide about a packet that meets it at `at`.
    fn send_off(&mut self, direction: usize, at: Duration, bytes: Vec<u8>, counts: &mut Counts) {
        match self.models[direction].carry(at, bytes.len()) {
            Fate::Lost => counts.lost += 1,
            Fate::QueueFull => counts.queue_full += 1,
            Fate::Delivered { .. } if self.under_way_bytes + bytes.len() > UNDER_WAY_LIMIT_BYTES => {
                counts.overflow += 1;
            }
            Fate::Delivered { at } => {
                self.under_way_bytes += bytes.len();
                let packet = Packet { at, number: self.next_number, direction, bytes };
                self.next_number += 1;
                self.under_way.push(Reverse(packet));
            }
        }
    }

    /// Writes what is due.
    fn put_out(&mut self, ledger: &mut Ledger) {
        while let Some((at, bytes)) = self.line.pop(self.epoch.elapsed()) {
            self.send_off(0, at, bytes, &mut ledger.counts[0]);
        }
        ledger.counts[0].queue_full += self.line.take_dropped();
        let mut now = self.epoch.elapsed();
        while let Some(packet) = pop_due(&mut self.under_way, now) {
            self.under_way_bytes -= packet.bytes.len();
            match (&self.tuns[1 - packet.direction]).write(&packet.bytes) {
                Ok(_) => ledger.note_departure(&packet, now),
                Err(_) => ledger.counts[packet.direction].write_errors += 1,
            }
            now = self.epoch.elapsed();
        }
    }

    fn until_due(&self) -> Option<Duration> {
        let departs = self.under_way.peek().map(|Reverse(packet)| packet.at);
        let due = departs.into_iter().chain(self.line.next_at()).min()?;
        Some(due.saturating_sub(self.epoch.elapsed()))
    }

    /// Sleeps until a device has packets, the nap is over, or the end has come.
    fn wait(&self, stopped: &PipeReader, nap: Option<Duration>) -> Ready {
        let fds = [self.tuns[0].as_fd(), self.tuns[1].as_fd(), stopped.as_fd()];
        let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut polled, nap.map(TimeSpec::from), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ready::Readable([false; 2]),
            Err(_) => return Ready::Stop,
        }
        match polled.map(|fd| fd.any().unwrap_or(false)) {
            [_, _, true] => Ready::Stop,
            [a, b, false] => Ready::Readable([a, b]),
        }
    }
}

enum Ready {
    Stop,
    Readable([bool; 2]),
}

/// The account, shared with whoever asks for a report.
#[derive(Debug)]
struct Ledger {
    counts: [Counts; 2],
    started: Instant,
    cpu: Duration,
    /// Where the present window of CPU use began: time, and CPU time then.
    window: (Instant, Duration),
    cpu_peak: f64,
    late_bound: Duration,
    late_max: Duration,
    /// Departures by lateness in steps of [`LATE_STEP`]; the last one holds all above.
    lateness: Box<[u64; LATE_STEPS]>,
}

impl Ledger {
    fn new(late_bound: Duration) -> Self {
        let started = Instant::now();
        Self {
            counts: [Counts::default(); 2],
            started,
            cpu: Duration::ZERO,
            window: (started, Duration::ZERO),
            cpu_peak: 0.0,
            late_bound,
            late_max: Duration::ZERO,
            lateness: Box::new([0; LATE_STEPS]),
        }
    }

    fn note_departure(&mut self, packet: &Packet, now: Duration) {
        let late = now.saturating_sub(packet.at);
        let counts = &mut self.counts[packet.direction];
        counts.forwarded += 1;
        counts.forwarded_bytes += packet.bytes.len() as u64;
        counts.late += u64::from(late > self.late_bound);
        self.late_max = self.late_max.max(late);
        let step = (late.as_nanos() / LATE_STEP.as_nanos()) as usize;
        self.lateness[step.min(LATE_STEPS - 1)] += 1;
    }

    /// Notes the thread's CPU time so far, and the share of a core when a window is over.
    fn note_cpu(&mut self, cpu: Duration) {
        self.cpu = cpu;
        let (began, cpu_then) = self.window;
        let elapsed = began.elapsed();
        if elapsed >= CPU_WINDOW {
            let share = cpu.saturating_sub(cpu_then).as_secs_f64() / elapsed.as_secs_f64();
            self.cpu_peak = self.cpu_peak.max(share);
            self.window = (Instant::now(), cpu);
        }
    }

    fn late_p99(&self) -> Duration {
        let mut allowed = self.lateness.iter().sum::<u64>() / 100;
        for (step, &count) in self.lateness.iter().enumerate().rev() {
            if count > allowed {
                // The upper edge of the step, which no packet in it has passed.
                return (LATE_STEP * (step as u32 + 1)).min(self.late_max);
            }
            allowed -= count;
        }
        Duration::ZERO
    }

    /// The account so far; the shell adds what it alone can see.
    fn report(&self) -> Report {
        let [forward, back] = self.counts;
        Report {
            forward,
            back,
            wall: self.started.elapsed(),
            cpu: self.cpu,
            cpu_peak: self.cpu_peak,
            mean_wait: None,
            late_bound: self.late_bound,
            late_p99: self.late_p99(),
            late_max: self.late_max,
            device_drops: 0,
            realtime: false,
            running: true,
        }
    }
}

/// The next packet that is due at `now`.
fn pop_due(under_way: &mut BinaryHeap<Reverse<Packet>>, now: Duration) -> Option<Packet> {
    let first = under_way.peek_mut()?;
    if first.0.at > now { None } else { Some(PeekMut::pop(first).0) }
}

/// A ledger stays true when a thread panics between two of its lines.
fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the destination of an IP packet is a group: 224.0.0.0/4 (RFC 5771) or ff00::/8 (RFC 4291 §2.7).
/// Hosts announce themselves to groups when they please, which would shift every later packet's luck.
fn is_multicast(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(16).is_some_and(|byte| byte >> 4 == 0xe),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}

/// CPU time of the calling thread; zero where the clock is missing.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Asks for real-time scheduling of a thread of this process; says whether it was granted.
fn ask_realtime(thread_id: i32) -> bool {
    system("chrt", &["-f", "-p", REALTIME_PRIORITY, &thread_id.to_string()], "").is_ok()
}

/// Mean wait for a core each time the thread was ready, from the scheduler's account (Linux,
/// Documentation/scheduler/sched-stats.rst: time on the cpu, time waiting, number of time slices).
fn mean_wait(thread_id: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread_id}/schedstat")).ok()?;
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let (_, wait, slices) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Duration::from_nanos(wait / slices.max(1)))
}

/// Above ordinary threads, below the kernel's own (50).
const REALTIME_PRIORITY: &str = "10";

/// Packets read in one go, so that a flood in one direction cannot hold up departures for long.
const BATCH: usize = 32;

/// The largest IP packet that the device can pass with its MTU, rounded up.
const BUFFER_BYTES: usize = 2048;

/// Memory for packets under way: a second of 500 Mbit/s.
const UNDER_WAY_LIMIT_BYTES: usize = 64_000_000;

/// Long enough that one slow start of a flow does not fill it, short enough to catch a busy second.
const CPU_WINDOW: Duration = Duration::from_millis(250);

/// Lateness is kept to 10 µs up to 10 ms, ten times the default bound.
const LATE_STEP: Duration = Duration::from_micros(10);
const LATE_STEPS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(at_us: u64, number: u64) -> Packet {
        Packet { at: Duration::from_micros(at_us), number, direction: 0, bytes: vec![0; 10] }
    }

    #[test]
    fn packets_leave_by_time_then_by_arrival() {
        let mut under_way: BinaryHeap<_> =
            [packet(5, 2), packet(5, 1), packet(3, 3)].into_iter().map(Reverse).collect();
        let due = |heap: &mut _, at| pop_due(heap, Duration::from_micros(at)).map(|packet| packet.number);
        assert_eq!(due(&mut under_way, 2), None);
        assert_eq!(due(&mut under_way, 5), Some(3));
        assert_eq!(due(&mut under_way, 5), Some(1));
        assert_eq!(due(&mut under_way, 5), Some(2));
        assert_eq!(due(&mut under_way, 5), None);
    }

    #[test]
    fn lateness_is_told_by_its_percentile_and_bound() {
        let mut ledger = Ledger::new(Duration::from_millis(1));
        for number in 0..200 {
            // Three of two hundred are 2 ms late: more than 1 %.
            let late = if number < 3 { 2000 } else { 7 };
            ledger.note_departure(&packet(0, number), Duration::from_micros(late));
        }
        let report = ledger.report();
        assert_eq!(report.forward.late, 3);
        assert_eq!(report.late_max, Duration::from_millis(2));
        assert_eq!(report.late_p99, Duration::from_millis(2));
        assert!(matches!(report.void(), Some(crate::Void::Late { .. })), "{:?}", report.void());
        let mut ledger = Ledger::new(Duration::from_millis(1));
        (0..200).for_each(|number| ledger.note_departure(&packet(0, number), Duration::from_micros(7)));
        assert_eq!(ledger.report().late_p99, Duration::from_micros(7));
        assert_eq!(ledger.report().void(), None);
    }

    #[test]
    fn groups_are_told_from_hosts() {
        let mut v4 = [0; 20];
        (v4[0], v4[16]) = (0x45, 192);
        assert!(!is_multicast(&v4));
        v4[16] = 224;
        assert!(is_multicast(&v4));
        let mut v6 = [0; 40];
        (v6[0], v6[24]) = (0x60, 0x20);
        assert!(!is_multicast(&v6));
        v6[24] = 0xff;
        assert!(is_multicast(&v6));
        assert!(!is_multicast(&[]));
    }
}
