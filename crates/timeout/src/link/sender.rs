//! The sender: one message at a time, with a timeout for each attempt.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::attempt_guard::AttemptGuard;
use super::backoff::Backoff;
use super::client_connection::ClientConnection;
use super::connect::{Connect, Tcp};
use super::error::{AttemptError, SendError};
use super::wire::{AckStatus, Header, SenderId, WireError};
use crate::{Attempt, AttemptOutcome, MessageAttempts, Rfc6298, TimeoutDecision, TimeoutEstimator};

/// Configuration of a [`Link`].
///
/// ```
/// use barograph_timeout::Adaptive;
/// use barograph_timeout::link::{Link, LinkConfig, SenderId};
///
/// let sender = SenderId(*b"0123456789abcdef");
/// let config = LinkConfig { sender: Some(sender), first_id: 42, ..LinkConfig::default() };
/// let link = Link::tcp("receiver.example.org:7000", config, Adaptive::default());
/// assert_eq!((link.sender(), link.next_id()), (sender, 42));
/// ```
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Maximum number of attempts of a message, the first included; 0 counts as 1. The set-up of a
    /// connection is not an attempt: see `connect_timeout`.
    pub max_attempts: u32,
    /// Length of the longest message that is sent, in bytes. The receiver has its own limit, too.
    pub message_bytes_max: u32,
    /// Longest time that a message waits for a receiver to which no connection can be set up. Such
    /// a receiver is not running, refuses, is full or is shutting down. After this time, the
    /// message is given up. This time starts again with each attempt. The last set-up may exceed
    /// this time by up to 3 s. The first set-up may exceed this time by the time of the set-up
    /// timer.
    pub connect_timeout: Duration,
    /// Shortest wait after an attempt or a set-up that failed. There is no wait after an attempt or
    /// a set-up that timed out. Between set-ups the wait is at least 10 ms.
    pub backoff_min: Duration,
    /// Longest wait after an attempt or a set-up that failed.
    pub backoff_max: Duration,
    /// Identity of this link; drawn at random unless set. Two links must never have the same
    /// identity.
    pub sender: Option<SenderId>,
    /// Identifier of the first message, at least 1. A link that continues under the `sender` of an
    /// earlier link must begin above all identifiers that the earlier link used.
    pub first_id: u64,
    /// Seed of the jitter of waits; derived from `sender` unless set.
    pub seed: Option<u64>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            // The paper's limit for resends (Allen, Wolski, Plank 2002, §4).
            max_attempts: 5,
            // Enough for messages. Larger data should be divided into several messages, each with
            // its own acknowledgement.
            message_bytes_max: 64 * 1024 * 1024,
            // A receiver that restarts is usually available again within seconds. A receiver that
            // shuts down has ended after its grace period, which is as long as this limit.
            connect_timeout: Duration::from_secs(30),
            // The first retries are frequent, and later retries are rare. With waits of 50, 100,
            // 200 ms and so on, there are at least nine set-ups in the first 15 s.
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            sender: None,
            first_id: 1,
            seed: None,
        }
    }
}

/// Result of a message that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Identifier of the message.
    pub id: u64,
    /// Number of attempts, at least 1.
    pub attempts: u32,
    /// Number of attempts that timed out.
    pub timeouts: u32,
    /// Time from the call of [`Link::send`] to the acknowledgement, including connections and
    /// waits.
    pub took: Duration,
    /// Response time of the last attempt. For a duplicate, this is the time to the acknowledgement
    /// of the duplicate, not the response time of the copy that was handled.
    pub response: Duration,
    /// Whether the receiver had handled an earlier copy and acknowledged this copy as a duplicate.
    pub duplicate: bool,
}

/// Counters of a [`Link`] since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Number of messages that were passed to [`Link::send`] and not refused at once.
    pub messages: u64,
    /// Number of messages that were acknowledged.
    pub acknowledged: u64,
    /// Number of attempts that began. A failed set-up counts only if the peer broke the protocol.
    pub attempts: u64,
    /// Number of attempts other than the first attempt of a message.
    pub retries: u64,
    /// Number of attempts that timed out.
    pub timeouts: u64,
    /// Number of attempts that failed without a timeout.
    pub failures: u64,
    /// Number of times that the peer broke the protocol: it sent bytes between messages,
    /// acknowledged a different message, or sent an invalid frame.
    pub protocol_errors: u64,
    /// Number of messages that were acknowledged as duplicates: an earlier copy had arrived and was
    /// handled, so a longer timeout might have avoided the retry. False timeouts cannot be counted,
    /// because an acknowledgement that arrives after its attempt was cut off is not seen.
    pub duplicates: u64,
    /// Number of connections that were set up.
    pub connections: u64,
    /// Number of connections that could not be set up: refused, declined, broken or timed out.
    pub unreachable: u64,
}

