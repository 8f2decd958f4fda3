//! Probes over WebSocket (docs/spec/echo.md), with which a page in a browser measures a station.
//!
//! Sessions run on the HTTP runtime, beside the API. The sessions are many and mostly idle, and the
//! cost of a session is proportional to its bytes. The clock of a page is coarser than the wake-up
//! delay of the runtime.

mod counters;
mod metered;
pub(crate) mod reports;
mod session;
mod slots;

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use barograph_forecast::Name;
use barograph_probe::TcpInfo;
use barograph_probe::io::Responder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Bytes;

use crate::config::EchoConfig;
use crate::forecast::series::SeriesTable;
use crate::limits::Limit;
use crate::limits::authenticated::AuthenticatedCallers;
use crate::limits::connections::{ConnectionGuard, Connections};
use crate::record::recorder::Inbox;
use crate::sync::lock;
use barograph_limits::accounts::Accounts;
use barograph_limits::admission::AdmissionKind;
use barograph_limits::token_bucket::Rate;
use reports::PageReports;
use slots::TransferSlots;

pub(crate) use counters::Counters;
pub(crate) use session::MESSAGE_BYTES_MAX;
#[cfg(test)]
pub(crate) use slots::SHARE as TRANSFERS_SHARE;

/// The subprotocol of a session; the number is its version.
pub(crate) const SUBPROTOCOL: &str = "barograph-probe.1";

/// Operations that a session needs from its connection.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Turns Nagle's algorithm off if `nodelay` is true, and on otherwise.
    fn set_nodelay(&self, nodelay: bool) -> std::io::Result<()>;

    /// TCP statistics of the kernel after a transfer that took `elapsed_s`.
    fn bulk_tcp_info(&self, elapsed_s: f64) -> Option<TcpInfo>;
}

/// State that all sessions of a station share.
#[derive(Debug)]
pub(crate) struct Echo {
    began: Instant,
    sessions: Connections,
    slots: TransferSlots,
    accounts: Mutex<Accounts>,
    /// Accounts of the milliseconds in which transfers mark this host's measurements as loaded.
    marked: Mutex<Accounts>,
    transfer_bytes_max: u64,
    page_reports: PageReports,
    responder: Arc<Responder>,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
    noise: OnceLock<Bytes>,
}

/// Parts of the station that sessions use.
pub(crate) struct EchoDependencies {
    pub(crate) host: Name,
    pub(crate) inbox: Inbox,
    pub(crate) series_table: Arc<Mutex<SeriesTable>>,
    pub(crate) responder: Arc<Responder>,
    pub(crate) authenticated: AuthenticatedCallers,
    /// Becomes true when the station stops: sessions then end.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A slot for one session, until it is dropped.
#[derive(Debug)]
pub(crate) struct EchoSessionSlot {
    caller: Caller,
    echo: Arc<Echo>,
    slot: Arc<ConnectionGuard>,
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    ip: IpAddr,
    /// Whether the caller is on this host: the traffic then crosses no network.
    is_local: bool,
}

impl Echo {
    pub(crate) fn new(config: &EchoConfig, parts: EchoDependencies) -> Self {
        let EchoDependencies { host, inbox, series_table, responder, authenticated, stopping } = parts;
        let accounts =
            Accounts::new(Rate::per_hour(config.bytes_per_hour), Rate::per_hour(config.peer_bytes_per_hour));
        let page_reports = PageReports::new(config, host, inbox, series_table);
        Self {
            began: Instant::now(),
            sessions: Connections::new(config.sessions_max, AdmissionKind::SessionSlots, authenticated),
            slots: TransferSlots::new(config.transfers_max),
            transfer_bytes_max: accounts.burst_max().min(TRANSFER_BYTES_MAX),
            accounts: Mutex::new(accounts),
            marked: Mutex::new(Accounts::new(
                Rate::per_hour(MARKED_MS_PER_HOUR),
                Rate::per_hour(PEER_MARKED_MS_PER_HOUR),
            )),
            page_reports,
            responder,
            counters: Arc::default(),
            stopping,
            noise: OnceLock::new(),
        }
    }

    /// Takes a slot for a session; also returns whether another session was closed to make room.
    /// Nothing is charged yet: [`EchoSessionSlot::pay`] charges the caller when the session opens.
    ///
    /// # Errors
    /// The reason as a sentence for the caller, and the limit of the station that was reached.
    pub(crate) fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        is_local: bool,
    ) -> Result<(EchoSessionSlot, bool), (&'static str, Limit)> {
        let now = self.began.elapsed();
        if !is_local && !lock(&self.accounts).could_pay(ip, OPENING_BYTES, now) {
            return Err((SPENT, Limit::AddressShare));
        }
        let accepted = self.sessions.accept(ip, is_local);
        let (slot, has_shed) =
            accepted.map_err(|full| (FULL, Limit::from_full(full, Limit::EchoSessions)))?;
        let caller = Caller { ip, is_local };
        Ok((EchoSessionSlot { caller, echo: Arc::clone(self), slot }, has_shed))
    }

