//! Tests of the exported text, and of its use in `deploy/`.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::forecast::series::Measurement;
use barograph_forecast::{Failure, Name, Quantity};

fn series_table() -> SeriesTable {
    let mut series_table = SeriesTable::new(10);
    let mut observe = |target: &str, quantity: &str, outcome| {
        let series = SeriesId {
            source: Name::new("here").unwrap(),
            target: Name::new(target).unwrap(),
            quantity: Quantity::new(quantity).unwrap(),
        };
        series_table.observe(&Measurement { series, time_unix_ns: 1, outcome, detail: String::new() });
    };
    observe("a\"b\\c", "rtt", Outcome::Value(0.25));
    observe("a", "connect", Outcome::Failed { failure: Failure::Refused, after_s: 0.1 });
    observe("x", "queue_length", Outcome::Value(7.0));
    observe("x", "rtt_loaded", Outcome::Value(1e-9));
    series_table
}

fn here() -> Name {
    Name::new("here").unwrap()
}

fn figures() -> MeshMetrics {
    let spool = Some(crate::mesh::Spool {
        records: 3,
        forwarded: 4,
        refused: 5,
        conflicting: 6,
        ..Default::default()
    });
    let latencies = crate::mesh::Latencies::default();
    let now = std::time::Instant::now();
    latencies.add(&Name::new("x\"y").unwrap(), true, &[0.01, 0.5], 3, now);
    MeshMetrics {
        latencies: latencies.distributions(&Name::new("here").unwrap(), now),
        is_connected: true,
        is_read_only: true,
        peers: [("up", 2), ("lost", 1), ("ignored", 0)],
        hooks_dropped: 0,
        spool,
        archive_lag: Some(7),
    }
}

#[test]
fn mesh_refusals_and_conflicts_are_exported() {
    let mut text = Text::new(Format::Prometheus, 0);
    mesh(&mut text, &figures());
    let text = text.finish();
    for line in [
        "barograph_mesh_directory_read_only 1.0\n",
        "barograph_mesh_archive_lag 7.0\n",
        "barograph_mesh_spool_records 3.0\n",
        "barograph_mesh_spool_paced 0.0\n",
        "barograph_mesh_forwarded_total 4.0\n",
        "barograph_mesh_refused_total 5.0\n",
        "barograph_mesh_overtaken_total 6.0\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

/// Metrics of a station with samples in every group, in one format.
fn whole(format: Format) -> String {
    let health = Health::new();
    health.task("http");
    exposition(
        format,
        &SeriesTableSamples::of(&Mutex::new(series_table()), &here()),
        &health,
        &Counters::default(),
        &figures(),
        &BulkTestMetrics::default(),
    )
}

fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Splits the line of a sample into name and value, and drops the labels `{…}`; `None` if they are
/// malformed.
fn split_labels(line: &str) -> Option<(&str, &str)> {
    let Some((name, rest)) = line.split_once('{') else { return line.split_once(' ') };
    let mut rest = rest;
    loop {
        let (label, quoted) = rest.split_once("=\"")?;
        assert!(is_name(label) && !label.contains(':'), "{line}");
        let mut escaped = false;
        let end = quoted.find(|c| match (escaped, c) {
            (true, _) => {
                assert!(matches!(c, '\\' | '"' | 'n'), "{line}");
                escaped = false;
                false
            }
            (false, '\\') => {
                escaped = true;
                false
            }
            (false, c) => c == '"',
        })?;
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some((name, rest.strip_prefix("} ")?)),
        }
    }
}

fn is_name(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    text.starts_with(is_first) && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

/// Strictly checks the Prometheus text format 0.0.4: for each family HELP, then TYPE, then all its
/// samples.
fn check_prometheus(text: &str) {
    assert!(text.ends_with('\n'));
    let mut seen = std::collections::BTreeSet::new();
    let mut help = "";
    let (mut family, mut kind) = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !words.is_empty() && !words.contains('\\'), "{line}");
            help = name;
            (family, kind) = ("", "");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').unwrap();
            assert_eq!(family, help, "HELP stands right before TYPE");
            assert!(["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind), "{line}");
            assert!(seen.insert(family), "{family} comes twice");
        } else {
            assert!(!line.starts_with('#') && !line.is_empty(), "neither HELP, TYPE nor a sample: {line:?}");
            let (name, value) = split_labels(line).unwrap_or_else(|| panic!("{line}"));
            let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} stands under {family}"));
            match kind {
                "counter" => assert!(suffix.is_empty() && name.ends_with("_total"), "{line}"),
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert!(suffix.is_empty() && !name.ends_with("_total"), "{line}"),
            }
            assert_eq!(suffix == "_bucket", line.contains(",le=\""), "{line}");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line} has neither timestamp nor exemplar");
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn the_prometheus_format_contains_no_openmetrics_syntax() {
    let text = whole(Format::Prometheus);
    check_prometheus(&text);
    assert!(text.contains("# TYPE barograph_build_info gauge\nbarograph_build_info{version="), "{text}");
    assert!(text.contains("# TYPE barograph_values_total counter\n"), "{text}");
    let uptime = |line: &&str| !line.starts_with("barograph_uptime_seconds");
    let openmetrics = whole(Format::OpenMetrics);
    assert_eq!(
        samples(&text).into_iter().filter(uptime).collect::<Vec<_>>(),
        samples(&openmetrics).into_iter().filter(uptime).collect::<Vec<_>>(),
        "both formats have the same samples"
    );
}

#[test]
fn every_line_parses_and_families_stay_together() {
    let text = whole(Format::OpenMetrics);
    assert!(text.ends_with("# EOF\n"));
    let mut family = String::new();
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_string();
            assert!(seen.insert(family.clone()), "{family} comes twice");
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let unit = rest.split(' ').nth(1).unwrap();
            assert!(family.ends_with(&format!("_{unit}")), "{line}");
        } else if !line.starts_with("# HELP ") {
            assert!(line.starts_with(&family), "{line} stands under {family}");
            let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(value.is_finite());
        }
    }
}

