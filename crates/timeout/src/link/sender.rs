//! The sending end: one message at a time, each with a timeout of its own.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::connect::{Connect, Tcp};
use super::conversation::Conversation;
use super::error::{SendError, TryError};
use super::trial::Trial;
use super::wire::{Header, SenderId, Verdict, WireError};
use crate::{Attempt, Decision, Ended, Exchange, Rfc6298, Timeout};

/// What a [`Link`] is to do.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// How many tries a message has, the first send included; 0 counts as 1. Setting up a connection is no
    /// try: see `unreachable_max`.
    pub tries: u32,
    /// The longest message that is sent, in bytes; the receiver's own limit holds besides.
    pub message_bytes_max: u32,
    /// How long a message waits for a receiver to which no connection can be set up – it is not there,
    /// refuses, is full, or is shutting down – before it is given up. This begins with each try anew; a
    /// set-up that has begun by then still runs for its time.
    pub unreachable_max: Duration,
    /// The shortest wait after a try or a set-up that failed; after one that timed out there is none. Between
    /// set-ups it is 10 ms at least.
    pub backoff_min: Duration,
    /// The longest such wait.
    pub backoff_max: Duration,
    /// Who this link is; drawn at random unless set. Two links must never have the same.
    pub sender: Option<SenderId>,
    /// The identifier of the first message, at least 1. A link that goes on under an earlier one's `sender`
    /// must begin above all that the earlier one used.
    pub first_id: u64,
    /// The seed of the jitter of waits; taken from `sender` unless set.
    pub seed: Option<u64>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            // The paper's bound on resends (Allen, Wolski, Plank 2002, §4).
            tries: 5,
            // Ample for messages; what is larger should be cut into pieces, each acknowledged.
            message_bytes_max: 64 * 1024 * 1024,
            // A receiver that is started anew is mostly back within seconds, and one that shuts down has gone
            // after its grace of as long.
            unreachable_max: Duration::from_secs(30),
            // Ask soon, then seldom: 50, 100, 200 ms and so on, nine times in the first 15 s.
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            sender: None,
            first_id: 1,
            seed: None,
        }
    }
}

/// How a message was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The message's identifier.
    pub id: u64,
    /// Tries it took.
    pub attempts: u32,
    /// How many of them ran into their timeout.
    pub timeouts: u32,
    /// From the call of [`Link::send`] to the acknowledgement, connections and waits included.
    pub took: Duration,
    /// The response time of the last try. That of a duplicate is the time to its acknowledgement, not what the
    /// copy that was handled took.
    pub response: Duration,
    /// Whether the receiver had handled an earlier copy, and acknowledged this one as its duplicate.
    pub duplicate: bool,
}

/// What a [`Link`] has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Messages that [`Link::send`] was called with, and did not refuse at once.
    pub messages: u64,
    /// Of these, those that were acknowledged.
    pub acknowledged: u64,
    /// Tries that began; those not included that got no connection.
    pub attempts: u64,
    /// Of these, those that were not their message's first.
    pub retries: u64,
    /// Tries that ran into their timeout.
    pub timeouts: u64,
    /// Tries that failed otherwise.
    pub failures: u64,
    /// Times the peer broke the protocol: spoke unasked, acknowledged another message, sent garbage.
    pub protocol_errors: u64,
    /// Messages acknowledged as duplicates. An acknowledgement that comes after its try was cut off cannot
    /// be seen, so false timeouts cannot be counted here; these are messages of which an earlier copy had
    /// arrived and was handled, so a longer timeout might have spared the retry.
    pub duplicates: u64,
    /// Connections that were set up.
    pub connections: u64,
    /// Connections that could not be set up: refused, declined, broken or not in time.
    pub unreachable: u64,
}

/// Sends messages to one target, each of which its receiver handles once (`docs/spec/link.md`).
///
/// One message is under way at a time: [`Link::send`] borrows the link until the receiver has accepted the
/// message, which is the back-pressure. Its clock is tokio's, whose timers are exact to 1 ms.
pub struct Link<C: Connect, E: Timeout> {
    connector: C,
    config: LinkConfig,
    sender: SenderId,
    estimator: E,
    /// Times the setting up of connections, apart from the attempts.
    set_up: Rfc6298,
    backoff: Backoff,
    /// Present only between messages: an attempt that is dropped takes its connection with it.
    idle: Option<Conversation<C::Stream>>,
    next_id: u64,
    began: Instant,
    last: Option<Decision>,
    counters: LinkCounters,
}

impl<E: Timeout> Link<Tcp, E> {
    /// A link to `host:port` over TCP. It connects when there is something to send.
    #[must_use]
    pub fn tcp(target: impl Into<std::string::String>, config: LinkConfig, estimator: E) -> Self {
        Self::new(Tcp::new(target), config, estimator)
    }
}

