//! `barograph probe --from STATION PEER`: a bulk test between two other stations.

use std::path::PathBuf;
use std::process::ExitCode;

use barograph_api::{BulkTest, BulkTestState, NewBulkTest};
use barograph_probe::Target;
use barograph_study::units::{format_bit_rate, format_bytes, format_seconds};

use super::Args;
use crate::client::{Client, printable, token_of};
use crate::exit::{Failure, print_line};

/// Options of a test between two other stations.
#[derive(clap::Args)]
pub(super) struct BulkArgs {
    /// With --from: state directory of that station, for its token
    #[arg(long, value_name = "DIR", env = "BAROGRAPH_STATE")]
    state: Option<PathBuf>,
    /// With --from: certificate (PEM) to trust besides the system's, for a station with a private
    /// HTTPS certificate
    #[arg(long, value_name = "FILE", env = "BAROGRAPH_CA")]
    ca: Option<PathBuf>,
}

/// Requests the test from `station`, waits for its end, and prints the result.
pub(super) fn run(args: &Args, station: &str) -> Result<ExitCode, Failure> {
    let BulkArgs { state, ca } = &args.bulk;
    let token = args.token.clone().or_else(|| token_of(state.as_deref()?));
    let client = Client::of(&url(station), token, ca.clone())?;
    let body = NewBulkTest { to: args.target.clone(), seconds: args.stream.seconds };
    // The message of a refusal contains the time after which the user may try again.
    let answer = client.post("/v1/tests", &body)?;
    let test: BulkTest = answer.read();
    let shown = if args.json { print_line(answer) } else { print_line(line(&test)) };
    Ok(if shown && test.state == BulkTestState::Done { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The result of a test as a line.
fn line(test: &BulkTest) -> String {
    let Some(rate) = test.goodput_bit_s else {
        let why = test.why.as_deref().unwrap_or("the station gave no reason");
        return format!("goodput {:>21}   {}", "failed", printable(why));
    };
    let estimate = if test.ended.as_deref() == Some("early") { ", estimated" } else { "" };
    format!(
        "goodput {:>21}   {} in {}{estimate}",
        format_bit_rate(rate),
        format_bytes(test.bytes.unwrap_or(0)),
        format_seconds(test.duration_s.unwrap_or(0.0))
    )
}

/// URL of a station, with the default port if the text has no port.
fn url(station: &str) -> String {
    let port = barograph_station::config::PORT;
    if station.contains("://") {
        station.to_string()
    } else if station.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("http://[{station}]:{port}/")
    } else if Target::parse(station).is_ok() {
        format!("http://{station}/")
    } else {
        format!("http://{station}:{port}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn station_addresses_are_parsed_as_for_joining() {
        for (text, address) in [
            ("a", "http://a:10132/"),
            ("a:1", "http://a:1/"),
            ("::1", "http://[::1]:10132/"),
            ("[::1]:7", "http://[::1]:7/"),
            ("https://a/", "https://a/"),
        ] {
            assert_eq!(url(text), address);
        }
    }

    #[test]
    fn a_test_is_shown_with_control_characters_escaped() {
        let done = r#"{"state": "done", "goodput_bit_s": 94e6, "bytes": 58750000, "duration_s": 5.0}"#;
        let done: BulkTest = serde_json::from_str(done).expect("a test");
        assert_eq!(line(&done), "goodput           94.0 Mbit/s   58.8 MB in 5.00 s");
        let why = Some("refused:\u{1b}[2J".into());
        let failed = BulkTest { state: BulkTestState::Failed, why, ..BulkTest::default() };
        assert!(line(&failed).contains("failed") && !line(&failed).contains('\u{1b}'));
    }
}
