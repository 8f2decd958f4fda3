//! `barograph probe`: measures a target once, and prints the results.

mod from;
mod stream;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use barograph_forecast::Quantity;
use barograph_probe::io::{CancellationToken, ProbeContext, ProbeProgress, run_one};
use barograph_probe::{Experiment, MeasuredValue, Plan, ProbeError, QuantityResult, Target, TcpInfo};
use barograph_station::detail::TcpInfoJson;
use barograph_station::signals;
use barograph_station::target::ExperimentKind;
use barograph_study::units::{format_bit_rate, format_seconds};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::{self, bad_input, eprint_line, failed, print_line};

/// Arguments of `barograph probe`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Target to measure: host:port, [v6]:port, http://… or https://…
    target: String,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Quantities to measure, with commas [default: all that the target supports]; may be repeated
    #[arg(long, value_name = "Q", value_delimiter = ',')]
    quantity: Vec<String>,
    /// Bytes of each transfer, such as 65536, 64k or 16M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_bytes)]
    bytes: u64,
    /// Number of exchanges, handshakes or datagrams of each experiment [default: 11 for rtt and
    /// rtt_tls, 3 for rtt_nagle and connect, 10 for loss and rtt_udp]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: Option<u32>,
    /// Longest time of each experiment, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = parse_timeout)]
    timeout: Duration,
    /// API token of the other station; needed unless it runs on this host
    #[arg(long, value_name = "TOKEN", env = "BAROGRAPH_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Let this station (host, host:port or URL) run a bulk test to TARGET, the name of a peer of
    /// its mesh, within the budgets of both ends
    #[arg(long, value_name = "STATION", group = "bulk", conflicts_with_all = ["quantity", "count", "bytes", "stream", "timeout"])]
    from: Option<String>,
    #[command(flatten)]
    bulk: from::BulkArgs,
    #[command(flatten)]
    stream: stream::StreamArgs,
}

const AFTER_HELP: &str = "\
Exit codes: 0 all quantities were measured, 1 at least one was not, 2 the command is wrong.
A host that refuses the connection has answered: `connect` is measured (exit code 0); quantities that need a \
service at that port (response_time, rtt, goodput …) fail (exit code 1).

