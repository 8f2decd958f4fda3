//! `barograph probe TARGET --stream`: a timed bulk test.

use std::process::ExitCode;

use barograph_probe::io::{ProbeContext, stream};
use barograph_probe::stream::{EarlyStopPolicy, StreamEnd};
use barograph_probe::{ProbeError, StreamPlan, StreamResult, Target};
use barograph_station::detail::TcpInfoJson;
use barograph_study::units::{format_bit_rate, format_bytes, format_seconds};
use serde::Serialize;

use super::{Args, FailedJson, now_s};
use crate::exit::{eprint_line, print_line};

/// Options of a timed bulk test.
#[derive(clap::Args)]
pub(super) struct StreamArgs {
    /// Measure goodput with one TCP stream to a station for some seconds; the result is the rate
    /// after start-up
    #[arg(long, group = "bulk", conflicts_with_all = ["quantity", "count", "bytes"])]
    stream: bool,
    /// Seconds to send [default: 5; with --from, that station's mesh.bulk_seconds, which is also
    /// the maximum]
    #[arg(long, value_name = "S", requires = "bulk", value_parser = parse_seconds)]
    pub(super) seconds: Option<f64>,
    /// Stop as soon as the rate has settled: the result is an estimate, unsafe for an unknown path
    #[arg(long, requires = "stream")]
    early_stop: bool,
    /// Congestion control algorithm, by the kernel's name, such as cubic or bbr [default: the
    /// kernel's]
    #[arg(long, value_name = "NAME", requires = "stream")]
    congestion: Option<String>,
}

impl StreamArgs {
    /// The plan of the test, if `--stream` was given.
    pub(super) fn plan(&self) -> Option<StreamPlan> {
        self.stream.then(|| StreamPlan {
            seconds: self.seconds.unwrap_or(SECONDS),
            congestion: self.congestion.clone(),
            early: self.early_stop.then(EarlyStopPolicy::default),
            ..StreamPlan::full()
        })
    }
}

/// Runs the test, and prints the result.
pub(super) fn run(args: &Args, plan: &StreamPlan, target: &Target, context: &ProbeContext) -> ExitCode {
    let result = stream(target, plan, context);
    if context.cancel.is_cancelled() {
        eprint_line("stopped");
        return ExitCode::from(1);
    }
    let line = match &result {
        Ok(streamed) if args.json => serde_json::to_string(&json(streamed, &args.target)).unwrap_or_default(),
        Ok(streamed) => line(streamed),
        Err(error) if args.json => serde_json::to_string(&failed(error, &args.target)).unwrap_or_default(),
        Err(error) => format!("{QUANTITY:<14} {:>14}   {error}", error.failure.as_str()),
    };
    if print_line(line) && result.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn line(streamed: &StreamResult) -> String {
    let mut parts = Vec::new();
    match (streamed.ended, streamed.startup_s) {
        (StreamEnd::Early(reason), _) => {
            parts.push(format!("estimated after {}", format_seconds(reason.time_s)));
        }
        (_, Some(startup_s)) => parts.push(format!("after {} of start-up", format_seconds(startup_s))),
        (_, None) => parts.push("start-up did not end".to_string()),
    }
    let whole = format_bit_rate(streamed.whole_bit_s);
    parts.push(format!(
        "{whole} in all, {} in {}",
        format_bytes(streamed.bytes),
        format_seconds(streamed.duration_s)
    ));
    if let Some(info) = &streamed.tcp_info {
        parts.extend(super::tcp_info_parts(info));
    }
    format!("{QUANTITY:<14} {:>14}   {}", format_bit_rate(streamed.rate_bit_s()), parts.join(", "))
}

#[derive(Serialize)]
struct StreamedJson<'a> {
    /// Time at which the test ended (seconds since 1970).
    time_s: f64,
    quantity: &'static str,
    target: &'a str,
    /// Rate after start-up, or its estimate if the test stopped early. If start-up did not end,
    /// `value` is the rate of the whole test.
    value: f64,
    unit: &'static str,
    ended: &'static str,
    whole_bit_s: f64,
    settled_bit_s: Option<f64>,
    /// The first settled rate that the stop rule found, even if the test did not stop at this rate.
    proposed_bit_s: Option<f64>,
    proposed_after_s: Option<f64>,
    startup_s: Option<f64>,
    duration_s: f64,
    elapsed_s: f64,
    bytes: u64,
    tcp_info: Option<TcpInfoJson<'a>>,
    /// Samples: seconds since the beginning, and the bytes acknowledged by that time.
    samples: Vec<(f64, u64)>,
}

fn json<'a>(streamed: &'a StreamResult, target: &'a str) -> StreamedJson<'a> {
    let samples = streamed.samples.as_slice().iter().map(|sample| (sample.time_s, sample.acked_bytes));
    StreamedJson {
        time_s: now_s(),
        quantity: QUANTITY,
        target,
        value: streamed.rate_bit_s(),
        unit: "bit/s",
        ended: streamed.ended.as_str(),
        whole_bit_s: streamed.whole_bit_s,
        settled_bit_s: streamed.settled_bit_s,
        proposed_bit_s: streamed.proposed.map(|reason| reason.rate_bit_s),
        proposed_after_s: streamed.proposed.map(|reason| reason.time_s),
        startup_s: streamed.startup_s,
        duration_s: streamed.duration_s,
        elapsed_s: streamed.elapsed_s,
        bytes: streamed.bytes,
        tcp_info: streamed.tcp_info.as_ref().map(TcpInfoJson::from),
        samples: samples.collect(),
    }
}

fn failed<'a>(error: &'a ProbeError, target: &'a str) -> FailedJson<'a> {
    FailedJson {
        time_s: now_s(),
        quantity: QUANTITY,
        target,
        error: error.failure.as_str(),
        after_s: error.after_s,
        message: &error.message,
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (StreamPlan::SECONDS_MIN..=StreamPlan::SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected seconds from {} to {}", StreamPlan::SECONDS_MIN, StreamPlan::SECONDS_MAX)),
    }
}

/// Quantity that the test measures: goodput from source to target, from the acknowledged bytes.
const QUANTITY: &str = "goodput";

/// Default duration of a full test between stations, in seconds.
const SECONDS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_bounds() {
        assert_eq!(parse_seconds("2.5"), Ok(2.5));
        for bad in ["", "0", "-1", "NaN", "inf", "601", "5s"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