impl<C: Connect, E: Timeout> Link<C, E> {
    /// A link over whatever `connector` makes. It connects when there is something to send.
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

    /// Sends `message` and waits until the receiver has accepted it: as long as the estimator gives; then
    /// closes the connection, connects anew and sends it again, under the same identifier.
    ///
    /// Dropping the future gives the message up and leaves the link as good as before. Whether the receiver
    /// has handled the message is then unknown; once it has handled a later one, it will not any more.
    ///
    /// # Errors
    /// [`SendError`]; the link stays usable after each of them.
    pub async fn send(&mut self, message: &[u8]) -> Result<Receipt, SendError> {
        let began = Instant::now();
        let header = Header { length: self.length_of(message)?, id: self.claim_id()? };
        self.counters.messages += 1;
        let mut run = Run { header, message, attempts: 0, timeouts: 0, failures: 0, exchange: None };
        loop {
            let (attempt, outcome) = self.one_try(&mut run).await?;
            let attempts = attempt.number + 1;
            let error = match outcome {
                Ok((Verdict::Stale, _)) => return Err(SendError::Stale { id: header.id }),
                Ok((verdict, response)) => {
                    let duplicate = verdict.is_duplicate();
                    self.counters.acknowledged += 1;
                    self.counters.duplicates += u64::from(duplicate);
                    let (id, timeouts, took) = (header.id, run.timeouts, began.elapsed());
                    return Ok(Receipt { id, attempts, timeouts, took, response, duplicate });
                }
                Err(TryError::Wire(WireError::Version(theirs))) => return Err(SendError::Version { theirs }),
                Err(error) => error,
            };
            if attempt.is_last() {
                return Err(SendError::Unacknowledged { attempts, timeouts: run.timeouts, last: error });
            }
            if !matches!(error, TryError::TimedOut(_)) {
                sleep(self.backoff.wait(run.failures)).await;
            }
        }
    }

    /// The timeout that a first try of a message of so many bytes would get now, and why.
    #[must_use]
    pub fn decide(&self, bytes: u64) -> Decision {
        self.estimator.decide(&Exchange::new(bytes, self.config.tries).attempt(Duration::ZERO))
    }

    /// The decision under which the last try ran; `None` before the first.
    #[must_use]
    pub fn last_decision(&self) -> Option<&Decision> {
        self.last.as_ref()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Who this link is to its receiver.
    #[must_use]
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// The identifier of the next message.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether a connection is open.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.idle.is_some()
    }

    /// The estimator, to save what it has learned or to feed a station.
    #[must_use]
    pub fn estimator(&self) -> &E {
        &self.estimator
    }

    /// The estimator, to start it from a forecast made elsewhere.
    pub fn estimator_mut(&mut self) -> &mut E {
        &mut self.estimator
    }

    /// The estimator, when the link is not needed any more.
    #[must_use]
    pub fn into_estimator(self) -> E {
        self.estimator
    }

    /// Closes the connection; the next message connects anew.
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

    /// Identifiers are claimed before anything is sent, so that no two messages ever share one.
    fn claim_id(&mut self) -> Result<u64, SendError> {
        let id = self.next_id;
        self.next_id = id.checked_add(1).ok_or(SendError::IdsSpent)?;
        Ok(id)
    }

    /// One try: a connection if there is none, and the exchange on it.
    async fn one_try(&mut self, run: &mut Run<'_>) -> Result<(Attempt, Outcome), SendError> {
        let ready = self.reach(run).await?;
        let now = self.began.elapsed();
        let bytes = u64::from(run.header.length);
        let attempt = run
            .exchange
            .get_or_insert_with(|| Exchange::begun_at(bytes, self.config.tries, now))
            .attempt(now);
        run.attempts += 1;
        self.counters.attempts += 1;
        self.counters.retries += u64::from(0 < attempt.number);
        let outcome = match ready {
            Ok(conversation) => {
                let max = conversation.message_bytes_max;
                if max < run.header.length {
                    self.idle = Some(conversation);
                    return Err(SendError::TooLarge { bytes: run.message.len(), max });
                }
                self.attempt(conversation, attempt, run).await
            }
            Err(error) => {
                self.estimator.record(&attempt, Ended::Failed(Duration::ZERO));
                Err(error)
            }
        };
        if let Err(error) = &outcome {
            self.count(error, run);
        }
        if let Some(exchange) = &mut run.exchange {
            exchange.again();
        }
        Ok((attempt, outcome))
    }

