//! The archive beside NATS: reads the stream into a [`Local`], and answers for the mesh.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Message;
use futures_util::StreamExt as _;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::askers::{Askers, Cost, Slot};
use super::link::{Link, Trouble, json};
use super::place::Place;
use super::progress::{LeaderEnd, Progress, Readiness};
use super::question::{self, AnswerJson, Question, archive_number};
use super::streams::{self, RECORDS};
use super::{Nats, walk};
use crate::complaints::Complaints;
use crate::wire::RecordJson;
use crate::{Cursor, Engine as _, Error, Local, Page, Record, TaskStatus};

/// What an archiver has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiverStatistics {
    /// Messages read from the stream.
    pub consumed: u64,
    /// Of these, those that were no record of the station that published them.
    pub discarded: u64,
    /// Messages that left the stream before this archive had read them; their stations send them again.
    pub missed: u64,
    /// Messages in the stream that are not read yet, when it was last looked.
    pub lag: u64,
    /// Questions answered.
    pub answered: u64,
    /// Why it does not get on now; `None` = it does.
    pub last_error: Option<String>,
}

/// The archive of a mesh on NATS.
///
/// It reads every record of the stream into its [`Local`] and remembers how far it came in a file beside it,
/// written after the commit; it may read some records twice, which changes nothing. A mesh may have several:
/// each reads all by itself, and any of them answers.
///
/// Whoever wants to hear of new records subscribes to the [`Local`].
pub struct Archiver {
    shared: Arc<Shared>,
    tasks: [(Arc<TaskStatus>, JoinHandle<()>); 2],
    /// The tasks run on its thread.
    _nats: Arc<Nats>,
}

struct Shared {
    link: Arc<Link>,
    local: Arc<Local>,
    number: u16,
    file: PathBuf,
    progress: watch::Sender<Progress>,
    /// When the bucket of registrations was made; `None` = the servers have not answered yet.
    bucket: Mutex<Option<String>>,
    /// Whether it has begun to read and to answer.
    begun: watch::Sender<bool>,
    /// A question came for what is not read yet.
    wanted: Notify,
    askers: Askers,
    answered: AtomicU64,
    statistics: Mutex<ArchiverStatistics>,
}

impl Archiver {
    /// The file beside the archive that says how far it has read. Who brings back an older copy of an
    /// archive removes it; then the stream is read from its beginning.
    pub const FILE: &'static str = "nats.place";

    /// Begins to read the stream into `local`, whose files are in `directory`, and to answer. Does not wait
    /// for a server.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file in `directory` is there but cannot be read.
    pub fn start(nats: &Arc<Nats>, local: Arc<Local>, directory: &Path) -> Result<Self, Error> {
        let archiver = Self::prepare(nats, local, directory)?;
        archiver.begin();
        Ok(archiver)
    }

    /// As [`Archiver::start`], but nothing is read or answered before [`Archiver::begin`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file in `directory` is there but cannot be read.
    pub fn prepare(nats: &Arc<Nats>, local: Arc<Local>, directory: &Path) -> Result<Self, Error> {
        let link = Arc::clone(&nats.link);
        let file = directory.join(Self::FILE);
        let mut place = Place::read(&file)?;
        if local.statistics().records == 0 {
            // A new archive, whatever an older one had read.
            place = Place::default();
        }
        let shared = Arc::new(Shared {
            number: archive_number(&link.config.host),
            link: Arc::clone(&link),
            local,
            file,
            progress: watch::Sender::default(),
            bucket: Mutex::default(),
            begun: watch::Sender::new(false),
            wanted: Notify::new(),
            askers: Askers::new(),
            answered: AtomicU64::new(0),
            statistics: Mutex::default(),
        });
        let (reader, answerer) = (TaskStatus::new("archive_reader"), TaskStatus::new("archive_answerer"));
        let (reads, answers) = (Arc::clone(&reader), Arc::clone(&answerer));
        let (reading, answering) = (read(Arc::clone(&shared), place), Arc::clone(&shared));
        let waiting = Arc::clone(&shared);
        let read = link.spawn(async move {
            waiting.has_begun().await;
            reads.watch(reading).await;
        });
        let answer = link.spawn(async move {
            answering.has_begun().await;
            answers.restart(|| answer(Arc::clone(&answering))).await;
        });
        let tasks = [(reader, read), (answerer, answer)];
        Ok(Self { shared, tasks, _nats: Arc::clone(nats) })
    }

