//! `barograph transfers`: has stations send files to each other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use barograph_probe::percent;
use barograph_study::units::{count, lasted, rate, size};
use serde_json::{Value, json};

use crate::client::{Client, StationArgs, printable};
use crate::exit::{bad_input, failed, print};

/// Arguments of `barograph transfers`.
///
/// Ask one station for a line with `receive`, and another to send there with `send`: what each may send and receive is in its
/// configuration, table [transfer].
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Print the station's answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

#[derive(clap::Subcommand)]
enum What {
    /// Has a station wait for one sender, for ten minutes; prints the line for it
    Receive {
        /// The station's directory, a whole path
        directory: PathBuf,
        /// What the sender calls the station's host [default: the first address where others reach it]
        #[arg(long, value_name = "NAME")]
        host: Option<String>,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Has a station send files, and waits for the end
    Send {
        /// The station's files and directories, whole paths
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// The line that `barograph transfers receive` or `barograph recv` printed
        line: String,
        /// Only begin
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Ends a transfer; what came is kept
    Cancel {
        /// As `barograph transfers` shows it
        id: String,
        #[command(flatten)]
        station: StationArgs,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.what {
        None => ask(&args.station, "GET", PATH, None, |_, answer| show(answer, args.json)),
        Some(What::Receive { directory, host, station }) => {
            let Some(directory) = directory.to_str() else { return bad_input(NOT_TEXT) };
            let body = json!({ "directory": directory, "host": host });
            ask(station, "POST", "/v1/transfers/lines", Some(&body), |_, answer| {
                match (args.json, answer["line"].as_str()) {
                    (true, _) => print(answer),
                    (false, Some(line)) => print(printable(line)),
                    (false, None) => return failed("the station's answer has no line"),
                };
                ExitCode::SUCCESS
            })
        }
        Some(What::Send { paths, line, no_wait, station }) => {
            let paths: Option<Vec<_>> = paths.iter().map(|path| path.to_str()).collect();
            let Some(paths) = paths else { return bad_input(NOT_TEXT) };
            let body = json!({ "paths": paths, "line": line });
            ask(station, "POST", PATH, Some(&body), |client, answer| {
                if *no_wait { end(answer, args.json) } else { follow(client, answer, args.json) }
            })
        }
        Some(What::Cancel { id, station }) => {
            let path = format!("{PATH}?id={}", percent::encode(id));
            ask(station, "DELETE", &path, None, |_, answer| {
                print(if args.json { answer.to_string() } else { row(answer) });
                ExitCode::SUCCESS
            })
        }
    }
}

fn ask(
    station: &StationArgs,
    method: &str,
    path: &str,
    body: Option<&Value>,
    then: impl FnOnce(&Client, &Value) -> ExitCode,
) -> ExitCode {
    let client = match Client::new(station) {
        Ok(client) => client,
        Err(message) => return bad_input(message),
    };
    match client.ask(method, path, body.map(Value::to_string).as_deref()) {
        Ok(answer) => then(&client, &serde_json::from_str(&answer).unwrap_or_default()),
        Err(trouble) => trouble.exit(),
    }
}

/// Asks again until it has ended. Ctrl-C ends the asking alone.
fn follow(client: &Client, begun: &Value, json: bool) -> ExitCode {
    let mut shown = begun.clone();
    while !is_ended(&shown) {
        std::thread::sleep(AGAIN);
        let answer = match client.ask("GET", PATH, None) {
            Ok(answer) => serde_json::from_str::<Value>(&answer).unwrap_or_default(),
            Err(trouble) => return trouble.exit(),
        };
        let rows = answer["transfers"].as_array().into_iter().flatten();
        let Some(now) = rows.into_iter().find(|row| row["id"] == begun["id"]).cloned() else {
            return failed(
                "the station has forgotten this transfer: it was restarted, or many came after it",
            );
        };
        if !json
            && !is_ended(&now)
            && (now["there_bytes"] != shown["there_bytes"] || now["state"] != shown["state"])
        {
            print(row(&now));
        }
        shown = now;
    }
    end(&shown, json)
}

fn end(transfer: &Value, json: bool) -> ExitCode {
    print(if json { transfer.to_string() } else { row(transfer) });
    match transfer["state"].as_str() {
        Some("failed" | "cancelled" | "expired") => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    }
}

fn is_ended(transfer: &Value) -> bool {
    !matches!(transfer["state"].as_str(), Some("waiting" | "running" | "verifying"))
}

fn show(answer: &Value, json: bool) -> ExitCode {
    if json {
        print(answer);
        return ExitCode::SUCCESS;
    }
    let rows = answer["transfers"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        print("no transfers yet");
    }
    for transfer in rows {
        print(row(transfer));
    }
    ExitCode::SUCCESS
}

/// One transfer in a line.
fn row(transfer: &Value) -> String {
    let text = |key: &str| transfer[key].as_str().map(printable);
    let mut parts = vec![text("id").unwrap_or_default(), text("state").unwrap_or_default()];
    let peer = text("peer").unwrap_or_else(|| "whoever has the line".into());
    parts.push(if transfer["role"] == "sender" { format!("to {peer}") } else { format!("from {peer}") });
    if let Some(bytes) = transfer["bytes"].as_u64() {
        let there = transfer["there_bytes"].as_u64().unwrap_or_default();
        let files = transfer["files"].as_u64().unwrap_or_default();
        parts.push(format!("{} of {} in {}", size(there), size(bytes), count(files, "file", "files")));
    }
    if let (Some(bit_s), Some(seconds)) =
        (transfer["goodput_bit_s"].as_f64(), transfer["duration_s"].as_f64())
    {
        parts.push(format!("{} for {}", rate(bit_s / 8.0), lasted(seconds)));
    }
    parts.extend(text("why"));
    parts.join("  ")
}

/// JSON is.
const NOT_TEXT: &str = "a station is asked for paths in UTF-8; send the directory above instead";
const PATH: &str = "/v1/transfers";
/// A person is told as often as can be read.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_a_line() {
        let mut transfer = json!({"id": "0f", "role": "sender", "state": "done", "peer": "lyon", "files": 2, "bytes": 2_000_000,
            "there_bytes": 2_000_000, "goodput_bit_s": 8e6, "duration_s": 2.0});
        assert_eq!(
            row(&transfer),
            "0f  done  to lyon  2.00 MB of 2.00 MB in 2 files  8.00 Mbit/s for 2.00 s"
        );
        transfer = json!({"id": "1", "role": "receiver", "state": "failed", "peer": null, "bytes": null, "why": "no\u{1b}"});
        assert!(row(&transfer).starts_with("1  failed  from whoever has the line  no"));
        assert!(!row(&transfer).contains('\u{1b}'), "what a station says does not move the cursor");
    }
}
