//! What tests of several modules share.

use barograph_engine::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, ReadOnly,
    Record, Selector,
};
use barograph_forecast::Series;
use std::time::Duration;

/// What a test's directory does; it keeps no records.
pub(crate) trait Directory: Send + Sync + 'static {
    /// As [`Engine::register`].
    fn register(&self) -> Result<Box<dyn Lease>, Error> {
        nothing()
    }

    /// As [`Engine::watch`].
    fn watch(&self) -> BoxStream<Event>;

    /// As [`Engine::read_only`].
    fn read_only(&self) -> Option<ReadOnly> {
        None
    }
}

/// An engine that is a directory and nothing else.
pub(crate) struct Alone<D>(pub(crate) D);

fn nothing<T>() -> Result<T, Error> {
    Err(Error::Unavailable("it is a directory alone".into()))
}

#[async_trait::async_trait]
impl<D: Directory> Engine for Alone<D> {
    async fn register(&self, _: &Entry, _: Duration) -> Result<Box<dyn Lease>, Error> {
        self.0.register()
    }

    fn watch(&self, _: &Group) -> BoxStream<Event> {
        self.0.watch()
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.0.read_only()
    }

    async fn append(&self, _: &[Record]) -> Result<(), Error> {
        nothing()
    }

    fn subscribe(&self, _: &Selector, _: From) -> BoxStream<(Cursor, Record)> {
        Box::pin(futures_util::stream::pending())
    }

    async fn history(&self, _: &Series, _: &Range) -> Result<Page<Record>, Error> {
        nothing()
    }

    async fn latest(&self, _: &Selector, _: Option<Cursor>, _: usize) -> Result<Page<Record>, Error> {
        nothing()
    }

    async fn watermark(&self, _: &HostId) -> Result<u64, Error> {
        nothing()
    }

    async fn next_seq(&self, _: &HostId) -> Result<u64, Error> {
        nothing()
    }
}
