//! A congestion controller that undoes its reaction to losses by the receiving host.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quinn::Connection;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use crate::cap::{AckedBatch, DrainCap};
use crate::inbox::{Inbox, LossCounts};
use crate::ledger::{Chargeable, Claim, Evidence, Ledger, Loss, Settled, UnqueuedRoundTrips};
use crate::pauses::{DELAY_MAX, Pauses};
use crate::wire::{Report, ReportedRise};

/// Puts a [`HostLossController`] around the controllers of another factory.
///
/// ```
/// use std::sync::Arc;
///
/// use barograph_quinn::HostLossConfig;
/// use quinn::TransportConfig;
/// use quinn::congestion::CubicConfig;
///
/// let mut transport = TransportConfig::default();
/// let cubic = Arc::new(CubicConfig::default());
/// transport.congestion_controller_factory(Arc::new(HostLossConfig::new(cubic)));
/// ```
#[derive(Clone)]
pub struct HostLossConfig {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
}

impl HostLossConfig {
    /// Wraps the controllers of `inner`.
    pub fn new(inner: Arc<dyn ControllerFactory + Send + Sync>) -> Self {
        Self { inner }
    }
}

impl fmt::Debug for HostLossConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLossConfig").finish_non_exhaustive()
    }
}

impl ControllerFactory for HostLossConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.inner).build(now, current_mtu);
        Box::new(HostLossController {
            ledger: Ledger::new(Inner(inner)),
            inbox: Arc::default(),
            mtu: current_mtu,
            reported: 0,
            path: None,
            pauses: Pauses::default(),
            acked_bytes: 0,
            cap: DrainCap::new(now),
        })
    }
}

/// A controller around another one.
///
/// The other controller reacts to every loss at once. A copy that was not told of the loss sees all
/// other events. If the receiver reports in time that its socket dropped the packets, and the round
/// trips show that it paused and that no queue stood on the path, the copy continues instead. While
/// the host loses packets, the window is limited to what the host reads.
#[derive(Clone)]
pub struct HostLossController {
    ledger: Ledger<Inner>,
    /// Shared by all copies, so that the tasks of a connection reach the copy that quinn uses.
    inbox: Arc<Inbox>,
    mtu: u16,
    /// Number of the last report.
    reported: u32,
    path: Option<PathTimes>,
    pauses: Pauses,
    /// Bytes that were acknowledged in this batch.
    acked_bytes: u64,
    cap: DrainCap,
}

/// Round-trip times of the path.
#[derive(Clone, Copy, Debug)]
struct PathTimes {
    smoothed: Duration,
    /// The greater of the last and the smoothed round-trip time.
    conservative: Duration,
    min: Duration,
}

impl PathTimes {
    /// How long a loss waits for a report.
    fn wait(self) -> Duration {
        WAIT_MIN + 2 * self.conservative
    }

    /// When the packets were sent that the receiver dropped, as far as times of arrival tell.
    ///
    /// A report takes at least the time of a round trip less that of the packets. It may wait at a
    /// receiver that pauses, which the last round trips show.
    fn claim(self, arrived: Instant, rise: &ReportedRise) -> Option<Claim> {
        let age = |us: u32| Duration::from_micros(u64::from(us));
        let from = arrived.checked_sub(age(rise.from_us) + 2 * self.conservative)?;
        let to = arrived.checked_sub((age(rise.to_us) + self.min).saturating_sub(CLOCK_SLACK))?;
        Some(Claim { arrived, sent: [from, to], bytes: u64::from(rise.bytes) })
    }
}

impl HostLossController {
    /// The inbox of a connection's controller; `None` if the controller is another one.
    pub(crate) fn inbox(connection: &Connection) -> Option<Arc<Inbox>> {
        Self::inbox_of(&*connection.congestion_state())
    }

    pub(crate) fn inbox_of(controller: &dyn Controller) -> Option<Arc<Inbox>> {
        let copy = controller.clone_box().into_any().downcast::<Self>().ok()?;
        Some(copy.inbox)
    }

    fn wait(&self) -> Duration {
        self.path.map_or(WAIT_MIN, PathTimes::wait)
    }

    fn read_reports(&mut self) {
        for (arrived, report) in self.inbox.take() {
            self.read_report(arrived, &report);
        }
    }

