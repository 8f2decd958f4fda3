//! Tests which reports of pages a station keeps.

use tokio_tungstenite::tungstenite::Message;

use super::client::Page;
use crate::http::{get, get_until};
use crate::{quiet, start};

fn report(page: &mut Page, source: &str, quantity: &str, value: f64) {
    let text = serde_json::json!({ "source": source, "quantity": quantity, "value": value }).to_string();
    page.socket.send(Message::text(text)).unwrap();
}

#[test]
fn reports_are_dropped_unless_the_station_keeps_them() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let address = station.address();
    let mut page = Page::open(address);
    report(&mut page, "p", "rtt", 0.25);
    page.rtt(1).unwrap();
    assert!(get(address, "/metrics").body.contains("barograph_echo_reports_total{outcome=\"dropped\"} 1.0"));
    let mut config = quiet(state.path());
    config.echo.keep = true;
    assert!(station.reload(config).unwrap().is_empty());
    assert_eq!(get(address, "/v1/station").json()["echo"]["keeps"], true);
    report(&mut page, "p", "rtt", 0.5);
    let series = get_until(address, "/v1/series?source=web%3Ap", |answer| answer.body.contains("web:p"));
    let only = &series.json()["series"][0];
    assert_eq!((&only["target"], &only["last"]["value"]), (&"here".into(), &0.5.into()));
}

#[test]
fn reports_are_bounded_and_a_bad_report_does_not_end_the_session() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.echo.keep = true;
    config.echo.keep_sources_max = 2;
    let station = start(config.clone());
    let address = station.address();
    let mut page = Page::open(address);
    for source in ["a", "b", "c"] {
        let mut page = Page::open(address);
        report(&mut page, source, "goodput", 1e6);
        page.rtt(1).unwrap();
    }
    // The station keeps only the first of these reports. The station drops two reports that are too
    // early, a report with a quantity that pages do not measure, a report with an impossible value,
    // and a text that is not JSON.
    for _ in 0..3 {
        report(&mut page, "a", "rtt", 0.1);
    }
    report(&mut page, "a", "cpu_available", 0.1);
    report(&mut page, "a", "rtt_nagle", -1.0);
    page.socket.send(Message::text("weather")).unwrap();
    page.rtt(1).unwrap();
    let metrics = get(address, "/metrics").body;
    assert!(metrics.contains("barograph_echo_reports_total{outcome=\"kept\"} 3.0"), "{metrics}");
    assert!(metrics.contains("barograph_echo_reports_total{outcome=\"dropped\"} 6.0"), "{metrics}");
    get_until(address, "/v1/series?source=web%3Aa", |answer| {
        answer.json()["series"].as_array().unwrap().len() == 2
    });
    assert!(!get(address, "/v1/series").body.contains("web:c"));
    station.stop(crate::LIMIT);
    // The count of sources survives a restart.
    let station = start(config);
    let address = station.address();
    let mut page = Page::open(address);
    report(&mut Page::open(address), "d", "goodput", 1e6);
    report(&mut page, "b", "rtt", 0.1);
    // The name of a session cannot change.
    report(&mut page, "a", "goodput", 1e6);
    page.rtt(1).unwrap();
    let metrics = get(address, "/metrics").body;
    assert!(metrics.contains("barograph_echo_reports_total{outcome=\"kept\"} 1.0"), "{metrics}");
}
