//! Metrics of the station for `/metrics`, in the text format that the scraper prefers.
//!
//! The metric families are constants. At each request, samples are read from the series table in
//! one pass, so no value is stored twice.

mod text;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use barograph_engine::{Selector, TaskStatus};
use barograph_forecast::{
    Forecast, Horizon, HorizonBasis, HorizonOf, Interval, Name, Objective, Outcome, SeriesId,
};

use crate::echo::Counters;
use crate::forecast::series::{HORIZONS_S, SeriesState, SeriesTable, in_order};
use crate::forecast::series_reader::{for_each_state, for_few_states};
use crate::health::Health;
use crate::limits::Limit;
use crate::mesh::{BOUNDS_S, BulkTestMetrics, LatencyDistribution, MeshMetrics, ROLES, STATES};
use crate::sync::lock;
use barograph_limits::credentials::Credential;
use barograph_mesh::EarlyTestReason;

pub(crate) use text::Format;
use text::{Kind, Text};

/// Exported values of the series table.
pub(crate) struct SeriesTableSamples {
    series: Vec<(SeriesId, SeriesSample)>,
    refused: u64,
    late: u64,
}

/// Exported values of a series.
struct SeriesSample {
    gauges: [Option<f64>; GAUGES.len()],
    counters: [u64; COUNTERS.len()],
    is_refused: bool,
    /// Forecasts for [`HORIZONS_S`], if this station measures the series.
    ahead: Option<AheadSamples>,
    availability: Option<f64>,
}

/// Median forecast and ends of its interval, for each of [`HORIZONS_S`].
type AheadSamples = Box<[[Option<f64>; AHEAD.len()]; HORIZONS_S.len()]>;

impl SeriesTableSamples {
    /// Reads the series table of the station `host`. Locks the table for some series at a time, so
    /// that other threads can lock it in between.
    pub(crate) fn of(series_table: &Mutex<SeriesTable>, host: &Name) -> Self {
        let (mut names, refused, late) = {
            let series_table = lock(series_table);
            (series_table.names(&Selector::default()), series_table.refused(), series_table.late())
        };
        names.sort_unstable_by(in_order);
        let mut series = Vec::with_capacity(names.len());
        for_each_state(series_table, &names, |name, state| {
            series.push((name.clone(), SeriesSample::of(state)))
        });
        let own: Vec<SeriesId> = names.into_iter().filter(|name| name.source == *host).collect();
        let mut ahead: BTreeMap<SeriesId, AheadSamples> = BTreeMap::new();
        for_few_states(series_table, &own, |_, name, state| {
            ahead.insert(name.clone(), ahead_samples(state));
        });
        for (name, sample) in &mut series {
            sample.ahead = ahead.remove(name);
        }
        Self { series, refused, late }
    }
}

impl SeriesSample {
    fn of(state: &SeriesState) -> Self {
        Self {
            gauges: GAUGES.map(|(_, _, value)| value(state)),
            counters: COUNTERS.map(|(_, _, value)| value(state)),
            is_refused: state.is_refused(),
            ahead: None,
            availability: state.availability_over(Horizon::Steps(1)),
        }
    }
}

/// Forecasts of the mean up to each of [`HORIZONS_S`]; absent until the horizon has an interval.
fn ahead_samples(state: &SeriesState) -> AheadSamples {
    Box::new(HORIZONS_S.map(|seconds| {
        let (horizon, of) = (Horizon::Seconds(seconds), HorizonOf::Mean);
        let forecast = state.forecaster().forecast_over(horizon, of, Objective::Absolute);
        let interval = state.interval_over(horizon, of, Interval::DEFAULT_LEVEL);
        match forecast.zip(interval).filter(|(forecast, _)| forecast.basis == HorizonBasis::Own) {
            Some((forecast, (lower, upper))) => [Some(forecast.value), Some(lower), Some(upper)],
            None => [None; AHEAD.len()],
        }
    }))
}

