//! `/metrics` in the OpenMetrics text format, version 1.0.0 (openmetrics.io; RFC draft-richih-opsawg-openmetrics-00).
//!
//! A small writer: families are known at compile time, and the samples come from the bank in one pass,
//! so that nothing has to be kept twice.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use barograph_engine::Selector;
use barograph_forecast::{Forecast, Outcome, Series};

use crate::bank::{Account, Bank};
use crate::echo::Counters;
use crate::health::Health;
use crate::mesh::{BOUNDS_S, Figures, ROLES, STATES, Spread, TestFigures};

/// As the specification says it (§"Overall Structure").
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a station.
pub(crate) fn exposition(
    bank: &Bank,
    health: &Health,
    sessions: &Counters,
    peers: &Figures,
    tests: &TestFigures,
) -> String {
    let mut text = String::with_capacity(4096 + 1024 * bank.len());
    let accounts = bank.select(&Selector::default());
    for (unit, suffix) in UNITS {
        let of_unit: Vec<_> =
            accounts.iter().filter(|(series, _)| crate::unit(&series.quantity) == *unit).collect();
        if of_unit.is_empty() {
            continue;
        }
        for (name, help, value) in GAUGES {
            let family = if suffix.is_empty() { (*name).to_string() } else { format!("{name}_{suffix}") };
            head(&mut text, &family, "gauge", suffix, help);
            for (series, account) in &of_unit {
                if let Some(value) = value(account) {
                    sample(&mut text, &family, &labels(series), value);
                }
            }
        }
    }
    counters(&mut text, &accounts);
    station(&mut text, bank, health);
    echo(&mut text, sessions);
    mesh(&mut text, peers);
    latencies(&mut text, &peers.latencies);
    tests_of_peers(&mut text, tests);
    text.push_str("# EOF\n");
    text
}

type Counter = (&'static str, &'static str, fn(&Account) -> u64);
type Gauge = (&'static str, &'static str, fn(&Account) -> Option<f64>);

/// One family for each of these and each unit.
const GAUGES: &[Gauge] = &[
    ("barograph_measured", "The newest measurement; absent after a failure.", |account| {
        match account.last().outcome {
            Outcome::Value(value) => Some(value),
            Outcome::Failed { .. } => None,
        }
    }),
    ("barograph_forecast", "Forecast of the next value, for least absolute error.", |account| {
        account.next().map(|next| next.median.value)
    }),
    ("barograph_forecast_lower", "Lower end of the 90 % prediction interval.", |account| {
        account.interval(0.9).map(|(lower, _)| lower)
    }),
    ("barograph_forecast_upper", "Upper end of the 90 % prediction interval.", |account| {
        account.interval(0.9).map(|(_, upper)| upper)
    }),
    ("barograph_forecast_mae", "Mean absolute error of all forecasts issued.", |account| {
        account.next().map(|next| next.median).filter(Forecast::is_scored).map(|median| median.mae)
    }),
    (
        "barograph_forecast_recent_mae",
        "Mean absolute error of recent forecasts (half-life 100 values).",
        |account| {
            account.next().map(|next| next.median).filter(Forecast::is_scored).map(|median| median.recent_mae)
        },
    ),
    (
        "barograph_residual",
        "The newest measurement minus the forecast that had been issued for it; absent after a failure.",
        Account::residual,
    ),
];

/// Units of the vocabulary, and how a metric's name says them.
const UNITS: &[(&str, &str)] =
    &[("s", "seconds"), ("bit/s", "bits_per_second"), ("ratio", "ratio"), ("bytes", "bytes"), ("", "")];

