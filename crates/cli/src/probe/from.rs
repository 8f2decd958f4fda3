//! `barograph probe --from STATION PEER`: a bulk test between two other stations.

use std::path::PathBuf;
use std::process::ExitCode;

use barograph_probe::Target;
use barograph_study::units::{bit_rate, seconds, size};
use serde_json::{Value, json};

use super::Args;
use crate::client::{Client, printable, token_of};
use crate::exit::{bad_input, print};

/// What is said of a test between others.
#[derive(clap::Args)]
pub(super) struct FromArgs {
    /// With --from: that station's state directory, for its token
    #[arg(long, value_name = "DIR", env = "BAROGRAPH_STATE")]
    state: Option<PathBuf>,
    /// With --from: a certificate (PEM) to trust beside the system's, for a station that speaks HTTPS with a private one
    #[arg(long, value_name = "FILE", env = "BAROGRAPH_CA")]
    ca: Option<PathBuf>,
}

/// Asks `station` for the test, waits for it, and shows what came of it.
pub(super) fn run(args: &Args, station: &str) -> ExitCode {
    let FromArgs { state, ca } = &args.elsewhere;
    let token = args.token.clone().or_else(|| token_of(state.as_deref()?));
    let client = match Client::of(&url(station), token, ca.clone()) {
        Ok(client) => client,
        Err(message) => return bad_input(message),
    };
    let mut body = json!({ "to": args.target });
    if let Some(seconds) = args.stream.seconds {
        body["seconds"] = json!(seconds);
    }
    let answer = match client.ask("POST", "/v1/tests", Some(&body.to_string())) {
        Ok(answer) => answer,
        // A refusal says when to ask again in its own sentence.
        Err(trouble) => return trouble.exit(),
    };
    let test: Value = serde_json::from_str(&answer).unwrap_or_default();
    let is_done = test["state"] == "done";
    let shown = print(if args.json { answer } else { line(&test) });
    if shown && is_done { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// One test for people.
fn line(test: &Value) -> String {
    let number = |key: &str| test[key].as_f64().unwrap_or(0.0);
    let Some(rate) = test["goodput_bit_s"].as_f64() else {
        let why = test["why"].as_str().unwrap_or("no reason was given");
        return format!("goodput {:>21}   {}", "failed", printable(why));
    };
    let estimate = if test["ended"] == "early" { ", estimated" } else { "" };
    format!(
        "goodput {:>21}   {} in {}{estimate}",
        bit_rate(rate),
        size(test["bytes"].as_u64().unwrap_or(0)),
        seconds(number("duration_s"))
    )
}

/// The address of a station; the port is its own unless one is named.
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
    fn stations_are_named_as_when_joining() {
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
    fn a_test_is_shown_without_steering_the_terminal() {
        let done = json!({"state": "done", "goodput_bit_s": 94e6, "bytes": 58_750_000, "duration_s": 5.0});
        assert_eq!(line(&done), "goodput           94.0 Mbit/s   58.8 MB in 5.00 s");
        let failed = json!({"state": "failed", "why": "refused:\u{1b}[2J"});
        assert!(line(&failed).contains("failed") && !line(&failed).contains('\u{1b}'));
    }
}