    fn read_report(&mut self, arrived: Instant, report: &Report) {
        let new = report.number.saturating_sub(self.reported) as usize;
        let Some(path) = self.path else { return };
        self.reported = self.reported.max(report.number);
        for rise in report.rises.iter().take(new) {
            self.inbox.reported_bytes.fetch_add(u64::from(rise.bytes), Ordering::Relaxed);
            if let Some(claim) = path.claim(arrived, rise) {
                self.ledger.add_claim(claim);
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        let reaction = self.path.map_or(Duration::ZERO, |path| path.min.max(DELAY_MAX));
        let unqueued = UnqueuedRoundTrips { newest_sent: self.pauses.newest_unqueued(), reaction };
        let settled = self.ledger.settle(now, self.wait(), unqueued);
        self.count(settled);
    }

    fn count(&mut self, settled: Settled) {
        if settled.host > 0 {
            self.inbox.host_bytes.fetch_add(settled.host, Ordering::Relaxed);
            self.cap.add_host_loss(settled.host);
        }
        if settled.network > 0 {
            self.inbox.network_bytes.fetch_add(settled.network, Ordering::Relaxed);
            self.inbox.refused_bytes.fetch_add(settled.refused, Ordering::Relaxed);
        }
    }

    /// A controller must not raise a window that is far from used. Some room is left for trials of
    /// higher rates.
    fn is_limited(&self, app_limited: bool) -> bool {
        let window = self.ledger.controller().0.window();
        app_limited || self.cap.window_bytes().is_some_and(|cap| cap.saturating_mul(ROOM) < window)
    }
}

impl Controller for HostLossController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.ledger.each(|inner| inner.0.on_sent(now, bytes, last_packet_number));
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.acked_bytes += bytes;
        self.path = Some(PathTimes { smoothed: rtt.get(), conservative: rtt.conservative(), min: rtt.min() });
        self.pauses.on_ack(now, sent, rtt.min());
        let limited = self.is_limited(app_limited);
        self.ledger.each(|inner| inner.0.on_ack(now, sent, bytes, limited, rtt));
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let limited = self.is_limited(app_limited);
        self.ledger.each(|inner| inner.0.on_end_acks(now, in_flight, limited, largest_packet_num_acked));
        self.read_reports();
        self.settle(now);
        let bytes = std::mem::take(&mut self.acked_bytes);
        if let Some(path) = self.path {
            let window_bytes = self.ledger.controller().0.window();
            let batch = AckedBatch { bytes, smoothed: path.smoothed, window_bytes, mtu: u32::from(self.mtu) };
            self.cap.update(now, &batch);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let is_in_pause = self.path.is_some_and(|path| self.pauses.contain(sent, path.min));
        let loss = Loss {
            detected: [now; 2],
            sent: [sent; 2],
            is_persistent: is_persistent_congestion,
            bytes: lost_bytes,
            evidence: Evidence::new(is_in_pause),
        };
        // A congestion mark (no lost bytes) is the network's. Without reports, so is every loss.
        if lost_bytes == 0 || !self.inbox.is_agreed() {
            self.ledger.each(|inner| inner.charge(&loss));
            self.count(Settled { network: lost_bytes, ..Settled::default() });
            return;
        }
        let over = self.ledger.add_loss(loss);
        self.count(over);
        self.read_reports();
        self.settle(now);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        self.ledger.each(|inner| inner.0.on_mtu_update(new_mtu));
    }

    fn window(&self) -> u64 {
        let window = self.ledger.controller().0.window();
        self.cap.window_bytes().map_or(window, |cap| window.min(cap))
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.ledger.controller().0.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.ledger.controller().0.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Causes of a connection's losses so far; `None` if the connection has another controller than
/// [`HostLossController`].
pub fn loss_counts(connection: &Connection) -> Option<LossCounts> {
    HostLossController::inbox(connection).map(|inbox| inbox.counts())
}

impl fmt::Debug for HostLossController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLossController").field("window", &self.window()).finish_non_exhaustive()
    }
}

/// quinn's controller, copied by its own method.
struct Inner(Box<dyn Controller>);

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self(self.0.clone_box())
    }
}

impl Chargeable for Inner {
    fn charge(&mut self, loss: &Loss) {
        self.0.on_congestion_event(loss.detected[0], loss.sent[1], loss.is_persistent, loss.bytes);
    }
}

/// Room of the controller's window above the cap: the limiter tries three times the rate, and the
/// window may fall by 30 % for losses of the network.
const ROOM: u64 = 4;

/// Minimum time that a loss waits for a report: twice the period of a CPU quota (Linux's
/// `cpu.max`). The receiver may use up its quota between the acknowledgement and the report.
const WAIT_MIN: Duration = Duration::from_millis(200);

/// What the ends' clocks and timers may differ within one round trip.
const CLOCK_SLACK: Duration = Duration::from_millis(1);