fn counters(text: &mut String, accounts: &[(&Series, &Account)]) {
    let families: [Counter; 4] = [
        ("barograph_values", "Values learnt, with those replayed at the start.", Account::count),
        ("barograph_failures", "Failed experiments, with those replayed at the start.", Account::failures),
        (
            "barograph_scored",
            "Values for which a 90 % interval had been issued, since the start.",
            Account::scored,
        ),
        (
            "barograph_outside_interval",
            "Of barograph_scored, the values outside that interval.",
            Account::outside,
        ),
    ];
    for (family, help, value) in families {
        head(text, family, "counter", "", help);
        for (series, account) in accounts {
            sample(text, &format!("{family}_total"), &labels(series), value(account) as f64);
        }
    }
}

fn station(text: &mut String, bank: &Bank, health: &Health) {
    head(text, "barograph_build", "info", "", "The version that runs.");
    let _ = writeln!(text, "barograph_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    let count = |atomic: &std::sync::atomic::AtomicU64| atomic.load(Ordering::Relaxed) as f64;
    let gauges = [
        ("barograph_uptime_seconds", "seconds", "Time since the start.", health.uptime().as_secs_f64()),
        ("barograph_series", "", "Series kept.", bank.len() as f64),
        ("barograph_spool_records", "", "Records that wait for the archive.", count(&health.spool_records)),
        (
            "barograph_archive_up",
            "",
            "1 = the archive takes records.",
            f64::from(u8::from(health.archive_error().is_none())),
        ),
    ];
    for (family, unit, help, value) in gauges {
        head(text, family, "gauge", unit, help);
        sample(text, family, "", value);
    }
    let counters = [
        (
            "barograph_series_refused",
            "Measurements refused because there are too many series.",
            bank.refused() as f64,
        ),
        (
            "barograph_late_values",
            "Values that came later than newer ones, and were not learnt.",
            bank.late() as f64,
        ),
        ("barograph_spool_dropped", "Records dropped before they were stored.", count(&health.spool_dropped)),
        (
            "barograph_inbox_dropped",
            "Measurements dropped because the recorder was behind.",
            count(&health.inbox_dropped),
        ),
        (
            "barograph_probes_skipped",
            "Experiments skipped for want of a worker.",
            count(&health.probes_skipped),
        ),
        (
            "barograph_requests_refused",
            "Requests refused for want of authority.",
            count(&health.requests_refused),
        ),
        (
            "barograph_connections_refused",
            "Connections refused because there were too many.",
            count(&health.connections_refused),
        ),
    ];
    for (family, help, value) in counters {
        head(text, family, "counter", "", help);
        sample(text, &format!("{family}_total"), "", value);
    }
}

/// The station's part in a mesh (docs/spec/mesh.md).
fn mesh(text: &mut String, figures: &Figures) {
    let up = f64::from(u8::from(figures.is_connected));
    head(
        text,
        "barograph_mesh_directory_up",
        "gauge",
        "",
        "1 = the station is registered and hears of its groups.",
    );
    sample(text, "barograph_mesh_directory_up", "", up);
    head(text, "barograph_mesh_peers", "gauge", "", "Stations that the directory told of.");
    for (state, count) in figures.peers {
        sample(text, "barograph_mesh_peers", &format!("{{state=\"{state}\"}}"), count as f64);
    }
    let dropped = [(String::new(), figures.hooks_dropped as f64)];
    family(
        text,
        "barograph_mesh_hooks_dropped",
        "",
        "Events that found no room on their way to a hook.",
        &dropped,
    );
    let Some(spool) = &figures.spool else { return };
    head(text, "barograph_mesh_spool_records", "gauge", "", "Records that wait for the mesh.");
    sample(text, "barograph_mesh_spool_records", "", spool.records as f64);
    head(text, "barograph_mesh_spool_paced", "gauge", "", "1 = they go at the pace that the mesh asks for.");
    sample(text, "barograph_mesh_spool_paced", "", f64::from(u8::from(spool.is_paced)));
    let counters = [
        ("forwarded", "Records that the mesh has acknowledged.", spool.forwarded),
        ("turned_away", "Appends refused because too many records wait.", spool.turned_away),
        (
            "refused",
            "Records that the mesh does not take; they stay in the archive here alone.",
            spool.refused,
        ),
        (
            "overtaken",
            "Records that the mesh may never get, because another station used their numbers under this one's name.",
            spool.overtaken,
        ),
    ];
    for (name, help, count) in counters {
        family(text, &format!("barograph_mesh_{name}"), "", help, &[(String::new(), count as f64)]);
    }
}

/// How the latencies of exchanges with peers are spread (docs/spec/mesh.md §1).
fn latencies(text: &mut String, spreads: &[Spread]) {
    const NAME: &str = "barograph_mesh_latency_seconds";
    head(text, NAME, "histogram", "seconds", "Latency of exchanges with peers, each from when it was due.");
    for spread in spreads {
        let labels = labels(&spread.series);
        let of = labels.trim_end_matches('}');
        for (bound, count) in BOUNDS_S.iter().zip(spread.at_most) {
            sample(text, &format!("{NAME}_bucket"), &format!("{of},le=\"{bound:?}\"}}"), count as f64);
        }
        sample(text, &format!("{NAME}_bucket"), &format!("{of},le=\"+Inf\"}}"), spread.count as f64);
        sample(text, &format!("{NAME}_count"), &labels, spread.count as f64);
        sample(text, &format!("{NAME}_sum"), &labels, spread.sum_s);
    }
    let missed: Vec<_> =
        spreads.iter().map(|spread| (labels(&spread.series), spread.missed as f64)).collect();
    let help = "Exchanges with peers that were due and have no answer.";
    family(text, "barograph_mesh_latency_missed", "", help, &missed);
}

/// Bulk tests between this station and its peers (docs/spec/mesh.md §5).
fn tests_of_peers(text: &mut String, figures: &TestFigures) {
    let mut counts = Vec::new();
    for (role, row) in ROLES.iter().zip(figures.counts) {
        for (state, count) in STATES.iter().zip(row) {
            counts.push((format!("{{role=\"{role}\",result=\"{state}\"}}"), count as f64));
        }
    }
    family(text, "barograph_mesh_tests", "", "Bulk tests with peers, and those refused.", &counts);
    let turns = [
        ("{reason=\"refused\"}".to_string(), figures.skipped as f64),
        ("{reason=\"own\"}".to_string(), figures.deferred as f64),
    ];
    let help =
        "Turns skipped because all peers asked refused, or put off for this host's own budget or transfer.";
    family(text, "barograph_mesh_turns_lost", "", help, &turns);
    let ends = [("source", figures.spent.source), ("target", figures.spent.target)];
    let help = "What bulk tests with peers took of the last hour.";
    head(text, "barograph_mesh_budget_spent_seconds", "gauge", "seconds", help);
    for (role, cost) in ends {
        let labels = format!("{{role=\"{role}\"}}");
        sample(text, "barograph_mesh_budget_spent_seconds", &labels, cost.duration.as_secs_f64());
    }
    let help = "What bulk tests with peers moved in the last hour.";
    head(text, "barograph_mesh_budget_spent_bytes", "gauge", "bytes", help);
    for (role, cost) in ends {
        sample(text, "barograph_mesh_budget_spent_bytes", &format!("{{role=\"{role}\"}}"), cost.bytes as f64);
    }
}

/// Sessions of pages (docs/spec/echo.md).
fn echo(text: &mut String, sessions: &Counters) {
    let count = |atomic: &std::sync::atomic::AtomicU64| atomic.load(Ordering::Relaxed) as f64;
    head(text, "barograph_echo_sessions", "gauge", "", "Echo sessions that are open.");
    sample(text, "barograph_echo_sessions", "", count(&sessions.sessions_open));
    let refused = [(String::new(), count(&sessions.sessions_refused))];
    family(text, "barograph_echo_refused", "", "Echo sessions refused.", &refused);
    let declined: Vec<_> = sessions
        .declined_by_reason()
        .map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count as f64))
        .collect();
    family(text, "barograph_echo_declined", "", "Requests of echo sessions declined.", &declined);
    let bytes = [
        ("{direction=\"received\"}".to_string(), count(&sessions.received_bytes)),
        ("{direction=\"sent\"}".to_string(), count(&sessions.sent_bytes)),
    ];
    family(text, "barograph_echo_bytes", "bytes", "Bytes of echo sessions.", &bytes);
    let reports = [
        ("{outcome=\"kept\"}".to_string(), count(&sessions.reports_kept)),
        ("{outcome=\"dropped\"}".to_string(), count(&sessions.reports_dropped)),
    ];
    family(text, "barograph_echo_reports", "", "What pages reported of their measurements.", &reports);
}

