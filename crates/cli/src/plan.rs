//! `barograph plan`: calculates how much time and how many bytes the tests of all pairs of a future
//! mesh need.

use std::process::ExitCode;
use std::time::Duration;

use barograph_mesh::{
    BudgetConfig, Cost, MeshSize, PlanConfig, PlanPrediction, PredictionError, SelectionPolicy, TurnLimit,
    predict,
};
use barograph_study::units::{format_bytes, parse_bytes};
use serde::Serialize;

use crate::exit::{bad_input, print_line};
use crate::probe::parse_timeout;

/// Arguments of `barograph plan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of hosts in the mesh
    #[arg(long, value_name = "N")]
    hosts: u32,
    /// Number of sites: the hosts of a site test each other, and one host of each site, its
    /// representative, tests the representatives of the other sites
    #[arg(long, value_name = "S", default_value_t = 1)]
    sites: u32,
    /// Minutes from one turn of a host to its next turn
    #[arg(long, value_name = "MIN", default_value = "5", value_parser = parse_minutes)]
    every: Duration,
    /// Seconds that a test takes: 5 for a full test, less if it stops once its rate has settled
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_timeout)]
    test_seconds: Duration,
    /// Rate of a test, in Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 100.0)]
    rate: f64,
    /// Maximum share of a host's time for tests, in percent; sent and received tests both count
    /// [default: 1]
    #[arg(long, value_name = "PERCENT")]
    share: Option<f64>,
    /// Maximum bytes that a host sends and receives in tests in an hour [default: 1250000000]
    #[arg(long, value_name = "B", value_parser = parse_bytes)]
    bytes_per_hour: Option<u64>,
    /// Plan and count as Gloperf did: each pair takes one turn for bandwidth and one turn for
    /// latency
    #[arg(long)]
    paper: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if !(args.rate.is_finite() && args.rate > 0.0) {
        return bad_input(format_args!("--rate: expected a finite rate above 0 Mbit/s, found {}", args.rate));
    }
    if let Some(share) = args.share.filter(|share| !(0.0 < *share && *share <= 100.0)) {
        return bad_input(format_args!("--share must be above 0 and at most 100 percent, found {share}"));
    }
    let config = config(args);
    let mesh_size = MeshSize { hosts: args.hosts, sites: args.sites };
    // The cast saturates.
    let bytes = (args.rate * 1e6 / 8.0 * args.test_seconds.as_secs_f64()) as u64;
    let asked = Cost { duration: args.test_seconds, bytes };
    let prediction = match predict(mesh_size, &config, asked) {
        Ok(prediction) => prediction,
        Err(PredictionError::Hosts(_)) => return bad_input("--hosts must be 2–1,000,000"),
        Err(error) => return bad_input(error),
    };
    if args.json {
        let json = PlanJson::new(mesh_size, &config, &prediction);
        print_line(serde_json::to_string(&json).expect("numbers and words are JSON"));
    } else {
        print_line(table(mesh_size, &config, &prediction, asked));
    }
    ExitCode::SUCCESS
}

fn config(args: &Args) -> PlanConfig {
    let base = if args.paper { PlanConfig::paper() } else { PlanConfig::default() };
    let budget = BudgetConfig {
        share: args.share.map_or(base.budget.share, |percent| percent / 100.0),
        bytes_per_hour: args.bytes_per_hour.unwrap_or(base.budget.bytes_per_hour),
        test_max: base.budget.test_max.max(args.test_seconds),
    };
    PlanConfig { every: args.every, budget, ..base }
}

/// The answer as a table of text.
fn table(mesh_size: MeshSize, config: &PlanConfig, prediction: &PlanPrediction, asked: Cost) -> String {
    let MeshSize { hosts, sites } = mesh_size;
    let mut lines = vec![
        match sites {
            1 => format!("{hosts} hosts, {} pairs (each direction counts)", prediction.pairs),
            _ => format!(
                "{hosts} hosts at {sites} sites, {} pairs (each direction counts): within sites, and between one host of each",
                prediction.pairs
            ),
        },
        order(config).to_owned(),
        limit(config, prediction),
        String::new(),
    ];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<36}{value}"));
    row("a turn of a host", span(prediction.turn));
    if prediction.peers > 0 {
        row("revisit of a pair", span(prediction.revisit));
    }
    if prediction.representative_peers > 0 {
        row("revisit by a site's representative", span(prediction.representative_revisit));
    }
    row("longest wait of any pair*", span(prediction.bound));
    let started = prediction.started;
    let (all_tests, all_bytes) = of_mesh(mesh_size, prediction, |tests, cost| (tests, cost.bytes as f64));
    row("tests a host starts", format!("{:.1} an hour", prediction.tests_per_hour));
    row(
        "their cost",
        format!("{} of time, {} an hour", share(prediction.share_started), format_bytes(started.bytes)),
    );
    row(
        "cost with those that peers start",
        format!(
            "{} of time, {} an hour",
            share(2.0 * prediction.share_started),
            format_bytes(2 * started.bytes)
        ),
    );
    if let Some(one) = prediction.representative.filter(|_| prediction.peers > 0) {
        row(
            "a site's representative starts",
            format!(
                "{:.1} an hour: {} of time, {} an hour",
                one.tests_per_hour,
                share(one.share_started),
                format_bytes(one.started.bytes)
            ),
        );
    }
    row("the whole mesh", format!("{all_tests:.0} tests, {} an hour", format_bytes(all_bytes as u64)));
    lines.push("* if no peer refuses; pairs wait longer while peers are out of budget or away".to_owned());
    let cap = config.budget.test_cap();
    if cap.bytes < asked.bytes {
        lines.push(format!(
            "Each test is stopped at {}, half of the budget of an hour.",
            format_bytes(cap.bytes)
        ));
    }
    lines.join("\n")
}

