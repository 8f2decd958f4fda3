//! Bulk tests by iperf3, with a script in place of the program. The test runs itself again with the
//! script in its `PATH`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use barograph_engine::Engine;
use barograph_station::config::BulkWith;
use serde_json::{Value, json};

use crate::bulk::{config, join, old_station, test, tests, until_peers};
use crate::http::{get, get_until, post};
use crate::mesh::{block_on, directory, entry, joined};
use crate::{LIMIT, serve};

/// Script for the server and the client. The server waits on a pipe for the client. The file `how`
/// selects what both report.
const STAND_IN: &str = r#"here="${0%/*}"
how=$(cat "$here/how" 2>/dev/null)
echo "$@" >> "$here/log"
begun='"connected": [{}], "accepted_connection": {}, "test_start": {"protocol": "TCP", "num_streams": 1, "reverse": 0}'
case "$how $*" in
*--version*) echo 'iperf 3.18 (a stand-in)' ;;
"taken -s"*) echo '{"start": {"connected": []}, "end": {}, "error": "Address already in use"}' ;;
"taken -c"*) echo '{"start": {}, "end": {}, "error": "unable to connect to server: Connection refused"}' ;;
*" -s "*)
    read -r bytes < "$here/pipe"
    echo "{\"start\": {$begun}, \"end\": {\"sum_received\": {\"bytes\": $bytes, \"seconds\": 1.0}}}" ;;
*" -c "*)
    bytes=12000000
    [ "$how" = fast ] && bytes=$(($(echo "$*" | sed 's/.*-b \([0-9]*\).*/\1/') / 8))
    echo "$bytes" > "$here/pipe"
    echo "{\"end\": {\"sum_sent\": {\"bytes\": $((bytes + 1000)), \"seconds\": 1.0},
        \"sum_received\": {\"bytes\": $bytes, \"seconds\": 1.0}}}" ;;
esac"#;

/// In the second run of the test `name`, returns the directory of the script. In the first run,
/// starts the second run and returns `None`.
fn fake_iperf3(name: &str) -> Option<PathBuf> {
    const INSIDE: &str = "BAROGRAPH_TEST_STAND_IN";
    if let Some(inside) = std::env::var_os(INSIDE) {
        return Some(inside.into());
    }
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    std::fs::write(here.join("iperf3"), format!("#!/bin/sh\n{STAND_IN}\n")).unwrap();
    let made = Command::new("sh").args(["-c", "chmod 755 iperf3 && mkfifo pipe"]).current_dir(here).status();
    assert!(made.unwrap().success());
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([name, "--exact", "--nocapture"]).env("PATH", path).env(INSIDE, here);
    let output = again.output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && said[0].contains("1 passed"), "{}{}", said[0], said[1]);
    None
}

fn with(state: &Path, host: &str, with: BulkWith) -> barograph_station::Config {
    let mut config = config(&state.join(host), host);
    config.mesh.bulk_with = with;
    config.mesh.bulk_share = Some(0.5);
    // This budget is large enough for Barograph's own streams over loopback. Such streams also run
    // during the test.
    config.mesh.bulk_bytes_per_hour = Some(200_000_000_000);
    config
}