/// All metrics of a station.
pub(crate) fn exposition(
    format: Format,
    table: &SeriesTableSamples,
    health: &Health,
    sessions: &Counters,
    peers: &MeshMetrics,
    tests: &BulkTestMetrics,
) -> String {
    let mut text = Text::new(format, 4096 + 2048 * table.series.len());
    let samples = &table.series;
    for (unit, suffix) in UNITS {
        let of_unit: Vec<_> =
            samples.iter().filter(|(series, _)| crate::unit(&series.quantity) == *unit).collect();
        if of_unit.is_empty() {
            continue;
        }
        for (gauge, (name, help, _)) in GAUGES.iter().enumerate() {
            let family = if suffix.is_empty() { (*name).to_string() } else { format!("{name}_{suffix}") };
            text.head(&family, Kind::Gauge, suffix, help);
            for (series, sample) in &of_unit {
                if let Some(value) = sample.gauges[gauge] {
                    text.sample(&family, &labels(series), value);
                }
            }
        }
        ahead(&mut text, suffix, &of_unit);
    }
    availability(&mut text, samples);
    refusals(&mut text, samples);
    counters(&mut text, samples);
    station(&mut text, table, health);
    tasks(&mut text, health);
    echo(&mut text, sessions);
    mesh(&mut text, peers);
    latencies(&mut text, &peers.latencies);
    bulk_tests(&mut text, tests);
    text.finish()
}

type Counter = (&'static str, &'static str, fn(&SeriesState) -> u64);
type Gauge = (&'static str, &'static str, fn(&SeriesState) -> Option<f64>);

/// Gauges of a series. Each gauge has one metric family for each unit.
const GAUGES: [Gauge; 7] = [
    ("barograph_measured", "The newest measurement; absent after a failure.", |state| {
        match state.last().outcome {
            Outcome::Value(value) => Some(value),
            Outcome::Failed { .. } => None,
        }
    }),
    ("barograph_forecast", "Median forecast of the next value, for least absolute error.", |state| {
        state.forecasts().map(|next| next.median.value)
    }),
    ("barograph_forecast_lower", "Lower end of the 90 % prediction interval.", |state| {
        state.interval(Interval::DEFAULT_LEVEL).map(|(lower, _)| lower)
    }),
    ("barograph_forecast_upper", "Upper end of the 90 % prediction interval.", |state| {
        state.interval(Interval::DEFAULT_LEVEL).map(|(_, upper)| upper)
    }),
    ("barograph_forecast_mae", "Mean absolute error of all median forecasts issued.", |state| {
        state.forecasts().map(|next| next.median).filter(Forecast::is_scored).map(|median| median.mae)
    }),
    (
        "barograph_forecast_recent_mae",
        "Mean absolute error of recent median forecasts (half-life 100 values).",
        |state| {
            state
                .forecasts()
                .map(|next| next.median)
                .filter(Forecast::is_scored)
                .map(|median| median.recent_mae)
        },
    ),
    (
        "barograph_residual",
        "The newest measurement minus the median forecast issued for it; absent after a failure.",
        SeriesState::last_error,
    ),
];

/// Units of quantities, and their suffixes in the names of metrics.
const UNITS: &[(&str, &str)] =
    &[("s", "seconds"), ("bit/s", "bits_per_second"), ("ratio", "ratio"), ("bytes", "bytes"), ("", "")];

/// Gauges of the forecasts for [`HORIZONS_S`]. Each gauge has one metric family for each unit.
const AHEAD: [(&str, &str); 3] = [
    ("barograph_forecast_ahead", "Median forecast of the mean of the values up to the horizon."),
    ("barograph_forecast_ahead_lower", "Lower end of its 90 % prediction interval."),
    ("barograph_forecast_ahead_upper", "Upper end of its 90 % prediction interval."),
];

/// Writes the forecasts further ahead of series that this station measures. A station that stores
/// the series of others would otherwise have a dozen samples more for each of them.
fn ahead(text: &mut Text, suffix: &str, of_unit: &[&(SeriesId, SeriesSample)]) {
    for (gauge, (name, help)) in AHEAD.iter().enumerate() {
        let family = if suffix.is_empty() { (*name).to_string() } else { format!("{name}_{suffix}") };
        text.head(&family, Kind::Gauge, suffix, help);
        for (series, sample) in of_unit {
            let Some(ahead) = &sample.ahead else { continue };
            let labels = labels(series);
            for (samples, seconds) in ahead.iter().zip(HORIZONS_S) {
                if let Some(value) = samples[gauge] {
                    let horizon = Horizon::Seconds(seconds);
                    let labels = format!("{},horizon=\"{horizon}\"}}", labels.trim_end_matches('}'));
                    text.sample(&family, &labels, value);
                }
            }
        }
    }
}

