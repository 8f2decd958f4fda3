//! The extension's part in a connection: offers, reports, and what arrives of both.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quinn::{Connection, ConnectionError};
use tokio::time::{Instant, sleep};

use crate::controller::HostLossController;
use crate::drops::Reporter;
use crate::socket::SocketDrops;
use crate::wire::Datagram;

/// Reports of drops on one connection, in both directions.
///
/// If this end has a [`HostLossController`], it offers the extension, and passes the reports that
/// arrive to the controller. If this end knows the drops of its socket and the peer offers the
/// extension, it reports them.
#[derive(Debug)]
pub struct LossReports {
    connection: Connection,
    drops: Option<SocketDrops>,
    /// Present once the peer has offered the extension.
    reporter: Mutex<Option<Reporter>>,
    /// Number of offers that came.
    offers: AtomicU32,
}

impl LossReports {
    /// The reports of a connection. `drops` are those of its socket; `None` if this end only sends
    /// data.
    pub fn new(connection: Connection, drops: Option<SocketDrops>) -> Self {
        let drops = drops.filter(SocketDrops::has_counter);
        Self { connection, drops, reporter: Mutex::new(None), offers: AtomicU32::new(0) }
    }

    /// Runs the extension until the connection ends. All datagrams of the connection are read;
    /// those of the application are dropped. Use [`Self::run`] if the application has its own.
    pub async fn serve(self) -> ConnectionError {
        let reading = async {
            loop {
                match self.connection.read_datagram().await {
                    Ok(datagram) => self.process_datagram(&datagram),
                    Err(error) => return error,
                };
            }
        };
        tokio::select! { error = reading => error, error = self.run() => error }
    }

    /// Runs the extension until the connection ends, without reading datagrams. The application
    /// passes each datagram that it reads to [`Self::process_datagram`].
    pub async fn run(&self) -> ConnectionError {
        let work = async { tokio::join!(self.offer(), self.report()) };
        tokio::select! {
            error = self.connection.closed() => error,
            _ = async { work.await; std::future::pending::<()>().await } => unreachable!("it waits for ever"),
        }
    }

    /// Processes a datagram that arrived. Returns whether it is one of the extension; if not, it is
    /// the application's.
    pub fn process_datagram(&self, datagram: &[u8]) -> bool {
        match Datagram::decode(datagram) {
            Ok(Datagram::Offer) => self.accept(),
            Ok(Datagram::Report(report)) => {
                if let Some(inbox) = HostLossController::inbox(&self.connection) {
                    inbox.add(Instant::now().into_std(), report);
                }
            }
            Err(crate::wire::WireError::Foreign) => return false,
            // A datagram of another version, or a broken one: ignored, as the specification says.
            Err(_) => {}
        }
        true
    }

    /// Answers an offer with a report, which may have no rises. A peer that offers again and again
    /// must not fill the queue of datagrams, so only the first few are answered.
    fn accept(&self) {
        let Some(drops) = &self.drops else { return };
        if self.offers.fetch_add(1, Ordering::Relaxed) >= OFFERS_MAX {
            self.offers.store(OFFERS_MAX, Ordering::Relaxed);
            return;
        }
        self.reporter().get_or_insert_with(|| drops.reporter());
        self.send_report();
    }

    /// Offers the extension until the peer answers, a few times.
    async fn offer(&self) {
        let Some(inbox) = HostLossController::inbox(&self.connection) else { return };
        for doubling in 0..OFFERS_MAX {
            // The peer may accept no datagrams. It has then no way to report.
            if inbox.is_agreed() || self.connection.send_datagram(Datagram::Offer.encode().into()).is_err() {
                return;
            }
            sleep(OFFER_WAIT_MIN.max(2 * self.connection.rtt()) * (1 << doubling)).await;
        }
    }

    /// Reports each rise at once, but at most one report in [`REPORT_INTERVAL`].
    async fn report(&self) {
        let Some(drops) = &self.drops else { return };
        let mut changes = drops.changes();
        while changes.changed().await.is_ok() {
            if self.send_report() {
                sleep(REPORT_INTERVAL).await;
            }
        }
    }

    /// Sends a report if the peer has offered the extension.
    fn send_report(&self) -> bool {
        let Some(drops) = &self.drops else { return false };
        let report = match &mut *self.reporter() {
            Some(reporter) => drops.report(reporter),
            None => return false,
        };
        // If the report cannot be sent, the next one has the same rises.
        self.connection.send_datagram(Datagram::Report(report).encode().into()).is_ok()
    }

    fn reporter(&self) -> std::sync::MutexGuard<'_, Option<Reporter>> {
        self.reporter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of offers before the peer counts as one without the extension. One suffices if no
/// datagram is lost.
const OFFERS_MAX: u32 = 5;

/// Minimum wait for an answer. A receiver without processor time may answer after a tenth of a
/// second (Linux's `cpu.max`).
const OFFER_WAIT_MIN: Duration = Duration::from_millis(100);

/// Minimum time between two reports. A report takes about 100 bytes on the path, so reports take at
/// most 0.4 Mbit/s.
const REPORT_INTERVAL: Duration = Duration::from_millis(2);
