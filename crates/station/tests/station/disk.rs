//! A state directory on a full disk, or a state directory in which a small file cannot be written.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use barograph_sim::{SmallDisk, report_skipped};
use barograph_station::{Config, state};
use serde_json::Value;

use crate::http::{get, get_until};
use crate::{quiet, start};

fn sensing(state: &Path) -> Config {
    Config { sensor_period: Duration::from_millis(100), ..quiet(state) }
}

/// Number of reasons in `/healthz` that contain `file`.
fn reasons(health: &Value, file: &str) -> usize {
    let reasons = health["reasons"].as_array().unwrap();
    reasons.iter().filter(|reason| reason.as_str().unwrap().contains(file)).count()
}

#[test]
fn a_small_file_that_cannot_be_written_is_reported_and_written_later() {
    let state = tempfile::tempdir().unwrap();
    let files = ["url", "token", "station.key"];
    for file in files {
        // Prevents writing the temporary file that the station renames to `file`.
        fs::create_dir_all(state.path().join(file).with_extension("new").join("something")).unwrap();
    }
    let station = start(sensing(state.path()));
    let health = get(station.address(), "/healthz");
    assert_eq!(health.status, 503, "{}", health.body);
    for file in files {
        assert_eq!(reasons(&health.json(), &format!("/{file} cannot be written")), 1, "{}", health.body);
        fs::remove_dir_all(state.path().join(file).with_extension("new")).unwrap();
    }
    get_until(station.address(), "/healthz", |answer| answer.status == 200);
    assert_eq!(state::read_url(state.path()), Some(station.url()));
    let token = fs::read_to_string(state.path().join("token")).unwrap();
    station.stop(Duration::from_secs(10));
    let again = start(quiet(state.path()));
    assert_eq!(fs::read_to_string(state.path().join("token")).unwrap(), token);
    again.stop(Duration::from_secs(10));
}

#[test]
fn a_station_starts_on_a_full_disk_measures_and_stores_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(directory.path()) else {
        report_skipped("a station on a full disk, because mounting a small one needs root");
        return;
    };
    let (state, ballast) = (directory.path().join("state"), directory.path().join("ballast"));
    start(sensing(&state)).stop(Duration::from_secs(10));
    assert_eq!(fs::write(&ballast, vec![1; 8 << 20]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let station = start(sensing(&state));
    let until = |satisfied: fn(&Value) -> bool| {
        get_until(station.address(), "/healthz", |answer| satisfied(&answer.json())).json()
    };
    // The archive's log may have room for the first records.
    let full = until(|health| {
        health["spool_records"].as_u64().unwrap() >= 2 && reasons(health, "the archive takes no records") == 1
    });
    assert_eq!(full["status"], "degraded");
    assert_eq!(reasons(&full, "url cannot be written: No space left on device"), 1, "{full}");
    assert!(full["last_measurement_age_s"].as_f64().is_some());
    fs::remove_file(&ballast).unwrap();
    until(|health| health["status"] == "ok");
    assert_eq!(state::read_url(&state), Some(station.url()));
    assert_eq!(station.stop(Duration::from_secs(10)), 0, "everything was stored");
}

#[cfg(target_os = "linux")]
#[test]
fn a_failing_disk_is_named_and_not_reported_as_damage() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("disk");
    fs::create_dir(&path).unwrap();
    let Some(disk) = barograph_sim::FailingDisk::mount(&path) else {
        report_skipped(
            "a station on a failing disk, because mounting one needs root, ext4 and a loop device",
        );
        return;
    };
    let station = start(sensing(&path.join("state")));
    get_until(station.address(), "/healthz", |answer| answer.json()["last_append_age_s"].as_f64().is_some());
    disk.fail().unwrap();
    for _ in 0..3 {
        let health = get_until(station.address(), "/healthz", |answer| {
            reasons(&answer.json(), "the archive takes no records") == 1
        });
        assert_eq!(reasons(&health.json(), "does not answer"), 1, "{}", health.body);
        assert!(!health.body.contains("damaged") && !health.body.contains("backup"), "{}", health.body);
        // Wait for a further append.
        let before = health.json()["spool_records"].as_u64();
        get_until(station.address(), "/healthz", |answer| before < answer.json()["spool_records"].as_u64());
    }
    assert!(station.stop(Duration::from_secs(10)) > 0, "nothing was waiting");
    disk.restore().unwrap();
    let again = start(sensing(&path.join("state")));
    get_until(again.address(), "/healthz", |answer| answer.status == 200);
    assert_eq!(again.stop(Duration::from_secs(10)), 0, "everything was stored");
}