/// Writes the availability of series with failures.
fn availability(text: &mut Text, samples: &[(SeriesId, SeriesSample)]) {
    const NAME: &str = "barograph_availability_ratio";
    let help = "Probability that the next measurement gives a value; absent without failures.";
    text.head(NAME, Kind::Gauge, "ratio", help);
    for (series, sample) in samples {
        if let Some(availability) = sample.availability {
            text.sample(NAME, &labels(series), availability);
        }
    }
}

/// Writes, for each series of `connect`, whether the port of the target is closed.
fn refusals(text: &mut Text, samples: &[(SeriesId, SeriesSample)]) {
    const NAME: &str = "barograph_port_refused";
    let help = "1 = the newest connect was refused: the host answers, the port is closed.";
    text.head(NAME, Kind::Gauge, "", help);
    for (series, sample) in samples {
        if matches!(series.quantity.as_str(), "connect" | "connect_loaded") {
            text.sample(NAME, &labels(series), f64::from(u8::from(sample.is_refused)));
        }
    }
}

/// Counters of a series: one family for all units.
const COUNTERS: [Counter; 4] = [
    ("barograph_values", "Values learnt, with those replayed at the start.", SeriesState::count),
    ("barograph_failures", "Failed experiments, with those replayed at the start.", SeriesState::failures),
    (
        "barograph_scored",
        "Values for which a 90 % interval had been issued, since the start.",
        SeriesState::scored,
    ),
    (
        "barograph_outside_interval",
        "Of barograph_scored, the values outside that interval.",
        SeriesState::outside,
    ),
];

fn counters(text: &mut Text, samples: &[(SeriesId, SeriesSample)]) {
    for (counter, (family, help, _)) in COUNTERS.iter().enumerate() {
        text.head(family, Kind::Counter, "", help);
        for (series, sample) in samples {
            text.sample(&format!("{family}_total"), &labels(series), sample.counters[counter] as f64);
        }
    }
}

fn station(text: &mut Text, table: &SeriesTableSamples, health: &Health) {
    text.head("barograph_build", Kind::Info, "", "The version that runs.");
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    text.sample("barograph_build_info", &version, 1.0);
    let count = |atomic: &std::sync::atomic::AtomicU64| atomic.load(Ordering::Relaxed) as f64;
    let gauges = [
        ("barograph_uptime_seconds", "seconds", "Time since the start.", health.uptime().as_secs_f64()),
        ("barograph_series", "", "Series kept.", table.series.len() as f64),
        ("barograph_spool_records", "", "Records that wait for the archive.", count(&health.spool_records)),
        (
            "barograph_archive_up",
            "",
            "1 = the archive takes records.",
            f64::from(u8::from(health.archive_error().is_none())),
        ),
    ];
    for (family, unit, help, value) in gauges {
        text.head(family, Kind::Gauge, unit, help);
        text.sample(family, "", value);
    }
    let counters = [
        (
            "barograph_series_refused",
            "Measurements refused because there are too many series.",
            table.refused as f64,
        ),
        (
            "barograph_late_values",
            "Values that arrived after newer ones, and were not learnt.",
            table.late as f64,
        ),
        ("barograph_spool_dropped", "Records dropped before they were stored.", count(&health.spool_dropped)),
        (
            "barograph_inbox_dropped",
            "Measurements dropped because the recorder was too slow.",
            count(&health.inbox_dropped),
        ),
        (
            "barograph_probes_skipped",
            "Experiments skipped because all workers were busy.",
            count(&health.probes_skipped),
        ),
        (
            "barograph_requests_refused",
            "Requests refused because they were not authorised.",
            count(&health.requests_refused),
        ),
        (
            "barograph_connections_refused",
            "Connections refused because there were too many.",
            count(&health.connections_refused),
        ),
        (
            "barograph_connections_shed",
            "Connections without a request under way, closed to make room for others.",
            count(&health.connections_shed),
        ),
    ];
    for (family, help, value) in counters {
        text.head(family, Kind::Counter, "", help);
        text.sample(&format!("{family}_total"), "", value);
    }
    const WRONG: &str = "barograph_wrong_credentials";
    text.head(WRONG, Kind::Counter, "", "Requests with a wrong token, invitation or signature.");
    for credential in Credential::ALL {
        let labels = format!("{{kind=\"{}\"}}", credential.name());
        text.sample(&format!("{WRONG}_total"), &labels, health.wrong_count(credential) as f64);
    }
    const LIMITED: &str = "barograph_limit_refused";
    text.head(LIMITED, Kind::Counter, "", "Work refused because of a limit of the station.");
    let refusals = health.refusals();
    for limit in Limit::ALL {
        let labels = format!("{{limit=\"{}\"}}", limit.name());
        text.sample(&format!("{LIMITED}_total"), &labels, refusals.of(limit).count as f64);
    }
}

