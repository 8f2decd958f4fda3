//! Probes over WebSocket (docs/spec/echo.md): what a page in a browser measures a station with.
//!
//! Sessions run on the HTTP runtime, beside the API: they are many, mostly idle, and cost what their
//! bytes cost. A page's own clock is coarser than a wake-up of the runtime.

mod counters;
mod metered;
mod places;
pub(crate) mod reports;
mod session;

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
use crate::forecast::bank::Bank;
use crate::limits::Limit;
use crate::limits::connections::{Connections, Open};
use crate::limits::proved::ProvedCallers;
use crate::record::recorder::Inbox;
use crate::sync::lock;
use barograph_limits::accounts::Accounts;
use barograph_limits::admission::Kind;
use barograph_limits::bucket::Rate;
use places::Places;
use reports::Keeper;

pub(crate) use counters::Counters;
#[cfg(test)]
pub(crate) use places::SHARE as TRANSFERS_SHARE;
pub(crate) use session::MESSAGE_BYTES_MAX;

/// The subprotocol of a session; the number is its version.
pub(crate) const SUBPROTOCOL: &str = "barograph-probe.1";

/// What a session needs of the connection beneath it.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Turns Nagle's algorithm off (true) or on.
    fn set_nodelay(&self, nodelay: bool) -> std::io::Result<()>;

    /// The kernel's view after a transfer that took `elapsed_s`.
    fn bulk_tcp_info(&self, elapsed_s: f64) -> Option<TcpInfo>;
}

/// What all sessions of a station have in common.
#[derive(Debug)]
pub(crate) struct Echo {
    began: Instant,
    sessions: Connections,
    places: Places,
    accounts: Mutex<Accounts>,
    /// Milliseconds for which transfers have this host's measurements marked as made under load.
    marked: Mutex<Accounts>,
    transfer_bytes_max: u64,
    keeper: Keeper,
    responder: Arc<Responder>,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
    noise: OnceLock<Bytes>,
}

/// What it works with.
pub(crate) struct Parts {
    pub(crate) host: Name,
    pub(crate) inbox: Inbox,
    pub(crate) bank: Arc<Mutex<Bank>>,
    pub(crate) responder: Arc<Responder>,
    pub(crate) proved: ProvedCallers,
    /// Becomes true when the station stops: sessions then end.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A place for one session, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    caller: Caller,
    echo: Arc<Echo>,
    seat: Arc<Open>,
}

/// Who has a session.
#[derive(Clone, Copy, Debug)]
struct Caller {
    ip: IpAddr,
    /// On this host: its traffic crosses no network.
    is_local: bool,
}

impl Echo {
    pub(crate) fn new(config: &EchoConfig, parts: Parts) -> Self {
        let Parts { host, inbox, bank, responder, proved, stopping } = parts;
        let accounts =
            Accounts::new(Rate::per_hour(config.bytes_per_hour), Rate::per_hour(config.peer_bytes_per_hour));
        let keeper = Keeper::new(config, host, inbox, bank);
        Self {
            began: Instant::now(),
            sessions: Connections::new(config.sessions_max, Kind::Seats, proved),
            places: Places::new(config.transfers_max),
            transfer_bytes_max: accounts.at_once_max().min(TRANSFER_BYTES_MAX),
            accounts: Mutex::new(accounts),
            marked: Mutex::new(Accounts::new(
                Rate::per_hour(MARKED_MS_PER_HOUR),
                Rate::per_hour(PEER_MARKED_MS_PER_HOUR),
            )),
            keeper,
            responder,
            counters: Arc::default(),
            stopping,
            noise: OnceLock::new(),
        }
    }

    /// A place for a session, and whether another one was closed for it. Nothing is paid yet:
    /// [`Admission::pay`] does that when there is one to open.
    ///
    /// # Errors
    /// Why there is none, as a sentence for the caller, and the limit of the station that was reached.
    pub(crate) fn admit(
        self: &Arc<Self>,
        ip: IpAddr,
        is_local: bool,
    ) -> Result<(Admission, bool), (&'static str, Limit)> {
        let now = self.began.elapsed();
        if !is_local && !lock(&self.accounts).could_pay(ip, OPENING_BYTES, now) {
            return Err((SPENT, Limit::AddressShare));
        }
        let seated = self.sessions.accept(ip, is_local);
        let (seat, has_shed) = seated.map_err(|full| (FULL, Limit::of_seats(full, Limit::EchoSessions)))?;
        let caller = Caller { ip, is_local };
        Ok((Admission { caller, echo: Arc::clone(self), seat }, has_shed))
    }

