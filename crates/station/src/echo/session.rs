//! One session: requests, exchanges and transfers as binary messages, each within its bounds.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barograph_probe::Direction;
use barograph_probe::io::ForeignBulk;
use barograph_probe::wire::{BulkSummary, DeclineReason, EXCHANGE_BYTES, Reply, Request};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use super::metered::{Metered, SLACK_BYTES};
use super::reports::SessionReports;
use super::slots::TransferSlot;
use super::{Caller, Echo, Socket};
use crate::limits::connections::ConnectionGuard;
use barograph_limits::pace::{SLOWEST_BYTES_PER_MS, transfer_time_max};

/// Serves a session until either end closes it.
pub(super) async fn run<S: Socket>(
    echo: &Arc<Echo>,
    caller: Caller,
    slot: &ConnectionGuard,
    socket: S,
    already_read: Vec<u8>,
) {
    let metered = Metered::new(socket, Arc::clone(&echo.counters));
    let socket =
        WebSocketStream::from_partially_read(metered, already_read, Role::Server, Some(websocket())).await;
    let mut session = Session {
        socket,
        echo,
        caller,
        last_request: Instant::now(),
        has_nagle: false,
        reports: SessionReports::default(),
    };
    let mut stopping = echo.stopping.clone();
    let end = tokio::select! {
        end = session.serve() => match end {
            Err(end) => end,
            Ok(never) => match never {},
        },
        _ = stopping.wait_for(|stopping| *stopping) => SessionEnd::Cut(CloseCode::Away, "the station is stopping"),
        () = slot.shed() => SessionEnd::Cut(CloseCode::Again, "closed to make room for another network"),
    };
    if let SessionEnd::Cut(code, reason) = end {
        let _ = timeout(CLOSE_MAX, session.close(code, reason)).await;
    }
}

struct Session<'a, S> {
    socket: WebSocketStream<Metered<S>>,
    echo: &'a Arc<Echo>,
    caller: Caller,
    last_request: Instant,
    has_nagle: bool,
    reports: SessionReports,
}

/// Why a session is over.
enum SessionEnd {
    /// The peer has closed the connection, or cannot be reached.
    Gone,
    /// The station closes the session with this code and reason.
    Cut(CloseCode, &'static str),
}

enum Incoming {
    Binary(Bytes),
    Text(Utf8Bytes),
}

/// The slot of a running transfer, and the charge for the time of the transfer. Dropping this value
/// releases the slot and charges the caller.
struct TransferPermit {
    _slot: TransferSlot,
    _charge: SlotCharge,
}

/// Number of bytes that a transfer has moved. A transfer that loads this host also marks the host's
/// measurements as loaded.
struct TransferProgress<'a> {
    echo: &'a Echo,
    caller: Caller,
    bytes: u64,
    loaded: Option<(ForeignBulk, Instant)>,
}

impl TransferProgress<'_> {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.loaded.is_none() && self.bytes > LOADS_BYTES && self.echo.may_mark(self.caller) {
            self.loaded = Some((self.echo.responder.count_foreign_bulk(), Instant::now()));
        }
    }
}

impl Drop for TransferProgress<'_> {
    fn drop(&mut self) {
        if let Some((_, since)) = &self.loaded {
            self.echo.charge_marked(self.caller, since.elapsed());
        }
    }
}

/// Charge for the time for which a transfer uses its slot. The caller is charged when this value is
/// dropped, however the transfer ends.
struct SlotCharge {
    echo: Arc<Echo>,
    caller: Caller,
    since: Instant,
    paid_bytes: u64,
}

impl Drop for SlotCharge {
    fn drop(&mut self) {
        let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let unpaid = ms.saturating_mul(SLOWEST_BYTES_PER_MS).saturating_sub(self.paid_bytes);
        if unpaid > 0 {
            self.echo.charge(self.caller, unpaid);
        }
    }
}

