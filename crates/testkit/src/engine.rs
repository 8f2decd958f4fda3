//! An engine for tests that delegates each call to a different engine, which the hooks of the test
//! select.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, ReadOnly,
    Record, Selector,
};
use barograph_forecast::Series;
use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::iter;

/// A call of an [`Engine`], for [`Hooks::route`].
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`Engine::register`].
    Register(&'a Entry),
    /// [`Engine::watch`].
    Watch,
    /// [`Engine::remove`].
    Remove,
    /// [`Engine::append`].
    Append(&'a [Record]),
    /// [`Engine::subscribe`].
    Subscribe,
    /// [`Engine::history`].
    History,
    /// [`Engine::latest`].
    Latest,
    /// [`Engine::watermark`].
    Watermark,
    /// [`Engine::next_seq`].
    NextSeq,
}

/// How a test handles the calls of a [`Hooked`] engine.
#[async_trait::async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// Returns the engine that carries out the call.
    ///
    /// # Errors
    /// The error that the call returns. If the call returns a stream, the error is its only item.
    fn route(&self, call: Call<'_>) -> Result<Arc<dyn Engine>, Error>;

    /// Replaces [`Engine::register`]; by default it calls the routed engine.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.route(Call::Register(entry))?.register(entry, ttl).await
    }

    /// Replaces [`Engine::watch`]; by default it calls the routed engine.
    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.route(Call::Watch).map_or_else(refused, |engine| engine.watch(group))
    }

    /// Replaces [`Engine::append`]; by default it calls the routed engine.
    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        self.route(Call::Append(batch))?.append(batch).await
    }

    /// A fixed result of [`Call::Watermark`] or [`Call::NextSeq`]; `None` = that of the engine.
    fn number(&self, _call: Call<'_>) -> Option<u64> {
        None
    }

    /// Whether subscriptions and [`Engine::latest`] return this record.
    fn gives(&self, _record: &Record) -> bool {
        true
    }

    /// Replaces [`Engine::read_only`]; by default the directory takes writes.
    fn read_only(&self) -> Option<ReadOnly> {
        None
    }
}

/// An engine that delegates each call to the engine that its [`Hooks`] return.
#[derive(Default)]
pub struct Hooked<H>(pub Arc<H>);

impl<H> Hooked<H> {
    /// An engine with these hooks.
    pub fn new(hooks: H) -> Arc<Self> {
        Arc::new(Self(Arc::new(hooks)))
    }
}

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

fn refused<T: Send + 'static>(error: Error) -> BoxStream<T> {
    Box::pin(iter([Err(error)]))
}

#[async_trait::async_trait]
impl<H: Hooks> Engine for Hooked<H> {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.0.register(entry, ttl).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.0.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        self.0.route(Call::Remove)?.remove(host).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        self.0.append(batch).await
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        let hooks = Arc::clone(&self.0);
        let gives = move |item: &Result<(Cursor, Record), Error>| {
            ready(item.as_ref().map_or(true, |(_, record)| hooks.gives(record)))
        };
        self.0
            .route(Call::Subscribe)
            .map_or_else(refused, |engine| Box::pin(engine.subscribe(selector, from).filter(gives)))
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        self.0.route(Call::History)?.history(series, range).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error> {
        let page = self.0.route(Call::Latest)?.latest(selector, after, limit).await?;
        let items = page.items.into_iter().filter(|record| self.0.gives(record)).collect();
        Ok(Page { items, ..page })
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        let engine = self.0.route(Call::Watermark);
        match self.0.number(Call::Watermark) {
            Some(number) => Ok(number),
            None => engine?.watermark(origin).await,
        }
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        let engine = self.0.route(Call::NextSeq);
        match self.0.number(Call::NextSeq) {
            Some(number) => Ok(number),
            None => engine?.next_seq(origin).await,
        }
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.0.read_only()
    }
}
