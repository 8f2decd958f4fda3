//! `barograph peers`: the stations of a mesh, and their changes.

use std::process::ExitCode;

use barograph_api::{Mesh, MissedEvents, PeerEvent, PeerList};

use crate::client::{Client, StationArgs, printable};
use crate::exit::{self, Failure, print_line};

/// Arguments of `barograph peers`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the latest events of peers, then new ones until interrupted
    #[arg(long)]
    watch: bool,
    /// Print the station's answer as JSON; with --watch, one event a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.station)?;
    if args.json {
        if args.watch {
            return watch(&client, true);
        }
        print_line(client.get("/v1/peers")?);
        return Ok(ExitCode::SUCCESS);
    }
    let (mesh, peers) = (client.get("/v1/mesh")?, client.get("/v1/peers")?);
    print_line(format_args!("{}\n{}", own(&mesh.read()), table(&peers.read())));
    if args.watch {
        print_line("");
        return watch(&client, false);
    }
    Ok(ExitCode::SUCCESS)
}

/// The station itself: its role in the mesh, its connection to the directory, and counts of peers.
fn own(mesh: &Mesh) -> String {
    let of_mesh = mesh.joined.as_ref().map_or(String::new(), |url| format!(" of {}", printable(url)));
    let mut lines = vec![format!(
        "{} ({}{of_mesh}), in {}",
        printable(&mesh.host),
        printable(&mesh.role),
        list(&mesh.groups)
    )];
    let directory = &mesh.directory;
    let error = directory.error.as_deref();
    if let Some(since_s) = directory.read_only_s {
        let why = error.map_or(String::new(), |why| format!(" ({})", printable(why)));
        lines.push(format!(
            "read-only for {since_s:.0} s: the directory accepts no writes{why}; known peers stay, new ones cannot join"
        ));
    } else if let Some(error) = error.filter(|_| !directory.connected) {
        let away = directory.away_s.map_or(String::new(), |away| format!(" for {away:.0} s"));
        lines.push(format!("not connected{away}: {}", printable(error)));
    }
    if let Some(conflict) = directory.conflict.as_deref().filter(|why| error != Some(why)) {
        lines.push(printable(conflict));
    }
    if let Some(spool) = &mesh.spool
        && let Some(error) = &spool.error
    {
        lines.push(format!("{} records wait for the mesh: {}", spool.records, printable(error)));
    }
    let peers = &mesh.peers;
    lines.push(format!("peers: {} up, {} lost, {} ignored", peers.up, peers.lost, peers.ignored));
    lines.join("\n")
}

/// Shortens a cell to [`CELL_MAX`] characters; `--json` prints all of it.
fn short(cell: &str) -> String {
    if cell.chars().count() <= CELL_MAX {
        return cell.into();
    }
    cell.chars().take(CELL_MAX - 1).chain(['…']).collect()
}

