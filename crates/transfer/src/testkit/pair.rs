//! Runs both halves of the protocol over a link that the caller provides, in virtual time, for
//! tests and the lab.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::proto::wire::Feedback;
use crate::proto::{Arrival, Packet, ProtocolViolation, Receiver, Sender};

/// Carries packets in both directions, for any number of flows.
pub trait Link {
    /// Sends a datagram at `now`, which never decreases. Each time that the datagram arrives, the
    /// link pushes one arrival, which must not be before `now`. A datagram without an arrival is
    /// lost, or kept for [`Link::pop`].
    fn carry(&mut self, now: Duration, datagram: EmulatedDatagram, arrivals: &mut Vec<DatagramArrival>);

    /// Time until which this flow's sender must not send; `None` if the sender may send now.
    fn held_until(&mut self, now: Duration, flow: usize) -> Option<Duration> {
        let _ = (now, flow);
        None
    }

    /// Time when the next kept datagram arrives, if no datagram is sent before; `None` if no
    /// datagram is kept.
    fn next_at(&self) -> Option<Duration> {
        None
    }

    /// Returns the next kept datagram that arrived by `now`.
    fn pop(&mut self, now: Duration) -> Option<DatagramArrival> {
        let _ = now;
        None
    }
}

/// The receiving half of a flow: a [`Receiver`], or a receiver that sends false reports.
pub trait ReceivingEnd {
    fn take(&mut self, arrival: &Arrival);
    /// Returns the next feedback that is due at `now`.
    fn report(&mut self, now: Duration) -> Option<Feedback>;
    /// Time when the next feedback is due, if no packet arrives earlier.
    fn due(&self) -> Option<Duration>;
    /// Whether all bytes of the object arrived.
    fn has_all(&self) -> bool;
}

impl ReceivingEnd for Receiver {
    fn take(&mut self, arrival: &Arrival) {
        // Ignore the error: a refused packet is dropped.
        let _ = self.handle_data(arrival);
    }

    fn report(&mut self, now: Duration) -> Option<Feedback> {
        self.poll_feedback(now)
    }

    fn due(&self) -> Option<Duration> {
        self.poll_timeout()
    }

    fn has_all(&self) -> bool {
        self.is_complete()
    }
}

impl<T: ReceivingEnd + ?Sized> ReceivingEnd for Box<T> {
    fn take(&mut self, arrival: &Arrival) {
        (**self).take(arrival);
    }

    fn report(&mut self, now: Duration) -> Option<Feedback> {
        (**self).report(now)
    }

    fn due(&self) -> Option<Duration> {
        (**self).due()
    }

    fn has_all(&self) -> bool {
        (**self).has_all()
    }
}

/// A datagram in flight.
#[derive(Clone, Debug)]
pub struct EmulatedDatagram {
    /// Index of the datagram's flow, as [`Pair::add`] returned it.
    pub flow: usize,
    /// Length of the datagram on the wire, in bytes.
    pub bytes: u32,
    pub content: DatagramContent,
}

#[derive(Clone, Debug)]
pub enum DatagramContent {
    Data(Packet),
    /// A feedback, and the number of its datagram.
    Feedback(u64, Feedback),
}

/// A datagram that arrived.
#[derive(Clone, Debug)]
pub struct DatagramArrival {
    /// Time when the receiving end reads the datagram.
    pub at: Duration,
    /// Arrival time by the kernel's timestamp; `None` if the datagram is read as soon as it
    /// arrives.
    pub stamped: Option<Duration>,
    pub datagram: EmulatedDatagram,
    /// Whether the datagram has a congestion mark; `None` if marks are not visible.
    pub is_marked: Option<bool>,
    /// Whether the receiving host drops the datagram. If so, the drop counter of the flow rises.
    pub is_dropped: bool,
}

/// Configuration of a flow, with both of its ends.
#[derive(Debug)]
pub struct FlowConfig<T> {
    pub start: Duration,
    pub sender: Sender,
    pub receiver: T,
    /// Bytes of a packet in addition to its bytes of the object.
    pub overhead_bytes: u32,
    /// Whether the receiving host has a counter of dropped packets.
    pub has_drops: bool,
}

/// A flow and its progress.
#[derive(Debug)]
pub struct RunningFlow<T> {
    /// Configuration and both ends.
    pub flow: FlowConfig<T>,
    /// Time when the sender received the acknowledgement of the last bytes; `None` before.
    pub done: Option<Duration>,
    /// The breach of the protocol that ended the flow, if there was one.
    pub violation: Option<ProtocolViolation>,
    /// Number of packets that the receiving host dropped.
    pub drops: u32,
    feedbacks: u64,
    wakes: Option<Duration>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every flow is complete, or has ended because of a breach of the protocol.
    Done,
    Time,
    /// The limit of steps was reached: a flow makes no progress.
    Steps,
}

/// Flows over one link, in virtual time.
#[derive(Debug)]
pub struct Pair<L, T> {
    pub link: L,
    now: Duration,
    flows: Vec<RunningFlow<T>>,
    events: BinaryHeap<Reverse<Event>>,
    count: u64,
    arrivals: Vec<DatagramArrival>,
}

impl<L: Link, T: ReceivingEnd> Pair<L, T> {
    pub fn new(link: L) -> Self {
        Self {
            link,
            now: Duration::ZERO,
            flows: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            arrivals: Vec::new(),
        }
    }

    /// Adds a flow, which begins at its start time. Returns the index of the flow.
    pub fn add(&mut self, flow: FlowConfig<T>) -> usize {
        let (index, start) = (self.flows.len(), flow.start.max(self.now));
        let (done, violation) = (None, None);
        self.flows.push(RunningFlow { flow, done, violation, drops: 0, feedbacks: 0, wakes: Some(start) });
        self.push(start, EventKind::Wakes(index));
        index
    }