/// Metrics of long-lived tasks and threads.
fn tasks(text: &mut Text, health: &Health) {
    let tasks = health.tasks();
    let label = |task: &TaskStatus| format!("{{task=\"{}\"}}", task.name());
    text.head("barograph_task_up", Kind::Gauge, "", "1 = the task works, 0 = it has ended.");
    for task in &tasks {
        text.sample("barograph_task_up", &label(task), f64::from(u8::from(task.is_up())));
    }
    let panics: Vec<_> = tasks.iter().map(|task| (label(task), task.panics() as f64)).collect();
    text.counter("barograph_task_panics", "", "Panics of the task.", &panics);
}

/// Metrics of the station as a member of a mesh (docs/spec/mesh.md).
fn mesh(text: &mut Text, figures: &MeshMetrics) {
    let up = f64::from(u8::from(figures.is_connected));
    text.head(
        "barograph_mesh_directory_up",
        Kind::Gauge,
        "",
        "1 = the station is registered and watches its groups.",
    );
    text.sample("barograph_mesh_directory_up", "", up);
    text.head(
        "barograph_mesh_directory_read_only",
        Kind::Gauge,
        "",
        "1 = the directory can be read and takes no writes; no peer is lost meanwhile.",
    );
    text.sample("barograph_mesh_directory_read_only", "", f64::from(u8::from(figures.is_read_only)));
    text.head("barograph_mesh_peers", Kind::Gauge, "", "Stations in the directory, by state.");
    for (state, count) in figures.peers {
        text.sample("barograph_mesh_peers", &format!("{{state=\"{state}\"}}"), count as f64);
    }
    let dropped = [(String::new(), figures.hooks_dropped as f64)];
    text.counter(
        "barograph_mesh_hooks_dropped",
        "",
        "Events that were dropped on their way to a hook, or replaced by a newer one of their host.",
        &dropped,
    );
    if let Some(lag) = figures.archive_lag {
        const LAG: &str = "barograph_mesh_archive_lag";
        text.head(LAG, Kind::Gauge, "", "Messages of the NATS stream that this archive has not read yet.");
        text.sample(LAG, "", lag as f64);
    }
    let Some(spool) = &figures.spool else { return };
    text.head("barograph_mesh_spool_records", Kind::Gauge, "", "Records that wait for the mesh.");
    text.sample("barograph_mesh_spool_records", "", spool.records as f64);
    text.head("barograph_mesh_spool_paced", Kind::Gauge, "", "1 = the mesh limits the rate of forwarding.");
    text.sample("barograph_mesh_spool_paced", "", f64::from(u8::from(spool.is_throttled)));
    let counters = [
        ("forwarded", "Records that the mesh has acknowledged.", spool.forwarded),
        ("turned_away", "Appends refused because too many records wait.", spool.refused_full),
        ("refused", "Records that the mesh refused; they are only in this station's archive.", spool.refused),
        (
            "overtaken",
            "Records that the mesh may never get, because another station used their numbers under this one's name.",
            spool.conflicting,
        ),
    ];
    for (name, help, count) in counters {
        text.counter(&format!("barograph_mesh_{name}"), "", help, &[(String::new(), count as f64)]);
    }
}

/// Histograms of the latencies of exchanges with peers (docs/spec/mesh.md §1).
fn latencies(text: &mut Text, distributions: &[LatencyDistribution]) {
    const NAME: &str = "barograph_mesh_latency_seconds";
    text.head(
        NAME,
        Kind::Histogram,
        "seconds",
        "Latency of exchanges with peers, each from when it was due.",
    );
    for distribution in distributions {
        let labels = labels(&distribution.series);
        let of = labels.trim_end_matches('}');
        for (bound, count) in BOUNDS_S.iter().zip(distribution.at_most) {
            text.sample(&format!("{NAME}_bucket"), &format!("{of},le=\"{bound:?}\"}}"), count as f64);
        }
        text.sample(&format!("{NAME}_bucket"), &format!("{of},le=\"+Inf\"}}"), distribution.count as f64);
        text.sample(&format!("{NAME}_count"), &labels, distribution.count as f64);
        text.sample(&format!("{NAME}_sum"), &labels, distribution.sum_s);
    }
    let missed: Vec<_> = distributions
        .iter()
        .map(|distribution| (labels(&distribution.series), distribution.missed as f64))
        .collect();
    let help = "Exchanges with peers that were due and have no answer.";
    text.counter("barograph_mesh_latency_missed", "", help, &missed);
}