#[test]
fn labels_are_escaped_and_failures_are_absent() {
    let text = whole(Format::Prometheus);
    let line = r#"barograph_measured_seconds{quantity="rtt",source="here",target="a\"b\\c"} 0.25"#;
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("barograph_measured_seconds{quantity=\"connect\""));
    assert!(text.contains("barograph_failures_total{quantity=\"connect\",source=\"here\",target=\"a\"} 1.0"));
    assert!(text.contains("barograph_measured{quantity=\"queue_length\""));
    assert!(text.contains("barograph_measured_seconds{quantity=\"rtt_loaded\""));
}

/// Names of metrics in a text: words of small letters and `_` that begin with `barograph_`.
fn named(text: &str) -> std::collections::BTreeSet<&str> {
    let word = |c: char| !(c.is_ascii_lowercase() || c == '_');
    text.split(word).filter(|word| word.starts_with("barograph_")).collect()
}

#[test]
fn dashboard_and_rules_use_only_existing_metrics() {
    let mut series_table = series_table();
    let health = Health::new();
    health.task("http");
    for (quantity, values) in [
        ("rtt", [0.1, 0.2]),
        ("loss", [0.0, 0.1]),
        ("goodput", [1e6, 2e6]),
        ("memory_free", [1e9, 2e9]),
        ("queue_length", [1.0, 2.0]),
    ] {
        let [source, target] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let series = SeriesId { source, target, quantity: Quantity::new(quantity).unwrap() };
        for (time_unix_ns, value) in (0..16).zip(values.into_iter().cycle()) {
            let outcome = Outcome::Value(value);
            series_table.observe(&Measurement {
                series: series.clone(),
                time_unix_ns,
                outcome,
                detail: String::new(),
            });
        }
    }
    let text = exposition(
        Format::OpenMetrics,
        &SeriesTableSamples::of(&Mutex::new(series_table), &here()),
        &health,
        &Counters::default(),
        &figures(),
        &BulkTestMetrics::default(),
    );
    let samples: std::collections::BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    for file in ["grafana/dashboard.json", "prometheus/rules.yml", "prometheus/rules_test.yml"] {
        let contents = deployed(file);
        let names = named(&contents);
        assert!(names.len() >= 4, "{file} names {names:?}");
        let unknown: Vec<_> = names.difference(&samples).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}; there are {samples:?}");
        if file.ends_with("json") {
            serde_json::from_str::<serde_json::Value>(&contents).unwrap();
        }
    }
}

fn deployed(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(path).unwrap()
}

/// Every quantity that `crates/forecast` defines, and one quantity of an application; then the
/// loaded forms of these quantities.
fn quantities() -> Vec<Quantity> {
    let source = include_str!("../../../forecast/src/series.rs");
    let named =
        source.split("Self = Self(Cow::Borrowed(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let plain: Vec<_> = named.chain(["queue_length"]).collect();
    assert!(plain.len() > 14, "{plain:?}");
    let loaded = plain.iter().map(|name| format!("{name}_loaded"));
    let all = plain.iter().map(ToString::to_string).chain(loaded);
    all.map(|name| Quantity::new(name.as_str()).unwrap()).collect()
}

#[test]
fn the_dashboard_has_a_panel_for_every_quantity() {
    let dashboard: serde_json::Value = serde_json::from_str(&deployed("grafana/dashboard.json")).unwrap();
    let mut shown = std::collections::BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let name = expression.split('{').next().unwrap();
            shown.insert((name.to_string(), panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap()));
        }
    }
    for quantity in quantities() {
        let unit = crate::unit(&quantity);
        let (_, suffix) = UNITS
            .iter()
            .find(|(known, _)| *known == unit)
            .unwrap_or_else(|| panic!("/metrics leaves out {quantity}, in {unit}"));
        let axis = match unit {
            "s" | "bytes" => unit,
            "bit/s" => "bps",
            "ratio" => "percentunit",
            _ => "short",
        };
        for value in ["measured", "forecast", "forecast_lower", "forecast_upper"] {
            let separator = if suffix.is_empty() { "" } else { "_" };
            let name = format!("barograph_{value}{separator}{suffix}");
            assert!(shown.contains(&(name.clone(), axis)), "no panel with {name}, for {quantity}, in {axis}");
        }
    }
}