/// Sends messages to one target. The receiver handles each message once (`docs/spec/link.md`).
///
/// One message is in progress at a time: [`Link::send`] borrows the link until the receiver has
/// accepted the message, so a slow receiver slows the caller down (back-pressure). The clock is
/// tokio's, with timers accurate to 1 ms.
///
/// ```
/// use barograph_timeout::link::{Link, LinkConfig};
/// use barograph_timeout::{Adaptive, INITIAL_TIMEOUT};
/// use std::time::Duration;
///
/// let target = "receiver.example.org:7000";
/// let mut link = Link::tcp(target, LinkConfig::default(), Adaptive::default());
/// assert_eq!(link.decide(4096).timeout, INITIAL_TIMEOUT);
/// link.estimator_mut().start_from(Duration::from_millis(20), Duration::from_millis(2));
/// assert!(link.decide(4096).timeout < Duration::from_secs(1));
/// assert!(!link.is_connected(), "it connects with the first message");
/// ```
pub struct Link<C: Connect, E: TimeoutEstimator> {
    connector: C,
    config: LinkConfig,
    sender: SenderId,
    estimator: E,
    /// Timer of connection set-ups, separate from the timeouts of attempts.
    set_up: Rfc6298,
    backoff: Backoff,
    /// Idle connection; `None` while a message is sent, so that cancelling an attempt also closes
    /// its connection.
    idle: Option<ClientConnection<C::Stream>>,
    next_id: u64,
    began: Instant,
    last: Option<TimeoutDecision>,
    counters: LinkCounters,
}

impl<E: TimeoutEstimator> Link<Tcp, E> {
    /// Creates a link to `host:port` over TCP. The link connects when the first message is sent.
    #[must_use]
    pub fn tcp(target: impl Into<std::string::String>, config: LinkConfig, estimator: E) -> Self {
        Self::new(Tcp::new(target), config, estimator)
    }
}

impl<C: Connect, E: TimeoutEstimator> Link<C, E> {
    /// Creates a link over connections that `connector` makes. The link connects when the first
    /// message is sent.
    #[must_use]
    pub fn new(connector: C, config: LinkConfig, estimator: E) -> Self {
        let sender = config.sender.unwrap_or_else(SenderId::random);
        let [.., a, b, c, d, e, f, g, h] = sender.0;
        let seed = config.seed.unwrap_or(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
        Self {
            connector,
            sender,
            estimator,
            set_up: Rfc6298::default().with_floor(SET_UP_FLOOR),
            backoff: Backoff::new(config.backoff_min, config.backoff_max, seed),
            idle: None,
            next_id: config.first_id.max(1),
            began: Instant::now(),
            last: None,
            counters: LinkCounters::default(),
            config,
        }
    }

    /// Sends `message` and waits until the receiver has accepted it. If the receiver takes longer
    /// than the estimator's timeout, the link closes the connection, connects again and sends the
    /// message again under the same identifier.
    ///
    /// Dropping the future cancels the message and leaves the link usable. The receiver may or may
    /// not have handled the message; after the receiver has handled a later message, the receiver
    /// will not handle this message.
    ///
    /// ```no_run
    /// use barograph_timeout::Adaptive;
    /// use barograph_timeout::link::{Link, LinkConfig};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let target = "receiver.example.org:7000";
    /// let mut link = Link::tcp(target, LinkConfig::default(), Adaptive::default());
    /// let receipt = link.send(b"17 hPa and falling").await?;
    /// println!("{} attempts, {:?}", receipt.attempts, receipt.took);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SendError`]. The link stays usable after each error.
    pub async fn send(&mut self, message: &[u8]) -> Result<Receipt, SendError> {
        let began = Instant::now();
        let header = Header { length: self.length_of(message)?, id: self.claim_id()? };
        self.counters.messages += 1;
        let mut run = Run { header, message, attempts: 0, timeouts: 0, failures: 0, numbering: None };
        loop {
            let (attempt, outcome) = self.attempt_once(&mut run).await?;
            let attempts = attempt.number + 1;
            let error = match outcome {
                Ok((AckStatus::Stale, _)) => return Err(SendError::Stale { id: header.id }),
                Ok((status, response)) => {
                    let duplicate = status.is_duplicate();
                    self.counters.acknowledged += 1;
                    self.counters.duplicates += u64::from(duplicate);
                    let (id, timeouts, took) = (header.id, run.timeouts, began.elapsed());
                    return Ok(Receipt { id, attempts, timeouts, took, response, duplicate });
                }
                Err(AttemptError::Wire(WireError::Version(theirs))) => {
                    return Err(SendError::Version { theirs });
                }
                Err(error) => error,
            };
            if attempt.is_last() {
                return Err(SendError::Unacknowledged { attempts, timeouts: run.timeouts, last: error });
            }
            if !matches!(error, AttemptError::TimedOut(_)) {
                sleep(self.backoff.wait(run.failures)).await;
            }
        }
    }

    /// Returns the timeout that the first attempt of a message of `bytes` would have now, and the
    /// reason.
    #[must_use]
    pub fn decide(&self, bytes: u64) -> TimeoutDecision {
        self.estimator.decide(&MessageAttempts::new(bytes, self.config.max_attempts).attempt(Duration::ZERO))
    }

    /// Decision for the last attempt; `None` before the first attempt.
    #[must_use]
    pub fn last_decision(&self) -> Option<&TimeoutDecision> {
        self.last.as_ref()
    }

    /// Counters since the link was created.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Identity of this link at its receiver.
    #[must_use]
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// Identifier of the next message.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether a connection is open.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.idle.is_some()
    }