Examples:
  barograph probe https://example.com/
  barograph probe localhost:10132 --quantity rtt,loss --json";

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(station) = &args.from {
        return exit::code(from::run(args, station));
    }
    let target = match Target::parse(&args.target) {
        Ok(target) => target,
        Err(error) => return bad_input(error),
    };
    let wanted = match kinds(&args.quantity) {
        Ok(wanted) => wanted,
        Err(message) => return bad_input(message),
    };
    let cancel = CancellationToken::default();
    if let Err(error) = stop_on_signal(cancel.clone()) {
        return failed(format!("cannot handle signals: {error}"));
    }
    let bar = Arc::new(Mutex::new(None));
    let mut context = ProbeContext {
        deadline: args.timeout,
        token: args.token.clone(),
        cancel: cancel.clone(),
        progress: std::io::stderr().is_terminal().then(|| progress(Arc::clone(&bar))),
        ..ProbeContext::default()
    };
    if let Some(plan) = args.stream.plan() {
        return stream::run(args, &plan, &target, &context);
    }
    let experiments = match plan(args, &target, &wanted, &context) {
        Ok(experiments) => experiments,
        Err(reading) => {
            show(args, &reading);
            return ExitCode::from(1);
        }
    };
    let mut any_failed = false;
    for experiment in experiments {
        let readings = run_one(&target, experiment, &context);
        if let Some(bar) = bar.lock().ok().and_then(|mut bar| bar.take()) {
            ProgressBar::finish_and_clear(&bar);
        }
        for reading in &readings {
            if cancel.is_cancelled() {
                eprint_line("stopped");
                return ExitCode::from(1);
            }
            if !args.quantity.is_empty()
                && !args.quantity.iter().any(|word| word == reading.quantity.as_str())
            {
                continue;
            }
            any_failed |= reading.result.is_err();
            if let (Ok(measured), true) = (&reading.result, reading.quantity == Quantity::RTT) {
                // JavaNws §2.1.1: the expected round-trip time corrects the time of a transfer.
                context.rtt_forecast_s = Some(measured.value);
            }
            if !show(args, reading) {
                return ExitCode::from(1);
            }
        }
    }
    if any_failed { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

/// Returns the experiments to run: the experiments for `--quantity`, else all experiments that the
/// target reports as supported.
fn plan(
    args: &Args,
    target: &Target,
    wanted: &[ExperimentKind],
    context: &ProbeContext,
) -> Result<Vec<Experiment>, Box<QuantityResult>> {
    let experiments = if wanted.is_empty() {
        barograph_probe::io::plan(target, args.bytes, context)?.experiments
    } else {
        wanted.iter().map(|kind| kind.experiment(args.bytes)).collect()
    };
    // This command makes more handshakes than a station makes in one period.
    let with_cli_count = |experiment| match experiment {
        Experiment::Connect { .. } => Experiment::Connect { n: Plan::HANDSHAKES },
        other => other,
    };
    let experiments = experiments.into_iter().map(with_cli_count);
    Ok(experiments.map(|experiment| with_count(experiment, args.count)).collect())
}

fn with_count(experiment: Experiment, count: Option<u32>) -> Experiment {
    let Some(count) = count else { return experiment };
    match experiment {
        Experiment::Rtt { .. } => Experiment::Rtt { n: count },
        Experiment::RttTls { .. } => Experiment::RttTls { n: count },
        Experiment::RttNagle { .. } => Experiment::RttNagle { n: count },
        Experiment::Loss { .. } => Experiment::Loss { n: count },
        Experiment::Connect { .. } => Experiment::Connect { n: count },
        Experiment::Goodput { .. } | Experiment::ResponseTime => experiment,
    }
}

fn kinds(words: &[String]) -> Result<Vec<ExperimentKind>, String> {
    let gives = |kind: &ExperimentKind, word: &str| {
        kind.quantities().iter().any(|quantity| quantity.as_str() == word)
    };
    for word in words {
        if !ExperimentKind::ALL.iter().any(|kind| gives(kind, word)) {
            let all: Vec<&str> =
                ExperimentKind::ALL.iter().flat_map(|kind| kind.quantities()).map(Quantity::as_str).collect();
            return Err(format!("`{word}` is not a quantity of targets; expected one of {}", all.join(", ")));
        }
    }
    Ok(ExperimentKind::ALL.into_iter().filter(|kind| words.iter().any(|word| gives(kind, word))).collect())
}

fn stop_on_signal(cancel: CancellationToken) -> std::io::Result<()> {
    let signals = signals::listen()?;
    std::thread::spawn(move || {
        if signals.recv().is_ok() {
            cancel.cancel();
        }
        // The next signal ends the process at once.
        if signals.recv().is_ok() {
            std::process::exit(1);
        }
    });
    Ok(())
}

fn progress(bar: Arc<Mutex<Option<ProgressBar>>>) -> barograph_probe::io::ProgressFn {
    Arc::new(move |progress: ProbeProgress| {
        let Ok(mut bar) = bar.lock() else { return };
        let bar = bar.get_or_insert_with(|| {
            let style = "{msg:<12} [{bar:32}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            let bar = ProgressBar::new(progress.bytes_total);
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(progress.experiment.quantities()[0].to_string());
            bar
        });
        bar.set_position(progress.bytes);
    })
}

#[derive(Serialize)]
struct MeasuredJson<'a> {
    /// Time at which the measurement ended (seconds since 1970). With this time, lines of several
    /// runs form a series.
    time_s: f64,
    quantity: &'a str,
    target: &'a str,
    value: f64,
    unit: &'static str,
    n: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<f64>,
    tcp_info: Option<TcpInfoJson<'a>>,
    /// This key is present only if its value is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<bool>,
}

#[derive(Serialize)]
struct FailedJson<'a> {
    /// Time at which the measurement failed (seconds since 1970). With this time, lines of several
    /// runs form a series.
    time_s: f64,
    quantity: &'a str,
    target: &'a str,
    error: &'static str,
    after_s: f64,
    message: &'a str,
}