    /// Sessions that are open, and the most there may be.
    pub(crate) fn sessions(&self) -> (usize, usize) {
        (self.sessions.len(), self.sessions.max())
    }

    /// The most bytes of one transfer.
    pub(crate) fn transfer_bytes_max(&self) -> u64 {
        self.transfer_bytes_max
    }

    /// Whether what pages report is kept.
    pub(crate) fn keeps(&self) -> bool {
        self.keeper.keeps()
    }

    /// Reports of pages that found no room or were beyond their number.
    pub(crate) fn reports_crowded_out(&self) -> u64 {
        self.keeper.crowded_out()
    }

    pub(crate) fn set_keeps(&self, keeps: bool) {
        self.keeper.set_keeps(keeps);
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Waits until no session is open.
    pub(crate) async fn ended(&self) {
        self.sessions.ended().await;
    }

    fn pay(&self, caller: Caller, bytes: u64) -> bool {
        caller.is_local || lock(&self.accounts).pay(caller.ip, bytes, self.began.elapsed())
    }

    /// Takes what a caller has had already.
    fn charge(&self, caller: Caller, bytes: u64) {
        if !caller.is_local {
            lock(&self.accounts).charge(caller.ip, bytes, self.began.elapsed());
        }
    }

    /// Whether a caller's transfer marks this host's measurements as made under load. That of a caller
    /// on this host crosses no network. One whose marked time is spent is like any other traffic.
    fn may_mark(&self, caller: Caller) -> bool {
        !caller.is_local && lock(&self.marked).pay(caller.ip, 1, self.began.elapsed())
    }

    /// Takes the time for which a caller's transfer has marked them.
    fn charge_marked(&self, caller: Caller, marked: Duration) {
        let ms = u64::try_from(marked.as_millis()).unwrap_or(u64::MAX);
        lock(&self.marked).charge_both(caller.ip, ms, self.began.elapsed());
    }

    /// A largest message of what does not compress; made when it is first asked for.
    fn noise(&self) -> Bytes {
        let make = || {
            let mut noise = barograph_probe::io::noise();
            noise.truncate(MESSAGE_BYTES_MAX);
            Bytes::from(noise)
        };
        self.noise.get_or_init(make).clone()
    }
}

impl Admission {
    /// Pays for opening the session.
    ///
    /// # Errors
    /// The address has spent its bytes since, as a sentence for the caller.
    pub(crate) fn pay(&self) -> Result<(), &'static str> {
        self.echo.pay(self.caller, OPENING_BYTES).then_some(()).ok_or(SPENT)
    }

    /// Serves the session on `socket` until it ends; `already_read` came after the request's head.
    pub(crate) async fn serve<S: Socket>(self, socket: S, already_read: Vec<u8>) {
        let open = &self.echo.counters.sessions_open;
        open.fetch_add(1, Ordering::Relaxed);
        session::run(&self.echo, self.caller, &self.seat, socket, already_read).await;
        open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What opening a session costs: what it may send beyond what it asks for. Otherwise an address that opens
/// one after the other would have that for nothing each time.
const OPENING_BYTES: u64 = metered::SLACK_BYTES;
/// Ten and twenty per cent of the time: what is left of a station's own measurements gives forecasts as
/// before, and a page that measures for two seconds each minute marks three per cent.
pub(crate) const PEER_MARKED_MS_PER_HOUR: u64 = 360_000;
pub(crate) const MARKED_MS_PER_HOUR: u64 = 2 * PEER_MARKED_MS_PER_HOUR;
const FULL: &str = "too many echo sessions are open (echo.sessions_max)";
const SPENT: &str = "the bytes of this hour are spent (echo.peer_bytes_per_hour, echo.bytes_per_hour)";
/// The largest size of a page's transfers: one that fills a 100 Mbit/s line for more than a second, and
/// a slower one for longer than anybody watches.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 16 << 20;