/// Stores values of the goodput from `a` to `to`.
fn feed_goodput(station: &barograph_station::Station, to: &str) {
    let record = json!({"source": "a", "target": to, "quantity": "goodput", "value": 100e6});
    let body = json!({"records": vec![record; 30]}).to_string();
    let answer = post(station.address(), "/v1/measurements", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let path = format!("/v1/forecast?source=a&target={to}&quantity=goodput");
    get_until(station.address(), &path, |answer| !answer.json()["forecasts"].as_array().unwrap().is_empty());
}

fn a_second(station: &barograph_station::Station, to: &str) -> Value {
    post(station.address(), "/v1/tests", &json!({"to": to, "seconds": 1.5}).to_string()).json()
}

#[test]
fn iperf3_runs_the_test_if_both_ends_enable_iperf3() {
    let Some(here) = fake_iperf3("iperf3::iperf3_runs_the_test_if_both_ends_enable_iperf3") else { return };
    let state = tempfile::tempdir().unwrap();
    let a = serve(with(state.path(), "a", BulkWith::Iperf3));
    let b = join(&a, with(state.path(), "b", BulkWith::Iperf3));
    let c = join(&a, with(state.path(), "c", BulkWith::Own));
    for (station, other) in [(&a, "b"), (&a, "c"), (&b, "a"), (&c, "a")] {
        until_peers(station, other);
    }
    let peers = get(a.address(), "/v1/peers").json();
    assert_eq!(peers["peers"][0]["capabilities"], json!(["responder", "bulk", "iperf3"]), "{peers}");
    // No forecast exists yet to limit the bytes of iperf3.
    let first = test(&a, "b");
    assert_eq!((first.status, first.json()["with"].as_str()), (200, None), "{}", first.body);
    feed_goodput(&a, "b");
    let made = a_second(&a, "b");
    assert_eq!((made["state"].as_str(), made["with"].as_str()), (Some("done"), Some("iperf3")), "{made}");
    assert_eq!((made["goodput_bit_s"].as_f64(), made["bytes"].as_u64()), (Some(96e6), Some(12_001_000)));
    let of_b = &tests(b.address())[0];
    assert_eq!((of_b["role"].as_str(), of_b["with"].as_str()), (Some("target"), Some("iperf3")), "{of_b}");
    assert_eq!((of_b["state"].as_str(), of_b["bytes"].as_u64()), (Some("done"), Some(12_000_000)), "{of_b}");
    let path = "/v1/latest?source=a&target=b&quantity=goodput";
    get_until(a.address(), path, |answer| answer.json()["latest"][0]["detail"]["with"] == "iperf3");

    std::fs::write(here.join("how"), "taken").unwrap();
    let refused = a_second(&a, "b");
    assert_eq!(
        (refused["state"].as_str(), refused["bytes"].as_u64()),
        (Some("failed"), Some(0)),
        "{refused}"
    );
    assert!(refused["why"].as_str().unwrap().starts_with("refused: "), "{refused}");
    let of_b = &tests(b.address())[0];
    assert_eq!((of_b["state"].as_str(), of_b["bytes"].as_u64()), (Some("failed"), Some(0)), "{of_b}");
    assert_eq!(of_b["why"], "iperf3: Address already in use", "{of_b}");

    std::fs::write(here.join("how"), "fast").unwrap();
    let held = a_second(&a, "b");
    assert_eq!((held["state"].as_str(), held["ended"].as_str()), (Some("failed"), Some("bytes")), "{held}");
    assert_eq!((&held["goodput_bit_s"], held["with"].as_str()), (&Value::Null, Some("iperf3")), "{held}");
    let own = a_second(&a, "b");
    assert_eq!((own["state"].as_str(), &own["with"]), (Some("done"), &Value::Null), "what outgrew it: {own}");
    // A peer that does not serve iperf3 is not tested with Barograph's own stream instead.
    let refused = test(&a, "c");
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.error().contains("mesh.bulk_with"), "{}", refused.body);
    for station in [c, b, a] {
        station.stop(LIMIT);
    }
}

#[test]
fn goodput_fails_for_a_peer_without_iperf3_support() {
    let Some(_) = fake_iperf3("iperf3::goodput_fails_for_a_peer_without_iperf3_support") else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(with(state.path(), "a", BulkWith::Iperf3), Some(&directory));
    let at = old_station("old").to_string();
    let mut old = entry("old", &[&at]);
    (old.capabilities.bulk, old.capabilities.iperf3) = (true, true);
    let lease = block_on(directory.register(&old, Duration::from_secs(10))).unwrap();
    until_peers(&a, "old");
    feed_goodput(&a, "old");
    let made = a_second(&a, "old");
    assert_eq!((made["state"].as_str(), made["bytes"].as_u64()), (Some("failed"), Some(0)), "{made}");
    assert_eq!(made["with"], "iperf3", "{made}");
    assert!(made["why"].as_str().unwrap().starts_with("declined: "), "{made}");
    drop(lease);
}