impl<S: Socket> Session<'_, S> {
    async fn serve(&mut self) -> Result<Infallible, SessionEnd> {
        loop {
            match self.next_request().await? {
                Incoming::Binary(frame) => self.answer(&frame).await?,
                Incoming::Text(text) => self.report(&text),
            }
        }
    }

    /// Waits for the next message between experiments, for as long as the peer answers pings.
    async fn next_request(&mut self) -> Result<Incoming, SessionEnd> {
        let mut has_pinged = false;
        loop {
            match timeout(SILENCE, self.socket.next()).await {
                Ok(item) => {
                    has_pinged = false;
                    match received(item)? {
                        Some(request @ Incoming::Binary(_)) => return Ok(request),
                        // Reports alone do not keep a session open.
                        Some(report) if self.last_request.elapsed() < UNASKED_MAX => return Ok(report),
                        _ => {}
                    }
                }
                Err(_) if has_pinged => return Err(SessionEnd::Gone),
                Err(_) => {
                    has_pinged = true;
                    self.send(Message::Ping(Bytes::new())).await?;
                }
            }
            if self.last_request.elapsed() >= UNASKED_MAX {
                return Err(SessionEnd::Cut(CloseCode::Away, "no request for ten minutes"));
            }
        }
    }

    async fn answer(&mut self, frame: &[u8]) -> Result<(), SessionEnd> {
        self.last_request = Instant::now();
        let Ok(request) = Request::decode(frame) else {
            self.send_declined(DeclineReason::Malformed).await?;
            return Err(SessionEnd::Cut(CloseCode::Protocol, "not a valid request"));
        };
        self.set_nagle(false)?;
        match self.admit(request).await {
            Ok(permit) => {
                self.socket.get_mut().allow(REQUEST_ALLOWANCE + arriving_bytes(request));
                self.send(Message::binary(Reply::Ready { nonce: 0 }.encode().to_vec())).await?;
                self.experiment(request, permit).await
            }
            // A declined request adds no allowance, so the session of a peer that sends only such
            // requests is closed.
            Err(declined) => self.send_declined(declined).await,
        }
    }

    async fn send_declined(&mut self, declined: DeclineReason) -> Result<(), SessionEnd> {
        self.echo.counters.declined(declined);
        self.send(Message::binary(Reply::Declined(declined).encode().to_vec())).await
    }

    /// Checks that a request is within the limits, and charges it. Returns the slot for a transfer.
    async fn admit(&self, request: Request) -> Result<Option<TransferPermit>, DeclineReason> {
        let (bytes, is_transfer) = match request {
            Request::Rtt { n } | Request::RttNagle { n } if n > COUNT_MAX => {
                return Err(DeclineReason::TooLarge { limit: COUNT_MAX.into() });
            }
            Request::Goodput { bytes, .. } if bytes > self.echo.transfer_bytes_max => {
                return Err(DeclineReason::TooLarge { limit: self.echo.transfer_bytes_max });
            }
            Request::Datagrams { .. } | Request::Stream { .. } | Request::Iperf3 { .. } => {
                return Err(DeclineReason::NotServed);
            }
            Request::Rtt { n } | Request::RttNagle { n } => (EXCHANGE_COST_BYTES * u64::from(n), false),
            Request::Goodput { bytes, .. } => (bytes, true),
        };
        let slot = match is_transfer {
            true => Some(
                self.echo
                    .slots
                    .take(self.caller.ip, self.caller.is_local)
                    .await
                    .ok_or(DeclineReason::Busy)?,
            ),
            false => None,
        };
        if !self.echo.pay(self.caller, bytes) {
            return Err(DeclineReason::Spent);
        }
        let (echo, caller) = (self.echo, self.caller);
        Ok(slot.map(|slot| TransferPermit {
            _slot: slot,
            _charge: SlotCharge { echo: Arc::clone(echo), caller, since: Instant::now(), paid_bytes: bytes },
        }))
    }

    async fn experiment(
        &mut self,
        request: Request,
        permit: Option<TransferPermit>,
    ) -> Result<(), SessionEnd> {
        match request {
            Request::Rtt { n } => {
                for _ in 0..n {
                    let exchange = self.exchange().await?;
                    self.send(Message::Binary(exchange)).await?;
                }
                Ok(())
            }
            Request::RttNagle { n } => self.echo_with_nagle(n).await,
            Request::Goodput { direction, bytes } => {
                let done = timeout(transfer_time_max(bytes), self.transfer(direction, bytes))
                    .await
                    .map_err(|_| SessionEnd::Cut(CloseCode::Policy, "the transfer took too long"))??;
                // Release the slot first: the client may begin its next transfer as soon as it has
                // read the result.
                drop(permit);
                self.send(Message::binary(done.encode().to_vec())).await
            }
            Request::Datagrams { .. } | Request::Stream { .. } | Request::Iperf3 { .. } => Ok(()),
        }
    }

    /// Echoes each byte in a write of its own. Nagle's algorithm stays on until the next request:
    /// turning it off would send the last byte at once (tcp(7), `TCP_NODELAY`).
    async fn echo_with_nagle(&mut self, n: u32) -> Result<(), SessionEnd> {
        self.set_nagle(true)?;
        for _ in 0..n {
            let exchange = self.exchange().await?;
            for at in 0..EXCHANGE_BYTES {
                self.send(Message::Binary(exchange.slice(at..=at))).await?;
            }
        }
        Ok(())
    }

    /// Runs a transfer. The receiving end counts the bytes; the sending end adds the TCP statistics
    /// of its kernel.
    async fn transfer(&mut self, direction: Direction, bytes: u64) -> Result<BulkSummary, SessionEnd> {
        let mut progress = TransferProgress { echo: self.echo, caller: self.caller, bytes: 0, loaded: None };
        match direction {
            Direction::Up => {
                let mut left = bytes;
                while left > 0 {
                    let message = self.binary().await?;
                    left = left.checked_sub(message.len() as u64).ok_or(TOO_MUCH)?;
                    progress.add(message.len() as u64);
                }
                Ok(BulkSummary { bytes, tcp_info: None })
            }
            Direction::Down => {
                self.exchange().await?;
                let noise = self.echo.noise();
                let began = Instant::now();
                let mut left = bytes;
                while left > 0 {
                    let length = usize::try_from(left).map_or(noise.len(), |left| left.min(noise.len()));
                    self.send(Message::Binary(noise.slice(..length))).await?;
                    left -= length as u64;
                    progress.add(length as u64);
                }
                let elapsed_s = began.elapsed().as_secs_f64();
                let tcp_info = self.socket.get_ref().get_ref().bulk_tcp_info(elapsed_s);
                Ok(BulkSummary { bytes, tcp_info })
            }
        }
    }

    async fn exchange(&mut self) -> Result<Bytes, SessionEnd> {
        let message = self.binary().await?;
        if message.len() == EXCHANGE_BYTES {
            Ok(message)
        } else {
            Err(SessionEnd::Cut(CloseCode::Protocol, "an exchange must have two bytes"))
        }
    }

    /// The next message of an experiment.
    async fn binary(&mut self) -> Result<Bytes, SessionEnd> {
        let wait = async {
            loop {
                if let Some(incoming) = received(self.socket.next().await)? {
                    return Ok(incoming);
                }
            }
        };
        match timeout(SILENCE, wait).await {
            Ok(Ok(Incoming::Binary(message))) => Ok(message),
            Ok(Ok(Incoming::Text(_))) => {
                Err(SessionEnd::Cut(CloseCode::Protocol, "report during an experiment"))
            }
            Ok(Err(end)) => Err(end),
            Err(_) => Err(SessionEnd::Cut(CloseCode::Policy, "no data during an experiment")),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), SessionEnd> {
        match timeout(TAKE_MAX, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(SessionEnd::from(error)),
            Err(_) => Err(SessionEnd::Cut(CloseCode::Policy, "a message was not read in time")),
        }
    }

    fn set_nagle(&mut self, on: bool) -> Result<(), SessionEnd> {
        if on != self.has_nagle {
            self.socket.get_ref().get_ref().set_nodelay(!on).map_err(|_| SessionEnd::Gone)?;
            self.has_nagle = on;
        }
        Ok(())
    }

    fn report(&mut self, text: &str) {
        let counters = &self.echo.counters;
        let now = self.echo.began.elapsed();
        let is_kept = self.echo.page_reports.take(text, self.caller, &mut self.reports, now);
        let count = if is_kept { &counters.reports_kept } else { &counters.reports_dropped };
        count.fetch_add(1, Ordering::Relaxed);
        if is_kept {
            self.socket.get_mut().allow(REPORT_ALLOWANCE);
        }
    }

    /// Sends the reason, then reads until the peer has also closed the connection. Closing with
    /// unread bytes would make the system send a reset, which can discard the reason at the peer
    /// (RFC 9112 §9.6).
    async fn close(&mut self, code: CloseCode, reason: &'static str) -> io::Result<()> {
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        self.socket.get_mut().allow_only(LINGER_BYTES);
        self.socket.close(Some(frame)).await.map_err(io::Error::other)?;
        let stream = self.socket.get_mut();
        stream.shutdown().await?;
        let mut rest = [0; 4096];
        loop {
            match stream.read(&mut rest).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // The peer's allowance is used up, so read no more. Wait until the time limit for
                // closing ends, so that the reason can arrive at the peer.
                Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => pending().await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The message that the library returned; `None` if the session ignores the message.
fn received(item: Option<Result<Message, Error>>) -> Result<Option<Incoming>, SessionEnd> {
    match item {
        None => Err(SessionEnd::Gone),
        Some(Ok(Message::Binary(bytes))) => Ok(Some(Incoming::Binary(bytes))),
        Some(Ok(Message::Text(text))) => Ok(Some(Incoming::Text(text))),
        // The library answers a close message itself; its next call returns the end of the
        // connection.
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => Ok(None),
        Some(Err(error)) => Err(SessionEnd::from(error)),
    }
}

impl From<Error> for SessionEnd {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(_) => Self::Cut(CloseCode::Size, "a message is too long"),
            Error::Utf8(_) => Self::Cut(CloseCode::Invalid, "a text is not UTF-8"),
            Error::Io(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                Self::Cut(CloseCode::Policy, "more data than allowed")
            }
            Error::Protocol(_) => Self::Cut(CloseCode::Protocol, "WebSocket protocol error (RFC 6455)"),
            _ => Self::Gone,
        }
    }
}

/// Maximum number of bytes that the client sends for a request. A frame header has up to 14 bytes
/// (RFC 6455 §5.2), so an exchange of 2 bytes takes 16 bytes. In transfers with messages of 512
/// bytes, headers add less than 1/32.
fn arriving_bytes(request: Request) -> u64 {
    match request {
        Request::Rtt { n } | Request::RttNagle { n } => 16 * u64::from(n),
        Request::Goodput { direction: Direction::Up, bytes } => bytes + bytes / 32,
        Request::Goodput { direction: Direction::Down, .. }
        | Request::Datagrams { .. }
        | Request::Stream { .. }
        | Request::Iperf3 { .. } => 16,
    }
}

fn websocket() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        // Every message is written at once, because its time is measured.
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MESSAGE_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

/// The transfer had more bytes than requested.
const TOO_MUCH: SessionEnd = SessionEnd::Cut(CloseCode::Protocol, "more bytes than the request says");
/// Maximum number of bytes of a message in either direction. This size is large enough that the
/// cost of a message is small compared with the cost of its bytes, and 256 sessions together hold
/// about 30 MB at most.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Size of the read buffer of each session (bytes). A message of the largest size takes four reads.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Maximum number of exchanges of one request. At 1 ms each, these exchanges take one second, which
/// is the period of a page's requests.
const COUNT_MAX: u32 = 1000;
/// Charge for an exchange (bytes). The few packets of an exchange have 300 bytes on the wire, but
/// handling them costs as much as handling three full packets.
const EXCHANGE_COST_BYTES: u64 = 1024;
/// Allowance (bytes) for each request that is served, in addition to the bytes of its experiment:
/// for the request itself, pongs, and a few reports.
const REQUEST_ALLOWANCE: u64 = 1024;
/// Allowance for a report that is kept, in bytes on the wire; the number of kept reports is
/// limited.
const REPORT_ALLOWANCE: u64 = 512;
/// Number of bytes of a transfer above which this host's own measurements are marked as loaded. A
/// page's usual probes of 64 to 256 KiB do not exceed this number. With a lower number, these
/// probes would mark most measurements, although each probe loads the host only for a few
/// milliseconds.
const LOADS_BYTES: u64 = 256 * 1024;
/// Longest time to send a message, enough even at 56 kbit/s.
const TAKE_MAX: Duration = Duration::from_secs(10);
/// Silence after which a peer is sent a ping. During an experiment, silence of this length ends the
/// session. This time is longer than the sum of the usual pauses between retransmissions.
const SILENCE: Duration = Duration::from_secs(30);
/// Time without requests after which a session ends: twice the longest period of a page (5 min).
const UNASKED_MAX: Duration = Duration::from_mins(10);
/// Longest time for closing, and maximum number of bytes read in this time. These bytes were still
/// in flight; the charge for opening the session covers them.
const CLOSE_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = SLACK_BYTES;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    //! Tests with a paused clock, and pipes instead of sockets.

    use std::sync::Mutex;

    use barograph_forecast::Name;
    use barograph_probe::TcpInfo;
    use barograph_probe::io::{Responder, ResponderLimits};
    use tokio::io::DuplexStream;
    use tokio::sync::watch;

    use super::*;
    use crate::config::EchoConfig;
    use crate::echo::EchoDependencies;
    use crate::forecast::series::SeriesTable;
    use crate::health::Health;
    use crate::record::recorder::Inbox;

    impl Socket for DuplexStream {
        fn set_nodelay(&self, _nodelay: bool) -> io::Result<()> {
            Ok(())
        }

        fn bulk_tcp_info(&self, _elapsed_s: f64) -> Option<TcpInfo> {
            None
        }
    }

    /// A session, and the page at its other end.
    struct Pair {
        page: WebSocketStream<DuplexStream>,
        session: tokio::task::JoinHandle<()>,
        began: Instant,
        responder: Arc<Responder>,
        echo: Arc<Echo>,
        _running: watch::Sender<bool>,
    }

    impl Pair {
        async fn open() -> Self {
            Self::open_as(false, &EchoConfig::default()).await
        }

        async fn open_as(is_local: bool, config: &EchoConfig) -> Self {
            let (running, stopping) = watch::channel(false);
            let responder = Arc::new(Responder::start(ResponderLimits::default(), None).unwrap());
            let (inbox, _) = Inbox::new(Arc::new(Health::new()));
            let parts = EchoDependencies {
                host: Name::new("here").unwrap(),
                inbox,
                series_table: Arc::new(Mutex::new(SeriesTable::new(1))),
                responder: Arc::clone(&responder),
                authenticated: crate::limits::authenticated::AuthenticatedCallers::new(),
                stopping,
            };
            let echo = Arc::new(Echo::new(config, parts));
            let (ours, theirs) = tokio::io::duplex(1000);
            let admission = echo.admit([192, 0, 2, 1].into(), is_local).unwrap().0;
            let session = tokio::spawn(admission.serve(ours, Vec::new()));
            let page = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
            Self { page, session, began: Instant::now(), responder, echo, _running: running }
        }

        async fn request(&mut self, request: Request) {
            self.page.send(Message::binary(request.encode().to_vec())).await.unwrap();
            let reply = self.page.next().await.unwrap().unwrap().into_data();
            assert_eq!(Reply::decode(&reply), Ok(Reply::Ready { nonce: 0 }));
        }

        /// Waits until the session closes; returns the time in whole seconds, and the close code.
        /// Answers pings meanwhile.
        async fn closed(mut self) -> (u64, Option<CloseCode>) {
            let mut at = None;
            while let Some(Ok(message)) = self.page.next().await {
                if let Message::Close(frame) = message {
                    at = Some((self.began.elapsed().as_secs(), frame.map(|frame| frame.code)));
                }
            }
            at.unwrap_or((self.began.elapsed().as_secs(), None))
        }

        /// Waits for the end of a session with a page that reads nothing; returns the time in whole
        /// seconds.
        async fn over(self) -> u64 {
            self.session.await.unwrap();
            self.began.elapsed().as_secs()
        }
    }

    proptest::proptest! {
        /// Frames of every kind with any content, cut anywhere, end the session.
        #[test]
        fn arbitrary_bytes_end_the_session(
            frames in proptest::collection::vec(
                (proptest::num::u8::ANY, proptest::collection::vec(proptest::num::u8::ANY, 0..20)),
                0..20,
            ),
            requests in proptest::collection::vec(1_u8..6, 0..4),
            cut in 0_usize..40,
        ) {
            let mut bytes = Vec::new();
            for kind in requests {
                // A small request of this kind, masked with zeros.
                bytes.extend([0x82, 0x90, 0, 0, 0, 0, 0xB1, kind, 0, 0]);
                let (count, length) = if matches!(kind, 3 | 4) { (0, 9) } else { (2, 0) };
                bytes.extend(u32::to_be_bytes(count));
                bytes.extend(u64::to_be_bytes(length));
            }
            for (first, payload) in frames {
                bytes.extend([first, 0x80 | payload.len() as u8, 0, 0, 0, 0]);
                bytes.extend(payload);
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
                let Pair { page, session, _running, .. } = Pair::open().await;
                let (mut reading, mut writing) = tokio::io::split(page.into_inner());
                let sink = tokio::spawn(async move { reading.read_to_end(&mut Vec::new()).await });
                // The session may close before it has read all bytes.
                let _ = writing.write_all(&bytes).await;
                let _ = writing.shutdown().await;
                timeout(Duration::from_mins(11), session).await.unwrap().unwrap();
                sink.await.unwrap().unwrap();
            });
        }
    }

    fn transfer(direction: Direction) -> Request {
        Request::Goodput { direction, bytes: 1 << 20 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_answer_pings_is_dropped() {
        assert_eq!(Pair::open().await.over().await, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_without_requests_ends_after_ten_minutes() {
        assert_eq!(Pair::open().await.closed().await, (600, Some(CloseCode::Away)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_only_sends_reports_ends_after_ten_minutes() {
        let mut pair = Pair::open().await;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            pair.page.send(Message::text("{}")).await.unwrap();
        }
        assert_eq!(pair.closed().await, (600, Some(CloseCode::Away)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_disconnected() {
        let mut pair = Pair::open().await;
        pair.request(transfer(Direction::Down)).await;
        pair.page.send(Message::binary(vec![0, 0])).await.unwrap();
        let responder = Arc::clone(&pair.responder);
        // The session waits ten seconds for the message and one second for closing.
        assert_eq!(pair.over().await, 11);
        assert!(!responder.bulk_running() && responder.bulk_begun() == 0, "it has moved little");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_writer_is_disconnected_and_does_not_count_as_load() {
        let mut pair = Pair::open().await;
        pair.request(transfer(Direction::Up)).await;
        for _ in 0..2 {
            assert!(!pair.responder.bulk_running());
            pair.page.send(Message::binary(vec![0])).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        // The time limit of a transfer: five seconds, plus the time for a mebibyte at 1 Mbit/s.
        assert_eq!(pair.closed().await, (13, Some(CloseCode::Policy)));
    }

    /// Uploads `bytes` bytes in messages of 64 KiB. Checks after each message whether the host
    /// counts as loaded. If so, the result contains the number of KiB uploaded until then.
    async fn loaded_after(is_local: bool, bytes: usize) -> Vec<usize> {
        let mut pair = Pair::open_as(is_local, &EchoConfig::default()).await;
        pair.request(Request::Goodput { direction: Direction::Up, bytes: bytes as u64 }).await;
        let mut loaded = Vec::new();
        for at in (MESSAGE_BYTES_MAX..=bytes).step_by(MESSAGE_BYTES_MAX) {
            pair.page.send(Message::binary(vec![0; MESSAGE_BYTES_MAX])).await.unwrap();
            // The clock moves only after the session has read the whole message.
            tokio::time::sleep(Duration::from_millis(1)).await;
            if pair.responder.bulk_running() {
                loaded.push(at / 1024);
            }
        }
        assert!(pair.page.next().await.unwrap().unwrap().is_binary(), "done");
        assert!(!pair.responder.bulk_running());
        loaded
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_large_transfer_of_another_host_counts_as_load() {
        assert!(loaded_after(false, 64 << 10).await.is_empty());
        assert!(loaded_after(false, 256 << 10).await.is_empty());
        let while_it_moves: Vec<usize> = (320..1024).step_by(64).collect();
        assert_eq!(loaded_after(false, 1 << 20).await, while_it_moves);
        assert!(loaded_after(true, 1 << 20).await.is_empty());
    }

    /// Without a limit, a caller that transfers all the time would mark every measurement.
    #[tokio::test(start_paused = true)]
    async fn a_caller_beyond_its_load_time_marks_no_measurement_as_loaded() {
        let mut pair = Pair::open().await;
        let mut marked_s = 0;
        for _ in 0..60 {
            pair.request(Request::Goodput { direction: Direction::Up, bytes: 1 << 20 }).await;
            for _ in 0..16 {
                pair.page.send(Message::binary(vec![0; MESSAGE_BYTES_MAX])).await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
                marked_s += u64::from(pair.responder.bulk_running());
            }
            assert!(pair.page.next().await.unwrap().unwrap().is_binary(), "it is served all the same");
        }
        // An eighth of the hour's marked time may be used at once, and the last transfer that began
        // before this time was used up runs to its end. The accounts do not use the simulated
        // clock.
        let marked_s = marked_s / 2;
        assert!((45..=53).contains(&marked_s), "{marked_s} s");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_transfer_slot_is_charged_for_its_time() {
        let config = EchoConfig { peer_bytes_per_hour: 8_000_000, ..EchoConfig::default() };
        let mut pair = Pair::open_as(false, &config).await;
        let echo = Arc::clone(&pair.echo);
        pair.request(Request::Goodput { direction: Direction::Up, bytes: 3 }).await;
        assert_eq!(pair.closed().await, (5, Some(CloseCode::Policy)));
        let caller = Caller { ip: [192, 0, 2, 1].into(), is_local: false };
        // The account has a million bytes; five seconds at 1 Mbit/s are charged.
        assert!(!echo.pay(caller, 1_000_000 - 600_000));
        assert!(echo.pay(caller, 1_000_000 - 700_000));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_during_an_experiment_ends_the_session() {
        let mut pair = Pair::open().await;
        pair.request(Request::Rtt { n: 2 }).await;
        assert_eq!(pair.closed().await, (30, Some(CloseCode::Policy)));
    }
}