#[test]
fn every_alert_has_a_test_case() {
    let (rules, cases) = (deployed("prometheus/rules.yml"), deployed("prometheus/rules_test.yml"));
    let named = |text: &str, key: &str| -> std::collections::BTreeSet<String> {
        let after = text.split(key).skip(1);
        after.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap().into()).collect()
    };
    let alerts = named(&rules, "alert: ");
    assert!(alerts.len() > 10, "{alerts:?}");
    let untested: Vec<_> = alerts.difference(&named(&cases, "alertname: ")).cloned().collect();
    assert!(untested.is_empty(), "rules_test.yml has no case of {untested:?}");
}

#[test]
fn only_own_series_have_forecasts_further_ahead() {
    let mut series_table = SeriesTable::new(2);
    let target = Name::new("x").unwrap();
    for source in ["here", "elsewhere"] {
        let series =
            SeriesId { source: Name::new(source).unwrap(), target: target.clone(), quantity: Quantity::RTT };
        for n in 0..200_u32 {
            let outcome = match n % 50 {
                49 => Outcome::Failed { failure: Failure::TimedOut, after_s: 1.0 },
                _ => Outcome::Value(0.02 + 1e-4 * f64::from(n * 7919 % 101)),
            };
            let time_unix_ns = 10_000_000_000 * i64::from(n);
            series_table.observe(&Measurement {
                series: series.clone(),
                time_unix_ns,
                outcome,
                detail: String::new(),
            });
        }
    }
    let text = exposition(
        Format::Prometheus,
        &SeriesTableSamples::of(&Mutex::new(series_table), &here()),
        &Health::new(),
        &Counters::default(),
        &figures(),
        &BulkTestMetrics::default(),
    );
    check_prometheus(&text);
    // The horizons of 900 s and 3600 s have no interval after 2000 s.
    for gauge in ["ahead", "ahead_lower", "ahead_upper"] {
        let name = format!("barograph_forecast_{gauge}_seconds{{");
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with(&name)).collect();
        let horizons = ["60s", "300s"]
            .map(|horizon| format!("source=\"here\",target=\"x\",horizon=\"{horizon}\"}} 0.0"));
        assert_eq!(lines.len(), horizons.len(), "{lines:?}");
        assert!(lines.iter().zip(&horizons).all(|(line, horizon)| line.contains(horizon)), "{lines:?}");
    }
    let availability: Vec<_> =
        text.lines().filter(|line| line.starts_with("barograph_availability_ratio{")).collect();
    assert_eq!(availability.len(), 2, "{availability:?}");
}

#[test]
fn residuals_refer_to_the_issued_forecast() {
    let mut series_table = SeriesTable::new(1);
    let [source, target] = ["a", "b"].map(|name| Name::new(name).unwrap());
    let series = SeriesId { source, target, quantity: Quantity::RTT };
    let mut observe = |time_unix_ns, outcome| {
        series_table.observe(&Measurement {
            series: series.clone(),
            time_unix_ns,
            outcome,
            detail: String::new(),
        });
        exposition(
            Format::OpenMetrics,
            &SeriesTableSamples::of(&Mutex::new(series_table.clone()), &here()),
            &Health::new(),
            &Counters::default(),
            &figures(),
            &BulkTestMetrics::default(),
        )
    };
    let labels = "{quantity=\"rtt\",source=\"a\",target=\"b\"}";
    observe(1, Outcome::Value(0.25));
    let second = observe(2, Outcome::Value(0.75));
    assert!(second.contains(&format!("barograph_residual_seconds{labels} 0.5\n")), "{second}");
    assert!(second.contains(&format!("barograph_scored_total{labels} 0.0\n")), "no error was known yet");
    let eleventh = (3..12).map(|time| observe(time, Outcome::Value(0.25))).last().unwrap();
    assert!(eleventh.contains(&format!("barograph_scored_total{labels} 0.0\n")), "calibrating: {eleventh}");
    let twelfth = observe(12, Outcome::Value(90.0));
    assert!(twelfth.contains(&format!("barograph_scored_total{labels} 1.0\n")), "{twelfth}");
    assert!(twelfth.contains(&format!("barograph_outside_interval_total{labels} 1.0\n")), "{twelfth}");
    let failed = observe(13, Outcome::Failed { failure: Failure::TimedOut, after_s: 1.0 });
    assert!(!failed.contains("barograph_residual_seconds{"), "a failure is no value");
}