fn watch(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    client.follow("/v1/peers/events", |data| {
        // Stop when the reader of standard output is gone.
        print_line(if json { data.to_string() } else { line(data) })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One event as text: time in UTC, event, host and addresses.
fn line(data: &str) -> String {
    if let Ok(MissedEvents { missed }) = serde_json::from_str(data) {
        return format!("({missed} events were missed)");
    }
    let Ok(event) = serde_json::from_str::<PeerEvent>(data) else { return "?".into() };
    let (time, what, host) = (utc(event.time_s), event.event.as_str(), printable(&event.host));
    format!("{time}  {what:8}  {host:HOST_WIDTH$}  {}", list(&event.addresses)).trim_end().to_string()
}

fn table(answer: &PeerList) -> String {
    if answer.peers.is_empty() {
        return "no peers yet; `barograph invite` prints the command with which a station joins".into();
    }
    let mut rows =
        vec![["HOST", "STATE", "SINCE", "ADDRESS", "VERSION", "GROUPS", "REASON"].map(String::from)];
    for peer in &answer.peers {
        let row = [
            printable(&peer.host),
            printable(&peer.state),
            utc(peer.since_s),
            printable(peer.address.as_deref().unwrap_or("-")),
            printable(&peer.version),
            list(&peer.groups),
            printable(peer.reason.as_deref().unwrap_or_default()),
        ];
        rows.push(row.map(|cell| short(&cell)));
    }
    exit::table(&rows)
}

fn list(words: &[String]) -> String {
    words.iter().map(|word| printable(word)).collect::<Vec<_>>().join(" ")
}

/// Formats seconds since 1970 as `2026-01-01 00:00:00Z`. The date is computed by `civil_from_days`
/// of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
pub(crate) fn utc(time_s: f64) -> String {
    // The time comes from outside this program, so it may be wrong; a time before 1970 or after the
    // year 9999 is shown as `?`.
    if !(0.0..253_402_300_800.0).contains(&time_s) {
        return "?".into();
    }
    let seconds = time_s as i64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hours, minutes) = (rest / 3600, rest / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02}Z", rest % 60)
}

/// Maximum length of a cell, in characters: the width of a terminal.
const CELL_MAX: usize = 80;
/// Width of the host column of events. The width is fixed: events arrive one by one, so the longest
/// name is unknown.
const HOST_WIDTH: usize = 16;

const EXAMPLES: &str = "Examples:
  barograph peers
  barograph peers --watch";

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
        serde_json::from_str(text).expect("an answer")
    }

    #[test]
    fn times_are_shown_in_utc() {
        for (time_s, text) in [
            (0.0, "1970-01-01 00:00:00Z"),
            (951_782_400.0, "2000-02-29 00:00:00Z"),
            (1_767_225_599.9, "2025-12-31 23:59:59Z"),
            (4_107_542_400.0, "2100-03-01 00:00:00Z"),
            (-1.0, "?"),
            (f64::NAN, "?"),
            (1e300, "?"),
        ] {
            assert_eq!(utc(time_s), text);
        }
    }

    #[test]
    fn peers_and_events_are_shown_with_control_characters_escaped() {
        let answer = r#"{"peers": [
            {"host": "b", "state": "up", "since_s": 0, "address": "192.0.2.2:1", "version": "0.1.0",
             "groups": ["local:x"], "reason": "a\u001b[2J"},
            {"host": "longer", "state": "lost", "since_s": 0, "address": null, "version": "0.1.0", "groups": []}]}"#;
        let shown = table(&read(answer));
        assert_eq!(shown.lines().count(), 3, "{shown}");
        assert!(shown.contains(r"a\u{1b}[2J") && shown.contains("192.0.2.2:1"), "{shown}");
        assert!(table(&read("{\"peers\": []}")).contains("`barograph invite`"));
        let event = r#"{"id":1,"event":"lost","time_s":0,"host":"b","addresses":["192.0.2.2:1"]}"#;
        assert_eq!(line(event), "1970-01-01 00:00:00Z  lost      b                 192.0.2.2:1");
        assert_eq!(line("{\"missed\":3}"), "(3 events were missed)");
    }

    #[test]
    fn the_own_station_comes_first_with_its_problems() {
        let well = r#"{"host": "a", "role": "host", "groups": ["local:x"], "peers": {"up": 2, "lost": 1, "ignored": 0},
            "directory": {"connected": true}}"#;
        assert_eq!(own(&read(well)), "a (host), in local:x\npeers: 2 up, 1 lost, 0 ignored");
        let ill = r#"{"host": "b", "role": "member", "joined": "http://a:1/", "groups": [], "peers": {},
            "directory": {"connected": false, "away_s": 7.2, "error": "no\u001b"}}"#;
        let shown = own(&read(ill));
        assert!(shown.starts_with("b (member of http://a:1/)"), "{shown}");
        assert!(shown.contains("\nnot connected for 7 s: no\\u{1b}\n"), "{shown}");
        let frozen = r#"{"host": "b", "role": "member", "groups": [], "peers": {},
            "directory": {"connected": false, "away_s": 7.2, "read_only_s": 17.2, "error": "no quorum"}}"#;
        let shown = own(&read(frozen));
        assert!(
            shown.contains("\nread-only for 17 s: the directory accepts no writes (no quorum);"),
            "{shown}"
        );
        assert!(!shown.contains("not connected"), "{shown}");
    }

    #[test]
    fn one_long_cell_does_not_widen_every_line() {
        let group = "g".repeat(255);
        let answer = serde_json::json!({ "peers": [
            { "host": "h".repeat(255), "state": "up", "since_s": 0, "version": "1", "groups": [group, group] },
            { "host": "b", "state": "up", "since_s": 0, "version": "1", "groups": [], "reason": "r" },
        ]});
        let shown = table(&read(&answer.to_string()));
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 3 * CELL_MAX, "{widest} characters: {shown}");
        assert!(shown.lines().last().is_some_and(|line| line.ends_with('r')), "{shown}");
    }

    #[test]
    fn a_long_cell_is_shortened() {
        assert_eq!(short("as it is"), "as it is");
        let long = short(&"é".repeat(500));
        assert!(long.chars().count() == CELL_MAX && long.ends_with('…'), "{long}");
    }
}