    /// Number of open sessions, and their maximum.
    pub(crate) fn sessions(&self) -> (usize, usize) {
        (self.sessions.len(), self.sessions.max())
    }

    /// Maximum number of bytes of one transfer.
    pub(crate) fn transfer_bytes_max(&self) -> u64 {
        self.transfer_bytes_max
    }

    /// Whether reports of pages are kept.
    pub(crate) fn reports_enabled(&self) -> bool {
        self.page_reports.is_enabled()
    }

    /// Number of page reports that the station dropped because of a limit.
    pub(crate) fn reports_crowded_out(&self) -> u64 {
        self.page_reports.crowded_out()
    }

    pub(crate) fn set_reports_enabled(&self, enabled: bool) {
        self.page_reports.set_enabled(enabled);
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Waits until no session is open.
    pub(crate) async fn ended(&self) {
        self.sessions.wait_until_empty().await;
    }

    fn pay(&self, caller: Caller, bytes: u64) -> bool {
        caller.is_local || lock(&self.accounts).pay(caller.ip, bytes, self.began.elapsed())
    }

    /// Charges bytes that a caller has used already.
    fn charge(&self, caller: Caller, bytes: u64) {
        if !caller.is_local {
            lock(&self.accounts).charge(caller.ip, bytes, self.began.elapsed());
        }
    }

    /// Whether a caller's transfer marks this host's measurements as loaded. A transfer of a caller
    /// on this host marks nothing, because it crosses no network. A transfer of a caller that has
    /// used up its marked time marks nothing, either.
    fn may_mark(&self, caller: Caller) -> bool {
        !caller.is_local && lock(&self.marked).pay(caller.ip, 1, self.began.elapsed())
    }

    /// Charges the time in which a caller's transfer marked measurements.
    fn charge_marked(&self, caller: Caller, marked: Duration) {
        let ms = u64::try_from(marked.as_millis()).unwrap_or(u64::MAX);
        lock(&self.marked).charge_both(caller.ip, ms, self.began.elapsed());
    }

    /// A message of the largest size, made at first use. Its bytes cannot be compressed.
    fn noise(&self) -> Bytes {
        let make = || {
            let mut noise = barograph_probe::io::payload_block();
            noise.truncate(MESSAGE_BYTES_MAX);
            Bytes::from(noise)
        };
        self.noise.get_or_init(make).clone()
    }
}

impl EchoSessionSlot {
    /// Charges the caller for opening the session.
    ///
    /// # Errors
    /// A sentence for the caller, if the address has used up its bytes since its admission.
    pub(crate) fn pay(&self) -> Result<(), &'static str> {
        self.echo.pay(self.caller, OPENING_BYTES).then_some(()).ok_or(SPENT)
    }

    /// Serves the session on `socket` until it ends; `already_read` are the bytes after the
    /// request's head.
    pub(crate) async fn serve<S: Socket>(self, socket: S, already_read: Vec<u8>) {
        let open = &self.echo.counters.sessions_open;
        open.fetch_add(1, Ordering::Relaxed);
        session::run(&self.echo, self.caller, &self.slot, socket, already_read).await;
        open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Charge in bytes for opening a session: the bytes that a session may send beyond its requests.
/// Without this charge, an address that opens one session after the other would not pay for these
/// bytes.
const OPENING_BYTES: u64 = metered::SLACK_BYTES;
/// Maximum time per hour (ms) in which transfers may mark this host's measurements as loaded: 10 %
/// for one address, 20 % for all addresses. The unmarked measurements are enough for forecasts. A
/// page that measures for 2 s each minute marks 3 %.
pub(crate) const PEER_MARKED_MS_PER_HOUR: u64 = 360_000;
pub(crate) const MARKED_MS_PER_HOUR: u64 = 2 * PEER_MARKED_MS_PER_HOUR;
const FULL: &str = "too many echo sessions are open (echo.sessions_max)";
const SPENT: &str = "the hourly byte limit is reached (echo.peer_bytes_per_hour, echo.bytes_per_hour)";
/// Maximum number of bytes of a page's transfer: such a transfer fills a link of 100 Mbit/s for
/// more than a second, and a much slower link for longer than a user waits.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 16 << 20;
