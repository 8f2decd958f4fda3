//! `barograph invite` and `barograph members`: the stations that may join this station's mesh.

use std::net::SocketAddr;
use std::process::ExitCode;

use barograph_api::{Invitation, MemberList, NewInvitation};
use barograph_forecast::Name;
use barograph_probe::percent;

use crate::client::{Client, StationArgs, printable};
use crate::exit::{self, Failure, eprint_line, print_line};

/// Arguments of `barograph invite`.
#[derive(clap::Args)]
#[command(after_help = INVITE_EXAMPLES)]
pub(crate) struct InviteArgs {
    /// Name of the station that may join [default: any station; the first station that joins uses
    /// the invitation up]
    name: Option<String>,
    /// Print the station's answer as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

/// Arguments of `barograph members`.
#[derive(clap::Args)]
#[command(after_help = MEMBERS_EXAMPLES)]
pub(crate) struct MembersArgs {
    /// Remove this station from the mesh, or withdraw an open invitation by its id; measurements
    /// stay
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
    /// Print the station's answer as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    station: StationArgs,
}

pub(crate) fn invite(args: &InviteArgs) -> Result<ExitCode, Failure> {
    if let Some(Err(error)) = args.name.as_deref().map(Name::new) {
        return Err(Failure::Input(format!("invalid name: {error}")));
    }
    let client = Client::new(&args.station)?;
    let answer = client.post("/v1/invitations", &NewInvitation { name: args.name.clone() })?;
    let invitation: Invitation = answer.read();
    let Invitation { token, host, address, .. } = &invitation;
    if [token, host, address].into_iter().any(String::is_empty) {
        return Err(Failure::Failed(
            "the station's answer is not an invitation; is it of the same version?".into(),
        ));
    }
    let [token, host, address] = [token, host, address].map(|text| printable(text));
    let Ok(address) = address.parse::<SocketAddr>() else {
        return Err(Failure::Failed(format!("the station's answer has an invalid address: `{address}`")));
    };
    let advertised: Vec<SocketAddr> =
        invitation.addresses.iter().filter_map(|one| one.parse().ok()).collect();
    if address.ip().is_loopback() && !advertised.iter().any(is_real) {
        return Err(withdraw(&client, &invitation, address));
    }
    if args.json {
        print_line(answer);
        return Ok(ExitCode::SUCCESS);
    }
    let url = join_url(client.is_https(), &host, address, &advertised);
    let others: Vec<String> = advertised
        .iter()
        .filter(|other| is_real(other) && !url.ends_with(&format!("//{other}")))
        .map(ToString::to_string)
        .collect();
    if !others.is_empty() {
        eprint_line(format_args!("other addresses of this station: {}", others.join(", ")));
    }
    print_line(format_args!("BAROGRAPH_JOIN_TOKEN={token} barograph up --join {url}"));
    Ok(ExitCode::SUCCESS)
}

/// Withdraws an invitation that no other host could use, and returns the reason.
fn withdraw(client: &Client, invitation: &Invitation, address: SocketAddr) -> Failure {
    let known = invitation.name.as_deref().unwrap_or(&invitation.id);
    // Ignore a failure: the invitation then stays open, but no other host can use it. The user
    // needs the message below more than this error.
    let _ = client.delete(&format!("/v1/members?name={}", percent::encode(known)));
    Failure::Failed(format!(
        "this station listens on {address}, which other hosts cannot reach; start it with \
         barograph up --listen '[::]:10132', or set mesh.advertise if they reach it through a proxy or NAT"
    ))
}

pub(crate) fn members(args: &MembersArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.station)?;
    let answer = match &args.remove {
        Some(name) => client.delete(&format!("/v1/members?name={}", percent::encode(name))),
        None => client.get("/v1/members"),
    }?;
    match &args.remove {
        _ if args.json => print_line(answer),
        Some(name) => print_line(format_args!("Removed member {name}")),
        None => print_line(table(&answer.read())),
    };
    Ok(ExitCode::SUCCESS)
}

/// URL at which other hosts reach a station that listens on `address` and advertises `advertised`.
/// The URL contains the first address that other hosts can reach: first `advertised` is searched,
/// then `address`. An address is preferred, because other hosts may be unable to resolve the name
/// `host`. The URL contains `host` if no address can be reached. With HTTPS, the URL also contains
/// `host` if other hosts cannot reach `address`, because the certificate contains `host`.
fn join_url(is_https: bool, host: &str, address: SocketAddr, advertised: &[SocketAddr]) -> String {
    let scheme = if is_https { "https" } else { "http" };
    let is_one = |address: &&SocketAddr| is_real(address);
    match advertised.iter().chain([&address]).find(is_one) {
        Some(real) if !is_https || is_real(&address) => format!("{scheme}://{real}"),
        _ => format!("{scheme}://{host}:{}", address.port()),
    }
}

/// Whether other hosts can reach a host at `address`.
fn is_real(address: &SocketAddr) -> bool {
    !address.ip().is_unspecified() && !address.ip().is_loopback()
}

fn table(answer: &MemberList) -> String {
    let mut rows = vec![["NAME", "STATE"].map(String::from)];
    for member in &answer.members {
        rows.push(match &member.name {
            Some(name) if member.registered => [printable(name), "registered".into()],
            Some(name) => [printable(name), "not registered".into()],
            None => [printable(&member.id), "open invitation, for the first name that uses it".into()],
        });
    }
    exit::table(&rows)
}

const INVITE_EXAMPLES: &str = "Examples:
  barograph invite
  barograph invite south.example.net";

const MEMBERS_EXAMPLES: &str = "Examples:
  barograph members
  barograph members --remove south.example.net";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_join_url_is_reachable_from_other_hosts() {
        let lan = ["127.0.0.1:10132", "192.0.2.7:10132", "[2001:db8::7]:10132"];
        for (is_https, address, advertised, url) in [
            (false, "0.0.0.0:10132", &lan[..], "http://192.0.2.7:10132"),
            (false, "[::]:10132", &lan[2..], "http://[2001:db8::7]:10132"),
            (false, "0.0.0.0:10132", &[], "http://north:10132"),
            (true, "[::]:443", &lan, "https://north:443"),
            (false, "127.0.0.1:1", &lan[..1], "http://north:1"),
            (false, "192.0.2.1:1", &[], "http://192.0.2.1:1"),
            (false, "192.0.2.1:1", &["198.51.100.1:7"], "http://198.51.100.1:7"),
            (true, "[2001:db8::1]:1", &[], "https://[2001:db8::1]:1"),
        ] {
            let address = address.parse().expect("an address");
            let advertised: Vec<SocketAddr> =
                advertised.iter().map(|one| one.parse().expect("an address")).collect();
            assert_eq!(join_url(is_https, "north", address, &advertised), url);
        }
    }

    #[test]
    fn members_are_shown_with_control_characters_escaped() {
        let answer = serde_json::json!({ "members": [
            { "name": "a\u{1b}[2J", "id": "00", "registered": true },
            { "name": null, "id": "0011", "registered": false },
        ]});
        let shown = table(&serde_json::from_value(answer).expect("members"));
        let rows: Vec<Vec<&str>> =
            shown.lines().map(|line| line.splitn(2, "  ").map(str::trim).collect()).collect();
        let open = "open invitation, for the first name that uses it";
        assert_eq!(rows, [["NAME", "STATE"], ["a\\u{1b}[2J", "registered"], ["0011", open]]);
    }
}
