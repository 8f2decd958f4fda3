//! The engine of a single machine passes the suite.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::conformance::Fixture;
use barograph_engine::{Engine, Local, LocalConfig, conformance_tests};

conformance_tests!(LocalFixture::default());

/// Makes archives in temporary directories. The engine under test uses the last directory of the
/// list.
#[derive(Default)]
struct LocalFixture {
    directories: Mutex<Vec<tempfile::TempDir>>,
}

impl LocalFixture {
    fn open(&self) -> Arc<dyn Engine> {
        let directories = self.directories.lock().expect("no test panics with the lock");
        let directory = directories.last().expect("fresh() came first").path();
        // The suite writes times from 1970 on.
        let keep = Duration::MAX;
        let commit_interval = Duration::from_millis(1);
        Arc::new(
            Local::open(LocalConfig { commit_interval, keep, ..LocalConfig::new(directory) })
                .expect("an archive"),
        )
    }
}

#[async_trait::async_trait]
impl Fixture for LocalFixture {
    async fn fresh(&self) -> Arc<dyn Engine> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        self.directories.lock().expect("no test panics with the lock").push(directory);
        self.open()
    }

    async fn restart(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        assert_eq!(Arc::strong_count(&engine), 1, "a check keeps the engine to itself");
        drop(engine);
        self.open()
    }
}