/// Prints a measurement; returns false if the reader of standard output is gone.
fn show(args: &Args, reading: &QuantityResult) -> bool {
    let quantity = reading.quantity.as_str();
    let target = args.target.as_str();
    if args.json {
        let time_s = now_s();
        let line = match &reading.result {
            Ok(MeasuredValue { value, n, raw, tcp_info, refused, .. }) => {
                serde_json::to_string(&MeasuredJson {
                    time_s,
                    quantity,
                    target,
                    value: *value,
                    unit: reading.quantity.unit(),
                    n: *n,
                    raw: *raw,
                    tcp_info: tcp_info.as_ref().map(TcpInfoJson::from),
                    refused: refused.then_some(true),
                })
            }
            Err(ProbeError { failure, after_s, message, .. }) => serde_json::to_string(&FailedJson {
                time_s,
                quantity,
                target,
                error: failure.as_str(),
                after_s: *after_s,
                message,
            }),
        };
        return print_line(line.unwrap_or_default());
    }
    match &reading.result {
        Ok(measured) => print_line(format_args!(
            "{quantity:<14} {:>14}   {}",
            scaled(measured.value, reading.quantity.unit()),
            circumstances(measured, reading.quantity.unit())
        )),
        Err(error) => print_line(format_args!("{quantity:<14} {:>14}   {error}", error.failure.as_str())),
    }
}

/// Details that are printed beside a value.
fn circumstances(measured: &MeasuredValue, unit: &str) -> String {
    let mut parts = vec![format!("n {}", measured.n)];
    if let (Some(least), Some(most)) =
        (measured.samples.iter().copied().reduce(f64::min), measured.samples.iter().copied().reduce(f64::max))
        && measured.samples.len() > 1
    {
        parts.push(format!("{} to {}", scaled(least, unit), scaled(most, unit)));
    }
    if let Some(raw) = measured.raw {
        parts.push(format!("{} uncorrected", scaled(raw, unit)));
    }
    if let Some(info) = &measured.tcp_info {
        parts.extend(tcp_info_parts(info));
    }
    let parts = parts.join(", ");
    if measured.refused {
        let answered = scaled(measured.value, unit);
        return format!("refused in {answered}: the host answers, the port is closed; {parts}");
    }
    parts
}

fn tcp_info_parts(info: &TcpInfo) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(info.min_rtt_s.map(|rtt| format!("min RTT {}", scaled(rtt, "s"))));
    parts.push(format!("{} retransmitted", info.total_retrans));
    parts.extend(info.congestion.clone());
    parts.extend(info.limited_by.map(|limit| format!("limited by {limit}")));
    parts
}

/// A value with three digits and a unit that suits its size.
fn scaled(value: f64, unit: &str) -> String {
    match unit {
        "s" => format_seconds(value),
        "bit/s" => format_bit_rate(value),
        "ratio" => format!("{:.1} %", value * 100.0),
        _ => format!("{value} {unit}"),
    }
}

/// Seconds since 1970. A clock before 1970 gives 0 and no error, because the measured values are
/// still right.
pub(crate) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Parses a number of bytes; k, M and G are powers of 1024.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    match bytes {
        Some(bytes @ 1..) => Ok(bytes),
        _ => Err("expected a number of bytes such as 65536, 64k or 16M".into()),
    }
}

/// Parses seconds from 0.001 to 3600.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds from 0.001 to 3600".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_scaled_to_their_size() {
        for (value, unit, shown) in [
            (0.0421, "s", "42.1 ms"),
            (1.5, "s", "1.50 s"),
            (0.000_004_2, "s", "4.20 µs"),
            (0.0, "s", "0.00 ns"),
            (934_000_000.0, "bit/s", "934 Mbit/s"),
            (0.1, "ratio", "10.0 %"),
        ] {
            assert_eq!(scaled(value, unit), shown);
        }
    }

    #[test]
    fn bytes_have_suffixes_and_bounds() {
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("16M"), Ok(16 << 20));
        for bad in ["", "0", "k", "-1", "1.5M", "99999999999999999999", "99999999999G", "64µ"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quantities_choose_experiments_once() {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(kinds(&words(&["loss", "rtt_udp"])), Ok(vec![ExperimentKind::Loss]));
        assert!(kinds(&words(&["memory_free"])).is_err());
    }
}