/// Adds up, over all ordinary hosts and representatives of the mesh, each of the two numbers that
/// `of` returns for one host.
fn of_mesh(
    mesh_size: MeshSize,
    prediction: &PlanPrediction,
    of: impl Fn(f64, Cost) -> (f64, f64),
) -> (f64, f64) {
    let one = prediction.representative;
    let representatives = one.map_or(0.0, |_| f64::from(mesh_size.sites));
    let (a, b) = of(prediction.tests_per_hour, prediction.started);
    let (c, d) = one.map_or((0.0, 0.0), |one| of(one.tests_per_hour, one.started));
    let ordinary = f64::from(mesh_size.hosts) - representatives;
    (ordinary * a + representatives * c, ordinary * b + representatives * d)
}

fn order(config: &PlanConfig) -> &'static str {
    match config.policy {
        SelectionPolicy::Paper => {
            "order: a randomized list; each pair takes two turns, one for bandwidth and one for latency, as Gloperf counts"
        }
        SelectionPolicy::Gain => {
            "order: by the gain of a test and the age of the last one; latency takes no turns"
        }
    }
}

/// Sentence about what limits the length of a turn.
fn limit(config: &PlanConfig, prediction: &PlanPrediction) -> String {
    let budget = config.budget;
    match (config.policy, prediction.limit) {
        (SelectionPolicy::Paper, _) => {
            let each = config.budget.test_max.as_secs_f64() / config.every.as_secs_f64();
            format!(
                "limited by turns, counted as in the paper: with full tests, a host would spend {} of its time on those it starts (budget: {} for both ends)",
                share(each),
                share(budget.share)
            )
        }
        (_, TurnLimit::Turns) => format!(
            "limited by turns: the budget ({} of time, {} an hour) has room for more",
            share(budget.share),
            format_bytes(budget.bytes_per_hour)
        ),
        (_, TurnLimit::Time) => format!(
            "limited by time: {} of it, {} an hour, for both ends of all tests; shorter tests allow more turns",
            share(budget.share),
            span(budget.per_hour().duration)
        ),
        (_, TurnLimit::Bytes) => format!(
            "limited by bytes: {} an hour, for both ends of all tests; shorter tests allow more turns",
            format_bytes(budget.bytes_per_hour)
        ),
    }
}

/// Formats a time with no more digits than the accuracy of a plan justifies.
fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0..=2 => format!("{seconds:.0} s"),
        3..=179 => format!("{minutes} min"),
        180..=2879 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

fn share(share: f64) -> String {
    format!("{:.2} %", 100.0 * share).replace(".00 %", " %")
}

/// The answer as JSON (docs/spec/plan.md).
#[derive(Serialize)]
struct PlanJson {
    hosts: u32,
    sites: u32,
    pairs: u64,
    policy: &'static str,
    limit: &'static str,
    turn_s: f64,
    revisit_s: Option<f64>,
    representative_revisit_s: Option<f64>,
    bound_s: f64,
    host: StartedJson,
    representative: Option<StartedJson>,
    mesh: StartedJson,
}

/// Tests that a host, or the whole mesh, starts in an hour: their number, seconds and bytes. A host
/// also takes part in the same number of tests that its peers start.
#[derive(Serialize)]
struct StartedJson {
    tests_per_hour: f64,
    seconds_per_hour: f64,
    bytes_per_hour: f64,
}

impl PlanJson {
    fn new(mesh_size: MeshSize, config: &PlanConfig, prediction: &PlanPrediction) -> Self {
        let started = |tests_per_hour: f64, cost: Cost| StartedJson {
            tests_per_hour,
            seconds_per_hour: cost.duration.as_secs_f64(),
            bytes_per_hour: cost.bytes as f64,
        };
        let (tests_per_hour, bytes_per_hour) =
            of_mesh(mesh_size, prediction, |tests, cost| (tests, cost.bytes as f64));
        let (_, seconds_per_hour) =
            of_mesh(mesh_size, prediction, |_, cost| (0.0, cost.duration.as_secs_f64()));
        Self {
            hosts: mesh_size.hosts,
            sites: mesh_size.sites,
            pairs: prediction.pairs,
            policy: match config.policy {
                SelectionPolicy::Paper => "paper",
                SelectionPolicy::Gain => "gain",
            },
            limit: match prediction.limit {
                TurnLimit::Turns => "turns",
                TurnLimit::Time => "time",
                TurnLimit::Bytes => "bytes",
            },
            turn_s: prediction.turn.as_secs_f64(),
            revisit_s: (prediction.peers > 0).then_some(prediction.revisit.as_secs_f64()),
            representative_revisit_s: (prediction.representative_peers > 0)
                .then_some(prediction.representative_revisit.as_secs_f64()),
            bound_s: prediction.bound.as_secs_f64(),
            host: started(prediction.tests_per_hour, prediction.started),
            representative: prediction.representative.map(|one| started(one.tests_per_hour, one.started)),
            mesh: StartedJson { tests_per_hour, seconds_per_hour, bytes_per_hour },
        }
    }
}

fn parse_minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        // The plan accepts intervals from one second to one day.
        Ok(minutes) if (1.0 / 60.0..=1440.0).contains(&minutes) => {
            Ok(Duration::from_secs_f64(60.0 * minutes))
        }
        _ => Err("expected minutes from 0.017 to 1440".into()),
    }
}

const EXAMPLES: &str = "Examples:
  barograph plan --hosts 20
  barograph plan --hosts 60 --sites 3 --test-seconds 0.5";