/// A counter with a sample for each of `labelled`.
fn family(text: &mut String, name: &str, unit: &str, help: &str, labelled: &[(String, f64)]) {
    head(text, name, "counter", unit, help);
    for (labels, value) in labelled {
        sample(text, &format!("{name}_total"), labels, *value);
    }
}

fn head(text: &mut String, family: &str, kind: &str, unit: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# TYPE {family} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {family} {unit}");
    }
    let _ = writeln!(text, "# HELP {family} {help}");
}

fn sample(text: &mut String, name: &str, labels: &str, value: f64) {
    // Rust prints the shortest decimal that reads back as the same number.
    let _ = writeln!(text, "{name}{labels} {value:?}");
}

fn labels(series: &Series) -> String {
    format!(
        "{{quantity=\"{}\",source=\"{}\",target=\"{}\"}}",
        escaped(series.quantity.as_str()),
        escaped(series.source.as_str()),
        escaped(series.target.as_str())
    )
}

/// `\`, `"` and line feed are escaped (ABNF `escaped-string`).
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bank::Measured;
    use barograph_forecast::{Failure, Name, Quantity};

    fn bank() -> Bank {
        let mut bank = Bank::new(10);
        let mut observe = |target: &str, quantity: &str, outcome| {
            let series = Series {
                source: Name::new("here").unwrap(),
                target: Name::new(target).unwrap(),
                quantity: Quantity::new(quantity).unwrap(),
            };
            bank.observe(&Measured { series, time_unix_ns: 1, outcome, detail: String::new() });
        };
        observe("a\"b\\c", "rtt", Outcome::Value(0.25));
        observe("a", "connect", Outcome::Failed { failure: Failure::Refused, after_s: 0.1 });
        observe("x", "queue_length", Outcome::Value(7.0));
        observe("x", "rtt_loaded", Outcome::Value(1e-9));
        bank
    }

    fn figures() -> Figures {
        let spool = Some(crate::mesh::Spool {
            records: 3,
            forwarded: 4,
            refused: 5,
            overtaken: 6,
            ..Default::default()
        });
        let latencies = crate::mesh::Latencies::default();
        let now = std::time::Instant::now();
        latencies.add(&Name::new("x\"y").unwrap(), true, &[0.01, 0.5], 3, now);
        Figures {
            latencies: latencies.spreads(&Name::new("here").unwrap(), now),
            is_connected: true,
            peers: [("up", 2), ("lost", 1), ("ignored", 0)],
            hooks_dropped: 0,
            spool,
        }
    }

    #[test]
    fn what_a_mesh_refused_and_what_another_overtook_is_told() {
        let mut text = String::new();
        mesh(&mut text, &figures());
        for line in [
            "barograph_mesh_spool_records 3.0\n",
            "barograph_mesh_spool_paced 0.0\n",
            "barograph_mesh_forwarded_total 4.0\n",
            "barograph_mesh_refused_total 5.0\n",
            "barograph_mesh_overtaken_total 6.0\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn every_line_parses_and_families_stay_together() {
        let text =
            exposition(&bank(), &Health::new(), &Counters::default(), &figures(), &TestFigures::default());
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
        let text =
            exposition(&bank(), &Health::new(), &Counters::default(), &figures(), &TestFigures::default());
        let line = r#"barograph_measured_seconds{quantity="rtt",source="here",target="a\"b\\c"} 0.25"#;
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("barograph_measured_seconds{quantity=\"connect\""));
        assert!(
            text.contains("barograph_failures_total{quantity=\"connect\",source=\"here\",target=\"a\"} 1.0")
        );
        assert!(text.contains("barograph_measured{quantity=\"queue_length\""));
        assert!(text.contains("barograph_measured_seconds{quantity=\"rtt_loaded\""));
    }

    /// The metrics that a text speaks of: its words that begin with our name and end like one of a metric.
    fn named(text: &str) -> std::collections::BTreeSet<&str> {
        let word = |c: char| !(c.is_ascii_lowercase() || c == '_');
        text.split(word).filter(|word| word.starts_with("barograph_")).collect()
    }

    #[test]
    fn dashboard_and_rules_name_only_metrics_there_are() {
        let mut bank = bank();
        for (quantity, values) in [("rtt", [0.1, 0.2]), ("loss", [0.0, 0.1]), ("goodput", [1e6, 2e6])] {
            let [source, target] = ["a", "b"].map(|name| Name::new(name).unwrap());
            let series = Series { source, target, quantity: Quantity::new(quantity).unwrap() };
            for (time_unix_ns, value) in (0..6).zip(values.into_iter().cycle()) {
                let outcome = Outcome::Value(value);
                bank.observe(&Measured {
                    series: series.clone(),
                    time_unix_ns,
                    outcome,
                    detail: String::new(),
                });
            }
        }
        let text =
            exposition(&bank, &Health::new(), &Counters::default(), &figures(), &TestFigures::default());
        let samples: std::collections::BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(['{', ' ']).next().unwrap())
            .collect();
        for file in ["grafana/dashboard.json", "prometheus/rules.yml", "prometheus/rules_test.yml"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
            let contents = std::fs::read_to_string(&path).unwrap();
            let names = named(&contents);
            assert!(4 <= names.len(), "{file} names {names:?}");
            let unknown: Vec<_> = names.difference(&samples).collect();
            assert!(unknown.is_empty(), "{file} names {unknown:?}; there are {samples:?}");
            if file.ends_with("json") {
                serde_json::from_str::<serde_json::Value>(&contents).unwrap();
            }
        }
    }

    #[test]
    fn residuals_are_those_of_the_forecast_that_was_issued() {
        let mut bank = Bank::new(1);
        let [source, target] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let series = Series { source, target, quantity: Quantity::RTT };
        let mut observe = |time_unix_ns, outcome| {
            bank.observe(&Measured { series: series.clone(), time_unix_ns, outcome, detail: String::new() });
            exposition(&bank, &Health::new(), &Counters::default(), &figures(), &TestFigures::default())
        };
        let labels = "{quantity=\"rtt\",source=\"a\",target=\"b\"}";
        observe(1, Outcome::Value(0.25));
        let second = observe(2, Outcome::Value(0.75));
        assert!(second.contains(&format!("barograph_residual_seconds{labels} 0.5\n")), "{second}");
        assert!(second.contains(&format!("barograph_scored_total{labels} 0.0\n")), "no error was known yet");
        let third = observe(3, Outcome::Value(90.0));
        assert!(third.contains(&format!("barograph_scored_total{labels} 1.0\n")), "{third}");
        assert!(third.contains(&format!("barograph_outside_interval_total{labels} 1.0\n")), "{third}");
        let failed = observe(4, Outcome::Failed { failure: Failure::TimedOut, after_s: 1.0 });
        assert!(!failed.contains("barograph_residual_seconds{"), "a failure is no value");
    }
}
