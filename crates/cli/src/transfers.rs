//! `barograph transfers`: lets stations send files to each other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use barograph_api::{NewReceiver, NewTransfer, Transfer, TransferList, TransferState, WaitingTransfer};
use barograph_probe::percent;
use barograph_study::units::{format_byte_rate, format_bytes, format_count, format_elapsed};
use serde::Serialize;

use crate::client::{Client, StationArgs, printable};
use crate::exit::{Failure, print_line};

/// Arguments of `barograph transfers`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<TransferCommand>,
    /// Print the station's answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

#[derive(clap::Subcommand)]
enum TransferCommand {
    /// Let a station wait ten minutes for one sender, and print the receiver address
    Receive {
        /// Directory on the station, as an absolute path
        directory: PathBuf,
        /// Name of the station's host in the receiver address [default: the first address that
        /// other hosts can reach]
        #[arg(long, value_name = "NAME")]
        host: Option<String>,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Let a station send files, and wait until the files have arrived
    Send {
        /// Files and directories on the station, as absolute paths
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// Receiver address that `barograph transfers receive` or `barograph recv` printed
        #[arg(value_name = "ADDRESS")]
        line: String,
        /// Exit when the transfer has begun
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        station: StationArgs,
    },
    /// Cancel a transfer; data that arrived is kept
    Cancel {
        /// Id of the transfer, as `barograph transfers` shows it
        id: String,
        #[command(flatten)]
        station: StationArgs,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        None => show(&Client::new(&args.station)?.get(PATH)?.read(), args.json),
        Some(TransferCommand::Receive { directory, host, station }) => {
            check(std::slice::from_ref(directory))?;
            let body = NewReceiver { directory: directory.clone(), host: host.clone() };
            let answer: WaitingTransfer = Client::new(station)?.post("/v1/transfers/lines", &body)?.read();
            if answer.receiver_address.is_empty() {
                return Err(Failure::Failed(
                    "the station's answer has no receiver address; is it of the same version?".into(),
                ));
            }
            print_line(if args.json { sorted(&answer) } else { printable(&answer.receiver_address) });
        }
        Some(TransferCommand::Send { paths, line, no_wait, station }) => {
            check(paths)?;
            let client = Client::new(station)?;
            let body = NewTransfer { paths: paths.clone(), receiver_address: line.clone() };
            let begun = client.post(PATH, &body)?.read();
            let last = if *no_wait { begun } else { follow(&client, begun, args.json)? };
            shown(&last, args.json);
            if let TransferState::Failed | TransferState::Cancelled | TransferState::Expired = last.state {
                return Ok(ExitCode::from(1));
            }
        }
        Some(TransferCommand::Cancel { id, station }) => {
            let path = format!("{PATH}?id={}", percent::encode(id));
            shown(&Client::new(station)?.delete(&path)?.read(), args.json);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Paths must be UTF-8, because JSON is text.
fn check(paths: &[PathBuf]) -> Result<(), Failure> {
    if paths.iter().all(|path| path.to_str().is_some()) {
        return Ok(());
    }
    Err(Failure::Input("paths must be UTF-8; send the parent directory instead".into()))
}

/// Polls until the transfer has ended. Ctrl-C ends only the polling.
fn follow(client: &Client, begun: Transfer, json: bool) -> Result<Transfer, Failure> {
    let mut last = begun;
    while !last.state.is_ended() {
        std::thread::sleep(AGAIN);
        let list: TransferList = client.get(PATH)?.read();
        let Some(now) = list.transfers.into_iter().find(|row| row.id == last.id) else {
            let why = "the station no longer lists this transfer: it was restarted, or many transfers came after it";
            return Err(Failure::Failed(why.into()));
        };
        let is_news = (now.received_bytes, now.state) != (last.received_bytes, last.state);
        if !json && !now.state.is_ended() && is_news {
            print_line(row(&now));
        }
        last = now;
    }
    Ok(last)
}

fn shown(transfer: &Transfer, json: bool) {
    print_line(if json { sorted(transfer) } else { row(transfer) });
}

/// JSON with its keys in alphabetical order.
fn sorted(answer: &impl Serialize) -> String {
    serde_json::to_value(answer).unwrap_or_default().to_string()
}

fn show(list: &TransferList, json: bool) {
    if json {
        print_line(sorted(list));
    } else if list.transfers.is_empty() {
        print_line("no transfers yet");
    }
    for transfer in list.transfers.iter().filter(|_| !json) {
        print_line(row(transfer));
    }
}

/// One transfer as a line.
fn row(transfer: &Transfer) -> String {
    let mut parts = vec![printable(&transfer.id), transfer.state.as_str().into()];
    let peer = transfer.peer.as_ref().map_or("any sender".into(), |peer| printable(peer));
    parts.push(if transfer.role == "sender" { format!("to {peer}") } else { format!("from {peer}") });
    if let Some(bytes) = transfer.bytes {
        let files = format_count(transfer.files.unwrap_or_default(), "file", "files");
        parts.push(format!(
            "{} of {} in {files}",
            format_bytes(transfer.received_bytes),
            format_bytes(bytes)
        ));
    }
    if let (Some(bit_s), Some(seconds)) = (transfer.goodput_bit_s, transfer.duration_s) {
        parts.push(format!("{} for {}", format_byte_rate(bit_s / 8.0), format_elapsed(seconds)));
    }
    parts.extend(transfer.why.as_ref().map(|why| printable(why)));
    parts.join("  ")
}

const PATH: &str = "/v1/transfers";
/// Interval of polling: as often as a person can read.
const AGAIN: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "Examples:
  barograph transfers receive /srv/incoming --station http://192.0.2.7:10132/
  barograph transfers send /srv/data brg://192.0.2.7:4000/…";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_transfer_is_printed_as_one_line() {
        let row = |transfer| row(&serde_json::from_value(transfer).expect("a transfer"));
        let done = json!({"id": "0f", "role": "sender", "state": "done", "peer": "lyon", "files": 2, "bytes": 2_000_000,
            "there_bytes": 2_000_000, "goodput_bit_s": 8e6, "duration_s": 2.0});
        assert_eq!(row(done), "0f  done  to lyon  2.00 MB of 2.00 MB in 2 files  8.00 Mbit/s for 2.00 s");
        let failed = row(
            json!({"id": "1", "role": "receiver", "state": "failed", "peer": null, "bytes": null, "why": "no\u{1b}"}),
        );
        assert!(failed.starts_with("1  failed  from any sender  no"));
        assert!(!failed.contains('\u{1b}'), "what a station says does not move the cursor");
    }
}