    pub fn now(&self) -> Duration {
        self.now
    }

    /// All flows with their progress.
    pub fn flows(&self) -> &[RunningFlow<T>] {
        &self.flows
    }

    /// Advances time until all flows are done, `until` is reached, or `steps_max` steps were made.
    /// A step is a datagram or a timer.
    pub fn run(&mut self, until: Duration, steps_max: u64) -> RunEnd {
        for _ in 0..steps_max {
            if self.flows.iter().all(|running| running.done.is_some() || running.violation.is_some()) {
                return RunEnd::Done;
            }
            let next = self.events.peek().map(|Reverse(event)| event.at);
            let kept = self.link.next_at();
            let Some(at) = next.into_iter().chain(kept).min().filter(|at| *at <= until) else {
                self.now = self.now.max(until);
                return RunEnd::Time;
            };
            self.now = self.now.max(at);
            if kept.is_some_and(|kept| kept <= at) {
                if let Some(arrived) = self.link.pop(self.now) {
                    self.arrive(arrived);
                }
            } else if let Some(Reverse(event)) = self.events.pop() {
                match event.kind {
                    EventKind::Arrives(arrived) => self.arrive(*arrived),
                    EventKind::Wakes(index) => self.wake(index, event.at),
                }
            }
        }
        RunEnd::Steps
    }

    fn wake(&mut self, index: usize, at: Duration) {
        if let Some(running) = self.flows.get_mut(index).filter(|running| running.wakes == Some(at)) {
            running.wakes = None;
            self.drive(index);
        }
    }

    fn arrive(&mut self, arrived: DatagramArrival) {
        let (now, index) = (self.now, arrived.datagram.flow);
        let Some(running) = self.flows.get_mut(index) else { return };
        match arrived.datagram.content {
            DatagramContent::Data(_) if arrived.is_dropped => running.drops = running.drops.wrapping_add(1),
            DatagramContent::Data(packet) => running.flow.receiver.take(&Arrival {
                number: packet.number,
                sent_us: packet.sent_us,
                range: packet.range,
                note: packet.note,
                at: arrived.stamped.map_or(now, |stamped| stamped.min(now)),
                is_marked: arrived.is_marked,
                drops: running.flow.has_drops.then_some(running.drops),
            }),
            DatagramContent::Feedback(..) if arrived.is_dropped => {}
            DatagramContent::Feedback(number, feedback) => {
                if running.violation.is_none() {
                    running.violation = running.flow.sender.handle_feedback(now, number, &feedback).err();
                }
                if running.flow.sender.is_done() {
                    running.done = running.done.or(Some(now));
                }
            }
        }
        self.drive(index);
    }

    /// Sends all packets and feedback that may be sent now, and sets the timer.
    fn drive(&mut self, index: usize) {
        let Self { flows, arrivals, link, now, .. } = self;
        let Some(running) = flows.get_mut(index) else { return };
        let flow = &mut running.flow;
        if *now < flow.start || running.violation.is_some() {
            return;
        }
        if flow.sender.is_done() {
            running.done = running.done.or(Some(*now));
        }
        if flow.sender.poll_timeout().is_some_and(|at| at <= *now) {
            flow.sender.handle_timeout(*now);
        }
        let held = link.held_until(*now, index).filter(|until| *now < *until);
        while held.is_none()
            && let Some(packet) = flow.sender.poll_packet(*now)
        {
            let length = u32::try_from(packet.range.end - packet.range.start).unwrap_or(u32::MAX);
            let bytes = length.saturating_add(flow.overhead_bytes);
            link.carry(
                *now,
                EmulatedDatagram { flow: index, bytes, content: DatagramContent::Data(packet) },
                arrivals,
            );
        }
        while let Some(feedback) = flow.receiver.report(*now) {
            let bytes = feedback_bytes(&feedback);
            let content = DatagramContent::Feedback(running.feedbacks, feedback);
            running.feedbacks += 1;
            link.carry(*now, EmulatedDatagram { flow: index, bytes, content }, arrivals);
        }
        // A sender that must not send yet is woken when it may send again, not at the times of its
        // pacing.
        let own = held.or_else(|| flow.sender.poll_timeout());
        let next = [own, flow.receiver.due()].into_iter().flatten().min();
        // A timer in the past fires at once. A timer that always fires again uses all steps, so the
        // run ends.
        let next = next.map(|at| at.max(*now));
        let rings = next.filter(|at| running.wakes.is_none_or(|wakes| *at < wakes));
        running.wakes = rings.or(running.wakes);
        if let Some(at) = rings {
            self.push(at, EventKind::Wakes(index));
        }
        for arrived in std::mem::take(&mut self.arrivals) {
            self.push(arrived.at.max(self.now), EventKind::Arrives(Box::new(arrived)));
        }
    }

    fn push(&mut self, at: Duration, kind: EventKind) {
        self.count += 1;
        self.events.push(Reverse(Event { at, count: self.count, kind }));
    }
}

/// Approximate length of a feedback on the wire, in bytes: IP, UDP, header, echo and totals, and
/// each run.
fn feedback_bytes(feedback: &Feedback) -> u32 {
    u32::try_from(feedback.runs.len()).unwrap_or(u32::MAX).saturating_mul(5).saturating_add(100)
}

#[derive(Debug)]
struct Event {
    at: Duration,
    /// Number of the event. Of two events at the same time, the event that was pushed first comes
    /// first.
    count: u64,
    kind: EventKind,
}

#[derive(Debug)]
enum EventKind {
    Arrives(Box<DatagramArrival>),
    Wakes(usize),
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.count) == (other.at, other.count)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.count).cmp(&(other.at, other.count))
    }
}
