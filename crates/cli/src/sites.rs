//! `barograph sites`: the stations that form a site by their forecasts, and a station's position.

use std::process::ExitCode;

use barograph_api::{AcceptPosition, CurrentPosition, ProposedPosition, Sites};

use crate::client::{Client, StationArgs, printable};
use crate::exit::{Failure, print_line};

/// Arguments of `barograph sites`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Accept the position that is proposed for the station; with SITE, only if SITE is the
    /// proposed site
    #[arg(long, value_name = "SITE", num_args = 0..=1, conflicts_with = "forget")]
    accept: Option<Option<String>>,
    /// Give up the position that the station accepted
    #[arg(long)]
    forget: bool,
    /// Print the station's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.station)?;
    let answer = match &args.accept {
        Some(site) => client.post("/v1/sites", &AcceptPosition { site: site.clone() }),
        None if args.forget => client.delete("/v1/sites"),
        None => client.get("/v1/sites"),
    }?;
    if args.json {
        print_line(answer)
    } else {
        print_line(shown(&answer.read()))
    };
    Ok(ExitCode::SUCCESS)
}

/// The answer as text: the station's position, each site with its reason, and what to configure.
fn shown(answer: &Sites) -> String {
    let now = &answer.now;
    let site_now = site_text(&now.site, now.represents);
    let mut lines = vec![format!("{} is at {site_now} ({})", printable(&answer.host), printable(&now.from))];
    if let Some(pending) = &answer.pending {
        let (in_s, site) = (pending.in_s, site_text(&pending.site, pending.represents));
        lines.push(format!("in {in_s:.0} s it moves to {site}, unless the forecasts change"));
    }
    lines.extend(answer.proposed.as_ref().and_then(|position| proposed(now, position)));
    let unknown = names(&answer.unknown);
    for site in &answer.sites {
        let hosts = names(&site.hosts);
        if hosts.iter().all(|host| unknown.contains(host)) {
            continue;
        }
        lines.push(format!("\n{}: {}", printable(&site.site), hosts.join(", ")));
        lines.push(format!("  {}", printable(&site.reason)));
        let within = site.within.as_ref().map(|within| [within.forecast, within.lower, within.upper]);
        let next = site.next.as_ref().map(|next| [next.forecast, next.lower, next.upper]);
        for (ends, what) in [(within, "the widest pair"), (next, "the next host")] {
            if let Some([forecast, lower, upper]) = ends.map(|ends| ends.map(|s| 1e3 * s)) {
                lines.push(format!("  {what}: {forecast:.2} ms, 90 % interval {lower:.2} to {upper:.2} ms"));
            }
        }
        let close = names(&site.too_close_to_call);
        if !close.is_empty() {
            lines.push(format!("  too close to call: {}", close.join(", ")));
        }
        match &site.representative {
            _ if hosts.len() <= 1 => {}
            None => lines.push(
                "  no representative is proposed while round trips between its hosts are unknown".into(),
            ),
            Some(host) => {
                let (host, name) = (printable(host), printable(&site.site));
                lines.push(format!("  to configure it: mesh.site = \"{name}\""));
                lines.push(format!("  and on {host}, which represents it: mesh.groups = [\"global\"]"));
            }
        }
    }
    if !unknown.is_empty() {
        lines.push(format!("\nno forecast of round-trip times yet: {}", unknown.join(", ")));
    }
    if answer.left_out > 0 {
        lines.push(format!("\nnot considered: {} more hosts, the last by name", answer.left_out));
    }
    if answer.forecast_origin == "own" {
        lines.push(
            "\nbased on this station's own forecasts; the station with the mesh's archive has the forecasts of all pairs"
                .to_string(),
        );
    }
    lines.join("\n")
}

