//! A station in a mesh passes the suite, except where the suite writes as several stations: what a
//! station forwards is its own alone.

use std::sync::{Arc, Mutex};

use barograph_engine::conformance::Fixture;
use barograph_engine::{Engine, Joined, JoinedConfig, conformance_tests};

use crate::mesh::{Mesh, open};
use crate::{name, quick};

conformance_tests!(JoinedFixture::default();
    watch_gives_a_snapshot_then_synced_then_changes,
    a_lost_holder_is_down_within_its_ttl_and_a_second,
    an_older_lease_does_not_end_a_newer_registration,
    a_removed_station_is_reported_until_it_registers_again,
    a_record_comes_back_as_it_went_in,
    a_label_far_ahead_is_not_lost,
    a_record_appended_twice_is_stored_once,
    a_batch_with_an_invalid_record_stores_nothing,
    the_watermark_stops_at_the_first_gap,
    history_pages_join_without_gap_or_overlap,
    history_keeps_to_its_range,
    latest_is_the_newest_by_time_of_every_series_matched,
    a_page_of_the_newest_is_bounded_in_bytes,
    a_page_has_between_one_and_the_most_records,
    a_subscription_resumes_after_a_cursor,
    a_slow_subscriber_is_told_what_it_missed,
    what_was_acknowledged_survives_a_restart,
);

/// Two state directories for every engine: the station's and the mesh's.
#[derive(Default)]
struct JoinedFixture {
    directories: Mutex<Vec<[tempfile::TempDir; 2]>>,
}

impl JoinedFixture {
    fn open(&self) -> Arc<dyn Engine> {
        let directories = self.directories.lock().unwrap();
        let [station, mesh] = directories.last().expect("fresh() came first");
        let config = JoinedConfig { host: name("north"), ..quick() };
        Arc::new(Joined::start(config, Arc::new(open(station.path())), Mesh::new(mesh.path())).unwrap())
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