    /// The estimator, for example to save what it has learned or to report to a station.
    #[must_use]
    pub fn estimator(&self) -> &E {
        &self.estimator
    }

    /// The estimator, for example to start it from a forecast made elsewhere.
    pub fn estimator_mut(&mut self) -> &mut E {
        &mut self.estimator
    }

    /// Returns the estimator and closes the link.
    #[must_use]
    pub fn into_estimator(self) -> E {
        self.estimator
    }

    /// Closes the connection. The next message connects again.
    pub fn close(&mut self) {
        self.idle = None;
    }

    fn length_of(&self, message: &[u8]) -> Result<u32, SendError> {
        let max = self.config.message_bytes_max;
        match u32::try_from(message.len()) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(SendError::TooLarge { bytes: message.len(), max }),
        }
    }

    /// Claims an identifier before anything is sent, so that no two messages ever have the same
    /// identifier.
    fn claim_id(&mut self) -> Result<u64, SendError> {
        let id = self.next_id;
        self.next_id = id.checked_add(1).ok_or(SendError::IdsSpent)?;
        Ok(id)
    }

    /// Makes one attempt: sets up a connection if there is none, and sends the message on it.
    async fn attempt_once(&mut self, run: &mut Run<'_>) -> Result<(Attempt, AckResult), SendError> {
        let ready = self.reach(run).await?;
        let now = self.began.elapsed();
        let bytes = u64::from(run.header.length);
        let attempt = run
            .numbering
            .get_or_insert_with(|| MessageAttempts::begun_at(bytes, self.config.max_attempts, now))
            .attempt(now);
        run.attempts += 1;
        self.counters.attempts += 1;
        self.counters.retries += u64::from(attempt.number > 0);
        let outcome = match ready {
            Ok(connection) => {
                let max = connection.message_bytes_max;
                if max < run.header.length {
                    self.idle = Some(connection);
                    return Err(SendError::TooLarge { bytes: run.message.len(), max });
                }
                self.attempt(connection, attempt, run).await
            }
            Err(error) => {
                self.estimator.record(&attempt, AttemptOutcome::Failed(Duration::ZERO));
                Err(error)
            }
        };
        if let Err(error) = &outcome {
            self.count(error, run);
        }
        if let Some(numbering) = &mut run.numbering {
            numbering.advance();
        }
        Ok((attempt, outcome))
    }

    async fn attempt(
        &mut self,
        mut connection: ClientConnection<C::Stream>,
        attempt: Attempt,
        run: &Run<'_>,
    ) -> AckResult {
        let decision = self.estimator.decide(&attempt);
        self.last = Some(decision);
        let guard = AttemptGuard::begin(&mut self.estimator, attempt);
        match timeout(decision.timeout, connection.exchange(run.header, run.message)).await {
            // The receiver responds when it has handled the first copy. Without the retry, the
            // response to the first copy would have arrived at this time. So the retry was not
            // faster than the first attempt.
            Ok(Ok(AckStatus::Waited)) if attempt.number > 0 => {
                let took = guard.end(AttemptOutcome::Cancelled);
                let first = Attempt { number: 0, elapsed: Duration::ZERO, ..attempt };
                self.estimator
                    .record(&first, AttemptOutcome::Completed(attempt.elapsed.saturating_add(took)));
                self.idle = Some(connection);
                Ok((AckStatus::Waited, took))
            }
            Ok(Ok(status)) => {
                let took = guard.end(AttemptOutcome::Completed);
                self.idle = Some(connection);
                Ok((status, took))
            }
            Ok(Err(error)) => {
                guard.end(AttemptOutcome::Failed);
                Err(error)
            }
            Err(_) => Err(AttemptError::TimedOut(guard.end(AttemptOutcome::TimedOut))),
        }
    }

    /// Returns a connection, and waits while the receiver cannot be reached. A peer that does not
    /// use the protocol counts as reached, and fails the attempt.
    async fn reach(
        &mut self,
        run: &Run<'_>,
    ) -> Result<Result<ClientConnection<C::Stream>, AttemptError>, SendError> {
        let (began, max) = (Instant::now(), self.config.connect_timeout);
        let mut failed = 0;
        loop {
            // The first set-up may use the full time of the set-up timer, even if this exceeds
            // `connect_timeout`.
            let left = if failed == 0 { Duration::MAX } else { max.saturating_sub(began.elapsed()) };
            let error = match self.connection(left.max(SET_UP_FLOOR)).await {
                Err(error) if !error.is_protocol() => error,
                reached => return Ok(reached),
            };
            failed += 1;
            self.counters.unreachable += 1;
            let wait = match error {
                AttemptError::ConnectTimedOut(_) => Duration::ZERO,
                _ => self.backoff.wait(failed).max(SET_UP_WAIT_MIN),
            };
            if max <= began.elapsed().saturating_add(wait) {
                let (attempts, timeouts) = (run.attempts, run.timeouts);
                return Err(SendError::Unacknowledged { attempts, timeouts, last: error });
            }
            sleep(wait).await;
        }
    }

    /// Returns the idle connection if it is still usable, or a new connection that was set up
    /// within the time `most`.
    async fn connection(&mut self, most: Duration) -> Result<ClientConnection<C::Stream>, AttemptError> {
        if let Some(mut idle) = self.idle.take() {
            match idle.quiet().await {
                Ok(()) => return Ok(idle),
                Err(error) => self.counters.protocol_errors += u64::from(error.is_protocol()),
            }
        }
        let hello = MessageAttempts::new(0, self.config.max_attempts).attempt(Duration::ZERO);
        let allowed = self.set_up.timeout(&hello).min(most);
        let guard = AttemptGuard::begin(&mut self.set_up, hello);
        let opening = async {
            let stream = self.connector.connect().await.map_err(AttemptError::Connect)?;
            ClientConnection::open(stream, self.sender).await
        };
        match timeout(allowed, opening).await {
            Ok(Ok(connection)) => {
                self.estimator.record_connect(guard.end(AttemptOutcome::Completed));
                self.counters.connections += 1;
                Ok(connection)
            }
            Ok(Err(error)) => {
                guard.end(AttemptOutcome::Failed);
                Err(error)
            }
            Err(_) => Err(AttemptError::ConnectTimedOut(guard.end(AttemptOutcome::TimedOut))),
        }
    }

    fn count(&mut self, error: &AttemptError, run: &mut Run<'_>) {
        if matches!(error, AttemptError::TimedOut(_)) {
            run.timeouts += 1;
            self.counters.timeouts += 1;
        } else {
            run.failures += 1;
            self.counters.failures += 1;
            self.counters.protocol_errors += u64::from(error.is_protocol());
        }
    }
}

impl<C: Connect, E: TimeoutEstimator> fmt::Debug for Link<C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("sender", &self.sender)
            .field("next_id", &self.next_id)
            .field("connected", &self.is_connected())
            .field("last", &self.last)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// State of a message while it is sent.
struct Run<'a> {
    header: Header,
    message: &'a [u8],
    attempts: u32,
    /// Number of attempts that timed out.
    timeouts: u32,
    /// Number of attempts that failed without a timeout.
    failures: u32,
    numbering: Option<MessageAttempts>,
}

/// Status from the acknowledgement with the response time, or the error of the attempt.
type AckResult = Result<(AckStatus, Duration), AttemptError>;

/// Shortest timeout of a set-up: TCP has time to resend a lost handshake packet once, after 1 s
/// (RFC 6298 §2), and the hello once.
const SET_UP_FLOOR: Duration = Duration::from_secs(3);

/// Shortest wait between set-ups, even if the back-off is 0.
const SET_UP_WAIT_MIN: Duration = Duration::from_millis(10);