/// Text with the proposed position; `None` if the station has this position already, or its
/// position is configured.
fn proposed(now: &CurrentPosition, proposed: &ProposedPosition) -> Option<String> {
    let is_there = now.site == proposed.site;
    if is_there && now.represents == proposed.represents || now.from == "configured" {
        return None;
    }
    let site = printable(&proposed.site);
    let (role, then) = match (proposed.represents, is_there) {
        (true, true) => (", represented by this station", ""),
        (true, false) => (
            ", represented by this station",
            "\naccept it at every station of the site; until all stations have a site, they measure each other as before",
        ),
        (false, _) => (", represented by another station", ""),
    };
    Some(format!("proposed: {site}{role}; to accept, run barograph sites --accept{then}"))
}

fn site_text(site: &str, represents: bool) -> String {
    format!("{}{}", printable(site), if represents { ", which it represents" } else { "" })
}

fn names(list: &[String]) -> Vec<String> {
    list.iter().map(|name| printable(name)).collect()
}

const EXAMPLES: &str = "Examples:
  barograph sites
  barograph sites --accept";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sites_are_shown_with_their_reasons_and_unknown_hosts() {
        let answer = json!({
            "host": "a", "mode": "auto", "hold_s": 600.0, "sees": "own",
            "now": { "site": "default", "represents": true, "from": "auto" },
            "proposed": { "site": "a", "represents": true },
            "pending": { "site": "a", "represents": true, "in_s": 300.0 },
            "sites": [
                { "site": "a", "hosts": ["a", "b\u{1b}[2J"], "representative": "a", "reason": "a, b are near",
                  "within": { "forecast": 3e-4, "lower": 2e-4, "upper": 4e-4 },
                  "next": { "host": "c", "forecast": 0.02, "lower": 0.018, "upper": 0.022 },
                  "too_close_to_call": ["c"] },
                { "site": "d", "hosts": ["d"], "representative": "d", "reason": "d has no near host", "within": null,
                  "next": null, "too_close_to_call": [] }],
            "unknown": ["d"], "left_out": 3
        });
        let shown = shown(&serde_json::from_value(answer).expect("sites"));
        for line in [
            "a is at default, which it represents (auto)",
            "in 300 s it moves to a, which it represents, unless the forecasts change",
            "proposed: a, represented by this station; to accept, run barograph sites --accept",
            "not considered: 3 more hosts, the last by name",
            r"a: a, b\u{1b}[2J",
            "  the widest pair: 0.30 ms, 90 % interval 0.20 to 0.40 ms",
            "  too close to call: c",
            "  and on a, which represents it: mesh.groups = [\"global\"]",
            "no forecast of round-trip times yet: d",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
        }
        assert!(!shown.contains("d has no near host"), "{shown}");
    }

    #[test]
    fn a_site_with_unknown_pairs_gets_no_representative() {
        let answer = json!({ "host": "a", "now": { "site": "default", "represents": false, "from": "default" }, "proposed": null,
            "sites": [{ "site": "a", "hosts": ["a", "b", "c"], "representative": null, "reason": "unknown: b–c" }], "unknown": [] });
        let shown = shown(&serde_json::from_value(answer).expect("sites"));
        assert!(shown.contains("no representative is proposed while"), "{shown}");
        assert!(!shown.contains("mesh.groups") && !shown.contains('?'), "{shown}");
    }

    #[test]
    fn a_proposal_is_shown_only_if_it_differs_from_the_current_position() {
        let told = |site: &str, represents: bool, from: &str| {
            let now = CurrentPosition { site: "a".into(), represents: true, from: from.to_string().into() };
            proposed(&now, &ProposedPosition { site: site.into(), represents })
        };
        let leave = Some(
            "proposed: a, represented by another station; to accept, run barograph sites --accept".into(),
        );
        assert_eq!(told("a", false, "accepted"), leave);
        assert_eq!((told("a", true, "auto"), told("b", true, "configured")), (None, None));
        assert!(told("b", true, "auto").is_some_and(|told| told.contains("at every station of the site")));
    }
}
