//! A station in a mesh passes the suite, except for the check that writes as several stations: a
//! station forwards only its own records.

use std::sync::{Arc, Mutex};

use barograph_engine::conformance::Fixture;
use barograph_engine::{Engine, Joined, JoinedConfig, conformance_tests};

use crate::joined::mesh::{self, open};
use crate::joined::{name, quick};

conformance_tests!(one_writer: JoinedFixture::default());

/// Two state directories for each engine: the station's and the mesh's.
#[derive(Default)]
struct JoinedFixture {
    directories: Mutex<Vec<[tempfile::TempDir; 2]>>,
}

impl JoinedFixture {
    fn open(&self) -> Arc<dyn Engine> {
        let directories = self.directories.lock().unwrap();
        let [station, mesh] = directories.last().expect("fresh() came first");
        let config = JoinedConfig { host: name("north"), ..quick() };
        Arc::new(Joined::start(config, Arc::new(open(station.path())), mesh::new(mesh.path())).unwrap())
    }
}

#[async_trait::async_trait]
impl Fixture for JoinedFixture {
    async fn fresh(&self) -> Arc<dyn Engine> {
        self.directories.lock().unwrap().push([tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]);
        self.open()
    }

    async fn restart(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        drop(engine);
        self.open()
    }
}