    /// Begins to read the stream and to answer, if that has not begun.
    pub fn begin(&self) {
        self.shared.begun.send_replace(true);
    }

    /// What it has done since it started.
    #[must_use]
    pub fn statistics(&self) -> ArchiverStatistics {
        let answered = self.shared.answered.load(Ordering::Relaxed);
        ArchiverStatistics { answered, ..self.shared.lock().clone() }
    }

    /// The status of each of its tasks.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        self.tasks.iter().map(|(status, _)| Arc::clone(status)).collect()
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        for (_, task) in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    async fn has_begun(&self) {
        // The sender is in here.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// An answer that says nothing yet but who gives it.
    fn answer(&self) -> AnswerJson<'static> {
        let stream = Some(self.progress.borrow().stream.clone()).filter(|stream| !stream.is_empty());
        AnswerJson { archive: self.number, stream, ..AnswerJson::default() }
    }

    /// When the bucket was made, as far as is known.
    fn bucket(&self) -> Option<String> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ArchiverStatistics> {
        // Each figure stands for itself, so a panic elsewhere does not spoil them.
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the stream for ever.
async fn read(shared: Arc<Shared>, mut place: Place) {
    let mut wait = RETRY_MIN;
    let mut complaints = Complaints::default();
    loop {
        let before = place.seq;
        let Err(why) = follow(&shared, &mut place, &mut complaints).await;
        if before < place.seq {
            wait = RETRY_MIN;
        }
        {
            let mut statistics = shared.lock();
            if statistics.last_error.as_ref() != Some(&why) {
                tracing::warn!(%why, "the archive waits");
            }
            statistics.last_error = Some(why);
        }
        sleep(wait).await;
        wait = (2 * wait).min(RETRY_MAX);
    }
}

/// Reads what there is and what comes; ends with why it cannot.
async fn follow(
    shared: &Shared,
    place: &mut Place,
    complaints: &mut Complaints,
) -> Result<std::convert::Infallible, String> {
    let said = |trouble: Trouble| Error::from(trouble).to_string();
    streams::ensure(&shared.link).await.map_err(|error| error.to_string())?;
    let asked = Instant::now();
    let extent = streams::extent(&shared.link, RECORDS).await.map_err(said)?;
    if place.stream != extent.created {
        place.begin(extent.created);
    }
    find_again(shared, place, &extent.state).await.map_err(said)?;
    let before = shared.progress.borrow().clone();
    let end = before.end.filter(|_| before.stream == place.stream).or(Some(extent.state.last_seq));
    let (stream, seq, own) = (place.stream.clone(), place.seq, place.watermark());
    let leader = Some(LeaderEnd { seq: extent.state.last_seq, asked });
    shared.progress.send_replace(Progress { stream, seq, end, leader, own });
    look_at_the_bucket(shared).await;
    let mut asked = None::<Instant>;
    let mut written = Instant::now();
    let mut looked = Instant::now();
    let mut bucket_looked = Instant::now();
    let mut kept = place.seq;
    loop {
        let pending = step(shared, place, complaints).await?;
        // Each file written costs as much as many records; what it lacks is read again.
        if kept < place.seq && WRITE_EVERY <= written.elapsed() {
            place.write(&shared.file);
            (written, kept) = (Instant::now(), place.seq);
        }
        if pending == 0 {
            let is_awaited = 0 < shared.progress.receiver_count();
            let (check_every, pause) =
                if is_awaited { (END_EVERY, END_EVERY) } else { (CHECK_EVERY, LOOK_EVERY) };
            if check_every <= looked.elapsed() {
                look_at_the_stream(shared, place).await?;
                looked = Instant::now();
            }
            if bucket_looked.elapsed() >= CHECK_EVERY {
                look_at_the_bucket(shared).await;
                bucket_looked = Instant::now();
            }
            if asked.is_none_or(|asked| UPDATE_EVERY <= asked.elapsed()) {
                asked = Some(Instant::now());
                update_streams(shared).await;
            }
            // A question for what is not read yet does not wait for the next look.
            let _ = timeout(pause, shared.wanted.notified()).await;
        }
    }
}

/// Moves the place back to the newest message that is still in the stream as it was read. A server that
/// lost messages which it had not synced gives their numbers to other messages.
async fn find_again(shared: &Shared, place: &mut Place, state: &streams::State) -> Result<(), Trouble> {
    // Every message up to the place was removed by age or size: what is left is unread.
    if place.seq < state.first_seq && place.seq <= state.last_seq {
        return Ok(());
    }
    for (index, (seq, stored_at)) in place.been_at().into_iter().enumerate() {
        let there = walk::stretch(&shared.link, RECORDS, walk::ALL, seq, 1).await?;
        let is_there = match there.messages.first().filter(|stored| stored.seq == seq) {
            Some(stored) => stored.stored_at() == Some(&stored_at),
            // Unknown: the message does not arrive, or this replica is behind.
            None => seq <= state.last_seq,
        };
        if is_there {
            if 0 < index {
                tracing::warn!(after = seq, "{LOST}; it is read again from there");
            }
            // Messages after this one did not arrive, so they cannot be compared: read them again.
            place.go_back(Some((seq, stored_at)));
            return Ok(());
        }
    }
    if place.newest.is_some() || state.last_seq < place.seq {
        tracing::warn!("{LOST}; it is read again from its beginning");
        place.go_back(None);
    }
    Ok(())
}

/// Bounds an older version's streams; where that may not be, the archive goes on.
async fn update_streams(shared: &Shared) {
    if let Err(error) = streams::update(&shared.link).await {
        tracing::warn!(
            %error, "the streams have the bounds of an older version, by which any member can stop the NATS servers \
            (docs/nats.md, \"From an older mesh\")"
        );
    }
}

/// Sees when the bucket was made, for members that ask.
async fn look_at_the_bucket(shared: &Shared) {
    if let Some(created) = streams::bucket(&shared.link).await {
        *shared.bucket.lock().unwrap_or_else(PoisonError::into_inner) = Some(created);
    }
}

/// Asks the leader whether it is still the same stream, and where it ends: another one has nothing under the numbers that are
/// awaited.
async fn look_at_the_stream(shared: &Shared, place: &Place) -> Result<(), String> {
    let asked = Instant::now();
    let extent = match streams::extent(&shared.link, RECORDS).await {
        Ok(extent) => extent,
        // The servers' queue for such requests may be full; the records are read by another way.
        Err(Trouble::NoAnswer(why)) => {
            tracing::debug!(%why, "the stream is not looked at");
            return Ok(());
        }
        Err(trouble) => return Err(Error::from(trouble).to_string()),
    };
    let state = extent.state;
    if extent.created != place.stream || state.last_seq < place.seq {
        return Err(LOST.into());
    }
    let leader = Some(LeaderEnd { seq: state.last_seq, asked });
    shared.progress.send_modify(|progress| progress.leader = leader);
    // An empty stream: questions up to its end can be answered. The place stays, because a server whose disk
    // fails also reports an empty stream, and has the messages again after a restart.
    if state.last_seq < state.first_seq {
        shared.progress.send_modify(|progress| progress.seq = state.last_seq);
    }
    Ok(())
}

/// What was read for one commit.
#[derive(Default)]
struct ReadAhead {
    records: Vec<Record>,
    /// Messages read.
    count: u64,
    discarded: u64,
    /// Sequence number of the last one, lost ones included; `None` = nothing new.
    last: Option<u64>,
    /// Sequence number and storage time of the last one that arrived.
    newest: Option<(u64, String)>,
    /// How many more there are.
    pending: u64,
}

/// Reads stretches for one commit. A stretch ends after so many bytes, and a record may have many more as a message than it
/// has in the archive: with a commit for each stretch some of those would hold up the records of all.
///
/// Reads the message at the place again and compares it with the one read before. If that message did not
/// arrive before, there is nothing to compare.
async fn read_ahead(
    shared: &Shared,
    place: &Place,
    complaints: &mut Complaints,
) -> Result<ReadAhead, String> {
    let mut ahead = ReadAhead::default();
    let newest = place.newest.as_ref().filter(|(newest, _)| *newest == place.seq);
    for _ in 0..STRETCHES_MAX {
        let first = match ahead.last {
            None if newest.is_some() => place.seq,
            last => last.unwrap_or(place.seq).saturating_add(1),
        };
        let stretch = walk::stretch(&shared.link, RECORDS, walk::ALL, first, STRETCH).await;
        let stretch = stretch.map_err(|trouble| Error::from(trouble).to_string())?;
        ahead.pending = stretch.pending;
        for message in &stretch.messages {
            if let Some((_, stored_at)) = newest.filter(|(newest, _)| *newest == message.seq) {
                if message.stored_at() != Some(stored_at) {
                    return Err(LOST.into());
                }
                continue;
            }
            ahead.count += 1;
            if let Some(stored_at) = message.stored_at() {
                ahead.newest = Some((message.seq, stored_at.to_owned()));
            }
            match message.record() {
                Ok(record) => ahead.records.push(record),
                Err(why) => {
                    ahead.discarded += 1;
                    let origin = message.subject.split('.').nth(2).unwrap_or_default();
                    if complaints.is_due(origin, Instant::now().into_std()) {
                        tracing::warn!(%why, place = message.seq, "a message was discarded");
                    }
                }
            }
        }
        for &(from, to) in stretch.lost.iter().filter(|(_, to)| place.seq < *to) {
            let count = to - from.max(place.seq + 1) + 1;
            (ahead.count, ahead.discarded) = (ahead.count + count, ahead.discarded + count);
            if complaints.is_due("", Instant::now().into_std()) {
                tracing::warn!(place = to, "a message that does not arrive from the servers is passed over");
            }
        }
        let before = ahead.last;
        ahead.last = ahead.last.max(stretch.last().filter(|last| place.seq < *last));
        if ahead.last == before || stretch.pending == 0 || Record::BATCH_MAX < ahead.records.len() + STRETCH {
            break;
        }
    }
    Ok(ahead)
}

/// Reads a commit's worth into the archive; gives how many more there are.
async fn step(shared: &Shared, place: &mut Place, complaints: &mut Complaints) -> Result<u64, String> {
    let ahead = read_ahead(shared, place, complaints).await?;
    let ReadAhead { mut records, count, discarded, last, newest, pending } = ahead;
    let Some(last) = last else {
        let mut statistics = shared.lock();
        (statistics.lag, statistics.last_error) = (0, None);
        return Ok(0);
    };
    // The archive's own commit is what counts: only then is the place moved.
    shared.local.bound_labels(&mut records);
    shared.local.absorb(&records).await.map_err(|error| error.to_string())?;
    {
        let mut statistics = shared.lock();
        statistics.consumed += count;
        statistics.discarded += discarded;
        // Everything that the stream holds is read, so a gap in its numbers is what it no longer held. What it
        // held before this archive was made is nobody's loss.
        if place.seq != 0 {
            statistics.missed += last.saturating_sub(place.seq).saturating_sub(count);
        }
        (statistics.lag, statistics.last_error) = (pending, None);
    }
    for record in records.iter().filter(|record| record.origin == shared.link.config.host) {
        place.note(record);
    }
    place.move_to(last, newest);
    shared.progress.send_modify(|progress| (progress.seq, progress.own) = (last, place.watermark()));
    Ok(pending)
}

/// Answers questions for ever.
async fn answer(shared: Arc<Shared>) {
    let mut wait = RETRY_MIN;
    loop {
        if let Err(why) = serve(&shared).await {
            tracing::warn!(%why, "the archive does not answer");
        }
        sleep(wait).await;
        wait = (2 * wait).min(RETRY_MAX);
    }
}

async fn serve(shared: &Arc<Shared>) -> Result<(), String> {
    let client = &shared.link.client;
    let said = |error: async_nats::SubscribeError| error.to_string();
    let mut faults = shared.link.faults();
    let [any, own] = [None, Some(shared.number)].map(question::subjects);
    let mut questions = Vec::new();
    for subject in &any {
        questions.push(client.queue_subscribe(subject.clone(), "archives".into()).await.map_err(said)?);
    }
    for subject in &own {
        questions.push(client.subscribe(subject.clone()).await.map_err(said)?);
    }
    let mut questions = futures_util::stream::select_all(questions);
    let all = [any, own].concat();
    loop {
        let question = tokio::select! {
            question = questions.next() => question,
            trouble = faults.of_any(|denied| all.iter().any(|one| one.eq_ignore_ascii_case(denied))) => match trouble {
                Trouble::Denied(what) => return Err(what),
                // The client subscribes again when it is connected again.
                _ => continue,
            },
        };
        let Some(question) = question else { return Err("the subscription ended".into()) };
        take(shared, question).await;
    }
}

/// Answers a question in a task of its own, so that none holds up those after it.
async fn take(shared: &Arc<Shared>, message: Message) {
    let is_older = shared.link.has_older_answers();
    if !question::is_asked(message.headers.as_ref(), is_older) {
        return;
    }
    // A JetStream acknowledgement published to this subject does not parse, and is not charged to the asker in it.
    let Ok(asked) = Asked::read(&message) else { return };
    let is_heard = if asked.asker.is_empty() { is_older } else { shared.askers.is_heard(&asked.asker) };
    let Some(reply) = reply(&message, &asked, is_older).filter(|_| is_heard) else { return };
    match shared.askers.slot(&asked.asker) {
        Ok(slot) => {
            tokio::spawn(look_up(Arc::clone(shared), asked, slot, reply));
        }
        Err(why) => send(shared, reply, Err(Error::Unavailable(why.into()))).await,
    }
}

/// The subject of the answer to a question; `None` = the question is not answered.
///
/// An asker chooses only the last two tokens: the servers execute what an archive publishes to JetStream's
/// interface. Two reply subjects of older configurations are safe: one that the server chose (`_R_.`,
/// which it refuses from clients), and an inbox, where stations share the archive's account.
fn reply(message: &Message, asked: &Asked, is_older: bool) -> Option<async_nats::Subject> {
    let is_of_server = |reply: &str| reply.starts_with("_R_.") || is_older && reply.starts_with("_INBOX_");
    if let Some(reply) = message.reply.clone().filter(|reply| is_of_server(reply)) {
        return Some(reply);
    }
    question::answer(&asked.asker, asked.question.answer.as_deref()?).map(async_nats::Subject::from)
}

/// Answers a question, unless its asker has given up.
async fn look_up(shared: Arc<Shared>, asked: Asked, slot: Slot, reply: async_nats::Subject) {
    let mut readiness = asked.readiness(&shared.progress.borrow());
    if readiness == Readiness::Behind {
        readiness = wait(&shared, &asked).await;
    }
    let deadline = shared.link.config.deadline;
    let Ok(Some(_turn)) = timeout_at(asked.came + deadline, shared.askers.turn(&slot, asked.cost())).await
    else {
        return;
    };
    send(&shared, reply, find(&shared, &asked, readiness).await).await;
}

/// A question as it came.
struct Asked {
    /// The token of its station; empty = it is of an older version, and not known.
    asker: String,
    kind: String,
    question: Question,
    came: Instant,
}

impl Asked {
    fn read(message: &Message) -> serde_json::Result<Self> {
        let question = serde_json::from_slice(&message.payload)?;
        let (asker, kind) = question::of_subject(&message.subject);
        Ok(Self { asker: asker.to_owned(), kind: kind.to_owned(), question, came: Instant::now() })
    }

    fn cost(&self) -> Cost {
        match self.kind.as_str() {
            question::HISTORY | question::LATEST => Cost::Page,
            _ => Cost::Number,
        }
    }

    fn readiness(&self, progress: &Progress) -> Readiness {
        progress.readiness(&self.kind, &self.question, self.came)
    }
}

async fn send(shared: &Shared, reply: async_nats::Subject, answer: Result<bytes::Bytes, Error>) {
    let answer = answer.unwrap_or_else(|error| json(&shared.answer().with_error(error)));
    shared.answered.fetch_add(1, Ordering::Relaxed);
    // An asker that hears nothing asks again.
    let _ = shared.link.client.publish(reply, answer).await;
}

/// Waits until the archive has read what the asker wants to find, or until the stream is known to end before it.
async fn wait(shared: &Shared, asked: &Asked) -> Readiness {
    // The reader counts these receivers: while there are any, questions wait.
    let mut progress = shared.progress.subscribe();
    shared.wanted.notify_one();
    let ready = progress.wait_for(|now| asked.readiness(now) != Readiness::Behind);
    match timeout(shared.link.config.deadline / 2, ready).await {
        Ok(Ok(now)) => asked.readiness(&now),
        _ => Readiness::Behind,
    }
}

async fn find(shared: &Shared, asked: &Asked, readiness: Readiness) -> Result<bytes::Bytes, Error> {
    let (kind, question) = (asked.kind.as_str(), &asked.question);
    match readiness {
        Readiness::Ready => {}
        Readiness::OtherStream => {
            let error = "the archive reads another stream than this station knows";
            let answer = AnswerJson { other_stream: true, ..shared.answer() };
            return Ok(json(&answer.with_error(Error::Unavailable(error.into()))));
        }
        Readiness::BeyondEnd(end) => {
            let place = question.after_place;
            let error = format!("the stream ends at {end}, before the place {place}");
            // The place of an asker that does not know the stream may be one in another.
            let answer = AnswerJson { other_stream: question.stream.is_none(), ..shared.answer() };
            return Ok(json(&answer.with_error(Error::Unavailable(error))));
        }
        Readiness::Behind => {
            let now = shared.progress.borrow();
            let (wanted, read) = (now.wanted(kind, question), now.seq);
            let wanted = wanted.map_or_else(|| "its end".into(), |wanted| wanted.to_string());
            return Err(Error::Unavailable(format!(
                "the archive has read the stream up to {read}, not yet to {wanted}"
            )));
        }
    }
    let is_own = |origin: &crate::HostId| *origin == shared.link.config.host;
    let number = |number| json(&AnswerJson { number: Some(number), ..shared.answer() });
    match kind {
        question::WATERMARK if is_own(&question.origin()?) => Ok(number(shared.progress.borrow().own)),
        question::WATERMARK => shared.local.watermark(&question.origin()?).await.map(number),
        question::NEXT_SEQ => shared.local.next_seq(&question.origin()?).await.map(number),
        question::HISTORY | question::LATEST => page(shared, kind, question).await,
        question::BUCKET => Ok(json(&AnswerJson { bucket: shared.bucket(), ..shared.answer() })),
        _ => Err(Error::Invalid("the question is not known".into())),
    }
}

/// A page that one message can hold.
async fn page(shared: &Shared, kind: &str, question: &Question) -> Result<bytes::Bytes, Error> {
    let after = match question.cursor.map(question::parts) {
        None => None,
        Some((archive, place)) if archive == shared.number => Some(place),
        Some(_) => return Err(Error::TooOld("another archive gave this place; begin again".into())),
    };
    let bytes_max =
        shared.link.client.server_info().max_payload.saturating_sub(ENVELOPE_BYTES).max(ENVELOPE_BYTES);
    let mut limit = question.limit;
    loop {
        let page = look(shared, kind, question, (limit, bytes_max), after).await?;
        let items: Vec<RecordJson<'_>> = page.items.iter().map(RecordJson::from).collect();
        let next = page.next.map(|place| question::cursor(shared.number, place));
        let answer = json(&AnswerJson { items: Some(items), next, ..shared.answer() });
        if answer.len() <= bytes_max || page.items.len() <= 1 {
            return Ok(answer);
        }
        // Fewer, in proportion and a little less; the asker comes again for the rest.
        limit = (page.items.len() * bytes_max / answer.len() * 9 / 10).max(1);
    }
}

async fn look(
    shared: &Shared,
    kind: &str,
    question: &Question,
    (limit, bytes_max): (usize, usize),
    after: Option<Cursor>,
) -> Result<Page<Record>, Error> {
    if kind == question::HISTORY {
        let range = question.range(limit, after);
        shared.local.history_within(&question.series()?, &range, bytes_max).await
    } else {
        shared.local.latest_within(&question.selector()?, after, limit, bytes_max).await
    }
}

/// Why it begins again.
const LOST: &str = "the stream was made anew, or lost messages that this archive had read";

/// Messages read at once.
const STRETCH: usize = 1000;

/// Stretches read into one commit: of the longest messages 32 MiB, many times what servers that sync each take in a second.
const STRETCHES_MAX: usize = 32;

/// How long a record may be in the stream before it is in the archive.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How late a stream made anew may be noticed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The same while questions wait, one of which may name a place that the stream does not have.
const END_EVERY: Duration = Duration::from_millis(100);

/// Where the servers refuse to change the streams, they may allow it later.
const UPDATE_EVERY: Duration = Duration::from_mins(1);

/// The place need not be exact, so the disk is spared.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// After something went wrong, twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// What an answer may have besides its records, and the least that a server takes.
const ENVELOPE_BYTES: usize = 64 << 10;