    async fn attempt(
        &mut self,
        mut conversation: Conversation<C::Stream>,
        attempt: Attempt,
        run: &Run<'_>,
    ) -> Outcome {
        let decision = self.estimator.decide(&attempt);
        self.last = Some(decision);
        let trial = Trial::begin(&mut self.estimator, attempt);
        match timeout(decision.timeout, conversation.exchange(run.header, run.message)).await {
            // It helped nothing: had the first copy not been cut off, its answer would be here now as well.
            Ok(Ok(Verdict::Waited)) if 0 < attempt.number => {
                let took = trial.end(Ended::Superseded);
                let first = Attempt { number: 0, elapsed: Duration::ZERO, ..attempt };
                self.estimator.record(&first, Ended::Answered(attempt.elapsed.saturating_add(took)));
                self.idle = Some(conversation);
                Ok((Verdict::Waited, took))
            }
            Ok(Ok(verdict)) => {
                let took = trial.end(Ended::Answered);
                self.idle = Some(conversation);
                Ok((verdict, took))
            }
            Ok(Err(error)) => {
                trial.end(Ended::Failed);
                Err(error)
            }
            Err(_) => Err(TryError::TimedOut(trial.end(Ended::TimedOut))),
        }
    }

    /// A connection, waited for while the receiver cannot be reached. A peer that does not speak the protocol
    /// is reached, and fails the try.
    async fn reach(&mut self, run: &Run<'_>) -> Result<Result<Conversation<C::Stream>, TryError>, SendError> {
        let (began, max) = (Instant::now(), self.config.unreachable_max);
        let mut failed = 0;
        loop {
            // The first set-up has all its time: what bounds it is its own timer.
            let left = if failed == 0 { Duration::MAX } else { max.saturating_sub(began.elapsed()) };
            let error = match self.conversation(left.max(SET_UP_FLOOR)).await {
                Err(error) if !error.is_protocol() => error,
                reached => return Ok(reached),
            };
            failed += 1;
            self.counters.unreachable += 1;
            let wait = match error {
                TryError::ConnectTimedOut(_) => Duration::ZERO,
                _ => self.backoff.wait(failed).max(SET_UP_WAIT_MIN),
            };
            if max <= began.elapsed().saturating_add(wait) {
                let (attempts, timeouts) = (run.attempts, run.timeouts);
                return Err(SendError::Unacknowledged { attempts, timeouts, last: error });
            }
            sleep(wait).await;
        }
    }

    /// The idle connection if it is still of use, or a new one, set up within `most`.
    async fn conversation(&mut self, most: Duration) -> Result<Conversation<C::Stream>, TryError> {
        if let Some(mut idle) = self.idle.take() {
            match idle.quiet().await {
                Ok(()) => return Ok(idle),
                Err(error) => self.counters.protocol_errors += u64::from(error.is_protocol()),
            }
        }
        let hello = Exchange::new(0, self.config.tries).attempt(Duration::ZERO);
        let allowed = self.set_up.timeout(&hello).min(most);
        let trial = Trial::begin(&mut self.set_up, hello);
        let opening = async {
            let stream = self.connector.connect().await.map_err(TryError::Connect)?;
            Conversation::open(stream, self.sender).await
        };
        match timeout(allowed, opening).await {
            Ok(Ok(conversation)) => {
                self.estimator.connected(trial.end(Ended::Answered));
                self.counters.connections += 1;
                Ok(conversation)
            }
            Ok(Err(error)) => {
                trial.end(Ended::Failed);
                Err(error)
            }
            Err(_) => Err(TryError::ConnectTimedOut(trial.end(Ended::TimedOut))),
        }
    }

    fn count(&mut self, error: &TryError, run: &mut Run<'_>) {
        if matches!(error, TryError::TimedOut(_)) {
            run.timeouts += 1;
            self.counters.timeouts += 1;
        } else {
            run.failures += 1;
            self.counters.failures += 1;
            self.counters.protocol_errors += u64::from(error.is_protocol());
        }
    }
}

impl<C: Connect, E: Timeout> fmt::Debug for Link<C, E> {
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

/// A message while it is being sent.
struct Run<'a> {
    header: Header,
    message: &'a [u8],
    /// Tries that began.
    attempts: u32,
    /// Of these, those that timed out.
    timeouts: u32,
    /// Tries that failed otherwise.
    failures: u32,
    exchange: Option<Exchange>,
}

/// What the receiver said, and its response time; or why there is no answer.
type Outcome = Result<(Verdict, Duration), TryError>;

/// A connection is never given up before TCP could resend once, after 1 s (RFC 6298 §2), what may be lost of
/// the handshake, and once of the hello.
const SET_UP_FLOOR: Duration = Duration::from_secs(3);

/// A receiver that is not there is not asked without a pause, even where there is no other back-off.
const SET_UP_WAIT_MIN: Duration = Duration::from_millis(10);
