//! Subscriptions: each walks the order of arrival at its own pace, and sleeps at the head of it.
//!
//! Nothing is buffered for a slow subscriber, so that any number of them costs no memory.

use std::collections::VecDeque;

use futures_util::stream;
use tokio::sync::watch;

use super::read::Reader;
use crate::{BoxStream, Cursor, Error, From, Record, Selector};

/// One walk along the order of arrival.
pub(super) struct Subscription {
    reader: Reader,
    selector: Selector,
    head: watch::Receiver<u64>,
    /// Everything up to here was seen.
    place: u64,
    /// What retention had removed when we last looked; `None` = not looked yet, and does not matter.
    removed: Option<u64>,
    /// Further behind than this, skip to the head; `None` = never.
    lag: Option<u64>,
    /// End after this place; `None` = never.
    until: Option<u64>,
    ready: VecDeque<Result<(Cursor, Record), Error>>,
    ended: bool,
}

impl Subscription {
    pub(super) fn new(
        reader: Reader,
        head: watch::Receiver<u64>,
        selector: &Selector,
        from: From,
        lag: u64,
    ) -> Self {
        let now = *head.borrow();
        let (place, removed, lag) = match from {
            From::Now => (now, Some(0), Some(lag)),
            From::Oldest => (0, None, None),
            From::After(Cursor(place)) => (place, Some(0), None),
        };
        let mut subscription = Self {
            reader,
            selector: selector.clone(),
            head,
            place,
            removed,
            lag,
            until: None,
            ready: VecDeque::new(),
            ended: false,
        };
        if now < place {
            let error = format!("the place {place} is not in this archive, which ends at {now}");
            subscription.fail(Error::Invalid(error));
        }
        subscription
    }

    /// The same, ending with what is stored now.
    pub(super) fn until_now(mut self) -> Self {
        self.until = Some(*self.head.borrow());
        self
    }

    pub(super) fn into_stream(self) -> BoxStream<(Cursor, Record)> {
        Box::pin(stream::unfold(self, |mut subscription| async {
            let item = subscription.next().await?;
            Some((item, subscription))
        }))
    }

    async fn next(&mut self) -> Option<Result<(Cursor, Record), Error>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            let head = self.until.unwrap_or(*self.head.borrow_and_update());
            if let Some(lag) = self.lag
                && lag < head - self.place
            {
                let missed = head - std::mem::replace(&mut self.place, head);
                return Some(Err(Error::Lagged { missed }));
            }
            if self.place < head {
                self.read_on(head).await;
            } else if self.until.is_some() {
                return None;
            } else if self.head.changed().await.is_err() {
                self.fail(Error::Unavailable("the archive was closed".into()));
            }
        }
    }

    async fn read_on(&mut self, head: u64) {
        let until = head.min(self.place + STRETCH);
        match self.reader.stretch(&self.selector, self.place, until).await {
            Ok(stretch) => {
                let seen = self.removed.replace(stretch.removed).unwrap_or(stretch.removed).max(self.place);
                if seen < stretch.removed {
                    self.ready.push_back(Err(Error::Lagged { missed: stretch.removed - seen }));
                }
                self.ready.extend(stretch.records.into_iter().map(Ok));
                self.place = until;
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Error) {
        self.ready.push_back(Err(error));
        self.ended = true;
    }
}

/// Places looked at in one read: some milliseconds, so that other readers get their turn.
const STRETCH: u64 = 1024;
