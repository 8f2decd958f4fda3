//! An engine for tests that delegates each call to a different engine, which the hooks of the test
//! select.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{
    BoxStream, Cursor, Engine, EngineError, Entry, Event, Group, HostId, Lease, Page, Range, ReadOnly,
    Record, Selector, StartAt,
};
use barograph_forecast::SeriesId;
use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::iter;

/// A call of an [`Engine`], for [`EngineHooks::route`].
#[derive(Clone, Copy, Debug)]
pub enum EngineCall<'a> {
    /// A call of [`Engine::register`] with this entry.
    Register(&'a Entry),
    /// A call of [`Engine::watch`].
    Watch,
    /// A call of [`Engine::remove`].
    Remove,
    /// A call of [`Engine::append`] with these records.
    Append(&'a [Record]),
    /// A call of [`Engine::subscribe`].
    Subscribe,
    /// A call of [`Engine::history`].
    History,
    /// A call of [`Engine::latest`].
    Latest,
    /// A call of [`Engine::watermark`].
    Watermark,
    /// A call of [`Engine::next_seq`].
    NextSeq,
}

/// How a test handles the calls of a [`HookedEngine`].
#[async_trait::async_trait]
pub trait EngineHooks: Send + Sync + 'static {
    /// Returns the engine that carries out the call.
    ///
    /// # Errors
    /// Returns the error with which the call fails. If the call returns a stream, this error is the
    /// only item of the stream.
    fn route(&self, call: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError>;

    /// Replaces [`Engine::register`]; the default calls the routed engine.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        self.route(EngineCall::Register(entry))?.register(entry, ttl).await
    }

    /// Replaces [`Engine::watch`]; the default calls the routed engine.
    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.route(EngineCall::Watch).map_or_else(refused, |engine| engine.watch(group))
    }

    /// Replaces [`Engine::append`]; the default calls the routed engine.
    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.route(EngineCall::Append(batch))?.append(batch).await
    }

    /// A fixed result of [`EngineCall::Watermark`] or [`EngineCall::NextSeq`]; `None` = the result
    /// of the routed engine.
    fn fixed_number(&self, _call: EngineCall<'_>) -> Option<u64> {
        None
    }

    /// Whether subscriptions and [`Engine::latest`] return this record.
    fn includes(&self, _record: &Record) -> bool {
        true
    }

    /// Replaces [`Engine::read_only`]; by default the directory accepts writes.
    fn read_only(&self) -> Option<ReadOnly> {
        None
    }
}

/// An engine that delegates each call to the engine that its [`EngineHooks`] return.
#[derive(Default)]
pub struct HookedEngine<H>(pub Arc<H>);

impl<H> HookedEngine<H> {
    /// Creates an engine with these hooks.
    pub fn new(hooks: H) -> Arc<Self> {
        Arc::new(Self(Arc::new(hooks)))
    }
}

impl<H> Deref for HookedEngine<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

fn refused<T: Send + 'static>(error: EngineError) -> BoxStream<T> {
    Box::pin(iter([Err(error)]))
}

#[async_trait::async_trait]
impl<H: EngineHooks> Engine for HookedEngine<H> {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        self.0.register(entry, ttl).await
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.0.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), EngineError> {
        self.0.route(EngineCall::Remove)?.remove(host).await
    }

    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.0.append(batch).await
    }

    fn subscribe(&self, selector: &Selector, from: StartAt) -> BoxStream<(Cursor, Record)> {
        let hooks = Arc::clone(&self.0);
        let includes = move |item: &Result<(Cursor, Record), EngineError>| {
            ready(item.as_ref().map_or(true, |(_, record)| hooks.includes(record)))
        };
        self.0
            .route(EngineCall::Subscribe)
            .map_or_else(refused, |engine| Box::pin(engine.subscribe(selector, from).filter(includes)))
    }

    async fn history(&self, series: &SeriesId, range: &Range) -> Result<Page<Record>, EngineError> {
        self.0.route(EngineCall::History)?.history(series, range).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, EngineError> {
        let page = self.0.route(EngineCall::Latest)?.latest(selector, after, limit).await?;
        let items = page.items.into_iter().filter(|record| self.0.includes(record)).collect();
        Ok(Page { items, ..page })
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, EngineError> {
        let engine = self.0.route(EngineCall::Watermark);
        match self.0.fixed_number(EngineCall::Watermark) {
            Some(number) => Ok(number),
            None => engine?.watermark(origin).await,
        }
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, EngineError> {
        let engine = self.0.route(EngineCall::NextSeq);
        match self.0.fixed_number(EngineCall::NextSeq) {
            Some(number) => Ok(number),
            None => engine?.next_seq(origin).await,
        }
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.0.read_only()
    }
}