/// Metrics of bulk tests between this station and its peers (docs/spec/mesh.md §5).
fn bulk_tests(text: &mut Text, figures: &BulkTestMetrics) {
    let mut counts = Vec::new();
    for (role, row) in ROLES.iter().zip(figures.counts) {
        for (state, count) in STATES.iter().zip(row) {
            counts.push((format!("{{role=\"{role}\",result=\"{state}\"}}"), count as f64));
        }
    }
    text.counter("barograph_mesh_tests", "", "Bulk tests with peers, and those refused.", &counts);
    let turns = [
        ("{reason=\"refused\"}".to_string(), figures.skipped as f64),
        ("{reason=\"own\"}".to_string(), figures.deferred as f64),
    ];
    let help =
        "Turns skipped because every peer refused, or postponed because of this host's budget or transfer.";
    text.counter("barograph_mesh_turns_lost", "", help, &turns);
    let early = figures.early;
    let reasons = EarlyTestReason::ALL.iter().zip(early.tests);
    let tests: Vec<_> = reasons
        .map(|(reason, count)| (format!("{{reason=\"{}\"}}", reason.as_str()), count as f64))
        .collect();
    let help = "Bulk tests that a change of the path brought forward.";
    text.counter("barograph_mesh_early_tests", "", help, &tests);
    let trains = [
        ("{result=\"rate\"}".to_string(), early.trains as f64),
        ("{result=\"lost\"}".to_string(), early.trains_lost as f64),
    ];
    text.counter("barograph_mesh_trains", "", "Packet trains to peers, with or without a rate.", &trains);
    let ends = [("source", figures.spent.source), ("target", figures.spent.target)];
    let help = "Time of bulk tests with peers in the last hour.";
    text.head("barograph_mesh_budget_spent_seconds", Kind::Gauge, "seconds", help);
    for (role, cost) in ends {
        let labels = format!("{{role=\"{role}\"}}");
        text.sample("barograph_mesh_budget_spent_seconds", &labels, cost.duration.as_secs_f64());
    }
    let help = "Bytes of bulk tests with peers in the last hour.";
    text.head("barograph_mesh_budget_spent_bytes", Kind::Gauge, "bytes", help);
    for (role, cost) in ends {
        text.sample("barograph_mesh_budget_spent_bytes", &format!("{{role=\"{role}\"}}"), cost.bytes as f64);
    }
}

/// Metrics of the sessions of pages (docs/spec/echo.md).
fn echo(text: &mut Text, sessions: &Counters) {
    let count = |atomic: &std::sync::atomic::AtomicU64| atomic.load(Ordering::Relaxed) as f64;
    text.head("barograph_echo_sessions", Kind::Gauge, "", "Echo sessions that are open.");
    text.sample("barograph_echo_sessions", "", count(&sessions.sessions_open));
    let refused = [(String::new(), count(&sessions.sessions_refused))];
    text.counter("barograph_echo_refused", "", "Echo sessions refused.", &refused);
    let declined: Vec<_> = sessions
        .declined_by_reason()
        .map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count as f64))
        .collect();
    text.counter("barograph_echo_declined", "", "Requests of echo sessions declined.", &declined);
    let bytes = [
        ("{direction=\"received\"}".to_string(), count(&sessions.received_bytes)),
        ("{direction=\"sent\"}".to_string(), count(&sessions.sent_bytes)),
    ];
    text.counter("barograph_echo_bytes", "bytes", "Bytes of echo sessions.", &bytes);
    let reports = [
        ("{outcome=\"kept\"}".to_string(), count(&sessions.reports_kept)),
        ("{outcome=\"dropped\"}".to_string(), count(&sessions.reports_dropped)),
    ];
    text.counter("barograph_echo_reports", "", "Reports of pages on their measurements.", &reports);
}

fn labels(series: &SeriesId) -> String {
    format!(
        "{{quantity=\"{}\",source=\"{}\",target=\"{}\"}}",
        escaped(series.quantity.as_str()),
        escaped(series.source.as_str()),
        escaped(series.target.as_str())
    )
}

/// `\`, `"` and line feed are escaped in both formats.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
