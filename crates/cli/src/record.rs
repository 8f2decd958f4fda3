//! `barograph record`: sends an application's own values to a station: one value, or a stream of
//! values.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};

use barograph_api::{Measurements, NewRecord};
use barograph_forecast::{Battery, Name, Quantity};

use crate::client::{Client, RequestError, StationArgs, printable};
use crate::exit::{Failure, eprint_line, failed};

/// Arguments of `barograph record`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Target of the measurement [default: the source itself]
    #[arg(long, value_name = "T")]
    target: Option<String>,
    /// Name of the quantity: a lower-case word such as queue_length
    #[arg(long, value_name = "Q")]
    quantity: String,
    /// Source of the measurement [default: the station's host]
    #[arg(long, value_name = "S")]
    source: Option<String>,
    /// Value, or - to read standard input, one value or one pair time_s,value a line
    ///
    /// A line that is not a value, or that the station refuses, is reported and skipped. The other
    /// lines are recorded. If a line was skipped, the exit code is 1.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    station: StationArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    check(args).map_err(Failure::Input)?;
    let client = Client::new(&args.station)?;
    if args.value == "-" {
        return Ok(stream(args, &client));
    }
    let sample = parse(&args.value).map_err(Failure::Input)?;
    post(args, &client, &[&sample])?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the names, which are the same for every record.
fn check(args: &Args) -> Result<(), String> {
    Quantity::new(&args.quantity).map_err(|error| format!("--quantity: {error}"))?;
    for (option, name) in [("--target", &args.target), ("--source", &args.source)] {
        if let Some(name) = name {
            Name::new(name).map_err(|error| format!("{option}: {error}"))?;
        }
    }
    Ok(())
}

/// A value, with its time if it has one.
#[derive(Debug, PartialEq)]
struct Sample {
    time_s: Option<f64>,
    value: f64,
}

/// Sends each line as soon as possible. Lines that arrive during a request are sent together in the
/// next request. A line that is not a value is reported and skipped.
fn stream(args: &Args, client: &Client) -> ExitCode {
    let lines = read_lines();
    let mut skipped = 0_u64;
    let mut number = 0_u64;
    while let Ok(first) = lines.recv() {
        let mut batch = Vec::new();
        for line in std::iter::once(first).chain(lines.try_iter().take(BATCH_MAX - 1)) {
            number += 1;
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match parse(&line) {
                Ok(sample) => batch.push((number, sample)),
                Err(message) => {
                    skipped += 1;
                    eprint_line(format_args!("line {number}: {message}; skipped"));
                }
            }
        }
        match send(args, client, &batch) {
            Ok(refused) => skipped += refused,
            Err((line, error)) => return failed(format_args!("line {line}: {error}")),
        }
    }
    if skipped == 0 {
        return ExitCode::SUCCESS;
    }
    failed(match skipped {
        1 => "1 line was skipped".to_string(),
        _ => format!("{skipped} lines were skipped"),
    })
}

/// Sends samples with their line numbers; returns how many the station refused.
///
/// The station accepts either all samples of a request or none. After a refusal, each sample is
/// sent in a request of its own, and each refused sample is reported.
fn send(args: &Args, client: &Client, batch: &[(u64, Sample)]) -> Result<u64, (u64, RequestError)> {
    let Some((last, _)) = batch.last() else { return Ok(0) };
    let all: Vec<&Sample> = batch.iter().map(|(_, sample)| sample).collect();
    match post(args, client, &all) {
        Ok(()) => return Ok(0),
        Err(error) if !error.is_bad_request() => return Err((*last, error)),
        Err(error) if batch.len() == 1 => {
            eprint_line(format_args!("line {last}: {error}; skipped"));
            return Ok(1);
        }
        Err(_) => {}
    }
    let mut skipped = 0;
    for (line, sample) in batch {
        match post(args, client, &[sample]) {
            Ok(()) => {}
            Err(error) if error.is_bad_request() => {
                skipped += 1;
                eprint_line(format_args!("line {line}: {error}; skipped"));
            }
            Err(error) => return Err((*line, error)),
        }
    }
    Ok(skipped)
}

/// Starts a thread that reads lines and sends them to the returned channel. So a slow answer does
/// not block the pipe, and the lines that wait can be sent in one request.
fn read_lines() -> Receiver<String> {
    let (sender, receiver) = sync_channel(BATCH_MAX);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut bytes = Vec::new();
            match std::io::Read::take(&mut input, LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if sender.send(String::from_utf8_lossy(&bytes).trim_end().to_string()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn post(args: &Args, client: &Client, samples: &[&Sample]) -> Result<(), RequestError> {
    let record = |sample: &&Sample| NewRecord {
        seq: None,
        source: args.source.clone(),
        target: args.target.clone(),
        quantity: args.quantity.clone(),
        time_s: sample.time_s,
        value: sample.value,
    };
    let records = samples.iter().map(record).collect();
    client.post("/v1/measurements", &Measurements { origin: None, records }).map(|_| ())
}

/// Parses `value` or `time_s,value`: both finite, and the value in the range of a battery.
fn parse(text: &str) -> Result<Sample, String> {
    let number = |text: &str| {
        let text = text.trim();
        let shown = || printable(&text.chars().take(40).collect::<String>());
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(format!("`{}` is not a finite number", shown())),
            Err(_) => Err(format!("`{}` is not a number", shown())),
        }
    };
    let value = |text: &str| {
        let value = number(text)?;
        if value.abs() > Battery::VALUE_MAX {
            return Err(format!(
                "{value:e} is out of range; expected at most {:e} in size",
                Battery::VALUE_MAX
            ));
        }
        Ok(value)
    };
    match text.split_once(',') {
        Some((time_s, text)) => Ok(Sample { time_s: Some(number(time_s)?), value: value(text)? }),
        None => Ok(Sample { time_s: None, value: value(text)? }),
    }
}

/// Maximum number of lines in one request: half of the number that the station accepts.
const BATCH_MAX: usize = 500;
/// Maximum bytes of a line. The rest of a longer line is read as further lines.
const LINE_BYTES_MAX: u64 = 4096;

const EXAMPLES: &str = "Examples:
  barograph record --target backend --quantity queue_length 42
  tail -f lengths.txt | barograph record --quantity queue_length -";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_pairs_are_read() {
        assert_eq!(parse("1.5"), Ok(Sample { time_s: None, value: 1.5 }));
        assert_eq!(parse("-3e2"), Ok(Sample { time_s: None, value: -300.0 }));
        assert_eq!(parse("10, 2"), Ok(Sample { time_s: Some(10.0), value: 2.0 }));
        for bad in ["", "x", "nan", "inf", "1e999", "1e200", "5,-1e200", "1,nan", "1,2,3", "-"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
